//! The lock tokens of a file that this process keeps: requested from the manager at first use, kept until recalled; inside a kept token lock and unlock send no message.
//!
//! Never: waits for a lock while it delays the return of a lease. Always: a lock lost with the manager is reported by `check` and
//! `unlock`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{
    FoundLock, LockMode, LockShape, LockSpace, LockSpec, LockWaitLimit, Reply, Request,
};
use pario_sys::kill_point::{Point, reach};
use pario_sys::mutex::lock;

use super::kernel::KernelLocks;
use super::table::{CachedLockOwner, CachedLockTable, LockUse, TokenMessage};
use crate::client::file::context::FileContext;
use crate::client::session::state::unexpected_reply;
use crate::client::session::views::NumberedView;

/// Lock state of one file in this process.
pub(in crate::client) struct FileLocks {
    pub(super) context: Arc<FileContext>,
    pub(super) state: Mutex<FileLockState>,
    /// Signalled when a thread of this process has released a kernel lock.
    pub(super) unlocked: Condvar,
    /// Held while a thread of this process appends.
    pub(super) appending: Mutex<()>,
}

#[derive(Debug, Default)]
pub(super) struct FileLockState {
    pub(super) table: CachedLockTable,
    /// The manager's epoch that the tokens belong to.
    pub(super) epoch: u64,
    /// Calls under way that hold a lock around them, by owner slot.
    pub(super) owner_slots: Vec<bool>,
    /// Another holder wanted a kept token: requests cover no more than needed.
    pub(super) recalled: bool,
    pub(super) kernel: KernelLocks,
}

/// A lock request, without its wait limit.
#[derive(Clone, Debug)]
pub(in crate::client) struct WantedLock {
    pub(super) holder: CachedLockOwner,
    pub(super) mode: LockMode,
    pub(super) shape: LockShape,
    /// The view of a stream shape.
    pub(super) view: Option<Arc<NumberedView>>,
}

/// A lock held; ended by [`FileLocks::unlock`].
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct HeldLock {
    pub(super) which: LockUse,
    pub(super) epoch: u64,
}

