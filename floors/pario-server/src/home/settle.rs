//! Settling: what a writer left behind when it died is brought into the stores and its files are measured, before anybody
//! else gets them.
//!
//! Never: declares a process of this node dead by the clock. Always: who waits for a file that cannot be settled is told why.

use pario_core::{Fault, InodeId, Nanos, ObjectId, SessionId};
use pario_net::greeting::{Hello, session_sign};
use pario_net::message::{Reply, Request};
use pario_sys::clock::wall_ns;
use pario_sys::kill_point::{Point, reach};
use pario_sys::process::{has_sign, is_alive};

use super::{Effect, Home, Job, Wait, host_name};
use crate::coherence::Waiter;
use crate::manager::Writer;
use crate::peers::RoundsResult;

/// A writer of another host that has not come back so long after a restart is fenced: its servers drop its connections.
const GHOST_MS_MAX: u64 = 10_000;
/// How soon a settling that failed is tried again without being asked.
const RETRY_MS: u64 = 2000;

/// A writer known from before a restart.
pub(super) struct Ghost {
    writer: Writer,
    seen: Option<Nanos>,
}

impl Ghost {
    pub(super) fn new(writer: Writer) -> Ghost {
        Ghost { writer, seen: None }
    }

    /// Whether its death is proved, or, for another host, its time is over. A process that lives on without the session (it
    /// unmounted while we were away) does not show the session's sign any more.
    fn is_over(&self, now: Nanos, here: &str) -> bool {
        if self.writer.host == here {
            let sign = session_sign(self.writer.session);
            return !is_alive(self.writer.pid, self.writer.start_ticks)
                || has_sign(self.writer.pid, &sign) == Some(false);
        }
        self.seen.is_some_and(|seen| seen.plus_ms(GHOST_MS_MAX) <= now)
    }

    pub(super) fn describe(&self) -> String {
        format!("process {} on {}, from before the manager's restart", self.writer.pid, self.writer.host)
    }
}

impl Home {
    /// A client has greeted.
    pub(crate) fn greeted(&mut self, hello: &Hello) {
        self.clients.insert(hello.session, hello.clone());
    }

    /// A ghost's first request: it has offered its outbox again and holds no lease any more.
    pub(super) fn reclaim(&mut self, session: SessionId, now: Nanos) {
        if self.ghosts.remove(&session).is_some() {
            let mut actions = Vec::new();
            self.leases.reclaimed(session, now, &mut actions);
            self.carry_out(actions, now);
        }
    }

    /// A client's connection has ended.
    pub(crate) fn gone(&mut self, session: SessionId, now: Nanos) {
        self.clients.remove(&session);
        self.drop_waits(session, now);
        let mut actions = Vec::new();
        self.leases.gone(session, now, &mut actions);
        self.carry_out(actions, now);
        self.drop_locks(session);
        let files = self.users.leave_all(session);
        let users = &self.users;
        self.pointers.leave_all(session, |inode| users.uses(inode));
        for inode in files {
            self.remove_if_unused(inode);
        }
    }

