//! Lent objects as memory, for reading small pieces without a system call each.
//!
//! Mapping an object and unmapping it costs as much as is gained by it once. So a window pays for what is read again: one is made when
//! somebody wants what was read by calls before, and kept for a while after its file is closed or its lease is gone. It is used again only
//! under a new loan of the same object that is not shorter than it was, and only for what is in memory: its pages come when they are
//! touched, many at a time, and from a disk calls read faster.
//!
//! Never: reads through a window without a loan; keeps more than a bounded number. Always: one that nobody uses is gone after
//! seconds, and at the next look if its object was removed, since it holds on to the space and memory of it.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::Nanos;
use pario_sys::FileMap;
use pario_sys::file_map::{FileIdentity, has_name, is_in_memory};

use super::sieve::{Wanted, WantedRow};

/// Where nobody tells what is in memory, a mapping is made present in steps of this size.
const STEP_BYTES: u64 = 1 << 20;
/// Of a processor's cache.
const LINE_BYTES: u64 = 64;
/// Copied at once.
const COPY_BYTES_MAX: usize = 2 << 10;
/// Asked for before it is copied: so many bytes, in so many pieces at most.
const AHEAD_BYTES: usize = 8 << 10;
const AHEAD_COUNT: usize = 16;
/// Windows kept, used or not.
const KEPT_MAX: usize = 64;
/// A window that nobody uses is kept for so long.
const IDLE: Duration = Duration::from_secs(2);

/// An object as memory.
pub(super) struct Window {
    map: Option<FileMap>,
    /// Steps that were made present.
    present: Vec<AtomicBool>,
}

impl Window {
    fn of(descriptor: &OwnedFd) -> std::io::Result<Window> {
        let map = FileMap::of(descriptor.as_fd())?;
        let steps = map.as_ref().map_or(0, |map| (map.len() as u64).div_ceil(STEP_BYTES));
        Ok(Window { map, present: (0..steps).map(|_| AtomicBool::new(false)).collect() })
    }

