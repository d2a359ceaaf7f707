//! Byte-range locks at the server, with the semantics of `fcntl`: readers share, writers exclude.
//!
//! Always: an owner's own locks do not conflict; unlocking a part keeps the rest.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

/// Host and owner on it.
pub(super) type RemoteLockOwner = (u64, u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RemoteLockKind {
    Read,
    Write,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct HeldRange {
    owner: RemoteLockOwner,
    kind: RemoteLockKind,
    range: Range<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RangeLockTable {
    held: Mutex<Vec<HeldRange>>,
    freed: Condvar,
}

fn excludes(held: &[HeldRange], wanted: &HeldRange) -> bool {
    let meets = |one: &HeldRange| one.range.start < wanted.range.end && wanted.range.start < one.range.end;
    let clashes = |one: &HeldRange| one.kind == RemoteLockKind::Write || wanted.kind == RemoteLockKind::Write;
    held.iter().any(|one| one.owner != wanted.owner && clashes(one) && meets(one))
}

/// Removes a range from an owner's locks.
fn cut(held: &mut Vec<HeldRange>, owner: RemoteLockOwner, range: &Range<u64>) {
    let rest: Vec<HeldRange> = held
        .iter()
        .filter(|one| one.owner == owner)
        .flat_map(|one| {
            let before = one.range.start..one.range.end.min(range.start);
            let behind = one.range.start.max(range.end)..one.range.end;
            [before, behind].map(|range| HeldRange { range, ..one.clone() })
        })
        .filter(|one| !one.range.is_empty())
        .collect();
    held.retain(|one| one.owner != owner);
    held.extend(rest);
}

impl RangeLockTable {
    /// Waits until no conflicting lock is held.
    pub(super) fn lock(&self, owner: RemoteLockOwner, kind: RemoteLockKind, range: Range<u64>) {
        let wanted = HeldRange { owner, kind, range };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while excludes(&held, &wanted) {
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        cut(&mut held, owner, &wanted.range);
        held.push(wanted);
    }

    /// Locks without waiting; returns whether it succeeded.
    pub(super) fn try_lock(&self, owner: RemoteLockOwner, kind: RemoteLockKind, range: Range<u64>) -> bool {
        let wanted = HeldRange { owner, kind, range };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if excludes(&held, &wanted) {
            return false;
        }
        cut(&mut held, owner, &wanted.range);
        held.push(wanted);
        true
    }

    pub(super) fn unlock(&self, owner: RemoteLockOwner, range: &Range<u64>) {
        cut(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner), owner, range);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RemoteLockOwner = (1, 7);
    const TWO: RemoteLockOwner = (2, 7);

    #[test]
    fn writers_exclude_where_they_overlap_and_readers_share() {
        let locks = RangeLockTable::default();
        assert!(
            locks.try_lock(ONE, RemoteLockKind::Read, 0..10)
                && locks.try_lock(TWO, RemoteLockKind::Read, 5..15)
        );
        assert!(!locks.try_lock(TWO, RemoteLockKind::Write, 9..20));
        assert!(locks.try_lock(TWO, RemoteLockKind::Write, 10..20));
        assert!(!locks.try_lock(ONE, RemoteLockKind::Read, 19..20));
        locks.unlock(TWO, &(12..14));
        assert!(
            locks.try_lock(ONE, RemoteLockKind::Write, 12..14)
                && !locks.try_lock(ONE, RemoteLockKind::Write, 11..14)
        );
        locks.unlock(TWO, &(0..u64::MAX));
        assert!(locks.try_lock(ONE, RemoteLockKind::Write, 0..u64::MAX));
    }

    #[test]
    fn who_waits_goes_on_when_the_holder_unlocks() {
        let locks = RangeLockTable::default();
        locks.lock(ONE, RemoteLockKind::Write, 0..10);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| locks.lock(TWO, RemoteLockKind::Write, 5..15));
            locks.unlock(ONE, &(0..10));
            waiter.join().unwrap();
        });
        assert!(!locks.try_lock(ONE, RemoteLockKind::Read, 14..15));
    }
}
