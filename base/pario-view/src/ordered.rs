//! Non-monotonic accesses put into file order: the repetitions of a file type with an extent shorter than its data interleave, and a
//! stream range of them becomes a few increasing views.
//!
//! A range inside one repetition is kept as it is. Several repetitions are merged: their pieces are sorted by file offset, and bytes are
//! permuted between stream order and file order.
//!
//! Never: merges more than [`ORDERED_PIECES_MAX`] pieces or [`ORDERED_BYTES_MAX`] bytes in one part. Always: parts follow each other in
//! the stream and are cut at repetitions, so that parts far along a stream have one shape.

use std::borrow::Cow;
use std::iter::FusedIterator;
use std::ops::Range;

use crate::compare::COMPARE_STEPS;
use crate::datatype::Datatype;
use crate::error::ViewError;
use crate::overlap::{Region, WorkLimit, overlap};
use crate::program::Placed;
use crate::view::{Direction, View, ViewAccess};

/// Maximum number of pieces merged in one part.
pub const ORDERED_PIECES_MAX: usize = 32 << 10;
/// Maximum number of bytes merged in one part; more than the largest record.
pub const ORDERED_BYTES_MAX: u64 = 16 << 20;

/// A part of a stream as a range of an increasing view's stream; see [`View::in_order`].
#[derive(Clone, Debug)]
pub struct Ordered {
    /// The increasing view.
    pub view: View,
    /// The range of its stream.
    pub stream: Range<u64>,
    /// The part of the original stream.
    pub part: Range<u64>,
    /// Where bytes go, in file order; `None` if both streams are alike.
    moves: Option<Vec<Move>>,
}

/// Bytes that lie together in both streams; offsets count from the start of each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Move {
    original: usize,
    ordered: usize,
    bytes: usize,
}

/// A piece of the file that a part of a stream shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct OrderedPiece {
    file_offset: u64,
    stream_offset: u64,
    bytes: u64,
}

impl Ordered {
    /// Bytes of the part, in the order of the original stream, put into file order.
    #[must_use]
    pub fn gather<'a>(&self, original: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(moves) = &self.moves else { return Cow::Borrowed(original) };
        let mut ordered = vec![0; memory(self.stream.end - self.stream.start)];
        for piece in moves {
            ordered[piece.ordered..piece.ordered + piece.bytes]
                .copy_from_slice(&original[piece.original..piece.original + piece.bytes]);
        }
        Cow::Owned(ordered)
    }

    /// Whether both orders are equal, so that no byte has to be permuted.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.moves.is_none()
    }

    /// Puts bytes that are in file order, of which there may be too few, back into the order of the original stream. Returns how many
    /// bytes of that there are before the first that is missing.
    pub fn scatter(&self, ordered: &[u8], original: &mut [u8]) -> usize {
        let whole = [Move { original: 0, ordered: 0, bytes: original.len() }];
        let mut end = original.len();
        for piece in self.moves.as_deref().unwrap_or(&whole) {
            let source = ordered.get(piece.ordered..).unwrap_or_default();
            let there = source.len().min(piece.bytes);
            original[piece.original..piece.original + there].copy_from_slice(&source[..there]);
            if there < piece.bytes {
                end = end.min(piece.original + there);
            }
        }
        end
    }
}

impl View {
    /// A stream range as consecutive ranges of increasing views. For an increasing view it is the range itself. Bytes that the range
    /// contains twice are in the increasing views once.
    #[must_use]
    pub fn in_order(&self, stream: Range<u64>) -> InOrder<'_> {
        InOrder { view: self, rest: stream, limits: MergeLimits::default() }
    }

    /// A byte of the file that a stream range shows twice, if there is one: it may be read so, and not written.
    #[must_use]
    pub fn shown_twice(&self, stream: Range<u64>) -> Option<u64> {
        if self.direction() == Direction::Increasing || self.is_in_one_repetition(&stream) {
            return None;
        }
        let pieces = |limit: usize| {
            let pieces = self.extents(stream.clone()).take(limit);
            pieces.map(|extent| (extent.file_offset, extent.bytes)).collect::<Vec<_>>()
        };
        let mut some = pieces(ORDERED_PIECES_MAX + 1);
        if ORDERED_PIECES_MAX < some.len() {
            if self.repetitions_are_apart(&stream) {
                return None;
            }
            some = pieces(usize::MAX);
        }
        some.sort_unstable();
        let mut end = 0;
        some.into_iter().find_map(|(at, bytes)| {
            let twice = (at < end).then_some(at);
            end = end.max(at + bytes);
            twice
        })
    }

    /// Whether a range is inside one repetition of an increasing file type.
    fn is_in_one_repetition(&self, stream: &Range<u64>) -> bool {
        let size = self.filetype_bytes();
        self.goes_forward() && (stream.is_empty() || stream.start / size == (stream.end - 1) / size)
    }

    /// Whether one repetition of the file type is increasing.
    fn goes_forward(&self) -> bool {
        self.filetype().root_node().is_none_or(|root| root.increasing)
    }

    /// Whether the repetitions in a range are known to share no byte: only their distance matters.
    fn repetitions_are_apart(&self, stream: &Range<u64>) -> bool {
        let filetype = self.filetype();
        let Some((root, node)) = filetype.root.zip(filetype.root_node()) else { return true };
        let (size, extent) = (self.filetype_bytes(), self.filetype_extent());
        let touched = (stream.end - 1) / size - stream.start / size;
        let near = ((node.hi - 1) / extent).cast_unsigned().min(touched).cast_signed();
        let mut work = WorkLimit(COMPARE_STEPS);
        let mut apart = |distance: i64| {
            let first = Region::whole(&filetype.nodes, root);
            let other = Region::whole(&filetype.nodes, Placed { at: root.at + distance * extent, ..root });
            overlap(&first, &other, &mut work) == Some(false)
        };
        self.goes_forward() && (1..=near).all(&mut apart)
    }
}

