//! The lease machine of all files of a partition. It runs at the manager.
//!
//! Never: revokes a lease by time; assigns a number twice; sends a recall to a session that is known to be dead. Always: memory is in
//! proportion to held leases and waiting requests, plus a bounded table of flips; every ticket is answered exactly once, unless it is
//! cancelled, its file is removed or its session ends.
//!
//! The rules, in short:
//! - A lone reader gets the read phase, so that a second one costs no recall; a lone writer gets exclusive.
//! - Requests wait in order of arrival. Neighbours of one kind are granted together. Only a look may overtake.
//! - Writers that announce further writers get the write phase immediately.
//! - A second writer makes the first return its lease; then both get the write phase.
//! - A session that alone holds a file gets more without a recall: the new lease replaces the old one.
//! - Sessions of one [`LeaseGroup`](super::LeaseGroup) are one user: they share the exclusive phase, cause no recalls among each other, and
//!   a phase granted to one of them applies to all. A recall goes to each.
//! - A *flip* is a recall that a reader causes for writers of other sessions, or a writer for readers of other
//!   sessions. More than [`FLIPS_MAX`](super::FLIPS_MAX) within [`FLIP_WINDOW`](super::FLIP_WINDOW) put the file
//!   into the mixed phase: all leases are recalled, and every request gets a mixed lease.
//! - A file leaves the mixed phase when its last holder has returned its lease; and, [`MIXED_MIN`](super::MIXED_MIN) after it
//!   entered, at the first request or return that leaves only one session or one kind of user: their leases are recalled.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Phase, Want};

use super::action::{
    BarrierRequest, LeaseAction, LeaseGroup, LeaseRequest, Return, WaitLine, WaitTicket, Waiter,
};
use super::file::{FileLeases, LeaseContext, RequestKind};
use super::flips::Flips;
use super::sabotage::LeaseSabotage;

/// See the module.
#[derive(Debug)]
pub struct Leases {
    files: BTreeMap<InodeId, FileLeases>,
    /// The file of each waiting ticket.
    tickets: BTreeMap<WaitTicket, InodeId>,
    /// Files on which a session holds or waits for a lease.
    used: BTreeMap<SessionId, BTreeSet<InodeId>>,
    flips: Flips,
    next_number: u64,
    pub(super) sabotage: LeaseSabotage,
}

/// Inputs. Each pushes its actions to `out`.
impl Leases {
    /// A machine without users. Numbers of leases start at `seed`: derive it from the incarnation, so that a number from before a restart
    /// is invalid.
    #[must_use]
    pub fn new(seed: u64) -> Leases {
        Leases {
            files: BTreeMap::new(),
            tickets: BTreeMap::new(),
            used: BTreeMap::new(),
            flips: Flips::default(),
            next_number: seed,
            sabotage: LeaseSabotage::default(),
        }
    }

    /// Enables a deliberate bug, for the simulator.
    pub fn sabotage(&mut self, bug: super::Bug) {
        self.sabotage = LeaseSabotage::new(Some(bug));
    }

    /// A session requests a lease. A sufficient lease that it holds is granted again under the new ticket, unless it was recalled.
    pub fn acquire(&mut self, ask: LeaseRequest, now: Nanos, out: &mut Vec<LeaseAction>) {
        self.enter(ask.ticket, ask.inode);
        self.used.entry(ask.session).or_default().insert(ask.inode);
        self.with(ask.inode, now, out, |file, turn| file.acquire(ask, turn));
    }

    /// A lease was returned. A number that the session does not hold is ignored: the message is late or duplicated.
    pub fn returned(&mut self, back: Return, now: Nanos, out: &mut Vec<LeaseAction>) {
        self.with(back.inode, now, out, |file, turn| file.returned(back.session, back.number, turn));
        self.unlink(back.session, back.inode);
    }

    /// The session's death is proven. Its requests are dropped; its read leases are free; every other lease that it had counts as held
    /// until [`Leases::recovered`]. Barriers requested on its behalf stay: they belong to the shell.
    pub fn session_died(&mut self, session: SessionId, now: Nanos, out: &mut Vec<LeaseAction>) {
        for inode in self.used.get(&session).cloned().unwrap_or_default() {
            let dropped = self.with(inode, now, out, |file, turn| file.session_died(session, turn));
            for ticket in dropped.unwrap_or_default() {
                self.tickets.remove(&ticket);
            }
            self.unlink(session, inode);
        }
    }

    /// The session's records of the file are in the stores and the file's length is known.
    pub fn recovered(&mut self, inode: InodeId, session: SessionId, now: Nanos, out: &mut Vec<LeaseAction>) {
        self.with(inode, now, out, |file, turn| file.recovered(session, turn));
        self.unlink(session, inode);
    }

    /// After a restart, before the first client connects: the session may hold a write lease. No session gets the file until this one is
    /// [`Leases::session_died`] or [`Leases::reclaimed`], and then recovered.
    pub fn restore(&mut self, session: SessionId, inode: InodeId) {
        self.used.entry(session).or_default().insert(inode);
        self.files.entry(inode).or_default().restore(session);
    }

    /// The session reconnected under its id and has dropped all its leases; they are recovered as those of a dead session. Its waiting
    /// requests stay.
    pub fn reclaimed(&mut self, session: SessionId, now: Nanos, out: &mut Vec<LeaseAction>) {
        for inode in self.used.get(&session).cloned().unwrap_or_default() {
            self.with(inode, now, out, |file, turn| file.reclaimed(session, turn));
            self.unlink(session, inode);
        }
    }

    /// The shell needs the file quiet; answered by [`LeaseAction::Quiet`].
    pub fn barrier(&mut self, ask: BarrierRequest, now: Nanos, out: &mut Vec<LeaseAction>) {
        self.enter(ask.ticket, ask.inode);
        self.with(ask.inode, now, out, |file, turn| file.barrier(ask, turn));
    }

