//! Recovery of dead writers: drains a dead writer's records into the stores and measures its files, before other sessions get them.
//!
//! Never: declares a process of this node dead by the clock. Always: a client that waits for a file that cannot be recovered gets the
//! cause.

use pario_core::{Fault, InodeId, Nanos, ObjectId, SessionId};
use pario_net::greeting::{Hello, session_sign};
use pario_net::message::{Reply, Request};
use pario_sys::clock::wall_ns;
use pario_sys::kill_point::{Point, reach};
use pario_sys::process::{has_sign, is_alive};

use super::{LeaseContinuation, Manager, ManagerEffect, PeerContinuation, host_name};
use crate::coherence::Waiter;
use crate::names::WriterSession;
use crate::peers::RoundsResult;

/// A writer of another host that has not reconnected this long after a restart is fenced: its servers drop its connections.
const GHOST_MS_MAX: u64 = 10_000;
/// Delay before a failed recovery is retried by itself.
const RETRY_MS: u64 = 2000;

/// Replies to a session are kept this long after its connection ended. A client repeats a request that was in flight within 5 s.
const REPLIES_KEPT_MS: u64 = 10_000;
/// Sessions dropped when one more ends: more than one, so that postponed ones catch up.
const FORGOTTEN_PER_END: usize = 4;

/// A writer known from before a restart.
pub(super) struct Ghost {
    writer: WriterSession,
    seen: Option<Nanos>,
}

impl Ghost {
    pub(super) fn new(writer: WriterSession) -> Ghost {
        Ghost { writer, seen: None }
    }

