//! POSIX locks on Pario's files: `flock` of an open file description, `fcntl` of a process or of a description. The partition's
//! manager holds them, so that they work between nodes.
//!
//! Never: handles C structures. Always: locks end as POSIX demands: those of a process with the first close of any of its
//! descriptors of the file, those of a description with its last descriptor, all with the process.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pario_core::InodeId;

use super::file::{Posix, PosixFile, Whence, number};
use crate::client::{FoundRecord, LockHolder, LockOptions, RangeLock, RecordLocks, RecordMode, RecordWait};

/// `EBADF`, `EINVAL`, `EOVERFLOW`.
const BAD_DESCRIPTOR: i32 = 9;
const INVALID: i32 = 22;
const OVERFLOW: i32 = 75;

/// `LOCK_SH`, `LOCK_EX`, `LOCK_UN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlockKind {
    /// Shared with other holders.
    Shared,
    /// Alone.
    Exclusive,
    /// Release.
    Unlock,
}

/// Owner of a record lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOwner {
    /// The process: `F_SETLK`.
    Process,
    /// The open file description: `F_OFD_SETLK`.
    Description,
}

/// The bytes of a `struct flock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockSpan {
    /// Origin of `start`.
    pub whence: Whence,
    /// `l_start`
    pub start: i64,
    /// `l_len`: 0 extends to the end of the file and beyond; a negative length lies before `start`.
    pub bytes: i64,
}

/// The locks of an open file description, and those of its process on the same file.
#[derive(Debug)]
pub(super) struct DescriptionLocks {
    flock: Mutex<Option<RangeLock>>,
    own: RecordLocks,
    process: Arc<RecordLocks>,
}

type Processes = HashMap<(String, InodeId), Weak<RecordLocks>>;

impl DescriptionLocks {
    /// No locks, for a description that was just opened.
    pub(super) fn of(partition: &str, inode: InodeId) -> DescriptionLocks {
        static ALL: Mutex<Option<Processes>> = Mutex::new(None);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        let key = (partition.to_owned(), inode);
        let process = all.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            all.retain(|_, locks| 0 < locks.strong_count());
            let locks = Arc::new(RecordLocks::new(LockHolder::Process));
            all.insert(key, Arc::downgrade(&locks));
            locks
        });
        DescriptionLocks { flock: Mutex::default(), own: RecordLocks::new(LockHolder::Handle), process }
    }

    /// A descriptor of the file is closed by this process.
    pub(super) fn process_closes(&self) {
        self.process.clear_all();
    }

    /// The description's last descriptor is closed.
    pub(super) fn drop_own(&self) {
        self.own.clear_all();
        drop(self.flock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn records(&self, owner: LockOwner) -> &RecordLocks {
        match owner {
            LockOwner::Process => &self.process,
            LockOwner::Description => &self.own,
        }
    }
}

impl PosixFile {
    /// `flock`. Changing a lock releases it first, as in the kernel.
    pub fn flock(&self, kind: FlockKind, wait: RecordWait) -> Posix<()> {
        self.served().note("flock");
        let mut held = self.locks.flock.lock().unwrap_or_else(PoisonError::into_inner);
        let options = match kind {
            FlockKind::Shared => LockOptions::shared(),
            FlockKind::Exclusive => LockOptions::exclusive(),
            FlockKind::Unlock => {
                drop(held.take());
                return Ok(());
            }
        };
        drop(held.take());
        let options = options.whole_file();
        let options = if wait == RecordWait::No { options.try_now() } else { options };
        *held = Some(self.file.lock(.., &options).map_err(|error| number(&error))?);
        Ok(())
    }

    /// `F_SETLK`, `F_SETLKW` and those of descriptions; `None` unlocks.
    pub fn set_lock(
        &self,
        owner: LockOwner,
        span: LockSpan,
        mode: Option<RecordMode>,
        wait: RecordWait,
    ) -> Posix<()> {
        self.served().note("fcntl");
        let (range, locks) = (self.range_of(span)?, self.locks.records(owner));
        let allowed = match mode {
            Some(RecordMode::Shared) => self.mode.read,
            Some(RecordMode::Exclusive) => self.mode.write,
            None => true,
        };
        if !allowed {
            return Err(BAD_DESCRIPTOR);
        }
        let done = match mode {
            Some(mode) => locks.set(&self.file, range, mode, wait),
            None => locks.clear(&self.file, range),
        };
        done.map_err(|error| number(&error))
    }

    /// `F_GETLK`: a conflicting lock of another owner.
    pub fn find_lock(
        &self,
        owner: LockOwner,
        span: LockSpan,
        mode: RecordMode,
    ) -> Posix<Option<FoundRecord>> {
        self.served().note("fcntl");
        let range = self.range_of(span)?;
        self.locks.records(owner).find(&self.file, range, mode).map_err(|error| number(&error))
    }

    fn range_of(&self, span: LockSpan) -> Posix<Range<u64>> {
        let base = match span.whence {
            Whence::Start => 0,
            Whence::Here => *self.position(),
            Whence::End => self.file.len().map_err(|error| number(&error))?,
        };
        bytes_of(i64::try_from(base).map_err(|_| OVERFLOW)?, span)
    }
}

fn bytes_of(base: i64, span: LockSpan) -> Posix<Range<u64>> {
    let start = base.checked_add(span.start).ok_or(OVERFLOW)?;
    let end = match span.bytes {
        0 => None,
        bytes => Some(start.checked_add(bytes).ok_or(OVERFLOW)?),
    };
    let (start, end) = match end {
        Some(end) if end < start => (end, Some(start)),
        end => (start, end),
    };
    let start = u64::try_from(start).map_err(|_| INVALID)?;
    Ok(start..end.map_or(u64::MAX, i64::unsigned_abs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_as_posix_counts_them() {
        let span = |start, bytes| LockSpan { whence: Whence::Start, start, bytes };
        assert_eq!(bytes_of(0, span(10, 5)), Ok(10..15));
        assert_eq!(bytes_of(100, span(-10, 5)), Ok(90..95));
        assert_eq!(bytes_of(0, span(10, 0)), Ok(10..u64::MAX));
        assert_eq!(bytes_of(0, span(10, -5)), Ok(5..10));
        assert_eq!(bytes_of(0, span(3, -5)), Err(INVALID));
        assert_eq!(bytes_of(0, span(-1, 5)), Err(INVALID));
        assert_eq!(bytes_of(i64::MAX, span(1, 0)), Err(OVERFLOW));
        assert_eq!(bytes_of(1, span(0, i64::MAX)), Err(OVERFLOW));
    }
}
