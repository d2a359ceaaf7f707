//! Lent objects as memory, for reading small pieces without a system call.
//!
//! Making the pages of an object present costs more than reading them once. So a window pays for an object that is read again and again: one
//! is made when as much of it was read by calls as there is, and kept for a while after its file is closed or its lease is gone. It is
//! used again only under a new loan of the same object that is not shorter than it was.
//!
//! Never: reads through a window without a loan; keeps more than a bounded number. Always: one that nobody uses is gone after
//! seconds, and at the next look if its object was removed, since it holds on to the space and memory of it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::Nanos;
use pario_sys::FileMap;
use pario_sys::file_map::{FileIdentity, has_name};

/// A mapping is made present in steps of this size.
const STEP_BYTES: u64 = 1 << 20;
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

    /// Copies bytes from `at` on; zeros behind the end.
    #[inline]
    pub(super) fn copy(&self, at: u64, target: &mut [u8]) -> std::io::Result<()> {
        let inside = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX).min(target.len());
        let (head, tail) = target.split_at_mut(inside);
        if let Some(map) = self.map.as_ref().filter(|_| !head.is_empty()) {
            let last = (at + head.len() as u64 - 1) / STEP_BYTES;
            for step in at / STEP_BYTES..=last {
                self.make_present(map, step)?;
            }
            map.copy_to(usize::try_from(at).expect("inside a mapping"), head);
        }
        tail.fill(0);
        Ok(())
    }

    #[inline]
    fn make_present(&self, map: &FileMap, step: u64) -> std::io::Result<()> {
        let present = &self.present[usize::try_from(step).expect("inside a mapping")];
        if !present.load(Ordering::Relaxed) {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            map.populate(place(step * STEP_BYTES)..place((step + 1) * STEP_BYTES))?;
            present.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The windows of a mount, and what was read of objects that have none.
#[derive(Default)]
pub(super) struct Windows {
    kept: Mutex<Vec<Kept>>,
    read: Mutex<Vec<Read>>,
}

/// What was read of an object by calls.
struct Read {
    of: FileIdentity,
    bytes: u64,
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

    /// Whether a window onto a lent object pays: there is one, or as much of the object was read without one as there is.
    pub(super) fn is_worth(&self, descriptor: &Arc<OwnedFd>) -> std::io::Result<bool> {
        let (of, length) = FileIdentity::of(descriptor.as_fd())?;
        let read = self.reads().iter().find(|read| read.of == of).map_or(0, |read| read.bytes);
        Ok(length <= read || self.lock().iter().any(|one| one.of == of))
    }

    /// So many bytes of an object were read by calls.
    pub(super) fn note_read(&self, descriptor: &Arc<OwnedFd>, bytes: u64) {
        // Who cannot be told from others is not counted.
        let Ok((of, _)) = FileIdentity::of(descriptor.as_fd()) else { return };
        let mut reads = self.reads();
        // The one that was read last is the last.
        let before = reads.iter().position(|read| read.of == of).map(|at| reads.remove(at));
        if reads.len() == KEPT_MAX {
            reads.remove(0);
        }
        let bytes = before.map_or(0, |read| read.bytes).saturating_add(bytes);
        reads.push(Read { of, bytes });
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
        again.copy(4996, &mut back).unwrap();
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
    fn a_window_pays_when_as_much_was_read_as_there_is() {
        let windows = Windows::default();
        let (one, other) = (object(&[1; 1000]), object(&[1; 1000]));
        assert!(!windows.is_worth(&one).unwrap());
        windows.note_read(&one, 600);
        assert!(!windows.is_worth(&one).unwrap());
        windows.note_read(&one, 400);
        assert!(windows.is_worth(&one).unwrap());
        assert!(!windows.is_worth(&other).unwrap());
        // One that there is costs nothing.
        let _window = windows.open(&other, 1000, at(1)).unwrap();
        assert!(windows.is_worth(&other).unwrap());
        let more: Vec<Arc<OwnedFd>> = (0..KEPT_MAX).map(|_| object(&[1])).collect();
        more.iter().for_each(|object| windows.note_read(object, 1));
        assert_eq!(windows.reads().len(), KEPT_MAX);
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