    /// Ends a stop, in force or still waiting. Any other ticket is ignored.
    pub fn barrier_end(
        &mut self,
        inode: InodeId,
        ticket: WaitTicket,
        now: Nanos,
        out: &mut Vec<LeaseAction>,
    ) {
        if self.with(inode, now, out, |file, turn| file.barrier_end(ticket, turn)) == Some(true) {
            self.tickets.remove(&ticket);
        }
    }

    /// Cancels a waiting request. A ticket that does not wait any more is ignored, also that of a stop in force, which must end by
    /// `barrier_end`.
    pub fn cancel(&mut self, ticket: WaitTicket, now: Nanos, out: &mut Vec<LeaseAction>) {
        let Some(inode) = self.tickets.remove(&ticket) else { return };
        let session = self.with(inode, now, out, |file, turn| file.cancel(ticket, turn));
        if let Some(session) = session.flatten() {
            self.unlink(session, inode);
        }
    }

    /// The file is removed permanently; call it when the file is quiet. All its state is dropped, and a lease returned later is ignored.
    /// Returns the tickets that waited, which will never be answered.
    pub fn forget(&mut self, inode: InodeId) -> Vec<WaitTicket> {
        self.flips.forget(inode);
        let Some(file) = self.files.remove(&inode) else { return Vec::new() };
        let mut sessions: Vec<SessionId> = file.holders().collect();
        let mut dropped = Vec::new();
        for waiting in file.queue() {
            self.tickets.remove(&waiting.ticket);
            dropped.push(waiting.ticket);
            if let RequestKind::Lease { session, .. } = waiting.kind {
                sessions.push(session);
            }
        }
        for session in sessions {
            self.unlink(session, inode);
        }
        dropped
    }
}

/// Queries.
impl Leases {
    /// All waiting requests, file by file, in order of arrival.
    pub fn waiting(&self, now: Nanos) -> impl Iterator<Item = WaitLine> {
        self.files.iter().flat_map(move |(&inode, file)| {
            file.queue().map(move |waiting| WaitLine {
                inode,
                waiter: match waiting.kind {
                    RequestKind::Lease { session, .. } => Waiter::Session(session),
                    RequestKind::Barrier { kind, .. } => Waiter::Barrier(kind),
                },
                ticket: waiting.ticket,
                since: waiting.since,
                waited: now.since(waiting.since),
                holders: file.holders().collect(),
                stopped_by: file.stop(),
            })
        })
    }

    /// Whether a lease would be granted immediately, without a recall.
    #[must_use]
    pub fn is_free_for(&self, (session, party): (SessionId, LeaseGroup), inode: InodeId, want: Want) -> bool {
        let Some(file) = self.files.get(&inode) else { return true };
        file.is_free_for((session, party), inode, want, self.sabotage)
    }

    /// Whether the session has a lease that allows writing (exclusive, write, mixed), or had one that is not recovered.
    #[must_use]
    pub fn holds_write(&self, session: SessionId, inode: InodeId) -> bool {
        self.files
            .get(&inode)
            .is_some_and(|file| file.is_held_by(session) && file.phase() != Some(Phase::Read {}))
    }

    /// Holders of the file, dead ones that are not recovered included.
    #[must_use]
    pub fn holders(&self, inode: InodeId) -> Vec<SessionId> {
        self.files.get(&inode).map(|file| file.holders().collect()).unwrap_or_default()
    }

    /// Whether a holder is dead or was lost with an earlier manager process, and its records are not recovered.
    #[must_use]
    pub fn is_unrecovered(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(FileLeases::is_unrecovered)
    }

    /// The phase that the file's holders are in, if it has any.
    #[must_use]
    pub fn phase(&self, inode: InodeId) -> Option<Phase> {
        self.files.get(&inode).and_then(FileLeases::phase)
    }

    /// No lease is held and no request waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty() && self.tickets.is_empty() && self.used.is_empty()
    }
}

impl Leases {
    fn enter(&mut self, ticket: WaitTicket, inode: InodeId) {
        let before = self.tickets.insert(ticket, inode);
        assert!(before.is_none(), "{ticket:?} already waits for inode {before:?}");
        self.files.entry(inode).or_default();
    }

    /// Runs `act` on the file, then drops the tickets that it answered, and the file if it has no users left.
    fn with<T>(
        &mut self,
        inode: InodeId,
        now: Nanos,
        out: &mut Vec<LeaseAction>,
        act: impl FnOnce(&mut FileLeases, &mut LeaseContext<'_>) -> T,
    ) -> Option<T> {
        let file = self.files.get_mut(&inode)?;
        let old_actions = out.len();
        let (next_number, flips, sabotage) = (&mut self.next_number, &mut self.flips, self.sabotage);
        let result = act(file, &mut LeaseContext { inode, now, next_number, flips, sabotage, out });
        if file.is_idle() {
            self.files.remove(&inode);
        }
        for action in &out[old_actions..] {
            match action {
                LeaseAction::Grant { ticket, .. } | LeaseAction::Quiet { ticket } => {
                    self.tickets.remove(ticket);
                }
                LeaseAction::Recall { .. } | LeaseAction::Recover { .. } => {}
            }
        }
        Some(result)
    }

    /// Drops the link from session to file, if the session does not use it any more.
    fn unlink(&mut self, session: SessionId, inode: InodeId) {
        if self.files.get(&inode).is_some_and(|file| file.involves(session)) {
            return;
        }
        if let Some(inodes) = self.used.get_mut(&session) {
            inodes.remove(&inode);
            if inodes.is_empty() {
                self.used.remove(&session);
            }
        }
    }
}
