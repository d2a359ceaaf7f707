//! `dio.h`: distant files.
//!
//! Never: closes a descriptor of the program. Always: a call without a request is complete when it returns.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use pario_api::Error;
use pario_api::core::{Code, Fault};
use pario_api::distant::{DistantFile, DistantFiles, DistantOpen, DistantRequest};

use super::entries::{DONE, FILES, FileEntry, ForeignBuffer, StartedRequest, keep, take, test};
use super::world;
use crate::ffi::call::{path, status, string, value};
use crate::ffi::memory::{offset as checked_offset, source, target};
use crate::handles::HandleRefusal;
use crate::last_error::{self, CallError, CallResult, signed};

fn refused(refusal: HandleRefusal) -> CallError {
    let number = if refusal == HandleRefusal::Full { libc::EMFILE } else { libc::EBADF };
    CallError::new(number, refusal.to_string())
}

fn invalid(text: impl Into<String>) -> CallError {
    CallError::new(libc::EINVAL, text)
}

fn member(proc: c_int) -> CallResult<usize> {
    usize::try_from(proc).map_err(|_| invalid(format!("process {proc} is not a member")))
}

/// Runs `work` with the file of a member.
fn with<T>(
    handle: c_int,
    proc: c_int,
    work: impl FnOnce(DioTarget<'_>) -> Result<T, Error>,
) -> CallResult<T> {
    let entry = FILES.get(handle).map_err(refused)?;
    let ended = || CallError::new(libc::EBADF, format!("handle {handle} is closed"));
    match &*entry {
        FileEntry::Registered(files) => {
            let files = files.read().unwrap_or_else(PoisonError::into_inner);
            let files = files.as_ref().ok_or_else(ended)?;
            Ok(work(DioTarget::Of(files, member(proc)?))?)
        }
        FileEntry::Opened(file) => {
            let file = file.read().unwrap_or_else(PoisonError::into_inner);
            let file = file.as_ref().ok_or_else(ended)?;
            if proc != DONE && member(proc)? != file.home() {
                return Err(invalid(format!("the file lies at process {}, not {proc}", file.home())));
            }
            Ok(work(DioTarget::One(file))?)
        }
        FileEntry::Shared(_) => Err(CallError::new(libc::EBADF, format!("{handle} is a handle of sf.h"))),
    }
}

/// One file of a handle.
enum DioTarget<'a> {
    Of(&'a DistantFiles, usize),
    One(&'a DistantFile),
}

impl DioTarget<'_> {
    fn read(&self, at: u64, memory: &mut [u8]) -> Result<usize, Error> {
        match self {
            DioTarget::Of(files, rank) => files.read_at(*rank, at, memory),
            DioTarget::One(file) => file.read_at(at, memory),
        }
    }

    fn write(&self, at: u64, memory: &[u8]) -> Result<usize, Error> {
        match self {
            DioTarget::Of(files, rank) => files.write_at(*rank, at, memory)?,
            DioTarget::One(file) => file.write_at(at, memory)?,
        }
        Ok(memory.len())
    }

    fn start(
        &self,
        at: u64,
        memory: ForeignBuffer,
        writes: bool,
    ) -> Result<DistantRequest<ForeignBuffer>, Error> {
        match (self, writes) {
            (DioTarget::Of(files, rank), true) => files.start_write_at(*rank, at, memory),
            (DioTarget::Of(files, rank), false) => files.start_read_at(*rank, at, memory),
            (DioTarget::One(file), true) => file.start_write_at(at, memory),
            (DioTarget::One(file), false) => file.start_read_at(at, memory),
        }
    }

    fn length(&self) -> Result<u64, Error> {
        match self {
            DioTarget::Of(files, rank) => files.length(*rank),
            DioTarget::One(file) => file.length(),
        }
    }

    fn truncate(&self, bytes: u64) -> Result<(), Error> {
        match self {
            DioTarget::Of(files, rank) => files.truncate(*rank, bytes),
            DioTarget::One(file) => file.truncate(bytes),
        }
    }

    fn sync(&self) -> Result<(), Error> {
        match self {
            DioTarget::Of(files, rank) => files.sync(*rank),
            DioTarget::One(file) => file.sync(),
        }
    }
}

fn insert(entry: FileEntry) -> CallResult<c_int> {
    FILES.insert(Arc::new(entry)).map_err(refused)
}

/// # Safety
/// `place` is null or the address of an int.
unsafe fn store(place: *mut c_int, number: c_int, what: &str) -> CallResult<()> {
    if place.is_null() {
        return Err(invalid(format!("{what} is a null pointer")));
    }
    // SAFETY: not null; the caller's promise.
    unsafe { *place = number };
    Ok(())
}

/// Begins Distant I/O; collective. A directory makes its files reachable by path.
///
/// # Safety
/// `directory` is a string or null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_init(directory: *const c_char) -> i64 {
    status(|| {
        let dir = match directory.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(path(unsafe { string(directory, "dio_init: the directory") }?)),
        };
        world::join(dir, true).map(|_| 0)
    })
}

