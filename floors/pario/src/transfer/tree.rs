//! [`FileTree`]: the operations of a file tree for copying, moving, staging and searching.
//!
//! Never: follows a symbolic link at the end of a path unless the method says so. Always: an error names the path.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{AttrChange, FileAttr, FileKind, PartitionId};

use super::TransferResult;

/// Identity of a tree: paths of trees with equal ids can be compared, and renamed into each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeId {
    /// The file system of this machine.
    Local,
    /// The partition with this identity.
    Partition(PartitionId),
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkPolicy {
    /// It is.
    Follow,
    /// The link itself is meant.
    Stay,
}

/// Whether the data of a file must be on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// It must.
    Stable,
    /// Closing is enough.
    Closed,
}

/// Attributes of a file in any tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// Kind of file; `None`: neither file, directory nor symbolic link.
    pub kind: Option<FileKind>,
    /// Length.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access, in nanoseconds since 1970.
    pub accessed_ns: u64,
    /// Last change of the data, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// Device; 0 in a partition.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

impl FileStat {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind == Some(FileKind::Directory)
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.kind == Some(FileKind::Symlink)
    }

    /// Whether both are the same file of one tree.
    #[must_use]
    pub fn is_same_file(&self, other: &FileStat) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// The change that gives another file this owner, these permission bits and times.
    #[must_use]
    pub fn as_change(&self) -> AttrChange {
        AttrChange {
            mode: Some(self.mode),
            uid: Some(self.uid),
            gid: Some(self.gid),
            accessed_ns: Some(self.accessed_ns),
            modified_ns: Some(self.modified_ns),
        }
    }
}

impl From<FileAttr> for FileStat {
    fn from(attr: FileAttr) -> FileStat {
        FileStat {
            kind: (!attr.kind.is_special()).then_some(attr.kind),
            size: attr.size,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            accessed_ns: attr.accessed_ns,
            modified_ns: attr.modified_ns,
            device: 0,
            inode: attr.inode.0,
        }
    }
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeEntry {
    /// The name.
    pub name: OsString,
    /// Attributes, links not followed.
    pub stat: FileStat,
}

/// The entries of a directory, in any order.
pub type TreeEntries = Box<dyn Iterator<Item = TransferResult<TreeEntry>>>;

/// A tree of files. Paths are the tree's own, as [`TreePath`](super::TreePath) holds them.
pub trait FileTree: fmt::Debug + Send + Sync {
    /// Which tree this is.
    fn id(&self) -> TreeId;

    /// A path as users write it, byte for byte.
    fn location(&self, path: &Path) -> OsString;

    /// Whether symbolic links in parent directories, and at the end with [`LinkPolicy::Follow`], are followed.
    fn follows_links(&self) -> bool {
        true
    }

    /// The same tree for a copy into the directory `path`; `None`: this one.
    fn confined(&self, _path: &Path) -> TransferResult<Option<Arc<dyn FileTree>>> {
        Ok(None)
    }

    /// Attributes; `None` if there is no such file.
    fn stat(&self, path: &Path, links: LinkPolicy) -> TransferResult<Option<FileStat>>;

    /// The entries of a directory.
    fn read_dir(&self, path: &Path) -> TransferResult<TreeEntries>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> TransferResult<Box<dyn ReadFile>>;

    /// Creates a file, accessible only to its owner, and opens it for writing; fails if the name exists.
    fn create_new(&self, path: &Path) -> TransferResult<Box<dyn WriteFile>>;

    /// Makes a directory; fails if the name exists.
    fn create_dir(&self, path: &Path) -> TransferResult;

    /// Makes a directory and those above it that are missing.
    fn create_dir_all(&self, path: &Path) -> TransferResult;

    /// Makes a symbolic link at `path` to `target`.
    fn symlink(&self, target: &Path, path: &Path) -> TransferResult;

    /// The target of a symbolic link.
    fn read_link(&self, path: &Path) -> TransferResult<PathBuf>;

    /// Renames atomically, replacing an existing file.
    fn rename(&self, from: &Path, to: &Path) -> TransferResult;

    /// Renames, and fails if the new name exists.
    fn rename_new(&self, from: &Path, to: &Path) -> TransferResult;

    /// Removes a file or symbolic link.
    fn remove_file(&self, path: &Path) -> TransferResult;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> TransferResult;

    /// Changes attributes: owner if permitted (otherwise without setuid and setgid bits), times, permission bits. A symbolic
    /// link has no permission bits.
    fn set_attr(&self, path: &Path, change: AttrChange, links: LinkPolicy) -> TransferResult;
}

/// A file open for reading.
pub trait ReadFile: fmt::Debug + Send + Sync {
    /// Length now.
    fn length(&self) -> TransferResult<u64>;

    /// Fills `target` from `offset` on; returns the number of bytes before the end.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> TransferResult<usize>;

    /// The parts of a range that may hold data, in order; the rest is holes.
    fn data_in(&self, range: Range<u64>) -> TransferResult<Vec<Range<u64>>>;

    /// Whether parts that may hold data may be long runs of zeros.
    fn may_be_zeros(&self) -> bool {
        false
    }
}

/// A new file of a tree.
pub trait WriteFile: fmt::Debug + Send + Sync {
    /// Writes all of `data` at `offset`.
    fn write_at(&self, offset: u64, data: &[u8]) -> TransferResult;

    /// Sets its length to `bytes`, with a hole at the end if needed, and closes it.
    fn finish(&self, bytes: u64, durability: Durability) -> TransferResult;

    /// Closes an abandoned file; errors are logged.
    fn abandon(&self);
}
