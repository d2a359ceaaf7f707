//! Pieces of an object, one by one and in rows, and the set of its bytes that are written already.
//!
//! Never: knows the writer of a piece; iterates over the pieces of a row to add it up. Always: covered bytes are kept as disjoint ranges
//! that do not touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that are contiguous in the object and in the slice's data.
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

/// Cuts of equal length at equal distances, contiguous in the slice's data: the pieces that one loop of a view writes into a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CutRow {
    /// The first cut.
    pub(super) first: Cut,
    pub(super) count: u32,
    /// Distance in the object between the starts of neighbouring cuts.
    pub(super) stride: u32,
}

impl CutRow {
    /// A single cut.
    #[inline]
    pub(super) fn one(cut: Cut) -> CutRow {
        CutRow { first: cut, count: 1, stride: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.count) * u64::from(self.first.bytes)
    }

    /// End of the last cut.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.first.end() + u64::from(self.count.saturating_sub(1)) * u64::from(self.stride)
    }

    /// Whether each cut begins at or after the end of the previous one.
    #[inline]
    pub(super) fn ascends(&self) -> bool {
        self.count <= 1 || self.first.bytes <= self.stride
    }

    pub(super) fn cuts(self) -> impl Iterator<Item = Cut> {
        (0..self.count).map(move |number| self.cut(number))
    }

    #[inline]
    fn cut(&self, number: u32) -> Cut {
        Cut {
            local: self.first.local + u64::from(number) * u64::from(self.stride),
            data_at: self.first.data_at + number * self.first.bytes,
            bytes: self.first.bytes,
        }
    }

    /// Number of leading cuts that lie entirely below an offset of the object.
    pub(super) fn whole_below(&self, place: u64) -> u32 {
        if self.end() <= place {
            return self.count;
        }
        match place.checked_sub(self.first.end()) {
            None => 0,
            // With a stride of 0 the end of the first cut would be the end of all.
            Some(room) => {
                u32::try_from(room / u64::from(self.stride.max(1)) + 1).unwrap_or(u32::MAX).min(self.count)
            }
        }
    }

    /// Drops the first cuts.
    #[inline]
    pub(super) fn skip(&mut self, cuts: u32) {
        self.first = self.cut(cuts);
        self.count -= cuts;
    }
}

/// Covered bytes of an object: disjoint ranges.
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

    /// Whether a byte of a range is covered.
    pub(super) fn touches(&self, range: Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, to)| range.start < *to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(local: u64, bytes: u32, stride: u32, count: u32) -> CutRow {
        CutRow { first: Cut { local, data_at: 100, bytes }, count, stride }
    }

    #[test]
    fn a_row_is_its_cuts() {
        let three = row(1000, 4, 10, 3);
        let cuts: Vec<(u64, u32, u32)> =
            three.cuts().map(|cut| (cut.local, cut.data_at, cut.bytes)).collect();
        assert_eq!(cuts, [(1000, 100, 4), (1010, 104, 4), (1020, 108, 4)]);
        assert_eq!((three.bytes(), three.end()), (12, 1024));
        let mut rest = three;
        rest.skip(2);
        assert_eq!((rest.cuts().collect::<Vec<_>>(), rest.end()), (three.cuts().skip(2).collect(), 1024));
        rest.skip(1);
        assert_eq!((rest.count, rest.bytes()), (0, 0));
    }

    #[test]
    fn cuts_lie_below_a_place_with_all_their_bytes_or_not() {
        let three = row(1000, 4, 10, 3);
        for (place, whole) in
            [(0, 0), (1000, 0), (1003, 0), (1004, 1), (1013, 1), (1014, 2), (1023, 2), (1024, 3), (9999, 3)]
        {
            assert_eq!(three.whole_below(place), whole, "{place}");
        }
        assert_eq!((row(5, 3, 0, 1).whole_below(7), row(5, 3, 0, 1).whole_below(8)), (0, 1));
    }

    #[test]
    fn rows_that_overlap_themselves_do_not_ascend() {
        assert!(row(0, 4, 4, 9).ascends() && row(0, 4, 0, 1).ascends());
        assert!(!row(0, 4, 3, 2).ascends());
    }
}
