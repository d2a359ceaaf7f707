//! Byte-range locks at the server, as `fcntl` has them: readers share, writers exclude.
//!
//! Always: an owner's own locks do not exclude each other; unlocking a part leaves the rest.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

/// Host and owner on it.
pub(super) type Owner = (u64, u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    Write,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    owner: Owner,
    kind: Kind,
    range: Range<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: Mutex<Vec<Held>>,
    freed: Condvar,
}

fn excludes(held: &[Held], wanted: &Held) -> bool {
    let meets = |one: &Held| one.range.start < wanted.range.end && wanted.range.start < one.range.end;
    let clashes = |one: &Held| one.kind == Kind::Write || wanted.kind == Kind::Write;
    held.iter().any(|one| one.owner != wanted.owner && clashes(one) && meets(one))
}

/// Takes a range out of what an owner holds.
fn cut(held: &mut Vec<Held>, owner: Owner, range: &Range<u64>) {
    let rest: Vec<Held> = held
        .iter()
        .filter(|one| one.owner == owner)
        .flat_map(|one| {
            let before = one.range.start..one.range.end.min(range.start);
            let behind = one.range.start.max(range.end)..one.range.end;
            [before, behind].map(|range| Held { range, ..one.clone() })
        })
        .filter(|one| !one.range.is_empty())
        .collect();
    held.retain(|one| one.owner != owner);
    held.extend(rest);
}

impl Locks {
    /// Waits until nobody else has what excludes it.
    pub(super) fn lock(&self, owner: Owner, kind: Kind, range: Range<u64>) {
        let wanted = Held { owner, kind, range };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while excludes(&held, &wanted) {
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        cut(&mut held, owner, &wanted.range);
        held.push(wanted);
    }

    /// Whether it could be had at once.
    pub(super) fn try_lock(&self, owner: Owner, kind: Kind, range: Range<u64>) -> bool {
        let wanted = Held { owner, kind, range };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if excludes(&held, &wanted) {
            return false;
        }
        cut(&mut held, owner, &wanted.range);
        held.push(wanted);
        true
    }

    pub(super) fn unlock(&self, owner: Owner, range: &Range<u64>) {
        cut(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner), owner, range);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = (1, 7);
    const TWO: Owner = (2, 7);

    #[test]
    fn writers_exclude_where_they_overlap_and_readers_share() {
        let locks = Locks::default();
        assert!(locks.try_lock(ONE, Kind::Read, 0..10) && locks.try_lock(TWO, Kind::Read, 5..15));
        assert!(!locks.try_lock(TWO, Kind::Write, 9..20));
        assert!(locks.try_lock(TWO, Kind::Write, 10..20));
        assert!(!locks.try_lock(ONE, Kind::Read, 19..20));
        locks.unlock(TWO, &(12..14));
        assert!(locks.try_lock(ONE, Kind::Write, 12..14) && !locks.try_lock(ONE, Kind::Write, 11..14));
        locks.unlock(TWO, &(0..u64::MAX));
        assert!(locks.try_lock(ONE, Kind::Write, 0..u64::MAX));
    }

    #[test]
    fn who_waits_goes_on_when_the_holder_unlocks() {
        let locks = Locks::default();
        locks.lock(ONE, Kind::Write, 0..10);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| locks.lock(TWO, Kind::Write, 5..15));
            locks.unlock(ONE, &(0..10));
            waiter.join().unwrap();
        });
        assert!(!locks.try_lock(ONE, Kind::Read, 14..15));
    }
}
