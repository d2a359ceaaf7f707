//! Pieces of an object, and which of its bytes are settled.
//!
//! Never: knows whose they are. Always: what is settled is kept as disjoint ranges that do not touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that lie together in the object and in the slice's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) local: u64,
    pub(super) data_at: u32,
    pub(super) bytes: u32,
}

impl Cut {
    pub(super) fn end(&self) -> u64 {
        self.local + u64::from(self.bytes)
    }
}

/// A part of a cut.
pub(super) fn sub_cut(cut: &Cut, rest: &Range<u64>) -> Cut {
    #[expect(clippy::cast_possible_truncation, reason = "inside a cut")]
    let (skip, bytes) = ((rest.start - cut.local) as u32, (rest.end - rest.start) as u32);
    Cut { local: rest.start, data_at: cut.data_at.saturating_add(skip), bytes }
}

/// Bytes of an object that are settled: disjoint ranges.
#[derive(Default)]
pub(super) struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds a range; `fresh` gets the parts that were not covered.
    pub(super) fn add(&mut self, range: Range<u64>, mut fresh: impl FnMut(Range<u64>)) {
        let before = self.0.range(..range.start).next_back().filter(|(_, to)| range.start <= **to);
        let first = before.map_or(range.start, |(from, _)| *from);
        let touched: Vec<(u64, u64)> =
            self.0.range(first..=range.end).map(|(from, to)| (*from, *to)).collect();
        let (mut start, mut end, mut at) = (range.start, range.end, range.start);
        for (from, to) in touched {
            self.0.remove(&from);
            if at < from {
                fresh(at..from);
            }
            (start, end, at) = (start.min(from), end.max(to), at.max(to));
        }
        if at < range.end {
            fresh(at..range.end);
        }
        self.0.insert(start, end);
    }

    /// Whether a byte of a range is.
    pub(super) fn touches(&self, range: Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, to)| range.start < *to)
    }
}
