//! Calls of POSIX on the inodes of a partition: names, attributes, open files, directories, locks.
//!
//! Never: knows the kernel's messages; checks permissions, which is the kernel's part (`default_permissions`). Always: a handle keeps its
//! file until it is released, also without a name; owner and mode of a new inode are the caller's.

mod attributes;
mod directories;
mod error;
mod files;
mod handles;
mod locks;
mod names;
mod pages;
mod scan;
mod space;
mod xattrs;

use std::sync::Arc;

use pario::client::{Session, server_restarts};
use pario::core::{FileAttr, InodeId, PartitionId};
use pario::message::{At, NameReply, NameRequest};
use pario::{Application, Partition};
use rustix::io::Errno;

pub use attributes::AttributeChange;
pub use directories::ListedEntry;
pub use error::PosixResult;
pub use files::{HandleMode, WriteOrder};
pub use locks::{ConflictingLock, LockCall, LockRange, PosixLockKind, PosixLockWait};
pub use names::{DirName, RenameMode, SpecialFile};
pub use pages::{PageAccess, PageKeeper};
pub use scan::ScanLengths;

use directories::DirectoryHandle;
use error::errno;
use files::MountedFile;
use handles::HandleTable;
use locks::LockOwners;
use pages::Keeper;
use space::KnownSpace;

/// See the module.
#[derive(Debug)]
pub struct FileSystem {
    partition: Partition,
    files: HandleTable<MountedFile>,
    directories: HandleTable<DirectoryHandle>,
    locks: LockOwners,
    space: KnownSpace,
    keeper: Keeper,
}

impl FileSystem {
    /// A file system on a session of its own; `label` names it in `pario status`.
    #[must_use]
    pub fn new(partition: &Partition, label: &str) -> FileSystem {
        FileSystem {
            partition: partition.on_behalf_of(Application::new(label, 1)),
            files: HandleTable::default(),
            directories: HandleTable::default(),
            locks: LockOwners::default(),
            space: KnownSpace::default(),
            keeper: Keeper::default(),
        }
    }

    /// Name of the partition.
    pub fn name(&self) -> &str {
        self.partition.name()
    }

    /// The partition's identity, which no other has.
    pub fn identity(&self) -> PartitionId {
        self.partition.identity()
    }

    /// Number of server restarts that this session has found: writes that were not synced may be lost with each.
    pub fn server_restarts(&self) -> u64 {
        server_restarts(self.session())
    }

    /// Closes what is still open; returns the number of files that lost writes.
    pub fn shut_down(&self) -> usize {
        let left = self.files.take_all();
        left.into_iter().filter(|handle| self.close(handle).is_err()).count()
    }

    fn session(&self) -> &Arc<Session> {
        self.partition.mount_handle()
    }

    fn call(&self, request: NameRequest) -> PosixResult<NameReply> {
        self.session().name_call(request).map_err(|fault| errno(&fault))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn call_attr(&self, request: NameRequest) -> PosixResult<FileAttr> {
        match self.call(request)? {
            NameReply::Attr { attr } => Ok(attr),
            other => {
                tracing::warn!(?other, "unexpected reply of the manager");
                Err(Errno::IO)
            }
        }
    }
}

/// A name in a directory.
fn at(parent: InodeId, name: &[u8]) -> At {
    At { base: parent, path: name.to_vec() }
}

/// Nanoseconds since 1970.
fn wall_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
