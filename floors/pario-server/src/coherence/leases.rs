//! The lease machine of all files of a partition. It lives at the manager.
//!
//! Never: takes a lease by time; hands out a number twice; sends a recall to a session that is known to be dead.
//! Always: memory is in proportion to what is held and waited for, plus a bounded table of flips; every ticket is
//! answered at most once, and once, unless it is cancelled, forgotten or its session goes.
//!
//! The rules, in short:
//! - A lone reader gets the read phase, so that a second one costs no recall; a lone writer gets exclusive.
//! - Requests wait in order of arrival. Neighbours of one kind are granted together. Only a look may go ahead.
//! - Writers that say that others are about to come get the write phase at once.
//! - A second writer makes the first give back; then both get the write phase.
//! - A session that alone holds a file gets more without a recall: the new lease replaces the old one.
//! - Sessions of one [`Party`](super::Party) are one user: they share the exclusive phase, take nothing from each other, and
//!   what one of them gets is good for all. A recall goes to each.
//! - A *flip* is a recall that a reader causes for writers of other sessions, or a writer for readers of other
//!   sessions. More than [`FLIPS_MAX`](super::FLIPS_MAX) within [`FLIP_WINDOW`](super::FLIP_WINDOW) put the file
//!   into the mixed phase: everything is recalled, and all who ask get mixed leases.
//! - A file leaves the mixed phase when its last holder is gone; and, [`MIXED_MIN`](super::MIXED_MIN) after it
//!   entered, at the first request or return that leaves only one session or one kind of user: these are recalled.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Phase, Want};

use super::action::{Action, Ask, BarrierAsk, Party, Return, Ticket, WaitLine, Waiter};
use super::file::{File, Turn, Wish};
use super::flips::Flips;
use super::sabotage::Sabotage;

/// See the module.
#[derive(Debug)]
pub struct Leases {
    files: BTreeMap<InodeId, File>,
    /// Where a waiting ticket waits.
    tickets: BTreeMap<Ticket, InodeId>,
    /// Files that a session holds or waits for a lease on.
    used: BTreeMap<SessionId, BTreeSet<InodeId>>,
    flips: Flips,
    next_number: u64,
    pub(super) sabotage: Sabotage,
}

/// Inputs. Each pushes what is to be done to `out`.
impl Leases {
    /// A machine that nobody uses yet. Numbers of leases start at `seed`: derive it from the incarnation, so that a
    /// number from before a restart means nothing.
    #[must_use]
    pub fn new(seed: u64) -> Leases {
        Leases {
            files: BTreeMap::new(),
            tickets: BTreeMap::new(),
            used: BTreeMap::new(),
            flips: Flips::default(),
            next_number: seed,
            sabotage: Sabotage::default(),
        }
    }

    /// Switches a deliberate bug on, for the simulator.
    pub fn sabotage(&mut self, bug: super::Bug) {
        self.sabotage.bug = Some(bug);
    }

    /// A session wants a lease. One that it has and that allows what it wants is granted again under the new ticket,
    /// unless it was recalled.
    pub fn acquire(&mut self, ask: Ask, now: Nanos, out: &mut Vec<Action>) {
        self.enter(ask.ticket, ask.inode);
        self.used.entry(ask.session).or_default().insert(ask.inode);
        self.with(ask.inode, now, out, |file, turn| file.acquire(ask, turn));
    }

    /// A lease came back. A number that the session does not hold is ignored: it is late or doubled.
    pub fn returned(&mut self, back: Return, now: Nanos, out: &mut Vec<Action>) {
        self.with(back.inode, now, out, |file, turn| file.returned(back.session, back.number, turn));
        self.unlink(back.session, back.inode);
    }

    /// The session's death is proven. What it waits for is dropped; its read leases are free; every other lease that
    /// it had counts as held until [`Leases::settled`]. Barriers asked on its behalf stay: they are the shell's.
    pub fn gone(&mut self, session: SessionId, now: Nanos, out: &mut Vec<Action>) {
        for inode in self.used.get(&session).cloned().unwrap_or_default() {
            let dropped = self.with(inode, now, out, |file, turn| file.gone(session, turn));
            for ticket in dropped.unwrap_or_default() {
                self.tickets.remove(&ticket);
            }
            self.unlink(session, inode);
        }
    }

    /// What the session left behind on the file is in the stores and the file's length is known.
    pub fn settled(&mut self, inode: InodeId, session: SessionId, now: Nanos, out: &mut Vec<Action>) {
        self.with(inode, now, out, |file, turn| file.settled(session, turn));
        self.unlink(session, inode);
    }

    /// After a restart, before the first client is heard: the session may hold a lease for writing. Nobody gets the
    /// file until it is [`Leases::gone`] or [`Leases::reclaimed`], and then settled.
    pub fn restore(&mut self, session: SessionId, inode: InodeId) {
        self.used.entry(session).or_default().insert(inode);
        self.files.entry(inode).or_default().restore(session);
    }

    /// The session reconnected under its id and has dropped all its leases; they are settled as those of a dead one.
    /// Its waiting requests stay.
    pub fn reclaimed(&mut self, session: SessionId, now: Nanos, out: &mut Vec<Action>) {
        for inode in self.used.get(&session).cloned().unwrap_or_default() {
            self.with(inode, now, out, |file, turn| file.reclaimed(session, turn));
            self.unlink(session, inode);
        }
    }

