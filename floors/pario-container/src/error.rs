//! Errors of a tree: object, cause and cure.

use std::io;

/// The result of an operation on a tree.
pub type Result<T> = std::result::Result<T, TreeError>;

/// An error of an HDF5 tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The storage failed.
    #[error("{action} {path}: {source}")]
    Storage {
        /// What was done.
        action: &'static str,
        /// File inside the place.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The partition failed.
    #[error("{action} {path}: {cause}")]
    Partition {
        /// What was done.
        action: &'static str,
        /// Path in the partition.
        path: String,
        /// The partition's sentence.
        cause: String,
        /// The number that fits best.
        errno: i32,
    },
    /// A line that is not what was written.
    #[error("{path}, line {line}: {cause}; `pario h5 check --repair` keeps the intact lines")]
    Damaged {
        /// File inside the tree.
        path: String,
        /// Number of the line, from 1.
        line: usize,
        /// What does not fit.
        cause: String,
    },
    /// A stored chunk or blob that is not what was written.
    #[error("{path}: {cause}; the data is damaged, restore it from a copy")]
    DamagedData {
        /// File inside the tree.
        path: String,
        /// What does not fit.
        cause: String,
    },
    /// The directory is no tree.
    #[error("{path} is not an HDF5 tree of Pario: {cause}")]
    NotATree {
        /// The directory.
        path: String,
        /// What is missing.
        cause: String,
    },
    /// Another process uses the tree in a way that excludes this one.
    #[error("{path} is in use by {holder}; close it there, or set HDF5_USE_FILE_LOCKING=FALSE")]
    Busy {
        /// The tree.
        path: String,
        /// Process and host that hold it.
        holder: String,
    },
    /// No object or link has this name.
    #[error("no object `{0}`")]
    NoObject(String),
    /// The name is taken.
    #[error("`{0}` exists already")]
    Exists(String),
    /// No object has this id.
    #[error("no object has the id {0}; it was deleted, or the reference belongs to another file")]
    NoId(u64),
    /// The object is of another kind.
    #[error("`{name}` is a {is}, not a {wanted}")]
    WrongKind {
        /// The object.
        name: String,
        /// Its kind.
        is: &'static str,
        /// The kind needed.
        wanted: &'static str,
    },
    /// The tree was opened for reading.
    #[error("the file was opened read-only")]
    ReadOnly,
    /// An argument cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The request is not supported.
    #[error("not supported by Pario: {0}")]
    Unsupported(String),
}

impl TreeError {
    pub(crate) fn storage(action: &'static str, path: impl Into<String>, source: io::Error) -> TreeError {
        TreeError::Storage { action, path: path.into(), source }
    }

    /// The number of the system's error that fits best, for callers that know these numbers only.
    pub fn errno(&self) -> i32 {
        match self {
            TreeError::Storage { source, .. } => source.raw_os_error().unwrap_or(5),
            TreeError::Partition { errno, .. } => *errno,
            TreeError::NoObject(_) | TreeError::NoId(_) => 2,
            TreeError::Exists(_) => 17,
            TreeError::Busy { .. } => 11,
            TreeError::ReadOnly => 30,
            TreeError::WrongKind { .. } | TreeError::Invalid(_) | TreeError::NotATree { .. } => 22,
            TreeError::Unsupported(_) => 95,
            TreeError::Damaged { .. } | TreeError::DamagedData { .. } => 5,
        }
    }
}