    /// Nobody waits any more for what a gone session asked.
    fn drop_waits(&mut self, session: SessionId, now: Nanos) {
        self.looks.retain(|_, look| look.caller().session != session);
        self.awaiting.retain(|_, awaiting| awaiting.caller.session != session);
        let mine = |wait: &Wait| match wait {
            Wait::Acquire { caller, .. } => caller.session == session,
            Wait::Cut(cut) => cut.caller().session == session,
            Wait::Look(_) => false,
        };
        let tickets: Vec<_> =
            self.waits.iter().filter(|(_, wait)| mine(wait)).map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.waits.remove(&ticket);
            let mut actions = Vec::new();
            self.leases.cancel(ticket, now, &mut actions);
            self.carry_out(actions, now);
        }
    }

    pub(super) fn settle(&mut self, inode: InodeId, session: SessionId) {
        let Ok(attr) = self.names.attr(inode) else {
            return self.settle_done(inode, session, Ok(Vec::new()), Nanos(0));
        };
        reach(Point::SettleBegun);
        let object = ObjectId { inode, generation: attr.generation };
        let drain = attr.layout.servers().map(|server| (server, Request::Drain { session })).collect();
        let measure = attr.layout.servers().map(|server| (server, Request::Measure { object })).collect();
        self.ask_peers(Job::Settle { inode, session }, vec![drain, measure]);
    }

    pub(super) fn settle_done(
        &mut self,
        inode: InodeId,
        session: SessionId,
        result: RoundsResult,
        now: Nanos,
    ) {
        let grown = result.and_then(|lengths| {
            reach(Point::SettleMeasured);
            self.measured(inode, &lengths)
        });
        if let Err(fault) = grown {
            self.unsettled.insert((inode, session), (now, fault.clone()));
            return self.fail_waiters(inode, &fault, now);
        }
        reach(Point::SettleGrown);
        if let Err(fault) = self.names.forget_writer(inode, session) {
            tracing::warn!(%fault, "a settled writer is remembered longer than needed");
        }
        let mut actions = Vec::new();
        self.leases.settled(inode, session, now, &mut actions);
        self.carry_out(actions, now);
        self.settle_locks(inode, session);
        self.remove_if_unused(inode);
    }

    /// The file is as long as its objects prove, if that is more than we knew.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn measured(&mut self, inode: InodeId, lengths: &[Reply]) -> Result<(), Fault> {
        let Ok(attr) = self.names.attr(inode) else { return Ok(()) };
        let proved = attr.layout.servers().zip(lengths).map(|(server, reply)| match reply {
            Reply::Length { bytes, .. } => attr.layout.file_length(server, *bytes),
            Reply::FileLength { bytes } => *bytes,
            _ => 0,
        });
        match proved.max() {
            Some(end) if attr.size < end => self.names.grow(inode, end, wall_ns()).map(|_| ()),
            Some(_) | None => Ok(()),
        }
    }

    /// Who waits for a file that cannot be settled is told, instead of waiting for a server that may never return.
    fn fail_waiters(&mut self, inode: InodeId, fault: &Fault, now: Nanos) {
        let text =
            format!("a writer of inode {inode} died and what it left cannot be brought in: {}", fault.text);
        let fault = Fault::new(fault.code, text);
        self.fail_lock_waiters(inode, &fault);
        let waiting: Vec<_> =
            self.leases.waiting(now).filter(|line| line.inode == inode).map(|line| line.ticket).collect();
        for ticket in waiting {
            match self.waits.remove(&ticket) {
                Some(Wait::Acquire { caller, .. }) => {
                    self.reply(caller, Reply::Failed { fault: fault.clone() })
                }
                Some(Wait::Cut(cut)) => self.reply(cut.caller(), Reply::Failed { fault: fault.clone() }),
                Some(Wait::Look(number)) => self.fail_look(number, &fault),
                None => {}
            }
            let mut actions = Vec::new();
            self.leases.cancel(ticket, now, &mut actions);
            self.carry_out(actions, now);
        }
    }

    /// Somebody wants a file: if a dead writer of it is not settled, try again.
    pub(super) fn retry_settling(&mut self, inode: InodeId) {
        let again: Vec<SessionId> =
            self.unsettled.keys().filter(|(file, _)| *file == inode).map(|(_, session)| *session).collect();
        for session in again {
            self.unsettled.remove(&(inode, session));
            self.settle(inode, session);
        }
    }

    /// Whether somebody waits for something that only the clock brings on.
    pub(crate) fn needs_ticks(&self) -> bool {
        !self.waits.is_empty()
            || !self.lock_callers.is_empty()
            || !self.ghosts.is_empty()
            || !self.unsettled.is_empty()
            || !self.unremoved.is_empty()
            || !self.awaiting.is_empty()
    }

    /// Looks after ghosts, failed settlings and removals, and tells whoever waits whom they wait for.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.bury_ghosts(now);
        let due: Vec<InodeId> = self
            .unsettled
            .iter()
            .filter(|(_, (at, _))| at.plus_ms(RETRY_MS) <= now)
            .map(|((inode, _), _)| *inode)
            .collect();
        for inode in due {
            self.retry_settling(inode);
        }
        self.retry_removals(now);
        self.end_long_awaiting(now);
        if self.noticed.plus_ms(1000) <= now {
            self.noticed = now;
            self.tell_waiters(now);
            self.tell_lock_waiters(now);
        }
    }

    fn bury_ghosts(&mut self, now: Nanos) {
        if self.peers.is_none() {
            return;
        }
        let here = host_name();
        for ghost in self.ghosts.values_mut() {
            ghost.seen.get_or_insert(now);
        }
        let over: Vec<SessionId> = self
            .ghosts
            .iter()
            .filter(|(_, ghost)| ghost.is_over(now, &here))
            .map(|(session, _)| *session)
            .collect();
        for session in over {
            self.ghosts.remove(&session);
            self.gone(session, now);
        }
    }

    fn tell_waiters(&mut self, now: Nanos) {
        let mut told = Vec::new();
        for line in self.leases.waiting(now) {
            let holders: Vec<String> = line
                .holders
                .iter()
                .filter(|holder| line.waiter != Waiter::Session(**holder))
                .map(|holder| self.describe_session(*holder))
                .collect();
            let caller = match self.waits.get(&line.ticket) {
                Some(Wait::Acquire { caller, .. }) => *caller,
                Some(Wait::Cut(cut)) => cut.caller(),
                Some(Wait::Look(number)) => match self.looks.get(number) {
                    Some(look) => look.caller(),
                    None => continue,
                },
                None => continue,
            };
            told.push(Effect::Waiting {
                caller,
                on: format!("inode {} is held by {}", line.inode, holders.join(", ")),
            });
        }
        self.effects.extend(told);
    }

    pub(super) fn describe_session(&self, session: SessionId) -> String {
        if let Some(hello) = self.clients.get(&session) {
            return crate::service::describe(hello);
        }
        self.ghosts.get(&session).map_or_else(|| format!("session {session}, which is gone"), Ghost::describe)
    }
}
