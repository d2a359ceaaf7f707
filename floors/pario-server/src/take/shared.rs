//! Rounds where several applications have outboxes and there is a desk: each takes a quantum of one circle, by weight.
//!
//! A message is written together with everything of the circle that has records of its object: they were committed before.
//!
//! Never: lets a circle that need not be taken yet keep another from its turn. Always: what is left over is looked at again at once.

use pario_core::{Clock, Nanos};

use super::Worker;
use super::circles::Circles;
use super::patience::{Mood, Upto};
use super::scan::{Portion, Scan};

/// What a shared round takes.
struct Plan {
    portion: Portion,
    /// Less than there was, because of the quantum.
    is_cut: bool,
}

impl Worker {
    /// The circles whose records wait; `None` where there is nothing to share.
    pub(super) fn circles(&self, scan: &Scan) -> Option<Circles> {
        // Records that were taken in part must be over first, whosever they are.
        let desk = self.desk.as_ref().filter(|_| !self.hurry)?;
        let mut circles = Circles::find(scan, &self.outboxes, desk)?;
        let drains = self.drains.iter().map(|drain| (drain.session, drain.position));
        let all = self.take_alls.iter().flat_map(|all| all.positions.iter().copied());
        for (session, position) in drains.chain(all) {
            if let Some(place) = self.outboxes.place(session)
                && self.outboxes.at(place).taken < position
            {
                circles.wait_for(place);
            }
        }
        Some(circles)
    }

    /// Takes what is due of one circle, and what messages need.
    pub(super) fn shared_round(&mut self, scan: Scan, circles: &Circles) -> bool {
        let plan = self.plan(&scan, circles);
        let began = self.clock.now();
        let taken = self.take(scan, &plan.portion);
        self.shares.charge(&circles.list, &circles.sums(&taken.by_place));
        if plan.is_cut && taken.found {
            self.shares.took(self.clock.now().since(began));
        }
        self.more = taken.more;
        taken.found
    }

    fn plan(&mut self, scan: &Scan, circles: &Circles) -> Plan {
        let mood = self.mood(false);
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
                Upto::Committed(before) => circles.list[circle].oldest < before,
                Upto::Below(_) => true,
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
        Plan { portion: circles.portion(&taken), is_cut }
    }

    /// What must be taken before, or with, the messages that have come: everything that can touch their bytes.
    fn before_messages(&mut self, scan: &Scan, circles: &Circles, mood: Mood) -> Vec<(usize, Upto)> {
        let touched = self.writes.iter().filter_map(|(write, _, _)| circles.of_object(write.object));
        let mut touched: Vec<usize> = touched.collect();
        touched.sort_unstable();
        touched.dedup();
        let mood = Mood { urgent: true, ..mood };
        let all = |circle| (circle, self.decide(scan, mood, &|place| circles.has(circle, place)).0);
        touched.into_iter().map(all).collect()
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
