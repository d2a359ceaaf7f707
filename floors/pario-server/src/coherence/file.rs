//! Lease state of one file: holders, phase, and waiting requests.
//!
//! Never: lets a newcomer overtake a waiting lease request or stop; revokes a lease of a live session. Always: all holders are in `phase`;
//! a session holds at most one lease; a stop in force means no holders; while the records of a dead holder are not recovered no other
//! session gets the file.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Phase, Want};

use super::action::{Barrier, BarrierRequest, LeaseAction, LeaseGroup, LeaseRequest, WaitTicket};
use super::flips::Flips;
use super::sabotage::{Bug, LeaseSabotage};

mod serve;

use serve::GrantMode;

/// Minimum duration of the mixed phase, unless all users of the file leave.
pub const MIXED_MIN: Duration = Duration::from_secs(1);

/// Context of one input: state outside of its file.
pub(super) struct LeaseContext<'a> {
    pub(super) inode: InodeId,
    pub(super) now: Nanos,
    pub(super) next_number: &'a mut u64,
    pub(super) flips: &'a mut Flips,
    pub(super) sabotage: LeaseSabotage,
    pub(super) out: &'a mut Vec<LeaseAction>,
}

/// State of a holder's lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HoldState {
    /// In use.
    Held { number: u64 },
    /// Recalled; the holder will return it.
    Recalled { number: u64 },
    /// Noted on disk before a restart; the session has not reconnected since.
    Absent,
    /// The session is dead or has dropped its leases; its records are being recovered.
    Recovering,
}

#[derive(Clone, Copy, Debug)]
struct LeaseHolder {
    state: HoldState,
    group: LeaseGroup,
    /// Accesses requested under this lease.
    reads: bool,
    writes: bool,
}

impl LeaseHolder {
    fn note(&mut self, want: Want) {
        match want {
            Want::Read {} => self.reads = true,
            Want::Write {} | Want::WriteInGroup {} => self.writes = true,
        }
    }

    /// Will return its lease, unlike absent and dead holders.
    fn is_live(&self) -> bool {
        matches!(self.state, HoldState::Held { .. } | HoldState::Recalled { .. })
    }
}

/// Kind of a waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind {
    /// A lease.
    Lease {
        session: SessionId,
        want: Want,
        group: LeaseGroup,
        /// This request's flip has been counted.
        flip_counted: bool,
        /// An exclusive writer returned its lease for it and will be back, or other writers are about to arrive.
        rival: bool,
    },
    /// A barrier.
    Barrier { kind: Barrier, asker: Option<SessionId> },
}

/// One entry of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRequest {
    pub(super) ticket: WaitTicket,
    pub(super) since: Nanos,
    pub(super) kind: RequestKind,
}

impl WaitingRequest {
    fn is_stop(&self) -> bool {
        matches!(self.kind, RequestKind::Barrier { kind: Barrier::Stop, .. })
    }

    fn is_look(&self) -> bool {
        matches!(self.kind, RequestKind::Barrier { kind: Barrier::Look, .. })
    }