impl FileLocks {
    pub(in crate::client) fn new(context: &Arc<FileContext>) -> FileLocks {
        FileLocks {
            context: Arc::clone(context),
            state: Mutex::default(),
            unlocked: Condvar::new(),
            appending: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FileLockState> {
        let mut state = lock(&self.state);
        let epoch = self.context.session.epoch();
        if state.epoch != epoch {
            // They were granted by the lost manager.
            state.epoch = epoch;
            state.table.clear();
            state.kernel = KernelLocks::default();
        }
        state
    }

    /// Locks; waits as long as `wait` allows.
    pub(in crate::client) fn lock(
        &self,
        wished: &WantedLock,
        (ask, patience): (u64, LockWaitLimit),
    ) -> Result<HeldLock, Fault> {
        self.context.session.check_process()?;
        if let Some(held) = self.lock_cached(wished) {
            return Ok(held);
        }
        self.lock_new_token(wished, (ask, patience))
    }

    /// The same with a new token, so that others need not wait for the rest of a larger token.
    pub(super) fn lock_new_token(
        &self,
        wished: &WantedLock,
        (ask, patience): (u64, LockWaitLimit),
    ) -> Result<HeldLock, Fault> {
        self.context.session.counters.locks.fetch_add(1, Ordering::Relaxed);
        let _time = self.context.session.timed(&self.context.session.counters.lock_ns);
        loop {
            // Before the request: a manager that is lost from here on makes the grant void.
            let epoch = self.context.session.epoch();
            self.context.session.listen()?;
            if let Some(view) = &wished.view {
                self.context.session.send_view(ServerIndex::MANAGER, view)?;
            }
            let WantedLock { holder, mode, shape, .. } = *wished;
            let wish = LockSpec {
                request_number: ask,
                space: holder.space,
                mode,
                shape,
                owner_slot: holder.owner_slot,
                lock_group: holder.lock_group,
                wait: patience,
            };
            let request = Request::Lock { inode: self.context.inode, wish };
            let _slot = self.context.session.lock_slot();
            let answer = self.context.session.call(ServerIndex::MANAGER, &request);
            let Reply::Locked { number, start, end } =
                answer.map_err(|fault| fault.at(self.context.describe()))?.reply
            else {
                return Err(Fault::new(Code::Protocol, "unexpected reply to a lock request"));
            };
            reach(Point::LockReceived);
            let shape = match shape {
                LockShape::Bytes { .. } => LockShape::Bytes { start, end },
                LockShape::Stream { .. } => shape,
            };
            let mut says = Vec::new();
            let mut state = self.state();
            if epoch != state.epoch {
                // The token is returned: a token that is not in the table could never be recalled.
                drop(state);
                self.send_token_message(TokenMessage::Return { number, keep: None });
                continue;
            }
            if !self.context.has_handles() {
                // Closed meanwhile: a recall would find no file.
                drop(state);
                self.send_token_message(TokenMessage::Return { number, keep: None });
                let text = format!("{} was closed while a lock request was waiting", self.context.describe());
                return Err(Fault::new(Code::Closed, text));
            }
            let which = state.table.granted(holder, (number, mode, shape), &wished.shape, &mut says);
            drop(state);
            for say in says {
                self.send_token_message(say);
            }
            return Ok(HeldLock { which, epoch });
        }
    }

    /// Locks under a cached token, if there is one.
    pub(super) fn lock_cached(&self, wished: &WantedLock) -> Option<HeldLock> {
        let mut state = self.state();
        let epoch = state.epoch;
        let which = state.table.begin(wished.holder, wished.mode, &wished.shape)?;
        Some(HeldLock { which, epoch })
    }

    /// Ends a lock. False: it had been lost with the manager.
    pub(in crate::client) fn unlock(&self, held: HeldLock) -> bool {
        let mut state = self.state();
        if state.epoch != held.epoch {
            return false;
        }
        let ended = state.table.end(held.which);
        drop(state);
        match ended {
            None => false,
            Some(None) => true,
            Some(Some(say)) => {
                match held.which.holder.space {
                    LockSpace::Access {} | LockSpace::Append {} => self.send_token_message(say),
                    LockSpace::Range {} | LockSpace::Whole {} => self.send_token_message_and_wait(say),
                }
                true
            }
        }
    }

    /// A program that has unlocked may signal another by its own means; that one must not find the lock in use.
    pub(super) fn send_token_message_and_wait(&self, say: TokenMessage) {
        if let Err(fault) = self.context.session.call(ServerIndex::MANAGER, &self.request(say)) {
            tracing::debug!(%fault, "a lock could not be returned");
        }
        reach(Point::LockReturned);
    }

    pub(super) fn request(&self, say: TokenMessage) -> Request {
        let inode = self.context.inode;
        match say {
            TokenMessage::Return { number, keep } => {
                Request::Unlock { inode, number, keep: keep.map(|keep| (keep.start, keep.end)) }
            }
            TokenMessage::Busy { number, keep } => {
                Request::LockBusy { inode, number, keep: keep.map(|keep| (keep.start, keep.end)) }
            }
        }
    }

    pub(super) fn is_locked(&self, held: HeldLock) -> bool {
        let state = self.state();
        state.epoch == held.epoch && state.table.is_held(held.which)
    }

    pub(super) fn send_token_message(&self, say: TokenMessage) {
        let request = self.request(say);
        // A manager that cannot be reached has lost the lock.
        if let Err(fault) = self.context.session.send_unawaited(ServerIndex::MANAGER, &request) {
            tracing::debug!(%fault, "a lock could not be returned");
        }
        reach(Point::LockReturned);
    }

    /// Another holder wants bytes of a token. Called by the notice thread.
    pub(in crate::client) fn lock_recalled(&self, number: u64, wanted: std::ops::Range<u64>, epoch: u64) {
        reach(Point::LockRecallHeard);
        let mut state = self.state();
        if state.epoch != epoch {
            return;
        }
        state.recalled = true;
        let say = state.table.recalled(number, wanted);
        drop(state);
        if let Some(say) = say {
            self.send_token_message(say);
        }
    }

    /// A handle is closed: its kept locks are returned.
    pub(in crate::client) fn leave_owner_slot(&self, lane: u64) {
        let mut says = Vec::new();
        self.state().table.leave(lane, &mut says);
        for say in says {
            self.send_token_message(say);
        }
    }

    /// The last handle is closed; the manager drops the locks with the close.
    pub(in crate::client) fn drop_locks(&self) {
        let mut state = self.state();
        state.table.clear();
        state.kernel = KernelLocks::default();
    }

    /// Returns the tokens kept for a holder.
    pub(super) fn leave_holder(&self, holder: CachedLockOwner) {
        let mut says = Vec::new();
        self.state().table.leave_holder(holder, &mut says);
        for say in says {
            self.send_token_message(say);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(super) fn find_lock(&self, wished: &WantedLock) -> Result<Option<FoundLock>, Fault> {
        let WantedLock { holder, mode, shape, .. } = *wished;
        let patience = LockWaitLimit::Try {};
        let wish = LockSpec {
            request_number: 0,
            space: holder.space,
            mode,
            shape,
            owner_slot: holder.owner_slot,
            lock_group: holder.lock_group,
            wait: patience,
        };
        match self
            .context
            .session
            .call(ServerIndex::MANAGER, &Request::FindLock { inode: self.context.inode, wish })?
            .reply
        {
            Reply::Found { lock } => Ok(lock),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// An owner slot for one more call.
    pub(super) fn take_owner_slot(&self) -> usize {
        let mut state = self.state();
        let free = state.owner_slots.iter().position(|taken| !taken);
        let lane = free.unwrap_or(state.owner_slots.len());
        if free.is_none() {
            state.owner_slots.push(true);
        }
        state.owner_slots[lane] = true;
        lane
    }

    pub(super) fn free_owner_slot(&self, lane: usize) {
        if let Some(taken) = self.state().owner_slots.get_mut(lane) {
            *taken = false;
        }
    }
}
