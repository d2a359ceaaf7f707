//! Stripe arithmetic: maps a byte of a file to its home server and the offset in that server's object.
//!
//! A file is cut into blocks of `stripe_bytes`, dealt round-robin to `count` servers from `first` on. A server stores its blocks
//! concatenated in one object, so a contiguous range of the file is at most one contiguous range of each object.
//!
//! Never: iterates over a block outside the result. Always: `1 <= count <= total`, `first < total`, `0 < stripe_bytes`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ids::{LocalOffset, ServerIndex};
use crate::limits;

/// Distribution of one file over the partition's servers. Fixed when the file is created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Layout {
    stripe_bytes: u32,
    count: u16,
    first: u16,
    total: u16,
}

/// An invalid layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// Stripe size outside its limits.
    #[error("stripe of {0} bytes: it must be a multiple of 4096 between 4 KiB and 1 GiB")]
    Stripe(u64),
    /// Stripe count outside 1..=total, or more servers than there may be.
    #[error("{count} servers wanted of {total}")]
    Count {
        /// Servers wanted.
        count: u16,
        /// Servers there are.
        total: u16,
    },
    /// First server that does not exist.
    #[error("first server {first} of {total}")]
    First {
        /// First server wanted.
        first: u16,
        /// Servers there are.
        total: u16,
    },
}

/// A part of a file that lies in one block of one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripePiece {
    /// The block's home.
    pub server: ServerIndex,
    /// Where the piece starts in the server's object.
    pub local: LocalOffset,
    /// Where the piece starts in the file.
    pub file_offset: u64,
    /// Its length, at most a stripe.
    pub bytes: u64,
}

impl Layout {
    /// Checks and makes a layout of `count` of `total` servers, starting at server `first`.
    pub fn new(stripe_bytes: u64, count: u16, first: u16, total: u16) -> Result<Self, LayoutError> {
        let in_range = (limits::STRIPE_BYTES_MIN..=limits::STRIPE_BYTES_MAX).contains(&stripe_bytes);
        let stripe = u32::try_from(stripe_bytes).map_err(|_| LayoutError::Stripe(stripe_bytes))?;
        if !in_range || !stripe_bytes.is_multiple_of(limits::STRIPE_BYTES_MIN) {
            return Err(LayoutError::Stripe(stripe_bytes));
        }
        if count == 0 || total < count || limits::SERVERS_MAX < usize::from(total) {
            return Err(LayoutError::Count { count, total });
        }
        if total <= first {
            return Err(LayoutError::First { first, total });
        }
        Ok(Layout { stripe_bytes: stripe, count, first, total })
    }

