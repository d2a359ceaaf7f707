//! Plain files: one per object, in the system's cache.
//!
//! Never: holds bytes itself; what a write returned for survives the death of this process. Large writes that lengthen an object have
//! their blocks allotted first, exactly those, where the file system gains by it.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::Piece;
use pario_sys::file_map::Scattered;
use pario_sys::room::ROOM_BYTES_MIN;

use crate::directory::{Buffering, ObjectDirectory, OpenObject, Want};
use crate::disk::Disk;
use crate::error::{Doing, StoreError};
use crate::real_disk::RealDisk;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::Counters;

/// A store of plain files.
#[derive(Debug)]
pub struct FilesStore {
    directory: ObjectDirectory,
    counters: Counters,
    makes_room: AtomicBool,
}

impl FilesStore {
    /// Opens the store in `dir`, which must be there; an empty one becomes a store.
    pub fn open(dir: &Path) -> Result<FilesStore, StoreError> {
        FilesStore::open_on(RealDisk::shared(), dir)
    }

    /// The same, on a disk of one's own.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<FilesStore, StoreError> {
        let makes_room = AtomicBool::new(disk.gains_by_room(dir));
        let directory = ObjectDirectory::open(disk, dir, Buffering::System)?;
        Ok(FilesStore { directory, counters: Counters::default(), makes_room })
    }

    /// Has blocks allotted for what is about to be written.
    fn make_room(&self, open: &OpenObject, range: &Range<u64>) {
        let bytes = range.end - range.start;
        if bytes < ROOM_BYTES_MIN || !self.makes_room.load(Ordering::Relaxed) || !open.lengthens(range) {
            return;
        }
        match open.plain.make_room(range.start, bytes) {
            Ok(()) => {}
            // The write will say so, if it is true for it.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => {
                tracing::debug!(%error, "blocks cannot be allotted before they are written");
                self.makes_room.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Store for FilesStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[Piece<'_>]) -> Result<(), StoreError> {
        let bytes = total_bytes(pieces);
        let range = at.0..at.0.saturating_add(bytes);
        self.directory.with(object, Want::Made, |open| {
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
        self.directory.with(object, Want::Made, |open| {
            open.plain.write_scattered(pieces).map_err(|e| {
                StoreError::from_io(e, Doing::Writing, object, range.clone(), self.directory.root())
            })
        })?;
        self.counters.count_write(scattered_bytes(pieces));
        Ok(())
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let read = self.directory.with(object, Want::Existing, |open| {
            open.plain.read_at(target, at.0).map_err(|e| {
                let range = at.0..at.0.saturating_add(target.len() as u64);
                StoreError::from_io(e, Doing::Reading, object, range, self.directory.root())
            })
        })?;
        let bytes = read.unwrap_or(0);
        self.counters.count_read(bytes);
        Ok(bytes)
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

pub(crate) fn total_bytes(pieces: &[Piece<'_>]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

pub(crate) fn scattered_bytes(pieces: &[Scattered<'_>]) -> u64 {
    pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use pario_core::{Code, Fault};

    use super::*;
    use crate::conformance;
    use crate::testing::{SwitchDisk, TempDirs};

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
        FilesStore::open(dir.path()).unwrap().write(id, LocalOffset(1), &[Piece::from(&b"xy"[..])]).unwrap();
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
        let error = store.write(object(1, 0), LocalOffset(0), &[Piece::from(&b"x"[..])]).unwrap_err();
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
            store.write(id, LocalOffset(at), &[Piece::from(&large[..])]).unwrap();
        }
        let path = dir.path().join("objects/01/0000000000000001-00000000");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20);
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        assert!(blocks(&path) * 512 < (3 << 20) + (64 << 10), "{} blocks", blocks(&path));
        let mut back = vec![1; 4 << 20];
        assert_eq!(store.read(id, LocalOffset(0), &mut back).unwrap(), 4 << 20);
        let parts: Vec<&[u8]> = back.chunks(1 << 20).collect();
        let filled = [7, 7, 0, 7].map(|byte| vec![byte; 1 << 20]);
        assert!(parts == filled, "a part is not what was written");
    }

    #[test]
    fn only_large_writes_that_lengthen_an_object_make_room() {
        const LARGE: u64 = ROOM_BYTES_MIN;
        let dir = tempfile::tempdir().unwrap();
        let disk = SwitchDisk::default();
        let rooms = Arc::clone(&disk.rooms);
        let store = FilesStore::open_on(Arc::new(disk), dir.path()).unwrap();
        let data = vec![7; usize::try_from(LARGE).unwrap()];
        let write = |at: u64, bytes: u64| {
            let piece = Piece::from(&data[..usize::try_from(bytes).unwrap()]);
            store.write(object(1, 0), LocalOffset(at), &[piece]).unwrap();
            std::mem::take(&mut *rooms.lock().unwrap())
        };
        assert_eq!(write(0, LARGE - 1), [], "too small");
        assert_eq!(write(0, LARGE), [(0, LARGE)], "longer by a byte");
        assert_eq!(write(0, LARGE), [], "as long already");
        assert_eq!(write(5 * LARGE, LARGE), [(5 * LARGE, LARGE)], "behind a hole, which stays one");
        assert_eq!(write(2 * LARGE, LARGE), [], "inside");
    }

    #[test]
    fn foreign_files_are_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        let store = FilesStore::open(dir.path()).unwrap();
        store.write(object(1, 0), LocalOffset(0), &[Piece::from(&b"x"[..])]).unwrap();
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
        let error = store.write(object(1, 0), at, &[Piece::from(&b"xyz"[..])]).unwrap_err();
        assert!([Code::TooLarge, Code::Invalid].contains(&Fault::from(&error).code), "{error}");
    }

    #[test]
    fn more_objects_than_descriptors_are_kept_right() {
        let dir = tempfile::tempdir().unwrap();
        let store = FilesStore::open(dir.path()).unwrap();
        let count = 1100;
        for inode in 0..count {
            store.write(object(inode, 0), LocalOffset(0), &[Piece::from(&inode.to_le_bytes()[..])]).unwrap();
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
