//! A run: pieces of one object that are put together and written by one call.
//!
//! Never: has pieces that overlap or go back; puts a large piece where there are holes. Always: small pieces are copied, so that what a
//! call of the store sees are few buffers, or, where they leave holes, one buffer and its place for each stretch.

use std::ops::Range;

use pario_net::buffers;
use pario_sys::file_map::Scattered;
use pario_sys::piece::{PIECES_PER_CALL_MAX, Piece};

use super::cut::{Cut, Row};
use super::window::{WINDOW_BYTES, Window};

/// Pieces of fewer bytes are copied together: that costs less than the kernel's work for one more piece.
const COPIED_BYTES_MAX: usize = 512;
/// Bytes that are copied together before they are written. They should stay in a processor's own cache, but the pages that a call makes are
/// no larger than what it brings: 256 KiB took a quarter longer to be written, and an eighth longer to be read again.
const COPY_BYTES_MAX: usize = 1 << 20;

/// Small pieces with holes between them are written by one call within so many bytes of an object.
const SCATTER_BYTES_MAX: u64 = 1 << 20;
/// As many of them.
const SCATTER_PIECES_MAX: usize = 1 << 16;

/// Pages of a file that are larger than this gain nothing more.
const PAGE_BYTES_MAX: u64 = 2 << 20;

/// Where runs of pieces of about so many bytes end in an object: at multiples of this, as much as one call brings.
pub(super) fn stride(piece_bytes: u64) -> u64 {
    let call = match usize::try_from(piece_bytes) {
        Ok(..COPIED_BYTES_MAX) => COPY_BYTES_MAX as u64,
        // Between two ends a piece may lie across each: one more than fit.
        _ => piece_bytes.saturating_mul(PIECES_PER_CALL_MAX as u64 - 1),
    };
    1 << call.min(PAGE_BYTES_MAX).ilog2()
}

/// Pieces that follow each other in an object; small ones may leave holes.
#[derive(Default)]
pub(super) struct Run<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Without holes, runs end at multiples of this, a power of two, unless a piece is larger.
    pub(super) stride: u64,
    /// Without holes.
    pub(super) bytes: u64,
    parts: Vec<Part<'a>>,
    /// Parts before which there is a hole, by number, and where they begin.
    pub(super) holes: Vec<(usize, u64)>,
    /// Small pieces, copied together: room for all that a run may have, made when the first one comes, and how much is used.
    copies: Vec<u8>,
    copied: usize,
    /// What of the copies is there, while they are a window of the object.
    window: Window,
    /// Pieces as they were cut; one that lies across an end counts twice.
    pub(super) pieces: u64,
    /// Slices that they come from.
    pub(super) slices: Vec<usize>,
}

const _: () = assert!(WINDOW_BYTES <= COPY_BYTES_MAX, "a window lies in the copies");

/// One buffer of a vectored write.
#[derive(Clone)]
enum Part<'a> {
    /// Where it lies.
    InPlace(Piece<'a>),
    /// In the run's copies.
    Copied(Range<usize>),
}

impl<'a> Run<'a> {
    /// Where a run ends inside a piece, if it does.
    #[inline]
    pub(super) fn ends_inside(&self, at: u64, bytes: u32) -> Option<u64> {
        let stop = (at | (self.stride - 1)).saturating_add(1);
        (stop < at + u64::from(bytes) && u64::from(bytes) < self.stride).then_some(stop)
    }

    /// Whether a piece can join those that are there.
    #[inline]
    pub(super) fn takes(&self, at: u64, bytes: usize) -> bool {
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
    pub(super) fn push(&mut self, at: u64, piece: Piece<'a>) {
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
            self.parts.push(Part::InPlace(piece));
            return;
        }
        self.make_room_for_copies();
        let (start, end) = (self.copied, self.copied + piece.len());
        piece.copy_to(&mut self.copies[start..end]);
        self.copied = end;
        match self.parts.last_mut() {
            Some(Part::Copied(last)) if !is_hole => last.end = end,
            Some(Part::Copied(_) | Part::InPlace(_)) | None => self.parts.push(Part::Copied(start..end)),
        }
    }

    #[inline]
    fn make_room_for_copies(&mut self) {
        if self.copies.is_empty() {
            self.copies = buffers::take(COPY_BYTES_MAX);
        }
    }

    /// Begins a run of fine pieces, in any order, within a window of the object.
    pub(super) fn open_window(&mut self, start: u64) {
        self.clear();
        self.make_room_for_copies();
        self.window.clear();
        (self.start, self.end) = (start, start);
    }

    /// Puts a piece in its place in the window; false if a byte of it was there already.
    #[inline]
    pub(super) fn place_one(&mut self, cut: &Cut, data: &Piece<'a>) -> bool {
        let offset = usize::try_from(cut.local - self.start).expect("inside the window");
        let bytes = cut.bytes as usize;
        data.part(cut.data_at as usize, bytes).copy_to(&mut self.copies[offset..offset + bytes]);
        self.pieces += 1;
        self.bytes += u64::from(cut.bytes);
        self.window.mark(offset, bytes)
    }

    /// Puts the pieces of a row in their places in the window; false if a byte of them was there already.
    pub(super) fn place(&mut self, row: &Row, data: &Piece<'a>) -> bool {
        self.pieces += u64::from(row.count);
        self.bytes += row.bytes();
        let offset = usize::try_from(row.first.local - self.start).expect("inside the window");
        let (bytes, count) = (row.first.bytes as usize, row.count as usize);
        let stride = row.stride as usize;
        let source = data.part(row.first.data_at as usize, bytes * count);
        source.spread_to(&mut self.copies[offset..], (bytes, stride));
        self.window.mark_row((offset, bytes), (stride, count))
    }

    /// The window has all its pieces: they are ready to be written.
    pub(super) fn close_window(&mut self) {
        let Run { start, end, parts, holes, window, .. } = self;
        window.stretches(|stretch| {
            let at = *start + stretch.start as u64;
            if *end != at {
                holes.push((parts.len(), at));
            }
            *end = *start + stretch.end as u64;
            parts.push(Part::Copied(stretch));
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn buffers(&self) -> Vec<Piece<'_>> {
        let buffer = |part: &Part<'a>| match part {
            Part::InPlace(piece) => *piece,
            Part::Copied(range) => Piece::from(&self.copies[range.clone()]),
        };
        self.parts.iter().map(buffer).collect()
    }

    /// The same with their places, where there are holes and all were copied.
    pub(super) fn scattered(&self) -> Vec<Scattered<'_>> {
        let mut holes = self.holes.iter().peekable();
        let mut at = self.start;
        let mut pieces = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            if let Some((_, begins)) = holes.next_if(|(before, _)| *before == number) {
                at = *begins;
            }
            if let Part::Copied(range) = part {
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

impl Drop for Run<'_> {
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