    /// Bytes in a block.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.stripe_bytes)
    }

    /// Servers that the file lies on.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The server of block 0.
    #[must_use]
    pub fn first(&self) -> u16 {
        self.first
    }

    /// Servers that the partition had when the file was created.
    #[must_use]
    pub fn total(&self) -> u16 {
        self.total
    }

    /// The servers that the file lies on, in the order of its first blocks.
    pub fn servers(&self) -> impl Iterator<Item = ServerIndex> + use<> {
        let layout = *self;
        (0..layout.count).map(move |column| layout.server_of_column(column))
    }

    /// Home server of the byte at `file_offset`, and the offset in its object.
    #[must_use]
    pub fn locate(&self, file_offset: u64) -> (ServerIndex, LocalOffset) {
        let block = file_offset / self.stripe_bytes();
        let (row, column) = (block / u64::from(self.count), block % u64::from(self.count));
        #[expect(clippy::cast_possible_truncation, reason = "column < count, a u16")]
        let server = self.server_of_column(column as u16);
        (server, LocalOffset(row * self.stripe_bytes() + file_offset % self.stripe_bytes()))
    }

    /// The pieces of a byte range, in file order.
    #[must_use]
    pub fn pieces(&self, range: Range<u64>) -> Pieces {
        Pieces { layout: *self, at: range.start, end: range.end, step: PieceStep::Every }
    }

    /// The pieces of a byte range on `server`, in file order, without iterating over the others.
    #[must_use]
    pub fn pieces_on(&self, server: ServerIndex, range: Range<u64>) -> Pieces {
        let Some(column) = self.column_of(server) else {
            return Pieces { layout: *self, at: range.end, end: range.end, step: PieceStep::Every };
        };
        let at = self.next_on_column(column, range.start);
        Pieces { layout: *self, at, end: range.end, step: PieceStep::Column(column) }
    }

    /// The range of `server`'s object that a range of the file covers: contiguous, perhaps empty.
    #[must_use]
    pub fn local_range(&self, server: ServerIndex, range: Range<u64>) -> Range<u64> {
        let Some(column) = self.column_of(server) else { return 0..0 };
        let start = self.local_length_of_column(column, range.start);
        let end = self.local_length_of_column(column, range.end);
        start..end.max(start)
    }

    /// Length of `server`'s object when every byte of a file of `file_bytes` is present.
    #[must_use]
    pub fn local_length(&self, server: ServerIndex, file_bytes: u64) -> u64 {
        self.column_of(server).map_or(0, |column| self.local_length_of_column(column, file_bytes))
    }

    /// The file offset of an offset in `server`'s object.
    #[must_use]
    pub fn file_offset(&self, server: ServerIndex, local: LocalOffset) -> Option<u64> {
        let column = u64::from(self.column_of(server)?);
        let row = local.0 / self.stripe_bytes();
        let block = row.checked_mul(u64::from(self.count))?.checked_add(column)?;
        block.checked_mul(self.stripe_bytes())?.checked_add(local.0 % self.stripe_bytes())
    }

    /// The file length that an object of `local_bytes` on `server` proves.
    #[must_use]
    pub fn file_length(&self, server: ServerIndex, local_bytes: u64) -> u64 {
        if local_bytes == 0 {
            return 0;
        }
        self.file_offset(server, LocalOffset(local_bytes - 1)).map_or(0, |last| last.saturating_add(1))
    }

    fn server_of_column(&self, column: u16) -> ServerIndex {
        let index = (u32::from(self.first) + u32::from(column)) % u32::from(self.total);
        #[expect(clippy::cast_possible_truncation, reason = "index < total, a u16")]
        ServerIndex(index as u16)
    }

    fn column_of(&self, server: ServerIndex) -> Option<u16> {
        if self.total <= server.0 {
            return None;
        }
        let total = u32::from(self.total);
        let column = (u32::from(server.0) + total - u32::from(self.first)) % total;
        let column = u16::try_from(column).ok()?;
        (column < self.count).then_some(column)
    }

    /// Bytes before `file_offset` that lie in `column`.
    fn local_length_of_column(&self, column: u16, file_offset: u64) -> u64 {
        let stripe = self.stripe_bytes();
        let row_bytes = stripe * u64::from(self.count);
        let (rows, rest) = (file_offset / row_bytes, file_offset % row_bytes);
        let before = u64::from(column) * stripe;
        rows * stripe + rest.saturating_sub(before).min(stripe)
    }

    /// First offset at or after `at` that lies in `column`; saturates at the end of the address space.
    fn next_on_column(&self, column: u16, at: u64) -> u64 {
        let stripe = self.stripe_bytes();
        let row_bytes = stripe * u64::from(self.count);
        let row_start = at - at % row_bytes;
        let start = row_start.saturating_add(u64::from(column) * stripe);
        if at < start {
            start
        } else if at < start.saturating_add(stripe) {
            at
        } else {
            start.saturating_add(row_bytes)
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum PieceStep {
    Every,
    Column(u16),
}

/// Iterator over the pieces of a range; see [`Layout::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    layout: Layout,
    at: u64,
    end: u64,
    step: PieceStep,
}

impl Iterator for Pieces {
    type Item = StripePiece;

    fn next(&mut self) -> Option<StripePiece> {
        if self.end <= self.at {
            return None;
        }
        let stripe = self.layout.stripe_bytes();
        let (server, local) = self.layout.locate(self.at);
        let bytes = (stripe - self.at % stripe).min(self.end - self.at);
        let piece = StripePiece { server, local, file_offset: self.at, bytes };
        self.at = self.at.saturating_add(bytes);
        if let PieceStep::Column(column) = self.step {
            self.at = self.layout.next_on_column(column, self.at);
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_locate(at: u64, expected: (u16, u64)) {
        let layout = Layout::new(4096, 3, 1, 4).unwrap();
        assert_eq!(layout.locate(at), (ServerIndex(expected.0), LocalOffset(expected.1)));
    }

    #[test]
    fn starts_at_first_server() {
        check_locate(0, (1, 0));
    }

    #[test]
    fn wraps_over_the_partition_end() {
        check_locate(4096 * 2 + 7, (3, 7));
    }

    #[test]
    fn second_row_follows_in_the_object() {
        check_locate(4096 * 3, (1, 4096));
    }

    #[test]
    fn refuses_what_cannot_be() {
        assert_eq!(Layout::new(1000, 1, 0, 1), Err(LayoutError::Stripe(1000)));
        assert_eq!(Layout::new(4096, 5, 0, 4), Err(LayoutError::Count { count: 5, total: 4 }));
        assert_eq!(Layout::new(4096, 0, 0, 4), Err(LayoutError::Count { count: 0, total: 4 }));
        assert_eq!(Layout::new(4096, 2, 4, 4), Err(LayoutError::First { first: 4, total: 4 }));
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        (1u16..6, 0u16..6, 1u16..6, 1u64..5).prop_map(|(count, first, extra, stripe)| {
            let total = count + extra - 1;
            Layout::new(stripe * 4096, count, first % total, total).unwrap()
        })
    }

    proptest! {
        #[test]
        fn pieces_tile_the_range(layout in any_layout(), start in 0u64..200_000, bytes in 0u64..200_000) {
            let mut at = start;
            for piece in layout.pieces(start..start + bytes) {
                prop_assert_eq!(piece.file_offset, at);
                prop_assert_eq!((piece.server, piece.local), layout.locate(at));
                prop_assert_eq!(layout.file_offset(piece.server, piece.local), Some(at));
                at += piece.bytes;
            }
            prop_assert_eq!(at, start + bytes);
        }

        #[test]
        fn pieces_on_a_server_are_the_pieces_filtered(
            layout in any_layout(), start in 0u64..200_000, bytes in 0u64..200_000, server in 0u16..12,
        ) {
            let server = ServerIndex(server);
            let all: Vec<_> = layout.pieces(start..start + bytes).filter(|p| p.server == server).collect();
            let some: Vec<_> = layout.pieces_on(server, start..start + bytes).collect();
            prop_assert_eq!(&all, &some);
            // ... and they are one contiguous range of the object.
            let local = layout.local_range(server, start..start + bytes);
            prop_assert_eq!(local.end - local.start, all.iter().map(|p| p.bytes).sum::<u64>());
            let mut next = local.start;
            for piece in all {
                prop_assert_eq!(piece.local.0, next);
                next += piece.bytes;
            }
        }

        #[test]
        fn lengths_agree(layout in any_layout(), bytes in 0u64..400_000) {
            let proved = layout.servers().map(|s| layout.file_length(s, layout.local_length(s, bytes))).max();
            prop_assert_eq!(proved, Some(bytes));
            let sum: u64 = layout.servers().map(|s| layout.local_length(s, bytes)).sum();
            prop_assert_eq!(sum, bytes);
        }

        #[test]
        fn far_offsets_do_not_overflow(layout in any_layout(), at in (u64::MAX - 1_000_000)..u64::MAX) {
            let range = at..u64::MAX;
            prop_assert_eq!(layout.pieces(range.clone()).map(|p| p.bytes).sum::<u64>(), u64::MAX - at);
            for server in layout.servers() {
                let _ = layout.pieces_on(server, range.clone()).count();
            }
        }
    }
}
