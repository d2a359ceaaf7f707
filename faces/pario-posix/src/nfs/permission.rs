//! Permissions: what the kernel checks for a mount, the export checks itself.
//!
//! Always: the owner of a file may read and write its data, since the client's kernel checked the permission bits when the file was opened.

use pario::core::{FileAttr, FileKind};

use super::rpc::Credential;
use super::status::{NfsResult, NfsStatus};

/// Permission bits of one class of users.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;
/// Only owners remove names from the directory.
const STICKY: u32 = 0o1000;

/// The bits of the three that a user has.
pub(super) fn granted(attr: &FileAttr, user: &Credential) -> u32 {
    if user.uid == 0 {
        let executes = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
        return if executes { READ | WRITE | EXECUTE } else { READ | WRITE };
    }
    let shift = if attr.uid == user.uid {
        6
    } else if user.has_group(attr.gid) {
        3
    } else {
        0
    };
    attr.mode >> shift & 7
}

/// Refuses a user without all of the bits.
pub(super) fn require(attr: &FileAttr, user: &Credential, bits: u32) -> NfsResult<()> {
    if granted(attr, user) & bits == bits { Ok(()) } else { Err(NfsStatus::Access) }
}

/// Whether the user is the owner, or the superuser.
pub(super) fn owns(attr: &FileAttr, user: &Credential) -> bool {
    user.uid == 0 || user.uid == attr.uid
}

/// Reading data. A file that may be executed may be read: a client has to load it.
pub(super) fn require_read(attr: &FileAttr, user: &Credential) -> NfsResult<()> {
    if owns(attr, user) || granted(attr, user) & (READ | EXECUTE) != 0 {
        return Ok(());
    }
    Err(NfsStatus::Access)
}

/// Writing data.
pub(super) fn require_write(attr: &FileAttr, user: &Credential) -> NfsResult<()> {
    if owns(attr, user) { Ok(()) } else { require(attr, user, WRITE) }
}

/// Removing or replacing a name: in a sticky directory only the owner of the inode or of the directory.
pub(super) fn require_removal(dir: &FileAttr, inode: &FileAttr, user: &Credential) -> NfsResult<()> {
    if dir.mode & STICKY == 0 || owns(dir, user) || owns(inode, user) {
        return Ok(());
    }
    Err(NfsStatus::Perm)
}
