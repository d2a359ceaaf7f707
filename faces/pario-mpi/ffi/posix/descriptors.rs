//! Calls on descriptors.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pario_mpi::posix::{PosixFile, Whence};

use super::{counted, done, failed, file_of, forget, libc_call};

/// `NAME(descriptor, arguments) -> result`, served by the first part for Pario's descriptors.
macro_rules! on_descriptor {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) -> $ret:ty, |$file:ident| $work:expr;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(descriptor: c_int $(, $arg: $ty)*) -> $ret {
            if let Some($file) = file_of(descriptor) {
                return $work;
            }
            let Some(real) = libc_call!($symbol, fn(c_int $(, $ty)*) -> $ret) else { return failed(libc::ENOSYS).into() };
            // SAFETY: the program's arguments as they came.
            unsafe { real(descriptor $(, $arg)*) }
        }
    )* };
}

/// The program's buffer, for reading into.
pub(super) fn target<'a>(buffer: *mut c_void, bytes: usize) -> &'a mut [u8] {
    if bytes == 0 || buffer.is_null() {
        return &mut [];
    }
    // SAFETY: the program passes so many bytes that it lets the call fill.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast(), bytes) }
}

/// The program's buffer, for writing from.
pub(super) fn source<'a>(buffer: *const c_void, bytes: usize) -> &'a [u8] {
    if bytes == 0 || buffer.is_null() {
        return &[];
    }
    // SAFETY: the program passes so many bytes and leaves them alone during the call.
    unsafe { std::slice::from_raw_parts(buffer.cast(), bytes) }
}

pub(super) fn whence(from: c_int) -> Result<Whence, c_int> {
    match from {
        libc::SEEK_SET => Ok(Whence::Start),
        libc::SEEK_CUR => Ok(Whence::Here),
        libc::SEEK_END => Ok(Whence::End),
        _ => Err(libc::EINVAL),
    }
}

on_descriptor! {
    read "read" (buffer: *mut c_void, bytes: usize) -> i64,
        |file| counted(|| file.read(target(buffer, bytes)).map(|count| count as i64));
    write "write" (buffer: *const c_void, bytes: usize) -> i64,
        |file| counted(|| file.write(source(buffer, bytes)).map(|count| count as i64));
    pread "pread" (buffer: *mut c_void, bytes: usize, offset: i64) -> i64,
        |file| counted(|| file.read_at(offset, target(buffer, bytes)).map(|count| count as i64));
    pread64 "pread64" (buffer: *mut c_void, bytes: usize, offset: i64) -> i64,
        |file| counted(|| file.read_at(offset, target(buffer, bytes)).map(|count| count as i64));
    pwrite "pwrite" (buffer: *const c_void, bytes: usize, offset: i64) -> i64,
        |file| counted(|| file.write_at(offset, source(buffer, bytes)).map(|count| count as i64));
    pwrite64 "pwrite64" (buffer: *const c_void, bytes: usize, offset: i64) -> i64,
        |file| counted(|| file.write_at(offset, source(buffer, bytes)).map(|count| count as i64));
    // Variants that compilers emit where they know the length of the buffer.
    __read_chk "__read_chk" (buffer: *mut c_void, bytes: usize, _room: usize) -> i64,
        |file| counted(|| file.read(target(buffer, bytes)).map(|count| count as i64));
    __pread_chk "__pread_chk" (buffer: *mut c_void, bytes: usize, offset: i64, _room: usize) -> i64,
        |file| counted(|| file.read_at(offset, target(buffer, bytes)).map(|count| count as i64));
    __pread64_chk "__pread64_chk" (buffer: *mut c_void, bytes: usize, offset: i64, _room: usize) -> i64,
        |file| counted(|| file.read_at(offset, target(buffer, bytes)).map(|count| count as i64));
    lseek "lseek" (offset: i64, from: c_int) -> i64, |file| counted(|| file.seek(offset, whence(from)?));
    lseek64 "lseek64" (offset: i64, from: c_int) -> i64, |file| counted(|| file.seek(offset, whence(from)?));
    ftruncate "ftruncate" (bytes: i64) -> c_int, |file| done(|| file.truncate(bytes));
    ftruncate64 "ftruncate64" (bytes: i64) -> c_int, |file| done(|| file.truncate(bytes));
    fsync "fsync" () -> c_int, |file| done(|| file.sync());
    fdatasync "fdatasync" () -> c_int, |file| done(|| file.sync());
    fstat "fstat" (to: *mut libc::stat) -> c_int, |file| done(|| super::paths::fill(to, &file.stat()?));
    fstat64 "fstat64" (to: *mut libc::stat) -> c_int, |file| done(|| super::paths::fill(to, &file.stat()?));
}

/// See POSIX.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    let ours = forget(descriptor);
    let Some(real) = libc_call!("close", fn(c_int) -> c_int) else { return failed(libc::ENOSYS) };
    // SAFETY: the program's argument; for a file of Pario's the null device that stood for it.
    let closed = unsafe { real(descriptor) };
    match ours {
        None => closed,
        Some(file) => close_descriptor(file),
    }
}

/// One of a file's descriptors is closed. Other descriptors, or threads inside a call, keep the file until they end.
pub(super) fn close_descriptor(file: Arc<PosixFile>) -> c_int {
    done(|| {
        file.closing();
        Arc::try_unwrap(file).map_or(Ok(()), PosixFile::close)
    })
}
