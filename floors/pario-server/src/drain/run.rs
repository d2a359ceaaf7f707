//! A run: pieces of one object that are joined and written by one call.
//!
//! Never: has pieces that overlap or go back; joins a large piece across a hole. Always: small pieces are copied, so that a store call gets
//! few buffers, or, where they leave holes, one buffer and its offset for each contiguous range.

use std::ops::Range;

use pario_net::buffers;
use pario_sys::file_map::Scattered;
use pario_sys::piece::{MemoryPiece, PIECES_PER_CALL_MAX};

use super::cut::{Cut, CutRow};
use super::scatter_buffer::{SCATTER_BUFFER_BYTES, ScatterBuffer};

/// Pieces of fewer bytes are copied together: that costs less than the kernel's work for one more buffer.
const COPIED_BYTES_MAX: usize = 512;
/// Bytes that are copied together before they are written. They should fit into a processor's own cache, but the page cache allocates pages
/// no larger than one call: with 256 KiB, writing took a quarter longer, and reading back an eighth longer.
const COPY_BYTES_MAX: usize = 1 << 20;

/// Small pieces with holes between them are written by one call within this range of an object.
const SCATTER_BYTES_MAX: u64 = 1 << 20;
/// Pieces of such a call.
const SCATTER_PIECES_MAX: usize = 1 << 16;

/// Larger pages of a file gain nothing more.
const PAGE_BYTES_MAX: u64 = 2 << 20;

/// Alignment of run ends for pieces of about this size: the multiple of a power of two that one call can fill.
pub(super) fn stride(piece_bytes: u64) -> u64 {
    let call = match usize::try_from(piece_bytes) {
        Ok(..COPIED_BYTES_MAX) => COPY_BYTES_MAX as u64,
        // A piece may cross each of both ends: one more than fit.
        _ => piece_bytes.saturating_mul(PIECES_PER_CALL_MAX as u64 - 1),
    };
    1 << call.min(PAGE_BYTES_MAX).ilog2()
}

/// Pieces that follow each other in an object; small ones may leave holes.
#[derive(Default)]
pub(super) struct WriteRun<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Without holes, runs end at multiples of this power of two, unless a piece is larger.
    pub(super) stride: u64,
    /// Bytes, holes excluded.
    pub(super) bytes: u64,
    parts: Vec<RunBuffer<'a>>,
    /// Parts preceded by a hole, by number, and their offsets.
    pub(super) holes: Vec<(usize, u64)>,
    /// Buffer for small pieces copied together, allocated at the first one, and its used bytes.
    copies: Vec<u8>,
    copied: usize,
    /// Bytes present in the buffer, while it is used as a scatter buffer.
    scatter: ScatterBuffer,
    /// Pieces as they were cut; a piece across an end counts twice.
    pub(super) pieces: u64,
    /// Source slices.
    pub(super) slices: Vec<usize>,
}

const _: () = assert!(SCATTER_BUFFER_BYTES <= COPY_BYTES_MAX, "a window lies in the copies");

/// One buffer of a vectored write.
#[derive(Clone)]
enum RunBuffer<'a> {
    /// In the outbox or message.
    InPlace(MemoryPiece<'a>),
    /// In the run's buffer.
    Copied(Range<usize>),
}

impl<'a> WriteRun<'a> {
    /// The run's end inside a piece, if there is one.
    #[inline]
    pub(super) fn ends_inside(&self, at: u64, bytes: u32) -> Option<u64> {
        let stop = (at | (self.stride - 1)).saturating_add(1);
        (stop < at + u64::from(bytes) && u64::from(bytes) < self.stride).then_some(stop)
    }

    /// Whether a piece can join the run.
    #[inline]
    pub(super) fn accepts(&self, at: u64, bytes: usize) -> bool {
        if self.parts.is_empty() {
            return true;
        }
        let is_small = bytes < COPIED_BYTES_MAX;
        let has_room = !is_small || self.copied + bytes <= COPY_BYTES_MAX;
        if self.holes.is_empty() && self.end == at {
            let goes_on = at & (self.stride - 1) != 0 || self.stride <= bytes as u64;
            return goes_on && has_room && self.parts.len() < PIECES_PER_CALL_MAX;
        }
        let all_small = is_small && self.bytes == self.copied as u64;
        let is_near = self.end <= at && at + bytes as u64 - self.start <= SCATTER_BYTES_MAX;
        has_room && all_small && is_near && self.parts.len() < SCATTER_PIECES_MAX
    }

