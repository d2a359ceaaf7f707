//! Names: lookup, creation, links, removal, renaming.
//!
//! Never: follows a symbolic link: that is the kernel's part.

use pario::core::{FileAttr, FileKind, InodeId};
use pario::message::{Creator, NameReply, NameRequest};
use rustix::io::Errno;

use super::error::{Posix, errno_of};
use super::files::{FileHandle, OpenMode};
use super::{FileSystem, at};

/// The process that makes an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// What a rename does with an existing target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Exchanges both.
    Exchange,
}

/// A special file to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialFile {
    /// Its kind; a regular file is possible, too.
    pub kind: FileKind,
    /// Number of a device.
    pub device: u64,
}

fn creator(caller: Caller, mode: u32) -> Creator {
    Creator { mode, uid: caller.uid, gid: caller.gid }
}

impl FileSystem {
    /// The inode of a name. Its length may lag behind writers of other nodes: [`FileSystem::attributes`] knows it.
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Posix<FileAttr> {
        self.call_attr(NameRequest::Find { at: at(parent, name), follow: false })
    }

    /// `open` with `O_CREAT`: the file's attributes, and a handle.
    pub fn create(
        &self,
        (parent, name): (InodeId, &[u8]),
        mode: OpenMode,
        (caller, bits): (Caller, u32),
    ) -> Posix<(FileAttr, u64)> {
        let options = mode.options(&self.partition).create(true).create_new(mode.exclusive);
        let shown = String::from_utf8_lossy(name);
        let opened = options.open_at(at(parent, name), creator(caller, bits), &shown);
        let (file, attr) = opened.map_err(|error| errno_of(&error))?;
        Ok((attr, self.files.add(FileHandle::new(file, &attr, mode))))
    }

    /// `mknod`
    pub fn make_node(
        &self,
        (parent, name): (InodeId, &[u8]),
        special: SpecialFile,
        (caller, bits): (Caller, u32),
    ) -> Posix<FileAttr> {
        if special.kind == FileKind::File {
            let mode = OpenMode { write: true, exclusive: true, ..OpenMode::default() };
            let (attr, handle) = self.create((parent, name), mode, (caller, bits))?;
            self.release(handle)?;
            return Ok(attr);
        }
        let SpecialFile { kind, device } = special;
        let request =
            NameRequest::MakeNode { at: at(parent, name), kind, device, creator: creator(caller, bits) };
        self.call_attr(request)
    }

    /// `mkdir`
    pub fn make_dir(
        &self,
        (parent, name): (InodeId, &[u8]),
        (caller, bits): (Caller, u32),
    ) -> Posix<FileAttr> {
        self.call_attr(NameRequest::MakeDir { at: at(parent, name), creator: creator(caller, bits) })
    }

    /// `symlink`
    pub fn symlink(
        &self,
        (parent, name): (InodeId, &[u8]),
        target: &[u8],
        caller: Caller,
    ) -> Posix<FileAttr> {
        let (at, creator) = (at(parent, name), creator(caller, 0o777));
        self.call_attr(NameRequest::Symlink { at, target: target.to_vec(), creator })
    }

    /// `readlink`
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn read_link(&self, inode: InodeId) -> Posix<Vec<u8>> {
        match self.call(NameRequest::ReadLink { at: at(inode, b"") })? {
            NameReply::Target { target } => Ok(target),
            _ => Err(Errno::IO),
        }
    }

    /// `link`
    pub fn link(&self, inode: InodeId, (parent, name): (InodeId, &[u8])) -> Posix<FileAttr> {
        self.call_attr(NameRequest::Link { from: at(inode, b""), to: at(parent, name) })
    }

    /// `unlink`
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> Posix<()> {
        self.call(NameRequest::Remove { at: at(parent, name) }).map(drop)
    }

    /// `rmdir`
    pub fn remove_dir(&self, parent: InodeId, name: &[u8]) -> Posix<()> {
        self.call(NameRequest::RemoveDir { at: at(parent, name) }).map(drop)
    }

    /// `rename`
    pub fn rename(
        &self,
        (from_dir, from): (InodeId, &[u8]),
        (to_dir, to): (InodeId, &[u8]),
        mode: RenameMode,
    ) -> Posix<()> {
        let (from, to) = (at(from_dir, from), at(to_dir, to));
        let request = match mode {
            RenameMode::Replace => NameRequest::Rename { from, to, replace: true },
            RenameMode::NoReplace => NameRequest::Rename { from, to, replace: false },
            RenameMode::Exchange => NameRequest::Exchange { one: from, two: to },
        };
        self.call(request).map(drop)
    }

    /// `fsync` of a directory: every name operation that has returned is on stable storage.
    pub fn sync_names(&self) -> Posix<()> {
        self.partition.sync_names().map_err(|error| errno_of(&error))
    }
}
