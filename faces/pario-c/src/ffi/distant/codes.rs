//! Numbers of `sf.h`, as Global Arrays has published them, and their sentences.
//!
//! Always: the sentence of a thread's last error takes precedence over the general one of its number.

use std::cell::RefCell;
use std::ffi::c_int;

use pario_api::Error;
use pario_api::core::Code;

pub(super) const SEEKFAIL: c_int = -2000;
pub(super) const WRITFAIL: c_int = -1999;
pub(super) const READFAIL: c_int = -1997;
pub(super) const HANDFAIL: c_int = -1994;
pub(super) const MODEFAIL: c_int = -1993;
pub(super) const OPENFAIL: c_int = -1990;
pub(super) const DELFAIL: c_int = -1987;
pub(super) const LONGFAIL: c_int = -1983;
pub(super) const EOFFAIL: c_int = -1977;
pub(super) const FSYNCFAIL: c_int = -1976;
pub(super) const UNKNFAIL: c_int = -1975;
/// Result of `SF_Waitall` if a request failed.
pub(super) const WAITALL_FAILED: c_int = 1;

/// A failed call of `sf.h`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SfError {
    pub(super) code: c_int,
    pub(super) text: String,
    /// Bytes read all the same.
    pub(super) count: u64,
    pub(super) errno: i32,
}

impl SfError {
    pub(super) fn new(code: c_int, text: impl Into<String>) -> SfError {
        SfError { code, text: text.into(), count: 0, errno: libc::EINVAL }
    }

    /// The error of an operation with this general number.
    pub(super) fn of(error: &Error, general: c_int) -> SfError {
        let errno = error.errno();
        if let Error::PastEnd { read, .. } = error {
            return SfError { code: EOFFAIL, text: error.to_string(), count: *read as u64, errno };
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "all others have the number of the operation")]
        let code = match error.code() {
            Code::Closed => HANDFAIL,
            Code::NotWritable | Code::NotReadable | Code::ReadOnly => MODEFAIL,
            Code::NameTooLong => LONGFAIL,
            Code::TooLarge => SEEKFAIL,
            _ => general,
        };
        SfError { code, text: error.to_string(), count: 0, errno }
    }
}

thread_local! {
    static LAST: RefCell<(c_int, String)> = const { RefCell::new((0, String::new())) };
}

/// Keeps the error of this thread.
pub(super) fn remember(error: &SfError) {
    LAST.set((error.code, error.text.clone()));
}

/// The sentence of a number.
pub(super) fn sentence(code: c_int) -> String {
    let last = LAST.with_borrow(|(last, text)| {
        (*last == code || code == WAITALL_FAILED && *last != 0).then(|| text.clone())
    });
    last.unwrap_or_else(|| general(code).to_owned())
}

fn general(code: c_int) -> &'static str {
    match code {
        0 => "success",
        1 => "at least one of the requests failed",
        -2000 => "the offset or length is not possible",
        -1999 | -1998 => "the write failed",
        -1997 | -1996 => "the read failed",
        -1995 => "the wait failed",
        -1994 => "not a handle or request of this interface, or closed",
        -1993 => "the file does not allow this access",
        -1992 => "the directory cannot be used",
        -1991 => "the file cannot be examined",
        -1990 => "the file cannot be created or opened",
        -1989 => "no memory",
        -1988 => "not supported",
        -1987 => "the file cannot be removed",
        -1986 => "the file cannot be closed",
        -1983 => "the name is too long",
        -1978 => "the file cannot be cut",
        -1977 => "the read ends beyond the end of the file",
        -1976 => "the bytes could not be put on stable storage",
        -1985..=-1979 | -1975 => "an error without a number of its own",
        _ => "not a number of this interface",
    }
}

/// The last error in at most `bytes` bytes.
pub(super) fn short(code: c_int, bytes: usize) -> Vec<u8> {
    let text = sentence(code);
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.as_bytes()[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_sentence_and_the_last_error_comes_first() {
        for code in -2000..=-1975 {
            assert!(!general(code).starts_with("not a number"), "{code}");
        }
        let text = "no space left: rank 3, node7:/local, 30720 bytes at 1200000000";
        remember(&SfError::new(WRITFAIL, text));
        assert_eq!(sentence(WRITFAIL), text);
        assert_eq!(sentence(WAITALL_FAILED), text);
        assert_eq!(sentence(READFAIL), "the read failed");
        assert_eq!(short(WRITFAIL, 13), b"no space left");
    }
}
