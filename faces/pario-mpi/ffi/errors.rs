//! Converts problems to error codes of the MPI library with a text, and calls the error handlers of files.
//!
//! Always: a code has the right class; codes are reused, since a library has a limited number.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use pario_mpi::{Class, MpiError, Result};

use super::api;
use crate::abi::{self, File};

/// Limit of codes with their own text; later problems get the class alone.
const CODES_MAX: usize = 256;
/// The shortest limit of the libraries is 256, with the zero.
const TEXT_BYTES_MAX: usize = 250;

static CODES: Mutex<Option<HashMap<(Class, String), c_int>>> = Mutex::new(None);

/// Runs a call of the program: a problem is passed to the file's error handler and returned.
pub(crate) fn serve(file: File, work: impl FnOnce() -> Result<()>) -> c_int {
    match protected(work) {
        Ok(()) => 0,
        Err(problem) => raise(file, &problem),
    }
}

/// Converts a panic to a problem.
pub(crate) fn protected<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(MpiError::new(Class::Intern, "internal error of Pario (a panic); standard error has its message"))
    })
}

/// Passes a problem to a file's error handler; returns its code if the handler returns.
pub(crate) fn raise(file: File, problem: &MpiError) -> c_int {
    let code = code_of(problem);
    // A handler may end the program; its return value is ignored.
    if abi::NULL_FILE_HANDLES || file != abi::file_null() {
        let _ = api::file_call_errhandler(file, code);
        return code;
    }
    // An invalid file has the default handler, as every new one: not all libraries accept a null handle here.
    if let Ok(mut shadow) = super::open::shadow() {
        let _ = api::file_call_errhandler(shadow, code);
        let _ = api::file_close(&raw mut shadow);
    }
    code
}

/// The code of a problem; its string is the problem's text.
pub(crate) fn code_of(problem: &MpiError) -> c_int {
    let class = abi::class_number(problem.class);
    let text: String = format!("{}: {}", problem.class.word(), problem.text);
    let end =
        text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= TEXT_BYTES_MAX).last();
    let text = text[..end.unwrap_or(0)].replace('\0', " ");
    let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
    let codes = codes.get_or_insert_default();
    if let Some(code) = codes.get(&(problem.class, text.clone())) {
        return *code;
    }
    if CODES_MAX <= codes.len() {
        return class;
    }
    let Some(code) = new_code(class, &text) else { return class };
    codes.insert((problem.class, text), code);
    code
}

fn new_code(class: c_int, text: &str) -> Option<c_int> {
    let words = CString::new(text).ok()?;
    let mut code = 0;
    let added =
        api::add_error_code(class, &raw mut code).and_then(|()| api::add_error_string(code, words.as_ptr()));
    if added.is_ok() && api::error_string(code).is_some_and(|said| said == text) {
        return Some(code);
    }
    // MPICH before 5 stores no strings for codes of its own classes; its internal function does.
    api::mpich_error_code(class, &words)
}

/// Prints an error that cannot be returned to a caller.
pub(crate) fn complain(what: &str) {
    eprintln!("pario: {what}");
}
