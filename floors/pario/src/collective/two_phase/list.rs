//! Offset lists: what a rank tells an aggregator of the bytes that it has, or wants, in a window.
//!
//! An entry is 8 bytes, little endian: where the piece starts in the window, and how many bytes it has. Entries come in stream
//! order, which is file order but for views whose repetitions interleave. A list that is too long for the memory at hand is sent
//! in parts.
//!
//! Never: trusts a list; an entry outside its window is an error. Always: each byte of an access is in one entry of one list.

use std::ops::Range;

use pario_core::{Code, Fault};
use pario_view::{Part, Slice, View};

/// Bytes of one entry.
pub(super) const ENTRY_BYTES: usize = 8;

/// A rank's part of a call: these bytes of the stream of its view.
#[derive(Clone, Debug)]
pub(super) struct Reach<'a> {
    pub(super) view: &'a View,
    pub(super) stream: Range<u64>,
}

impl Reach<'_> {
    /// From the first to the last byte in the file; empty for nothing.
    pub(super) fn span(&self) -> Range<u64> {
        let view = self.view;
        if self.stream.is_empty() {
            return 0..0;
        }
        if view.direction() == pario_view::Direction::Increasing {
            let first = view.file_offset(self.stream.start);
            let last = view.file_offset(self.stream.end - 1);
            return first.zip(last).map_or(0..0, |(first, last)| first..last + 1);
        }
        let ends = view
            .extents(self.stream.clone())
            .map(|piece| (piece.file_offset, piece.file_offset + piece.bytes));
        let join = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.max(b.1));
        ends.reduce(join).map_or(0..0, |(start, end)| start..end)
    }

    /// How many bytes of the stream come before the first that lies at `end` of the file or behind.
    pub(super) fn bytes_before(&self, end: u64) -> u64 {
        let first = self.view.slice(self.stream.clone(), end..u64::MAX).next();
        first.map_or(self.stream.end, |part| part.stream_offset) - self.stream.start
    }

    /// The list for a window.
    pub(super) fn list(&self, window: Range<u64>) -> List<'_> {
        let empty = window.is_empty();
        let stream = if empty { 0..0 } else { self.stream.clone() };
        let parts = self.view.slice(stream, window.clone());
        List { parts, held: None, window_start: window.start, stream_start: self.stream.start }
    }
}

/// A piece of a window, and where its bytes are in the caller's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) window: Range<usize>,
    pub(super) memory: Range<usize>,
}

/// The pieces of a rank in a window, one after the other; what was not yet sent of them.
#[derive(Clone, Debug)]
pub(super) struct List<'v> {
    parts: Slice<'v>,
    held: Option<Part>,
    window_start: u64,
    stream_start: u64,
}

/// What goes to one aggregator at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Packet {
    /// Encoded entries.
    pub(super) entries: Vec<u8>,
    /// Where the data is in the caller's memory, neighbours joined.
    pub(super) runs: Vec<Range<usize>>,
    pub(super) data_bytes: usize,
}

impl Packet {
    fn clear(&mut self) {
        self.entries.clear();
        self.runs.clear();
        self.data_bytes = 0;
    }

    fn add(&mut self, piece: &Piece) {
        self.entries.extend_from_slice(&small(piece.window.start).to_le_bytes());
        self.entries.extend_from_slice(&small(piece.window.len()).to_le_bytes());
        self.data_bytes += piece.memory.len();
        match self.runs.last_mut().filter(|run| run.end == piece.memory.start) {
            Some(run) => run.end = piece.memory.end,
            None => self.runs.push(piece.memory.clone()),
        }
    }
}

/// What of a piece counts towards the memory that a packet may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// Entries alone: bytes are asked for.
    List,
    /// Entries and bytes.
    Data,
}

impl List<'_> {
    /// Fills a packet that takes at most `budget` bytes; at least one entry fits. Returns whether the list is at its end.
    pub(super) fn fill(&mut self, packet: &mut Packet, content: Content, budget: usize) -> bool {
        packet.clear();
        let mut left = budget;
        while let Some(part) = self.held.take().or_else(|| self.parts.next()) {
            let room = left.saturating_sub(ENTRY_BYTES) as u64;
            let fits = if content == Content::Data { room.min(part.bytes) } else { part.bytes };
            if left < ENTRY_BYTES || fits == 0 {
                self.held = Some(part);
                return false;
            }
            packet.add(&self.piece(&Part { bytes: fits, ..part }));
            if fits < part.bytes {
                self.held = Some(Part {
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

    fn piece(&self, part: &Part) -> Piece {
        let (at, from) =
            (memory(part.file_offset - self.window_start), memory(part.stream_offset - self.stream_start));
        let bytes = memory(part.bytes);
        Piece { window: at..at + bytes, memory: from..from + bytes }
    }
}

impl Iterator for List<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        let part = self.held.take().or_else(|| self.parts.next())?;
        Some(self.piece(&part))
    }
}

/// The entries of a list that a peer sent for a window of `window_bytes`: pieces of the window, in order.
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

/// A number of bytes of the caller's memory, or of a window.
fn memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("inside the caller's memory")
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("windows are shorter than 4 GiB")
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
