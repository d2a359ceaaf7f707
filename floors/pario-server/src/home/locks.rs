//! Locks at home: carries out what the lock machine decides, and says in words who is in whose way.

use std::ops::Range;

use pario_core::{Code, Fault, InodeId, Nanos, SessionId};
use pario_net::message::{FoundLock, LockAsk, LockMode, LockPatience, LockSpace, Notice, Reply};
use pario_sys::kill_point::{Point, reach};
use serde_json::{Value, json};

use super::{Caller, Effect, Home};
use crate::coherence::{LockAction, LockLine, LockState, LockWish, Owner, Patience, Refusal, Shape, Ticket};

/// Locks that `status` tells of; the rest is counted.
const SHOWN_MAX: usize = 1024;

/// Holders that are named; the rest is counted.
const NAMED_MAX: usize = 8;

/// Who waits for a lock, under which of its numbers.
pub(super) struct LockCaller {
    caller: Caller,
    ask: u64,
    inode: InodeId,
}

impl Home {
    /// A client wants a lock; `shape` is what it wished for, its view looked up.
    pub(crate) fn lock(
        &mut self,
        caller: Caller,
        (inode, ask): (InodeId, &LockAsk),
        shape: Shape,
        now: Nanos,
    ) {
        self.reclaim(caller.session, now);
        if let Err(fault) = self.names.attr(inode).and_then(|_| self.check_ask(caller.session, ask)) {
            return self.reply(caller, Reply::Failed { fault });
        }
        self.users.enter(caller.session, inode);
        let ticket = Ticket(self.number());
        self.lock_callers.insert(ticket, LockCaller { caller, ask: ask.ask, inode });
        self.lock_asks.insert((caller.session, ask.ask), ticket);
        let wish = wish(caller.session, (inode, ask), shape, (ticket, now));
        let mut actions = Vec::new();
        self.locks.lock(wish, now, &mut actions);
        self.carry_out_locks(actions);
    }

    fn check_ask(&self, session: SessionId, ask: &LockAsk) -> Result<(), Fault> {
        if self.lock_asks.contains_key(&(session, ask.ask)) {
            return Err(Fault::new(Code::Protocol, "a wish for a lock under a number that waits already"));
        }
        Ok(())
    }

    /// What such a wish would wait for.
    pub(crate) fn find_lock(
        &mut self,
        caller: Caller,
        (inode, ask): (InodeId, &LockAsk),
        shape: Shape,
        now: Nanos,
    ) {
        let wish = wish(caller.session, (inode, ask), shape, (Ticket(0), now));
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
        caller: Caller,
        (inode, number): (InodeId, u64),
        keep: Option<Range<u64>>,
    ) {
        let mut actions = Vec::new();
        reach(Point::UnlockHeard);
        self.locks.returned((caller.session, inode), number, keep, &mut actions);
        // First: whoever returns it may be the next to ask.
        self.reply(caller, Reply::Done {});
        self.carry_out_locks(actions);
    }

    pub(super) fn lock_busy(
        &mut self,
        caller: Caller,
        (inode, number): (InodeId, u64),
        keep: Option<Range<u64>>,
    ) {
        let mut actions = Vec::new();
        self.locks.busy((caller.session, inode), number, keep, &mut actions);
        self.reply(caller, Reply::Done {});
        self.carry_out_locks(actions);
    }

    pub(super) fn cancel_lock(&mut self, caller: Caller, ask: u64) {
        let mut actions = Vec::new();
        if let Some(ticket) = self.lock_asks.get(&(caller.session, ask)) {
            self.locks.cancel(*ticket, &mut actions);
        }
        self.reply(caller, Reply::Done {});
        self.carry_out_locks(actions);
    }

