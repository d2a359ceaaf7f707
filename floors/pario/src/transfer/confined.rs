//! A directory of this machine as the target of a copy, as a [`FileTree`] on the directory's descriptor.
//!
//! Never: follows a symbolic link below the directory, made by another program before or during the copy.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use pario_core::AttrChange;
use pario_sys::dir::{Dir, PRIVATE_FILE, is_link_error};
use rustix::fs::{AtFlags, OFlags, RenameFlags};

use super::local::{LocalFile, apply, change_at, entries};
use super::tree::{FileStat, FileTree, LinkPolicy, ReadFile, TreeEntries, TreeId, WriteFile};
use super::{TransferError, TransferResult};

/// The files below one directory of this machine; paths start with the directory's own.
#[derive(Debug)]
pub struct ConfinedTree {
    dir: Dir,
}

/// Adds the path to an error; a symbolic link is reported as such.
fn named<T>(path: &Path, done: io::Result<T>) -> TransferResult<T> {
    done.map_err(|error| match is_link_error(&error) {
        true => TransferError::link_in_target(path.display()),
        false => TransferError::Local { path: path.to_owned(), error },
    })
}

impl ConfinedTree {
    /// The directory at `path`; links to it are followed here only.
    pub fn open(path: &Path) -> TransferResult<ConfinedTree> {
        let dir = Dir::open(path).map_err(|error| TransferError::Local { path: path.to_owned(), error })?;
        Ok(ConfinedTree { dir })
    }

    /// The path relative to the directory; empty: the directory itself.
    fn below<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        path.strip_prefix(self.dir.path()).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    fn find(&self, path: &Path) -> io::Result<Option<FileStat>> {
        let below = self.below(path)?;
        if below.as_os_str().is_empty() {
            return Ok(Some(FileStat::from(&rustix::fs::fstat(&self.dir)?)));
        }
        Ok(self.dir.stat(below)?.as_ref().map(FileStat::from))
    }

    /// Opens a file or directory for reading.
    fn open_any(&self, path: &Path) -> io::Result<File> {
        let below = self.below(path)?;
        if below.as_os_str().is_empty() {
            return Ok(self.dir.as_fd().try_clone_to_owned()?.into());
        }
        self.dir.open_file(below, OFlags::RDONLY | OFlags::NONBLOCK, 0)
    }

    /// A new directory gets the permissions of the process's umask.
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.dir.make_dir(self.below(path)?, 0o777)
    }

    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = Vec::new();
        for dir in path.ancestors() {
            if self.find(dir)?.is_some() {
                break;
            }
            missing.push(dir);
        }
        missing.into_iter().rev().try_for_each(|dir| self.make_dir(dir))
    }

    fn rename_as(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        let (from, to) = (self.dir.parent(self.below(from)?)?, self.dir.parent(self.below(to)?)?);
        Ok(rustix::fs::renameat_with(&from.fd, from.name, &to.fd, to.name, flags)?)
    }

    fn unlink(&self, path: &Path, flags: AtFlags) -> io::Result<()> {
        let at = self.dir.parent(self.below(path)?)?;
        Ok(rustix::fs::unlinkat(&at.fd, at.name, flags)?)
    }

    fn change(&self, path: &Path, change: AttrChange, links: LinkPolicy) -> io::Result<()> {
        if links == LinkPolicy::Stay {
            let at = self.dir.parent(self.below(path)?)?;
            return change_at(&at.fd, Path::new(at.name), AttrChange { mode: None, ..change }, links);
        }
        // By descriptor: a link that replaces the file meanwhile is not followed.
        let file = self.open_any(path)?;
        let owner = |uid, gid| rustix::fs::fchown(&file, uid, gid);
        apply(
            change,
            owner,
            |times| rustix::fs::futimens(&file, times),
            |mode| rustix::fs::fchmod(&file, mode),
        )
    }
}

impl FileTree for ConfinedTree {
    fn id(&self) -> TreeId {
        TreeId::Local
    }

    fn location(&self, path: &Path) -> OsString {
        path.into()
    }

    fn follows_links(&self) -> bool {
        false
    }

    fn stat(&self, path: &Path, _links: LinkPolicy) -> TransferResult<Option<FileStat>> {
        named(path, self.find(path))
    }

    fn read_dir(&self, path: &Path) -> TransferResult<TreeEntries> {
        named(path, self.open_any(path).and_then(|dir| entries(dir.into(), path)))
    }

    fn open(&self, path: &Path) -> TransferResult<Box<dyn ReadFile>> {
        Ok(LocalFile::boxed(named(path, self.open_any(path))?, path))
    }

    fn create_new(&self, path: &Path) -> TransferResult<Box<dyn WriteFile>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = self.below(path).and_then(|below| self.dir.open_file(below, flags, PRIVATE_FILE));
        Ok(LocalFile::boxed(named(path, file)?, path))
    }

    fn create_dir(&self, path: &Path) -> TransferResult {
        named(path, self.make_dir(path))
    }

    fn create_dir_all(&self, path: &Path) -> TransferResult {
        named(path, self.make_dirs(path))
    }

    fn symlink(&self, target: &Path, path: &Path) -> TransferResult {
        named(path, self.below(path).and_then(|below| self.dir.make_link(target, below)))
    }

    fn read_link(&self, path: &Path) -> TransferResult<PathBuf> {
        named(path, self.below(path).and_then(|below| self.dir.read_link(below)))
    }

    fn rename(&self, from: &Path, to: &Path) -> TransferResult {
        named(to, self.rename_as(from, to, RenameFlags::empty()))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> TransferResult {
        named(to, self.rename_as(from, to, RenameFlags::NOREPLACE))
    }

    fn remove_file(&self, path: &Path) -> TransferResult {
        named(path, self.unlink(path, AtFlags::empty()))
    }

    fn remove_dir(&self, path: &Path) -> TransferResult {
        named(path, self.unlink(path, AtFlags::REMOVEDIR))
    }

    fn set_attr(&self, path: &Path, change: AttrChange, links: LinkPolicy) -> TransferResult {
        named(path, self.change(path, change, links))
    }
}