    #[inline]
    pub(super) fn push(&mut self, at: u64, piece: MemoryPiece<'a>) {
        if self.parts.is_empty() {
            (self.start, self.end) = (at, at);
        }
        let is_hole = self.end != at;
        if is_hole {
            self.holes.push((self.parts.len(), at));
        }
        (self.end, self.bytes) = (at + piece.len() as u64, self.bytes + piece.len() as u64);
        self.pieces += 1;
        if COPIED_BYTES_MAX <= piece.len() {
            self.parts.push(RunBuffer::InPlace(piece));
            return;
        }
        self.make_room_for_copies();
        let (start, end) = (self.copied, self.copied + piece.len());
        piece.copy_to(&mut self.copies[start..end]);
        self.copied = end;
        match self.parts.last_mut() {
            Some(RunBuffer::Copied(last)) if !is_hole => last.end = end,
            Some(RunBuffer::Copied(_) | RunBuffer::InPlace(_)) | None => {
                self.parts.push(RunBuffer::Copied(start..end))
            }
        }
    }

    #[inline]
    fn make_room_for_copies(&mut self) {
        if self.copies.is_empty() {
            self.copies = buffers::take(COPY_BYTES_MAX);
        }
    }

    /// Begins a run of fine pieces, in any order, within a scatter buffer.
    pub(super) fn open_scatter(&mut self, start: u64) {
        self.clear();
        self.make_room_for_copies();
        self.scatter.clear();
        (self.start, self.end) = (start, start);
    }

    /// Copies a piece to its offset in the scatter buffer; false if a byte of it was present already.
    #[inline]
    pub(super) fn scatter_one(&mut self, cut: &Cut, data: &MemoryPiece<'a>) -> bool {
        let offset = usize::try_from(cut.local - self.start).expect("inside the window");
        let bytes = cut.bytes as usize;
        data.part(cut.data_at as usize, bytes).copy_to(&mut self.copies[offset..offset + bytes]);
        self.pieces += 1;
        self.bytes += u64::from(cut.bytes);
        self.scatter.mark(offset, bytes)
    }

    /// Copies the pieces of a row to their offsets in the scatter buffer; false if a byte of them was present already.
    pub(super) fn scatter_row(&mut self, row: &CutRow, data: &MemoryPiece<'a>) -> bool {
        self.pieces += u64::from(row.count);
        self.bytes += row.bytes();
        let offset = usize::try_from(row.first.local - self.start).expect("inside the window");
        let (bytes, count) = (row.first.bytes as usize, row.count as usize);
        let stride = row.stride as usize;
        let source = data.part(row.first.data_at as usize, bytes * count);
        source.spread_to(&mut self.copies[offset..], (bytes, stride));
        self.scatter.mark_row((offset, bytes), (stride, count))
    }

    /// The scatter buffer has all its pieces: they are ready to be written.
    pub(super) fn close_scatter(&mut self) {
        let WriteRun { start, end, parts, holes, scatter: window, .. } = self;
        window.marked_ranges(|stretch| {
            let at = *start + stretch.start as u64;
            if *end != at {
                holes.push((parts.len(), at));
            }
            *end = *start + stretch.end as u64;
            parts.push(RunBuffer::Copied(stretch));
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn buffers(&self) -> Vec<MemoryPiece<'_>> {
        let buffer = |part: &RunBuffer<'a>| match part {
            RunBuffer::InPlace(piece) => *piece,
            RunBuffer::Copied(range) => MemoryPiece::from(&self.copies[range.clone()]),
        };
        self.parts.iter().map(buffer).collect()
    }

    /// The same with offsets, where there are holes and all pieces were copied.
    pub(super) fn scattered(&self) -> Vec<Scattered<'_>> {
        let mut holes = self.holes.iter().peekable();
        let mut at = self.start;
        let mut pieces = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            if let Some((_, begins)) = holes.next_if(|(before, _)| *before == number) {
                at = *begins;
            }
            if let RunBuffer::Copied(range) = part {
                pieces.push(Scattered { at, bytes: &self.copies[range.clone()] });
                at += range.len() as u64;
            }
        }
        pieces
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.holes.clear();
        self.slices.clear();
        (self.copied, self.pieces, self.bytes) = (0, 0, 0);
    }
}

impl Drop for WriteRun<'_> {
    fn drop(&mut self) {
        buffers::give_back(std::mem::take(&mut self.copies));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_as_much_as_a_call_brings_ends() {
        for (piece, expected) in [
            (4, 1 << 20),
            (511, 1 << 20),
            (512, 256 << 10),
            (1024, 512 << 10),
            (1280, 1 << 20),
            (2048, 1 << 20),
            (2100, 2 << 20),
            (8 << 10, 2 << 20),
            (u64::MAX, 2 << 20),
        ] {
            assert_eq!(stride(piece), expected, "{piece}");
        }
    }
}
