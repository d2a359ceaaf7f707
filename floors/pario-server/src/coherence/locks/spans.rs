//! Interval index of tokens: which of many ranges overlap a given one, without a scan of the others.
//!
//! Ranges are kept by the power of two of their length, so that a query visits, per power, only starts that can reach it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TokenIndex {
    powers: BTreeMap<u32, BTreeSet<(u64, u64)>>,
    ends: BTreeMap<u64, u64>,
}

fn power(bytes: &Range<u64>) -> u32 {
    u64::BITS - (bytes.end - bytes.start).leading_zeros()
}

impl TokenIndex {
    pub(super) fn insert(&mut self, number: u64, bytes: &Range<u64>) {
        self.powers.entry(power(bytes)).or_default().insert((bytes.start, number));
        self.ends.insert(number, bytes.end);
    }

    pub(super) fn remove(&mut self, number: u64, bytes: &Range<u64>) {
        let power = power(bytes);
        if let Some(starts) = self.powers.get_mut(&power) {
            starts.remove(&(bytes.start, number));
            if starts.is_empty() {
                self.powers.remove(&power);
            }
        }
        self.ends.remove(&number);
    }

    /// Numbers of the ranges that overlap `bytes`.
    pub(super) fn overlapping(&self, bytes: &Range<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        for (&power, starts) in &self.powers {
            let longest = 1u64.checked_shl(power).unwrap_or(u64::MAX);
            let from = (bytes.start.saturating_sub(longest), 0);
            let reach = starts.range(from..(bytes.end, 0));
            let ends_behind = |number: &u64| self.ends.get(number).is_some_and(|end| bytes.start < *end);
            found.extend(reach.map(|(_, number)| *number).filter(ends_behind));
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use pario_core::SeededRandom;

    use super::*;

    #[test]
    fn a_query_finds_what_a_scan_finds() {
        let mut random = SeededRandom::new(12345);
        let mut next = |below: u64| random.below(below);
        let mut spans = TokenIndex::default();
        let mut all: Vec<(u64, Range<u64>)> = Vec::new();
        for number in 0..3000u64 {
            if next(3) == 0 && !all.is_empty() {
                let (number, bytes) = all.swap_remove(usize::try_from(next(all.len() as u64)).unwrap());
                spans.remove(number, &bytes);
            }
            let start = next(1000);
            let power = next(10);
            let end = if next(50) == 0 { u64::MAX } else { start + 1 + next(1 << power) };
            spans.insert(number, &(start..end));
            all.push((number, start..end));
            let start = next(1100);
            let query = start..start + 1 + next(100);
            let mut expected: Vec<u64> = all
                .iter()
                .filter(|(_, bytes)| bytes.start < query.end && query.start < bytes.end)
                .map(|(number, _)| *number)
                .collect();
            expected.sort_unstable();
            assert_eq!(spans.overlapping(&query), expected);
        }
    }
}
