//! Shared rounds: several applications have outboxes and there is an I/O queue. Each round drains a quantum of one conflict group, by
//! weight.
//!
//! A message is written together with all records of the conflict group that has records of its object: they were committed before.
//!
//! Never: lets a conflict group that is still in its merge wait delay another group. Always: a round that leaves records is followed by
//! another one immediately.

use pario_core::{Clock, Nanos};

use super::conflict_groups::ConflictGroups;
use super::merge_wait::{Conditions, Cutoff};
use super::scan::{DrainLimit, Scan};
use super::worker::DrainWorker;

/// Selection of a shared round.
struct RoundPlan {
    limit: DrainLimit,
    /// Less than was pending, because of the quantum.
    is_cut: bool,
}

impl DrainWorker {
    /// The conflict groups with pending records; `None` where nothing is shared.
    pub(super) fn conflict_groups(&self, scan: &Scan) -> Option<ConflictGroups> {
        // Partly drained records must be completed first, of whichever application.
        let desk = self.io_queue.as_ref().filter(|_| !self.must_complete)?;
        let mut circles = ConflictGroups::find(scan, &self.outboxes, desk)?;
        let drains = self.drains.iter().map(|drain| (drain.session, drain.position));
        let all = self.drain_alls.iter().flat_map(|all| all.positions.iter().copied());
        for (session, position) in drains.chain(all) {
            if let Some(place) = self.outboxes.index_of(session)
                && self.outboxes.at(place).drained < position
            {
                circles.wait_for(place);
            }
        }
        Some(circles)
    }

    /// Drains the selection of one conflict group, and the records that messages require.
    pub(super) fn shared_round(&mut self, scan: Scan, circles: &ConflictGroups) -> bool {
        let plan = self.plan(&scan, circles);
        let began = self.clock.now();
        let taken = self.drain(scan, &plan.limit);
        self.shares.charge(&circles.list, &circles.sums(&taken.by_outbox));
        if plan.is_cut && taken.found {
            self.shares.adapt_quantum(self.clock.now().since(began));
        }
        self.more = taken.more;
        taken.found
    }

    fn plan(&mut self, scan: &Scan, circles: &ConflictGroups) -> RoundPlan {
        let mood = self.conditions(false);
        let mut taken = self.before_messages(scan, circles, mood);
        let (mut until, mut is_cut) = (None::<Nanos>, false);
        for circle in self.shares.order(&circles.list) {
            if taken.iter().any(|(of, _)| *of == circle) {
                break;
            }
            let (upto, wait) = self.decide(scan, mood, &|place| circles.has(circle, place));
            if let Some(wait) = wait {
                until = Some(until.map_or(wait, |until| until.min(wait)));
            }
            let takes = match upto {
                Cutoff::Committed(before) => circles.list[circle].oldest < before,
                Cutoff::Below(_) => true,
            };
            if takes {
                let quantum = self.shares.quantum(circles.outbox_bytes(circle, &self.outboxes));
                let cut;
                (cut, is_cut) = circles.cut(scan, (circle, upto), quantum);
                taken.push((circle, cut));
                break;
            }
        }
        self.wait_until = until;
        RoundPlan { limit: circles.limit(&taken), is_cut }
    }

    /// Records that must be drained before, or with, the messages that have arrived: all that can overlap them.
    fn before_messages(
        &mut self,
        scan: &Scan,
        circles: &ConflictGroups,
        mood: Conditions,
    ) -> Vec<(usize, Cutoff)> {
        let touched = self.writes.iter().filter_map(|(write, _, _)| circles.of_object(write.object));
        let mut touched: Vec<usize> = touched.collect();
        touched.sort_unstable();
        touched.dedup();
        let mood = Conditions { urgent: true, ..mood };
        let all = |circle| (circle, self.decide(scan, mood, &|place| circles.has(circle, place)).0);
        touched.into_iter().map(all).collect()
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
