//! Shared rounds: which applications have pending records, which of them must be served together, and how much one round drains.
//!
//! Never: puts two applications that have records of one object into different conflict groups. Always: within a conflict group a round
//! drains the records committed first, or the bytes below an offset of its only object, so commit order holds wherever writes overlap.

use std::collections::HashMap;

use pario_core::{Nanos, ObjectId};
use pario_sched::ApplicationId;

use super::merge_wait::{Cutoff, can_be_cut};
use super::outboxes::Outboxes;
use super::pending::PendingRecord;
use super::scan::{DrainLimit, Scan, Scanned};
use super::shares::ConflictGroup;
use crate::io_queue::IoQueue;

/// Applications with pending records, by conflict group; a single group if the other applications with outboxes have none pending.
pub(super) struct ConflictGroups {
    pub(super) list: Vec<ConflictGroup>,
    /// The conflict group of each outbox; `None`: it has nothing for this server.
    of_outbox: Vec<Option<usize>>,
    of_object: HashMap<ObjectId, usize>,
}

impl ConflictGroups {
    /// `None` unless at least two applications have outboxes here, and records are pending.
    pub(super) fn find(scan: &Scan, outboxes: &Outboxes, desk: &IoQueue) -> Option<ConflictGroups> {
        let places = outboxes.len();
        if places < 2 {
            return None;
        }
        let mut has_some = vec![false; places];
        let ours = scan.records.iter().filter(|record| record.concerns_us());
        ours.for_each(|record| has_some[record.outbox] = true);
        let parties = desk.applications_of((0..places).map(|place| outboxes.at(place).session));
        let several = parties.iter().any(|party| party.0 != parties[0].0);
        if !several || !has_some.contains(&true) {
            return None;
        }
        let mut of_application: HashMap<ApplicationId, usize> = HashMap::new();
        let mut joined = DisjointSets::default();
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
            let Some(at) = of_place[record.outbox] else { continue };
            joined.join(*of_object.entry(record.object()).or_insert(at), at);
        }
        let mut circles = ConflictGroups { list: Vec::new(), of_outbox: of_place, of_object };
        circles.assign_groups(&joined, &weights);
        circles.mark_waited(scan, outboxes);
        Some(circles)
    }

    /// Maps application numbers to conflict-group numbers.
    fn assign_groups(&mut self, joined: &DisjointSets, weights: &[(ApplicationId, u32)]) {
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut of_application = Vec::with_capacity(weights.len());
        for (at, party) in weights.iter().enumerate() {
            let number = *numbers.entry(joined.root(at)).or_insert(self.list.len());
            if number == self.list.len() {
                self.list.push(ConflictGroup { members: Vec::new(), waited: false, oldest: Nanos(u64::MAX) });
            }
            self.list[number].members.push(*party);
            of_application.push(number);
        }
        self.of_outbox.iter_mut().flatten().for_each(|at| *at = of_application[*at]);
        self.of_object.values_mut().for_each(|at| *at = of_application[*at]);
    }

    fn mark_waited(&mut self, scan: &Scan, outboxes: &Outboxes) {
        for (place, circle) in self.of_outbox.iter().enumerate() {
            if let Some(circle) = circle {
                self.list[*circle].waited |= outboxes.at(place).is_waited_for();
            }
        }
        for record in scan.records.iter().filter(|record| record.concerns_us()) {
            if let Some(circle) = self.of_outbox[record.outbox] {
                let oldest = &mut self.list[circle].oldest;
                *oldest = (*oldest).min(record.committed());
            }
        }
    }

    /// A caller waits for records of this outbox.
    pub(super) fn wait_for(&mut self, place: usize) {
        if let Some(circle) = self.of_outbox.get(place).copied().flatten() {
            self.list[circle].waited = true;
        }
    }

    pub(super) fn has(&self, circle: usize, place: usize) -> bool {
        self.of_outbox.get(place) == Some(&Some(circle))
    }

    /// The conflict group that has records of an object.
    pub(super) fn of_object(&self, object: ObjectId) -> Option<usize> {
        self.of_object.get(&object).copied()
    }

    /// The limit of a round: a cutoff for some groups, nothing of the others. Outboxes with nothing for this server are skipped.
    pub(super) fn limit(&self, taken: &[(usize, Cutoff)]) -> DrainLimit {
        let upto = |circle: &Option<usize>| match circle {
            None => Cutoff::ALL,
            Some(circle) => {
                taken.iter().find(|(of, _)| of == circle).map_or(Cutoff::NOTHING, |(_, upto)| *upto)
            }
        };
        DrainLimit::Each(self.of_outbox.iter().map(upto).collect())
    }

    /// Bytes per conflict group from bytes per outbox.
    pub(super) fn sums(&self, by_place: &[u64]) -> Vec<u64> {
        let mut sums = vec![0; self.list.len()];
        for (circle, bytes) in self.of_outbox.iter().zip(by_place) {
            if let Some(circle) = circle {
                sums[*circle] += bytes;
            }
        }
        sums
    }

    /// The smallest outbox of a conflict group.
    pub(super) fn outbox_bytes(&self, circle: usize, outboxes: &Outboxes) -> u64 {
        let places = (0..self.of_outbox.len()).filter(|place| self.has(circle, *place));
        places.map(|place| outboxes.at(place).outbox.capacity()).min().unwrap_or(u64::MAX)
    }

    /// The same with about one quantum of bytes at most, and at least one record. Also returns whether less is drained than could be.
    ///
    /// Records that interleave are cut only by offset: in commit order each would be written in its own small pieces.
    pub(super) fn cut(&self, scan: &Scan, (circle, upto): (usize, Cutoff), quantum: u64) -> (Cutoff, bool) {
        let due = scan.pending(&|place| self.has(circle, place));
        let has_holes = due.iter().any(|due| due.leaves_holes() && !due.is_joined);
        let cut = match upto {
            Cutoff::Below(below) => Cutoff::Below(offset_of_quantum(&due, below, quantum)),
            Cutoff::ALL if has_holes && can_be_cut(&due) => {
                let end = due.iter().map(|due| due.span.end).max().unwrap_or(0);
                let below = offset_of_quantum(&due, end, quantum);
                if below < end { Cutoff::Below(below) } else { upto }
            }
            Cutoff::Committed(_) if has_holes => upto,
            Cutoff::Committed(before) => {
                let mine = scan.records.iter().filter(|record| self.has(circle, record.outbox));
                Cutoff::Committed(end_of_quantum(mine, quantum).min(before))
            }
        };
        (cut, cut != upto)
    }
}

