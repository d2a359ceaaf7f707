//! Which requests of a file's queue are served now, in which phase, and which leases are recalled for the others.
//!
//! Never: sends or waits. Always: requests are served in order of arrival; only a look may overtake.

use pario_core::{Nanos, SessionId};
use pario_net::message::{Lease, Phase, Want};

use super::{FileLeases, HoldState, LeaseContext, LeaseHolder, MIXED_MIN, RequestKind, WaitingRequest};
use crate::coherence::action::{Barrier, LeaseAction, LeaseGroup, LeaseRequest, WaitTicket};
use crate::coherence::flips::FLIPS_MAX;
use crate::coherence::sabotage::{Bug, LeaseSabotage};

/// How a request can be served now.
pub(super) enum GrantMode {
    /// With the lease that the session holds.
    Same { number: u64 },
    /// Beside the other holders, in their phase.
    Join,
    /// The file is free except for a lease of its own, which the new one replaces.
    Alone,
    /// After dead holders are recovered or its own lease is returned.
    Wait,
    /// Not before the holders have returned their leases.
    Blocked,
}

/// Decisions.
impl FileLeases {
    /// Serves the queue from its head until a request must wait, and recalls the leases that this request waits for.
    pub(super) fn pump(&mut self, turn: &mut LeaseContext<'_>) {
        if self.stop.is_none() {
            self.answer_looks(turn);
        }
        while self.stop.is_none() || turn.sabotage.has(Bug::GrantInStop) {
            let Some(&head) = self.queue.front() else { return };
            let served = match head.kind {
                RequestKind::Lease { session, want, group: party, .. } => self.serve(
                    LeaseRequest { session, inode: turn.inode, want, group: party, ticket: head.ticket },
                    turn,
                ),
                RequestKind::Barrier { kind: Barrier::Stop, .. } => self.serve_stop(head.ticket, turn),
                // Quiet ones were answered above, and grants never make a file quieter.
                RequestKind::Barrier { kind: Barrier::Look, .. } => {
                    self.recall_all(turn);
                    false
                }
            };
            if !served {
                return;
            }
        }
    }

    /// A look needs no recall of others, so it need not wait in order: any quiet state is sufficient.
    fn answer_looks(&mut self, turn: &mut LeaseContext<'_>) {
        if !self.queue.iter().any(WaitingRequest::is_look) {
            return;
        }
        let queue = std::mem::take(&mut self.queue);
        for waiting in queue {
            match waiting.kind {
                RequestKind::Barrier { kind: Barrier::Look, asker }
                    if self.is_quiet_for(asker, turn.sabotage) =>
                {
                    turn.out.push(LeaseAction::Quiet { ticket: waiting.ticket });
                }
                RequestKind::Barrier { .. } | RequestKind::Lease { .. } => self.queue.push_back(waiting),
            }
        }
    }

    fn is_quiet_for(&self, asker: Option<SessionId>, sabotage: LeaseSabotage) -> bool {
        let behind = matches!(self.phase, Phase::Exclusive {} | Phase::Write {});
        self.holders.iter().all(|(&session, holder)| {
            if holder.is_live() {
                !behind || (self.phase == (Phase::Exclusive {}) && asker == Some(session))
            } else {
                sabotage.has(Bug::LookPastDead)
            }
        })
    }

    fn serve_stop(&mut self, ticket: WaitTicket, turn: &mut LeaseContext<'_>) -> bool {
        if !self.holders.is_empty() {
            self.recall_all(turn);
            return false;
        }
        self.queue.pop_front();
        self.stop = Some(ticket);
        turn.out.push(LeaseAction::Quiet { ticket });
        true
    }

    /// Serves the request at the head; returns false if it must wait.
    fn serve(&mut self, ask: LeaseRequest, turn: &mut LeaseContext<'_>) -> bool {
        match self.grant_mode(ask, turn.sabotage) {
            GrantMode::Wait => return false,
            GrantMode::Same { number } => self.grant_again(ask, number, turn),
            GrantMode::Join => self.grant(ask, self.phase, turn),
            GrantMode::Alone => {
                let phase = self.choose_phase(ask);
                if !self.holders.is_empty() && phase != (Phase::Exclusive {}) {
                    self.recall_all(turn);
                    return false;
                }
                self.grant(ask, phase, turn);
            }
            GrantMode::Blocked => {
                self.count_flip(ask, turn);
                self.recall_all(turn);
                return false;
            }
        }
        self.queue.pop_front();
        true
    }

