//! Offset lists: the bytes of a window that a rank has, or wants, sent to the aggregator.
//!
//! An entry is 8 bytes, little endian: start of the piece in the window, and its length. Entries are in stream order, which is
//! file order except for views with interleaved repetitions. A list that is too long for the available memory is sent in parts.
//!
//! Never: trusts a list; an entry outside its window is an error. Always: each byte of an access is in one entry of one list.

use std::ops::Range;

use pario_core::{Code, Fault};
use pario_view::{View, ViewPart, ViewSlice};

/// Bytes of one entry.
pub(super) const ENTRY_BYTES: usize = 8;

/// A rank's part of a call: a range of the stream of its view.
#[derive(Clone, Debug)]
pub(super) struct RankRange<'a> {
    pub(super) view: &'a View,
    pub(super) stream: Range<u64>,
}

impl RankRange<'_> {
    /// From the first to the last byte in the file; empty if the range is empty.
    pub(super) fn span(&self) -> Range<u64> {
        self.view.span(self.stream.clone()).unwrap_or_default()
    }

    /// Number of bytes of the stream before the first byte at or after file offset `end`.
    pub(super) fn bytes_before(&self, end: u64) -> u64 {
        let first = self.view.slice(self.stream.clone(), end..u64::MAX).next();
        first.map_or(self.stream.end, |part| part.stream_offset) - self.stream.start
    }

    /// The list for a window.
    pub(super) fn list(&self, window: Range<u64>) -> OffsetList<'_> {
        let empty = window.is_empty();
        let stream = if empty { 0..0 } else { self.stream.clone() };
        let parts = self.view.slice(stream, window.clone());
        OffsetList { parts, held: None, window_start: window.start, stream_start: self.stream.start }
    }
}

/// A piece of a window, and the position of its bytes in the caller's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WindowPiece {
    pub(super) window: Range<usize>,
    pub(super) memory: Range<usize>,
}

/// Iterator over the pieces of a rank in a window that were not yet sent.
#[derive(Clone, Debug)]
pub(super) struct OffsetList<'v> {
    parts: ViewSlice<'v>,
    held: Option<ViewPart>,
    window_start: u64,
    stream_start: u64,
}

/// The data for one aggregator in one step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AggregatorPacket {
    /// Encoded entries.
    pub(super) entries: Vec<u8>,
    /// Position of the data in the caller's memory, neighbours joined.
    pub(super) runs: Vec<Range<usize>>,
    pub(super) data_bytes: usize,
}

impl AggregatorPacket {
    fn clear(&mut self) {
        self.entries.clear();
        self.runs.clear();
        self.data_bytes = 0;
    }

    fn add(&mut self, piece: &WindowPiece) {
        self.entries.extend_from_slice(&small(piece.window.start).to_le_bytes());
        self.entries.extend_from_slice(&small(piece.window.len()).to_le_bytes());
        self.data_bytes += piece.memory.len();
        match self.runs.last_mut().filter(|run| run.end == piece.memory.start) {
            Some(run) => run.end = piece.memory.end,
            None => self.runs.push(piece.memory.clone()),
        }
    }
}

/// Which bytes of a piece count towards the size of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// Entries only (read request).
    List,
    /// Entries and data (write).
    Data,
}

impl OffsetList<'_> {
    /// Fills a packet with at most `budget` bytes; at least one entry fits. Returns whether the list is complete.
    pub(super) fn fill(&mut self, packet: &mut AggregatorPacket, content: Content, budget: usize) -> bool {
        packet.clear();
        let mut left = budget;
        while let Some(part) = self.held.take().or_else(|| self.parts.next()) {
            let room = left.saturating_sub(ENTRY_BYTES) as u64;
            let fits = if content == Content::Data { room.min(part.bytes) } else { part.bytes };
            if left < ENTRY_BYTES || fits == 0 {
                self.held = Some(part);
                return false;
            }
            packet.add(&self.piece(&ViewPart { bytes: fits, ..part }));
            if fits < part.bytes {
                self.held = Some(ViewPart {
                    stream_offset: part.stream_offset + fits,
                    file_offset: part.file_offset + fits,
                    bytes: part.bytes - fits,
                });
                return false;
            }
            left -= ENTRY_BYTES + if content == Content::Data { memory(fits) } else { 0 };
        }
        true
    }

    fn piece(&self, part: &ViewPart) -> WindowPiece {
        let (at, from) =
            (memory(part.file_offset - self.window_start), memory(part.stream_offset - self.stream_start));
        let bytes = memory(part.bytes);
        WindowPiece { window: at..at + bytes, memory: from..from + bytes }
    }
}

impl Iterator for OffsetList<'_> {
    type Item = WindowPiece;

    #[inline]
    fn next(&mut self) -> Option<WindowPiece> {
        let part = self.held.take().or_else(|| self.parts.next())?;
        Some(self.piece(&part))
    }
}

/// Decodes the entries of a list that a peer sent for a window of `window_bytes`: pieces of the window, in order.
pub(super) fn entries(list: &[u8], window_bytes: usize) -> impl Iterator<Item = Result<Range<usize>, Fault>> {
    list.chunks_exact(ENTRY_BYTES).map(move |entry| {
        let (start, bytes) = entry.split_at(4);
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
        let (start, bytes) = (number(start), number(bytes));
        match start.checked_add(bytes).filter(|end| *end <= window_bytes) {
            Some(end) => Ok(start..end),
            None => {
                let text =
                    format!("an offset list names {bytes} bytes at {start} of a window of {window_bytes}");
                Err(Fault::new(Code::Protocol, text))
            }
        }
    })
}

/// A byte count that fits the caller's memory, or a window.
fn memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("inside the caller's memory")
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("windows are shorter than 4 GiB")
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
