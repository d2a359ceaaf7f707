//! Who of a file's queue is served now, in which phase, and what is recalled for those who are not.

use pario_core::{Nanos, SessionId};
use pario_net::message::{Lease, Phase, Want};

use super::{File, Holder, MIXED_MIN, State, Turn, Waiting, Wish};
use crate::coherence::action::{Action, Ask, Barrier, Party, Ticket};
use crate::coherence::flips::FLIPS_MAX;
use crate::coherence::sabotage::{Bug, Sabotage};

/// How a request can be served now.
pub(super) enum Way {
    /// With the lease that the session has.
    Same { number: u64 },
    /// Beside the others, in their phase.
    Join,
    /// The file is free but for a lease of its own, which the new one replaces.
    Alone,
    /// It fits, once the dead are settled or its own lease is back.
    Wait,
    /// Not before the holders gave back.
    Blocked,
}

/// Decisions.
impl File {
    /// Serves the queue from its head until somebody must wait, and recalls what that one waits for.
    pub(super) fn pump(&mut self, turn: &mut Turn<'_>) {
        if self.stop.is_none() {
            self.answer_looks(turn);
        }
        while self.stop.is_none() || turn.sabotage.has(Bug::GrantInStop) {
            let Some(&head) = self.queue.front() else { return };
            let served = match head.wish {
                Wish::Lease { session, want, party, .. } => {
                    self.serve(Ask { session, inode: turn.inode, want, party, ticket: head.ticket }, turn)
                }
                Wish::Barrier { kind: Barrier::Stop, .. } => self.serve_stop(head.ticket, turn),
                // Quiet ones were answered above, and grants never make a file quieter.
                Wish::Barrier { kind: Barrier::Look, .. } => {
                    self.recall_all(turn);
                    false
                }
            };
            if !served {
                return;
            }
        }
    }

    /// A look takes nothing from anybody, so it need not wait its turn: any moment of silence will do.
    fn answer_looks(&mut self, turn: &mut Turn<'_>) {
        if !self.queue.iter().any(Waiting::is_look) {
            return;
        }
        let queue = std::mem::take(&mut self.queue);
        for waiting in queue {
            match waiting.wish {
                Wish::Barrier { kind: Barrier::Look, asker } if self.is_quiet_for(asker, turn.sabotage) => {
                    turn.out.push(Action::Quiet { ticket: waiting.ticket });
                }
                Wish::Barrier { .. } | Wish::Lease { .. } => self.queue.push_back(waiting),
            }
        }
    }

    fn is_quiet_for(&self, asker: Option<SessionId>, sabotage: Sabotage) -> bool {
        let behind = matches!(self.phase, Phase::Exclusive {} | Phase::Write {});
        self.holders.iter().all(|(&session, holder)| {
            if holder.is_live() {
                !behind || (self.phase == (Phase::Exclusive {}) && asker == Some(session))
            } else {
                sabotage.has(Bug::LookPastDead)
            }
        })
    }

    fn serve_stop(&mut self, ticket: Ticket, turn: &mut Turn<'_>) -> bool {
        if !self.holders.is_empty() {
            self.recall_all(turn);
            return false;
        }
        self.queue.pop_front();
        self.stop = Some(ticket);
        turn.out.push(Action::Quiet { ticket });
        true
    }

    /// Serves the request at the head, or says that it must wait.
    fn serve(&mut self, ask: Ask, turn: &mut Turn<'_>) -> bool {
        match self.way(ask, turn.sabotage) {
            Way::Wait => return false,
            Way::Same { number } => self.grant_again(ask, number, turn),
            Way::Join => self.grant(ask, self.phase, turn),
            Way::Alone => {
                let phase = self.choose_phase(ask);
                if !self.holders.is_empty() && phase != (Phase::Exclusive {}) {
                    self.recall_all(turn);
                    return false;
                }
                self.grant(ask, phase, turn);
            }
            Way::Blocked => {
                self.count_flip(ask, turn);
                self.recall_all(turn);
                return false;
            }
        }
        self.queue.pop_front();
        true
    }

    pub(super) fn way(&self, ask: Ask, sabotage: Sabotage) -> Way {
        let (session, want) = (ask.session, ask.want);
        let party_only = self.is_held_by_party(ask) && self.mixed_since.is_none();
        let own = self.holders.get(&session).map(|holder| holder.state);
        match own {
            Some(State::Held { number }) if suffices(self.phase, want) => return Way::Same { number },
            Some(State::Recalled { number })
                if sabotage.has(Bug::RegrantRecalled) && suffices(self.phase, want) =>
            {
                return Way::Same { number };
            }
            Some(State::Held { .. }) if party_only => return Way::Alone,
            None if self.holders.is_empty() => return Way::Alone,
            None if party_only && !suffices(self.phase, want) => return Way::Alone,
            Some(_) | None => {}
        }
        let shares = sabotage.has(Bug::ShareExclusive) && self.phase == (Phase::Exclusive {});
        if !shares && !self.fits(ask) {
            return Way::Blocked;
        }
        // An own lease that fits but is not `Held` is on its way back.
        let all_live = self.holders.values().all(Holder::is_live);
        if own.is_none() && all_live { Way::Join } else { Way::Wait }
    }

    /// Whether one more holder with this wish can be in the present phase.
    fn fits(&self, ask: Ask) -> bool {
        let want = ask.want;
        match self.phase {
            Phase::Exclusive {} => self.mixed_since.is_none() && self.is_held_by_party(ask),
            Phase::Write {} => self.mixed_since.is_none() && want == (Want::Write {}),
            Phase::Read {} => self.mixed_since.is_none() && want == (Want::Read {}),
            Phase::Mixed {} => self.mixed_since.is_some(),
        }
    }

