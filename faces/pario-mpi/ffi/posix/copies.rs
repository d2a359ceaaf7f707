//! Duplicated descriptors: both refer to one open file, with one position and one set of locks.

use std::ffi::c_int;
use std::sync::Arc;

use super::descriptors::close_descriptor;
use super::{failed, file_of, forget, libc_call, name};

/// The C library has duplicated `descriptor` to `copy`: it refers to the same file now, and no longer to its old one.
pub(super) fn copied(descriptor: c_int, copy: c_int) -> c_int {
    if copy < 0 || copy == descriptor {
        return copy;
    }
    let displaced = match file_of(descriptor) {
        Some(file) => name(copy, Arc::clone(&file)),
        None => forget(copy),
    };
    if let Some(file) = displaced {
        // An error of the implied close is lost, as in POSIX.
        let _ = close_descriptor(file);
    }
    copy
}

/// See POSIX.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    let Some(real) = libc_call!("dup", fn(c_int) -> c_int) else { return failed(libc::ENOSYS) };
    // SAFETY: the program's argument as it came.
    copied(descriptor, unsafe { real(descriptor) })
}

/// See POSIX.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(descriptor: c_int, copy: c_int) -> c_int {
    let Some(real) = libc_call!("dup2", fn(c_int, c_int) -> c_int) else { return failed(libc::ENOSYS) };
    // SAFETY: the program's arguments as they came.
    copied(descriptor, unsafe { real(descriptor, copy) })
}

/// See POSIX.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(descriptor: c_int, copy: c_int, flags: c_int) -> c_int {
    let Some(real) = libc_call!("dup3", fn(c_int, c_int, c_int) -> c_int) else {
        return failed(libc::ENOSYS);
    };
    // SAFETY: the program's arguments as they came.
    copied(descriptor, unsafe { real(descriptor, copy, flags) })
}
