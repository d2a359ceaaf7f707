//! Plain files: one per object, in the system's page cache.
//!
//! Never: holds bytes itself: acknowledged writes survive the death of this process. Large writes that extend an object allocate exactly
//! their disk blocks first, if that is faster on the file system.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;
use pario_sys::preallocation::PREALLOCATE_BYTES_MIN;

use crate::directory::{Buffering, ObjectDirectory, OpenObject, OpenWant};
use crate::disk::Disk;
use crate::error::{Doing, StoreError};
use crate::real_disk::RealDisk;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::StoreCounters;

/// A store of plain files.
#[derive(Debug)]
pub struct FilesStore {
    directory: Arc<ObjectDirectory>,
    counters: StoreCounters,
    makes_room: AtomicBool,
    marker: Option<JoinHandle<()>>,
}

impl FilesStore {
    /// Opens the store in `dir`, which must exist; an empty directory becomes a store.
    pub fn open(dir: &Path) -> Result<FilesStore, StoreError> {
        FilesStore::open_on(RealDisk::shared(), dir)
    }

    /// The same, on the caller's disk.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<FilesStore, StoreError> {
        let makes_room = AtomicBool::new(disk.gains_by_room(dir));
        let directory = Arc::new(ObjectDirectory::open(disk, dir, Buffering::System)?);
        let background = Arc::clone(&directory);
        let marker = std::thread::Builder::new()
            .name("pario-marks".to_owned())
            .spawn(move || {
                while background.timer().wait() {
                    background.keep_marks();
                }
            })
            .map_err(|e| StoreError::from_dir(e, Doing::Opening, dir))?;
        Ok(FilesStore { directory, counters: StoreCounters::default(), makes_room, marker: Some(marker) })
    }

    /// Allocates disk blocks for a write that follows.
    fn make_room(&self, open: &OpenObject, range: &Range<u64>) {
        let bytes = range.end - range.start;
        if bytes < PREALLOCATE_BYTES_MIN || !self.makes_room.load(Ordering::Relaxed) || !open.lengthens(range)
        {
            return;
        }
        match open.plain.make_room(range.start, bytes) {
            Ok(()) => {}
            // The write reports the error, if it has the same cause.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => {
                tracing::debug!(%error, "disk blocks could not be allocated before a write");
                self.makes_room.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for FilesStore {
    fn drop(&mut self) {
        self.directory.timer().stop();
        if self.marker.take().is_some_and(|marker| marker.join().is_err()) {
            tracing::error!("the thread that marks lengths panicked");
        }
        self.directory.keep_marks();
    }
}

impl Store for FilesStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        let bytes = total_bytes(pieces);
        let range = at.0..at.0.saturating_add(bytes);
        self.directory.with(object, OpenWant::Made, |open| {
            self.make_room(open, &range);
            open.plain.write_pieces_at(pieces, at.0).map_err(|e| {
                let range = range.clone();
                StoreError::from_io(e, Doing::Writing, object, range, self.directory.root())
            })
        })?;
        self.counters.count_write(bytes);
        Ok(())
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(()) };
        let range = first.at..last.at.saturating_add(last.bytes.len() as u64);
        self.directory.with(object, OpenWant::Made, |open| {
            open.plain.write_scattered(pieces).map_err(|e| {
                StoreError::from_io(e, Doing::Writing, object, range.clone(), self.directory.root())
            })
        })?;
        self.counters.count_write(scattered_bytes(pieces));
        Ok(())
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let read = self.directory.with(object, OpenWant::Existing, |open| {
            open.plain.read_at(target, at.0).map_err(|e| {
                let range = at.0..at.0.saturating_add(target.len() as u64);
                StoreError::from_io(e, Doing::Reading, object, range, self.directory.root())
            })
        })?;
        let bytes = read.unwrap_or(0);
        if read.is_some() && bytes < target.len() {
            let range = at.0..at.0.saturating_add(target.len() as u64);
            self.directory.check_whole(object, || self.length(object), range)?;
        }
        self.counters.count_read(bytes);
        Ok(bytes)
    }

    fn marked(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.directory.marked(object)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.directory.length(object)
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        self.directory.truncate(inode, from, to, bytes)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        self.directory.remove(object)
    }

    fn flush(&self, _object: ObjectId) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.counters.count_sync();
        self.directory.sync(object)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.counters.count_sync();
        self.directory.keep_marks();
        self.directory.sync_all()
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        self.directory.lend(object, access)
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        self.directory.list(after, limit)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.directory.space()
    }

    fn stats(&self) -> StoreStats {
        self.counters.stats()
    }
}

