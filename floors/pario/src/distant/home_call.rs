//! Operations that only a home's store has, as bytes of [`pario_net::message::Request::StoreCall`].
//!
//! Always: both ends are of one release; an unknown operation is refused.

use pario_core::{Code, Fault, InodeId};
use serde::{Deserialize, Serialize};

/// What an open file may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FileAccess {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// A file of a home.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FileRef {
    /// Rank of the home.
    pub(super) rank: usize,
    /// Number of the file at its home.
    pub(super) number: u64,
    pub(super) access: FileAccess,
}

impl FileRef {
    pub(super) fn inode(&self) -> InodeId {
        InodeId(self.number)
    }
}

/// How a file of a home's directory is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DistantOpen {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; created if missing.
    Create,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum HomeCall {
    /// Opens a file of the home's directory; answer: `File`.
    Open { path: Vec<u8>, how: DistantOpen },
    /// One more user of an open file; answer: `Done`.
    Retain { number: u64 },
    /// One user less; answer: `Done`.
    Release { number: u64 },
    /// Sets the length; answer: `Done`.
    Truncate { number: u64, bytes: u64 },
    /// Removes a file of the home's directory; answer: `Done`.
    Remove { path: Vec<u8> },
    /// Keeps a name, at the first home; answer: `Done`.
    Publish { name: String, file: FileRef },
    /// Forgets a name; answer: the file that had it.
    Unpublish { name: String },
    /// The file of a name; answer: `File`.
    Lookup { name: String },
}

/// Answer to a [`HomeCall`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum HomeAnswer {
    Done,
    File(FileRef),
}

pub(super) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|error| Fault::new(Code::Protocol, error.to_string()))
}

pub(super) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, Fault> {
    let unknown = |error| Fault::new(Code::Protocol, format!("an unknown operation of a home: {error}"));
    serde_json::from_slice(bytes).map_err(unknown)
}