    /// Somebody needs the file quiet; answered by [`Action::Quiet`].
    pub fn barrier(&mut self, ask: BarrierAsk, now: Nanos, out: &mut Vec<Action>) {
        self.enter(ask.ticket, ask.inode);
        self.with(ask.inode, now, out, |file, turn| file.barrier(ask, turn));
    }

    /// Ends a stop, in force or still waiting. Anything else is ignored.
    pub fn barrier_end(&mut self, inode: InodeId, ticket: Ticket, now: Nanos, out: &mut Vec<Action>) {
        if self.with(inode, now, out, |file, turn| file.barrier_end(ticket, turn)) == Some(true) {
            self.tickets.remove(&ticket);
        }
    }

    /// Whoever waited under the ticket gave up. A ticket that does not wait any more is ignored, also that of a stop
    /// in force, whose work must first be ended in order.
    pub fn cancel(&mut self, ticket: Ticket, now: Nanos, out: &mut Vec<Action>) {
        let Some(inode) = self.tickets.remove(&ticket) else { return };
        let session = self.with(inode, now, out, |file, turn| file.cancel(ticket, turn));
        if let Some(session) = session.flatten() {
            self.unlink(session, inode);
        }
    }

    /// The file is removed for good; call it when the file is quiet. Everything about it is dropped, and a lease that
    /// comes back later is ignored. Returns the tickets that waited, which will never be answered.
    pub fn forget(&mut self, inode: InodeId) -> Vec<Ticket> {
        self.flips.forget(inode);
        let Some(file) = self.files.remove(&inode) else { return Vec::new() };
        let mut sessions: Vec<SessionId> = file.holders().collect();
        let mut dropped = Vec::new();
        for waiting in file.queue() {
            self.tickets.remove(&waiting.ticket);
            dropped.push(waiting.ticket);
            if let Wish::Lease { session, .. } = waiting.wish {
                sessions.push(session);
            }
        }
        for session in sessions {
            self.unlink(session, inode);
        }
        dropped
    }
}

/// Questions.
impl Leases {
    /// Everybody who waits, file by file, in order of arrival.
    pub fn waiting(&self, now: Nanos) -> impl Iterator<Item = WaitLine> {
        self.files.iter().flat_map(move |(&inode, file)| {
            file.queue().map(move |waiting| WaitLine {
                inode,
                waiter: match waiting.wish {
                    Wish::Lease { session, .. } => Waiter::Session(session),
                    Wish::Barrier { kind, .. } => Waiter::Barrier(kind),
                },
                ticket: waiting.ticket,
                since: waiting.since,
                waited: now.since(waiting.since),
                holders: file.holders().collect(),
                stopped_by: file.stop(),
            })
        })
    }

    /// Whether a lease would be granted at once, and take nothing from anybody.
    #[must_use]
    pub fn is_free_for(&self, (session, party): (SessionId, Party), inode: InodeId, want: Want) -> bool {
        let Some(file) = self.files.get(&inode) else { return true };
        file.is_free_for((session, party), inode, want, self.sabotage)
    }

    /// Whether the session has a lease that allows writing (exclusive, write, mixed), or had one that is not settled.
    #[must_use]
    pub fn holds_write(&self, session: SessionId, inode: InodeId) -> bool {
        self.files
            .get(&inode)
            .is_some_and(|file| file.is_held_by(session) && file.phase() != Some(Phase::Read {}))
    }

    /// Who holds the file, the dead that are not settled included.
    #[must_use]
    pub fn holders(&self, inode: InodeId) -> Vec<SessionId> {
        self.files.get(&inode).map(|file| file.holders().collect()).unwrap_or_default()
    }

    /// The phase that the file's holders are in, if it has any.
    #[must_use]
    pub fn phase(&self, inode: InodeId) -> Option<Phase> {
        self.files.get(&inode).and_then(File::phase)
    }

    /// Nothing is held and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty() && self.tickets.is_empty() && self.used.is_empty()
    }
}

impl Leases {
    fn enter(&mut self, ticket: Ticket, inode: InodeId) {
        let before = self.tickets.insert(ticket, inode);
        assert!(before.is_none(), "{ticket:?} already waits for inode {before:?}");
        self.files.entry(inode).or_default();
    }

    /// Lets the file act, then drops the tickets that it answered, and the file if nobody uses it any more.
    fn with<T>(
        &mut self,
        inode: InodeId,
        now: Nanos,
        out: &mut Vec<Action>,
        act: impl FnOnce(&mut File, &mut Turn<'_>) -> T,
    ) -> Option<T> {
        let file = self.files.get_mut(&inode)?;
        let old_actions = out.len();
        let (next_number, flips, sabotage) = (&mut self.next_number, &mut self.flips, self.sabotage);
        let result = act(file, &mut Turn { inode, now, next_number, flips, sabotage, out });
        if file.is_idle() {
            self.files.remove(&inode);
        }
        for action in &out[old_actions..] {
            match action {
                Action::Grant { ticket, .. } | Action::Quiet { ticket } => {
                    self.tickets.remove(ticket);
                }
                Action::Recall { .. } | Action::Settle { .. } => {}
            }
        }
        Some(result)
    }

    /// Forgets that the session uses the file, if it does not.
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
