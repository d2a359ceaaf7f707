//! The manager's part of locking: carries out the actions of the lock machine, and describes holders and waiters in words.
//!
//! Never: decides about a lock itself.

use std::ops::Range;

use pario_core::{Code, Fault, InodeId, Nanos, SessionId};
use pario_net::message::{FoundLock, LockMode, LockSpace, LockSpec, LockWaitLimit, Notice, Reply};
use pario_sys::kill_point::{Point, reach};
use serde_json::{Value, json};

use super::{Manager, ManagerEffect, RequestCaller};
use crate::coherence::{
    LockAction, LockLine, LockRequest, LockState, LockedBytes, Refusal, TokenOwner, WaitLimit, WaitTicket,
};

/// Locks that `status` lists; the rest is counted.
const SHOWN_MAX: usize = 1024;

/// Holders that are named; the rest is counted.
const NAMED_MAX: usize = 8;

/// A caller that waits for a lock, and its own number for the request.
pub(super) struct LockCaller {
    caller: RequestCaller,
    request: u64,
    inode: InodeId,
}

impl Manager {
    /// A client requests a lock; `shape` is the requested range with its view resolved.
    pub(crate) fn lock(
        &mut self,
        caller: RequestCaller,
        (inode, ask): (InodeId, &LockSpec),
        shape: LockedBytes,
        now: Nanos,
    ) {
        self.reclaim(caller.session, now);
        if let Err(fault) = self.names.attr(inode).and_then(|_| self.check_request(caller.session, ask)) {
            return self.reply(caller, Reply::Failed { fault });
        }
        self.users.enter(caller.session, inode);
        let ticket = WaitTicket(self.number());
        self.lock_callers.insert(ticket, LockCaller { caller, request: ask.request_number, inode });
        self.lock_requests.insert((caller.session, ask.request_number), ticket);
        let wish = lock_request(caller.session, (inode, ask), shape, (ticket, now));
        let mut actions = Vec::new();
        self.locks.lock(wish, now, &mut actions);
        self.carry_out_locks(actions);
    }

    fn check_request(&self, session: SessionId, ask: &LockSpec) -> Result<(), Fault> {
        if self.lock_requests.contains_key(&(session, ask.request_number)) {
            return Err(Fault::new(Code::Protocol, "a lock request under a number that is already waiting"));
        }
        Ok(())
    }

    /// The locks that such a request would wait for.
    pub(crate) fn find_lock(
        &mut self,
        caller: RequestCaller,
        (inode, ask): (InodeId, &LockSpec),
        shape: LockedBytes,
        now: Nanos,
    ) {
        let wish = lock_request(caller.session, (inode, ask), shape, (WaitTicket(0), now));
        let lock = self.locks.find(&wish).map(|line| FoundLock {
            start: line.bytes.start,
            end: line.bytes.end,
            mode: line.mode,
            pid: self.clients.get(&line.owner.session).map_or(0, |hello| hello.pid),
            holder: self.describe_session(line.owner.session),
        });
        self.reply(caller, Reply::Found { lock });
    }

    pub(super) fn unlock(
        &mut self,
        caller: RequestCaller,
        (inode, number): (InodeId, u64),
        keep: Option<Range<u64>>,
    ) {
        let mut actions = Vec::new();
        reach(Point::UnlockHeard);
        self.locks.returned((caller.session, inode), number, keep, &mut actions);
        // Reply first: the client that returns it may be the next to request it.
        self.reply(caller, Reply::Done {});
        self.carry_out_locks(actions);
    }

    pub(super) fn lock_busy(
        &mut self,
        caller: RequestCaller,
        (inode, number): (InodeId, u64),
        keep: Option<Range<u64>>,
    ) {
        let mut actions = Vec::new();
        self.locks.busy((caller.session, inode), number, keep, &mut actions);
        self.reply(caller, Reply::Done {});
        self.carry_out_locks(actions);
    }

    pub(super) fn cancel_lock(&mut self, caller: RequestCaller, ask: u64) {
        let mut actions = Vec::new();
        if let Some(ticket) = self.lock_requests.get(&(caller.session, ask)) {
            self.locks.cancel(*ticket, &mut actions);
        }
        self.reply(caller, Reply::Done {});
        self.carry_out_locks(actions);
    }

