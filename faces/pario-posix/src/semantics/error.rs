//! Error numbers of faults.
//!
//! Always: what a POSIX program cannot know of (a dead server, a protocol, damage) is `EIO`, and its text is in the log.

use pario::core::{Code, Fault};
use rustix::io::Errno;

/// Result of a call: a value, or an error number.
pub type PosixResult<T> = Result<T, Errno>;

/// The error number of a fault.
pub(super) fn errno(fault: &Fault) -> Errno {
    match fault.code {
        Code::Unreachable
        | Code::Lost
        | Code::Io
        | Code::WrongSecret
        | Code::Protocol
        | Code::Corrupt
        | Code::ShuttingDown
        | Code::Closed
        | Code::TimedOut => {
            tracing::warn!(%fault, "input/output error");
            Errno::IO
        }
        Code::NotFound
        | Code::Exists
        | Code::NotDirectory
        | Code::IsDirectory
        | Code::NotEmpty
        | Code::NameTooLong
        | Code::LinkLoop
        | Code::Invalid
        | Code::TooLarge
        | Code::NoSpace
        | Code::ReadOnly
        | Code::Denied
        | Code::Stale
        | Code::Busy
        | Code::Unsupported
        | Code::TooMany
        | Code::CrossDevice
        | Code::Datatype
        | Code::NotSame
        | Code::NotWritable
        | Code::NotReadable
        | Code::Deadlock
        | Code::WouldBlock
        | Code::NoAttribute
        | Code::TooManyLinks => {
            tracing::debug!(%fault, "refused");
            Errno::from_raw_os_error(fault.code.errno())
        }
    }
}

/// The same of an error of the library.
pub(super) fn errno_of(error: &pario::Error) -> Errno {
    errno(&Fault::new(error.code(), error.to_string()))
}
