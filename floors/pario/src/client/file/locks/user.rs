//! Locks for programs: [`File::lock`](crate::File::lock).

use std::ops::{Bound, Range, RangeBounds};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{FoundLock, LockMode, LockShape, LockSpace, LockWaitLimit, Request};

use pario_sys::mutex::lock;

use super::cached::{HeldLock, WantedLock};
use super::table::CachedLockOwner;
use crate::client::Pending;
use crate::client::file::state::OpenFile;
use crate::error::Result;

/// Pause between two attempts to cancel a request.
const CANCEL_PAUSE: Duration = Duration::from_millis(20);

/// The holder of a lock. Locks of one holder do not exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LockHolder {
    /// The handle: other handles of this process are other holders.
    #[default]
    Handle,
    /// This process, as with `fcntl`.
    Process,
    /// The application: processes that mounted the partition under the same application name.
    Application,
    /// A group, by a number that its members share.
    Group(u64),
    /// An owner inside this process, by a number that the caller chooses: a mount serves many processes.
    Owner(u64),
}

/// Owner slots with this bit are numbers of [`LockHolder::Owner`]; handles have others.
const OWNER_BIT: u64 = 1 << 63;

/// Cancels waits for locks: shared between the thread that waits and the one that cancels.
#[derive(Clone, Debug, Default)]
pub struct LockCancel {
    state: Arc<Mutex<CancelState>>,
}

#[derive(Debug, Default)]
struct CancelState {
    is_cancelled: bool,
    /// File and number of the request that waits now.
    waiting: Option<(Arc<OpenFile>, u64)>,
}

impl LockCancel {
    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        lock(&self.state).is_cancelled
    }

    /// Cancels: a wait under way, and every later one, ends with `Code::Closed`. Returns when no request waits any more.
    pub fn cancel(&self) {
        lock(&self.state).is_cancelled = true;
        // The request may not have been sent when it is cancelled for the first time.
        loop {
            let Some((file, number)) = lock(&self.state).waiting.clone() else { return };
            let request = Request::CancelLock { request_number: number };
            if let Err(fault) = file.context.session.call(ServerIndex::MANAGER, &request) {
                // The wait ends with the manager's connection.
                tracing::debug!(%fault, "a wait for a lock could not be cancelled");
            }
            crate::client::session::state::pause(CANCEL_PAUSE);
        }
    }

    /// Begins a wait, unless it was cancelled before.
    fn begin(&self, file: &Arc<OpenFile>, number: u64) -> Result<()> {
        let mut state = lock(&self.state);
        if state.is_cancelled {
            let text = format!("{}: the wait for a lock was cancelled", file.context.describe());
            return Err(Fault::new(Code::Closed, text).into());
        }
        state.waiting = Some((Arc::clone(file), number));
        Ok(())
    }

    fn end(&self) {
        lock(&self.state).waiting = None;
    }
}

/// How a range is locked.
///
/// ```
/// # let partition = pario::Partition::in_process(1)?;
/// # let file = partition.create("counter")?;
/// use pario::LockOptions;
/// let guard = file.lock(0..8, &LockOptions::exclusive())?;      // waits for other holders
/// file.write_at(0, &1u64.to_le_bytes())?;
/// guard.unlock()?;
/// let _all = file.lock(.., &LockOptions::shared().try_now())?;   // fails instead of waiting
/// # Ok::<(), pario::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    mode: LockMode,
    patience: LockWaitLimit,
    holder: LockHolder,
    space: LockSpace,
}

impl LockOptions {
    /// No other lock at the same time.
    #[must_use]
    pub fn exclusive() -> LockOptions {
        LockOptions {
            mode: LockMode::Exclusive {},
            patience: LockWaitLimit::Wait {},
            holder: LockHolder::Handle,
            space: LockSpace::Range {},
        }
    }

    /// Together with other shared locks.
    #[must_use]
    pub fn shared() -> LockOptions {
        LockOptions { mode: LockMode::Shared {}, ..LockOptions::exclusive() }
    }

    /// Fails immediately, with the holder's name, if the lock is in use.
    #[must_use]
    pub fn try_now(self) -> LockOptions {
        LockOptions { patience: LockWaitLimit::Try {}, ..self }
    }

    /// Waits up to `limit`, then fails with the holder's name.
    #[must_use]
    pub fn limit(self, limit: Duration) -> LockOptions {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).min(1 << 40);
        LockOptions { patience: LockWaitLimit::Limit { ms }, ..self }
    }

    /// Sets the holder.
    #[must_use]
    pub fn held_by(self, holder: LockHolder) -> LockOptions {
        LockOptions { holder, ..self }
    }

    /// As with `flock`: such locks and range locks are independent of each other.
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
    /// The locked bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Fails if the lock was lost: the manager failed, and the lock may have been granted to others.
    pub fn check(&self) -> Result<()> {
        self.file.context.session.check_process()?;
        if self.held.is_some_and(|held| self.file.locks.is_locked(held)) {
            Ok(())
        } else {
            Err(self.lost().into())
        }
    }

    /// Unlocks; fails if the lock had been lost before.
    pub fn unlock(mut self) -> Result<()> {
        self.file.context.session.check_process()?;
        let unlocked = self.held.take().is_some_and(|held| self.file.locks.unlock(held));
        if unlocked { Ok(()) } else { Err(self.lost().into()) }
    }

    fn lost(&self) -> Fault {
        let Range { start, end } = self.range;
        let text = format!(
            "{}: the lock of bytes {start} to {end} was lost with the manager, server 0",
            self.file.context.describe()
        );
        Fault::new(Code::Lost, text)
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && self.file.context.session.is_own_process()
        {
            self.file.locks.unlock(held);
        }
    }
}