    pub(super) fn grant_mode(&self, ask: LeaseRequest, sabotage: LeaseSabotage) -> GrantMode {
        let (session, want) = (ask.session, ask.want);
        let party_only = self.is_held_by_group(ask) && self.mixed_since.is_none();
        let own = self.holders.get(&session).map(|holder| holder.state);
        match own {
            Some(HoldState::Held { number }) if suffices(self.phase, want) => {
                return GrantMode::Same { number };
            }
            Some(HoldState::Recalled { number })
                if sabotage.has(Bug::RegrantRecalled) && suffices(self.phase, want) =>
            {
                return GrantMode::Same { number };
            }
            Some(HoldState::Held { .. }) if party_only => return GrantMode::Alone,
            None if self.holders.is_empty() => return GrantMode::Alone,
            None if party_only && !suffices(self.phase, want) => return GrantMode::Alone,
            Some(_) | None => {}
        }
        let shares = sabotage.has(Bug::ShareExclusive) && self.phase == (Phase::Exclusive {});
        if !shares && !self.fits(ask) {
            return GrantMode::Blocked;
        }
        // An own lease that fits but is not `Held` is being returned.
        let all_live = self.holders.values().all(LeaseHolder::is_live);
        if own.is_none() && all_live { GrantMode::Join } else { GrantMode::Wait }
    }

    /// Whether one more holder with this request is compatible with the present phase.
    fn fits(&self, ask: LeaseRequest) -> bool {
        let want = ask.want;
        match self.phase {
            Phase::Exclusive {} => self.mixed_since.is_none() && self.is_held_by_group(ask),
            Phase::Write {} => self.mixed_since.is_none() && want == (Want::Write {}),
            Phase::Read {} => self.mixed_since.is_none() && want == (Want::Read {}),
            Phase::Mixed {} => self.mixed_since.is_some(),
        }
    }

    /// Whether all holders are the requester and its lease group, with leases that are not recalled.
    fn is_held_by_group(&self, ask: LeaseRequest) -> bool {
        self.holders.iter().all(|(&session, holder)| {
            let own = session == ask.session || ask.group.is_one_with(holder.group);
            own && matches!(holder.state, HoldState::Held { .. })
        })
    }

    /// The phase for a request at the head of a file that is otherwise free.
    fn choose_phase(&self, ask: LeaseRequest) -> Phase {
        if self.mixed_since.is_some() {
            return Phase::Mixed {};
        }
        match ask.want {
            Want::Read {} if self.holders.is_empty() => Phase::Read {},
            Want::Read {} => Phase::Exclusive {},
            Want::Write {} if self.more_writers(ask) => Phase::Write {},
            Want::Write {} | Want::WriteInGroup {} => Phase::Exclusive {},
        }
    }

    /// Whether the writer at the head is not the only one: another waits directly after it, or returned its lease for it.
    fn more_writers(&self, first: LeaseRequest) -> bool {
        let mut writers = self.queue.iter().map_while(|waiting| match waiting.kind {
            RequestKind::Lease { session, want: Want::Write {}, group: party, rival, .. } => {
                let other = session != first.session && !party.is_one_with(first.group);
                Some(other || rival)
            }
            RequestKind::Lease { .. } | RequestKind::Barrier { .. } => None,
        });
        writers.any(|another| another)
    }

    /// The next waiting writer shares the write phase with `from`, which returned its lease for it and is likely to be back: otherwise the
    /// two would recall the file from each other forever.
    pub(super) fn mark_rival(&mut self, from: SessionId, of: LeaseGroup) {
        let next = self.queue.iter_mut().find_map(|waiting| match &mut waiting.kind {
            RequestKind::Lease { session, want, group: party, rival, .. } => {
                Some((*want, *session != from && !party.is_one_with(of), rival))
            }
            RequestKind::Barrier { .. } => None,
        });
        if let Some((Want::Write {}, other, rival)) = next {
            *rival = other;
        }
    }

