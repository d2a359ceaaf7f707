//! Weak cache consistency: whether attributes read before and after a change enclose that change alone.
//!
//! A client that gets both keeps its cache if the ones before are those that it knows. So they are left out when another change of the same
//! inode through this export overlapped. Changes through mounts and other clients of the partition are not seen here.

use std::sync::atomic::{AtomicU64, Ordering};

use pario::core::InodeId;

/// Inodes share counters; an accidental overlap leaves out attributes that would have been right.
const SLOTS: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct ChangeWindows {
    slots: Box<[Slot]>,
}

/// Changes begun, in the upper half, and changes under way, in the lower half: one step counts both.
#[derive(Debug, Default)]
struct Slot(AtomicU64);

const BEGUN: u64 = 1 << 32;

/// One change under way.
#[derive(Debug)]
pub(super) struct ChangeWindow<'a> {
    slot: &'a Slot,
    before: u64,
}

impl Default for ChangeWindows {
    fn default() -> ChangeWindows {
        ChangeWindows { slots: (0..SLOTS).map(|_| Slot::default()).collect() }
    }
}

impl ChangeWindows {
    /// Before the first look at the attributes.
    pub(super) fn open(&self, inode: InodeId) -> ChangeWindow<'_> {
        let index = usize::try_from(inode.0 % SLOTS as u64).unwrap_or(0);
        let slot = &self.slots[index];
        let before = slot.0.fetch_add(BEGUN | 1, Ordering::AcqRel);
        ChangeWindow { slot, before }
    }
}

impl ChangeWindow<'_> {
    /// After the last look at the attributes: whether no other change overlapped.
    pub(super) fn is_alone(&self) -> bool {
        let was_alone = self.before.is_multiple_of(BEGUN);
        was_alone && self.slot.0.load(Ordering::Acquire) == self.before.wrapping_add(BEGUN | 1)
    }
}

impl Drop for ChangeWindow<'_> {
    fn drop(&mut self) {
        self.slot.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_changes_are_not_alone() {
        let windows = ChangeWindows::default();
        let first = windows.open(InodeId(3));
        assert!(first.is_alone());
        let elsewhere = windows.open(InodeId(4));
        let second = windows.open(InodeId(3));
        assert!(!first.is_alone() && !second.is_alone() && elsewhere.is_alone());
        drop((first, second));
        assert!(windows.open(InodeId(3)).is_alone());
    }
}
