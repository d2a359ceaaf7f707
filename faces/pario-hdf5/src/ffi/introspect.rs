//! What the connector says about itself, and settings behind its name.

use std::ffi::{c_char, c_int, c_void};

use super::abi::{Herr, OK};
use super::class::{self, CAPABILITIES};
use super::failure::guard_status;
use super::values::{put, text};
use crate::settings;

/// Operations of native files that are served: subclass and numbers.
const SERVED: [(c_int, &[c_int]); 4] =
    [(4, &[2, 3, 4, 5, 6, 7, 10]), (6, &[0, 8, 13, 23, 28]), (7, &[0, 1]), (9, &[0, 1])];

pub(super) unsafe extern "C" fn connector_class<const S: usize>(
    _object: *mut c_void,
    _level: c_int,
    target: *mut *const c_void,
) -> Herr {
    put(target, class::of_slot(S));
    OK
}

pub(super) unsafe extern "C" fn capabilities(_info: *const c_void, flags: *mut u64) -> Herr {
    put(flags, CAPABILITIES);
    OK
}

pub(super) unsafe extern "C" fn query(
    _object: *mut c_void,
    subclass: c_int,
    number: c_int,
    flags: *mut u64,
) -> Herr {
    let served = SERVED.iter().any(|(class, numbers)| *class == subclass && numbers.contains(&number));
    put(flags, u64::from(served));
    OK
}

pub(super) unsafe extern "C" fn parse_settings<const S: usize>(
    string: *const c_char,
    target: *mut *mut c_void,
) -> Herr {
    guard_status(S, |_| {
        if !string.is_null() {
            settings::check(&text(string)?)?;
        }
        put(target, std::ptr::null_mut());
        Ok(OK)
    })
}