    /// Counts a flip: the request at the head recalls the file from another session with the other kind of access; too many flips start the
    /// mixed phase.
    fn count_flip(&mut self, ask: LeaseRequest, turn: &mut LeaseContext<'_>) {
        let flips = match self.phase {
            Phase::Exclusive {} | Phase::Write {} => ask.want == Want::Read {},
            Phase::Read {} => ask.want == Want::Write {},
            Phase::Mixed {} => false,
        };
        let taken = self.holders.iter().any(|(&session, holder)| {
            session != ask.session && !ask.group.is_one_with(holder.group) && holder.is_live()
        });
        let Some(WaitingRequest { kind: RequestKind::Lease { flip_counted, .. }, .. }) =
            self.queue.front_mut()
        else {
            return;
        };
        if !flips || !taken || *flip_counted {
            return;
        }
        *flip_counted = true;
        if turn.flips.record(turn.inode, turn.now) > FLIPS_MAX {
            self.mixed_since = Some(turn.now);
        }
    }

    /// Whether the mixed phase has lasted long enough and the remaining users are one session, or of one kind.
    pub(super) fn mixed_is_over(&self, now: Nanos) -> bool {
        let Some(since) = self.mixed_since else { return false };
        if self.phase() != Some(Phase::Mixed {}) || now.since(since) < MIXED_MIN {
            return false;
        }
        let held = self.holders.iter().map(|(&session, holder)| (session, holder.reads, holder.writes));
        let wanted = self.queue.iter().filter_map(|waiting| match waiting.kind {
            RequestKind::Lease { session, want, .. } => {
                Some((session, want == Want::Read {}, want == Want::Write {}))
            }
            RequestKind::Barrier { .. } => None,
        });
        let users: Vec<(SessionId, bool, bool)> = held.chain(wanted).collect();
        let one_session = users.iter().all(|user| user.0 == users[0].0);
        one_session || !users.iter().any(|user| user.1) || !users.iter().any(|user| user.2)
    }

    pub(super) fn leave_mixed(&mut self, turn: &mut LeaseContext<'_>) {
        self.mixed_since = None;
        // Sessions that still use the file request again and get a phase in which they may cache or write back.
        self.recall_all(turn);
    }
}

/// State changes.
impl FileLeases {
    pub(super) fn grant_again(&mut self, ask: LeaseRequest, number: u64, turn: &mut LeaseContext<'_>) {
        if let Some(holder) = self.holders.get_mut(&ask.session) {
            holder.note(ask.want);
        }
        let lease = Lease { inode: turn.inode, number, phase: self.phase };
        turn.out.push(LeaseAction::Grant { ticket: ask.ticket, session: ask.session, lease });
    }

    pub(super) fn grant(&mut self, ask: LeaseRequest, phase: Phase, turn: &mut LeaseContext<'_>) {
        let number = *turn.next_number;
        *turn.next_number = number.wrapping_add(1);
        self.phase = phase;
        let state = HoldState::Held { number };
        self.holders
            .insert(ask.session, LeaseHolder { state, group: ask.group, reads: false, writes: false });
        self.grant_again(ask, number, turn);
    }

    /// Recalls every held lease that was not recalled before.
    fn recall_all(&mut self, turn: &mut LeaseContext<'_>) {
        if turn.sabotage.has(Bug::ForgetRecall) && self.queue.len() > 1 {
            return;
        }
        for (&session, holder) in &mut self.holders {
            let number = match holder.state {
                HoldState::Held { number } => number,
                HoldState::Recalled { number } if turn.sabotage.has(Bug::RecallTwice) => number,
                HoldState::Recalled { .. } | HoldState::Absent | HoldState::Recovering => continue,
            };
            holder.state = HoldState::Recalled { number };
            turn.out.push(LeaseAction::Recall { session, inode: turn.inode, number });
        }
    }

    /// Ends a hold. The last user of the mixed phase ends it; so does a user that leaves only one kind of users.
    pub(super) fn remove(&mut self, session: SessionId, turn: &mut LeaseContext<'_>) {
        self.holders.remove(&session);
        if self.holders.is_empty() && self.phase == (Phase::Mixed {}) {
            self.mixed_since = None;
        } else if self.mixed_is_over(turn.now) {
            self.leave_mixed(turn);
        }
    }
}

fn suffices(phase: Phase, want: Want) -> bool {
    match phase {
        Phase::Exclusive {} | Phase::Mixed {} => true,
        Phase::Write {} => want == Want::Write {},
        Phase::Read {} => want == Want::Read {},
    }
}
