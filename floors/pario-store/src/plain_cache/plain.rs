//! The plain file under the cache: descriptors, byte-range locks if the file system needs them, and counts.
//!
//! Never: caches. Always: an error names the file, the operation and the bytes; only completed accesses are counted.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use pario_core::{Code, Fault};
use pario_sys::MemoryPiece;
use pario_sys::file_lock::{LockKind, lock_range};
use rustix::io::Errno;

use crate::disk::DiskFile;
use crate::error::{Doing, StoreError};
use crate::files::total_bytes;

/// How a plain file was opened for the cache.
#[derive(Clone, Debug)]
pub struct PlainFileOpening {
    /// Path, for messages.
    pub path: PathBuf,
    /// The open file.
    pub file: Arc<dyn DiskFile>,
    /// Whether it is open for reading.
    pub reads: bool,
    /// Whether it is open for writing.
    pub writes: bool,
    /// Whether byte-range locks surround each access, because the file system's client caches are not coherent.
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
pub(super) struct PlainHandle {
    path: PathBuf,
    files: RwLock<PlainDescriptors>,
    locks: bool,
    counts: Arc<PlainCounts>,
}

/// Open descriptors; `both` serves reads and writes.
#[derive(Clone, Debug, Default)]
struct PlainDescriptors {
    reader: Option<Arc<dyn DiskFile>>,
    writer: Option<Arc<dyn DiskFile>>,
    both: Option<Arc<dyn DiskFile>>,
}

impl PlainHandle {
    pub(super) fn new(opened: PlainFileOpening, counts: Arc<PlainCounts>) -> PlainHandle {
        let plain =
            PlainHandle { path: opened.path.clone(), files: RwLock::default(), locks: opened.locks, counts };
        plain.add(opened);
        plain
    }

    /// The file was opened once more.
    pub(super) fn add(&self, opened: PlainFileOpening) {
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

    /// Fills `target` from `offset`; zeros beyond the end of the file.
    pub(super) fn read(&self, target: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let range = offset..offset.saturating_add(target.len() as u64);
        let file = self.reader()?;
        let count = self.locked(&*file, &range, Doing::Reading, || file.read_at(target, offset))?;
        target[count..].fill(0);
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the pieces one after the other at `offset`.
    pub(super) fn write(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> Result<(), StoreError> {
        let bytes = total_bytes(pieces);
        let range = offset..offset.saturating_add(bytes);
        let file = self.writer()?;
        self.locked(&*file, &range, Doing::Writing, || file.write_pieces_at(pieces, offset))?;
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Its current length; 0 if unknown.
    pub(super) fn length(&self) -> u64 {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let any = files.reader.as_ref().or(files.writer.as_ref());
        any.and_then(|file| file.length().ok()).unwrap_or(0)
    }

    /// A descriptor to lend: read-only, or read-write.
    pub(super) fn lend(&self, writes: bool) -> Option<OwnedFd> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let file = if writes { files.both.as_ref() } else { files.reader.as_ref() };
        file?.as_fd()?.try_clone_to_owned().ok()
    }

    /// Truncates the file or extends it with zeros.
    pub(super) fn set_length(&self, bytes: u64) -> Result<(), StoreError> {
        let file = self.writer()?;
        let range = bytes..u64::MAX;
        self.locked(&*file, &range, Doing::Truncating, || file.set_len(bytes))
    }

    /// Flushes it to stable storage.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        // A read-only file has nothing to flush.
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

    /// Runs an operation on the file, under a byte-range lock if the file system needs one.
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
            Doing::Opening
            | Doing::Truncating
            | Doing::Removing
            | Doing::Syncing
            | Doing::Examining
            | Doing::Summing => {
                format!("{}: {doing}", self.path.display())
            }
        };
        StoreError::Below(Fault::from_io(error, what))
    }
}

fn bytes_of(range: &Range<u64>) -> String {
    format!("bytes {}..{}", range.start, range.end)
}

/// Extends a file to at least `bytes`; never shortens it, also with concurrent writers.
pub fn extend(file: &std::fs::File, bytes: u64) -> io::Result<()> {
    if bytes <= file.metadata()?.len() {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), bytes - 1, 1) {
        // Without `fallocate`, a race with another extending writer remains.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if file.metadata()?.len() < bytes => {
            file.set_len(bytes)
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