    /// The session ended. Bytes that it may have written under a lock must be in the stores before other sessions get the lock.
    pub(super) fn drop_locks(&mut self, session: SessionId) {
        let mut actions = Vec::new();
        self.locks.session_died(session, &mut actions);
        let files: Vec<InodeId> = self.locks.files_of(session).collect();
        for inode in files {
            if !self.leases.holders(inode).contains(&session) {
                self.locks.recovered(inode, session, &mut actions);
            }
        }
        self.forget_callers(|waiting| waiting.caller.session == session);
        self.carry_out_locks(actions);
    }

    /// The session's last handle of a file is closed, and its locks with it.
    pub(super) fn leave_locks(&mut self, session: SessionId, inode: InodeId) {
        let mut actions = Vec::new();
        self.locks.left(inode, session, &mut actions);
        let mine = |waiting: &LockCaller| waiting.caller.session == session && waiting.inode == inode;
        for waiting in self.forget_callers(mine) {
            let text = format!("inode {inode} was closed while a lock of it was waited for");
            self.reply(waiting.caller, Reply::Failed { fault: Fault::new(Code::Closed, text) });
        }
        self.carry_out_locks(actions);
    }

    /// A dead session's writes to a file are in the stores.
    pub(super) fn release_recovered_locks(&mut self, inode: InodeId, session: SessionId) {
        let mut actions = Vec::new();
        self.locks.recovered(inode, session, &mut actions);
        self.carry_out_locks(actions);
    }

    /// A dead session's writes to a file cannot be recovered: waiters for its locks get the error instead of waiting for ever.
    pub(super) fn fail_lock_waiters(&mut self, inode: InodeId, fault: &Fault) {
        for ticket in self.locks.blocked_by_dead(inode) {
            if let Some(waiting) = self.forget_caller(ticket) {
                self.reply(waiting.caller, Reply::Failed { fault: fault.clone() });
            }
            let mut actions = Vec::new();
            self.locks.cancel(ticket, &mut actions);
            self.carry_out_locks(actions);
        }
    }

    /// Ends requests with an expired timeout.
    pub(crate) fn expire_locks(&mut self, now: Nanos) {
        if self.locks.deadline().is_some_and(|at| at <= now) {
            let mut actions = Vec::new();
            self.locks.expire(now, &mut actions);
            self.carry_out_locks(actions);
        }
    }

    /// When [`Manager::expire_locks`] must be called next.
    pub(crate) fn lock_deadline(&self) -> Option<Nanos> {
        self.locks.deadline()
    }

    fn forget_callers(&mut self, which: impl Fn(&LockCaller) -> bool) -> Vec<LockCaller> {
        let tickets: Vec<WaitTicket> = self
            .lock_callers
            .iter()
            .filter(|(_, waiting)| which(waiting))
            .map(|(ticket, _)| *ticket)
            .collect();
        tickets.into_iter().filter_map(|ticket| self.forget_caller(ticket)).collect()
    }

    fn forget_caller(&mut self, ticket: WaitTicket) -> Option<LockCaller> {
        let waiting = self.lock_callers.remove(&ticket)?;
        self.lock_requests.remove(&(waiting.caller.session, waiting.request));
        Some(waiting)
    }

    fn carry_out_locks(&mut self, actions: Vec<LockAction>) {
        for action in actions {
            match action {
                LockAction::Grant { ticket, number, bytes, .. } => {
                    reach(Point::LockGranted);
                    if let Some(waiting) = self.forget_caller(ticket) {
                        let reply = Reply::Locked { number, start: bytes.start, end: bytes.end };
                        self.reply(waiting.caller, reply);
                    }
                }
                LockAction::Recall { session, inode, number, wanted } => {
                    let (start, end) = (wanted.start, wanted.end);
                    let notice = Notice::RecallLock { inode, number, start, end };
                    self.effects.push(ManagerEffect::Recall { session, notice });
                }
                LockAction::Refuse { ticket, why } => {
                    if let Some(waiting) = self.forget_caller(ticket) {
                        let fault = self.refusal(waiting.inode, &why);
                        self.reply(waiting.caller, Reply::Failed { fault });
                    }
                }
            }
        }
    }