/// Ends Distant I/O; collective.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_finalize() -> i64 {
    status(|| world::leave().map(|()| 0))
}

/// Registers an open descriptor of each process, or none (−1); collective.
///
/// # Safety
/// `handle` is the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_register(descriptor: c_int, handle: *mut c_int) -> i64 {
    status(|| {
        let distant = world::current()?;
        let file = match descriptor < 0 {
            true => Ok(None),
            false => {
                // SAFETY: borrowed for the duplication only; a number that is no descriptor is an error of it.
                let program = unsafe { BorrowedFd::borrow_raw(descriptor) };
                let duplicate = program.try_clone_to_owned().map(|fd: OwnedFd| Some(File::from(fd)));
                // Told to all members.
                duplicate.map_err(|error| Fault::from_io(&error, format!("descriptor {descriptor}")).into())
            }
        };
        let files = distant.register_opened(file)?;
        let number = insert(FileEntry::Registered(RwLock::new(Some(files))))?;
        // SAFETY: the caller's promise.
        unsafe { store(handle, number, "dio_register: the handle") }?;
        Ok(0)
    })
}

/// Ends a registration; collective.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_unregister(handle: c_int) -> i64 {
    status(|| {
        let entry = FILES.get(handle).map_err(refused)?;
        let FileEntry::Registered(files) = &*entry else {
            return Err(CallError::new(libc::EBADF, format!("{handle} is not a handle of dio_register")));
        };
        FILES.remove(handle);
        let files = files.write().unwrap_or_else(PoisonError::into_inner).take();
        let files = files.ok_or_else(|| CallError::new(libc::EBADF, format!("handle {handle} is closed")))?;
        files.unregister(&*world::current()?)?;
        Ok(0)
    })
}

/// Opens a file below the directory of a process; flags as of `open`, among `O_RDONLY`, `O_RDWR`, `O_CREAT`.
///
/// # Safety
/// `name` is a string, `handle` the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_open(
    proc: c_int,
    name: *const c_char,
    flags: c_int,
    handle: *mut c_int,
) -> i64 {
    status(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { string(name, "dio_open: the path") }?;
        let how = match (flags & libc::O_ACCMODE, flags & libc::O_CREAT != 0) {
            (libc::O_RDONLY, false) => DistantOpen::Read,
            (libc::O_RDWR, false) => DistantOpen::Write,
            (libc::O_RDWR, true) => DistantOpen::Create,
            _ => return Err(invalid("dio_open: flags are O_RDONLY, O_RDWR or O_RDWR | O_CREAT")),
        };
        if flags & !(libc::O_ACCMODE | libc::O_CREAT | libc::O_CLOEXEC) != 0 {
            return Err(invalid("dio_open: flags are O_RDONLY, O_RDWR or O_RDWR | O_CREAT"));
        }
        let file = world::current()?.open(member(proc)?, path(name), how)?;
        let number = insert(FileEntry::Opened(RwLock::new(Some(file))))?;
        // SAFETY: the caller's promise.
        unsafe { store(handle, number, "dio_open: the handle") }?;
        Ok(0)
    })
}

