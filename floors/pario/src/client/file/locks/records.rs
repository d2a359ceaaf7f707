//! Record locks as with `fcntl`: a byte has one lock per owner; a new lock replaces, splits or joins existing ones.
//!
//! ```text
//!  held    [---- exclusive ----]           set(shared, 4..8)    ─►  [ excl ][ shared ][ excl ]
//!  wanted       [ shared ]                 each part has a token of its own, so that others wait for no more than is held
//! ```
//! Never: unlocks a byte while its lock mode changes; holds the table while it waits for another process. Always: a failed call leaves the
//! existing locks unchanged.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pario_core::Code;
use pario_net::message::LockMode;

use super::user::{LockCancel, LockHolder, LockOptions, RangeLock, lock_user_new_token};
use crate::client::File;
use crate::error::Result;

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordMode {
    /// Together with other shared locks.
    Shared,
    /// No other lock at the same time.
    Exclusive,
}

/// Whether the call waits for conflicting locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordWait {
    /// As long as it takes.
    Wait,
    /// Not at all: the call fails with `Code::WouldBlock`.
    No,
}

/// A conflicting lock of another owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRecord {
    /// The bytes; a range without an end extends to `u64::MAX`.
    pub range: Range<u64>,
    /// Its mode.
    pub mode: RecordMode,
    /// The holder's process id, on its host.
    pub pid: u32,
}

/// The record locks of one owner on one file: of a process, or of a handle.
///
/// ```
/// # let partition = pario::Partition::in_process(1)?;
/// # let file = partition.create("table")?;
/// use pario::{LockHolder, RecordLocks, RecordMode, RecordWait};
/// let locks = RecordLocks::new(LockHolder::Process);
/// locks.set(&file, 0..100, RecordMode::Exclusive, RecordWait::Wait)?;
/// locks.set(&file, 0..50, RecordMode::Shared, RecordWait::No)?;       // the second half stays exclusive
/// locks.clear(&file, 20..30)?;
/// # Ok::<(), pario::Error>(())
/// ```
#[derive(Debug)]
pub struct RecordLocks {
    holder: LockHolder,
    held: Mutex<Vec<RecordLock>>,
}

/// Locked bytes; no two records of a table overlap.
#[derive(Debug)]
struct RecordLock {
    range: Range<u64>,
    mode: RecordMode,
    /// Unlocked when dropped.
    lock: RangeLock,
}

impl RecordLocks {
    /// Without any lock.
    #[must_use]
    pub fn new(holder: LockHolder) -> RecordLocks {
        RecordLocks { holder, held: Mutex::default() }
    }

    /// Locks all of a range in one mode, replacing other modes of the same owner. `file` is any handle of the file that the owner has
    /// open.
    pub fn set(&self, file: &File, range: Range<u64>, mode: RecordMode, wait: RecordWait) -> Result<()> {
        self.set_by(file, range, mode, |part| file.lock(part, &self.options(mode, wait)))
    }

    /// As [`RecordLocks::set`], with a wait that another thread can cancel; then it fails with `Code::Closed`.
    pub fn set_cancellable(
        &self,
        file: &File,
        range: Range<u64>,
        mode: RecordMode,
        cancel: &LockCancel,
    ) -> Result<()> {
        let options = self.options(mode, RecordWait::Wait);
        self.set_by(file, range, mode, |part| file.lock_cancellable(part, &options, cancel))
    }

    fn set_by(
        &self,
        file: &File,
        range: Range<u64>,
        mode: RecordMode,
        lock_part: impl Fn(Range<u64>) -> Result<RangeLock>,
    ) -> Result<()> {
        let mut new: Vec<RecordLock> = Vec::new();
        loop {
            let held = self.held();
            let alike = held.iter().filter(|record| record.mode == mode).chain(&new);
            let missing = without(range.clone(), alike.map(|record| &record.range));
            if missing.is_empty() {
                return self.replace(held, (file, &range, Some(mode)), new);
            }
            drop(held);
            for part in missing {
                let lock = lock_part(part.clone())?;
                new.push(RecordLock { range: part, mode, lock });
            }
        }
    }

    /// Unlocks all of a range.
    pub fn clear(&self, file: &File, range: Range<u64>) -> Result<()> {
        self.replace(self.held(), (file, &range, None), Vec::new())
    }

