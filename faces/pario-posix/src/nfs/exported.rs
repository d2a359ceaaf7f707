//! What every procedure uses: the file system, open files, handles, permissions, attributes around a change, the write verifier.
//!
//! Never: a change through an export that is read-only. Always: attributes before a change are given only if no other change of the export
//! overlapped it.

use std::sync::Arc;

use pario::core::limits::NAME_BYTES_MAX;
use pario::core::{FileAttr, FileKind, InodeId, PartitionId};
use rustix::io::Errno;

use super::attributes::{self, AroundChange};
use super::cookies::Cookies;
use super::export::ExportOptions;
use super::handle;
use super::open_files::OpenFiles;
use super::permission::{self, EXECUTE, WRITE};
use super::replies::RecentReplies;
use super::rpc::Credential;
use super::status::{NfsResult, NfsStatus};
use super::window::{ChangeWindow, ChangeWindows};
use super::xdr::XdrWriter;
use crate::semantics::FileSystem;

/// See the module.
#[derive(Debug)]
pub(super) struct Exported {
    pub(super) system: Arc<FileSystem>,
    pub(super) partition: PartitionId,
    pub(super) options: ExportOptions,
    pub(super) open: OpenFiles,
    pub(super) cookies: Cookies,
    pub(super) replies: RecentReplies,
    windows: ChangeWindows,
    /// Random number of this start.
    start: u64,
}

/// Result of a change, with the attributes around it.
pub(super) struct Changed<T> {
    pub(super) result: NfsResult<T>,
    pub(super) around: AroundChange,
}

impl Exported {
    pub(super) fn new(system: FileSystem, options: ExportOptions, start: u64) -> Exported {
        let system = Arc::new(system);
        Exported {
            partition: system.identity(),
            options,
            open: OpenFiles::new(&system),
            cookies: Cookies::default(),
            replies: RecentReplies::default(),
            windows: ChangeWindows::default(),
            start,
            system,
        }
    }

    /// The write verifier: it changes when unstable writes may be lost, and clients then send them again.
    pub(super) fn write_verifier(&self) -> u64 {
        let changes = self.open.losses().wrapping_add(self.system.server_restarts());
        self.start.wrapping_add(changes)
    }

    /// The inode of a handle.
    pub(super) fn inode(&self, handle: &[u8]) -> NfsResult<InodeId> {
        handle::decode(self.partition, handle)
    }

    /// Attributes with the current length. An inode that is gone makes its handle stale, also if it is kept open here.
    pub(super) fn attributes(&self, inode: InodeId) -> NfsResult<FileAttr> {
        let attr = self.system.attributes(inode).map_err(about_a_handle)?;
        if attr.links == 0 {
            self.open.forget(inode);
            return Err(NfsStatus::Stale);
        }
        Ok(attr)
    }

    /// A directory, as the manager knows it.
    pub(super) fn directory(&self, inode: InodeId) -> NfsResult<FileAttr> {
        let attr = self.system.lookup(inode, b"").map_err(about_a_handle)?;
        if attr.kind == FileKind::Directory { Ok(attr) } else { Err(NfsStatus::NotDirectory) }
    }

    /// Refuses changes of an export that is read-only.
    pub(super) fn require_writable(&self) -> NfsResult<()> {
        if self.options.read_only { Err(NfsStatus::ReadOnly) } else { Ok(()) }
    }

    /// Changes an inode; `change` gets its attributes before.
    pub(super) fn change<T>(
        &self,
        inode: InodeId,
        change: impl FnOnce(&FileAttr) -> NfsResult<T>,
    ) -> Changed<T> {
        let window = self.windows.open(inode);
        let before = match self.attributes(inode) {
            Ok(before) => before,
            Err(status) => return Changed { result: Err(status), around: AroundChange::default() },
        };
        let result = self.require_writable().and_then(|()| change(&before));
        let after = self.attributes(inode).ok();
        let before = window.is_alone().then_some(before);
        Changed { result, around: AroundChange { before, after } }
    }

    /// Marks a change of an inode that is a part of another one, while the result is held: its links, or its length by a creation.
    pub(super) fn mark_change(&self, inode: InodeId) -> ChangeWindow<'_> {
        self.windows.open(inode)
    }

    /// Changes the names of a directory, if the user may.
    pub(super) fn change_names<T>(
        &self,
        dir: InodeId,
        user: &Credential,
        change: impl FnOnce(&FileAttr) -> NfsResult<T>,
    ) -> Changed<T> {
        self.change(dir, |attr| {
            if attr.kind != FileKind::Directory {
                return Err(NfsStatus::NotDirectory);
            }
            permission::require(attr, user, WRITE | EXECUTE)?;
            change(attr)
        })
    }

    pub(super) fn write_handle(&self, out: &mut XdrWriter, inode: InodeId) {
        out.opaque(&handle::encode(self.partition, inode));
    }

    /// `post_op_attr`
    pub(super) fn write_after(&self, out: &mut XdrWriter, attr: Option<&FileAttr>) {
        attributes::write_after(out, self.partition, attr);
    }

    /// `wcc_data`
    pub(super) fn write_around(&self, out: &mut XdrWriter, around: &AroundChange) {
        attributes::write_around(out, self.partition, around);
    }
}

/// The status of an error about the inode of a handle: one that is not found is gone.
pub(super) fn about_a_handle(error: Errno) -> NfsStatus {
    if error == Errno::NOENT { NfsStatus::Stale } else { error.into() }
}

/// Checks a name that is looked up or made.
pub(super) fn check_name(name: &[u8]) -> NfsResult<()> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(NfsStatus::Invalid);
    }
    if NAME_BYTES_MAX < name.len() { Err(NfsStatus::NameTooLong) } else { Ok(()) }
}

/// Checks a name that is made.
pub(super) fn check_new_name(name: &[u8]) -> NfsResult<()> {
    check_name(name)?;
    if name == b"." || name == b".." { Err(NfsStatus::Exists) } else { Ok(()) }
}

/// Checks a name that is removed.
pub(super) fn check_old_name(name: &[u8]) -> NfsResult<()> {
    check_name(name)?;
    if name == b"." || name == b".." { Err(NfsStatus::Invalid) } else { Ok(()) }
}
