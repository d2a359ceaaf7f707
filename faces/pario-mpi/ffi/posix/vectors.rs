//! Vectored reads and writes, as used by C++ streams. The buffers of a write are joined first, so that it is one write, and one
//! append.

use std::ffi::c_int;

use pario_mpi::posix::{Posix, PosixFile};

use super::descriptors::{source, target};
use super::{counted, failed, file_of, libc_call};

/// POSIX's `IOV_MAX`.
const PARTS_MAX: usize = 1024;

/// The program's buffers.
fn parts<'a>(list: *const libc::iovec, count: c_int) -> Posix<&'a [libc::iovec]> {
    let count = usize::try_from(count).ok().filter(|count| *count <= PARTS_MAX).ok_or(libc::EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the program passes a list of so many buffers and leaves it alone during the call.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

fn gathered(list: *const libc::iovec, count: c_int) -> Posix<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in parts(list, count)? {
        bytes.extend_from_slice(source(part.iov_base, part.iov_len));
    }
    Ok(bytes)
}

/// Fills buffer after buffer by `read`, which gets the number of bytes before, until a read is short.
fn scattered(
    list: *const libc::iovec,
    count: c_int,
    read: impl Fn(&mut [u8], i64) -> Posix<usize>,
) -> Posix<i64> {
    let mut done = 0;
    for part in parts(list, count)? {
        let got = read(target(part.iov_base, part.iov_len), done)?;
        done += i64::try_from(got).map_err(|_| libc::EOVERFLOW)?;
        if got < part.iov_len {
            break;
        }
    }
    Ok(done)
}

fn length(written: usize) -> Posix<i64> {
    i64::try_from(written).map_err(|_| libc::EOVERFLOW)
}

fn read_at(file: &PosixFile, list: *const libc::iovec, count: c_int, offset: i64) -> i64 {
    counted(|| scattered(list, count, |target, done| file.read_at(offset.saturating_add(done), target)))
}

fn write_at(file: &PosixFile, list: *const libc::iovec, count: c_int, offset: i64) -> i64 {
    counted(|| length(file.write_at(offset, &gathered(list, count)?)?))
}

macro_rules! vectors {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) |$file:ident, $list:ident, $count:ident| $work:expr;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(descriptor: c_int, $list: *const libc::iovec, $count: c_int $(, $arg: $ty)*) -> i64 {
            if let Some($file) = file_of(descriptor) {
                return $work;
            }
            let real = libc_call!($symbol, fn(c_int, *const libc::iovec, c_int $(, $ty)*) -> i64);
            let Some(real) = real else { return failed(libc::ENOSYS).into() };
            // SAFETY: the program's arguments as they came.
            unsafe { real(descriptor, $list, $count $(, $arg)*) }
        }
    )* };
}

vectors! {
    readv "readv" () |file, list, count| counted(|| scattered(list, count, |target, _| file.read(target)));
    writev "writev" () |file, list, count| counted(|| length(file.write(&gathered(list, count)?)?));
    preadv "preadv" (offset: i64) |file, list, count| read_at(&file, list, count, offset);
    preadv64 "preadv64" (offset: i64) |file, list, count| read_at(&file, list, count, offset);
    pwritev "pwritev" (offset: i64) |file, list, count| write_at(&file, list, count, offset);
    pwritev64 "pwritev64" (offset: i64) |file, list, count| write_at(&file, list, count, offset);
}
