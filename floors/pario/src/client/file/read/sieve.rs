//! Data sieving: small pieces of an object are read by few system calls. Neighbours are read together with the gaps between them, into a
//! buffer that stays in the processor's cache, and copied out of it.
//!
//! Never: reads across a gap that costs more than a call; needs a mapped page of the object. Always: bytes beyond the object's end are
//! zeros.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use pario_net::buffers;
use pario_sys::piece::{MemoryPiece, read_exact_or_end_at};

/// Bytes per read: the size of a second-level cache.
const STRETCH_BYTES_MAX: u64 = 256 << 10;
/// Copying this many unwanted bytes costs about as much as a system call.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Pieces of this size are separate calls, directly into the caller's memory.
const PIECE_BYTES_MIN: u64 = 32 << 10;

/// Pieces of fewer bytes, no further apart than this, cost more to examine than to copy.
const FINE_BYTES_MAX: u64 = 256;
const FINE_STRIDE_MAX: u64 = 1 << 10;

/// A piece: its offset in the object, and its index in the caller's memory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(in crate::client) struct Wanted {
    pub(in crate::client) at: u64,
    pub(in crate::client) memory_range: Range<usize>,
}

/// Pieces of equal length at equal distances in the object, contiguous in the caller's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::client) struct WantedRow {
    /// Offset of the first piece in the object, and its index in memory.
    pub(in crate::client) at: u64,
    pub(in crate::client) memory_start: usize,
    /// Of each piece.
    pub(in crate::client) bytes: usize,
    /// Distance between the starts of two pieces.
    pub(in crate::client) stride: u64,
    /// At least one.
    pub(in crate::client) count: usize,
}

impl WantedRow {
    /// End of the last piece in the object.
    #[inline]
    pub(in crate::client) fn end(&self) -> u64 {
        self.at + (self.count as u64 - 1) * self.stride + self.bytes as u64
    }

    /// Index range of all pieces in memory.
    #[inline]
    pub(in crate::client) fn memory_range(&self) -> Range<usize> {
        self.memory_start..self.memory_start + self.bytes * self.count
    }

    /// The pieces one by one.
    #[inline]
    pub(in crate::client) fn pieces(self) -> impl Iterator<Item = Wanted> {
        (0..self.count).map(move |number| {
            let place = self.memory_start + number * self.bytes;
            Wanted { at: self.at + number as u64 * self.stride, memory_range: place..place + self.bytes }
        })
    }

    /// The first `count`, and the rest.
    pub(in crate::client) fn split(self, count: usize) -> (WantedRow, Option<WantedRow>) {
        let (head, left) = (count.min(self.count), self.count.saturating_sub(count));
        let rest = WantedRow {
            at: self.at + head as u64 * self.stride,
            memory_start: self.memory_start + head * self.bytes,
            count: left,
            ..self
        };
        (WantedRow { count: head, ..self }, (0 < left).then_some(rest))
    }

    /// Several pieces that are copied without examining each.
    #[inline]
    pub(in crate::client) fn is_fine(&self) -> bool {
        1 < self.count && (self.bytes as u64) < FINE_BYTES_MAX && self.stride < FINE_STRIDE_MAX
    }
}

impl From<Wanted> for WantedRow {
    fn from(piece: Wanted) -> WantedRow {
        WantedRow {
            at: piece.at,
            memory_start: piece.memory_range.start,
            bytes: piece.memory_range.len(),
            stride: 0,
            count: 1,
        }
    }
}

/// Cost of a read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::client) struct Cost {
    pub(in crate::client) calls: u64,
    /// Bytes read, wanted or not.
    pub(in crate::client) bytes: u64,
}

/// Reads bytes of an object.
pub(in crate::client) trait ObjectSource {
    /// Fills `target` from `at` on up to the object's end; returns the number of bytes.
    fn read_at(&mut self, target: &mut [u8], at: u64) -> io::Result<usize>;
}

impl ObjectSource for BorrowedFd<'_> {
    fn read_at(&mut self, target: &mut [u8], at: u64) -> io::Result<usize> {
        read_exact_or_end_at(*self, target, at)
    }
}

/// Fills `target` with pieces that ascend in the object.
pub(in crate::client) fn read(
    mut object: impl ObjectSource,
    rows: impl Iterator<Item = WantedRow>,
    target: &mut [u8],
) -> io::Result<Cost> {
    let mut stretch = Stretch { rows: Vec::new(), scratch: Vec::new(), cost: Cost::default() };
    let result = rows.into_iter().try_for_each(|row| stretch.take(row, &mut object, target));
    let result = result.and_then(|()| stretch.read(&mut object, target));
    buffers::give_back(std::mem::take(&mut stretch.scratch));
    result.map(|()| stretch.cost)
}

/// Pieces that are read together.
struct Stretch {
    /// Rows with more than one piece are fine.
    rows: Vec<WantedRow>,
    scratch: Vec<u8>,
    cost: Cost,
}

