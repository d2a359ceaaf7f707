//! `omp_file.h`: files that the threads of an OpenMP program read and write together.
//!
//! Never: returns different results on members of one call. Always: wrong arguments of one member are an error of all.

pub(super) mod transfer;

use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use libc::off_t;
use pario_api::team::{HandleVariable, TeamCode, TeamError, TeamFile, TeamMember, TeamOptions, TeamSettings};

use super::call::{path, permissions, status, string, value};
use super::openmp;
use crate::handles::{HandleKind, HandleRefusal, HandleTable};
use crate::last_error::{self, CallError, CallResult};

static FILES: HandleTable<TeamFile> = HandleTable::new(HandleKind::TeamFile);
/// Settings of files that are opened from now on.
static SETTINGS: Mutex<Option<TeamSettings>> = Mutex::new(None);

/// Numbers of errors that POSIX has no number for.
const END_OF_FILE: i64 = 1001;
const NOT_SAME: i64 = 1002;
const CLOSED: i64 = 1003;
const LOST: i64 = 1004;
const TWO_TEAMS: i64 = 1005;

impl From<TeamError> for CallError {
    fn from(error: TeamError) -> CallError {
        #[expect(clippy::wildcard_enum_match_arm, reason = "all other errors have a number of POSIX")]
        let code = match error.code() {
            TeamCode::EndOfFile => END_OF_FILE,
            TeamCode::NotSame => NOT_SAME,
            TeamCode::Closed => CLOSED,
            TeamCode::Lost => LOST,
            TeamCode::TwoTeams => TWO_TEAMS,
            _ => error.errno().into(),
        };
        CallError { code, errno: error.errno(), text: error.to_string(), count: error.count() }
    }
}

fn refused(refusal: HandleRefusal) -> CallError {
    let text = refusal.to_string();
    match refusal {
        HandleRefusal::Foreign { .. } => CallError::new(libc::EBADF, text),
        HandleRefusal::Full => CallError::new(libc::EMFILE, text),
        HandleRefusal::Closed { .. } | HandleRefusal::OfParent { .. } => {
            CallError { code: CLOSED, ..CallError::new(libc::EBADF, text) }
        }
    }
}

fn file(fd: c_int) -> CallResult<TeamFile> {
    FILES.get(fd).map_err(refused)
}

fn member(fd: c_int) -> CallResult<TeamMember> {
    Ok(file(fd)?.at(openmp::position()?))
}

/// Opens a file by all threads of a team. `mode` may be missing in the call: the header declares the function with `...`.
///
/// # Safety
/// `fd` points to an `int`, `name` to a string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_file_open_all(
    fd: *mut c_int,
    name: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> i64 {
    status(|| {
        if fd.is_null() {
            return Err(CallError::new(
                libc::EINVAL,
                "open_all: the address for the handle is a null pointer",
            ));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { string(name, "open_all: the name") }?;
        let settings = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        let options = TeamOptions::from_flags(flags)?.mode(permissions(flags, mode)).settings(settings);
        let variable = HandleVariable { address: fd.addr(), is_own: openmp::is_on_own_stack(fd.addr()) };
        let opened = TeamFile::open_all(path(name), &options, openmp::position()?, variable)?;
        let number = FILES.insert_once(opened, |known, new| known.is_same(new)).map_err(refused)?;
        // SAFETY: the caller's promise.
        let shared = unsafe { AtomicI32::from_ptr(fd) };
        // Atomic: a shared variable gets the number from every member.
        shared.store(number, Ordering::Relaxed);
        Ok(0)
    })
}

/// Closes a file by all members.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_close_all(fd: c_int) -> i64 {
    status(|| {
        let member = member(fd)?;
        let closed = member.close_all();
        if member.file().is_closed() {
            FILES.remove(fd);
        }
        closed?;
        Ok(0)
    })
}

/// Puts what was written on stable storage, by all members.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_fsync(fd: c_int) -> i64 {
    status(|| Ok(member(fd)?.sync_all().map(|()| 0)?))
}

/// Sets the pointer, by all members.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_seek_all(fd: c_int, offset: off_t) -> i64 {
    // A negative offset is beyond the largest one as an unsigned number, and is refused on all members.
    status(|| Ok(member(fd)?.seek_all(offset.cast_unsigned()).map(|()| 0)?))
}

/// The pointer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_tell(fd: c_int) -> i64 {
    value(|| Ok(file(fd)?.tell()))
}

/// The length of the file.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_size(fd: c_int) -> i64 {
    value(|| Ok(file(fd)?.size()?))
}

/// Bytes that the last call moved for this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_count() -> i64 {
    last_error::count()
}

/// The number of this thread's last error; 0: its last call succeeded.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_errno() -> i64 {
    last_error::code()
}

/// The sentence of this thread's last error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_file_strerror() -> *const c_char {
    last_error::text()
}

/// A setting of files that are opened from now on; a null value removes it.
///
/// # Safety
/// `key` points to a string, `value` too or is null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_file_set(key: *const c_char, value: *const c_char) -> i64 {
    status(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { string(key, "omp_file_set: the key") }?.to_string_lossy();
        let value = match value.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(unsafe { string(value, "omp_file_set: the value") }?.to_string_lossy()),
        };
        let mut settings = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = settings.get_or_insert_default();
        match value {
            Some(value) => settings.set(&key, &value)?,
            None => settings.clear(&key)?,
        }
        Ok(0)
    })
}

/// Does nothing: programs for OpenUH call it before their first region.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ompc_barrier_init(_threads: c_int) {}
