//! `pario.h`: partitions and their files.
//!
//! Never: gives out the address of a value of ours. Always: a file stays usable after its partition was unmounted.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libc::{off_t, size_t};
use pario_api::core::FileKind;
use pario_api::{Error, File, Group, OpenOptions, Partition};

use super::call::{path, permissions, status, string, value};
use super::memory;
use super::per_process::PerProcess;
use crate::handles::{HandleKind, HandleRefusal, HandleTable};
use crate::last_error::{self, CallError, CallResult};

static PARTITIONS: HandleTable<Partition> = HandleTable::new(HandleKind::Partition);
static FILES: HandleTable<Arc<File>> = HandleTable::new(HandleKind::File);
static GROUP: PerProcess<Mutex<Option<Arc<dyn Group>>>> = PerProcess::new();

/// The name of the partition that a program uses if it names none.
const PARTITION_VARIABLE: &str = "PARIO_PARTITION";

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        CallError::new(error.errno(), error.to_string())
    }
}

fn refused(refusal: HandleRefusal) -> CallError {
    let number = if refusal == HandleRefusal::Full { libc::EMFILE } else { libc::EBADF };
    CallError::new(number, refusal.to_string())
}

fn partition(number: c_int) -> CallResult<Partition> {
    PARTITIONS.get(number).map_err(refused)
}

fn file(number: c_int) -> CallResult<Arc<File>> {
    FILES.get(number).map_err(refused)
}

fn handle(number: i32) -> u64 {
    number.unsigned_abs().into()
}

/// Mounts a partition.
///
/// # Safety
/// `name` points to a string, or is null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_mount(name: *const c_char) -> i64 {
    value(|| {
        let name = match name.is_null() {
            true => std::env::var(PARTITION_VARIABLE).map_err(|_| {
                let text = format!("pario_mount(NULL): {PARTITION_VARIABLE} names no partition");
                CallError::new(libc::ENOENT, text)
            })?,
            // SAFETY: the caller's promise.
            false => unsafe { string(name, "pario_mount: the name") }?.to_string_lossy().into_owned(),
        };
        let mounted = match name.ends_with(".toml") {
            true => Partition::mount_or_start(Path::new(&name)),
            false => Partition::mount(&name),
        };
        // A missing partition, not an invalid argument.
        let mounted = mounted.map_err(|error| match matches!(error, Error::Setup(_)) {
            true => CallError::new(libc::ENOENT, error.to_string()),
            false => error.into(),
        })?;
        Ok(handle(PARTITIONS.insert(mounted).map_err(refused)?))
    })
}

/// Ends a mount.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_unmount(number: c_int) -> i64 {
    status(|| {
        partition(number)?;
        PARTITIONS.remove(number);
        Ok(0)
    })
}

/// Options from the flags of `open`.
fn options(partition: &Partition, flags: c_int, mode: c_uint) -> CallResult<OpenOptions> {
    let access = flags & libc::O_ACCMODE;
    if access == libc::O_ACCMODE {
        let text = "pario_open: write O_RDONLY, O_WRONLY or O_RDWR, not two of them";
        return Err(CallError::new(libc::EINVAL, text));
    }
    if flags & libc::O_APPEND != 0 {
        let text = "pario_open: O_APPEND has no meaning for writes at offsets; use pario_append";
        return Err(CallError::new(libc::EINVAL, text));
    }
    let has = |flag: c_int| flags & flag != 0;
    let write = access != libc::O_RDONLY;
    let options = partition.options().read(access != libc::O_WRONLY).write(write);
    let options = options.create(has(libc::O_CREAT)).truncate(has(libc::O_TRUNC) && write);
    Ok(options.create_new(has(libc::O_CREAT) && has(libc::O_EXCL)).mode(permissions(flags, mode)))
}

/// Opens a file. `mode` may be missing in the call: the header declares the function with `...`.
///
/// # Safety
/// `name` points to a string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_open(
    number: c_int,
    name: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> i64 {
    value(|| {
        let partition = partition(number)?;
        // SAFETY: the caller's promise.
        let name = unsafe { string(name, "pario_open: the path") }?;
        let opened = options(&partition, flags, mode)?.open(path(name))?;
        Ok(handle(FILES.insert(Arc::new(opened)).map_err(refused)?))
    })
}

fn bytes(count: size_t) -> i64 {
    // More than any memory has: refused as a negative length.
    i64::try_from(count).unwrap_or(-1)
}

/// Reads at an offset.
///
/// # Safety
/// `buffer` has `count` bytes, which the program leaves alone during the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_pread(
    number: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off_t,
) -> i64 {
    value(|| {
        let file = file(number)?;
        // SAFETY: the caller's promise.
        let target = unsafe { memory::target(buffer, bytes(count)) }?;
        Ok(file.read_at(memory::offset(offset)?, target)? as u64)
    })
}

/// Writes at an offset.
///
/// # Safety
/// `buffer` has `count` bytes, which the program leaves alone during the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_pwrite(
    number: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off_t,
) -> i64 {
    value(|| {
        let file = file(number)?;
        // SAFETY: the caller's promise.
        let source = unsafe { memory::source(buffer, bytes(count)) }?;
        file.write_at(memory::offset(offset)?, source)?;
        Ok(source.len() as u64)
    })
}