impl Stretch {
    /// Adds the pieces of a row; reads the stretch when a piece does not fit into it.
    fn take(&mut self, row: WantedRow, object: &mut impl ObjectSource, target: &mut [u8]) -> io::Result<()> {
        if row.count == 1 {
            return self.take_one(&row, object, target);
        }
        if !row.is_fine() {
            return row.pieces().try_for_each(|piece| self.take_one(&piece.into(), object, target));
        }
        let mut rest = Some(row);
        while let Some(row) = rest {
            let first = row.split(1).0;
            // A continuing piece may be longer than a stretch.
            if self.ends_before(&first) || self.rows.last().is_some_and(|last| is_continued(last, &first)) {
                self.read(object, target)?;
            }
            let start = self.rows.first().map_or(row.at, |first| first.at);
            let room = (start + STRETCH_BYTES_MAX).saturating_sub(row.at + row.bytes as u64);
            let fit = usize::try_from(room / row.stride.max(1)).unwrap_or(usize::MAX).saturating_add(1);
            let (here, left) = row.split(fit);
            self.rows.push(here);
            rest = left;
        }
        Ok(())
    }

    #[inline]
    fn take_one(
        &mut self,
        piece: &WantedRow,
        object: &mut impl ObjectSource,
        target: &mut [u8],
    ) -> io::Result<()> {
        if self.ends_before(piece) {
            self.read(object, target)?;
        }
        match self.rows.last_mut() {
            Some(last) if is_continued(last, piece) => last.bytes += piece.bytes,
            Some(_) | None => self.rows.push(*piece),
        }
        Ok(())
    }

    /// Whether a single piece does not belong to this stretch.
    fn ends_before(&self, piece: &WantedRow) -> bool {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else { return false };
        let large = |row: &WantedRow| PIECE_BYTES_MIN <= row.bytes as u64;
        let near = (last.end()..=last.end() + GAP_BYTES_MAX).contains(&piece.at);
        let fits = piece.end().saturating_sub(first.at) <= STRETCH_BYTES_MAX;
        let alone = self.rows.len() == 1 && is_continued(last, piece);
        !alone && (large(last) || large(piece) || !near || !fits)
    }

    fn read(&mut self, object: &mut impl ObjectSource, target: &mut [u8]) -> io::Result<()> {
        match self.rows.as_slice() {
            [] => return Ok(()),
            [one] if one.count == 1 => {
                let part = &mut target[one.memory_range()];
                let count = object.read_at(part, one.at)?;
                part[count..].fill(0);
                self.count(one.bytes);
            }
            [first, ..] => {
                let (start, end) = (first.at, self.rows.last().map_or(0, WantedRow::end));
                let bytes = usize::try_from(end - start).expect("a stretch is short");
                if self.scratch.is_empty() {
                    self.scratch = buffers::take(usize::try_from(STRETCH_BYTES_MAX).expect("a small number"));
                }
                let all = &mut self.scratch[..bytes];
                let count = object.read_at(all, start)?;
                all[count..].fill(0);
                pick(all, start, &self.rows, target);
                self.count(bytes);
            }
        }
        self.rows.clear();
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        self.cost.calls += 1;
        self.cost.bytes += bytes as u64;
    }
}

/// Whether a single piece follows another, in the object and in memory.
#[inline]
fn is_continued(last: &WantedRow, piece: &WantedRow) -> bool {
    last.count == 1 && piece.at == last.end() && piece.memory_start == last.memory_range().end
}

