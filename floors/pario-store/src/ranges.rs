//! A set of bytes of one block, as sorted ranges that neither overlap nor touch: the valid or the dirty bytes of a cache.
//!
//! Few ranges are kept as a tree; many, as pieces of a few bytes leave them, as one bit per byte.
//!
//! Never: uses more memory than bits for twice the block's bytes, plus a few ranges. Always: sorted and disjoint.

mod bits;

use std::collections::BTreeMap;
use std::ops::Range;

use self::bits::Bits;

/// Byte positions within a block.
pub type Span = Range<usize>;

/// More ranges than this are kept as bits: a tree would be larger, and slower to grow.
const FEW_MAX: usize = 256;

/// See the module.
#[derive(Clone, Debug)]
pub struct Ranges(RangeForm);

#[derive(Clone, Debug)]
enum RangeForm {
    Few(RangeTree),
    Many(Bits),
}

/// Ends by starts: pieces arrive in any order.
#[derive(Clone, Debug, Default)]
struct RangeTree {
    spans: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges(RangeForm::Few(RangeTree::default()))
    }
}

impl PartialEq for Ranges {
    fn eq(&self, other: &Ranges) -> bool {
        self.total_bytes() == other.total_bytes() && self.iter().eq(other.iter())
    }
}

impl Eq for Ranges {}

impl Ranges {
    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total_bytes() == 0
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        *self = Ranges::default();
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.from(0)
    }

    /// Number of bytes in it.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        match &self.0 {
            RangeForm::Few(tree) => tree.bytes,
            RangeForm::Many(bits) => bits.count(),
        }
    }

    /// Adds the bytes of `span`, joined with adjacent ranges.
    #[inline]
    pub fn insert(&mut self, span: Span) {
        match &mut self.0 {
            _ if span.is_empty() => {}
            RangeForm::Few(tree) => {
                tree.insert(span);
                if FEW_MAX < tree.spans.len() {
                    self.become_bits();
                }
            }
            RangeForm::Many(bits) => bits.set(span),
        }
    }

    /// Removes everything from `start` on.
    pub fn cut(&mut self, start: usize) {
        match &mut self.0 {
            RangeForm::Few(tree) => tree.cut(start),
            RangeForm::Many(bits) => bits.cut(start),
        }
    }

    /// Whether all of `span` is in it.
    #[must_use]
    pub fn covers(&self, span: &Span) -> bool {
        match &self.0 {
            _ if span.is_empty() => true,
            RangeForm::Few(tree) => tree.last_before(span.start).is_some_and(|(_, end)| span.end <= end),
            RangeForm::Many(bits) => bits.covers(span.clone()),
        }
    }

    /// The parts of `within` that are not in the set.
    #[must_use]
    pub fn gaps(&self, within: Span) -> Vec<Span> {
        let mut gaps = Vec::new();
        let mut at = within.start;
        for span in self.from(within.start).take_while(|span| span.start < within.end) {
            if at < span.start {
                gaps.push(at..span.start);
            }
            at = at.max(span.end);
        }
        if at < within.end {
            gaps.push(at..within.end);
        }
        gaps
    }

    /// The set with every range widened to multiples of `unit`.
    #[must_use]
    pub fn widened(&self, unit: usize) -> Ranges {
        let mut wide = Ranges::default();
        for span in self.iter() {
            wide.insert(span.start / unit * unit..span.end.next_multiple_of(unit));
        }
        wide
    }

    /// The ranges from a position on, in order; the range that contains it whole or from there.
    fn from(&self, place: usize) -> impl Iterator<Item = Span> + '_ {
        let (few, many) = match &self.0 {
            RangeForm::Few(tree) => (Some(tree.from(place)), None),
            RangeForm::Many(bits) => {
                let after = |span: &Span| bits.next_from(span.end);
                (None, Some(std::iter::successors(bits.next_from(place), after)))
            }
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }

    fn become_bits(&mut self) {
        let mut bits = Bits::default();
        self.iter().for_each(|span| bits.set(span));
        self.0 = RangeForm::Many(bits);
    }
}

