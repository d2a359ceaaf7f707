//! Memory that a program passes to a call of one thread.
//!
//! Never: makes a slice of a null pointer. Always: a length that no memory has is refused.

use std::ffi::c_void;

use crate::last_error::{CallError, CallResult};

fn checked(memory: *const c_void, bytes: i64) -> CallResult<usize> {
    let wrong = |text: String| Err(CallError::new(libc::EINVAL, text));
    match usize::try_from(bytes) {
        Err(_) => wrong(format!("a length of {bytes} bytes")),
        Ok(length) if length != 0 && memory.is_null() => wrong(format!("{bytes} bytes at a null pointer")),
        Ok(length) => Ok(length),
    }
}

/// Memory to be read.
///
/// # Safety
/// `memory` has `bytes` bytes, which the program does not change for as long as `'a`.
pub(super) unsafe fn source<'a>(memory: *const c_void, bytes: i64) -> CallResult<&'a [u8]> {
    match checked(memory, bytes)? {
        0 => Ok(&[]),
        // SAFETY: not null; the caller promises the rest.
        length => Ok(unsafe { std::slice::from_raw_parts(memory.cast::<u8>(), length) }),
    }
}

/// Memory to be filled.
///
/// # Safety
/// `memory` has `bytes` bytes, which the program leaves alone for as long as `'a`.
pub(super) unsafe fn target<'a>(memory: *mut c_void, bytes: i64) -> CallResult<&'a mut [u8]> {
    match checked(memory, bytes)? {
        0 => Ok(&mut []),
        // SAFETY: not null; the caller promises the rest.
        length => Ok(unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), length) }),
    }
}

/// An offset, which is not negative.
pub(super) fn offset(offset: i64) -> CallResult<u64> {
    u64::try_from(offset).map_err(|_| CallError::new(libc::EINVAL, format!("offset {offset} is negative")))
}
