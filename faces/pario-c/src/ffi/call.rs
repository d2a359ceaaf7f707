//! The frame of every exported function: outcome recorded for this thread, `errno` set, panics kept inside.
//!
//! Never: lets a panic through into the program. Always: an error leaves number, sentence and count.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::last_error::{CallError, CallResult, record, signed};

/// A call that returns 0, or −1.
pub(super) fn status(run: impl FnOnce() -> CallResult<u64>) -> i64 {
    let outcome = guarded(run);
    record(&outcome);
    match outcome {
        Ok(_) => 0,
        Err(error) => failed(&error),
    }
}

/// A call that returns a number, or −1.
pub(super) fn value(run: impl FnOnce() -> CallResult<u64>) -> i64 {
    let outcome = guarded(run);
    record(&outcome);
    match outcome {
        Ok(number) => signed(number),
        Err(error) => failed(&error),
    }
}

fn guarded(run: impl FnOnce() -> CallResult<u64>) -> CallResult<u64> {
    let panicked =
        |_| Err(CallError::new(libc::EIO, "a defect of Pario: the call panicked; see the standard error"));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked)
}

fn failed(error: &CallError) -> i64 {
    // SAFETY: the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; valid for the life of the thread.
    unsafe { *errno = error.errno };
    -1
}

/// A string of the program.
///
/// # Safety
/// Null, or the address of a string that ends with a zero byte and is not changed for as long as `'a`.
pub(super) unsafe fn string<'a>(text: *const c_char, what: &str) -> CallResult<&'a CStr> {
    if text.is_null() {
        return Err(CallError::new(libc::EINVAL, format!("{what} is a null pointer")));
    }
    // SAFETY: not null; the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A path of the program.
pub(super) fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// The permission bits that followed the flags of an open. A caller without our header may have passed none: then the register
/// holds any value.
pub(super) fn permissions(flags: c_int, mode: c_uint) -> u32 {
    let is_mode = mode <= 0o7777 && mode & 0o600 != 0;
    if flags & libc::O_CREAT != 0 && is_mode { mode } else { 0o666 }
}
