//! Memory: one memfd per object, within a capacity.
//!
//! Never: survives its process; exceeds its capacity by its own writes (writes through a lent descriptor can; they are counted at the
//! next query). Always: overwriting existing pages needs no capacity; locks are taken in the order gate, objects, room.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::file_map::{Scattered, scatter};
use rustix::fs::{MemfdFlags, Mode, OFlags};

use crate::error::{Doing, StoreError};
use crate::files::{scattered_bytes, total_bytes};
use crate::real_disk::are_many;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::{ObjectGate, StoreCounters, lock};

mod capacity;

use capacity::{ObjectPages, PageCapacity};

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<ObjectId, Arc<MemoryObject>>>,
    room: PageCapacity,
    counters: StoreCounters,
}

#[derive(Debug)]
struct MemoryObject {
    fd: OwnedFd,
    count: Mutex<ObjectPages>,
    gate: ObjectGate,
    /// It was lent for writing, and the borrower may truncate it at any time.
    is_lent: AtomicBool,
}

#[derive(Clone, Copy)]
enum OnMissing {
    Leave,
    Make,
}

impl MemoryStore {
    /// An empty store that holds up to `capacity_bytes` of pages.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> MemoryStore {
        MemoryStore {
            objects: Mutex::default(),
            room: PageCapacity::new(capacity_bytes),
            counters: StoreCounters::default(),
        }
    }

    /// Runs `work` on the object, which is neither truncated nor removed meanwhile. `None`: there is no such object.
    fn with<T>(
        &self,
        object: ObjectId,
        on_missing: OnMissing,
        work: impl FnOnce(&MemoryObject) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        loop {
            let found = match on_missing {
                OnMissing::Leave => lock(&self.objects).get(&object).map(Arc::clone),
                OnMissing::Make => Some(self.find_or_make(object)?),
            };
            let Some(found) = found else { return Ok(None) };
            if let Some(_inside) = found.gate.enter() {
                return work(&found).map(Some);
            }
            // Closed, and about to be removed from the map.
            std::thread::yield_now();
        }
    }

    fn find_or_make(&self, object: ObjectId) -> Result<Arc<MemoryObject>, StoreError> {
        let mut objects = lock(&self.objects);
        if let Some(found) = objects.get(&object) {
            return Ok(Arc::clone(found));
        }
        let fd = rustix::fs::memfd_create(format!("pario-{object}"), MemfdFlags::CLOEXEC)
            .map_err(|e| memory_error(e.into(), Doing::Opening, object))?;
        let made = Arc::new(MemoryObject::new(fd));
        objects.insert(object, Arc::clone(&made));
        Ok(made)
    }

    fn all_objects(&self) -> Vec<Arc<MemoryObject>> {
        lock(&self.objects).values().map(Arc::clone).collect()
    }

    fn write_within_capacity(
        &self,
        target: &MemoryObject,
        at: u64,
        pieces: &[MemoryPiece<'_>],
    ) -> io::Result<()> {
        let promised = self.room.reserve(target, at, total_bytes(pieces), || self.all_objects())?;
        let result = pario_sys::write_pieces_at(target.fd.as_fd(), pieces, at);
        self.room.end_reservation(target, promised)?;
        result
    }

    /// Disables writes through a mapping of the object, which is created if missing.
    fn no_longer_mapped(&self, object: ObjectId) -> Result<(), StoreError> {
        loop {
            let found = self.find_or_make(object)?;
            if found.is_lent.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some(_alone) = found.gate.alone() {
                found.is_lent.store(true, Ordering::Release);
                return Ok(());
            }
            // Closed, and about to be removed from the map.
            std::thread::yield_now();
        }
    }

    /// Writes pieces at ascending offsets: through a mapping if they are many and the capacity covers all pages between them, else one by
    /// one.
    fn scatter_within_capacity(&self, target: &MemoryObject, pieces: &[Scattered<'_>]) -> io::Result<()> {
        if are_many(pieces)
            && have_all_pages(pieces)
            && !target.is_lent.load(Ordering::Acquire)
            && let (Some(first), Some(last)) = (pieces.first(), pieces.last())
            && let bytes = last.at.saturating_sub(first.at).saturating_add(last.bytes.len() as u64)
            && let Ok(promised) = self.room.reserve(target, first.at, bytes, || self.all_objects())
        {
            let scattered = scatter(target.fd.as_fd(), pieces);
            self.room.end_reservation(target, promised)?;
            if scattered? {
                return Ok(());
            }
        }
        pieces.iter().try_for_each(|piece| {
            self.write_within_capacity(target, piece.at, &[MemoryPiece::from(piece.bytes)])
        })
    }

    /// Waits for the users of the object and admits no more; removes it from the map, where `then` may put another.
    fn take_out(
        &self,
        object: ObjectId,
        then: impl FnOnce(&mut BTreeMap<ObjectId, Arc<MemoryObject>>, Arc<MemoryObject>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(found) = lock(&self.objects).get(&object).map(Arc::clone) else { return Ok(()) };
        // Not under the map's lock: a writer inside the gate may need that lock to leave.
        found.gate.close();
        let mut objects = lock(&self.objects);
        // Another thread may have removed it meanwhile, and even put another one under its id.
        if objects.get(&object).is_some_and(|now| Arc::ptr_eq(now, &found)) {
            objects.remove(&object);
            then(&mut objects, found)?;
        }
        Ok(())
    }

    fn cut(&self, target: &Arc<MemoryObject>, bytes: u64) -> io::Result<()> {
        if bytes < length(&target.fd)? {
            rustix::fs::ftruncate(&target.fd, bytes)?;
        }
        self.room.recount(std::slice::from_ref(target))
    }
}

/// Whether every page between the first and the last piece has one: a mapping needs memory for all.
fn have_all_pages(pieces: &[Scattered<'_>]) -> bool {
    let page = rustix::param::page_size() as u64;
    let gap = |pair: &[Scattered<'_>]| {
        pair[1].at.saturating_sub(pair[0].at.saturating_add(pair[0].bytes.len() as u64))
    };
    pieces.windows(2).all(|pair| gap(pair) < page)
}

impl MemoryObject {
    fn new(fd: OwnedFd) -> MemoryObject {
        MemoryObject {
            fd,
            count: Mutex::default(),
            gate: ObjectGate::default(),
            is_lent: AtomicBool::new(false),
        }
    }
}

impl Store for MemoryStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        let bytes = total_bytes(pieces);
        self.with(object, OnMissing::Make, |target| {
            self.write_within_capacity(target, at.0, pieces).map_err(|e| {
                let range = at.0..at.0.saturating_add(bytes);
                StoreError::from_io(e, Doing::Writing, object, range, Path::new("memory"))
            })
        })?;
        self.counters.count_write(bytes);
        Ok(())
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(()) };
        let range = first.at..last.at.saturating_add(last.bytes.len() as u64);
        self.with(object, OnMissing::Make, |target| {
            self.scatter_within_capacity(target, pieces).map_err(|e| {
                StoreError::from_io(e, Doing::Writing, object, range.clone(), Path::new("memory"))
            })
        })?;
        self.counters.count_write(scattered_bytes(pieces));
        Ok(())
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let read = self.with(object, OnMissing::Leave, |source| {
            pario_sys::read_exact_or_end_at(source.fd.as_fd(), target, at.0)
                .map_err(|e| memory_error(e, Doing::Reading, object))
        })?;
        let bytes = read.unwrap_or(0);
        self.counters.count_read(bytes);
        Ok(bytes)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        let examine =
            |found: &MemoryObject| length(&found.fd).map_err(|e| memory_error(e, Doing::Examining, object));
        self.with(object, OnMissing::Leave, examine)
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (from, to) = (ObjectId { inode, generation: from }, ObjectId { inode, generation: to });
        if from != to {
            let moved = self.take_out(from, |objects, old| {
                if let std::collections::btree_map::Entry::Vacant(place) = objects.entry(to) {
                    let new = place.insert(Arc::new(MemoryObject::new(old.fd.try_clone()?)));
                    new.is_lent.store(old.is_lent.load(Ordering::Acquire), Ordering::Release);
                    self.room.hand_over(&old, new);
                } else {
                    self.room.forget(&old);
                }
                Ok(())
            });
            moved.map_err(|e| memory_error(e, Doing::Truncating, from))?;
        }
        let Some(target) = lock(&self.objects).get(&to).map(Arc::clone) else { return Ok(()) };
        // A write through a mapping beyond the object's end would kill this process.
        let Some(_alone) = target.gate.alone() else { return Ok(()) };
        self.cut(&target, bytes).map_err(|e| memory_error(e, Doing::Truncating, to))
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        let removed = self.take_out(object, |_, old| {
            self.room.forget(&old);
            Ok(())
        });
        removed.map_err(|e| memory_error(e, Doing::Removing, object))
    }

    fn flush(&self, _object: ObjectId) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&self, _object: ObjectId) -> Result<(), StoreError> {
        self.counters.count_sync();
        Ok(())
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.counters.count_sync();
        Ok(())
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        let (on_missing, flags) = match access {
            LendAccess::Read => (OnMissing::Leave, OFlags::RDONLY),
            LendAccess::Write => (OnMissing::Make, OFlags::RDWR),
        };
        if access == LendAccess::Write {
            self.no_longer_mapped(object)?;
        }
        let lent = self.with(object, on_missing, |found| {
            // Opened anew, so that the borrower has its own flags and cannot write through a read-only loan.
            let path = format!("/proc/self/fd/{}", found.fd.as_raw_fd());
            let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| memory_error(e.into(), Doing::Opening, object))?;
            Ok(Lent::Descriptor(fd))
        })?;
        Ok(lent.unwrap_or(Lent::NoObject))
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        let objects = lock(&self.objects);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = objects.range((start, Bound::Unbounded)).take(limit);
        rest.map(|(object, found)| {
            let bytes = length(&found.fd).map_err(|e| memory_error(e, Doing::Examining, *object))?;
            Ok((*object, bytes))
        })
        .collect()
    }

    fn space(&self) -> Result<Space, StoreError> {
        let counted = self.room.recount(&self.all_objects());
        counted.map_err(|e| StoreError::from_dir(e, Doing::Examining, Path::new("memory")))?;
        Ok(self.room.space())
    }

    fn stats(&self) -> StoreStats {
        self.counters.stats()
    }
}

