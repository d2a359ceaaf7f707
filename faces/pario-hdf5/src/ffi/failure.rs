//! Failures of callbacks: text and number on HDF5's error stack, nothing else.
//!
//! Never: a panic leaves a callback.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pario_container::TreeError;

use super::abi::{FAIL, Herr};
use super::library::{Library, of_slot};

/// Why a callback failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    errno: i32,
    /// HDF5 has put its own error on the stack.
    said: bool,
}

/// The result of a callback.
pub(crate) type VolOutcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), errno: 22, said: false }
    }

    pub(crate) fn with_errno(text: impl Into<String>, errno: i32) -> Failure {
        Failure { text: text.into(), errno, said: false }
    }

    /// A request that Pario refuses.
    pub(crate) fn unsupported(what: &str) -> Failure {
        Failure { text: format!("not supported by Pario: {what}"), errno: 95, said: false }
    }

    /// A function of HDF5 failed; its own text is on the stack.
    pub(crate) fn of_library(function: &str) -> Failure {
        Failure { text: format!("{function} failed"), errno: 5, said: true }
    }

    pub(crate) fn errno(&self) -> i32 {
        self.errno
    }
}

impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Failure {
        Failure { text: error.to_string(), errno: error.errno(), said: false }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::new(text)
    }
}

/// Puts a failure on the error stack.
pub(crate) fn push(library: &Library, failure: &Failure) {
    let text = format!("Pario: {}, errno = {}", failure.text, failure.errno);
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let number = |name| library.variables.get(name).unwrap_or(0);
    let (class, major) = (number(c"H5E_ERR_CLS_g"), number(c"H5E_VOL_g"));
    let minor = number(c"H5E_CANTOPENFILE_g");
    // SAFETY: all texts end in NUL and outlive the call; `%s` takes one text.
    unsafe {
        (library.f.H5Epush2)(
            0,
            c"libpario_hdf5".as_ptr(),
            c"pario".as_ptr(),
            0,
            class,
            major,
            minor,
            c"%s".as_ptr(),
            text.as_ptr(),
        );
    }
}

/// Runs a callback; a failure or panic goes to the error stack of the library in `slot`, and `failed` is returned.
pub(crate) fn guard<T>(slot: usize, failed: T, body: impl FnOnce(&'static Library) -> VolOutcome<T>) -> T {
    let library = of_slot(slot);
    let outcome = catch_unwind(AssertUnwindSafe(|| body(library)));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
            Failure::new(format!("internal error: {text}"))
        }
    };
    let _ = failure.said;
    push(library, &failure);
    failed
}

/// A callback that returns `herr_t`.
pub(crate) fn guard_status(slot: usize, body: impl FnOnce(&'static Library) -> VolOutcome<Herr>) -> Herr {
    guard(slot, FAIL, body)
}