/// Closes a handle of `dio_open` or `dio_lookup`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_close(handle: c_int) -> i64 {
    status(|| {
        let entry = FILES.get(handle).map_err(refused)?;
        let FileEntry::Opened(file) = &*entry else {
            return Err(CallError::new(libc::EBADF, format!("{handle} is not a handle of dio_open")));
        };
        FILES.remove(handle);
        drop(file.write().unwrap_or_else(PoisonError::into_inner).take());
        Ok(0)
    })
}

/// Makes the file of a process known under a name.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_publish(handle: c_int, proc: c_int, name: *const c_char) -> i64 {
    status(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { string(name, "dio_publish: the name") }?.to_string_lossy();
        let distant = world::current()?;
        with(handle, proc, |target| match target {
            DioTarget::Of(files, rank) => distant.publish(&name, &files.member(rank)?),
            DioTarget::One(file) => distant.publish(&name, file),
        })?;
        Ok(0)
    })
}

/// Opens a published file.
///
/// # Safety
/// `name` is a string, `handle` the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_lookup(name: *const c_char, handle: *mut c_int) -> i64 {
    status(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { string(name, "dio_lookup: the name") }?.to_string_lossy();
        let file = world::current()?.lookup(&name)?;
        let number = insert(FileEntry::Opened(RwLock::new(Some(file))))?;
        // SAFETY: the caller's promise.
        unsafe { store(handle, number, "dio_lookup: the handle") }?;
        Ok(0)
    })
}

/// Arguments of a read or write.
struct DioTransfer {
    handle: c_int,
    offset: i64,
    bytes: i64,
    proc: c_int,
    writes: bool,
}

/// # Safety
/// `buffer` has so many bytes, left alone until the end of the call or request; `request` is null or the address of an int.
unsafe fn transfer(buffer: *mut c_void, transfer: &DioTransfer, request: *mut c_int) -> i64 {
    value(|| {
        let DioTransfer { handle, offset, bytes, proc, writes } = *transfer;
        let at = checked_offset(offset)?;
        // SAFETY: the caller's promise.
        let memory = unsafe { target(buffer, bytes) }?;
        if request.is_null() {
            let moved = with(handle, proc, |file| match writes {
                true => file.write(at, memory),
                false => file.read(at, memory),
            })?;
            return Ok(moved as u64);
        }
        // SAFETY: the caller's promise; checked above.
        let memory = unsafe { ForeignBuffer::new(memory.as_mut_ptr().cast(), memory.len()) };
        let pending = with(handle, proc, |file| file.start(at, memory, writes));
        // SAFETY: not null; the caller's promise.
        unsafe { *request = DONE };
        let full = || CallError::new(libc::EAGAIN, "too many requests are under way: wait for some");
        let number = keep(StartedRequest { pending: pending?, writes }).ok_or_else(full)?;
        // SAFETY: as above.
        unsafe { *request = number };
        Ok(0)
    })
}

/// Reads; the number of bytes, or 0 for a started request.
///
/// # Safety
/// `buffer` has `bytes` bytes, left alone until the end; `request` is null or the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_read(
    handle: c_int,
    offset: i64,
    buffer: *mut c_void,
    bytes: i64,
    proc: c_int,
    request: *mut c_int,
) -> i64 {
    let call = DioTransfer { handle, offset, bytes, proc, writes: false };
    // SAFETY: the caller's promise.
    unsafe { transfer(buffer, &call, request) }
}