    /// Whether all holders are the asker and its party, with leases that nobody wants back.
    fn is_held_by_party(&self, ask: Ask) -> bool {
        self.holders.iter().all(|(&session, holder)| {
            let own = session == ask.session || ask.party.is_one_with(holder.party);
            own && matches!(holder.state, State::Held { .. })
        })
    }

    /// The phase for a request at the head of a file that is otherwise free.
    fn choose_phase(&self, ask: Ask) -> Phase {
        if self.mixed_since.is_some() {
            return Phase::Mixed {};
        }
        match ask.want {
            Want::Read {} if self.holders.is_empty() => Phase::Read {},
            Want::Read {} => Phase::Exclusive {},
            Want::Write {} if self.more_writers(ask) => Phase::Write {},
            Want::Write {} | Want::WriteTogether {} => Phase::Exclusive {},
        }
    }

    /// Whether the writer at the head is not the only one: another waits right behind it, or made way for it.
    fn more_writers(&self, first: Ask) -> bool {
        let mut writers = self.queue.iter().map_while(|waiting| match waiting.wish {
            Wish::Lease { session, want: Want::Write {}, party, rival, .. } => {
                let other = session != first.session && !party.is_one_with(first.party);
                Some(other || rival)
            }
            Wish::Lease { .. } | Wish::Barrier { .. } => None,
        });
        writers.any(|another| another)
    }

    /// The writer next in line shares the write phase with `from`, which gave way to it and is likely to be back:
    /// else the two would take the file from each other forever.
    pub(super) fn mark_rival(&mut self, from: SessionId, of: Party) {
        let next = self.queue.iter_mut().find_map(|waiting| match &mut waiting.wish {
            Wish::Lease { session, want, party, rival, .. } => {
                Some((*want, *session != from && !party.is_one_with(of), rival))
            }
            Wish::Barrier { .. } => None,
        });
        if let Some((Want::Write {}, other, rival)) = next {
            *rival = other;
        }
    }

    /// Counts that the request at the head takes the file from another session that uses it the other way; too many
    /// of these put the file into the mixed phase.
    fn count_flip(&mut self, ask: Ask, turn: &mut Turn<'_>) {
        let flips = match self.phase {
            Phase::Exclusive {} | Phase::Write {} => ask.want == Want::Read {},
            Phase::Read {} => ask.want == Want::Write {},
            Phase::Mixed {} => false,
        };
        let taken = self.holders.iter().any(|(&session, holder)| {
            session != ask.session && !ask.party.is_one_with(holder.party) && holder.is_live()
        });
        let Some(Waiting { wish: Wish::Lease { flip_counted, .. }, .. }) = self.queue.front_mut() else {
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

    /// Whether the mixed phase has lasted long enough and what is left is one session, or one kind of user.
    pub(super) fn mixed_is_over(&self, now: Nanos) -> bool {
        let Some(since) = self.mixed_since else { return false };
        if self.phase() != Some(Phase::Mixed {}) || now.since(since) < MIXED_MIN {
            return false;
        }
        let held = self.holders.iter().map(|(&session, holder)| (session, holder.reads, holder.writes));
        let wanted = self.queue.iter().filter_map(|waiting| match waiting.wish {
            Wish::Lease { session, want, .. } => {
                Some((session, want == Want::Read {}, want == Want::Write {}))
            }
            Wish::Barrier { .. } => None,
        });
        let users: Vec<(SessionId, bool, bool)> = held.chain(wanted).collect();
        let one_session = users.iter().all(|user| user.0 == users[0].0);
        one_session || !users.iter().any(|user| user.1) || !users.iter().any(|user| user.2)
    }

    pub(super) fn leave_mixed(&mut self, turn: &mut Turn<'_>) {
        self.mixed_since = None;
        // Whoever still uses the file asks anew and gets a phase in which it may cache or write behind.
        self.recall_all(turn);
    }
}

/// Acts.
impl File {
    pub(super) fn grant_again(&mut self, ask: Ask, number: u64, turn: &mut Turn<'_>) {
        if let Some(holder) = self.holders.get_mut(&ask.session) {
            holder.note(ask.want);
        }
        let lease = Lease { inode: turn.inode, number, phase: self.phase };
        turn.out.push(Action::Grant { ticket: ask.ticket, session: ask.session, lease });
    }

    pub(super) fn grant(&mut self, ask: Ask, phase: Phase, turn: &mut Turn<'_>) {
        let number = *turn.next_number;
        *turn.next_number = number.wrapping_add(1);
        self.phase = phase;
        let state = State::Held { number };
        self.holders.insert(ask.session, Holder { state, party: ask.party, reads: false, writes: false });
        self.grant_again(ask, number, turn);
    }

    /// Recalls every lease in use that was not recalled before.
    fn recall_all(&mut self, turn: &mut Turn<'_>) {
        if turn.sabotage.has(Bug::ForgetRecall) && self.queue.len() > 1 {
            return;
        }
        for (&session, holder) in &mut self.holders {
            let number = match holder.state {
                State::Held { number } => number,
                State::Recalled { number } if turn.sabotage.has(Bug::RecallTwice) => number,
                State::Recalled { .. } | State::Absent | State::Settling => continue,
            };
            holder.state = State::Recalled { number };
            turn.out.push(Action::Recall { session, inode: turn.inode, number });
        }
    }

    /// Ends a hold. The last user of the mixed phase ends it; so does one that leaves only one kind behind.
    pub(super) fn remove(&mut self, session: SessionId, turn: &mut Turn<'_>) {
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
