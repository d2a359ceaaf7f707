//! Locks of programs: `fcntl` of processes and of open file descriptions, `flock`; held by the partition's manager under owners that the
//! kernel numbers.
//!
//! Always: a flush ends the locks of its owner, the release of a handle every lock that was taken through it. So all three kinds end
//! as POSIX and Linux demand: those of a process with its first close of the file, those of a description with its last descriptor.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario::core::InodeId;
use pario::{LockCancel, LockHolder, LockOptions, RangeLock, RecordLocks, RecordMode, RecordWait};
use rustix::io::Errno;

use super::FileSystem;
use super::error::{PosixResult, errno_of};
use super::files::MountedFile;

/// Kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PosixLockKind {
    /// Together with other shared locks.
    Shared,
    /// No other lock at the same time.
    Exclusive,
    /// No lock.
    Unlock,
}

/// Locked bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockRange {
    /// Of `fcntl`; a range without an end extends to `u64::MAX`.
    Record(Range<u64>),
    /// Of `flock`.
    Whole,
}

/// Whether a call waits for conflicting locks.
#[derive(Clone, Copy, Debug)]
pub enum PosixLockWait<'a> {
    /// Not at all: it fails with `EAGAIN`.
    No,
    /// Until it is cancelled: then it fails with `EINTR`.
    Until(&'a LockCancel),
}

/// A call that sets or removes a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockCall {
    /// Owner, as the kernel numbers it.
    pub owner: u64,
    /// Process that calls.
    pub pid: u32,
    /// What is locked.
    pub range: LockRange,
    /// How.
    pub kind: PosixLockKind,
}

/// A lock of another owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConflictingLock {
    /// The bytes.
    pub range: Range<u64>,
    /// Its mode.
    pub mode: RecordMode,
    /// Process of its owner.
    pub pid: u32,
}

/// Owners that have, or had, locks of a file.
#[derive(Debug, Default)]
pub(super) struct LockOwners {
    owners: Mutex<HashMap<(InodeId, u64), Arc<OwnerLocks>>>,
}

#[derive(Debug)]
struct OwnerLocks {
    records: RecordLocks,
    whole: Mutex<Option<RangeLock>>,
    pid: AtomicU32,
}

impl LockOwners {
    fn table(&self) -> MutexGuard<'_, HashMap<(InodeId, u64), Arc<OwnerLocks>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, inode: InodeId, owner: u64) -> Option<Arc<OwnerLocks>> {
        self.table().get(&(inode, owner)).cloned()
    }

    fn of_new(&self, inode: InodeId, owner: u64) -> Arc<OwnerLocks> {
        let mut table = self.table();
        let new = || {
            let records = RecordLocks::new(LockHolder::Owner(owner));
            Arc::new(OwnerLocks { records, whole: Mutex::default(), pid: AtomicU32::new(0) })
        };
        Arc::clone(table.entry((inode, owner)).or_insert_with(new))
    }

    /// Removes an owner's locks on a file; false if it had none.
    fn remove(&self, inode: InodeId, owner: u64) -> bool {
        let Some(locks) = self.table().remove(&(inode, owner)) else { return false };
        locks.records.clear_all();
        drop(locks.whole.lock().unwrap_or_else(PoisonError::into_inner).take());
        true
    }

    /// Record locks of other owners of this mount on a file.
    fn others(&self, inode: InodeId, owner: u64) -> Vec<Arc<OwnerLocks>> {
        let table = self.table();
        let others = table.iter().filter(|((of, other), _)| *of == inode && *other != owner);
        others.map(|(_, locks)| Arc::clone(locks)).collect()
    }
}

