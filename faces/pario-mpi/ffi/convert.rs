//! Small conversions between C types and Pario's.

use std::ffi::{CStr, c_char, c_int};

use pario::Seek;
use pario_mpi::{Amode, Class, MpiError, Result};

use crate::abi::{self, mode};

/// Limit of a text of the program.
const TEXT_BYTES_MAX: usize = 8192;

/// A C string.
pub(crate) fn text(from: *const c_char, what: &str) -> Result<String> {
    if from.is_null() {
        return Err(MpiError::new(Class::Arg, format!("{what} is a null address")));
    }
    // SAFETY: the program passes a zero-terminated string, as MPI demands.
    let bytes = unsafe { CStr::from_ptr(from) }.to_bytes();
    if TEXT_BYTES_MAX < bytes.len() {
        return Err(MpiError::new(Class::Arg, format!("{what} is longer than {TEXT_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// Stores a value in a variable of the program.
pub(crate) fn put<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(MpiError::new(Class::Arg, "the address of an output argument is null"));
    }
    // SAFETY: the program passes the address of a variable of this type, as MPI demands.
    unsafe { to.write(value) };
    Ok(())
}

/// Decodes the bits of a mode.
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

/// Decodes the target of a seek.
pub(crate) fn seek(offset: i64, whence: c_int) -> Result<Seek> {
    match whence {
        abi::SEEK_SET => u64::try_from(offset)
            .map(Seek::Set)
            .map_err(|_| MpiError::new(Class::Arg, format!("a seek to the negative offset {offset}"))),
        abi::SEEK_CUR => Ok(Seek::Current(offset)),
        abi::SEEK_END => Ok(Seek::End(offset)),
        other => Err(MpiError::new(
            Class::Arg,
            format!("a seek with whence {other}: use MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END"),
        )),
    }
}