impl RangeTree {
    fn insert(&mut self, span: Span) {
        let mut joined = span;
        while let Some((start, end)) = self.last_before(joined.end).filter(|(_, end)| joined.start <= *end) {
            self.spans.remove(&start);
            self.bytes -= end - start;
            joined = joined.start.min(start)..joined.end.max(end);
        }
        self.bytes += joined.len();
        self.spans.insert(joined.start, joined.end);
    }

    fn cut(&mut self, start: usize) {
        let beyond = self.spans.split_off(&start);
        self.bytes -= beyond.iter().map(|(from, to)| to - from).sum::<usize>();
        if let Some(mut last) = self.spans.last_entry()
            && start < *last.get()
        {
            self.bytes -= *last.get() - start;
            last.insert(start);
        }
    }

    fn from(&self, place: usize) -> impl Iterator<Item = Span> + '_ {
        let first = self.last_before(place).filter(|(_, end)| place < *end).map_or(place, |(start, _)| start);
        self.spans.range(first..).map(|(start, end)| *start..*end)
    }

    /// The last range that starts at or before a position.
    fn last_before(&self, at: usize) -> Option<(usize, usize)> {
        self.spans.range(..=at).next_back().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPACE: usize = 64;

    fn bits(ranges: &Ranges) -> [bool; SPACE] {
        let mut bits = [false; SPACE];
        for span in ranges.iter() {
            bits[span].fill(true);
        }
        bits
    }

    proptest! {
        #[test]
        fn behaves_like_a_bit_per_byte(
            steps in prop::collection::vec((0..SPACE, 0..20usize, prop::bool::weighted(0.15)), 1..30),
            at in 0..SPACE, bytes in 0..SPACE, are_bits in prop::bool::ANY,
        ) {
            let (mut ranges, mut expected) = (Ranges::default(), [false; SPACE]);
            if are_bits {
                ranges.become_bits();
            }
            for (start, bytes, cut) in steps {
                if cut {
                    ranges.cut(start);
                    expected[start..].fill(false);
                } else {
                    let end = (start + bytes).min(SPACE);
                    ranges.insert(start..end);
                    expected[start..end].fill(true);
                }
                prop_assert_eq!(bits(&ranges), expected);
            }
            let spans: Vec<Span> = ranges.iter().collect();
            prop_assert!(spans.windows(2).all(|pair| pair[0].end < pair[1].start), "touching: {:?}", spans);
            prop_assert_eq!(ranges.total_bytes(), expected.iter().filter(|bit| **bit).count());
            let within = at..(at + bytes).min(SPACE);
            let mut gaps = [true; SPACE];
            gaps[within.clone()].copy_from_slice(&expected[within.clone()]);
            let mut found = [true; SPACE];
            for gap in ranges.gaps(within.clone()) {
                found[gap].fill(false);
            }
            prop_assert_eq!(found, gaps);
            prop_assert_eq!(ranges.covers(&within), expected[within].iter().all(|bit| *bit));
            let wide = bits(&ranges.widened(8));
            for unit in 0..SPACE / 8 {
                let any = expected[unit * 8..unit * 8 + 8].iter().any(|bit| *bit);
                prop_assert!(wide[unit * 8..unit * 8 + 8].iter().all(|bit| *bit == any));
            }
        }
    }

    #[test]
    fn very_many_ranges_are_kept_as_bits_and_are_the_same() {
        let mut ranges = Ranges::default();
        for number in 0..2 * FEW_MAX {
            assert_eq!(matches!(ranges.0, RangeForm::Many(_)), FEW_MAX < number, "{number}");
            ranges.insert(number * 10 + 3..number * 10 + 7);
        }
        assert!(ranges.iter().enumerate().all(|(number, span)| span == (number * 10 + 3..number * 10 + 7)));
        assert_eq!((ranges.iter().count(), ranges.total_bytes()), (2 * FEW_MAX, 8 * FEW_MAX));
        let again = ranges.clone();
        assert_eq!(again, ranges);
        ranges.insert(0..20 * FEW_MAX);
        assert_ne!(again, ranges);
        let mut few = Ranges::default();
        few.insert(0..20 * FEW_MAX);
        assert_eq!(few, ranges, "equal in both forms");
        ranges.clear();
        assert!(ranges.is_empty() && matches!(ranges.0, RangeForm::Few(_)));
    }
}
