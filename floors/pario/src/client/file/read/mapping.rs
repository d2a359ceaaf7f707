//! Mappings of lent objects, for reading small pieces without a system call each.
//!
//! Mapping and unmapping an object costs as much as one use of it saves, so a mapping pays only for data that is read again: it is made at
//! the second read of the same data, and kept for 2 s after its file is closed or its lease is returned. It is used again only under a new
//! loan of the same object that is not shorter than before, and only for pages in memory: page faults load many pages at a time, and from
//! a disk system calls read faster.
//!
//! Never: reads through a mapping without a loan; keeps more than a bounded number. Always: an unused mapping is unmapped after 2 s, and
//! at the next check if its object was removed, because it pins the object's space and memory.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::Nanos;
use pario_sys::FileMap;
use pario_sys::file_map::{FileIdentity, has_name, is_in_memory};

use crate::client::file::read::sieve::WantedRow;

/// Where the kernel does not report which pages are in memory, a mapping is populated in steps of this size.
const STEP_BYTES: u64 = 1 << 20;
/// Mappings kept, used or not.
const KEPT_MAX: usize = 64;
/// An unused mapping is kept for this long.
const IDLE: Duration = Duration::from_secs(2);

/// An object mapped into memory.
pub(in crate::client) struct Mapping {
    map: Option<FileMap>,
    /// Steps that were populated.
    present: Vec<AtomicBool>,
}

impl Mapping {
    fn of(descriptor: &OwnedFd) -> std::io::Result<Mapping> {
        let map = FileMap::of(descriptor.as_fd())?;
        let steps = map.as_ref().map_or(0, |map| (map.len() as u64).div_ceil(STEP_BYTES));
        Ok(Mapping { map, present: (0..steps).map(|_| AtomicBool::new(false)).collect() })
    }

    pub(in crate::client) fn len(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.len() as u64)
    }

    /// Whether a range of the object can be copied: it is in memory.
    pub(in crate::client) fn is_ready(&self, object: &OwnedFd, range: &Range<u64>) -> std::io::Result<bool> {
        let Some(map) = &self.map else { return Ok(true) };
        let inside = range.start..range.end.min(self.len());
        if let Some(told) = is_in_memory(object.as_fd(), inside.clone()) {
            return Ok(told);
        }
        for step in inside.start / STEP_BYTES..inside.end.div_ceil(STEP_BYTES) {
            let present = &self.present[usize::try_from(step).expect("inside a mapping")];
            if !present.load(Ordering::Relaxed) {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                map.populate(place(step * STEP_BYTES)..place((step + 1) * STEP_BYTES))?;
                present.store(true, Ordering::Relaxed);
            }
        }
        Ok(true)
    }

    /// Fills `target` with pieces of ready ranges, in ascending order; zeros beyond the end.
    pub(in crate::client) fn read(&self, rows: impl Iterator<Item = WantedRow>, target: &mut [u8]) {
        for row in rows {
            match &self.map {
                Some(map) if row.is_fine() && row.end() <= self.len() => pick(map, row, target),
                Some(_) | None => {
                    row.pieces().for_each(|piece| self.copy(piece.at, &mut target[piece.memory_range]));
                }
            }
        }
    }

    /// Copies bytes from `at` on, of a ready range; zeros beyond the end.
    #[inline]
    fn copy(&self, at: u64, target: &mut [u8]) {
        let inside = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX).min(target.len());
        let (head, tail) = target.split_at_mut(inside);
        if let Some(map) = self.map.as_ref().filter(|_| !head.is_empty()) {
            map.copy_to(usize::try_from(at).expect("inside a mapping"), head);
        }
        tail.fill(0);
    }
}

/// Copies the pieces of a row, which lie inside the mapping.
fn pick(map: &FileMap, row: WantedRow, target: &mut [u8]) {
    let place = |at: u64| usize::try_from(at).expect("inside a mapping");
    let part = map.part(place(row.at), place(row.end() - row.at));
    part.pick_to(&mut target[row.memory_range()], (row.bytes, place(row.stride)));
}

