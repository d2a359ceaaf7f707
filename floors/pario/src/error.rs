//! The error of the public API: a code to act on and a sentence that names server, file and range.

use pario_core::{Code, Fault};

/// An error. [`Error::code`] is for programs, `Display` for users.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A partition, its servers or its files refused or failed.
    #[error("{0}")]
    Fault(Fault),
    /// A read ends beyond the end of a shared file; the bytes before the end were read.
    #[error(
        "{file}: a read of {wanted} bytes at {at} ends beyond the end of the file: {read} bytes were read"
    )]
    PastEnd {
        /// The file.
        file: String,
        /// Offset of the read.
        at: u64,
        /// Bytes requested.
        wanted: usize,
        /// Bytes before the end.
        read: usize,
    },
    /// The partition file, the registry or the start of servers.
    #[error("{0}")]
    Setup(String),
}

/// Result of the public API.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind of the error.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Error::Fault(fault) => fault.code,
            Error::Setup(_) | Error::PastEnd { .. } => Code::Invalid,
        }
    }

    /// The POSIX error number closest to it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.code().errno()
    }

    pub(crate) fn setup(error: impl std::fmt::Display) -> Error {
        Error::Setup(error.to_string())
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Fault(fault)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}
