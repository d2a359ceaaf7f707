//! Rounds that are shared: whose records stand in the outboxes, who must be served with whom, and how far a round goes.
//!
//! Never: puts two applications that have records of one object into different circles. Always: within a circle a round takes what
//! was committed first, or what lies below a place of its one object, so the order of commits is kept wherever bytes can meet.

use std::collections::HashMap;

use pario_core::{Nanos, ObjectId};
use pario_sched::ApplicationId;

use super::due::Due;
use super::outboxes::Outboxes;
use super::patience::{Upto, can_be_cut};
use super::scan::{Portion, Scan, Scanned};
use super::shares::Circle;
use crate::desk::Desk;

/// Who has records that wait, by circles; maybe one only, while others that have outboxes have none.
pub(super) struct Circles {
    pub(super) list: Vec<Circle>,
    /// The circle of each outbox; `None`: it has nothing for this server.
    of_place: Vec<Option<usize>>,
    of_object: HashMap<ObjectId, usize>,
}

impl Circles {
    /// `None` unless at least two applications have outboxes here, and records wait.
    pub(super) fn find(scan: &Scan, outboxes: &Outboxes, desk: &Desk) -> Option<Circles> {
        let places = outboxes.len();
        if places < 2 {
            return None;
        }
        let mut has_some = vec![false; places];
        let ours = scan.records.iter().filter(|record| record.concerns_us());
        ours.for_each(|record| has_some[record.place] = true);
        let parties = desk.parties((0..places).map(|place| outboxes.at(place).session));
        let several = parties.iter().any(|party| party.0 != parties[0].0);
        if !several || !has_some.contains(&true) {
            return None;
        }
        let mut of_application: HashMap<ApplicationId, usize> = HashMap::new();
        let mut joined = Joined::default();
        let mut weights = Vec::new();
        let mut of_place = vec![None; places];
        for (place, party) in parties.iter().enumerate().filter(|(place, _)| has_some[*place]) {
            let at = *of_application.entry(party.0).or_insert_with(|| {
                weights.push(*party);
                joined.add()
            });
            of_place[place] = Some(at);
        }
        let mut of_object: HashMap<ObjectId, usize> = HashMap::new();
        for record in scan.records.iter().filter(|record| record.concerns_us()) {
            let Some(at) = of_place[record.place] else { continue };
            joined.join(*of_object.entry(record.object()).or_insert(at), at);
        }
        let mut circles = Circles { list: Vec::new(), of_place, of_object };
        circles.gather(&joined, &weights);
        circles.look_who_waits(scan, outboxes);
        Some(circles)
    }

    /// From numbers of applications to numbers of circles.
    fn gather(&mut self, joined: &Joined, weights: &[(ApplicationId, u32)]) {
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut of_application = Vec::with_capacity(weights.len());
        for (at, party) in weights.iter().enumerate() {
            let number = *numbers.entry(joined.root(at)).or_insert(self.list.len());
            if number == self.list.len() {
                self.list.push(Circle { members: Vec::new(), waited: false, oldest: Nanos(u64::MAX) });
            }
            self.list[number].members.push(*party);
            of_application.push(number);
        }
        self.of_place.iter_mut().flatten().for_each(|at| *at = of_application[*at]);
        self.of_object.values_mut().for_each(|at| *at = of_application[*at]);
    }

    fn look_who_waits(&mut self, scan: &Scan, outboxes: &Outboxes) {
        for (place, circle) in self.of_place.iter().enumerate() {
            if let Some(circle) = circle {
                self.list[*circle].waited |= outboxes.at(place).is_waited_for();
            }
        }
        for record in scan.records.iter().filter(|record| record.concerns_us()) {
            if let Some(circle) = self.of_place[record.place] {
                let oldest = &mut self.list[circle].oldest;
                *oldest = (*oldest).min(record.committed());
            }
        }
    }

    /// Somebody waits for records of this outbox.
    pub(super) fn wait_for(&mut self, place: usize) {
        if let Some(circle) = self.of_place.get(place).copied().flatten() {
            self.list[circle].waited = true;
        }
    }

    pub(super) fn has(&self, circle: usize, place: usize) -> bool {
        self.of_place.get(place) == Some(&Some(circle))
    }

    /// The circle that has records of an object.
    pub(super) fn of_object(&self, object: ObjectId) -> Option<usize> {
        self.of_object.get(&object).copied()
    }

    /// What a round takes: so much of some circles, nothing of the others. Outboxes with nothing for this server are passed over.
    pub(super) fn portion(&self, taken: &[(usize, Upto)]) -> Portion {
        let upto = |circle: &Option<usize>| match circle {
            None => Upto::ALL,
            Some(circle) => {
                taken.iter().find(|(of, _)| of == circle).map_or(Upto::NOTHING, |(_, upto)| *upto)
            }
        };
        Portion::Each(self.of_place.iter().map(upto).collect())
    }