/// The mappings of a session, and the read history of objects without one.
#[derive(Default)]
pub(in crate::client) struct Mappings {
    kept: Mutex<Vec<KeptMapping>>,
    read: Mutex<Vec<ReadHistory>>,
}

/// How far an object was read by system calls.
struct ReadHistory {
    of: FileIdentity,
    end: u64,
}

struct KeptMapping {
    of: FileIdentity,
    window: Arc<Mapping>,
    /// For an object that had a name: if it has none now, it was removed.
    named: Option<Arc<OwnedFd>>,
    /// Time of the last use seen.
    used: Nanos,
}

impl Mappings {
    /// A mapping of a lent object, at least `bytes` long if the object is.
    pub(in crate::client) fn open(
        &self,
        descriptor: &Arc<OwnedFd>,
        bytes: u64,
        now: Nanos,
    ) -> std::io::Result<Arc<Mapping>> {
        let (of, length) = FileIdentity::of(descriptor.as_fd())?;
        // Unmapping takes time: it is done after the lock is released, so that no thread waits for it.
        let mut gone;
        let mut kept = self.lock();
        gone = forget_idle(&mut kept, now);
        let fits = |window: &Mapping| bytes.min(length) <= window.len() && window.len() <= length;
        if let Some(one) = kept.iter_mut().find(|one| one.of == of && fits(&one.window)) {
            one.used = now;
            return Ok(Arc::clone(&one.window));
        }
        let window = Arc::new(Mapping::of(descriptor)?);
        gone.extend(kept.extract_if(.., |one| one.of == of));
        while KEPT_MAX <= kept.len() {
            let oldest = (0..kept.len()).min_by_key(|at| kept[*at].used);
            gone.extend(oldest.map(|at| kept.swap_remove(at)));
        }
        let named = has_name(descriptor.as_fd()).then(|| Arc::clone(descriptor));
        kept.push(KeptMapping { of, window: Arc::clone(&window), named, used: now });
        drop(kept);
        drop(gone);
        Ok(window)
    }

    /// Whether a mapping of a lent object pays for a reader up to `end`: there is one, or that much was read without one before.
    pub(in crate::client) fn is_worth(&self, descriptor: &Arc<OwnedFd>, end: u64) -> std::io::Result<bool> {
        let (of, _) = FileIdentity::of(descriptor.as_fd())?;
        let read = self.reads().iter().find(|read| read.of == of).map_or(0, |read| read.end);
        Ok(end <= read || self.lock().iter().any(|one| one.of == of))
    }

    /// An object was read by system calls, up to `end`.
    pub(in crate::client) fn note_read(&self, descriptor: &Arc<OwnedFd>, end: u64) {
        // An object without an identity is not remembered.
        let Ok((of, _)) = FileIdentity::of(descriptor.as_fd()) else { return };
        let mut reads = self.reads();
        // The list is in order of the last read.
        let before = reads.iter().position(|read| read.of == of).map(|at| reads.remove(at));
        if reads.len() == KEPT_MAX {
            reads.remove(0);
        }
        let end = before.map_or(0, |read| read.end).max(end);
        reads.push(ReadHistory { of, end });
    }

    fn reads(&self) -> MutexGuard<'_, Vec<ReadHistory>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops mappings that were unused for [`IDLE`] or have a removed object; returns whether idle ones are left.
    pub(in crate::client) fn forget_idle(&self, now: Nanos) -> bool {
        let mut kept = self.lock();
        let gone = forget_idle(&mut kept, now);
        let are_left = kept.iter().any(|one| !one.is_used());
        // Unmapping takes time: no thread waits for it.
        drop(kept);
        drop(gone);
        are_left
    }