    fn is_lease_of(&self, who: SessionId) -> bool {
        matches!(self.kind, RequestKind::Lease { session, .. } if session == who)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct FileLeases {
    /// Of the holders; meaningless while there are none.
    phase: Phase,
    holders: BTreeMap<SessionId, LeaseHolder>,
    queue: VecDeque<WaitingRequest>,
    stop: Option<WaitTicket>,
    /// Start of the mixed phase.
    mixed_since: Option<Nanos>,
}

impl Default for FileLeases {
    fn default() -> FileLeases {
        let (holders, queue) = (BTreeMap::new(), VecDeque::new());
        FileLeases { phase: Phase::Read {}, holders, queue, stop: None, mixed_since: None }
    }
}

/// Inputs.
impl FileLeases {
    /// See [`super::Leases::acquire`].
    pub(super) fn acquire(&mut self, ask: LeaseRequest, turn: &mut LeaseContext<'_>) {
        // Sessions that announce a shared write are rivals from the start.
        let rival = ask.want == (Want::WriteInGroup {});
        let ask = if rival { LeaseRequest { want: Want::Write {}, ..ask } } else { ask };
        let (session, want, party) = (ask.session, ask.want, ask.group);
        let wish = RequestKind::Lease { session, want, group: party, flip_counted: false, rival };
        self.queue.push_back(WaitingRequest { ticket: ask.ticket, since: turn.now, kind: wish });
        if self.mixed_is_over(turn.now) {
            self.leave_mixed(turn);
        }
        // A session that already holds a sufficient lease overtakes no waiter.
        let way = self.grant_mode(ask, turn.sabotage);
        let overtakes = turn.sabotage.has(Bug::Overtake) && matches!(way, GrantMode::Join);
        if let GrantMode::Same { number } = way {
            self.queue.pop_back();
            self.grant_again(ask, number, turn);
        } else if overtakes {
            self.queue.pop_back();
            self.grant(ask, self.phase, turn);
        }
        self.pump(turn);
    }

    /// See [`super::Leases::returned`].
    pub(super) fn returned(&mut self, session: SessionId, number: u64, turn: &mut LeaseContext<'_>) {
        let Some(holder) = self.holders.get(&session).copied() else { return };
        let recalled = holder.state == HoldState::Recalled { number };
        if !recalled && holder.state != (HoldState::Held { number }) {
            return;
        }
        if recalled && self.phase == (Phase::Exclusive {}) {
            self.mark_rival(session, holder.group);
        }
        self.remove(session, turn);
        self.pump(turn);
    }

    /// The session is dead: its requests leave the queue, its lease is recovered. Returns the tickets of these requests.
    pub(super) fn session_died(
        &mut self,
        session: SessionId,
        turn: &mut LeaseContext<'_>,
    ) -> Vec<WaitTicket> {
        let mine = self.queue.iter().filter(|waiting| waiting.is_lease_of(session));
        let dropped = mine.map(|waiting| waiting.ticket).collect();
        self.queue.retain(|waiting| !waiting.is_lease_of(session));
        self.drop_lease(session, turn);
        self.pump(turn);
        dropped
    }

    /// The session reconnected without its lease; its requests since are in the queue.
    pub(super) fn reclaimed(&mut self, session: SessionId, turn: &mut LeaseContext<'_>) {
        self.drop_lease(session, turn);
        self.pump(turn);
    }

    fn drop_lease(&mut self, session: SessionId, turn: &mut LeaseContext<'_>) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        if holder.state == HoldState::Recovering {
            return;
        }
        if self.phase == (Phase::Read {}) {
            self.remove(session, turn);
            return;
        }
        holder.state = HoldState::Recovering;
        turn.out.push(LeaseAction::Recover { inode: turn.inode, session });
        if turn.sabotage.has(Bug::ReleaseUnsettled) {
            self.remove(session, turn);
        }
    }

    /// See [`super::Leases::recovered`].
    pub(super) fn recovered(&mut self, session: SessionId, turn: &mut LeaseContext<'_>) {
        if self.holders.get(&session).is_some_and(|holder| holder.state == HoldState::Recovering) {
            self.remove(session, turn);
            self.pump(turn);
        }
    }

    /// See [`super::Leases::restore`].
    pub(super) fn restore(&mut self, session: SessionId) {
        let fresh =
            self.queue.is_empty() && self.holders.values().all(|holder| holder.state == HoldState::Absent);
        assert!(fresh, "leases are restored before the first client is heard");
        self.phase = Phase::Write {};
        let holder = LeaseHolder {
            state: HoldState::Absent,
            group: LeaseGroup::default(),
            reads: false,
            writes: true,
        };
        self.holders.entry(session).or_insert(holder);
    }

    /// See [`super::Leases::barrier`].
    pub(super) fn barrier(&mut self, ask: BarrierRequest, turn: &mut LeaseContext<'_>) {
        let wish = RequestKind::Barrier { kind: ask.kind, asker: ask.requester };
        self.queue.push_back(WaitingRequest { ticket: ask.ticket, since: turn.now, kind: wish });
        self.pump(turn);
    }

    /// Ends a stop, in force or waiting, and returns whether there was one under this ticket.
    pub(super) fn barrier_end(&mut self, ticket: WaitTicket, turn: &mut LeaseContext<'_>) -> bool {
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

    /// Removes one waiting request and returns its session, if it has one.
    pub(super) fn cancel(&mut self, ticket: WaitTicket, turn: &mut LeaseContext<'_>) -> Option<SessionId> {
        let at = self.queue.iter().position(|waiting| waiting.ticket == ticket)?;
        let removed = self.queue.remove(at)?;
        self.pump(turn);
        match removed.kind {
            RequestKind::Lease { session, .. } => Some(session),
            RequestKind::Barrier { .. } => None,
        }
    }
}

/// Queries.
impl FileLeases {
    /// No lease is held and no request waits.
    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty() && self.stop.is_none()
    }

    /// Whether a lease would be granted immediately, without a recall.
    pub(super) fn is_free_for(
        &self,
        (session, party): (SessionId, LeaseGroup),
        inode: InodeId,
        want: Want,
        sabotage: LeaseSabotage,
    ) -> bool {
        let want = if want == (Want::WriteInGroup {}) { Want::Write {} } else { want };
        let ask = LeaseRequest { session, inode, want, group: party, ticket: WaitTicket(0) };
        let is_granted = match self.grant_mode(ask, sabotage) {
            GrantMode::Same { .. } | GrantMode::Join => true,
            GrantMode::Alone => self.holders.is_empty(),
            GrantMode::Wait | GrantMode::Blocked => false,
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

    /// The holders, absent ones and dead ones that are not recovered included.
    pub(super) fn holders(&self) -> impl Iterator<Item = SessionId> {
        self.holders.keys().copied()
    }

    /// Whether a holder is absent or dead and so returns no lease.
    pub(super) fn is_unrecovered(&self) -> bool {
        self.holders.values().any(|holder| !holder.is_live())
    }

    /// Whether the session is a holder.
    pub(super) fn is_held_by(&self, session: SessionId) -> bool {
        self.holders.contains_key(&session)
    }

    /// The queue in order of arrival.
    pub(super) fn queue(&self) -> impl Iterator<Item = &WaitingRequest> {
        self.queue.iter()
    }

    /// The stop barrier in force.
    pub(super) fn stop(&self) -> Option<WaitTicket> {
        self.stop
    }
}