fn length(fd: &OwnedFd) -> io::Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0))
}

fn memory_error(source: io::Error, doing: Doing, object: ObjectId) -> StoreError {
    StoreError::from_io(source, doing, object, 0..0, Path::new("memory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    const OBJECT: ObjectId = ObjectId { inode: InodeId(1), generation: Generation(0) };

    fn write(store: &MemoryStore, at: u64, bytes: usize) -> Result<(), StoreError> {
        store.write(OBJECT, LocalOffset(at), &[MemoryPiece::from(&vec![1; bytes][..])])
    }

    fn free(store: &MemoryStore) -> u64 {
        store.space().unwrap().free_bytes
    }

    #[test]
    fn conforms() {
        conformance::all(&|| Box::new(MemoryStore::new(64 << 20)));
    }

    /// Gaps between pieces must not use capacity that the pieces would not.
    #[test]
    fn scattered_pieces_have_the_room_that_there_is() {
        let store = MemoryStore::new(16 * 4096);
        let pieces: Vec<Scattered<'_>> =
            (0..4096).map(|number| Scattered { at: number * 16, bytes: b"abcd" }).collect();
        store.write_scattered(OBJECT, &pieces).unwrap();
        assert_eq!((free(&store), store.stats().writes), (0, 1));
        let mut bytes = [1; 36];
        assert_eq!(store.read(OBJECT, LocalOffset(65_500), &mut bytes).unwrap(), 24);
        assert_eq!(&bytes[..24], b"\0\0\0\0abcd\0\0\0\0\0\0\0\0\0\0\0\0abcd");
        store.write_scattered(OBJECT, &pieces[..4000]).expect("over existing pages");
        let far = MemoryStore::new(16 * 4096);
        let apart = [&pieces[..600], &[Scattered { at: 60_000, bytes: b"abcd" }]].concat();
        far.write_scattered(OBJECT, &apart).unwrap();
        assert_eq!(free(&far), 12 * 4096, "pages without a piece are not allocated");
        let beyond: Vec<Scattered<'_>> =
            (0..4096).map(|number| Scattered { at: 60_000 + number * 16, bytes: b"efgh" }).collect();
        let error = store.write_scattered(OBJECT, &beyond).unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
    }

    #[test]
    fn is_full_at_its_capacity_and_not_before() {
        let store = MemoryStore::new(16 * 4096);
        write(&store, 0, 15 * 4096).unwrap();
        assert_eq!(free(&store), 4096);
        let error = write(&store, 15 * 4096, 4097).unwrap_err();
        assert!(matches!(&error, StoreError::Full { range, .. } if *range == (61_440..65_537)), "{error}");
        write(&store, 15 * 4096, 4096).unwrap();
        assert_eq!(free(&store), 0);
        write(&store, 100, 10_000).unwrap();
        assert!(write(&store, 1 << 30, 1).unwrap_err().is_full());
        store.truncate(InodeId(1), Generation(0), Generation(1), 4096).unwrap();
        assert_eq!(free(&store), 15 * 4096);
        store.remove(ObjectId { generation: Generation(1), ..OBJECT }).unwrap();
        assert_eq!(free(&store), 16 * 4096);
    }

    #[test]
    fn holes_take_no_room() {
        let store = MemoryStore::new(8 * 4096);
        for page in 0..4 {
            write(&store, page * 1_000_000 / 4096 * 4096, 10).unwrap();
        }
        assert_eq!(free(&store), 4 * 4096);
        write(&store, 1, 3 * 4096).unwrap();
        assert_eq!(free(&store), 4096);
        // A range with one missing page fits exactly.
        write(&store, 0, 5 * 4096).unwrap();
        assert_eq!(free(&store), 0);
    }

    #[test]
    fn pages_written_through_a_loan_are_counted() {
        let store = MemoryStore::new(8 * 4096);
        let Lent::Descriptor(fd) = store.lend(OBJECT, LendAccess::Write).unwrap() else { panic!("lends") };
        pario_sys::write_pieces_at(fd.as_fd(), &[MemoryPiece::from(&[1; 10 * 4096][..])], 0).unwrap();
        assert_eq!(free(&store), 0);
        assert!(write(&store, 20 * 4096, 1).unwrap_err().is_full());
    }

    #[test]
    fn racing_writers_do_not_pass_the_capacity() {
        let store = MemoryStore::new(64 * 4096);
        std::thread::scope(|scope| {
            for writer in 0..4u64 {
                let store = &store;
                scope.spawn(move || {
                    let object = ObjectId { inode: InodeId(writer), ..OBJECT };
                    let written = (0..32).filter(|page| {
                        let at = LocalOffset(page * 4096);
                        store.write(object, at, &[MemoryPiece::from(&[1; 4096][..])]).is_ok()
                    });
                    written.count()
                });
            }
        });
        assert_eq!(free(&store), 0);
        let pages: u64 = store.list(None, 10).unwrap().iter().map(|(_, bytes)| bytes / 4096).sum();
        assert_eq!(pages, 64);
    }

    #[test]
    fn a_full_store_under_truncation_neither_hangs_nor_loses_count() {
        let store = MemoryStore::new(16 * 4096);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut refused = 0;
                while !done.load(std::sync::atomic::Ordering::Acquire) || refused == 0 {
                    refused += u32::from(write(&store, 0, 20 * 4096).is_err());
                    let _ = write(&store, 0, 9 * 4096);
                }
            });
            for generation in 1..200 {
                store.truncate(InodeId(1), Generation(0), Generation(generation), 4096).unwrap();
                store.space().unwrap();
                store.remove(ObjectId { generation: Generation(generation), ..OBJECT }).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        store.remove(OBJECT).unwrap();
        assert_eq!(free(&store), 16 * 4096);
    }
}
