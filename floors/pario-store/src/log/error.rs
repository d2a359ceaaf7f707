//! Errors of containers: path, cause, cure.

use std::io;
use std::path::{Path, PathBuf};

use super::marker::{MARKER, VERSION};

/// Why a call on a container failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no entry of that name.
    #[error("{} does not exist", .path.display())]
    Missing {
        /// The container.
        path: PathBuf,
    },
    /// An entry of that name exists.
    #[error("{} exists already; open it, or choose another name", .path.display())]
    Exists {
        /// The container.
        path: PathBuf,
    },
    /// The path names no container.
    #[error("{} is not a container: it has no marker {MARKER}; name a container, or a new path", .path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// The marker is damaged.
    #[error("the marker of {} is damaged; `pario doctor {} --repair` writes it anew", .path.display(), .path.display())]
    Damaged {
        /// The container.
        path: PathBuf,
    },
    /// A newer Pario made it.
    #[error(
        "{} is a container of version {version}; this Pario knows version {VERSION}: use a newer one",
        .path.display()
    )]
    Newer {
        /// The container.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Offset or length beyond the largest file.
    #[error("bytes from {offset} on of {} lie beyond the largest file", .path.display())]
    TooLarge {
        /// The container.
        path: PathBuf,
        /// The offset.
        offset: u64,
    },
    /// A data log is shorter than its index, since the container was opened.
    #[error(
        "data log {} is shorter than its index: bytes {offset}.. are lost; `pario doctor` lists what is left",
        .path.display()
    )]
    Short {
        /// The data log.
        path: PathBuf,
        /// The position in it.
        offset: u64,
    },
    /// A writer of another process, or of this one, is open.
    #[error("{} is open for writing elsewhere; close it there first", .path.display())]
    Busy {
        /// The container.
        path: PathBuf,
    },
    /// A plain file cannot take the container's place atomically.
    #[error(
        "the file system of {} cannot exchange two names; copy it with `pario cp` instead",
        .path.display()
    )]
    NoExchange {
        /// The container.
        path: PathBuf,
    },
    /// Used after close.
    #[error("container {} was closed", .path.display())]
    Closed {
        /// The container.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{doing} {}: {source}", .path.display())]
    Disk {
        /// The operation.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl LogError {
    /// The kind of error, for programs that speak in kinds.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            LogError::Missing { .. } => io::ErrorKind::NotFound,
            LogError::Exists { .. } => io::ErrorKind::AlreadyExists,
            LogError::Foreign { .. } => io::ErrorKind::IsADirectory,
            LogError::Damaged { .. } | LogError::Short { .. } => io::ErrorKind::InvalidData,
            LogError::Newer { .. } | LogError::NoExchange { .. } => io::ErrorKind::Unsupported,
            LogError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            LogError::Busy { .. } => io::ErrorKind::ResourceBusy,
            LogError::Closed { .. } => io::ErrorKind::InvalidInput,
            LogError::Disk { source, .. } => source.kind(),
        }
    }
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// Adds operation and path to a system's error.
pub(super) fn at<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> LogError + 'a {
    move |source| LogError::Disk { doing, path: path.to_owned(), source }
}
