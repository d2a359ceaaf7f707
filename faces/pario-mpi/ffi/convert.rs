//! Small conversions between C's and ours.

use std::ffi::{CStr, c_char, c_int};

use pario::Seek;
use pario_mpi::{Amode, Class, Problem, Result};

use crate::abi::{self, mode};

/// A text of the program's, at most this long.
const TEXT_BYTES_MAX: usize = 8192;

/// A C string.
pub(crate) fn text(from: *const c_char, what: &str) -> Result<String> {
    if from.is_null() {
        return Err(Problem::new(Class::Arg, format!("{what} is a null address")));
    }
    // SAFETY: the program passes a string that ends with a zero, as MPI wants it.
    let bytes = unsafe { CStr::from_ptr(from) }.to_bytes();
    if TEXT_BYTES_MAX < bytes.len() {
        return Err(Problem::new(Class::Arg, format!("{what} is longer than {TEXT_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// Fills a variable of the program's.
pub(crate) fn put<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(Problem::new(Class::Arg, "a result is to be put at a null address"));
    }
    // SAFETY: the program passes the address of a variable of this type, as MPI wants it.
    unsafe { to.write(value) };
    Ok(())
}

/// A mode from its bits.
pub(crate) fn amode(bits: c_int) -> Amode {
    let has = |bit: c_int| bits & bit != 0;
    let known = mode::CREATE | mode::RDONLY | mode::WRONLY | mode::RDWR | mode::DELETE_ON_CLOSE;
    let known = known | mode::UNIQUE_OPEN | mode::EXCL | mode::APPEND | mode::SEQUENTIAL;
    Amode {
        read_only: has(mode::RDONLY),
        write_only: has(mode::WRONLY),
        read_write: has(mode::RDWR),
        create: has(mode::CREATE),
        exclusive: has(mode::EXCL),
        delete_on_close: has(mode::DELETE_ON_CLOSE),
        unique_open: has(mode::UNIQUE_OPEN),
        sequential: has(mode::SEQUENTIAL),
        append: has(mode::APPEND),
        unknown: bits & !known,
    }
}

/// Where a seek goes.
pub(crate) fn seek(offset: i64, whence: c_int) -> Result<Seek> {
    match whence {
        abi::SEEK_SET => u64::try_from(offset)
            .map(Seek::Set)
            .map_err(|_| Problem::new(Class::Arg, format!("a seek to offset {offset}"))),
        abi::SEEK_CUR => Ok(Seek::Current(offset)),
        abi::SEEK_END => Ok(Seek::End(offset)),
        other => Err(Problem::new(
            Class::Arg,
            format!("a seek from {other}, which is none of MPI_SEEK_SET, _CUR, _END"),
        )),
    }
}
