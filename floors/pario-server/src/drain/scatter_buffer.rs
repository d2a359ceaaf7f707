//! Scatter buffer: which bytes of a buffered range of an object are present.
//!
//! Never: reports a byte that was not marked. Always: a byte marked twice is detected.

use std::ops::Range;

/// Bytes of a scatter buffer, small enough to stay in a processor's cache.
pub(super) const SCATTER_BUFFER_BYTES: usize = 256 << 10;
const WORD_BITS: usize = u64::BITS as usize;

/// See the module.
#[derive(Default)]
pub(super) struct ScatterBuffer {
    /// One bit per byte; allocated at the first use.
    bits: Vec<u64>,
}

impl ScatterBuffer {
    /// Clears all marks.
    pub(super) fn clear(&mut self) {
        self.bits.clear();
        self.bits.resize(SCATTER_BUFFER_BYTES / WORD_BITS, 0);
    }

    /// Marks bytes; false if one of them was marked already.
    #[inline]
    pub(super) fn mark(&mut self, at: usize, bytes: usize) -> bool {
        let (first, shift) = (at / WORD_BITS, at % WORD_BITS);
        if shift + bytes <= WORD_BITS {
            return mark_word(&mut self.bits[first], ones(bytes) << shift);
        }
        let mut is_new = mark_word(&mut self.bits[first], u64::MAX << shift);
        let (mut word, mut left) = (first + 1, shift + bytes - WORD_BITS);
        while 0 < left {
            let here = left.min(WORD_BITS);
            is_new &= mark_word(&mut self.bits[word], ones(here));
            (word, left) = (word + 1, left - here);
        }
        is_new
    }

    /// Marks pieces of equal length at equal distances; false if one of their bytes was marked already.
    pub(super) fn mark_row(&mut self, (at, bytes): (usize, usize), (stride, count): (usize, usize)) -> bool {
        (0..count).fold(true, |is_new, number| is_new & self.mark(at + number * stride, bytes))
    }

    /// Calls `found` with each stretch of marked bytes, in ascending order.
    pub(super) fn marked_ranges(&self, mut found: impl FnMut(Range<usize>)) {
        let mut begun: Option<usize> = None;
        for (number, word) in self.bits.iter().enumerate() {
            let base = number * WORD_BITS;
            if (*word == u64::MAX && begun.is_some()) || (*word == 0 && begun.is_none()) {
                continue;
            }
            let mut at = 0;
            while at < WORD_BITS {
                let rest = *word >> at;
                if let Some(start) = begun {
                    let run = (rest.trailing_ones() as usize).min(WORD_BITS - at);
                    at += run;
                    if at < WORD_BITS {
                        found(start..base + at);
                        begun = None;
                    }
                } else {
                    at += (rest.trailing_zeros() as usize).min(WORD_BITS - at);
                    begun = (at < WORD_BITS).then_some(base + at);
                }
            }
        }
        if let Some(start) = begun {
            found(start..self.bits.len() * WORD_BITS);
        }
    }
}

#[inline]
fn ones(count: usize) -> u64 {
    if count == WORD_BITS { u64::MAX } else { (1 << count) - 1 }
}

#[inline]
fn mark_word(word: &mut u64, mask: u64) -> bool {
    let is_new = *word & mask == 0;
    *word |= mask;
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretches(window: &ScatterBuffer) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        window.marked_ranges(|stretch| all.push(stretch));
        all
    }

    #[test]
    fn stretches_are_what_was_marked() {
        let mut window = ScatterBuffer::default();
        window.clear();
        assert_eq!(stretches(&window), []);
        for (at, bytes) in [(0, 4), (4, 60), (64, 64), (130, 1), (190, 70), (300, 400)] {
            assert!(window.mark(at, bytes), "{at}");
        }
        assert!(window.mark(SCATTER_BUFFER_BYTES - 5, 5));
        assert_eq!(
            stretches(&window),
            [0..128, 130..131, 190..260, 300..700, SCATTER_BUFFER_BYTES - 5..SCATTER_BUFFER_BYTES]
        );
        window.clear();
        assert_eq!(stretches(&window), []);
        assert!(window.mark(0, SCATTER_BUFFER_BYTES));
        let all = stretches(&window);
        assert_eq!((all.len(), all[0].clone()), (1, 0..SCATTER_BUFFER_BYTES));
    }

    #[test]
    fn bytes_that_are_marked_twice_are_found_out() {
        let mut window = ScatterBuffer::default();
        for (first, second) in
            [((0, 4), (3, 4)), ((60, 10), (69, 1)), ((10, 300), (200, 2)), ((64, 64), (127, 2))]
        {
            window.clear();
            assert!(window.mark(first.0, first.1));
            assert!(!window.mark(second.0, second.1), "{first:?} {second:?}");
        }
    }

    #[test]
    fn a_row_is_marked_as_its_pieces_are() {
        for (bytes, stride, count) in [(4, 16, 40), (8, 8, 100), (1, 3, 70), (60, 100, 7), (100, 130, 3)] {
            let (mut row, mut one_by_one) = (ScatterBuffer::default(), ScatterBuffer::default());
            row.clear();
            one_by_one.clear();
            assert!(row.mark_row((5, bytes), (stride, count)), "{bytes} {stride}");
            (0..count).for_each(|number| assert!(one_by_one.mark(5 + number * stride, bytes)));
            assert_eq!(stretches(&row), stretches(&one_by_one), "{bytes} {stride}");
            let last = 5 + (count - 1) * stride + bytes - 1;
            assert!(!row.mark_row((last, 1), (0, 1)) && row.mark_row((last + 1, 1), (0, 1)));
        }
    }

    /// Against one flag per byte.
    #[test]
    fn any_pieces_are_found_again() {
        let (mut window, mut seed) = (ScatterBuffer::default(), 7u64);
        for _ in 0..50 {
            window.clear();
            let mut plain = vec![false; 2000];
            for _ in 0..40 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (at, bytes) = ((seed >> 33) as usize % 1800, (seed >> 50) as usize % 150 + 1);
                let is_new = !plain[at..at + bytes].contains(&true);
                plain[at..at + bytes].fill(true);
                assert_eq!(window.mark(at, bytes), is_new, "{at} {bytes}");
            }
            let mut found = vec![false; 2000];
            for stretch in stretches(&window) {
                found[stretch.clone()].fill(true);
                assert!(stretch.start == 0 || !plain[stretch.start - 1], "as long as can be");
                assert!(!plain[stretch.end]);
            }
            assert_eq!(found, plain);
        }
    }
}