    /// Unlocks all ranges.
    pub fn clear_all(&self) {
        let all = std::mem::take(&mut *self.held());
        // After the table is unlocked: each may send a message.
        drop(all);
    }

    /// The locked ranges.
    pub fn ranges(&self) -> Vec<(Range<u64>, RecordMode)> {
        self.held().iter().map(|record| (record.range.clone(), record.mode)).collect()
    }

    /// Whether the owner has no lock.
    pub fn is_empty(&self) -> bool {
        self.held().is_empty()
    }

    /// A lock of another owner that [`RecordLocks::set`] would have to wait for.
    pub fn find(&self, file: &File, range: Range<u64>, mode: RecordMode) -> Result<Option<FoundRecord>> {
        let options = self.options(mode, RecordWait::No);
        // A holder may keep an unused lock: only a lock request shows whether it is in use.
        match file.lock(range.clone(), &options) {
            Ok(_free) => return Ok(None),
            Err(error) if matches!(error.code(), Code::WouldBlock | Code::Deadlock) => {}
            Err(error) => return Err(error),
        }
        let found = file.find_lock(range, &options)?;
        Ok(found.map(|lock| FoundRecord {
            range: lock.start..lock.end,
            mode: match lock.mode {
                LockMode::Shared {} => RecordMode::Shared,
                LockMode::Exclusive {} => RecordMode::Exclusive,
            },
            pid: lock.pid,
        }))
    }

    fn held(&self) -> MutexGuard<'_, Vec<RecordLock>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn options(&self, mode: RecordMode, wait: RecordWait) -> LockOptions {
        let options = match mode {
            RecordMode::Shared => LockOptions::shared(),
            RecordMode::Exclusive => LockOptions::exclusive(),
        };
        let options = options.held_by(self.holder);
        if wait == RecordWait::No { options.try_now() } else { options }
    }

    /// Removes `range` from records with another mode than `stays`; the rest of such records is locked again first.
    fn replace(
        &self,
        mut held: MutexGuard<'_, Vec<RecordLock>>,
        (file, range, stays): (&File, &Range<u64>, Option<RecordMode>),
        new: Vec<RecordLock>,
    ) -> Result<()> {
        let mut rests = Vec::new();
        let gone = |record: &RecordLock| meet(&record.range, range) && Some(record.mode) != stays;
        for record in held.iter().filter(|record| gone(record)) {
            for part in without(record.range.clone(), std::iter::once(range)) {
                // No other owner can have it: it is inside the held range.
                let options = self.options(record.mode, RecordWait::No);
                let lock =
                    lock_user_new_token(&file.inner.file, part.clone(), &options, file.inner.owner_slot)?;
                rests.push(RecordLock { range: part, mode: record.mode, lock });
            }
        }
        let (ended, kept): (Vec<RecordLock>, Vec<RecordLock>) = held.drain(..).partition(gone);
        held.extend(kept.into_iter().chain(rests).chain(new));
        drop(held);
        for record in ended {
            // A lock lost with the manager needs no return.
            drop(record.lock);
        }
        Ok(())
    }
}

fn meet(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}

/// The parts of a range that are in none of `taken`.
fn without<'a>(range: Range<u64>, taken: impl Iterator<Item = &'a Range<u64>>) -> Vec<Range<u64>> {
    let mut taken: Vec<&Range<u64>> = taken.filter(|other| meet(other, &range)).collect();
    taken.sort_unstable_by_key(|other| other.start);
    let mut parts = Vec::new();
    let mut at = range.start;
    for other in taken {
        if at < other.start {
            parts.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_range() {
        use std::slice::from_ref;
        let left = |range: Range<u64>, taken: &[Range<u64>]| without(range, taken.iter());
        assert_eq!(left(0..10, &[]), from_ref(&(0..10)));
        assert_eq!(left(0..10, &[5..6, 2..3, 20..30]), [0..2, 3..5, 6..10]);
        assert_eq!(left(4..10, &[0..5, 9..20]), from_ref(&(5..9)));
        assert_eq!(left(4..10, from_ref(&(0..u64::MAX))), [0..0; 0]);
    }
}
