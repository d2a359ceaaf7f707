//! A set of bytes of one block, as sorted ranges that neither overlap nor touch: what a cache knows, or has not written down.
//!
//! Never: allocates by anything but the number of ranges. Always: sorted, apart from each other.

use std::collections::BTreeMap;
use std::ops::Range;

/// Byte positions within a block.
pub type Span = Range<usize>;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges {
    /// Ends by starts: a block may hold very many pieces, that come in any order.
    spans: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Ranges {
    /// Whether no byte is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.bytes = 0;
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().map(|(start, end)| *start..*end)
    }

    /// Bytes in it.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the bytes of `span`, joining what it touches.
    pub fn insert(&mut self, span: Span) {
        if span.is_empty() {
            return;
        }
        let mut joined = span;
        while let Some((start, end)) = self.last_before(joined.end).filter(|(_, end)| joined.start <= *end) {
            self.spans.remove(&start);
            self.bytes -= end - start;
            joined = joined.start.min(start)..joined.end.max(end);
        }
        self.bytes += joined.len();
        self.spans.insert(joined.start, joined.end);
    }

    /// Takes out everything from `start` on.
    pub fn cut(&mut self, start: usize) {
        let beyond = self.spans.split_off(&start);
        self.bytes -= beyond.iter().map(|(from, to)| to - from).sum::<usize>();
        if let Some(mut last) = self.spans.last_entry()
            && start < *last.get()
        {
            self.bytes -= *last.get() - start;
            last.insert(start);
        }
    }

    /// Whether all of `span` is in it.
    #[must_use]
    pub fn covers(&self, span: &Span) -> bool {
        span.is_empty() || self.last_before(span.start).is_some_and(|(_, end)| span.end <= end)
    }

    /// The parts of `within` that are not in the set.
    #[must_use]
    pub fn gaps(&self, within: Span) -> Vec<Span> {
        let mut gaps = Vec::new();
        let first = self.last_before(within.start).map_or(within.start, |(start, _)| start);
        let mut at = within.start;
        for (start, end) in self.spans.range(first..within.end.max(first)) {
            if at < *start {
                gaps.push(at..*start);
            }
            at = at.max(*end);
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

    /// The last range that starts at or before a place.
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
            at in 0..SPACE, bytes in 0..SPACE,
        ) {
            let (mut ranges, mut expected) = (Ranges::default(), [false; SPACE]);
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
}
