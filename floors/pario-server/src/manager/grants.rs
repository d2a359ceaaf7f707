//! Decisions of the lease machine and answers of peers: each continues the request that waited for it.

use pario_core::{Fault, InodeId, Nanos, SessionId};
use pario_net::message::{Notice, Phase, Reply};
use pario_sys::kill_point::{Point, reach};

use super::{LeaseContinuation, Manager, ManagerEffect, PeerContinuation};
use crate::coherence::{LeaseAction, WaitTicket};
use crate::names::WriterSession;
use crate::peers::{CallRounds, RoundsResult};

impl Manager {
    /// Carries out the lease machine's decisions.
    pub(super) fn carry_out(&mut self, actions: Vec<LeaseAction>, now: Nanos) {
        for action in actions {
            match action {
                LeaseAction::Grant { ticket, session, lease } => self.granted(ticket, session, lease),
                LeaseAction::Recall { session, inode, number } => {
                    self.effects
                        .push(ManagerEffect::Recall { session, notice: Notice::Recall { inode, number } });
                }
                LeaseAction::Recover { inode, session } => self.recover_writer(inode, session),
                LeaseAction::Quiet { ticket } => self.quiet(ticket, now),
            }
        }
    }

    fn granted(&mut self, ticket: WaitTicket, session: SessionId, lease: pario_net::message::Lease) {
        let Some(LeaseContinuation::Acquire { caller, inode }) = self.waits.remove(&ticket) else { return };
        let noted = if lease.phase == (Phase::Read {}) { Ok(()) } else { self.note_writer(inode, session) };
        reach(Point::GrantNoted);
        let reply = match noted.and_then(|()| self.names.attr(inode)) {
            Ok(attr) => Reply::Granted { lease, attr },
            Err(fault) => Reply::Failed { fault },
        };
        self.reply(caller, reply);
    }

    fn note_writer(&mut self, inode: InodeId, session: SessionId) -> Result<(), Fault> {
        let Some(hello) = self.clients.get(&session) else { return Ok(()) };
        let writer = WriterSession {
            session,
            host: hello.host.clone(),
            pid: hello.pid,
            start_ticks: hello.start_ticks,
        };
        self.names.note_writer(inode, &writer)
    }

    fn quiet(&mut self, ticket: WaitTicket, now: Nanos) {
        match self.waits.remove(&ticket) {
            Some(LeaseContinuation::Look(number)) => self.looked(number),
            Some(LeaseContinuation::Truncate(cut)) => self.truncate_now(cut, ticket, now),
            Some(LeaseContinuation::Acquire { .. }) | None => {}
        }
    }

    /// The peers have answered.
    pub(crate) fn peers_done(&mut self, token: u64, result: RoundsResult, now: Nanos) {
        match self.jobs.remove(&token) {
            Some(PeerContinuation::Truncate(cut, truncation)) => {
                self.truncate_done(&cut, truncation, result, now)
            }
            Some(PeerContinuation::Remove(attr)) => self.removed(attr, result, now),
            Some(PeerContinuation::RecoverWriter { inode, session }) => {
                self.recover_done(inode, session, result, now)
            }
            None => {}
        }
    }

    pub(super) fn ask_peers(&mut self, job: PeerContinuation, rounds: CallRounds) {
        let token = self.number();
        self.jobs.insert(token, job);
        self.effects.push(ManagerEffect::Peers { token, rounds });
    }
}
