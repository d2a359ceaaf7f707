//! A set of bytes of one block, as sorted ranges that neither overlap nor touch: what a cache knows, or has not written down.
//!
//! Never: allocates by anything but the number of ranges. Always: sorted, apart from each other.

use std::ops::Range;

/// Byte positions within a block.
pub type Span = Range<usize>;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges {
    spans: Vec<Span>,
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
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().cloned()
    }

    /// Bytes in it.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.spans.iter().map(ExactSizeIterator::len).sum()
    }

    /// Adds the bytes of `span`, joining what it touches.
    pub fn insert(&mut self, span: Span) {
        if span.is_empty() {
            return;
        }
        let first = self.spans.partition_point(|s| s.end < span.start);
        let last = self.spans.partition_point(|s| s.start <= span.end);
        let mut joined = span;
        if first < last {
            joined.start = joined.start.min(self.spans[first].start);
            joined.end = joined.end.max(self.spans[last - 1].end);
        }
        self.spans.splice(first..last, [joined]);
    }

    /// Takes out everything from `start` on.
    pub fn cut(&mut self, start: usize) {
        self.spans.retain(|span| span.start < start);
        if let Some(last) = self.spans.last_mut() {
            last.end = last.end.min(start);
        }
    }

    /// Whether all of `span` is in it.
    #[must_use]
    pub fn covers(&self, span: &Span) -> bool {
        let before = self.spans.partition_point(|s| s.start <= span.start);
        span.is_empty() || before.checked_sub(1).is_some_and(|last| span.end <= self.spans[last].end)
    }

    /// The parts of `within` that are not in the set.
    #[must_use]
    pub fn gaps(&self, within: Span) -> Vec<Span> {
        let mut gaps = Vec::new();
        let mut at = within.start;
        for span in &self.spans {
            if within.end <= span.start {
                break;
            }
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
        for span in &self.spans {
            wide.insert(span.start / unit * unit..span.end.next_multiple_of(unit));
        }
        wide
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
