//! Lent objects as memory, for reading small pieces without a system call.
//!
//! Pages of a mapping come when they are touched, many at a time, which costs little beside copying them. So whoever wants more than a few
//! bytes of an object copies them out of a window, if the object is in memory, as far as it will be read next. If it is not, it is read by
//! calls, which have the disk read ahead, and through a window when as much of it was read as there is, where it is in memory then. A
//! window is kept for a while after its file is closed or its lease is gone, and used again only under a new loan of the same object that
//! is not shorter than it was.
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
use pario_sys::file_map::{FileIdentity, has_name};

/// Whether an object is in memory is looked at in steps of this size.
const STEP_BYTES: u64 = 1 << 20;
/// Whoever wants fewer bytes of a step reads them by calls.
const WANTED_BYTES_MIN: u64 = 16 << 10;
/// So much of an object that was not read before is looked at.
const AHEAD_BYTES: u64 = 256 << 20;
/// Windows kept, used or not.
const KEPT_MAX: usize = 64;
/// A window that nobody uses is kept for so long.
const IDLE: Duration = Duration::from_secs(2);

/// Why a window is worth while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worth {
    /// Much is wanted; what follows will be wanted next.
    First,
    /// The object is read again and again.
    Again,
}

impl Worth {
    /// What has to be in memory, of an object of so many bytes, for whoever wants to read a range: whole steps.
    pub(super) fn looks_at(self, range: &Range<u64>, length: u64) -> Range<u64> {
        let start = range.start / STEP_BYTES * STEP_BYTES;
        let ahead = match self {
            Worth::First => AHEAD_BYTES,
            Worth::Again => 0,
        };
        let end = range.end.next_multiple_of(STEP_BYTES).max(start.saturating_add(ahead)).min(length);
        start..end.max(start)
    }
}

/// Whether a window pays for whoever wants so many bytes of a range.
pub(super) fn pays(range: &Range<u64>, wanted: u64) -> bool {
    let steps = steps(range);
    (steps.end - steps.start).saturating_mul(WANTED_BYTES_MIN) <= wanted
}

/// The steps that a range lies in.
fn steps(range: &Range<u64>) -> Range<u64> {
    let first = range.start / STEP_BYTES;
    first..range.end.div_ceil(STEP_BYTES).max(first)
}

fn index(step: u64) -> usize {
    usize::try_from(step).expect("inside a mapping")
}

/// An object as memory.
pub(super) struct Window {
    map: Option<FileMap>,
    /// Steps that were in memory when they were looked at.
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

    /// Whether a range of the object can be copied from.
    pub(super) fn is_ready(&self, range: &Range<u64>) -> bool {
        self.missing(range).next().is_none()
    }

    /// Says of a range that it is in memory, for all who come after.
    pub(super) fn note_ready(&self, range: &Range<u64>) {
        for step in self.missing(range) {
            self.present[index(step)].store(true, Ordering::Relaxed);
        }
    }

    /// Makes pages of a range present, where nobody can tell whether they are in memory.
    pub(super) fn make_ready(&self, range: &Range<u64>) -> std::io::Result<()> {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        self.map.as_ref().map_or(Ok(()), |map| map.populate(place(range.start)..place(range.end)))
    }

    fn missing(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let inside = range.start..range.end.min(self.len());
        steps(&inside).filter(|step| !self.present[index(*step)].load(Ordering::Relaxed))
    }

    /// Copies bytes from `at` on, of a range that is ready; zeros behind the end.
    #[inline]
    pub(super) fn copy(&self, at: u64, target: &mut [u8]) {
        let inside = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX).min(target.len());
        let (head, tail) = target.split_at_mut(inside);
        if let Some(map) = self.map.as_ref().filter(|_| !head.is_empty()) {
            map.copy_to(usize::try_from(at).expect("inside a mapping"), head);
        }
        tail.fill(0);
    }
}

/// The windows of a mount.
#[derive(Default)]
pub(super) struct Windows {
    kept: Mutex<Vec<Kept>>,
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
        let mut kept = self.lock();
        let gone = forget_idle(&mut kept, now);
        let fits = |window: &Window| bytes.min(length) <= window.len() && window.len() <= length;
        if let Some(one) = kept.iter_mut().find(|one| one.of == of && fits(&one.window)) {
            one.used = now;
            return Ok(Arc::clone(&one.window));
        }
        let window = Arc::new(Window::of(descriptor)?);
        kept.retain(|one| one.of != of);
        while KEPT_MAX <= kept.len() {
            let oldest = (0..kept.len()).min_by_key(|at| kept[*at].used);
            oldest.map(|at| kept.swap_remove(at));
        }
        let named = has_name(descriptor.as_fd()).then(|| Arc::clone(descriptor));
        kept.push(Kept { of, window: Arc::clone(&window), named, used: now });
        drop(kept);
        drop(gone);
        Ok(window)
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
        again.copy(4996, &mut back);
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
    fn a_window_pays_when_much_of_each_step_is_wanted() {
        assert!(pays(&(0..10), WANTED_BYTES_MIN) && !pays(&(0..10), WANTED_BYTES_MIN - 1));
        assert!(!pays(&(STEP_BYTES - 1..STEP_BYTES + 1), 2 * WANTED_BYTES_MIN - 1));
        assert!(pays(&(STEP_BYTES - 1..STEP_BYTES + 1), 2 * WANTED_BYTES_MIN));
    }

    #[test]
    fn whole_steps_are_looked_at_and_at_first_what_follows_too() {
        let length = 3 * AHEAD_BYTES;
        let range = STEP_BYTES + 5..STEP_BYTES + 6;
        assert_eq!(Worth::Again.looks_at(&range, length), STEP_BYTES..2 * STEP_BYTES);
        assert_eq!(Worth::First.looks_at(&range, length), STEP_BYTES..STEP_BYTES + AHEAD_BYTES);
        assert_eq!(Worth::First.looks_at(&(0..length), length), 0..length);
        assert_eq!(Worth::First.looks_at(&range, STEP_BYTES + 9), STEP_BYTES..STEP_BYTES + 9);
        assert_eq!(Worth::Again.looks_at(&(length..length), 7), length..length);
    }

    #[test]
    fn steps_that_are_ready_stay_so() {
        let step = usize::try_from(STEP_BYTES).unwrap();
        let object = object(&vec![5; 2 * step + 100]);
        let window = Windows::default().open(&object, 1, at(1)).unwrap();
        assert!(!window.is_ready(&(0..1)));
        window.note_ready(&(0..2 * STEP_BYTES));
        assert!(window.is_ready(&(0..2 * STEP_BYTES)) && !window.is_ready(&(0..2 * STEP_BYTES + 1)));
        window.make_ready(&(2 * STEP_BYTES..9 * STEP_BYTES)).unwrap();
        window.note_ready(&(2 * STEP_BYTES..9 * STEP_BYTES));
        assert!(window.is_ready(&(0..9 * STEP_BYTES)), "behind the end is nothing");
        let mut back = [1; 200];
        window.copy(2 * STEP_BYTES, &mut back);
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