    /// The session is gone. What it may have written under a lock must be in the stores before others get it.
    pub(super) fn drop_locks(&mut self, session: SessionId) {
        let mut actions = Vec::new();
        self.locks.gone(session, &mut actions);
        let files: Vec<InodeId> = self.locks.files_of(session).collect();
        for inode in files {
            if !self.leases.holders(inode).contains(&session) {
                self.locks.settled(inode, session, &mut actions);
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

    /// What a dead session left on a file is in the stores.
    pub(super) fn settle_locks(&mut self, inode: InodeId, session: SessionId) {
        let mut actions = Vec::new();
        self.locks.settled(inode, session, &mut actions);
        self.carry_out_locks(actions);
    }

    /// What a dead session left on a file cannot be had: who waits for its locks is told, instead of waiting for ever.
    pub(super) fn fail_lock_waiters(&mut self, inode: InodeId, fault: &Fault) {
        for ticket in self.locks.behind_the_dead(inode) {
            if let Some(waiting) = self.forget_caller(ticket) {
                self.reply(waiting.caller, Reply::Failed { fault: fault.clone() });
            }
            let mut actions = Vec::new();
            self.locks.cancel(ticket, &mut actions);
            self.carry_out_locks(actions);
        }
    }

    /// Ends waits whose time is over.
    pub(crate) fn expire_locks(&mut self, now: Nanos) {
        if self.locks.deadline().is_some_and(|at| at <= now) {
            let mut actions = Vec::new();
            self.locks.expire(now, &mut actions);
            self.carry_out_locks(actions);
        }
    }

    /// When [`Home::expire_locks`] is to be called next.
    pub(crate) fn lock_deadline(&self) -> Option<Nanos> {
        self.locks.deadline()
    }

    fn forget_callers(&mut self, which: impl Fn(&LockCaller) -> bool) -> Vec<LockCaller> {
        let tickets: Vec<Ticket> = self
            .lock_callers
            .iter()
            .filter(|(_, waiting)| which(waiting))
            .map(|(ticket, _)| *ticket)
            .collect();
        tickets.into_iter().filter_map(|ticket| self.forget_caller(ticket)).collect()
    }

    fn forget_caller(&mut self, ticket: Ticket) -> Option<LockCaller> {
        let waiting = self.lock_callers.remove(&ticket)?;
        self.lock_asks.remove(&(waiting.caller.session, waiting.ask));
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
                    self.effects.push(Effect::Recall { session, notice });
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
        let names = |owners: &[Owner]| self.names(owners).join(", ");
        match why {
            Refusal::InUse(owners) => {
                Fault::new(Code::WouldBlock, format!("inode {inode} is locked by {}", names(owners)))
            }
            Refusal::TimedOut(owners) => {
                let text = format!("inode {inode} is still locked by {}", names(owners));
                Fault::new(Code::TimedOut, text)
            }
            Refusal::Circle(owners) => {
                let around = owners.iter().take(NAMED_MAX).chain(owners.first());
                let chain: Vec<String> = around.map(|owner| self.describe_session(owner.session)).collect();
                let text = format!("locks that wait for each other: {}", chain.join(" waits for "));
                Fault::new(Code::Deadlock, text)
            }
            Refusal::Cancelled => {
                Fault::new(Code::Closed, format!("the wish for a lock on inode {inode} was taken back"))
            }
            Refusal::TooMany => Fault::new(Code::TooMany, "too many locks of one session"),
        }
    }

    /// Some of them by name, each once; the rest as a number.
    fn names(&self, owners: &[Owner]) -> Vec<String> {
        let sessions: std::collections::BTreeSet<SessionId> =
            owners.iter().map(|owner| owner.session).collect();
        let mut names: Vec<String> =
            sessions.iter().take(NAMED_MAX).map(|session| self.describe_session(*session)).collect();
        if NAMED_MAX < sessions.len() {
            names.push(format!("{} others", sessions.len() - NAMED_MAX));
        }
        names
    }

    /// Tells whoever waits for a lock whom it waits for.
    pub(super) fn tell_lock_waiters(&mut self, now: Nanos) {
        let mut told = Vec::new();
        for wait in self.locks.waiting(now) {
            let Some(waiting) = self.lock_callers.get(&wait.ticket) else { continue };
            let holders = self.names(&wait.holders);
            let on = format!("inode {} is locked by {}", wait.inode, holders.join(", "));
            told.push(Effect::Waiting { caller: waiting.caller, on });
        }
        self.effects.extend(told);
    }

    /// Locks and who waits for them, for `status`.
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

fn wish(
    session: SessionId,
    (inode, ask): (InodeId, &LockAsk),
    shape: Shape,
    (ticket, now): (Ticket, Nanos),
) -> LockWish {
    let patience = match ask.patience {
        LockPatience::Try {} => Patience::Try,
        LockPatience::Wait {} => Patience::Wait,
        LockPatience::Limit { ms } => Patience::Until(now.plus_ms(ms)),
    };
    let owner = Owner { session, lane: ask.lane, club: ask.club };
    LockWish { owner, inode, space: ask.space, mode: ask.mode, shape, patience, ticket }
}

/// A file's end, wherever that is, has no number.
fn end(end: u64) -> Option<u64> {
    (end != u64::MAX).then_some(end)
}

fn space_word(space: LockSpace) -> &'static str {
    match space {
        LockSpace::Access {} => "access",
        LockSpace::Range {} => "range",
        LockSpace::Whole {} => "whole",
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