/// Copies pieces out of the bytes read from `start` on.
fn pick(read: &[u8], start: u64, rows: &[WantedRow], target: &mut [u8]) {
    for row in rows {
        let at = usize::try_from(row.at - start).expect("a stretch is short");
        let target = &mut target[row.memory_range()];
        if row.count == 1 {
            target.copy_from_slice(&read[at..at + row.bytes]);
        } else {
            let stride = usize::try_from(row.stride).expect("a stretch is short");
            MemoryPiece::from(&read[at..]).pick_to(target, (row.bytes, stride));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    const OBJECT_BYTES: usize = 1 << 20;

    fn byte(at: usize) -> u8 {
        u8::try_from(at * 31 % 251).unwrap()
    }

    /// Reads pieces (offset in the object, length), contiguous in memory, and compares them with the object.
    #[track_caller]
    fn check(pieces: &[(usize, usize)], expected: Cost) {
        let object: Vec<u8> = (0..OBJECT_BYTES).map(byte).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&object).unwrap();
        let mut wanted = Vec::new();
        let mut right = Vec::new();
        for (at, bytes) in pieces {
            wanted.push(Wanted { at: *at as u64, memory_range: right.len()..right.len() + bytes });
            right.extend((*at..at + bytes).map(|at| if at < OBJECT_BYTES { byte(at) } else { 0 }));
        }
        let mut target = vec![9; right.len()];
        let cost = read(file.as_fd(), wanted.into_iter().map(WantedRow::from), &mut target).unwrap();
        assert!(target == right, "the bytes of {} pieces", pieces.len());
        assert_eq!(cost, expected);
    }

    fn strided(count: usize, bytes: usize, step: usize) -> Vec<(usize, usize)> {
        (0..count).map(|n| (n * step, bytes)).collect()
    }

    fn cost(calls: u64, bytes: usize) -> Cost {
        Cost { calls, bytes: bytes as u64 }
    }

    #[test]
    fn neighbours_are_read_by_one_call() {
        check(&[], cost(0, 0));
        check(&strided(100, 40, 100), cost(1, 99 * 100 + 40));
        check(&strided(50, 1000, 5000), cost(1, 49 * 5000 + 1000));
        let two_rows = [strided(40, 1720, 3440), vec![(400_000, 7)]].concat();
        check(&two_rows, cost(2, 39 * 3440 + 1720 + 7));
    }

    #[test]
    fn pieces_that_lie_far_apart_or_are_large_are_calls_of_their_own() {
        check(&strided(10, 100, 8192), cost(10, 1000));
        check(&strided(10, 40_000, 41_000), cost(10, 400_000));
    }

    #[test]
    fn what_follows_in_the_object_and_in_memory_is_one_piece() {
        check(&strided(1000, 1000, 1000), cost(1, 1_000_000));
        check(&[(5, 10), (15, 20), (35, 5)], cost(1, 35));
    }

    #[test]
    fn a_stretch_is_no_longer_than_what_it_is_read_into() {
        let step = 2048;
        let per_call = usize::try_from(STRETCH_BYTES_MAX).unwrap() / step;
        check(&strided(4 * per_call, 1000, step), cost(4, 4 * ((per_call - 1) * step + 1000)));
    }

    #[test]
    fn a_row_is_read_as_its_pieces_are() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(0..OBJECT_BYTES).map(byte).collect::<Vec<u8>>()).unwrap();
        for (at, bytes, stride, count) in [
            (0, 4, 16, 60_000),
            (7, 8, 9, 70_000),
            (3, 16, 1023, 900),
            (1, 100, 101, 9000),
            (5, 300, 400, 2000),
            (9, 4, 5000, 100),
            (OBJECT_BYTES as u64 - 1000, 4, 12, 300),
            (40, 12, 0, 1),
        ] {
            // One piece before and one after it.
            let row = WantedRow { at: at + 3000, memory_start: 5, bytes, stride, count };
            let before = WantedRow { at, memory_start: 0, bytes: 5, stride: 0, count: 1 };
            let behind = WantedRow {
                at: row.end() + 2,
                memory_start: row.memory_range().end,
                bytes: 50,
                stride: 0,
                count: 1,
            };
            let all = [before, row, behind];
            let mut by_rows = vec![1; behind.memory_range().end];
            let cost = read(file.as_fd(), all.into_iter(), &mut by_rows).unwrap();
            let mut by_pieces = vec![2; by_rows.len()];
            let pieces = all.into_iter().flat_map(WantedRow::pieces).map(WantedRow::from);
            assert_eq!(read(file.as_fd(), pieces, &mut by_pieces).unwrap(), cost, "{row:?}");
            assert!(by_rows == by_pieces, "{row:?}");
        }
    }

    #[test]
    fn a_row_may_go_on_where_a_long_piece_ends() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(0..OBJECT_BYTES).map(byte).collect::<Vec<u8>>()).unwrap();
        let long = WantedRow { at: 0, memory_start: 0, bytes: 400_000, stride: 0, count: 1 };
        let row = WantedRow { at: 400_000, memory_start: 400_000, bytes: 4, stride: 8, count: 100 };
        let mut target = vec![0; row.memory_range().end];
        let cost = read(file.as_fd(), [long, row].into_iter(), &mut target).unwrap();
        assert_eq!(cost, Cost { calls: 2, bytes: 400_000 + 99 * 8 + 4 });
        assert!((0..100).all(|number| target[400_000 + number * 4] == byte(400_000 + number * 8)));
    }

    #[test]
    fn a_row_is_split_into_rows() {
        let row = WantedRow { at: 100, memory_start: 10, bytes: 4, stride: 16, count: 5 };
        let (head, rest) = row.split(2);
        let rest = rest.unwrap();
        assert_eq!((head.count, head.end(), head.memory_range()), (2, 120, 10..18));
        assert_eq!((rest.at, rest.memory_start, rest.count, rest.end()), (132, 18, 3, row.end()));
        assert_eq!(row.split(5), (row, None));
        assert_eq!(row.split(9), (row, None));
    }

    #[test]
    fn behind_the_end_there_are_zeros() {
        check(&[(OBJECT_BYTES - 10, 4), (OBJECT_BYTES - 3, 8), (OBJECT_BYTES + 20, 5)], cost(1, 35));
        check(&[(OBJECT_BYTES + 100, 5)], cost(1, 5));
    }
}