impl FileSystem {
    /// Sets or removes a lock.
    pub fn set_lock(&self, handle: u64, call: &LockCall, wait: PosixLockWait<'_>) -> PosixResult<()> {
        let handle = self.files.get(handle)?;
        let inode = handle.inode();
        if call.kind == PosixLockKind::Unlock && self.locks.of(inode, call.owner).is_none() {
            return Ok(());
        }
        handle.lock_owners().insert(call.owner);
        let locks = self.locks.of_new(inode, call.owner);
        locks.pid.store(call.pid, Ordering::Relaxed);
        let done = match &call.range {
            LockRange::Record(range) => set_record(&handle, &locks, range.clone(), call.kind, wait),
            LockRange::Whole => set_whole(&handle, &locks, call, wait),
        };
        done.map_err(|error| match (wait, &error) {
            (PosixLockWait::Until(cancel), _) if cancel.is_cancelled() => Errno::INTR,
            _ => errno_of(&error),
        })
    }

    /// `F_GETLK`: a lock that would be in the way.
    pub fn find_lock(&self, handle: u64, call: &LockCall) -> PosixResult<Option<ConflictingLock>> {
        let handle = self.files.get(handle)?;
        let (LockRange::Record(range), Some(mode)) = (&call.range, mode_of(call.kind)) else {
            return Err(Errno::INVAL);
        };
        let conflicts = |(held, other): &(Range<u64>, RecordMode)| {
            let both_shared = mode == RecordMode::Shared && *other == RecordMode::Shared;
            held.start < range.end && range.start < held.end && !both_shared
        };
        for locks in self.locks.others(handle.inode(), call.owner) {
            if let Some((range, mode)) = locks.records.ranges().into_iter().find(|held| conflicts(held)) {
                return Ok(Some(ConflictingLock { range, mode, pid: locks.pid.load(Ordering::Relaxed) }));
            }
        }
        let found = match self.locks.of(handle.inode(), call.owner) {
            Some(own) => own.records.find(handle.file(), range.clone(), mode),
            None => RecordLocks::new(LockHolder::Owner(call.owner)).find(handle.file(), range.clone(), mode),
        };
        let found = found.map_err(|error| errno_of(&error))?;
        Ok(found.map(|found| ConflictingLock { range: found.range, mode: found.mode, pid: found.pid }))
    }

    /// Ends the locks of an owner on a handle's file.
    pub(super) fn drop_locks(&self, handle: &MountedFile, owner: u64) {
        if self.locks.remove(handle.inode(), owner) {
            handle.file().forget_owner(owner);
        }
    }
}

fn mode_of(kind: PosixLockKind) -> Option<RecordMode> {
    match kind {
        PosixLockKind::Shared => Some(RecordMode::Shared),
        PosixLockKind::Exclusive => Some(RecordMode::Exclusive),
        PosixLockKind::Unlock => None,
    }
}

fn set_record(
    handle: &MountedFile,
    locks: &OwnerLocks,
    range: Range<u64>,
    kind: PosixLockKind,
    wait: PosixLockWait<'_>,
) -> pario::Result<()> {
    match (mode_of(kind), wait) {
        (None, _) => locks.records.clear(handle.file(), range),
        (Some(mode), PosixLockWait::No) => locks.records.set(handle.file(), range, mode, RecordWait::No),
        (Some(mode), PosixLockWait::Until(cancel)) => {
            locks.records.set_cancellable(handle.file(), range, mode, cancel)
        }
    }
}

/// Changing a lock releases it first, as in the kernel.
fn set_whole(
    handle: &MountedFile,
    locks: &OwnerLocks,
    call: &LockCall,
    wait: PosixLockWait<'_>,
) -> pario::Result<()> {
    drop(locks.whole.lock().unwrap_or_else(PoisonError::into_inner).take());
    let options = match call.kind {
        PosixLockKind::Shared => LockOptions::shared(),
        PosixLockKind::Exclusive => LockOptions::exclusive(),
        PosixLockKind::Unlock => return Ok(()),
    };
    let options = options.whole_file().held_by(LockHolder::Owner(call.owner));
    let held = match wait {
        PosixLockWait::No => handle.file().lock(.., &options.try_now())?,
        PosixLockWait::Until(cancel) => handle.file().lock_cancellable(.., &options, cancel)?,
    };
    *locks.whole.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    Ok(())
}