/// The commit time of the first record, in commit order, that a quantum leaves.
fn end_of_quantum<'s>(records: impl Iterator<Item = &'s Scanned>, quantum: u64) -> Nanos {
    let (mut bytes, mut last) = (0, Nanos(u64::MAX));
    for record in records {
        // Records with equal commit times are not separated.
        if quantum <= bytes && last < record.committed() {
            return record.committed();
        }
        bytes += record.bytes_left();
        last = record.committed();
    }
    Nanos(u64::MAX)
}

/// The lowest offset with a quantum below it, at most `below`.
fn offset_of_quantum(due: &[PendingRecord], below: u64, quantum: u64) -> u64 {
    let bytes = |place: u64| due.iter().map(|due| due.bytes_below(place)).sum::<u64>();
    let (mut low, mut high) = (0, below);
    while low < high {
        let middle = low + (high - low) / 2;
        if bytes(middle) < quantum { low = middle + 1 } else { high = middle }
    }
    high
}

/// Disjoint sets of numbers (union-find).
#[derive(Default)]
struct DisjointSets(Vec<usize>);

impl DisjointSets {
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
        let mut joined = DisjointSets::default();
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
        let due = |place, span: std::ops::Range<u64>, bytes| PendingRecord {
            outbox: place,
            committed: Nanos(1),
            newest: Nanos(1),
            object,
            local_writers: 0,
            span,
            bytes,
            is_whole: false,
            is_joined: false,
        };
        let due = [due(0, 0..1000, 500), due(1, 0..1000, 500), due(0, 1000..2000, 100)];
        assert_eq!(offset_of_quantum(&due, 2000, 400), 400);
        assert_eq!(offset_of_quantum(&due, 300, 400), 300, "no more than fits together");
        assert_eq!(offset_of_quantum(&due, 2000, 4000), 2000);
        assert_eq!(offset_of_quantum(&[], 2000, 1), 2000);
    }
}
