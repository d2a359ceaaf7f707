//! The error of a transfer: the path, the cause, and the cure where one is known.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pario_core::{Code, Fault};

use super::TreePath;
use crate::error::Error;

/// Result of a transfer.
pub type TransferResult<T = ()> = Result<T, TransferError>;

/// Why a transfer, or one file of it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// This machine's file system refused or failed.
    #[error("{}: {error}", path.display())]
    Local {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A partition refused or failed.
    #[error("{path}: {error}")]
    Partition {
        /// The file or directory, as `pario://NAME/path`, or the partition's name.
        path: String,
        /// The cause.
        error: Error,
    },
    /// A file or directory is missing.
    #[error("{path}: no such file or directory{}", missing(parent.as_deref()))]
    Missing {
        /// The file or directory.
        path: String,
        /// The topmost directory above that is missing, too.
        parent: Option<String>,
    },
    /// A directory as a source without [`CopyOptions::recursive`](super::CopyOptions::recursive).
    #[error("{path}: is a directory, and the copy is not recursive")]
    NotRecursive {
        /// The directory.
        path: String,
    },
    /// The transfer would break a rule of its module: the text names path and rule.
    #[error("{text}{}", in_brackets(cure.as_deref()))]
    Refused {
        /// Path and rule.
        text: String,
        /// The cure.
        cure: Option<String>,
    },
    /// More than one file of a verified transfer failed.
    #[error("{first}; and {others} more")]
    Several {
        /// The first failure.
        first: Box<TransferError>,
        /// The number of the others.
        others: usize,
    },
    /// [`Observer::is_stopped`](super::Observer::is_stopped) was true.
    #[error("stopped by its caller")]
    Stopped,
}

fn missing(parent: Option<&str>) -> String {
    parent.map(|dir| format!(" (there is no directory {dir}: make it first)")).unwrap_or_default()
}

fn in_brackets(cure: Option<&str>) -> String {
    cure.map(|cure| format!(" ({cure})")).unwrap_or_default()
}

impl TransferError {
    /// Whether a server does not answer: every other file of the partition would also fail.
    #[must_use]
    pub fn is_server_gone(&self) -> bool {
        matches!(self, TransferError::Partition { error, .. } if error.code() == Code::Unreachable)
    }

    pub(crate) fn refused(text: impl fmt::Display) -> TransferError {
        TransferError::Refused { text: text.to_string(), cure: None }
    }

    pub(crate) fn with_cure(text: impl fmt::Display, cure: impl Into<String>) -> TransferError {
        TransferError::Refused { text: text.to_string(), cure: Some(cure.into()) }
    }

    /// A symbolic link in the target of a copy.
    pub(super) fn link_in_target(path: impl fmt::Display) -> TransferError {
        let text = format!("{path}: a symbolic link in the target is not followed");
        TransferError::with_cure(text, "remove it, or copy elsewhere")
    }

    /// Zero, one or several failures as a result.
    pub(super) fn all_of(mut failures: Vec<TransferError>) -> TransferResult {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.swap_remove(0)),
            count => {
                let first = Box::new(failures.swap_remove(0));
                Err(TransferError::Several { first, others: count - 1 })
            }
        }
    }

    /// The same error with `path` in place of its temporary name.
    pub(super) fn called(self, temporary: &TreePath, path: &TreePath) -> TransferError {
        let name = |path: &TreePath| path.name().unwrap_or_default().to_string_lossy().into_owned();
        let called = |text: String| text.replace(&name(temporary), &name(path));
        match self {
            TransferError::Local { path: found, error } if found == temporary.path => {
                TransferError::Local { path: path.path.clone(), error }
            }
            TransferError::Partition { path, error: Error::Fault(Fault { code, text }) } => {
                let error = Error::Fault(Fault { code, text: called(text) });
                TransferError::Partition { path: called(path), error }
            }
            TransferError::Missing { path, parent } => TransferError::Missing { path: called(path), parent },
            TransferError::Refused { text, cure } => TransferError::Refused { text: called(text), cure },
            other @ (TransferError::Local { .. }
            | TransferError::Partition { .. }
            | TransferError::NotRecursive { .. }
            | TransferError::Several { .. }
            | TransferError::Stopped) => other,
        }
    }
}
