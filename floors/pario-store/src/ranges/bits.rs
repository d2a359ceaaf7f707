//! One bit per byte of a block: for sets of so many ranges that a tree would cost more than the bits.
//!
//! Never: counts a byte twice. Always: knows how many bits are set.

use std::ops::Range;

const WORD_BITS: usize = u64::BITS as usize;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Number of bits set.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Sets all of a range.
    #[inline]
    pub(super) fn set(&mut self, range: Range<usize>) {
        let words = range.end.div_ceil(WORD_BITS);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        for (word, mask) in masks(range) {
            let word = &mut self.words[word];
            self.count += (mask & !*word).count_ones() as usize;
            *word |= mask;
        }
    }

    /// Clears all bits from an index on.
    pub(super) fn cut(&mut self, start: usize) {
        let end = self.words.len() * WORD_BITS;
        for (word, mask) in masks(start.min(end)..end) {
            let word = &mut self.words[word];
            self.count -= (mask & *word).count_ones() as usize;
            *word &= !mask;
        }
    }

    /// Whether all of a range is set.
    pub(super) fn covers(&self, range: Range<usize>) -> bool {
        masks(range).all(|(word, mask)| self.words.get(word).is_some_and(|word| word & mask == mask))
    }

    /// The first run of set bits from an index on.
    pub(super) fn next_from(&self, place: usize) -> Option<Range<usize>> {
        let start = self.find(place, |word| word)?;
        let end = self.find(start, |word| !word).unwrap_or(self.words.len() * WORD_BITS);
        Some(start..end)
    }

    /// The first bit from an index on that is set in the words as mapped by `look`.
    fn find(&self, place: usize, look: impl Fn(u64) -> u64) -> Option<usize> {
        let mut number = place / WORD_BITS;
        let mut word = look(*self.words.get(number)?) & (u64::MAX << (place % WORD_BITS));
        while word == 0 {
            number += 1;
            word = look(*self.words.get(number)?);
        }
        Some(number * WORD_BITS + word.trailing_zeros() as usize)
    }
}

/// The words that a range touches, and its bits in them.
#[inline]
fn masks(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = if range.is_empty() { 0..0 } else { range.start / WORD_BITS..range.end.div_ceil(WORD_BITS) };
    words.map(move |word| {
        let base = word * WORD_BITS;
        let from = range.start.saturating_sub(base);
        let to = (range.end - base).min(WORD_BITS);
        (word, (u64::MAX >> (WORD_BITS - (to - from))) << from)
    })
}
