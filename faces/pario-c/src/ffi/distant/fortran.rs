//! The names under which Fortran programs call `sf.h`: `sf_create_` and so on. All arguments are references; an INTEGER has 4 bytes in
//! `libpario.so` and 8 in `libpario_i8.so`. Lengths of strings follow the other arguments.
//!
//! Never: does more than convert arguments. Always: strings lose their trailing blanks; a handle of the other INTEGER size is refused.

// An INTEGER of the program.
#[cfg(not(pario_integer8))]
use core::primitive::i32 as Integer;
#[cfg(pario_integer8)]
use core::primitive::i64 as Integer;
use std::ffi::{CString, c_char, c_int};

use libc::size_t;

use super::codes::{self, SfError};
use super::entries::DONE;
use super::sf;

fn wide(number: Integer) -> i64 {
    #[cfg(not(pario_integer8))]
    return number.into();
    #[cfg(pario_integer8)]
    return number;
}

fn integer(number: c_int) -> Integer {
    #[cfg(not(pario_integer8))]
    return number;
    #[cfg(pario_integer8)]
    return number.into();
}

fn narrow(number: i64) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MIN)
}

/// A string of Fortran.
///
/// # Safety
/// `text` has `bytes` bytes.
unsafe fn trimmed(text: *const c_char, bytes: size_t) -> CString {
    if text.is_null() {
        return CString::default();
    }
    // SAFETY: not null; the caller's promise.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(text.trim_ascii_end()).unwrap_or_default()
}

/// # Safety
/// As the exported functions.
unsafe fn create(
    (name, length): (*const c_char, size_t),
    limits: (f64, f64),
    request: f64,
    suffix: Option<i64>,
    handle: &mut Integer,
) -> Integer {
    let code = sf::status(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { trimmed(name, length) };
        let args = sf::CreateArgs { name: name.as_ptr(), limits, request, suffix };
        // SAFETY: a string of ours.
        *handle = integer(unsafe { sf::create(&args) }?);
        Ok(0)
    });
    integer(code)
}

/// Creates a shared file; collective.
///
/// # Safety
/// Every argument is the address of a variable of its type; `name` has `length` characters.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sf_create_(
    name: *const c_char,
    hard: &f64,
    soft: &f64,
    request: &f64,
    handle: &mut Integer,
    length: size_t,
) -> Integer {
    // SAFETY: the caller's promise.
    unsafe { create((name, length), (*hard, *soft), *request, None, handle) }
}

/// Creates a shared file with named components; collective.
///
/// # Safety
/// Every argument is the address of a variable of its type; `name` has `length` characters.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sf_create_suffix_(
    name: *const c_char,
    hard: &f64,
    soft: &f64,
    request: &f64,
    handle: &mut Integer,
    suffix: &Integer,
    length: size_t,
) -> Integer {
    // SAFETY: the caller's promise.
    unsafe { create((name, length), (*hard, *soft), *request, Some(wide(*suffix)), handle) }
}

macro_rules! handle_calls {
    ($($(#[$doc:meta])* $name:ident($handle:ident) $call:expr;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(handle: &Integer) -> Integer {
            let $handle = wide(*handle);
            integer(sf::status(|| $call))
        }
    )* };
}

handle_calls! {
    /// Ends and removes a shared file; collective.
    sf_destroy_(handle) sf::destroy(handle);
    /// Makes the file read-only for this process.
    sf_rwtor_(handle) sf::rwtor(handle);
    /// Opens the file again, for this process.
    sf_open_(handle) sf::set_closed(handle, false);
    /// Closes the file for this process.
    sf_close_(handle) sf::set_closed(handle, true);
    /// Puts the file on stable storage.
    sf_fsync_(handle) sf::fsync(handle);
}

/// # Safety
/// As the exported functions.
unsafe fn transfer(
    handle: Integer,
    range: (f64, f64),
    buffer: *mut c_char,
    request: &mut Integer,
    writes: bool,
) -> Integer {
    let code = sf::status(|| {
        // SAFETY: the caller's promise.
        let number = unsafe { sf::start(wide(handle), range, buffer, writes) };
        *request = integer(*number.as_ref().unwrap_or(&DONE));
        number.map(|_| 0)
    });
    integer(code)
}

/// Starts a write.
///
/// # Safety
/// Every argument is the address of a variable of its type; the buffer is left alone until the wait.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sf_write_(
    handle: &Integer,
    offset: &f64,
    bytes: &f64,
    buffer: *mut c_char,
    request: &mut Integer,
) -> Integer {
    // SAFETY: the caller's promise.
    unsafe { transfer(*handle, (*offset, *bytes), buffer, request, true) }
}

/// Starts a read.
///
/// # Safety
/// Every argument is the address of a variable of its type; the buffer is left alone until the wait.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sf_read_(
    handle: &Integer,
    offset: &f64,
    bytes: &f64,
    buffer: *mut c_char,
    request: &mut Integer,
) -> Integer {
    // SAFETY: the caller's promise.
    unsafe { transfer(*handle, (*offset, *bytes), buffer, request, false) }
}

/// Waits for a request.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sf_wait_(request: &mut Integer) -> Integer {
    let number = wide(std::mem::replace(request, integer(DONE)));
    integer(sf::status(|| sf::wait(number)))
}

/// Waits for all requests of a list.
///
/// # Safety
/// `list` has `count` INTEGERs.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sf_waitall_(list: *mut Integer, count: &Integer) -> Integer {
    let code = sf::status(|| {
        let length = usize::try_from(*count).ok().filter(|length| *length == 0 || !list.is_null());
        let Some(length) = length else {
            return Err(SfError::new(codes::HANDFAIL, format!("{count} requests")));
        };
        if length == 0 {
            return Ok(0);
        }
        // SAFETY: not null; the caller's promise.
        let list = unsafe { std::slice::from_raw_parts_mut(list, length) };
        sf::wait_all(list.iter_mut().map(|request| wide(std::mem::replace(request, integer(DONE)))))
    });
    integer(code)
}

/// The sentence of a number, filled with blanks.
///
/// # Safety
/// `message` has `length` characters.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sf_errmsg_(code: &Integer, message: *mut c_char, length: size_t) {
    if message.is_null() {
        return;
    }
    let text = codes::short(narrow(wide(*code)), length);
    // SAFETY: not null; the caller's promise.
    let target = unsafe { std::slice::from_raw_parts_mut(message.cast::<u8>(), length) };
    target.fill(b' ');
    target[..text.len()].copy_from_slice(&text);
}
