//! One file: who holds it in which phase, and who waits for it.
//!
//! Never: lets a newcomer past somebody who waits for a lease or a stop; takes a lease from the living.
//! Always: all holders are in `phase`; a session holds at most one lease; a stop in force means no holders;
//! while the records of a dead holder are not settled nobody else gets the file.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Phase, Want};

use super::action::{Action, Ask, Barrier, BarrierAsk, Party, Ticket};
use super::flips::Flips;
use super::sabotage::{Bug, Sabotage};

mod serve;

use serve::Way;

/// A file stays in the mixed phase at least so long, unless all its users leave.
pub const MIXED_MIN: Duration = Duration::from_secs(1);

/// What one input may use and change outside of its file.
pub(super) struct Turn<'a> {
    pub(super) inode: InodeId,
    pub(super) now: Nanos,
    pub(super) next_number: &'a mut u64,
    pub(super) flips: &'a mut Flips,
    pub(super) sabotage: Sabotage,
    pub(super) out: &'a mut Vec<Action>,
}

/// How far a holder's lease is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In use.
    Held { number: u64 },
    /// Asked back; the holder will return it.
    Recalled { number: u64 },
    /// Noted on disk before a restart; the session has not been heard of since.
    Absent,
    /// The session is dead or has dropped its leases; its records are being settled.
    Settling,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    state: State,
    party: Party,
    /// What it asked for under this lease.
    reads: bool,
    writes: bool,
}

impl Holder {
    fn note(&mut self, want: Want) {
        match want {
            Want::Read {} => self.reads = true,
            Want::Write {} | Want::WriteTogether {} => self.writes = true,
        }
    }

    /// Gives its lease back some day, unlike the absent and the dead.
    fn is_live(&self) -> bool {
        matches!(self.state, State::Held { .. } | State::Recalled { .. })
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// A lease.
    Lease {
        session: SessionId,
        want: Want,
        party: Party,
        /// This request's taking the file from the other kind of user has been counted.
        flip_counted: bool,
        /// An exclusive writer gave way to it and will be back, or others are about to come.
        rival: bool,
    },
    /// Silence.
    Barrier { kind: Barrier, asker: Option<SessionId> },
}

/// One entry of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) since: Nanos,
    pub(super) wish: Wish,
}

impl Waiting {
    fn is_stop(&self) -> bool {
        matches!(self.wish, Wish::Barrier { kind: Barrier::Stop, .. })
    }

    fn is_look(&self) -> bool {
        matches!(self.wish, Wish::Barrier { kind: Barrier::Look, .. })
    }

