//! Pending records, as seen by the decision how much a round drains.
//!
//! Many small records of one writer show together what a single one does not: that they leave holes for pieces of other writers. Records
//! that follow each other in an object, at distances that the other writers of the group can fill, therefore count as one.
//!
//! Never: reads record data. Always: records are joined only within one outbox and one object.

use std::ops::Range;

use pario_core::{Nanos, ObjectId};

/// Records of one outbox that ascend in one object, or an intent.
#[derive(Clone, Debug)]
pub(super) struct PendingRecord {
    /// Index of the outbox.
    pub(super) outbox: usize,
    /// Commit time of the first and of the last record.
    pub(super) committed: Nanos,
    pub(super) newest: Nanos,
    pub(super) object: ObjectId,
    /// Number of writers of the object on this node, as announced by its writer.
    pub(super) local_writers: usize,
    /// From the first to the last byte in the object, without the bytes drained before.
    pub(super) span: Range<u64>,
    pub(super) bytes: u64,
    /// It must be drained whole: an intent, or a record with pieces that do not ascend.
    pub(super) is_whole: bool,
    /// Several records, none of which leaves holes by itself.
    pub(super) is_joined: bool,
}

impl PendingRecord {
    /// Covers less than nine tenths of the range between its first and its last byte.
    pub(super) fn leaves_holes(&self) -> bool {
        !is_dense(self.bytes, self.span.end - self.span.start)
    }

    /// Estimate of its bytes below an offset.
    pub(super) fn bytes_below(&self, below: u64) -> u64 {
        let length = self.span.end - self.span.start;
        let part = below.clamp(self.span.start, self.span.end) - self.span.start;
        let bytes = u128::from(self.bytes) * u128::from(part) / u128::from(length.max(1));
        u64::try_from(bytes).unwrap_or(self.bytes)
    }
}

/// At least nine tenths are covered.
pub(super) fn is_dense(bytes: u64, of: u64) -> bool {
    u128::from(of) * 9 <= u128::from(bytes) * 10
}

/// Records in commit order; consecutive ones are joined, in the order of their first commits.
pub(super) fn joined(records: impl Iterator<Item = PendingRecord>) -> Vec<PendingRecord> {
    let mut all: Vec<RecordSeries> = Vec::new();
    let mut last: Vec<Option<usize>> = Vec::new();
    for record in records {
        if last.len() <= record.outbox {
            last.resize(record.outbox + 1, None);
        }
        let mine = &mut last[record.outbox];
        match mine.map(|number| &mut all[number]).filter(|series| series.is_followed_by(&record)) {
            Some(series) => series.add(&record),
            None => {
                // A record that leaves holes by itself is not joined.
                *mine = (!record.is_whole && !record.leaves_holes()).then_some(all.len());
                all.push(RecordSeries { run: record.bytes, longest: record.bytes, due: record });
            }
        }
    }
    all.into_iter().map(|series| series.due).collect()
}

/// Records of one writer without holes of their own; contiguous bytes at their end, and the maximum of that.
struct RecordSeries {
    due: PendingRecord,
    run: u64,
    longest: u64,
}

impl RecordSeries {
    /// Whether a record continues at the end of this series, or leaves no more space than the other writers of its group fill with as many
    /// bytes each.
    fn is_followed_by(&self, next: &PendingRecord) -> bool {
        let others = self.due.local_writers.saturating_sub(1) as u64;
        let room = self.longest.saturating_mul(others);
        self.due.object == next.object
            && self.due.local_writers == next.local_writers
            && !next.is_whole
            && !next.leaves_holes()
            && next.span.start.checked_sub(self.due.span.end).is_some_and(|gap| gap <= room)
    }

    fn add(&mut self, next: &PendingRecord) {
        let follows = next.span.start == self.due.span.end;
        self.run = if follows { self.run.saturating_add(next.bytes) } else { next.bytes };
        self.longest = self.longest.max(self.run);
        self.due.span.end = next.span.end;
        self.due.bytes = self.due.bytes.saturating_add(next.bytes);
        self.due.newest = next.committed;
        self.due.is_joined = true;
    }
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId};

    use super::*;

    fn record(place: usize, committed: u64, span: Range<u64>) -> PendingRecord {
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        let (committed, bytes) = (Nanos(committed), span.end - span.start);
        PendingRecord {
            outbox: place,
            committed,
            newest: committed,
            object,
            local_writers: 4,
            span,
            bytes,
            is_whole: false,
            is_joined: false,
        }
    }

    fn of_another(due: PendingRecord) -> PendingRecord {
        PendingRecord { object: ObjectId { inode: InodeId(2), ..due.object }, ..due }
    }

    /// Outbox, first and last commit, span and bytes of each.
    fn seen(records: Vec<PendingRecord>) -> Vec<(usize, u64, u64, Range<u64>, u64)> {
        let tell = |due: PendingRecord| (due.outbox, due.committed.0, due.newest.0, due.span, due.bytes);
        joined(records.into_iter()).into_iter().map(tell).collect()
    }

    #[test]
    fn pieces_of_an_interleaved_pattern_are_one_with_holes() {
        let records = vec![
            record(0, 1, 0..10),
            record(1, 2, 10..20),
            record(0, 3, 40..50),
            record(1, 4, 50..60),
            record(0, 5, 80..90),
        ];
        assert_eq!(seen(records.clone()), [(0, 1, 5, 0..90, 30), (1, 2, 4, 10..60, 20)]);
        assert!(joined(records.into_iter()).iter().all(PendingRecord::leaves_holes));
    }

    #[test]
    fn pieces_in_a_row_are_one_without_holes_for_whomever() {
        let alone = |due: PendingRecord| PendingRecord { local_writers: 0, ..due };
        let records =
            vec![alone(record(0, 1, 0..10)), alone(record(0, 2, 10..20)), alone(record(0, 3, 21..30))];
        assert_eq!(seen(records), [(0, 1, 2, 0..20, 20), (0, 3, 3, 21..30, 9)]);
    }

    #[test]
    fn what_others_of_the_group_cannot_fill_is_left_apart() {
        let apart: [(&str, Vec<PendingRecord>); 6] = [
            ("further than three others fill", vec![record(0, 1, 0..10), record(0, 2, 41..51)]),
            ("backwards", vec![record(0, 1, 40..50), record(0, 2, 0..10)]),
            ("over each other", vec![record(0, 1, 0..10), record(0, 2, 9..19)]),
            ("another object", vec![record(0, 1, 0..10), of_another(record(0, 2, 10..20))]),
            (
                "an intent",
                vec![record(0, 1, 0..10), PendingRecord { is_whole: true, ..record(0, 2, 10..20) }],
            ),
            (
                "holes of its own",
                vec![PendingRecord { bytes: 5, ..record(0, 1, 0..10) }, record(0, 2, 10..20)],
            ),
        ];
        for (why, records) in apart {
            assert_eq!(joined(records.into_iter()).len(), 2, "{why}");
        }
    }

    #[test]
    fn a_long_run_is_the_measure_also_where_a_block_ends_in_a_piece() {
        let records =
            vec![record(0, 1, 0..16), record(0, 2, 16..20), record(0, 3, 68..70), record(0, 4, 130..150)];
        assert_eq!(seen(records), [(0, 1, 4, 0..150, 42)]);
    }
}
