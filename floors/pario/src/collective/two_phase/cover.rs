//! Bitmap of the bytes of a window that ranks have listed.
//!
//! Lists of several ranks, sorted or not, overlapping or not, are merged by setting bits; the covered bytes are read out as
//! runs. This costs an eighth of the window in memory, and no sorting for pieces of any size.
//!
//! Always: runs are ascending and do not touch.

use std::ops::Range;

/// See the module head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CoverBitmap {
    words: Vec<u64>,
}

impl CoverBitmap {
    /// An empty bitmap for a window of `bytes`.
    pub(super) fn new(bytes: usize) -> CoverBitmap {
        CoverBitmap { words: vec![0; bytes.div_ceil(64)] }
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Marks `bytes`, which lie inside the window.
    #[inline]
    pub(super) fn add(&mut self, bytes: Range<usize>) {
        if bytes.start >= bytes.end {
            return;
        }
        let (first, last) = (bytes.start / 64, (bytes.end - 1) / 64);
        let head = u64::MAX << (bytes.start % 64);
        let tail = u64::MAX >> (63 - (bytes.end - 1) % 64);
        if first == last {
            self.words[first] |= head & tail;
            return;
        }
        self.words[first] |= head;
        self.words[first + 1..last].fill(u64::MAX);
        self.words[last] |= tail;
    }

    /// The covered runs; holes of up to `gap` bytes between runs are included.
    pub(super) fn runs(&self, gap: usize) -> CoverRuns<'_> {
        CoverRuns { cover: self, at: 0, gap }
    }

    /// The first byte from `at` on that is covered (or not).
    fn find(&self, at: usize, covered: bool) -> Option<usize> {
        let turn = |word: u64| if covered { word } else { !word };
        let mut index = at / 64;
        let mut word = turn(*self.words.get(index)?) & (u64::MAX << (at % 64));
        while word == 0 {
            index += 1;
            word = turn(*self.words.get(index)?);
        }
        Some(index * 64 + word.trailing_zeros() as usize)
    }
}

/// Iterator over covered runs; see [`CoverBitmap::runs`].
#[derive(Clone, Debug)]
pub(super) struct CoverRuns<'c> {
    cover: &'c CoverBitmap,
    at: usize,
    gap: usize,
}

impl Iterator for CoverRuns<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let bits = self.cover.words.len() * 64;
        let start = self.cover.find(self.at, true)?;
        let mut end = self.cover.find(start, false).unwrap_or(bits);
        while let Some(next) = self.cover.find(end, true).filter(|next| *next - end <= self.gap) {
            end = self.cover.find(next, false).unwrap_or(bits);
        }
        self.at = end;
        Some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_what_was_added(
            ranges in prop::collection::vec((0usize..500, 0usize..100), 0..20),
            gap in 0usize..70,
        ) {
            let mut cover = CoverBitmap::new(600);
            let mut model = vec![false; 600];
            for (at, len) in ranges {
                cover.add(at..at + len);
                model[at..at + len].fill(true);
            }
            let exact: Vec<Range<usize>> = cover.runs(0).collect();
            prop_assert!(exact.windows(2).all(|pair| pair[0].end < pair[1].start));
            let mut found = vec![false; 600];
            exact.iter().for_each(|run| found[run.clone()].fill(true));
            prop_assert_eq!(&found, &model);
            let joined: Vec<Range<usize>> = cover.runs(gap).collect();
            prop_assert!(joined.windows(2).all(|pair| gap < pair[1].start - pair[0].end));
            prop_assert_eq!(joined.first().map(|run| run.start), exact.first().map(|run| run.start));
            prop_assert_eq!(joined.last().map(|run| run.end), exact.last().map(|run| run.end));
            cover.clear();
            prop_assert_eq!(cover.runs(9).next(), None);
        }
    }
}
