//! Helpers of this crate's own tests.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use pario_core::Space;
use pario_sys::MemoryPiece;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::disk::{Disk, DiskFile, EntryKind, OpenMode};
use crate::marks::Life;
use crate::real_disk::RealDisk;

/// Fresh directories, removed on drop.
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

/// The real disk, with writes or direct opens that fail with an error number on request.
#[derive(Debug, Default)]
pub(crate) struct SwitchDisk {
    pub(crate) fail_writes: Arc<AtomicI32>,
    pub(crate) refuse_direct: bool,
    pub(crate) refuse_marks: bool,
    pub(crate) mark_faults: Arc<MarkFaults>,
    /// Called before a file is truncated.
    pub(crate) before_cut: Option<Hook>,
    pub(crate) life: Life,
    /// Ranges with requested allocation.
    pub(crate) rooms: Arc<Mutex<Vec<(u64, u64)>>>,
}

/// Error numbers of failing marks; 0: no failure.
#[derive(Debug, Default)]
pub(crate) struct MarkFaults {
    pub(crate) setting: AtomicI32,
    pub(crate) removing: AtomicI32,
}

/// Action of a test in the middle of a call.
#[derive(Clone)]
pub(crate) struct Hook(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

fn fault_of(number: &AtomicI32) -> io::Result<()> {
    match number.load(Ordering::SeqCst) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

#[derive(Debug)]
struct SwitchFile {
    file: Arc<dyn DiskFile>,
    refuse_marks: bool,
    mark_faults: Arc<MarkFaults>,
    before_cut: Option<Hook>,
    fail_writes: Arc<AtomicI32>,
    rooms: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl SwitchDisk {
    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (fail_writes, rooms) = (Arc::clone(&self.fail_writes), Arc::clone(&self.rooms));
        let (mark_faults, before_cut) = (Arc::clone(&self.mark_faults), self.before_cut.clone());
        let refuse_marks = self.refuse_marks;
        Arc::new(SwitchFile { file, refuse_marks, mark_faults, before_cut, fail_writes, rooms })
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

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }

    fn exchange(&self, one: &Path, two: &Path) -> io::Result<()> {
        RealDisk.exchange(one, two)
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

    fn life(&self) -> Life {
        self.life
    }
}

impl DiskFile for SwitchFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        fault_of(&self.fail_writes)?;
        self.file.write_pieces_at(pieces, offset)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(target, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        if let Some(hook) = &self.before_cut {
            (hook.0)();
        }
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

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        if self.refuse_marks {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.file.mark()
    }

    fn set_mark(&self, mark: &[u8]) -> io::Result<()> {
        if self.refuse_marks {
            return Err(Errno::OPNOTSUPP.into());
        }
        fault_of(&self.mark_faults.setting)?;
        self.file.set_mark(mark)
    }

    fn remove_mark(&self) -> io::Result<()> {
        if self.refuse_marks {
            return Err(Errno::OPNOTSUPP.into());
        }
        fault_of(&self.mark_faults.removing)?;
        self.file.remove_mark()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}
