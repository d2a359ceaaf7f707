//! Data ranges of a copied file, in pieces: pieces without data are never assigned.
//!
//! Always: ranges are sorted and not adjacent; a piece outside the map is a hole.

use std::ops::Range;

use super::PIECE_BYTES;

/// See the module.
#[derive(Debug)]
pub(super) struct DataMap {
    parts: Vec<Range<u64>>,
    pieces: u64,
}

impl DataMap {
    /// From sorted ranges.
    pub(super) fn new(parts: Vec<Range<u64>>) -> DataMap {
        let (mut pieces, mut next) = (0, 0);
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let (first, end) = ((part.start / PIECE_BYTES).max(next), part.end.div_ceil(PIECE_BYTES));
            pieces += end.saturating_sub(first);
            next = end.max(next);
        }
        DataMap { parts, pieces }
    }

    /// How many pieces have data.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// The first piece with data from `piece` on.
    pub(super) fn next(&self, piece: u64) -> Option<u64> {
        let at = piece * PIECE_BYTES;
        let part = self.parts.get(self.parts.partition_point(|part| part.end <= at))?;
        Some(piece.max(part.start / PIECE_BYTES))
    }

    /// Data in a range.
    pub(super) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.parts.partition_point(|part| part.end <= range.start);
        let (start, end) = (range.start, range.end);
        let inside = self.parts[first..].iter().take_while(move |part| part.start < end);
        inside.map(move |part| part.start.max(start)..part.end.min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PIECE_BYTES;

    #[track_caller]
    fn check(parts: &[Range<u64>], expected: &[u64]) {
        let map = DataMap::new(parts.to_vec());
        let mut found = Vec::new();
        while let Some(piece) = map.next(found.last().map_or(0, |last| last + 1)) {
            found.push(piece);
        }
        assert_eq!(found, expected);
        assert_eq!(map.pieces(), expected.len() as u64);
    }

    #[test]
    fn pieces_with_data_are_handed_out_once() {
        check(&[], &[]);
        check(std::slice::from_ref(&(0..1)), &[0]);
        check(std::slice::from_ref(&(0..P)), &[0]);
        check(&[0..1, 2..3, P - 1..P + 1], &[0, 1]);
        check(&[5 * P + 7..5 * P + 8, 2_000_000 * P..2_000_001 * P + 1], &[5, 2_000_000, 2_000_001]);
    }

    #[test]
    fn parts_are_cut_to_a_range() {
        let map = DataMap::new(vec![0..10, 20..30, 40..50]);
        assert_eq!(map.within(&(5..25)).collect::<Vec<_>>(), [5..10, 20..25]);
        assert_eq!(map.within(&(10..20)).count(), 0);
        assert_eq!(map.within(&(45..100)).collect::<Vec<_>>(), std::slice::from_ref(&(45..50)));
    }
}