/// Writes behind the end of the file.
///
/// # Safety
/// `buffer` has `count` bytes, which the program leaves alone during the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_append(number: c_int, buffer: *const c_void, count: size_t) -> i64 {
    value(|| {
        let file = file(number)?;
        // SAFETY: the caller's promise.
        let source = unsafe { memory::source(buffer, bytes(count)) }?;
        Ok(file.append(source)?)
    })
}

/// Sets the length.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_truncate(number: c_int, length: off_t) -> i64 {
    status(|| {
        let file = file(number)?;
        Ok(file.set_len(memory::offset(length)?).map(|()| 0)?)
    })
}

/// The length.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_size(number: c_int) -> i64 {
    value(|| Ok(file(number)?.len()?))
}

/// Puts what was written on stable storage.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_sync(number: c_int) -> i64 {
    status(|| Ok(file(number)?.sync().map(|()| 0)?))
}

/// Closes a file, and returns errors of earlier writes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_close(number: c_int) -> i64 {
    status(|| {
        drop(file(number)?);
        let busy = || {
            let text = format!("pario_close: another thread is in a call on handle {number}");
            CallError::new(libc::EBUSY, text)
        };
        let unused = FILES.remove_if(number, |file| Arc::strong_count(file) == 1);
        let file = unused.and_then(Arc::into_inner).ok_or_else(busy)?;
        Ok(file.close().map(|()| 0)?)
    })
}

/// `struct pario_stat` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CStat {
    inode: u64,
    size: u64,
    modified_ns: u64,
    stripe_bytes: u64,
    stripe_count: u32,
    kind: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    links: u32,
}

/// Facts about a name.
///
/// # Safety
/// `name` points to a string, `stat` to a structure of the header or is null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_stat(number: c_int, name: *const c_char, stat: *mut CStat) -> i64 {
    status(|| {
        let partition = partition(number)?;
        if stat.is_null() {
            return Err(CallError::new(libc::EINVAL, "pario_stat: the structure is a null pointer"));
        }
        // SAFETY: the caller's promise.
        let attr = partition.metadata(path(unsafe { string(name, "pario_stat: the path") }?))?;
        let found = CStat {
            inode: attr.inode.0,
            size: attr.size,
            modified_ns: attr.modified_ns,
            stripe_bytes: attr.layout.stripe_bytes(),
            stripe_count: attr.layout.count().into(),
            kind: match attr.kind {
                FileKind::File => 1,
                FileKind::Directory => 2,
                FileKind::Symlink => 3,
                FileKind::Fifo => 4,
                FileKind::Socket => 5,
                FileKind::CharDevice => 6,
                FileKind::BlockDevice => 7,
            },
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            links: attr.links,
        };
        // SAFETY: not null; the caller's promise.
        unsafe { stat.write(found) };
        Ok(0)
    })
}

/// Exports a call on a name of a partition.
macro_rules! on_name {
    ($($name:ident $text:literal $method:ident;)*) => { $(
        /// See `pario.h`.
        ///
        /// # Safety
        /// `name` points to a string.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(number: c_int, name: *const c_char) -> i64 {
            status(|| {
                let partition = partition(number)?;
                // SAFETY: the caller's promise.
                let name = unsafe { string(name, $text) }?;
                Ok(partition.$method(path(name)).map(|()| 0)?)
            })
        }
    )* };
}

on_name! {
    pario_remove "pario_remove: the path" remove_file;
    pario_mkdir "pario_mkdir: the path" create_dir;
    pario_rmdir "pario_rmdir: the path" remove_dir;
}

/// Renames.
///
/// # Safety
/// Both names point to strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_rename(number: c_int, from: *const c_char, to: *const c_char) -> i64 {
    status(|| {
        let partition = partition(number)?;
        // SAFETY: the caller's promise.
        let from = unsafe { string(from, "pario_rename: the old path") }?;
        // SAFETY: the caller's promise.
        let to = unsafe { string(to, "pario_rename: the new path") }?;
        Ok(partition.rename(path(from), path(to)).map(|()| 0)?)
    })
}

/// The group of this process; joined at the first call.
pub(super) fn group() -> CallResult<Arc<dyn Group>> {
    let mut joined = GROUP.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(group) = joined.as_ref() {
        return Ok(Arc::clone(group));
    }
    let group = pario_api::group::current()?;
    *joined = Some(Arc::clone(&group));
    Ok(group)
}

/// Makes a group that of this process, unless it has one.
pub(super) fn set_group(group: Arc<dyn Group>) -> CallResult<()> {
    let mut joined = GROUP.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if joined.is_some() {
        return Err(CallError::new(libc::EBUSY, "this process has a group already"));
    }
    *joined = Some(group);
    Ok(())
}

/// Whether this process has a group.
pub(super) fn has_group() -> bool {
    GROUP.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// The number of this process in its group.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_group_rank() -> i64 {
    value(|| Ok(group()?.rank() as u64))
}

/// Processes of the group.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_group_size() -> i64 {
    value(|| Ok(group()?.size() as u64))
}

/// Waits for all ranks.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_group_barrier() -> i64 {
    status(|| Ok(group()?.barrier().map(|()| 0)?))
}

/// The sentence of this thread's last error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_error() -> *const c_char {
    last_error::text()
}

/// The version of the library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pario_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
