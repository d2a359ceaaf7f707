//! One directory of the machine's file system, as a [`Disk`]: every path is opened relative to its descriptor.
//!
//! Never: follows a symbolic link in or below the directory; accesses files outside it.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use pario_core::Space;
use pario_sys::dir::{Dir, PRIVATE_DIRECTORY, PRIVATE_FILE};
use pario_sys::preallocation;
use rustix::fs::{AtFlags, FileType, OFlags};

use crate::disk::{Disk, DiskFile, EntryKind, OpenMode};
use crate::marks::Life;
use crate::real_disk::{RealDisk, space_of};

/// See the module. Paths begin with the path of the directory, as it was opened.
#[derive(Clone, Debug)]
pub struct RootedDisk(Arc<Dir>);

impl RootedDisk {
    /// A disk to share.
    #[must_use]
    pub fn shared(dir: Arc<Dir>) -> Arc<dyn Disk> {
        Arc::new(RootedDisk(dir))
    }

    fn below<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        path.strip_prefix(self.0.path()).map_err(|_| {
            let text = format!("{} is not below {}", path.display(), self.0.path().display());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }

    fn open_with(&self, path: &Path, mode: OpenMode, more: OFlags) -> io::Result<std::fs::File> {
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::RDWR,
            OpenMode::Create => OFlags::RDWR | OFlags::CREATE,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        self.0.open_file(self.below(path)?, flags | more, PRIVATE_FILE)
    }

    fn directory(&self, path: &Path) -> io::Result<Dir> {
        let below = self.below(path)?;
        if below.as_os_str().is_empty() { self.0.try_clone() } else { self.0.open_dir(below) }
    }
}

impl Disk for RootedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(RealDisk::adopt(self.open_with(path, mode, OFlags::empty())?))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(RealDisk::adopt_direct(self.open_with(path, mode, OFlags::DIRECT)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(self.below(from)?, self.below(to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(self.below(path)?)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.0.make_dir(self.below(path)?, PRIVATE_DIRECTORY)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let at = self.0.parent(self.below(path)?)?;
        Ok(rustix::fs::unlinkat(&at.fd, at.name, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.directory(path)?.sync()
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        let kind = |found: FileType| match (found.is_file(), found.is_dir()) {
            (true, _) => EntryKind::File,
            (false, true) => EntryKind::Directory,
            (false, false) => EntryKind::Other,
        };
        let entries = self.directory(path)?.list()?;
        Ok(entries.into_iter().map(|(name, found)| (name, kind(found))).collect())
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        let found = self.0.stat(self.below(path)?)?;
        Ok(found.map(|found| u64::try_from(found.st_size).unwrap_or(0)))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.stat(self.below(path)?)?.is_some())
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        space_of(self.directory(path)?.as_fd())
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(self.directory(path)?)?)
    }

    fn gains_by_room(&self, path: &Path) -> bool {
        self.directory(path).is_ok_and(|dir| preallocation::gains_by_preallocation(dir.as_fd()))
    }

    fn life(&self) -> Life {
        RealDisk.life()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::files::FilesStore;
    use crate::testing::TempDirs;

    fn on(dir: &Path) -> Arc<dyn Disk> {
        RootedDisk::shared(Arc::new(Dir::open(dir).unwrap()))
    }

    #[test]
    fn a_store_on_it_conforms() {
        let dirs = TempDirs::default();
        conformance::all(&|| {
            let dir = dirs.fresh();
            Box::new(FilesStore::open_on(on(&dir), &dir).unwrap())
        });
    }

    #[test]
    fn planted_links_and_paths_outside_are_errors() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("file"), "old").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("objects")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("file"), dir.path().join("file")).unwrap();
        let disk = on(dir.path());
        for path in ["objects/file", "file", "../file"] {
            assert!(disk.open(&dir.path().join(path), OpenMode::Create).is_err(), "{path}");
        }
        assert!(disk.open(&outside.path().join("file"), OpenMode::Write).is_err());
        assert!(disk.list_dir(&dir.path().join("objects")).is_err());
        assert_eq!(std::fs::read(outside.path().join("file")).unwrap(), b"old");
    }
}