pub(crate) fn total_bytes(pieces: &[MemoryPiece<'_>]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

pub(crate) fn scattered_bytes(pieces: &[Scattered<'_>]) -> u64 {
    pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, OnceLock};
    use std::time::Duration;

    use pario_core::{Clock, Code, Fault};
    use rustix::io::Errno;

    use super::*;
    use crate::conformance;
    use crate::testing::{Hook, SwitchDisk, TempDirs};

    fn object(inode: u64, generation: u32) -> ObjectId {
        ObjectId { inode: InodeId(inode), generation: Generation(generation) }
    }

    #[test]
    fn conforms() {
        let dirs = TempDirs::default();
        conformance::all(&|| Box::new(FilesStore::open(&dirs.fresh()).unwrap()));
    }

    #[test]
    fn survives_reopening_and_lies_where_the_format_says() {
        let dir = tempfile::tempdir().unwrap();
        let id = object(0x1_02ab, 3);
        FilesStore::open(dir.path())
            .unwrap()
            .write(id, LocalOffset(1), &[MemoryPiece::from(&b"xy"[..])])
            .unwrap();
        let path = dir.path().join("objects/ab/00000000000102ab-00000003");
        assert_eq!(std::fs::read(path).unwrap(), b"\0xy");
        let again = FilesStore::open(dir.path()).unwrap();
        assert_eq!(again.list(None, 10).unwrap(), [(id, 3)]);
    }

    #[test]
    fn missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = FilesStore::open(&dir.path().join("nowhere")).unwrap_err();
        assert!(
            matches!(&error, StoreError::MissingDirectory { path } if path.ends_with("nowhere")),
            "{error}"
        );
        let store = FilesStore::open(dir.path()).unwrap();
        std::fs::remove_dir(dir.path().join("objects")).unwrap();
        let error = store.write(object(1, 0), LocalOffset(0), &[MemoryPiece::from(&b"x"[..])]).unwrap_err();
        assert!(matches!(error, StoreError::MissingDirectory { .. }), "{error}");
    }

    /// Blocks of 512 bytes that a file has.
    fn blocks(path: &Path) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap())
    }

    #[test]
    fn room_is_made_for_what_is_written_and_for_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = FilesStore::open(dir.path()).unwrap();
        store.makes_room.store(true, Ordering::Relaxed);
        let (id, large) = (object(1, 0), vec![7; 1 << 20]);
        for at in [0, 3 << 20, 1 << 20, 0] {
            store.write(id, LocalOffset(at), &[MemoryPiece::from(&large[..])]).unwrap();
        }
        let path = dir.path().join("objects/01/0000000000000001-00000000");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20);
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        assert!(blocks(&path) * 512 < (3 << 20) + (64 << 10), "{} blocks", blocks(&path));
        let mut back = vec![1; 4 << 20];
        assert_eq!(store.read(id, LocalOffset(0), &mut back).unwrap(), 4 << 20);
        let parts: Vec<&[u8]> = back.chunks(1 << 20).collect();
        let filled = [7, 7, 0, 7].map(|byte| vec![byte; 1 << 20]);
        assert!(parts == filled, "a part differs from the written bytes");
    }

    #[test]
    fn only_large_writes_that_lengthen_an_object_make_room() {
        const LARGE: u64 = PREALLOCATE_BYTES_MIN;
        let dir = tempfile::tempdir().unwrap();
        let disk = SwitchDisk::default();
        let rooms = Arc::clone(&disk.rooms);
        let store = FilesStore::open_on(Arc::new(disk), dir.path()).unwrap();
        let data = vec![7; usize::try_from(LARGE).unwrap()];
        let write = |at: u64, bytes: u64| {
            let piece = MemoryPiece::from(&data[..usize::try_from(bytes).unwrap()]);
            store.write(object(1, 0), LocalOffset(at), &[piece]).unwrap();
            std::mem::take(&mut *rooms.lock().unwrap())
        };
        assert_eq!(write(0, LARGE - 1), [], "too small");
        assert_eq!(write(0, LARGE), [(0, LARGE)], "longer by a byte");
        assert_eq!(write(0, LARGE), [], "as long already");
        assert_eq!(write(5 * LARGE, LARGE), [(5 * LARGE, LARGE)], "after a hole, which stays one");
        assert_eq!(write(2 * LARGE, LARGE), [], "inside");
    }

    /// Truncates an object without its store.
    fn cut_at_rest(dir: &Path, bytes: u64) {
        let path = dir.join("objects/01/0000000000000001-00000000");
        std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    }

    fn read(store: &FilesStore, range: Range<u64>) -> Result<usize, StoreError> {
        let mut target = vec![0; usize::try_from(range.end - range.start).unwrap()];
        store.read(object(1, 0), LocalOffset(range.start), &mut target)
    }

    #[test]
    fn an_object_that_was_cut_at_rest_is_an_error_and_a_hole_is_not() {
        for how in ["reopened", "synced", "waited"] {
            let dir = tempfile::tempdir().unwrap();
            let mut store = FilesStore::open(dir.path()).unwrap();
            store.write(object(1, 0), LocalOffset(100), &[MemoryPiece::from(&[7; 900][..])]).unwrap();
            match how {
                "reopened" => {
                    drop(store);
                    store = FilesStore::open(dir.path()).unwrap();
                }
                "synced" => store.sync(object(1, 0)).unwrap(),
                _ => {
                    let clock = pario_sys::MonotonicClock;
                    let started = clock.now();
                    while store.marked(object(1, 0)).unwrap() != Some(1000) {
                        assert!(clock.now().since(started) < Duration::from_secs(30), "never marked");
                        std::thread::park_timeout(Duration::from_millis(20));
                    }
                }
            }
            assert_eq!(read(&store, 0..2000).unwrap(), 1000, "{how}: no bytes beyond the end");
            assert_eq!(read(&store, 1000..2000).unwrap(), 0, "{how}");
            cut_at_rest(dir.path(), 300);
            assert_eq!(read(&store, 0..300).unwrap(), 300, "{how}: existing bytes are read");
            let error = read(&store, 200..2000).unwrap_err();
            assert!(
                matches!(&error, StoreError::Cut { range, length: 300, written: 1000, .. } if *range == (300..1000)),
                "{how}: {error}"
            );
            read(&store, 500..600).unwrap_err();
            assert_eq!(read(&store, 1000..2000).unwrap(), 0, "{how}: no bytes are lost there");
            // A truncation by the store is no damage.
            store.truncate(InodeId(1), Generation(0), Generation(0), 200).unwrap();
            assert_eq!(read(&store, 0..2000).unwrap(), 200, "{how}");
        }
    }

    #[test]
    fn what_was_marked_before_the_machine_failed_counts_if_it_was_synced() {
        let dir = tempfile::tempdir().unwrap();
        let first = FilesStore::open_on(Arc::new(SwitchDisk::default()), dir.path()).unwrap();
        first.write(object(1, 0), LocalOffset(0), &[MemoryPiece::from(&[7; 500][..])]).unwrap();
        first.sync(object(1, 0)).unwrap();
        first.write(object(1, 0), LocalOffset(500), &[MemoryPiece::from(&[7; 500][..])]).unwrap();
        drop(first);
        let disk = SwitchDisk { life: [2; 16], ..SwitchDisk::default() };
        let store = FilesStore::open_on(Arc::new(disk), dir.path()).unwrap();
        cut_at_rest(dir.path(), 700);
        assert_eq!(read(&store, 0..1000).unwrap(), 700, "lost in the power cut");
        cut_at_rest(dir.path(), 400);
        read(&store, 0..1000).unwrap_err();
    }

    #[test]
    fn a_file_system_without_marks_is_used_without_them() {
        let dir = tempfile::tempdir().unwrap();
        let disk = SwitchDisk { refuse_marks: true, ..SwitchDisk::default() };
        let store = FilesStore::open_on(Arc::new(disk), dir.path()).unwrap();
        store.write(object(1, 0), LocalOffset(0), &[MemoryPiece::from(&[7; 500][..])]).unwrap();
        store.sync(object(1, 0)).unwrap();
        assert_eq!(store.marked(object(1, 0)).unwrap(), None);
        cut_at_rest(dir.path(), 100);
        assert_eq!(read(&store, 0..1000).unwrap(), 100);
    }

    #[test]
    fn a_file_system_without_marks_is_read_and_cut_without_them() {
        let dir = tempfile::tempdir().unwrap();
        let written = FilesStore::open(dir.path()).unwrap();
        written.write(object(1, 0), LocalOffset(0), &[MemoryPiece::from(&[7; 500][..])]).unwrap();
        drop(written);
        let open = || {
            let disk = SwitchDisk { refuse_marks: true, ..SwitchDisk::default() };
            FilesStore::open_on(Arc::new(disk), dir.path()).unwrap()
        };
        assert_eq!(open().marked(object(1, 0)).unwrap(), None, "marks before reads");
        assert_eq!(read(&open(), 0..1000).unwrap(), 500, "reads before marks");
        let store = open();
        store.truncate(InodeId(1), Generation(0), Generation(0), 100).unwrap();
        assert_eq!(read(&store, 0..1000).unwrap(), 100);
    }

    /// One failure disabled marks for good, and objects truncated later were then reported as damaged.
    #[test]
    fn marks_that_fail_once_are_kept_later_and_claim_nothing_that_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let disk = SwitchDisk::default();
        let faults = Arc::clone(&disk.mark_faults);
        let number = |errno: Option<Errno>| errno.map_or(0, Errno::raw_os_error);
        let fail = |setting, removing| {
            faults.setting.store(number(setting), Ordering::SeqCst);
            faults.removing.store(number(removing), Ordering::SeqCst);
        };
        let store = FilesStore::open_on(Arc::new(disk), dir.path()).unwrap();
        let cut = |bytes| store.truncate(InodeId(1), Generation(0), Generation(0), bytes);
        store.write(object(1, 0), LocalOffset(0), &[MemoryPiece::from(&[7; 500][..])]).unwrap();
        fail(Some(Errno::NOSPC), None);
        store.sync(object(1, 0)).unwrap();
        assert_eq!(store.marked(object(1, 0)).unwrap(), Some(0));
        fail(None, None);
        store.sync(object(1, 0)).unwrap();
        assert_eq!(store.marked(object(1, 0)).unwrap(), Some(500), "marked when it could be");
        fail(Some(Errno::IO), Some(Errno::IO));
        let error = cut(100).unwrap_err();
        assert_eq!(Fault::from(&error).code, Code::Io, "{error}");
        assert_eq!(read(&store, 0..1000).unwrap(), 500, "not truncated");
        fail(Some(Errno::IO), None);
        cut(100).unwrap();
        assert_eq!(read(&store, 0..1000).unwrap(), 100, "the mark was removed");
        fail(None, None);
        store.sync(object(1, 0)).unwrap();
        assert_eq!(store.marked(object(1, 0)).unwrap(), Some(100));
    }

    #[test]
    fn a_round_of_marking_does_not_come_into_a_cut() {
        let dir = tempfile::tempdir().unwrap();
        let round: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
        let seen = Arc::clone(&round);
        let hook = Hook(Arc::new(move || seen.get().unwrap()()));
        let disk = SwitchDisk { before_cut: Some(hook), ..SwitchDisk::default() };
        let store = Arc::new(FilesStore::open_on(Arc::new(disk), dir.path()).unwrap());
        store.write(object(1, 0), LocalOffset(0), &[MemoryPiece::from(&[7; 500][..])]).unwrap();
        // The marking pass has reached this object when the truncation begins.
        let open = store.directory.open_object(object(1, 0), OpenWant::Existing).unwrap().unwrap();
        let (directory, marking) = (Arc::downgrade(&store), Arc::new(Mutex::new(None)));
        let thread = Arc::clone(&marking);
        let during_cut = move || {
            let (store, open) = (directory.upgrade().unwrap(), Arc::clone(&open));
            let (ended, over) = std::sync::mpsc::channel();
            *thread.lock().unwrap() = Some(std::thread::spawn(move || {
                store.directory.keep_marks_of(&[open]);
                // The truncation may have waited long enough.
                let _ = ended.send(());
            }));
            // A marking pass that gets through here raises the mark; one that waits for the truncation does not end.
            over.recv_timeout(Duration::from_millis(300)).unwrap_err();
        };
        assert!(round.set(Box::new(during_cut)).is_ok());
        store.truncate(InodeId(1), Generation(0), Generation(0), 100).unwrap();
        marking.lock().unwrap().take().unwrap().join().unwrap();
        assert_eq!(read(&store, 0..1000).unwrap(), 100);
    }

    #[test]
    fn foreign_files_are_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        let store = FilesStore::open(dir.path()).unwrap();
        store.write(object(1, 0), LocalOffset(0), &[MemoryPiece::from(&b"x"[..])]).unwrap();
        let objects = dir.path().join("objects");
        std::fs::write(objects.join("01/notes.txt"), "n").unwrap();
        std::fs::write(objects.join("01/0000000000000002-00000000"), "in the wrong directory").unwrap();
        std::fs::create_dir(objects.join("01/0000000000000101-00000000")).unwrap();
        assert_eq!(store.list(None, 10).unwrap(), [(object(1, 0), 1)]);
    }

    #[test]
    fn too_far_an_offset_is_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let store = FilesStore::open(dir.path()).unwrap();
        let at = LocalOffset(i64::MAX as u64 - 1);
        let error = store.write(object(1, 0), at, &[MemoryPiece::from(&b"xyz"[..])]).unwrap_err();
        assert!([Code::TooLarge, Code::Invalid].contains(&Fault::from(&error).code), "{error}");
    }

    #[test]
    fn more_objects_than_descriptors_are_kept_right() {
        let dir = tempfile::tempdir().unwrap();
        let store = FilesStore::open(dir.path()).unwrap();
        let count = 1100;
        for inode in 0..count {
            store
                .write(object(inode, 0), LocalOffset(0), &[MemoryPiece::from(&inode.to_le_bytes()[..])])
                .unwrap();
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let ours = open.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let ours = ours.filter(|path| path.starts_with(dir.path())).count();
        assert!(ours <= 512, "{ours} descriptors open");
        for inode in 0..count {
            let mut back = [0; 8];
            assert_eq!(store.read(object(inode, 0), LocalOffset(0), &mut back).unwrap(), 8);
            assert_eq!(u64::from_le_bytes(back), inode);
        }
    }
}
