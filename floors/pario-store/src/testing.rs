//! Helpers of this crate's own tests.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use pario_core::Space;
use pario_sys::Piece;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::disk::{Disk, DiskFile, EntryKind, OpenMode};
use crate::real_disk::RealDisk;

/// Fresh directories that live as long as this does.
#[derive(Default)]
pub(crate) struct TempDirs(Mutex<Vec<TempDir>>);

impl TempDirs {
    pub(crate) fn fresh(&self) -> PathBuf {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        self.0.lock().unwrap().push(dir);
        path
    }
}

/// The real disk, whose writes or direct opens can be made to fail with an error number.
#[derive(Debug, Default)]
pub(crate) struct SwitchDisk {
    pub(crate) fail_writes: Arc<AtomicI32>,
    pub(crate) refuse_direct: bool,
    /// Ranges that blocks were asked for.
    pub(crate) rooms: Arc<Mutex<Vec<(u64, u64)>>>,
}

#[derive(Debug)]
struct SwitchFile {
    file: Arc<dyn DiskFile>,
    fail_writes: Arc<AtomicI32>,
    rooms: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl SwitchDisk {
    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (fail_writes, rooms) = (Arc::clone(&self.fail_writes), Arc::clone(&self.rooms));
        Arc::new(SwitchFile { file, fail_writes, rooms })
    }
}

impl Disk for SwitchDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(RealDisk.open(path, mode)?))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if self.refuse_direct {
            return Err(Errno::INVAL.into());
        }
        Ok(self.wrap(RealDisk.open_direct(path, mode)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.make_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        RealDisk.list_dir(path)
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        RealDisk.length(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_all(path)
    }

    fn gains_by_room(&self, _path: &Path) -> bool {
        true
    }
}

impl DiskFile for SwitchFile {
    fn write_pieces_at(&self, pieces: &[Piece<'_>], offset: u64) -> io::Result<()> {
        match self.fail_writes.load(Ordering::SeqCst) {
            0 => self.file.write_pieces_at(pieces, offset),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(target, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn make_room(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.rooms.lock().unwrap().push((offset, bytes));
        self.file.make_room(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}