/// Iterator over the parts of a stream range; see [`View::in_order`].
#[derive(Clone, Debug)]
pub struct InOrder<'v> {
    view: &'v View,
    rest: Range<u64>,
    limits: MergeLimits,
}

/// Limits of one merged part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeLimits {
    pub(crate) pieces: usize,
    pub(crate) bytes: u64,
}

impl Default for MergeLimits {
    fn default() -> MergeLimits {
        MergeLimits { pieces: ORDERED_PIECES_MAX, bytes: ORDERED_BYTES_MAX }
    }
}

impl InOrder<'_> {
    #[cfg(test)]
    pub(crate) fn limited(self, limits: MergeLimits) -> Self {
        InOrder { limits, ..self }
    }

    /// The part of one repetition, as it is.
    fn alone(&self, part: Range<u64>) -> Result<Ordered, ViewError> {
        let view = self.view;
        if view.direction() == Direction::Increasing {
            return Ok(Ordered { view: view.clone(), stream: part.clone(), part, moves: None });
        }
        let (filetype, size) = (view.filetype(), view.filetype_bytes());
        let repetition = part.start / size;
        let at = view.displacement() + repetition * view.filetype_extent().cast_unsigned();
        // Every further byte follows it.
        let extent = filetype.root_node().map_or(1, |root| root.hi);
        let stream = part.start - repetition * size..part.end - repetition * size;
        let view = View::from_parts(at, view.etype_bytes(), extent, filetype.clone())?;
        Ok(Ordered { view, stream, part, moves: None })
    }

    /// The next pieces, as many as may be merged, and where in the stream they end.
    fn pieces(&self, stream: Range<u64>) -> (Vec<OrderedPiece>, u64) {
        let (mut pieces, mut at) = (Vec::new(), stream.start);
        for extent in self.view.extents(stream.clone()) {
            let room = self.limits.bytes - (at - stream.start);
            if room == 0 || pieces.len() == self.limits.pieces {
                break;
            }
            let bytes = extent.bytes.min(room);
            let stream_offset = at - stream.start;
            pieces.push(OrderedPiece { file_offset: extent.file_offset, stream_offset, bytes });
            at += bytes;
        }
        (pieces, at)
    }

    fn next_part(&self) -> Result<Ordered, ViewError> {
        let (start, end) = (self.rest.start, self.rest.end);
        if self.view.direction() == Direction::Increasing || self.view.is_in_one_repetition(&self.rest) {
            return self.alone(start..end);
        }
        let (pieces, reached) = self.pieces(start..end);
        if reached == end {
            return merged(pieces, start..end);
        }
        let size = self.view.filetype_bytes();
        let whole = reached / size * size;
        match start < whole {
            true if self.view.is_in_one_repetition(&(start..whole)) => self.alone(start..whole),
            true => merged(self.pieces(start..whole).0, start..whole),
            false if self.view.goes_forward() => self.alone(start..end.min(whole + size)),
            false => merged(pieces, start..reached),
        }
    }
}

impl Iterator for InOrder<'_> {
    type Item = Result<Ordered, ViewError>;

    fn next(&mut self) -> Option<Result<Ordered, ViewError>> {
        if self.rest.is_empty() {
            return None;
        }
        let next = self.next_part();
        self.rest.start = next.as_ref().map_or(self.rest.end, |ordered| ordered.part.end);
        Some(next)
    }
}

impl FusedIterator for InOrder<'_> {}

/// Pieces as one increasing view.
fn merged(mut pieces: Vec<OrderedPiece>, part: Range<u64>) -> Result<Ordered, ViewError> {
    pieces.sort();
    let start = pieces.first().map_or(0, |piece| piece.file_offset);
    let (mut places, mut lengths): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut moves = Vec::with_capacity(pieces.len());
    // The run being joined: its start in the file and in file order; and its end in both.
    let (mut run, mut end) = ((0, 0), (0, 0));
    for OrderedPiece { file_offset, stream_offset, bytes } in pieces {
        if end.0 < file_offset || lengths.is_empty() {
            (run, end.0) = ((file_offset, end.1), file_offset);
            places.push((file_offset - start).cast_signed());
            lengths.push(0);
        }
        let ordered = memory(run.1 + (file_offset - run.0));
        moves.push(Move { original: memory(stream_offset), ordered, bytes: memory(bytes) });
        let new = (file_offset + bytes).saturating_sub(end.0);
        end = (end.0 + new, end.1 + new);
        if let Some(length) = lengths.last_mut() {
            *length += new.cast_signed();
        }
    }
    let byte = Datatype::elementary(1)?;
    let filetype = Datatype::hindexed(&lengths, &places, &byte)?;
    let view = View::new(start.cast_signed(), &byte, &filetype, ViewAccess::Write)?;
    Ok(Ordered { view, stream: 0..end.1, part, moves: Some(moves) })
}

fn memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("inside the caller's memory")
}
