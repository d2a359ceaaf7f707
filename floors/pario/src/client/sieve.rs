//! Small pieces of an object read by few calls: neighbours together with what lies between them, into memory that stays in the
//! processor's cache, from where they are picked.
//!
//! Never: reads across a gap that costs more than a call; needs a page of the object mapped. Always: what is behind the object's end is
//! zeros.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use pario_net::buffers;
use pario_sys::piece::read_exact_or_end_at;

/// Bytes read at once: what the second level of a processor's cache holds.
const STRETCH_BYTES_MAX: u64 = 256 << 10;
/// Copying so many bytes that nobody wants costs about as much as a system call.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Pieces of this size are calls of their own, straight to where they are wanted.
const PIECE_BYTES_MIN: u64 = 32 << 10;

/// A piece: where it lies in the object, and where it belongs in the caller's memory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Wanted {
    pub(super) at: u64,
    pub(super) place: Range<usize>,
}

impl Wanted {
    pub(super) fn end(&self) -> u64 {
        self.at + self.place.len() as u64
    }
}

/// What it took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Cost {
    pub(super) calls: u64,
    /// Bytes read, wanted or not.
    pub(super) bytes: u64,
}

/// Fills `target` with pieces that ascend in the object.
pub(super) fn read(
    object: BorrowedFd<'_>,
    pieces: impl Iterator<Item = Wanted>,
    target: &mut [u8],
) -> io::Result<Cost> {
    let mut stretch = Stretch { pieces: Vec::new(), scratch: Vec::new(), cost: Cost::default() };
    let result = pieces.into_iter().try_for_each(|piece| {
        if stretch.ends_before(&piece) {
            stretch.read(object, target)?;
        }
        stretch.add(piece);
        Ok(())
    });
    let result = result.and_then(|()| stretch.read(object, target));
    buffers::give_back(std::mem::take(&mut stretch.scratch));
    result.map(|()| stretch.cost)
}

/// Pieces that are read together.
struct Stretch {
    pieces: Vec<Wanted>,
    scratch: Vec<u8>,
    cost: Cost,
}

impl Stretch {
    fn ends_before(&self, piece: &Wanted) -> bool {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else { return false };
        let continues = piece.at == last.end() && piece.place.start == last.place.end;
        let large = |piece: &Wanted| PIECE_BYTES_MIN <= piece.place.len() as u64;
        let near = (last.end()..=last.end() + GAP_BYTES_MAX).contains(&piece.at);
        let fits = piece.end().saturating_sub(first.at) <= STRETCH_BYTES_MAX;
        let alone = self.pieces.len() == 1 && continues;
        !alone && (large(last) || large(piece) || !near || !fits)
    }

    fn add(&mut self, piece: Wanted) {
        match self.pieces.last_mut() {
            Some(last) if piece.at == last.end() && piece.place.start == last.place.end => {
                last.place.end = piece.place.end;
            }
            Some(_) | None => self.pieces.push(piece),
        }
    }

    fn read(&mut self, object: BorrowedFd<'_>, target: &mut [u8]) -> io::Result<()> {
        match self.pieces.as_slice() {
            [] => return Ok(()),
            [one] => {
                let part = &mut target[one.place.clone()];
                let count = read_exact_or_end_at(object, part, one.at)?;
                part[count..].fill(0);
                self.count(one.place.len());
            }
            [first, .., last] => {
                let bytes = usize::try_from(last.end() - first.at).expect("a stretch is short");
                if self.scratch.is_empty() {
                    self.scratch = buffers::take(usize::try_from(STRETCH_BYTES_MAX).expect("a small number"));
                }
                let start = first.at;
                let all = &mut self.scratch[..bytes];
                let count = read_exact_or_end_at(object, all, start)?;
                all[count..].fill(0);
                pick(all, start, &self.pieces, target);
                self.count(bytes);
            }
        }
        self.pieces.clear();
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        self.cost.calls += 1;
        self.cost.bytes += bytes as u64;
    }
}

/// Copies pieces out of what was read from `start` on.
fn pick(read: &[u8], start: u64, pieces: &[Wanted], target: &mut [u8]) {
    for piece in pieces {
        let at = usize::try_from(piece.at - start).expect("a stretch is short");
        let bytes = piece.place.len();
        target[piece.place.clone()].copy_from_slice(&read[at..at + bytes]);
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

    /// Reads pieces (place in the object, length), one behind the other in memory, and compares them with the object.
    #[track_caller]
    fn check(pieces: &[(usize, usize)], expected: Cost) {
        let object: Vec<u8> = (0..OBJECT_BYTES).map(byte).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&object).unwrap();
        let mut wanted = Vec::new();
        let mut right = Vec::new();
        for (at, bytes) in pieces {
            wanted.push(Wanted { at: *at as u64, place: right.len()..right.len() + bytes });
            right.extend((*at..at + bytes).map(|at| if at < OBJECT_BYTES { byte(at) } else { 0 }));
        }
        let mut target = vec![9; right.len()];
        let cost = read(file.as_fd(), wanted.into_iter(), &mut target).unwrap();
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
    fn behind_the_end_there_are_zeros() {
        check(&[(OBJECT_BYTES - 10, 4), (OBJECT_BYTES - 3, 8), (OBJECT_BYTES + 20, 5)], cost(1, 35));
        check(&[(OBJECT_BYTES + 100, 5)], cost(1, 5));
    }
}