/// A lock request under way.
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

    /// Whether [`PendingLock::wait`] would return immediately.
    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    /// Cancels the request. `Ok(Some)`: it had been granted before.
    pub fn cancel(self) -> Result<Option<RangeLock>> {
        let request = Request::CancelLock { request_number: self.ask };
        // The request may not have been sent when it is cancelled for the first time.
        while !self.pending.is_done() {
            self.file.context.session.call(ServerIndex::MANAGER, &request)?;
            self.pending.wait_for(CANCEL_PAUSE);
        }
        match self.pending.wait() {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.code() == Code::Closed => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn wanted_lock(file: &OpenFile, range: &Range<u64>, options: &LockOptions, handle: u64) -> WantedLock {
    // Owner slot 0 is the process; a lock group is identified by the source of its number.
    let (lane, club) = match options.holder {
        LockHolder::Handle => (handle, 0),
        LockHolder::Process => (0, 0),
        LockHolder::Application => (0, file.context.session.application_number()),
        LockHolder::Group(number) => (0, number.max(1)),
        LockHolder::Owner(number) => (number | OWNER_BIT, 0),
    };
    let holder = CachedLockOwner { space: options.space, owner_slot: lane, lock_group: club };
    let shape = LockShape::Bytes { start: range.start, end: range.end };
    WantedLock { holder, mode: options.mode, shape, view: None }
}

pub(in crate::client) fn lock_user(
    file: &Arc<OpenFile>,
    range: &impl RangeBounds<u64>,
    options: &LockOptions,
    handle: u64,
) -> Result<RangeLock> {
    let range = bytes_of(range)?;
    let held = file.locks.lock(
        &wanted_lock(file, &range, options, handle),
        (file.context.session.number(), options.patience),
    )?;
    Ok(RangeLock { file: Arc::clone(file), range, held: Some(held) })
}

/// The same; the wait can be cancelled.
pub(in crate::client) fn lock_user_cancellable(
    file: &Arc<OpenFile>,
    range: &impl RangeBounds<u64>,
    (options, cancel): (&LockOptions, &LockCancel),
    handle: u64,
) -> Result<RangeLock> {
    let (range, number) = (bytes_of(range)?, file.context.session.number());
    cancel.begin(file, number)?;
    let held = file.locks.lock(&wanted_lock(file, &range, options, handle), (number, options.patience));
    cancel.end();
    Ok(RangeLock { file: Arc::clone(file), range, held: Some(held?) })
}

/// Returns the tokens kept for an owner.
pub(in crate::client) fn forget_owner(file: &OpenFile, owner: u64) {
    for space in [LockSpace::Range {}, LockSpace::Whole {}] {
        let holder = CachedLockOwner { space, owner_slot: owner | OWNER_BIT, lock_group: 0 };
        file.locks.leave_holder(holder);
    }
}

/// The same with a new token.
pub(super) fn lock_user_new_token(
    file: &Arc<OpenFile>,
    range: Range<u64>,
    options: &LockOptions,
    handle: u64,
) -> Result<RangeLock> {
    let wished = wanted_lock(file, &range, options, handle);
    let held = file.locks.lock_new_token(&wished, (file.context.session.number(), options.patience))?;
    Ok(RangeLock { file: Arc::clone(file), range, held: Some(held) })
}

pub(in crate::client) fn start_lock_user(
    file: &Arc<OpenFile>,
    range: &impl RangeBounds<u64>,
    options: &LockOptions,
    handle: u64,
) -> Result<PendingLock> {
    let (range, ask, patience) = (bytes_of(range)?, file.context.session.number(), options.patience);
    let (wished, waiting) = (wanted_lock(file, &range, options, handle), Arc::clone(file));
    let (pending, finish) = Pending::new();
    let work = move || {
        let held = waiting.locks.lock(&wished, (ask, patience));
        finish(held.map_err(Into::into).map(|held| RangeLock { file: waiting, range, held: Some(held) }));
    };
    // On a new thread: a wait of hours must not occupy a worker thread that accesses need.
    let spawned = std::thread::Builder::new().name("pario-lock".into()).spawn(work);
    spawned.map_err(|error| Fault::from_io(&error, "starting a thread that waits for a lock"))?;
    Ok(PendingLock { file: Arc::clone(file), ask, pending })
}

pub(in crate::client) fn find_user(
    file: &OpenFile,
    range: &impl RangeBounds<u64>,
    options: &LockOptions,
    handle: u64,
) -> Result<Option<FoundLock>> {
    let range = bytes_of(range)?;
    Ok(file.locks.find_lock(&wanted_lock(file, &range, options, handle))?)
}

/// The bytes of a range; a range without an end extends to the end of the file, wherever that is.
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
    Err(Fault::new(Code::Invalid, format!("empty lock range {start} to {end}: lock at least one byte"))
        .into())
}