    fn lock(&self) -> MutexGuard<'_, Vec<KeptMapping>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptMapping {
    fn is_used(&self) -> bool {
        1 < Arc::strong_count(&self.window)
    }

    fn is_removed(&self) -> bool {
        self.named.as_ref().is_some_and(|named| !has_name(named.as_fd()))
    }
}

#[must_use = "dropping windows takes time"]
fn forget_idle(kept: &mut Vec<KeptMapping>, now: Nanos) -> Vec<KeptMapping> {
    for one in kept.iter_mut().filter(|one| one.is_used()) {
        one.used = now;
    }
    let is_gone = |one: &mut KeptMapping| !one.is_used() && (IDLE <= now.since(one.used) || one.is_removed());
    kept.extract_if(.., is_gone).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::client::file::read::sieve::Wanted;

    fn object(bytes: &[u8]) -> Arc<OwnedFd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file.into())
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_window_is_used_again_while_its_object_is_as_long() {
        let windows = Mappings::default();
        let object = object(&[7; 5000]);
        let first = windows.open(&object, 5000, at(1)).unwrap();
        let again = windows.open(&Arc::new(object.try_clone().unwrap()), 5000, at(1)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let mut back = [0; 8];
        assert!(again.is_ready(&object, &(4996..5004)).unwrap());
        again.read(std::iter::once(Wanted { at: 4996, memory_range: 0..8 }.into()), &mut back);
        assert_eq!(back, [7, 7, 7, 7, 0, 0, 0, 0]);
        // Longer: new bytes must be visible. Shorter: removed bytes must not be touched.
        let file = std::fs::File::from(object.try_clone().unwrap());
        file.set_len(9000).unwrap();
        let longer = windows.open(&object, 9000, at(1)).unwrap();
        assert_eq!(longer.len(), 9000);
        file.set_len(100).unwrap();
        assert_eq!(windows.open(&object, 9000, at(1)).unwrap().len(), 100);
    }

    #[test]
    fn a_row_is_read_as_its_pieces_are() {
        let bytes: Vec<u8> = (0..100_000u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let window = Mapping::of(&object(&bytes)).unwrap();
        for (at, bytes, stride, count) in
            [(0, 4, 16, 6250), (3, 8, 8, 5000), (50, 1, 900, 100), (9, 24, 40, 2000), (99_000, 4, 10, 500)]
        {
            let row = WantedRow { at, memory_start: 3, bytes, stride, count };
            let mut by_row = vec![1; row.memory_range().end];
            window.read(std::iter::once(row), &mut by_row);
            let mut by_pieces = vec![1; row.memory_range().end];
            window.read(row.pieces().map(WantedRow::from), &mut by_pieces);
            assert!(by_row == by_pieces, "{row:?}");
        }
    }

    /// Small and large, near and far apart, and beyond the end.
    #[test]
    fn pieces_are_read_as_they_lie_in_the_object() {
        let bytes: Vec<u8> = (0..100_000u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let window = Mapping::of(&object(&bytes)).unwrap();
        let lengths = [1, 3, 63, 64, 65, 1280, 2048, 2049, 24 << 10];
        for (gap, first) in [(0, 0), (1, 17), (700, 0), (2000, 99_000), (0, 200_000)] {
            let (mut at, mut place) = (first, 0);
            let mut pieces = Vec::new();
            for length in lengths.iter().cycle().take(64) {
                pieces.push(Wanted { at, memory_range: place..place + length });
                (at, place) = (at + *length as u64 + gap, place + length);
            }
            let mut back = vec![0xEE; place];
            window.read(pieces.iter().cloned().map(WantedRow::from), &mut back);
            for piece in pieces {
                let from = usize::try_from(piece.at).unwrap().min(bytes.len());
                let to = (from + piece.memory_range.len()).min(bytes.len());
                let mut expected = bytes[from..to].to_vec();
                expected.resize(piece.memory_range.len(), 0);
                assert!(back[piece.memory_range.clone()] == expected, "{piece:?}");
            }
        }
    }

    #[test]
    fn idle_windows_go_and_used_ones_stay() {
        let windows = Mappings::default();
        let (one, other) = (object(&[1; 10]), object(&[2; 10]));
        let used = windows.open(&one, 10, at(1)).unwrap();
        let idle = Arc::downgrade(&windows.open(&other, 10, at(1)).unwrap());
        windows.forget_idle(at(2));
        assert!(idle.upgrade().is_some());
        windows.forget_idle(at(4));
        assert!(idle.upgrade().is_none());
        assert!(Arc::ptr_eq(&used, &windows.open(&one, 10, at(9)).unwrap()));
    }

    #[test]
    fn a_window_of_a_removed_object_goes_when_nobody_uses_it() {
        let windows = Mappings::default();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[3; 100]).unwrap();
        let object = Arc::new(OwnedFd::from(file.reopen().unwrap()));
        let used = windows.open(&object, 100, at(1)).unwrap();
        let window = Arc::downgrade(&used);
        file.close().unwrap();
        assert!(!windows.forget_idle(at(1)), "a mapping in use is not idle");
        assert!(window.upgrade().is_some());
        drop(used);
        assert!(!windows.forget_idle(at(1)));
        assert!(window.upgrade().is_none());
        // An object that never had a name was not removed.
        let memory = windows.open(&self::object(&[1; 10]), 10, at(1)).unwrap();
        let window = Arc::downgrade(&memory);
        drop(memory);
        assert!(windows.forget_idle(at(1)));
        assert!(window.upgrade().is_some());
    }

    #[test]
    fn a_window_pays_for_what_is_read_again() {
        let windows = Mappings::default();
        let (one, other) = (object(&[1; 1000]), object(&[1; 1000]));
        let is_worth = |object, end| windows.is_worth(object, end).unwrap();
        assert!(!is_worth(&one, 1));
        windows.note_read(&one, 600);
        windows.note_read(&one, 400);
        assert!(is_worth(&one, 600) && !is_worth(&one, 601) && !is_worth(&other, 1));
        // An existing mapping costs nothing.
        let _window = windows.open(&other, 1000, at(1)).unwrap();
        assert!(is_worth(&other, 1000));
        let more: Vec<Arc<OwnedFd>> = (0..KEPT_MAX).map(|_| object(&[1])).collect();
        more.iter().for_each(|object| windows.note_read(object, 1));
        assert_eq!(windows.reads().len(), KEPT_MAX);
    }

    #[test]
    fn what_is_not_in_memory_is_not_ready_and_what_is_behind_the_end_is_nothing() {
        let object = object(&[5; 10_000]);
        std::fs::File::from(object.try_clone().unwrap()).set_len(2 * STEP_BYTES).unwrap();
        let window = Mappings::default().open(&object, 1, at(1)).unwrap();
        let is_ready = |range| window.is_ready(&object, &range).unwrap();
        assert!(is_ready(0..10_000) && is_ready(9_999..10_000));
        assert!(is_ready(2 * STEP_BYTES..9 * STEP_BYTES));
        // A hole is in no page if the kernel reports pages; otherwise its pages are populated.
        let told = is_in_memory(object.as_fd(), 0..1).is_some();
        assert_eq!(is_ready(STEP_BYTES..2 * STEP_BYTES), !told);
        let mut back = [1; 200];
        window.copy(9_900, &mut back);
        assert!(back[..100] == [5; 100] && back[100..] == [0; 100]);
    }

    #[test]
    fn windows_are_bounded() {
        let windows = Mappings::default();
        let objects: Vec<Arc<OwnedFd>> = (0..KEPT_MAX + 5).map(|_| object(&[1])).collect();
        for (number, object) in objects.iter().enumerate() {
            windows.open(object, 1, Nanos(number as u64)).unwrap();
        }
        assert_eq!(windows.lock().len(), KEPT_MAX);
    }
}
