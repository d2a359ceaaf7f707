//! Attributes of an inode, striping of a file, entries of a directory, space of a store.

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, InodeId};
use crate::layout::Layout;

/// Kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// Whether the inode is only a name for an object of the kernel: pipe, socket or device.
    #[must_use]
    pub fn is_special(self) -> bool {
        match self {
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => true,
            FileKind::File | FileKind::Directory | FileKind::Symlink => false,
        }
    }
}

/// Attributes of an inode. Times are nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileAttr {
    /// Inode number.
    pub inode: InodeId,
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits (`0o7777`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of directory entries for it; directories count their subdirectories too.
    pub links: u32,
    /// Length in bytes; of a symbolic link that of its target; of a directory the number of its entries; of a
    /// device its number.
    pub size: u64,
    /// Grows with each truncation.
    pub generation: Generation,
    /// Striping of the file; the partition's default for directories and links.
    pub layout: Layout,
    /// Last access.
    pub accessed_ns: u64,
    /// Last change of the contents.
    pub modified_ns: u64,
    /// Last change of the attributes.
    pub changed_ns: u64,
}

/// A change of attributes; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttrChange {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New time of last access.
    pub accessed_ns: Option<u64>,
    /// New time of last change.
    pub modified_ns: Option<u64>,
}

/// Striping requested for a new file; `None` selects the partition's default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Striping {
    /// Block size in bytes.
    pub stripe_bytes: Option<u64>,
    /// Number of servers.
    pub count: Option<u16>,
    /// Server of the first block.
    pub first: Option<u16>,
}

/// One name of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name, without slashes; not necessarily UTF-8.
    pub name: Vec<u8>,
    /// Attributes of the entry's inode.
    pub attr: FileAttr,
}

/// Capacity of a store or a partition, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Space {
    /// Total bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Id of the file system below the store, so that servers on the same file system are counted once; 0: not shared.
    #[serde(default)]
    pub pool: u64,
}

impl Space {
    /// Sum over several stores; a file system shared by several stores counts once.
    #[must_use]
    pub fn sum(spaces: impl IntoIterator<Item = Space>) -> Space {
        let (mut sum, mut seen) = (Space::default(), Vec::new());
        for space in spaces {
            if space.pool != 0 && seen.contains(&space.pool) {
                continue;
            }
            seen.push(space.pool);
            sum.total_bytes = sum.total_bytes.saturating_add(space.total_bytes);
            sum.free_bytes = sum.free_bytes.saturating_add(space.free_bytes);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_system_counts_once() {
        let space = |pool| Space { total_bytes: 10, free_bytes: 4, pool };
        let sum = Space::sum([space(7), space(7), space(8), space(0), space(0)]);
        assert_eq!((sum.total_bytes, sum.free_bytes), (40, 16));
    }
}
