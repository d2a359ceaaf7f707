//! The plain file below the cache: descriptors, the locks around each access where its file system needs them, and counts.
//!
//! Never: caches. Always: an error names the file, what was being done, and the bytes; what is counted has reached the file system.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use pario_core::{Code, Fault};
use pario_sys::Piece;
use pario_sys::file_lock::{LockKind, lock_range};
use rustix::io::Errno;

use crate::disk::DiskFile;
use crate::error::{Doing, StoreError};
use crate::files::total_bytes;

/// How a plain file was opened for the cache.
#[derive(Clone, Debug)]
pub struct PlainFile {
    /// Its name, for messages.
    pub path: PathBuf,
    /// It.
    pub file: Arc<dyn DiskFile>,
    /// Whether it is open for reading.
    pub reads: bool,
    /// Whether it is open for writing.
    pub writes: bool,
    /// Whether byte-range locks surround each access, since caches of the file system's own clients are not coherent.
    pub locks: bool,
}

/// Accesses that reached plain files.
#[derive(Debug, Default)]
pub(super) struct PlainCounts {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) locks: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Plain {
    path: PathBuf,
    files: RwLock<Files>,
    locks: bool,
    counts: Arc<PlainCounts>,
}

/// What it is open by; one may serve both.
#[derive(Clone, Debug, Default)]
struct Files {
    reader: Option<Arc<dyn DiskFile>>,
    writer: Option<Arc<dyn DiskFile>>,
    both: Option<Arc<dyn DiskFile>>,
}

impl Plain {
    pub(super) fn new(opened: PlainFile, counts: Arc<PlainCounts>) -> Plain {
        let plain =
            Plain { path: opened.path.clone(), files: RwLock::default(), locks: opened.locks, counts };
        plain.add(opened);
        plain
    }

    /// It was opened once more.
    pub(super) fn add(&self, opened: PlainFile) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if opened.reads && opened.writes && files.both.is_none() {
            files.both = Some(Arc::clone(&opened.file));
        }
        if opened.reads && files.reader.is_none() {
            files.reader = Some(Arc::clone(&opened.file));
        }
        if opened.writes && files.writer.is_none() {
            files.writer = Some(opened.file);
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `target` from `offset` on; what lies behind the end are zeros.
    pub(super) fn read(&self, target: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let range = offset..offset.saturating_add(target.len() as u64);
        let file = self.reader()?;
        let count = self.locked(&*file, &range, Doing::Reading, || file.read_at(target, offset))?;
        target[count..].fill(0);
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the pieces one after the other from `offset` on.
    pub(super) fn write(&self, pieces: &[Piece<'_>], offset: u64) -> Result<(), StoreError> {
        let bytes = total_bytes(pieces);
        let range = offset..offset.saturating_add(bytes);
        let file = self.writer()?;
        self.locked(&*file, &range, Doing::Writing, || file.write_pieces_at(pieces, offset))?;
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Its length now; 0 where that cannot be known.
    pub(super) fn length(&self) -> u64 {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let any = files.reader.as_ref().or(files.writer.as_ref());
        any.and_then(|file| file.length().ok()).unwrap_or(0)
    }

    /// A descriptor for others: one that reads, or one that reads and writes.
    pub(super) fn lend(&self, writes: bool) -> Option<OwnedFd> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let file = if writes { files.both.as_ref() } else { files.reader.as_ref() };
        file?.as_fd()?.try_clone_to_owned().ok()
    }

    /// Cuts it, or lengthens it by zeros.
    pub(super) fn set_length(&self, bytes: u64) -> Result<(), StoreError> {
        let file = self.writer()?;
        let range = bytes..u64::MAX;
        self.locked(&*file, &range, Doing::Truncating, || file.set_len(bytes))
    }

    /// Puts it on stable storage.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        // Who only reads has nothing to put there.
        let Ok(file) = self.writer() else { return Ok(()) };
        file.sync_all().map_err(|error| self.error(&error, Doing::Syncing, &(0..0)))
    }

    fn reader(&self) -> Result<Arc<dyn DiskFile>, StoreError> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.reader.clone().ok_or_else(|| self.closed(Code::NotReadable, "writing"))
    }

    fn writer(&self) -> Result<Arc<dyn DiskFile>, StoreError> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.writer.clone().ok_or_else(|| self.closed(Code::NotWritable, "reading"))
    }

    fn closed(&self, code: Code, what: &str) -> StoreError {
        StoreError::Below(Fault::new(code, format!("{} is open for {what} only", self.path.display())))
    }

    /// Does something to the file, where it needs it under a lock of the bytes concerned.
    fn locked<T>(
        &self,
        file: &dyn DiskFile,
        range: &Range<u64>,
        doing: Doing,
        work: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let kind = if doing == Doing::Reading { LockKind::Read } else { LockKind::Write };
        let _held = match file.as_fd().filter(|_| self.locks) {
            Some(fd) => {
                let held = lock_range(fd, kind, range.clone()).map_err(|error| {
                    let what = format!("{}: locking {}", self.path.display(), bytes_of(range));
                    StoreError::Below(Fault::from_io(&error, what))
                })?;
                self.counts.locks.fetch_add(1, Ordering::Relaxed);
                Some(held)
            }
            None => None,
        };
        work().map_err(|error| self.error(&error, doing, range))
    }

    fn error(&self, error: &io::Error, doing: Doing, range: &Range<u64>) -> StoreError {
        let what = match doing {
            Doing::Reading | Doing::Writing => {
                format!("{}: {doing} {}", self.path.display(), bytes_of(range))
            }
            Doing::Opening | Doing::Truncating | Doing::Removing | Doing::Syncing | Doing::Examining => {
                format!("{}: {doing}", self.path.display())
            }
        };
        StoreError::Below(Fault::from_io(error, what))
    }
}

fn bytes_of(range: &Range<u64>) -> String {
    format!("bytes {}..{}", range.start, range.end)
}

/// Makes a file at least `bytes` long, and never shorter, whoever else writes to it at the same time.
pub fn extend(file: &std::fs::File, bytes: u64) -> io::Result<()> {
    if bytes <= file.metadata()?.len() {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), bytes - 1, 1) {
        // Where the file system cannot, a moment in which another could have lengthened it is all that is left.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if file.metadata()?.len() < bytes => {
            file.set_len(bytes)
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
