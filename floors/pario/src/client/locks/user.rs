//! Locks that programs take: [`File::lock`](crate::File::lock).

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{LockMode, LockPatience, LockShape, LockSpace, Request};

use super::{FoundLock, HeldLock, Holder, OpenFile, Wished};
use crate::client::Pending;
use crate::error::Result;

/// Between two attempts to take a wish back.
const CANCEL_PAUSE: Duration = Duration::from_millis(20);

/// On whose behalf a lock is held. Locks of one holder do not exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LockHolder {
    /// The handle: other handles of this process are others.
    #[default]
    Handle,
    /// This process, as `fcntl` has it.
    Process,
    /// The application: processes that mounted the partition under the same application name.
    Application,
    /// A group, by a number that its members share.
    Group(u64),
}

/// How a range is locked.
///
/// ```
/// # let partition = pario::Partition::in_process(1)?;
/// # let file = partition.create("counter")?;
/// use pario::LockOptions;
/// let guard = file.lock(0..8, &LockOptions::exclusive())?;      // waits for whoever has it
/// file.write_at(0, &1u64.to_le_bytes())?;
/// guard.unlock()?;
/// let _all = file.lock(.., &LockOptions::shared().try_now())?;   // fails instead of waiting
/// # Ok::<(), pario::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    mode: LockMode,
    patience: LockPatience,
    holder: LockHolder,
    space: LockSpace,
}

impl LockOptions {
    /// Alone.
    #[must_use]
    pub fn exclusive() -> LockOptions {
        LockOptions {
            mode: LockMode::Exclusive {},
            patience: LockPatience::Wait {},
            holder: LockHolder::Handle,
            space: LockSpace::Range {},
        }
    }

    /// Beside other shared locks.
    #[must_use]
    pub fn shared() -> LockOptions {
        LockOptions { mode: LockMode::Shared {}, ..LockOptions::exclusive() }
    }

    /// Fails at once, with the holder's name, if the lock is in use.
    #[must_use]
    pub fn try_now(self) -> LockOptions {
        LockOptions { patience: LockPatience::Try {}, ..self }
    }

    /// Waits so long at most, then fails with the holder's name.
    #[must_use]
    pub fn limit(self, limit: Duration) -> LockOptions {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).min(1 << 40);
        LockOptions { patience: LockPatience::Limit { ms }, ..self }
    }

    /// On whose behalf.
    #[must_use]
    pub fn held_by(self, holder: LockHolder) -> LockOptions {
        LockOptions { holder, ..self }
    }

    /// As `flock` has it: such locks and those of ranges know nothing of each other.
    #[must_use]
    pub fn whole_file(self) -> LockOptions {
        LockOptions { space: LockSpace::Whole {}, ..self }
    }
}

/// A locked range; unlocked when dropped.
#[derive(Debug)]
pub struct RangeLock {
    file: Arc<OpenFile>,
    range: Range<u64>,
    held: Option<HeldLock>,
}

impl RangeLock {
    /// The bytes that are locked.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Fails if the lock was lost: the manager went away, and others may have been given it.
    pub fn check(&self) -> Result<()> {
        self.file.mount.check_process()?;
        if self.held.is_some_and(|held| self.file.is_locked(held)) { Ok(()) } else { Err(self.lost().into()) }
    }

    /// Unlocks; fails if the lock had been lost before.
    pub fn unlock(mut self) -> Result<()> {
        self.file.mount.check_process()?;
        let unlocked = self.held.take().is_some_and(|held| self.file.unlock(held));
        if unlocked { Ok(()) } else { Err(self.lost().into()) }
    }

    fn lost(&self) -> Fault {
        let Range { start, end } = self.range;
        let text = format!(
            "{}: the lock of bytes {start} to {end} was lost with the manager, server 0",
            self.file.describe()
        );
        Fault::new(Code::Lost, text)
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && self.file.mount.is_own_process()
        {
            self.file.unlock(held);
        }
    }
}

/// A lock that is being waited for.
#[derive(Debug)]
pub struct PendingLock {
    file: Arc<OpenFile>,
    ask: u64,
    pending: Pending<RangeLock>,
}

impl PendingLock {
    /// Waits for it.
    pub fn wait(self) -> Result<RangeLock> {
        self.pending.wait()
    }

    /// Whether [`PendingLock::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    /// Takes the wish back. `Ok(Some)`: it had been fulfilled before.
    pub fn cancel(self) -> Result<Option<RangeLock>> {
        let request = Request::CancelLock { ask: self.ask };
        // The wish may not have left this process when it is taken back for the first time.
        while !self.pending.is_done() {
            self.file.mount.call(ServerIndex::MANAGER, &request)?;
            self.pending.wait_for(CANCEL_PAUSE);
        }
        match self.pending.wait() {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.code() == Code::Closed => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl OpenFile {
    fn wished(&self, range: &Range<u64>, options: &LockOptions, handle: u64) -> Wished {
        // Lane 0 is the process; a club is told from others by what made its number.
        let (lane, club) = match options.holder {
            LockHolder::Handle => (handle, 0),
            LockHolder::Process => (0, 0),
            LockHolder::Application => (0, self.mount.application_number()),
            LockHolder::Group(number) => (0, number.max(1)),
        };
        let holder = Holder { space: options.space, lane, club };
        let shape = LockShape::Bytes { start: range.start, end: range.end };
        Wished { holder, mode: options.mode, shape, view: None }
    }

    pub(in super::super) fn lock_user(
        self: &Arc<Self>,
        range: &impl RangeBounds<u64>,
        options: &LockOptions,
        handle: u64,
    ) -> Result<RangeLock> {
        let range = bytes_of(range)?;
        let held =
            self.lock(&self.wished(&range, options, handle), (self.mount.number(), options.patience))?;
        Ok(RangeLock { file: Arc::clone(self), range, held: Some(held) })
    }

    pub(in super::super) fn start_lock_user(
        self: &Arc<Self>,
        range: &impl RangeBounds<u64>,
        options: &LockOptions,
        handle: u64,
    ) -> Result<PendingLock> {
        let (range, ask, patience) = (bytes_of(range)?, self.mount.number(), options.patience);
        let (wished, file) = (self.wished(&range, options, handle), Arc::clone(self));
        let (pending, finish) = Pending::new();
        let work = move || {
            let held = file.lock(&wished, (ask, patience));
            finish(held.map_err(Into::into).map(|held| RangeLock { file, range, held: Some(held) }));
        };
        // A thread of its own: a wait of hours must not take one of those that others' accesses need.
        let spawned = std::thread::Builder::new().name("pario-lock".into()).spawn(work);
        spawned.map_err(|error| Fault::from_io(&error, "starting a thread that waits for a lock"))?;
        Ok(PendingLock { file: Arc::clone(self), ask, pending })
    }

    pub(in super::super) fn find_user(
        &self,
        range: &impl RangeBounds<u64>,
        options: &LockOptions,
        handle: u64,
    ) -> Result<Option<FoundLock>> {
        let range = bytes_of(range)?;
        Ok(self.find_lock(&self.wished(&range, options, handle))?)
    }
}

/// The bytes of a range; without an end it goes to the end of the file, wherever that is.
fn bytes_of(range: &impl RangeBounds<u64>) -> Result<Range<u64>> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    if start < end {
        return Ok(start..end);
    }
    Err(Fault::new(Code::Invalid, format!("a lock of no bytes, {start} to {end}")).into())
}
