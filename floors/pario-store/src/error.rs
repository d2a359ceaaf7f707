//! Errors of a store: operation, object, bytes; and their one translation to a [`Fault`].

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Code, Fault, ObjectId};
use rustix::io::Errno;

/// Why a store call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Out of space; the same call can succeed after space was freed.
    #[error("store is full: bytes {}..{} of object {object} were not written", .range.start, .range.end)]
    Full {
        /// The object.
        object: ObjectId,
        /// The bytes that did not fit, all or in part.
        range: Range<u64>,
    },
    /// Larger than the file system allows a file to be.
    #[error("bytes {}..{} of object {object} lie beyond the largest file", .range.start, .range.end)]
    TooLarge {
        /// The object.
        object: ObjectId,
        /// The bytes beyond the largest file.
        range: Range<u64>,
    },
    /// The store can be read but not written.
    #[error("{} is read-only", .path.display())]
    ReadOnly {
        /// The store's directory.
        path: PathBuf,
    },
    /// The store's directory does not exist (any more).
    #[error("{} is missing", .path.display())]
    MissingDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The file system does not support this kind of store.
    #[error("{what}")]
    Unsupported {
        /// What is not supported, where, and what to use instead.
        what: String,
    },
    /// The object is shorter than it was once written: it was truncated by another program than its server.
    #[error(
        "object {object} was cut short: it has {length} bytes and was written up to {written}; bytes {}..{} are lost",
        .range.start, .range.end
    )]
    Cut {
        /// The object.
        object: ObjectId,
        /// The lost bytes of the request.
        range: Range<u64>,
        /// Its length now.
        length: u64,
        /// The largest length written.
        written: u64,
    },
    /// Stored bytes do not match the checksum recorded when they were written.
    #[error("object {object} is damaged: bytes {}..{} do not match their checksum", .range.start, .range.end)]
    Corrupt {
        /// The object.
        object: ObjectId,
        /// The blocks concerned.
        range: Range<u64>,
    },
    /// The device or the operating system refused; a repetition of the call hardly helps.
    #[error("{doing} object {object}, bytes {}..{}: {source}", .range.start, .range.end)]
    Device {
        /// The operation.
        doing: Doing,
        /// The object.
        object: ObjectId,
        /// The bytes concerned; empty for the whole object.
        range: Range<u64>,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The servers under this store refused or are unreachable.
    #[error("{0}")]
    Below(Fault),
    /// The device or the operating system refused an operation on no single object.
    #[error("{doing} {}: {source}", .path.display())]
    Directory {
        /// The operation.
        doing: Doing,
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
}

/// Operation of a store that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Making or opening.
    Opening,
    /// Reading.
    Reading,
    /// Writing.
    Writing,
    /// Truncating to a length.
    Truncating,
    /// Removing.
    Removing,
    /// Flushing to stable storage.
    Syncing,
    /// Listing or reading attributes.
    Examining,
    /// Keeping its checksums.
    Summing,
}

impl std::fmt::Display for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Doing::Opening => "opening",
            Doing::Reading => "reading",
            Doing::Writing => "writing",
            Doing::Truncating => "truncating",
            Doing::Removing => "removing",
            Doing::Syncing => "syncing",
            Doing::Examining => "examining",
            Doing::Summing => "keeping checksums of",
        })
    }
}

impl StoreError {
    /// The error of an operation on `range` of `object` in the store at `path`.
    pub(crate) fn from_io(
        source: io::Error,
        doing: Doing,
        object: ObjectId,
        range: Range<u64>,
        path: &Path,
    ) -> StoreError {
        match Errno::from_io_error(&source) {
            // NOMEM: the error of memory stores and tmpfs without free memory.
            Some(Errno::NOSPC | Errno::DQUOT | Errno::NOMEM) => StoreError::Full { object, range },
            Some(Errno::FBIG) => StoreError::TooLarge { object, range },
            Some(Errno::ROFS) => StoreError::ReadOnly { path: path.to_owned() },
            Some(Errno::NOENT) => StoreError::MissingDirectory { path: path.to_owned() },
            _ => StoreError::Device { doing, object, range, source: Arc::new(source) },
        }
    }

    /// The error of an operation on a directory.
    pub(crate) fn from_dir(source: io::Error, doing: Doing, path: &Path) -> StoreError {
        match Errno::from_io_error(&source) {
            Some(Errno::ROFS) => StoreError::ReadOnly { path: path.to_owned() },
            Some(Errno::NOENT | Errno::NOTDIR) => StoreError::MissingDirectory { path: path.to_owned() },
            _ => StoreError::Directory { doing, path: path.to_owned(), source: Arc::new(source) },
        }
    }

    /// Whether the cause is missing space, so that the same call can succeed later.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, StoreError::Full { .. })
            || matches!(self, StoreError::Below(fault) if fault.code == Code::NoSpace)
    }
}

/// The one translation for callers. The server adds its own name.
impl From<&StoreError> for Fault {
    fn from(error: &StoreError) -> Fault {
        let code = match error {
            StoreError::Below(fault) => return fault.clone(),
            StoreError::Full { .. } => Code::NoSpace,
            StoreError::TooLarge { .. } => Code::TooLarge,
            StoreError::ReadOnly { .. } => Code::ReadOnly,
            StoreError::MissingDirectory { .. } | StoreError::Cut { .. } | StoreError::Corrupt { .. } => {
                Code::Io
            }
            StoreError::Unsupported { .. } => Code::Unsupported,
            StoreError::Device { source, .. } | StoreError::Directory { source, .. } => {
                Fault::from_io(source, "").code
            }
        };
        Fault::new(code, error.to_string())
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId};

    use super::*;

    const OBJECT: ObjectId = ObjectId { inode: InodeId(0xab), generation: Generation(2) };

    #[track_caller]
    fn check(errno: i32, code: Code, part: &str) {
        let source = io::Error::from_raw_os_error(errno);
        let error = StoreError::from_io(source, Doing::Writing, OBJECT, 10..20, Path::new("/some/where"));
        let fault = Fault::from(error);
        assert_eq!(fault.code, code);
        assert!(fault.text.contains(part), "{fault}");
    }

    #[test]
    fn each_error_number_becomes_a_code_and_a_sentence() {
        check(28, Code::NoSpace, "bytes 10..20 of object 00000000000000ab-00000002");
        check(122, Code::NoSpace, "full");
        check(27, Code::TooLarge, "beyond the largest file");
        check(30, Code::ReadOnly, "/some/where is read-only");
        check(2, Code::Io, "/some/where is missing");
        check(5, Code::Io, "writing object 00000000000000ab-00000002, bytes 10..20");
        check(24, Code::TooMany, "writing object");
        check(13, Code::Denied, "writing object");
    }
}