    /// Bytes by circle of bytes by outbox.
    pub(super) fn sums(&self, by_place: &[u64]) -> Vec<u64> {
        let mut sums = vec![0; self.list.len()];
        for (circle, bytes) in self.of_place.iter().zip(by_place) {
            if let Some(circle) = circle {
                sums[*circle] += bytes;
            }
        }
        sums
    }

    /// The smallest outbox of a circle.
    pub(super) fn outbox_bytes(&self, circle: usize, outboxes: &Outboxes) -> u64 {
        let places = (0..self.of_place.len()).filter(|place| self.has(circle, *place));
        places.map(|place| outboxes.at(place).outbox.capacity()).min().unwrap_or(u64::MAX)
    }

    /// The same with about a quantum of bytes at most, and one record at least. Says also whether less is taken than could be.
    ///
    /// Records that leave holes for each other are only cut by place: in the order of commits each would be written in its own small pieces.
    pub(super) fn cut(&self, scan: &Scan, (circle, upto): (usize, Upto), quantum: u64) -> (Upto, bool) {
        let due = scan.due(&|place| self.has(circle, place));
        let has_holes = due.iter().any(|due| due.leaves_holes() && !due.is_joined);
        let cut = match upto {
            Upto::Below(below) => Upto::Below(place_of_quantum(&due, below, quantum)),
            Upto::ALL if has_holes && can_be_cut(&due) => {
                let end = due.iter().map(|due| due.span.end).max().unwrap_or(0);
                let below = place_of_quantum(&due, end, quantum);
                if below < end { Upto::Below(below) } else { upto }
            }
            Upto::Committed(_) if has_holes => upto,
            Upto::Committed(before) => {
                let mine = scan.records.iter().filter(|record| self.has(circle, record.place));
                Upto::Committed(end_of_quantum(mine, quantum).min(before))
            }
        };
        (cut, cut != upto)
    }
}

/// The commit time of the first record, in the order of commits, that a quantum leaves.
fn end_of_quantum<'s>(records: impl Iterator<Item = &'s Scanned>, quantum: u64) -> Nanos {
    let (mut bytes, mut last) = (0, Nanos(u64::MAX));
    for record in records {
        // Records of one moment are not told apart.
        if quantum <= bytes && last < record.committed() {
            return record.committed();
        }
        bytes += record.bytes_left();
        last = record.committed();
    }
    Nanos(u64::MAX)
}

/// The lowest place with a quantum below it, at most `below`.
fn place_of_quantum(due: &[Due], below: u64, quantum: u64) -> u64 {
    let bytes = |place: u64| due.iter().map(|due| due.bytes_below(place)).sum::<u64>();
    let (mut low, mut high) = (0, below);
    while low < high {
        let middle = low + (high - low) / 2;
        if bytes(middle) < quantum { low = middle + 1 } else { high = middle }
    }
    high
}

/// Which of some numbers belong together.
#[derive(Default)]
struct Joined(Vec<usize>);

impl Joined {
    fn add(&mut self) -> usize {
        self.0.push(self.0.len());
        self.0.len() - 1
    }

    fn root(&self, mut at: usize) -> usize {
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId};

    use super::*;

    #[test]
    fn what_is_joined_stays_together() {
        let mut joined = Joined::default();
        (0..6).for_each(|at| assert_eq!(joined.add(), at));
        joined.join(4, 2);
        joined.join(5, 4);
        joined.join(1, 0);
        joined.join(2, 5);
        assert_eq!((0..6).map(|at| joined.root(at)).collect::<Vec<_>>(), [0, 0, 2, 3, 2, 2]);
    }

    #[test]
    fn a_cut_by_place_is_the_lowest_that_has_enough() {
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        let due = |place, span: std::ops::Range<u64>, bytes| Due {
            place,
            committed: Nanos(1),
            newest: Nanos(1),
            object,
            companions: 0,
            span,
            bytes,
            is_whole: false,
            is_joined: false,
        };
        let due = [due(0, 0..1000, 500), due(1, 0..1000, 500), due(0, 1000..2000, 100)];
        assert_eq!(place_of_quantum(&due, 2000, 400), 400);
        assert_eq!(place_of_quantum(&due, 300, 400), 300, "no more than fits together");
        assert_eq!(place_of_quantum(&due, 2000, 4000), 2000);
        assert_eq!(place_of_quantum(&[], 2000, 1), 2000);
    }
}
