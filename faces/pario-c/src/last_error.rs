//! What the last call of this thread failed with, and the bytes that it moved.
//!
//! Always: every call sets it; a call that succeeds clears the error.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

/// Outcome of the last call of a thread.
#[derive(Debug, Default)]
struct LastCall {
    code: i64,
    count: i64,
    text: CString,
}

/// A failed call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CallError {
    /// The number that the header documents.
    pub(crate) code: i64,
    /// The closest number of POSIX.
    pub(crate) errno: i32,
    pub(crate) text: String,
    /// Bytes moved all the same.
    pub(crate) count: u64,
}

impl CallError {
    /// An error with a number of POSIX.
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> CallError {
        CallError { code: errno.into(), errno, text: text.into(), count: 0 }
    }
}

/// Result of a call; the number of a success is its count.
pub(crate) type CallResult<T> = Result<T, CallError>;

thread_local! {
    static LAST: RefCell<LastCall> = RefCell::default();
}

/// Records the outcome of a call that moved `count` bytes.
pub(crate) fn record(outcome: &CallResult<u64>) {
    LAST.with_borrow_mut(|last| match outcome {
        Ok(count) => {
            (last.code, last.count) = (0, signed(*count));
            if !last.text.is_empty() {
                last.text = CString::default();
            }
        }
        Err(error) => {
            (last.code, last.count) = (error.code, signed(error.count));
            last.text = CString::new(error.text.replace('\0', "?")).unwrap_or_default();
        }
    });
}

/// The number of the last error; 0: the last call succeeded.
pub(crate) fn code() -> i64 {
    LAST.with_borrow(|last| last.code)
}

/// Bytes that the last call moved for this thread.
pub(crate) fn count() -> i64 {
    LAST.with_borrow(|last| last.count)
}

/// The sentence of the last error, valid until the next call of this thread.
pub(crate) fn text() -> *const c_char {
    LAST.with_borrow(|last| last.text.as_ptr())
}

/// A copy of the sentence of the last error.
pub(crate) fn sentence() -> Vec<u8> {
    LAST.with_borrow(|last| last.text.as_bytes().to_vec())
}

/// A number of bytes as C has it.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_until_the_next_call() {
        record(&Err(CallError { count: 3, ..CallError::new(28, "no\0space") }));
        assert_eq!((code(), count()), (28, 3));
        LAST.with_borrow(|last| assert_eq!(last.text.to_str(), Ok("no?space")));
        record(&Ok(7));
        assert_eq!((code(), count()), (0, 7));
        LAST.with_borrow(|last| assert!(last.text.is_empty()));
    }
}