/// Writes; the number of bytes, or 0 for a started request.
///
/// # Safety
/// `buffer` has `bytes` bytes, left alone until the end; `request` is null or the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_write(
    handle: c_int,
    offset: i64,
    buffer: *const c_void,
    bytes: i64,
    proc: c_int,
    request: *mut c_int,
) -> i64 {
    let call = DioTransfer { handle, offset, bytes, proc, writes: true };
    if request.is_null() {
        return value(|| {
            // SAFETY: the caller's promise.
            let memory = unsafe { source(buffer, bytes) }?;
            Ok(with(handle, proc, |file| file.write(checked_at(offset)?, memory))? as u64)
        });
    }
    // SAFETY: the caller's promise; a write only reads the memory.
    unsafe { transfer(buffer.cast_mut(), &call, request) }
}

fn checked_at(offset: i64) -> Result<u64, Error> {
    u64::try_from(offset).map_err(|_| {
        let text = format!("offset {offset} is negative");
        Fault::new(Code::Invalid, text).into()
    })
}

fn finish(number: c_int) -> CallResult<u64> {
    if number == DONE {
        return Ok(0);
    }
    let unknown = || invalid(format!("{number} is not a request under way"));
    let (result, _) = take(number).ok_or_else(unknown)?.pending.wait_with_buffer();
    Ok(result? as u64)
}

/// Whether a request is complete: `*flag` is 1 or 0.
///
/// # Safety
/// Both are addresses of ints.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_test(request: *const c_int, flag: *mut c_int) -> i64 {
    status(|| {
        if request.is_null() {
            return Err(invalid("dio_test: the request is a null pointer"));
        }
        // SAFETY: not null; the caller's promise.
        let number = unsafe { *request };
        let unknown = || invalid(format!("{number} is not a request under way"));
        let done = if number == DONE { true } else { test(number).ok_or_else(unknown)? };
        // SAFETY: the caller's promise.
        unsafe { store(flag, c_int::from(done), "dio_test: the flag") }?;
        Ok(0)
    })
}

/// Waits for a request; its number of bytes.
///
/// # Safety
/// `request` is the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_wait(request: *mut c_int) -> i64 {
    value(|| {
        if request.is_null() {
            return Err(invalid("dio_wait: the request is a null pointer"));
        }
        // SAFETY: not null; the caller's promise.
        let number = unsafe { *request };
        // SAFETY: as above.
        unsafe { *request = DONE };
        finish(number)
    })
}

/// Waits for all requests of a list.
///
/// # Safety
/// `list` has `count` ints.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_waitall(list: *mut c_int, count: c_int) -> i64 {
    status(|| {
        let length = usize::try_from(count).ok().filter(|length| *length == 0 || !list.is_null());
        let length = length.ok_or_else(|| invalid(format!("{count} requests at the address {list:?}")))?;
        if length == 0 {
            return Ok(0);
        }
        // SAFETY: not null; the caller's promise.
        let list = unsafe { std::slice::from_raw_parts_mut(list, length) };
        let finished: Vec<CallResult<u64>> =
            list.iter_mut().map(|request| finish(std::mem::replace(request, DONE))).collect();
        finished.into_iter().try_fold(0, |_, one| one.map(|_| 0))
    })
}

/// Length of the file of a process.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_length(handle: c_int, proc: c_int) -> i64 {
    value(|| with(handle, proc, |file| file.length()))
}

/// Sets the length of the file of a process.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_truncate(handle: c_int, proc: c_int, length: i64) -> i64 {
    status(|| {
        let bytes = checked_offset(length)?;
        with(handle, proc, |file| file.truncate(bytes)).map(|()| 0)
    })
}

/// Puts completed writes to the file of a process on stable storage.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_sync(handle: c_int, proc: c_int) -> i64 {
    status(|| with(handle, proc, |file| file.sync()).map(|()| 0))
}

/// Removes a file from the directory of a process.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dio_remove(proc: c_int, name: *const c_char) -> i64 {
    status(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { string(name, "dio_remove: the path") }?;
        world::current()?.remove(member(proc)?, path(name))?;
        Ok(0)
    })
}

/// The sentence of this thread's last error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_error() -> *const c_char {
    last_error::text()
}

/// Bytes that the last call moved.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dio_count() -> i64 {
    signed(u64::try_from(last_error::count()).unwrap_or(0))
}