    /// Whether its death is proved, or, for another host, its time has expired. A process that lives on without the session (it unmounted
    /// while the manager was down) no longer holds the session's liveness mark.
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

impl Manager {
    /// A client completed its greeting.
    pub(crate) fn greeted(&mut self, hello: &Hello) {
        self.clients.insert(hello.session, hello.clone());
        self.over.retain(|(_, session)| *session != hello.session);
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
    pub(crate) fn session_ended(&mut self, session: SessionId, now: Nanos) {
        self.clients.remove(&session);
        self.drop_waits(session, now);
        let mut actions = Vec::new();
        self.leases.session_died(session, now, &mut actions);
        self.carry_out(actions, now);
        self.drop_locks(session);
        let files = self.users.leave_all(session);
        let users = &self.users;
        self.pointers.leave_all(session, |inode| users.uses(inode));
        for inode in files {
            self.remove_if_unused(inode);
        }
        self.over.push_back((now, session));
        self.forget_over(now);
    }

    /// Drops the kept replies of sessions that ended long ago: a client that lost its connection repeats a request within seconds, or not
    /// at all. A session with unrecovered files is remembered as a writer, and retried later.
    fn forget_over(&mut self, now: Nanos) {
        for _ in 0..FORGOTTEN_PER_END {
            let due = self.over.front().filter(|(ended, _)| ended.plus_ms(REPLIES_KEPT_MS) <= now);
            let Some(&(_, session)) = due else { return };
            self.over.pop_front();
            if self.clients.contains_key(&session) {
                continue;
            }
            if self.names.is_writer(session) {
                self.over.push_back((now, session));
            } else if let Err(fault) = self.names.forget_session(session) {
                // Only memory depends on it: it is dropped when the session table is full.
                tracing::debug!(%fault, %session, "replies to a session that is over are kept longer than needed");
            }
        }
    }

    /// Cancels the waits of an ended session.
    fn drop_waits(&mut self, session: SessionId, now: Nanos) {
        self.looks.retain(|_, look| look.caller().session != session);
        let mine = |wait: &LeaseContinuation| match wait {
            LeaseContinuation::Acquire { caller, .. } => caller.session == session,
            LeaseContinuation::Truncate(cut) => cut.caller().session == session,
            LeaseContinuation::Look(_) => false,
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

    pub(super) fn recover_writer(&mut self, inode: InodeId, session: SessionId) {
        let Ok(attr) = self.names.attr(inode) else {
            return self.recover_done(inode, session, Ok(Vec::new()), Nanos(0));
        };
        reach(Point::SettleBegun);
        let object = ObjectId { inode, generation: attr.generation };
        let drain = attr.layout.servers().map(|server| (server, Request::Drain { session })).collect();
        let measure = attr.layout.servers().map(|server| (server, Request::Measure { object })).collect();
        self.ask_peers(PeerContinuation::RecoverWriter { inode, session }, vec![drain, measure]);
    }

    pub(super) fn recover_done(
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
            self.unrecovered.insert((inode, session), (now, fault.clone()));
            return self.fail_waiters(inode, &fault, now);
        }
        reach(Point::SettleGrown);
        if let Err(fault) = self.names.forget_writer(inode, session) {
            tracing::warn!(%fault, "a recovered writer is remembered longer than needed");
        }
        let mut actions = Vec::new();
        self.leases.recovered(inode, session, now, &mut actions);
        self.carry_out(actions, now);
        self.release_recovered_locks(inode, session);
        self.remove_if_unused(inode);
    }

    /// Raises the file's length to the length found in its objects.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn measured(&mut self, inode: InodeId, lengths: &[Reply]) -> Result<(), Fault> {
        let Ok(attr) = self.names.attr(inode) else { return Ok(()) };
        let proved = attr.layout.servers().zip(lengths).map(|(server, reply)| match reply {
            Reply::Length { bytes, .. } => attr.layout.file_length(server, *bytes),
            Reply::FileLength { bytes } => *bytes,
            _ => 0,
        });
        match proved.max() {
            Some(end) if attr.size < end => self.names.grow_recovered(inode, end, wall_ns()).map(|_| ()),
            Some(_) | None => Ok(()),
        }
    }

    /// Waiters for a file that cannot be recovered get the error, instead of waiting for a server that may never return.
    fn fail_waiters(&mut self, inode: InodeId, fault: &Fault, now: Nanos) {
        let text =
            format!("a writer of inode {inode} died and its records cannot be recovered: {}", fault.text);
        let fault = Fault::new(fault.code, text);
        self.fail_lock_waiters(inode, &fault);
        let waiting: Vec<_> =
            self.leases.waiting(now).filter(|line| line.inode == inode).map(|line| line.ticket).collect();
        for ticket in waiting {
            match self.waits.remove(&ticket) {
                Some(LeaseContinuation::Acquire { caller, .. }) => {
                    self.reply(caller, Reply::Failed { fault: fault.clone() })
                }
                Some(LeaseContinuation::Truncate(cut)) => {
                    self.reply(cut.caller(), Reply::Failed { fault: fault.clone() })
                }
                Some(LeaseContinuation::Look(number)) => self.fail_look(number, &fault),
                None => {}
            }
            let mut actions = Vec::new();
            self.leases.cancel(ticket, now, &mut actions);
            self.carry_out(actions, now);
        }
    }

    /// A client requests a file: retries the recovery of its dead writer, if there is one.
    pub(super) fn retry_recovery(&mut self, inode: InodeId) {
        let again: Vec<SessionId> =
            self.unrecovered.keys().filter(|(file, _)| *file == inode).map(|(_, session)| *session).collect();
        for session in again {
            self.unrecovered.remove(&(inode, session));
            self.recover_writer(inode, session);
        }
    }

    /// Whether a caller waits for an event that only the clock triggers.
    pub(crate) fn needs_ticks(&self) -> bool {
        !self.waits.is_empty()
            || !self.lock_callers.is_empty()
            || !self.ghosts.is_empty()
            || !self.unrecovered.is_empty()
            || !self.unremoved.is_empty()
    }

    /// Checks ghosts, failed recoveries and removals, and notifies waiting clients of the holders they wait for.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.end_ghosts(now);
        let due: Vec<InodeId> = self
            .unrecovered
            .iter()
            .filter(|(_, (at, _))| at.plus_ms(RETRY_MS) <= now)
            .map(|((inode, _), _)| *inode)
            .collect();
        for inode in due {
            self.retry_recovery(inode);
        }
        self.retry_removals(now);
        if self.noticed.plus_ms(1000) <= now {
            self.noticed = now;
            self.notify_waiters(now);
            self.notify_lock_waiters(now);
        }
    }

    fn end_ghosts(&mut self, now: Nanos) {
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
            self.session_ended(session, now);
        }
    }

    fn notify_waiters(&mut self, now: Nanos) {
        let mut told = Vec::new();
        for line in self.leases.waiting(now) {
            let holders: Vec<String> = line
                .holders
                .iter()
                .filter(|holder| line.waiter != Waiter::Session(**holder))
                .map(|holder| self.describe_session(*holder))
                .collect();
            let caller = match self.waits.get(&line.ticket) {
                Some(LeaseContinuation::Acquire { caller, .. }) => *caller,
                Some(LeaseContinuation::Truncate(cut)) => cut.caller(),
                Some(LeaseContinuation::Look(number)) => match self.looks.get(number) {
                    Some(look) => look.caller(),
                    None => continue,
                },
                None => continue,
            };
            told.push(ManagerEffect::Waiting {
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
        self.ghosts
            .get(&session)
            .map_or_else(|| format!("session {session}, which has ended"), Ghost::describe)
    }
}