    fn refusal(&self, inode: InodeId, why: &Refusal) -> Fault {
        let names = |owners: &[TokenOwner]| self.names(owners).join(", ");
        match why {
            Refusal::InUse(owners) => {
                Fault::new(Code::WouldBlock, format!("inode {inode} is locked by {}", names(owners)))
            }
            Refusal::TimedOut(owners) => {
                let text = format!("inode {inode} is still locked by {}", names(owners));
                Fault::new(Code::TimedOut, text)
            }
            Refusal::Deadlock(owners) => {
                let around = owners.iter().take(NAMED_MAX).chain(owners.first());
                let chain: Vec<String> = around.map(|owner| self.describe_session(owner.session)).collect();
                let text = format!("deadlock of locks: {}", chain.join(" waits for "));
                Fault::new(Code::Deadlock, text)
            }
            Refusal::Cancelled => {
                Fault::new(Code::Closed, format!("the lock request on inode {inode} was cancelled"))
            }
            Refusal::TooMany => Fault::new(Code::TooMany, "too many locks of one session"),
        }
    }

    /// Some of them by name, each once; the rest as a number.
    fn names(&self, owners: &[TokenOwner]) -> Vec<String> {
        let sessions: std::collections::BTreeSet<SessionId> =
            owners.iter().map(|owner| owner.session).collect();
        let mut names: Vec<String> =
            sessions.iter().take(NAMED_MAX).map(|session| self.describe_session(*session)).collect();
        if NAMED_MAX < sessions.len() {
            names.push(format!("{} others", sessions.len() - NAMED_MAX));
        }
        names
    }

    /// Notifies waiters of the holders that they wait for.
    pub(super) fn notify_lock_waiters(&mut self, now: Nanos) {
        let mut told = Vec::new();
        for wait in self.locks.waiting(now) {
            let Some(waiting) = self.lock_callers.get(&wait.ticket) else { continue };
            let holders = self.names(&wait.holders);
            let on = format!("inode {} is locked by {}", wait.inode, holders.join(", "));
            told.push(ManagerEffect::Waiting { caller: waiting.caller, on });
        }
        self.effects.extend(told);
    }

    /// Locks and their waiters, for `status`.
    pub(super) fn lock_status(&self, now: Nanos) -> Value {
        let shown = |line: LockLine| {
            json!({
                "inode": line.inode, "holder": self.describe_session(line.owner.session), "space": space_word(line.space),
                "mode": mode_word(line.mode), "start": line.bytes.start, "end": end(line.bytes.end), "state": state_word(line.state),
            })
        };
        let held: Vec<Value> = self.locks.held().take(SHOWN_MAX).map(shown).collect();
        let waiting: Vec<Value> = self
            .locks
            .waiting(now)
            .take(SHOWN_MAX)
            .map(|wait| {
                let holders = self.names(&wait.holders);
                json!({
                    "inode": wait.inode, "waiter": self.describe_session(wait.owner.session), "mode": mode_word(wait.mode),
                    "start": wait.bytes.start, "end": end(wait.bytes.end), "waited_s": wait.waited.as_secs_f64(), "for": holders,
                })
            })
            .collect();
        json!({ "count": self.locks.held().count(), "held": held, "waiting": waiting })
    }
}

fn lock_request(
    session: SessionId,
    (inode, ask): (InodeId, &LockSpec),
    shape: LockedBytes,
    (ticket, now): (WaitTicket, Nanos),
) -> LockRequest {
    let patience = match ask.wait {
        LockWaitLimit::Try {} => WaitLimit::Try,
        LockWaitLimit::Wait {} => WaitLimit::Wait,
        LockWaitLimit::Limit { ms } => WaitLimit::Until(now.plus_ms(ms)),
    };
    let owner = TokenOwner { session, slot: ask.owner_slot, lock_group: ask.lock_group };
    LockRequest { owner, inode, space: ask.space, mode: ask.mode, shape, wait_limit: patience, ticket }
}

/// The end of the file, wherever that is, has no number.
fn end(end: u64) -> Option<u64> {
    (end != u64::MAX).then_some(end)
}

fn space_word(space: LockSpace) -> &'static str {
    match space {
        LockSpace::Access {} => "access",
        LockSpace::Range {} => "range",
        LockSpace::Whole {} => "whole",
        LockSpace::Append {} => "append",
    }
}

fn mode_word(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Shared {} => "shared",
        LockMode::Exclusive {} => "exclusive",
    }
}

fn state_word(state: LockState) -> &'static str {
    match state {
        LockState::Held => "held",
        LockState::Recalled => "recalled",
        LockState::InUse => "in use",
        LockState::Dead => "its holder died",
    }
}