    pub(super) fn len(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.len() as u64)
    }

    /// Whether a range of the object can be copied from: it is in memory.
    pub(super) fn is_ready(&self, object: &OwnedFd, range: &Range<u64>) -> std::io::Result<bool> {
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

    /// Fills `target` with pieces of ranges that are ready and ascend; zeros behind the end.
    pub(super) fn read(&self, rows: impl Iterator<Item = WantedRow>, target: &mut [u8]) {
        let mut soon = Soon::default();
        for row in rows {
            match &self.map {
                _ if row.count == 1 => {
                    let piece = Wanted { at: row.at, place: row.places() };
                    self.read_one(&mut soon, piece, target);
                }
                Some(map) if row.is_fine() && row.end() <= self.len() => pick(map, row, target),
                Some(_) | None => row.pieces().for_each(|piece| self.read_one(&mut soon, piece, target)),
            }
        }
        while let Some(due) = soon.pop() {
            self.copy(due.at, &mut target[due.place]);
        }
    }

    #[inline]
    fn read_one(&self, soon: &mut Soon, piece: Wanted, target: &mut [u8]) {
        let mut rest = piece;
        while let Some(step) = take_step(&mut rest) {
            self.ask_for(soon, &step);
            soon.push(step);
            while let Some(due) = soon.pop_due() {
                self.copy(due.at, &mut target[due.place]);
            }
        }
    }

    /// Lines of memory that were asked for already are not asked for again.
    #[inline]
    fn ask_for(&self, soon: &mut Soon, step: &Wanted) {
        let (start, end) = (step.at.max(soon.asked), step.end().min(self.len()));
        if let Some(map) = self.map.as_ref().filter(|_| start < end) {
            let place = |at: u64| usize::try_from(at).expect("inside a mapping");
            map.fetch(place(start), place(end - start));
            soon.asked = end.next_multiple_of(LINE_BYTES);
        }
    }

    /// Copies bytes from `at` on, of a range that is ready; zeros behind the end.
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

/// Copies the pieces of a row, which lie inside the mapping; what comes next is asked for before.
fn pick(map: &FileMap, row: WantedRow, target: &mut [u8]) {
    let (end, stride) = (row.end(), usize::try_from(row.stride).expect("a short way"));
    let place = |at: u64| usize::try_from(at).expect("inside a mapping");
    let at_once = (AHEAD_BYTES / stride.max(1)).max(1);
    let mut rest = Some(row);
    while let Some(row) = rest {
        let (here, left) = row.split(at_once);
        let behind = here.end();
        map.fetch(place(behind), place((behind + AHEAD_BYTES as u64).min(end) - behind));
        let part = map.part(place(here.at), place(here.end() - here.at));
        part.pick_to(&mut target[here.places()], (here.bytes, stride));
        rest = left;
    }
}

/// Takes the next bytes of a piece that are copied at once.
#[inline]
fn take_step(rest: &mut Wanted) -> Option<Wanted> {
    if rest.place.is_empty() {
        return None;
    }
    let middle = rest.place.end.min(rest.place.start + COPY_BYTES_MAX);
    let step = Wanted { at: rest.at, place: rest.place.start..middle };
    (rest.at, rest.place.start) = (rest.at + step.place.len() as u64, middle);
    Some(step)
}

/// What was asked for and is copied a little later, oldest first.
#[derive(Default)]
struct Soon {
    steps: [Wanted; AHEAD_COUNT],
    /// How many ever came, and how many went.
    pushed: usize,
    popped: usize,
    bytes: usize,
    /// Up to where the object was asked for.
    asked: u64,
}

impl Soon {
    /// Adds what was asked for; then what is due must go.
    #[inline]
    fn push(&mut self, step: Wanted) {
        self.bytes += step.place.len();
        self.steps[self.pushed % AHEAD_COUNT] = step;
        self.pushed += 1;
    }

    #[inline]
    fn pop_due(&mut self) -> Option<Wanted> {
        let is_due = AHEAD_BYTES <= self.bytes || self.pushed - self.popped == AHEAD_COUNT;
        if is_due { self.pop() } else { None }
    }

    #[inline]
    fn pop(&mut self) -> Option<Wanted> {
        if self.popped == self.pushed {
            return None;
        }
        let step = std::mem::take(&mut self.steps[self.popped % AHEAD_COUNT]);
        self.popped += 1;
        self.bytes -= step.place.len();
        Some(step)
    }
}

/// The windows of a mount, and what was read of objects that have none.
#[derive(Default)]
pub(super) struct Windows {
    kept: Mutex<Vec<Kept>>,
    read: Mutex<Vec<Read>>,
}

/// How far an object was read by calls.
struct Read {
    of: FileIdentity,
    end: u64,
}

struct Kept {
    of: FileIdentity,
    window: Arc<Window>,
    /// Of an object that had a name: without one it was removed since.
    named: Option<Arc<OwnedFd>>,
    /// When it was last seen in use.
    used: Nanos,
}

impl Windows {
    /// A window onto a lent object, at least `bytes` long if the object is.
    pub(super) fn open(
        &self,
        descriptor: &Arc<OwnedFd>,
        bytes: u64,
        now: Nanos,
    ) -> std::io::Result<Arc<Window>> {
        let (of, length) = FileIdentity::of(descriptor.as_fd())?;
        // Giving memory back takes its time, and nobody is to wait for that: it goes after the lock.
        let mut gone;
        let mut kept = self.lock();
        gone = forget_idle(&mut kept, now);
        let fits = |window: &Window| bytes.min(length) <= window.len() && window.len() <= length;
        if let Some(one) = kept.iter_mut().find(|one| one.of == of && fits(&one.window)) {
            one.used = now;
            return Ok(Arc::clone(&one.window));
        }
        let window = Arc::new(Window::of(descriptor)?);
        gone.extend(kept.extract_if(.., |one| one.of == of));
        while KEPT_MAX <= kept.len() {
            let oldest = (0..kept.len()).min_by_key(|at| kept[*at].used);
            gone.extend(oldest.map(|at| kept.swap_remove(at)));
        }
        let named = has_name(descriptor.as_fd()).then(|| Arc::clone(descriptor));
        kept.push(Kept { of, window: Arc::clone(&window), named, used: now });
        drop(kept);
        drop(gone);
        Ok(window)
    }

    /// Whether a window onto a lent object pays for whoever wants to read up to `end`: there is one, or so much was read without one before.
    pub(super) fn is_worth(&self, descriptor: &Arc<OwnedFd>, end: u64) -> std::io::Result<bool> {
        let (of, _) = FileIdentity::of(descriptor.as_fd())?;
        let read = self.reads().iter().find(|read| read.of == of).map_or(0, |read| read.end);
        Ok(end <= read || self.lock().iter().any(|one| one.of == of))
    }

    /// An object was read by calls, up to `end`.
    pub(super) fn note_read(&self, descriptor: &Arc<OwnedFd>, end: u64) {
        // Who cannot be told from others is not remembered.
        let Ok((of, _)) = FileIdentity::of(descriptor.as_fd()) else { return };
        let mut reads = self.reads();
        // The one that was read last is the last.
        let before = reads.iter().position(|read| read.of == of).map(|at| reads.remove(at));
        if reads.len() == KEPT_MAX {
            reads.remove(0);
        }
        let end = before.map_or(0, |read| read.end).max(end);
        reads.push(Read { of, end });
    }

    fn reads(&self) -> MutexGuard<'_, Vec<Read>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of those that nobody has used for a while, or whose object is gone; whether idle ones are left.
    pub(super) fn forget_idle(&self, now: Nanos) -> bool {
        let mut kept = self.lock();
        let gone = forget_idle(&mut kept, now);
        let are_left = kept.iter().any(|one| !one.is_used());
        // Giving memory back takes its time; nobody is to wait for that.
        drop(kept);
        drop(gone);
        are_left
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn is_used(&self) -> bool {
        1 < Arc::strong_count(&self.window)
    }

    fn is_removed(&self) -> bool {
        self.named.as_ref().is_some_and(|named| !has_name(named.as_fd()))
    }
}

#[must_use = "dropping windows takes time"]
fn forget_idle(kept: &mut Vec<Kept>, now: Nanos) -> Vec<Kept> {
    for one in kept.iter_mut().filter(|one| one.is_used()) {
        one.used = now;
    }
    let is_gone = |one: &mut Kept| !one.is_used() && (IDLE <= now.since(one.used) || one.is_removed());
    kept.extract_if(.., is_gone).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

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
        let windows = Windows::default();
        let object = object(&[7; 5000]);
        let first = windows.open(&object, 5000, at(1)).unwrap();
        let again = windows.open(&Arc::new(object.try_clone().unwrap()), 5000, at(1)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let mut back = [0; 8];
        assert!(again.is_ready(&object, &(4996..5004)).unwrap());
        again.read(std::iter::once(Wanted { at: 4996, place: 0..8 }.into()), &mut back);
        assert_eq!(back, [7, 7, 7, 7, 0, 0, 0, 0]);
        // Longer: what is new must be seen. Shorter: what is gone must not be touched.
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
        let window = Window::of(&object(&bytes)).unwrap();
        for (at, bytes, stride, count) in
            [(0, 4, 16, 6250), (3, 8, 8, 5000), (50, 1, 900, 100), (9, 24, 40, 2000), (99_000, 4, 10, 500)]
        {
            let row = WantedRow { at, place: 3, bytes, stride, count };
            let mut by_row = vec![1; row.places().end];
            window.read(std::iter::once(row), &mut by_row);
            let mut by_pieces = vec![1; row.places().end];
            window.read(row.pieces().map(WantedRow::from), &mut by_pieces);
            assert!(by_row == by_pieces, "{row:?}");
        }
    }

    /// Small and large, near and far apart, many more than are asked for ahead, and behind the end.
    #[test]
    fn pieces_are_read_as_they_lie_in_the_object() {
        let bytes: Vec<u8> = (0..100_000u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let window = Window::of(&object(&bytes)).unwrap();
        let lengths = [1, 3, 63, 64, 65, 1280, COPY_BYTES_MAX, COPY_BYTES_MAX + 1, 3 * AHEAD_BYTES];
        for (gap, first) in [(0, 0), (1, 17), (700, 0), (2000, 99_000), (0, 200_000)] {
            let (mut at, mut place) = (first, 0);
            let mut pieces = Vec::new();
            for length in lengths.iter().cycle().take(4 * AHEAD_COUNT) {
                pieces.push(Wanted { at, place: place..place + length });
                (at, place) = (at + *length as u64 + gap, place + length);
            }
            let mut back = vec![0xEE; place];
            window.read(pieces.iter().cloned().map(WantedRow::from), &mut back);
            for piece in pieces {
                let from = usize::try_from(piece.at).unwrap().min(bytes.len());
                let to = (from + piece.place.len()).min(bytes.len());
                let mut expected = bytes[from..to].to_vec();
                expected.resize(piece.place.len(), 0);
                assert!(back[piece.place.clone()] == expected, "{piece:?}");
            }
        }
    }

    #[test]
    fn idle_windows_go_and_used_ones_stay() {
        let windows = Windows::default();
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
        let windows = Windows::default();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[3; 100]).unwrap();
        let object = Arc::new(OwnedFd::from(file.reopen().unwrap()));
        let used = windows.open(&object, 100, at(1)).unwrap();
        let window = Arc::downgrade(&used);
        file.close().unwrap();
        assert!(!windows.forget_idle(at(1)), "one that is used is not idle");
        assert!(window.upgrade().is_some());
        drop(used);
        assert!(!windows.forget_idle(at(1)));
        assert!(window.upgrade().is_none());
        // What never had a name was not removed.
        let memory = windows.open(&self::object(&[1; 10]), 10, at(1)).unwrap();
        let window = Arc::downgrade(&memory);
        drop(memory);
        assert!(windows.forget_idle(at(1)));
        assert!(window.upgrade().is_some());
    }

    #[test]
    fn a_window_pays_for_what_is_read_again() {
        let windows = Windows::default();
        let (one, other) = (object(&[1; 1000]), object(&[1; 1000]));
        let is_worth = |object, end| windows.is_worth(object, end).unwrap();
        assert!(!is_worth(&one, 1));
        windows.note_read(&one, 600);
        windows.note_read(&one, 400);
        assert!(is_worth(&one, 600) && !is_worth(&one, 601) && !is_worth(&other, 1));
        // One that there is costs nothing.
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
        let window = Windows::default().open(&object, 1, at(1)).unwrap();
        let is_ready = |range| window.is_ready(&object, &range).unwrap();
        assert!(is_ready(0..10_000) && is_ready(9_999..10_000));
        assert!(is_ready(2 * STEP_BYTES..9 * STEP_BYTES));
        // A hole is in no page, where that is told; where it is not, its pages are made.
        let told = is_in_memory(object.as_fd(), 0..1).is_some();
        assert_eq!(is_ready(STEP_BYTES..2 * STEP_BYTES), !told);
        let mut back = [1; 200];
        window.copy(9_900, &mut back);
        assert!(back[..100] == [5; 100] && back[100..] == [0; 100]);
    }

    #[test]
    fn windows_are_bounded() {
        let windows = Windows::default();
        let objects: Vec<Arc<OwnedFd>> = (0..KEPT_MAX + 5).map(|_| object(&[1])).collect();
        for (number, object) in objects.iter().enumerate() {
            windows.open(object, 1, Nanos(number as u64)).unwrap();
        }
        assert_eq!(windows.lock().len(), KEPT_MAX);
    }
}