    fn is_lease_of(&self, who: SessionId) -> bool {
        matches!(self.wish, Wish::Lease { session, .. } if session == who)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct File {
    /// Of the holders; means nothing while there are none.
    phase: Phase,
    holders: BTreeMap<SessionId, Holder>,
    queue: VecDeque<Waiting>,
    stop: Option<Ticket>,
    /// Since when grants are of the mixed phase.
    mixed_since: Option<Nanos>,
}

impl Default for File {
    fn default() -> File {
        let (holders, queue) = (BTreeMap::new(), VecDeque::new());
        File { phase: Phase::Read {}, holders, queue, stop: None, mixed_since: None }
    }
}

/// Inputs.
impl File {
    /// See [`super::Leases::acquire`].
    pub(super) fn acquire(&mut self, ask: Ask, turn: &mut Turn<'_>) {
        // Those who write together are each other's rivals before they have met.
        let rival = ask.want == (Want::WriteTogether {});
        let ask = if rival { Ask { want: Want::Write {}, ..ask } } else { ask };
        let (session, want, party) = (ask.session, ask.want, ask.party);
        let wish = Wish::Lease { session, want, party, flip_counted: false, rival };
        self.queue.push_back(Waiting { ticket: ask.ticket, since: turn.now, wish });
        if self.mixed_is_over(turn.now) {
            self.leave_mixed(turn);
        }
        // Somebody who has what it asks for passes nobody by.
        let way = self.way(ask, turn.sabotage);
        let overtakes = turn.sabotage.has(Bug::Overtake) && matches!(way, Way::Join);
        if let Way::Same { number } = way {
            self.queue.pop_back();
            self.grant_again(ask, number, turn);
        } else if overtakes {
            self.queue.pop_back();
            self.grant(ask, self.phase, turn);
        }
        self.pump(turn);
    }

    /// See [`super::Leases::returned`].
    pub(super) fn returned(&mut self, session: SessionId, number: u64, turn: &mut Turn<'_>) {
        let Some(holder) = self.holders.get(&session).copied() else { return };
        let recalled = holder.state == State::Recalled { number };
        if !recalled && holder.state != (State::Held { number }) {
            return;
        }
        if recalled && self.phase == (Phase::Exclusive {}) {
            self.mark_rival(session, holder.party);
        }
        self.remove(session, turn);
        self.pump(turn);
    }

    /// The session is dead: its requests leave the queue, its lease is settled. Says which requests they were.
    pub(super) fn gone(&mut self, session: SessionId, turn: &mut Turn<'_>) -> Vec<Ticket> {
        let mine = self.queue.iter().filter(|waiting| waiting.is_lease_of(session));
        let dropped = mine.map(|waiting| waiting.ticket).collect();
        self.queue.retain(|waiting| !waiting.is_lease_of(session));
        self.drop_lease(session, turn);
        self.pump(turn);
        dropped
    }

    /// The session reconnected and has forgotten its lease; what it asked for since is in the queue.
    pub(super) fn reclaimed(&mut self, session: SessionId, turn: &mut Turn<'_>) {
        self.drop_lease(session, turn);
        self.pump(turn);
    }

    fn drop_lease(&mut self, session: SessionId, turn: &mut Turn<'_>) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        if holder.state == State::Settling {
            return;
        }
        if self.phase == (Phase::Read {}) {
            self.remove(session, turn);
            return;
        }
        holder.state = State::Settling;
        turn.out.push(Action::Settle { inode: turn.inode, session });
        if turn.sabotage.has(Bug::ReleaseUnsettled) {
            self.remove(session, turn);
        }
    }

    /// See [`super::Leases::settled`].
    pub(super) fn settled(&mut self, session: SessionId, turn: &mut Turn<'_>) {
        if self.holders.get(&session).is_some_and(|holder| holder.state == State::Settling) {
            self.remove(session, turn);
            self.pump(turn);
        }
    }

    /// See [`super::Leases::restore`].
    pub(super) fn restore(&mut self, session: SessionId) {
        let fresh =
            self.queue.is_empty() && self.holders.values().all(|holder| holder.state == State::Absent);
        assert!(fresh, "leases are restored before the first client is heard");
        self.phase = Phase::Write {};
        let holder = Holder { state: State::Absent, party: Party::default(), reads: false, writes: true };
        self.holders.entry(session).or_insert(holder);
    }

    /// See [`super::Leases::barrier`].
    pub(super) fn barrier(&mut self, ask: BarrierAsk, turn: &mut Turn<'_>) {
        let wish = Wish::Barrier { kind: ask.kind, asker: ask.asker };
        self.queue.push_back(Waiting { ticket: ask.ticket, since: turn.now, wish });
        self.pump(turn);
    }

    /// Ends a stop, in force or waiting, and says whether there was one under this ticket.
    pub(super) fn barrier_end(&mut self, ticket: Ticket, turn: &mut Turn<'_>) -> bool {
        let before = self.queue.len();
        self.queue.retain(|waiting| waiting.ticket != ticket || !waiting.is_stop());
        let ended = self.queue.len() < before || self.stop == Some(ticket);
        if self.stop == Some(ticket) {
            self.stop = None;
        }
        if ended {
            self.pump(turn);
        }
        ended
    }

    /// Removes one waiting request and says whose it was, if a session's.
    pub(super) fn cancel(&mut self, ticket: Ticket, turn: &mut Turn<'_>) -> Option<SessionId> {
        let at = self.queue.iter().position(|waiting| waiting.ticket == ticket)?;
        let removed = self.queue.remove(at)?;
        self.pump(turn);
        match removed.wish {
            Wish::Lease { session, .. } => Some(session),
            Wish::Barrier { .. } => None,
        }
    }
}

/// Questions.
impl File {
    /// Nothing is held and nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty() && self.stop.is_none()
    }

    /// Whether a lease would be granted at once, and take nothing from anybody.
    pub(super) fn is_free_for(
        &self,
        (session, party): (SessionId, Party),
        inode: InodeId,
        want: Want,
        sabotage: Sabotage,
    ) -> bool {
        let want = if want == (Want::WriteTogether {}) { Want::Write {} } else { want };
        let ask = Ask { session, inode, want, party, ticket: Ticket(0) };
        let is_granted = match self.way(ask, sabotage) {
            Way::Same { .. } | Way::Join => true,
            Way::Alone => self.holders.is_empty(),
            Way::Wait | Way::Blocked => false,
        };
        // A request may end the mixed phase, and then waits for its holders.
        is_granted && self.mixed_since.is_none() && self.queue.is_empty() && self.stop.is_none()
    }

    /// The session holds a lease or waits for one.
    pub(super) fn involves(&self, session: SessionId) -> bool {
        self.holders.contains_key(&session) || self.queue.iter().any(|waiting| waiting.is_lease_of(session))
    }

    /// The holders' phase, if there are any.
    pub(super) fn phase(&self) -> Option<Phase> {
        (!self.holders.is_empty()).then_some(self.phase)
    }

    /// The holders, the absent and the dead that are not settled included.
    pub(super) fn holders(&self) -> impl Iterator<Item = SessionId> {
        self.holders.keys().copied()
    }

    /// Whether the session is one of them.
    pub(super) fn is_held_by(&self, session: SessionId) -> bool {
        self.holders.contains_key(&session)
    }

    /// The queue in order of arrival.
    pub(super) fn queue(&self) -> impl Iterator<Item = &Waiting> {
        self.queue.iter()
    }

    /// The stop barrier in force.
    pub(super) fn stop(&self) -> Option<Ticket> {
        self.stop
    }
}
