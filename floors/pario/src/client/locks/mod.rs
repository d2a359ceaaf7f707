//! Locks of files: asked for at the manager when first needed, kept until somebody else wants them; inside a kept one locking and unlocking
//! send nothing.
//!
//! Never: waits for a lock while it holds up a lease. Always: a lock that was lost with the manager says so, to whoever looks or unlocks.

mod access;
mod kernel;
mod slots;
pub mod table;
mod user;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{FoundLock, LockAsk, LockMode, LockPatience, LockShape, Reply, Request};
use pario_sys::kill_point::{Point, reach};

pub(crate) use self::access::{AccessLock, Guarded, Kind};
use self::kernel::Kernel;
pub(crate) use self::table::Holder;
use self::table::{Say, Table, Use};
pub use self::user::{LockHolder, LockOptions, PendingLock, RangeLock};
use super::mount::odd;
use super::open_file::OpenFile;
use super::views::NumberedView;

/// What a file's locks have in this process.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    state: Mutex<State>,
    /// A thread of this process has given back a lock in the kernel.
    unlocked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    /// The manager's life that the tokens belong to.
    epoch: u64,
    /// Calls under way that hold a lock around them, by lane.
    lanes: Vec<bool>,
    /// Somebody else wanted what was kept: no more is asked for than is needed.
    recalled: bool,
    kernel: Kernel,
}

/// What is wished for, but for who waits how long.
#[derive(Clone, Debug)]
pub(super) struct Wished {
    holder: Holder,
    mode: LockMode,
    shape: LockShape,
    /// The view of a shape that is one.
    view: Option<Arc<NumberedView>>,
}

/// A lock held; ended by [`OpenFile::unlock`].
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLock {
    which: Use,
    epoch: u64,
}

impl OpenFile {
    fn locks(&self) -> MutexGuard<'_, State> {
        let mut state = self.locks.state.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.mount.epoch();
        if state.epoch != epoch {
            // They were the old manager's.
            state.epoch = epoch;
            state.table.clear();
            state.kernel = Kernel::default();
        }
        state
    }

    /// Locks; waits as long as `patience` says.
    pub(super) fn lock(
        self: &Arc<Self>,
        wished: &Wished,
        (ask, patience): (u64, LockPatience),
    ) -> Result<HeldLock, Fault> {
        self.mount.check_process()?;
        if let Some(held) = self.lock_here(wished) {
            return Ok(held);
        }
        self.mount.counters.locks.fetch_add(1, Ordering::Relaxed);
        let _time = self.mount.timed(&self.mount.counters.lock_ns);
        loop {
            // First: a manager that is lost from here on makes the grant void.
            let epoch = self.mount.epoch();
            self.mount.listen()?;
            if let Some(view) = &wished.view {
                self.mount.tell_view(ServerIndex::MANAGER, view)?;
            }
            let Wished { holder, mode, shape, .. } = *wished;
            let wish = LockAsk {
                ask,
                space: holder.space,
                mode,
                shape,
                lane: holder.lane,
                club: holder.club,
                patience,
            };
            let request = Request::Lock { inode: self.inode, wish };
            let _slot = self.mount.lock_slot();
            let answer = self.mount.call(ServerIndex::MANAGER, &request);
            let Reply::Locked { number, start, end } =
                answer.map_err(|fault| fault.at(self.describe()))?.reply
            else {
                return Err(Fault::new(Code::Protocol, "a wish for a lock was answered with something else"));
            };
            reach(Point::LockReceived);
            let shape = match shape {
                LockShape::Bytes { .. } => LockShape::Bytes { start, end },
                LockShape::Stream { .. } => shape,
            };
            let mut says = Vec::new();
            let mut state = self.locks();
            if epoch != state.epoch {
                // Whichever connection brought it, it is not kept: one that we did not note could never be recalled.
                drop(state);
                self.say(Say::Return { number, keep: None });
                continue;
            }
            if !self.has_handles() {
                // Closed meanwhile: nobody would hear of a recall.
                drop(state);
                self.say(Say::Return { number, keep: None });
                let text = format!("{} was closed while a lock of it was waited for", self.describe());
                return Err(Fault::new(Code::Closed, text));
            }
            let which = state.table.granted(holder, (number, mode, shape), &wished.shape, &mut says);
            drop(state);
            for say in says {
                self.say(say);
            }
            return Ok(HeldLock { which, epoch });
        }
    }

    /// Locks under a token that is here, if there is one.
    fn lock_here(&self, wished: &Wished) -> Option<HeldLock> {
        let mut state = self.locks();
        let epoch = state.epoch;
        let which = state.table.begin(wished.holder, wished.mode, &wished.shape)?;
        Some(HeldLock { which, epoch })
    }

    /// Ends a lock. False: it had been lost with the manager.
    pub(super) fn unlock(&self, held: HeldLock) -> bool {
        let mut state = self.locks();
        if state.epoch != held.epoch {
            return false;
        }
        let ended = state.table.end(held.which);
        drop(state);
        match ended {
            None => false,
            Some(None) => true,
            Some(Some(say)) => {
                self.say(say);
                true
            }
        }
    }

    fn is_locked(&self, held: HeldLock) -> bool {
        let state = self.locks();
        state.epoch == held.epoch && state.table.is_held(held.which)
    }

    fn say(&self, say: Say) {
        let inode = self.inode;
        let request = match say {
            Say::Return { number, keep } => {
                Request::Unlock { inode, number, keep: keep.map(|keep| (keep.start, keep.end)) }
            }
            Say::Busy { number, keep } => {
                Request::LockBusy { inode, number, keep: keep.map(|keep| (keep.start, keep.end)) }
            }
        };
        // A manager that cannot be told has lost the lock with us.
        if let Err(fault) = self.mount.tell(ServerIndex::MANAGER, &request) {
            tracing::debug!(%fault, "a lock could not be given back");
        }
        reach(Point::LockReturned);
    }

    /// Somebody else wants what a token covers. Called by the listening thread.
    pub(super) fn lock_recalled(&self, number: u64, wanted: std::ops::Range<u64>, epoch: u64) {
        reach(Point::LockRecallHeard);
        let mut state = self.locks();
        if state.epoch != epoch {
            return;
        }
        state.recalled = true;
        let say = state.table.recalled(number, wanted);
        drop(state);
        if let Some(say) = say {
            self.say(say);
        }
    }

    /// A handle is closed: locks that it kept go back.
    pub(super) fn leave_lane(&self, lane: u64) {
        let mut says = Vec::new();
        self.locks().table.leave(lane, &mut says);
        for say in says {
            self.say(say);
        }
    }

    /// The last handle is closed; the manager drops the locks with the use.
    pub(super) fn drop_locks(&self) {
        let mut state = self.locks();
        state.table.clear();
        state.kernel = Kernel::default();
    }

    /// What a holder kept goes back.
    fn leave_holder(&self, holder: Holder) {
        let mut says = Vec::new();
        self.locks().table.leave_holder(holder, &mut says);
        for say in says {
            self.say(say);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn find_lock(&self, wished: &Wished) -> Result<Option<FoundLock>, Fault> {
        let Wished { holder, mode, shape, .. } = *wished;
        let patience = LockPatience::Try {};
        let wish = LockAsk {
            ask: 0,
            space: holder.space,
            mode,
            shape,
            lane: holder.lane,
            club: holder.club,
            patience,
        };
        match self.mount.call(ServerIndex::MANAGER, &Request::FindLock { inode: self.inode, wish })?.reply {
            Reply::Found { lock } => Ok(lock),
            other => Err(odd(&other)),
        }
    }
}
