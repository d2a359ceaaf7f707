//! Names: lookup, creation, links, removal, renaming.
//!
//! Never: follows a symbolic link: that is the kernel's part.

use pario::core::{FileAttr, FileKind, InodeId};
use pario::message::{At, Creator, NameReply, NameRequest};
use rustix::io::Errno;

use super::error::{PosixResult, errno_of};
use super::files::{HandleMode, MountedFile};
use super::{FileSystem, at};

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirName<'a> {
    /// The directory.
    pub dir: InodeId,
    /// The name.
    pub name: &'a [u8],
}

impl From<DirName<'_>> for At {
    fn from(place: DirName<'_>) -> At {
        at(place.dir, place.name)
    }
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

impl FileSystem {
    /// The inode of a name. Its length may lag behind writers of other nodes: [`FileSystem::attributes`] knows it.
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> PosixResult<FileAttr> {
        self.call_attr(NameRequest::Find { at: at(parent, name), follow: false })
    }

    /// `open` with `O_CREAT`: the file's attributes, and a handle.
    pub fn create(
        &self,
        place: DirName<'_>,
        mode: HandleMode,
        creator: Creator,
    ) -> PosixResult<(FileAttr, u64)> {
        let options = mode.options(&self.partition).create(true).create_new(mode.exclusive);
        let shown = String::from_utf8_lossy(place.name);
        let opened = options.open_at(place.into(), creator, &shown);
        let (file, attr) = opened.map_err(|error| errno_of(&error))?;
        Ok((attr, self.files.add(MountedFile::new(file, &attr, mode))))
    }

    /// `mknod`
    pub fn make_node(
        &self,
        place: DirName<'_>,
        special: SpecialFile,
        creator: Creator,
    ) -> PosixResult<FileAttr> {
        if special.kind == FileKind::File {
            let mode = HandleMode { write: true, exclusive: true, ..HandleMode::default() };
            let (attr, handle) = self.create(place, mode, creator)?;
            self.release(handle)?;
            return Ok(attr);
        }
        let SpecialFile { kind, device } = special;
        let request = NameRequest::MakeNode { at: place.into(), kind, device, creator };
        self.call_attr(request)
    }

    /// `mkdir`
    pub fn make_dir(&self, place: DirName<'_>, creator: Creator) -> PosixResult<FileAttr> {
        self.call_attr(NameRequest::MakeDir { at: place.into(), creator })
    }

    /// `symlink`
    pub fn symlink(&self, place: DirName<'_>, target: &[u8], creator: Creator) -> PosixResult<FileAttr> {
        let request = NameRequest::Symlink { at: place.into(), target: target.to_vec(), creator };
        self.call_attr(request)
    }

    /// `readlink`
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn read_link(&self, inode: InodeId) -> PosixResult<Vec<u8>> {
        match self.call(NameRequest::ReadLink { at: at(inode, b"") })? {
            NameReply::Target { target } => Ok(target),
            _ => Err(Errno::IO),
        }
    }

    /// `link`
    pub fn link(&self, inode: InodeId, place: DirName<'_>) -> PosixResult<FileAttr> {
        self.call_attr(NameRequest::Link { from: at(inode, b""), to: place.into() })
    }

    /// `unlink`
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> PosixResult<()> {
        self.call(NameRequest::Remove { at: at(parent, name) }).map(drop)
    }

    /// `rmdir`
    pub fn remove_dir(&self, parent: InodeId, name: &[u8]) -> PosixResult<()> {
        self.call(NameRequest::RemoveDir { at: at(parent, name) }).map(drop)
    }

    /// `rename`
    pub fn rename(&self, from: DirName<'_>, to: DirName<'_>, mode: RenameMode) -> PosixResult<()> {
        let (from, to) = (from.into(), to.into());
        let request = match mode {
            RenameMode::Replace => NameRequest::Rename { from, to, replace: true },
            RenameMode::NoReplace => NameRequest::Rename { from, to, replace: false },
            RenameMode::Exchange => NameRequest::Exchange { one: from, two: to },
        };
        self.call(request).map(drop)
    }

    /// `fsync` of a directory: every name operation that has returned is on stable storage.
    pub fn sync_names(&self) -> PosixResult<()> {
        self.partition.sync_names().map_err(|error| errno_of(&error))
    }
}
