//! A directory by its descriptor: entries are opened, created or removed relative to it, even if its path is renamed later.
//!
//! Never: follows a symbolic link below the directory; leaves the directory by `..`. Always: a link on a path is an error
//! ([`is_link_error`]); the path is kept for messages only.

mod own_file;
mod owned;
mod temporary;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

pub use owned::{Missing, OwnError, OwnedDir, TRUST_VARIABLE, open_own, open_trusted};
pub use temporary::{runtime_base, scratch, temporary_base, temporary_path};

/// Mode of a directory that only its owner uses.
pub const PRIVATE_DIRECTORY: u32 = 0o700;
/// Mode of a file that only its owner uses.
pub const PRIVATE_FILE: u32 = 0o600;

/// See the module.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory by a path that the user named: links in it are followed.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir { fd: rustix::fs::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of an entry through the descriptor (`/proc/self/fd`), for calls that accept only paths. A link as the last name is not
    /// checked here.
    #[must_use]
    pub fn descriptor_path(&self, name: &OsStr) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd())).join(name)
    }

    /// A second descriptor of the same directory.
    pub fn try_clone(&self) -> io::Result<Dir> {
        Ok(Dir { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Opens a file below the directory; a new file gets `mode`.
    pub fn open_file(&self, below: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        Ok(open_below(self.fd.as_fd(), below, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens a directory below this one.
    pub fn open_dir(&self, below: &Path) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = open_below(self.fd.as_fd(), below, flags, Mode::empty())?;
        Ok(Dir { fd, path: self.path.join(below) })
    }

    /// Creates a directory in an existing parent.
    pub fn make_dir(&self, below: &Path, mode: u32) -> io::Result<()> {
        let at = self.parent(below)?;
        Ok(rustix::fs::mkdirat(&at.fd, at.name, Mode::from_raw_mode(mode))?)
    }

    /// Removes a file or a link.
    pub fn remove_file(&self, below: &Path) -> io::Result<()> {
        let at = self.parent(below)?;
        Ok(rustix::fs::unlinkat(&at.fd, at.name, AtFlags::empty())?)
    }

    /// Removes a file, a link, or a directory with all its entries; a missing entry is no error.
    pub fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        let Some(found) = self.stat(Path::new(name))? else { return Ok(()) };
        let removed = if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            // The standard library walks by descriptors, too, and removes links instead of following them.
            std::fs::remove_dir_all(self.descriptor_path(name))
        } else {
            self.remove_file(Path::new(name))
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Renames a file below the same directory; an existing target is replaced.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        Ok(rustix::fs::renameat(&from.fd, from.name, &to.fd, to.name)?)
    }

    /// Adds a second name to a file below the same directory; an existing name is an error.
    pub fn add_name(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        Ok(rustix::fs::linkat(&from.fd, from.name, &to.fd, to.name, AtFlags::empty())?)
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, target: &Path, below: &Path) -> io::Result<()> {
        let at = self.parent(below)?;
        Ok(rustix::fs::symlinkat(target, &at.fd, at.name)?)
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, below: &Path) -> io::Result<PathBuf> {
        let at = self.parent(below)?;
        let target = rustix::fs::readlinkat(&at.fd, at.name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// Attributes of an entry, not following a link; `None` if there is none.
    pub fn stat(&self, below: &Path) -> io::Result<Option<Stat>> {
        let at = match self.parent(below) {
            Ok(at) => at,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match rustix::fs::statat(&at.fd, at.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Names in it and their kinds.
    pub fn list(&self) -> io::Result<Vec<(OsString, FileType)>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let Some(found) = self.stat(Path::new(&name))? else { continue };
                kind = FileType::from_raw_mode(found.st_mode);
            }
            names.push((name, kind));
        }
        Ok(names)
    }

    /// Syncs its entries to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// The directory of a path's last name, for calls with a descriptor and one name.
    pub fn parent<'a>(&self, below: &'a Path) -> io::Result<ParentEntry<'a>> {
        let name = below.file_name().ok_or(Errno::INVAL)?;
        let above = below.parent().filter(|above| !above.as_os_str().is_empty());
        let fd = match above {
            Some(above) => {
                open_below(self.fd.as_fd(), above, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?
            }
            None => self.fd.try_clone()?,
        };
        Ok(ParentEntry { fd, name })
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One name in a directory.
#[derive(Debug)]
pub struct ParentEntry<'a> {
    /// The directory.
    pub fd: OwnedFd,
    /// The name.
    pub name: &'a OsStr,
}

/// Whether an error of [`Dir`] means a symbolic link on the path.
#[must_use]
pub fn is_link_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Whether the kernel lacks `openat2`, or a sandbox forbids it.
static WALKS: AtomicBool = AtomicBool::new(false);

/// Opens a path below a directory; a symbolic link in it is `ELOOP`.
fn open_below(dir: BorrowedFd<'_>, below: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = below.components();
    if !below.components().all(|part| matches!(part, Component::Normal(_))) || names.next().is_none() {
        return Err(Errno::INVAL);
    }
    if names.next().is_none() {
        return open_name(dir, below.as_os_str(), flags, mode);
    }
    if !WALKS.load(Ordering::Relaxed) {
        // Without O_NOFOLLOW: with it, O_PATH would open a symbolic link at the end.
        let whole = flags.difference(OFlags::NOFOLLOW);
        // `openat2` rejects a mode without O_CREAT.
        let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
        match rustix::fs::openat2(dir, below, whole, mode, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::NOSYS | Errno::PERM) => WALKS.store(true, Ordering::Relaxed),
            other => return other,
        }
    }
    walk_below(dir, below, flags, mode)
}

/// The same, name by name.
fn walk_below(dir: BorrowedFd<'_>, below: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let (above, last) = (below.parent().unwrap_or(Path::new("")), below.file_name().ok_or(Errno::INVAL)?);
    let mut at = dir.try_clone_to_owned().map_err(|_| Errno::MFILE)?;
    for name in above {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = open_name(at.as_fd(), name, step, Mode::empty())?;
    }
    open_name(at.as_fd(), last, flags, mode)
}

/// Opens one name. With `O_DIRECTORY` the kernel reports a symbolic link as "not a directory"; here it is reported as a link.
fn open_name(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::openat(dir, name, flags, mode) {
        Err(Errno::NOTDIR) if is_link(dir, name) => Err(Errno::LOOP),
        other => other,
    }
}

fn is_link(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

#[cfg(test)]
mod tests;
