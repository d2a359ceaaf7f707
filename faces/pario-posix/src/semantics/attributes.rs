//! Attributes: reading and changing them.
//!
//! Always: the length and the time of modification count every write that has returned, of this mount and of others; a time that a program
//! sets is not changed by its earlier writes.

use pario::core::{AttrChange, FileAttr, FileKind, InodeId};
use pario::message::NameRequest;

use super::error::{PosixResult, errno_of};
use super::files::HandleMode;
use super::{FileSystem, at, wall_ns};

/// Set-user-ID, set-group-ID, and the group's permission to execute.
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;

/// A change of attributes; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// New length.
    pub size: Option<u64>,
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
    /// The caller may not keep set-user-ID and set-group-ID bits.
    pub drop_privileges: bool,
}

impl AttributeChange {
    /// The current time, for a change of times.
    #[must_use]
    pub fn now_ns() -> u64 {
        wall_ns()
    }

    fn names_change(&self) -> AttrChange {
        AttrChange {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            accessed_ns: self.accessed_ns,
            modified_ns: self.modified_ns,
        }
    }
}

/// The mode without the bits that a write by another user removes.
pub(super) fn without_privileges(attr: &FileAttr) -> u32 {
    let mode = attr.mode & !SET_USER_ID;
    let is_program_of_group = mode & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID | GROUP_EXECUTE;
    if is_program_of_group { mode & !SET_GROUP_ID } else { mode }
}

impl FileSystem {
    /// `stat`: with the current length.
    pub fn attributes(&self, inode: InodeId) -> PosixResult<FileAttr> {
        self.report_writes(inode)?;
        self.call_attr(NameRequest::Stat { at: at(inode, b""), follow: false })
    }

    /// `chmod`, `chown`, `truncate`, `utimensat`; through an open file if there is a handle.
    pub fn set_attributes(
        &self,
        inode: InodeId,
        handle: Option<u64>,
        change: &AttributeChange,
    ) -> PosixResult<FileAttr> {
        if let Some(bytes) = change.size {
            self.set_length(inode, handle, bytes)?;
        }
        let mut names = change.names_change();
        if change.drop_privileges && change.mode.is_none() {
            let attr = self.call_attr(NameRequest::Find { at: at(inode, b""), follow: false })?;
            let mode = without_privileges(&attr);
            names.mode = (attr.kind == FileKind::File && mode != attr.mode).then_some(mode);
        }
        if names == AttrChange::default() {
            return self.attributes(inode);
        }
        // A write that is reported later would set the time again.
        self.report_writes(inode)?;
        if names.mode.is_some() {
            self.forget_privilege_checks(inode);
        }
        self.call_attr(NameRequest::SetAttr { at: at(inode, b""), follow: false, change: names })
    }

    fn set_length(&self, inode: InodeId, handle: Option<u64>, bytes: u64) -> PosixResult<()> {
        if let Some(handle) = handle.and_then(|number| self.files.get(number).ok())
            && handle.writes()
        {
            return handle.file().set_len(bytes).map_err(|error| errno_of(&error));
        }
        let number = self.open(inode, HandleMode { write: true, ..HandleMode::default() })?;
        let set = self.files.get(number)?.file().set_len(bytes).map_err(|error| errno_of(&error));
        let closed = self.release(number);
        set.and(closed)
    }
}
