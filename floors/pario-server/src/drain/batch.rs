//! The records of one round, cut into this server's pieces.
//!
//! Never: keeps a piece that is not in the data of its record. Always: the pieces of a slice ascend and do not overlap.

use std::ops::Range;

use pario_core::{Code, Fault, Layout, LocalOffset, Nanos, ObjectId, ServerIndex, SessionId};
use pario_sys::piece::MemoryPiece;
use pario_view::{ServerPart, ServerRow, View};

use super::cut::{Covered, Cut, CutRow, sub_cut};
use super::join::Join;
use super::overwrites::{LateVerdict, Overwrites};
use super::writer::{Errors, RoundContext, RunWriter};

/// Source of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum SliceSource {
    /// The n-th write by message of this round.
    Message(usize),
    /// An outbox, by its index in the list.
    Outbox(usize),
}

/// Commit time and source of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitStamp {
    pub(super) committed: Nanos,
    pub(super) source: SliceSource,
    /// Position of the record in its outbox.
    pub(super) position: u64,
}

/// The part of one record, message or intent that belongs to this server: rows of cuts in ascending order.
pub(super) struct RecordSlice<'a> {
    pub(super) object: ObjectId,
    pub(super) stamp: CommitStamp,
    pub(super) rows: Range<usize>,
    /// Number of cuts and of their bytes.
    pub(super) pieces: u64,
    pub(super) bytes: u64,
    /// `None`: an intent; its bytes are in the store already.
    pub(super) data: Option<MemoryPiece<'a>>,
}

/// A round's slices.
pub(super) struct RoundBatch<'a> {
    index: ServerIndex,
    slices: Vec<RecordSlice<'a>>,
    rows: Vec<CutRow>,
    /// Cuts in all rows.
    pieces: u64,
    /// Of the slice being added: the end of its last cut, and whether its cuts ascend.
    end: u64,
    ascends: bool,
    /// Records that cannot be drained, and direct writes that were overwritten.
    given_up: Vec<(usize, ObjectId, Fault)>,
}

/// Records and bytes drained from one outbox.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Amount {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// The part of a view's stream that a slice holds, and the layout of its file over the servers.
pub(super) struct Streamed<'v> {
    pub(super) view: Option<&'v View>,
    pub(super) layout: Layout,
    pub(super) stream: Range<u64>,
    /// Only the bytes inside this range of the object.
    pub(super) local: Range<u64>,
}

/// Layout of a slice's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Packing {
    /// The whole stream range; this server uses its part.
    Whole,
    /// This server's part only.
    Part,
}

impl<'a> RoundBatch<'a> {
    #[cfg(test)]
    pub(super) fn new(index: ServerIndex) -> Self {
        RoundBatch::with_memory(index, Vec::new())
    }

    /// An empty batch that reuses the memory of an earlier one.
    pub(super) fn with_memory(index: ServerIndex, mut room: Vec<CutRow>) -> Self {
        room.clear();
        RoundBatch {
            index,
            slices: Vec::new(),
            rows: room,
            pieces: 0,
            end: 0,
            ascends: true,
            given_up: Vec::new(),
        }
    }

    /// The batch's memory, for a later batch.
    pub(super) fn into_memory(self) -> Vec<CutRow> {
        self.rows
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Pieces so far.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Records, or parts of them, and bytes per outbox.
    pub(super) fn by_outbox(&self, places: usize) -> Vec<Amount> {
        let mut amounts = vec![Amount::default(); places];
        for slice in self.slices.iter().filter(|slice| slice.data.is_some()) {
            if let SliceSource::Outbox(place) = slice.stamp.source {
                amounts[place].records += 1;
                amounts[place].bytes += slice.bytes;
            }
        }
        amounts
    }

    /// Bytes of one object, sent by message.
    pub(super) fn add_bytes(
        &mut self,
        object: ObjectId,
        at: LocalOffset,
        stamp: CommitStamp,
        data: MemoryPiece<'a>,
    ) {
        let start = self.begin();
        self.cut(at.0, 0, data.len() as u64);
        self.push(object, stamp, start, Some(data));
    }

    /// A range of a stream. False if the data does not match the view.
    pub(super) fn add_stream(
        &mut self,
        object: ObjectId,
        stamp: CommitStamp,
        streamed: &Streamed<'_>,
        data: (Packing, MemoryPiece<'a>),
    ) -> bool {
        let (start, (packing, data)) = (self.begin(), data);
        let (index, layout, stream) = (self.index, &streamed.layout, streamed.stream.clone());
        let length = data.len() as u64;
        let packed = match streamed.view {
            Some(view) => {
                self.add_rows(view.rows_on_server(layout, index, stream), streamed, (packing, length))
            }
            None => {
                let rows = layout.pieces_on(index, stream).map(in_file);
                self.add_rows(rows, streamed, (packing, length))
            }
        };
        let exact = packed.is_some_and(|packed| packing == Packing::Whole || packed == length);
        if exact {
            self.push(object, stamp, start, Some(data));
        } else {
            self.forget(start);
        }
        exact
    }

    /// Adds rows of a stream; returns their bytes, or `None` if a row ends beyond `data_bytes`.
    #[inline]
    fn add_rows(
        &mut self,
        rows: impl Iterator<Item = ServerRow>,
        streamed: &Streamed<'_>,
        (packing, length): (Packing, u64),
    ) -> Option<u64> {
        let wanted = &streamed.local;
        let mut packed = 0;
        for ServerRow { first, stride, count } in rows.take_while(|row| row.first.local.0 < wanted.end) {
            let bytes = first.bytes * count;
            let data_at = match packing {
                Packing::Whole => first.stream_offset - streamed.stream.start,
                Packing::Part => packed,
            };
            packed += bytes;
            if length < data_at + bytes {
                return None;
            }
            self.row_within(wanted, (first.local.0, data_at, first.bytes), (stride, count));
        }
        Some(packed)
    }

    /// A direct write that is in the store.
    pub(super) fn add_intent(
        &mut self,
        object: ObjectId,
        stamp: CommitStamp,
        layout: &Layout,
        file: Range<u64>,
    ) {
        let start = self.begin();
        for piece in layout.pieces_on(self.index, file) {
            self.cut(piece.local.0, 0, piece.bytes);
        }
        self.push(object, stamp, start, None);
    }

    /// The last slice added is late: leaves out the bytes that newer writes cover already.
    pub(super) fn leave_out(&mut self, session: SessionId, ahead: &Overwrites) {
        let Some(slice) = self.slices.pop() else { return };
        let (object, stamp, start) = (slice.object, slice.stamp, slice.rows.start);
        let rows = self.split_rows(start);
        let mut is_known = true;
        for cut in rows.into_iter().flat_map(CutRow::cuts) {
            match ahead.drainable((session, stamp.committed), object, cut.local..cut.end()) {
                LateVerdict::Drain(free) => {
                    free.iter().for_each(|rest| self.add_row(CutRow::one(sub_cut(&cut, rest))));
                }
                LateVerdict::Unknown => is_known = false,
            }
        }
        if !is_known {
            self.forget(start);
        }
        self.push(object, stamp, start, slice.data);
        if !is_known {
            self.give_up(object, stamp, "arrived too late to compare it with newer bytes; write it again");
        }
    }

    /// A direct write with a late intent. Older records may have been written over it.
    pub(super) fn add_late_intent(
        &mut self,
        (object, stamp): (ObjectId, CommitStamp),
        (layout, file): (&Layout, Range<u64>),
        (session, ahead): (SessionId, &Overwrites),
    ) {
        self.add_intent(object, stamp, layout, file);
        let Some(rows) = self.slices.last().map(|slice| slice.rows.clone()) else { return };
        let when = (session, stamp.committed);
        let covered = |cut: &Cut| ahead.may_have_covered(when, object, &(cut.local..cut.end()));
        if self.rows[rows].iter().flat_map(|row| row.cuts()).any(|cut| covered(&cut)) {
            // Its bytes may be in the store all the same and are protected from older records: their loss would not be reported if this
            // server were killed now.
            self.give_up(object, stamp, "was direct, and older records were written over it; write it again");
        }
    }

    fn give_up(&mut self, object: ObjectId, stamp: CommitStamp, why: &str) {
        let SliceSource::Outbox(place) = stamp.source else { return };
        let text = format!("server {} was replaced, and a write to object {object} {why}", self.index);
        self.given_up.push((place, object, Fault::new(Code::Lost, text)));
    }

    /// Begins a slice; returns the number of its first row.
    fn begin(&mut self) -> usize {
        (self.end, self.ascends) = (0, true);
        self.rows.len()
    }

    #[inline]
    fn add_row(&mut self, row: CutRow) {
        self.ascends &= self.end <= row.first.local && row.ascends();
        self.end = row.end();
        self.pieces += u64::from(row.count);
        self.rows.push(row);
    }

    /// Removes and returns the rows from `start` on.
    fn split_rows(&mut self, start: usize) -> Vec<CutRow> {
        let rows = self.rows.split_off(start);
        self.pieces -= pieces_of(&rows);
        self.begin();
        rows
    }

    fn forget(&mut self, start: usize) {
        drop(self.split_rows(start));
    }

    /// Adds the part of a row, or of a single cut, that lies inside a range of the object.
    #[inline]
    fn row_within(
        &mut self,
        wanted: &Range<u64>,
        (local, data_at, bytes): (u64, u64, u64),
        (stride, count): (u64, u64),
    ) {
        let end = local + stride * (count - 1) + bytes;
        if let (Ok(count), Ok(bytes), Ok(stride)) =
            (u32::try_from(count), u32::try_from(bytes), u32::try_from(stride))
            && wanted.start <= local
            && end <= wanted.end
        {
            #[expect(clippy::cast_possible_truncation, reason = "a ring is at most a gibibyte")]
            let first = Cut { local, data_at: data_at as u32, bytes };
            return self.add_row(CutRow { first, count, stride });
        }
        if end <= wanted.start || wanted.end <= local {
            return;
        }
        for number in 0..count {
            let (at, data_at) = (local + number * stride, data_at + number * bytes);
            let (from, to) = (at.max(wanted.start), (at + bytes).min(wanted.end));
            if from < to {
                self.cut(from, data_at + from - at, to - from);
            }
        }
    }

    fn cut(&mut self, local: u64, data_at: u64, bytes: u64) {
        let (mut local, mut data_at, mut bytes) = (local, data_at, bytes);
        while 0 < bytes {
            let part = u32::try_from(bytes).unwrap_or(1 << 31);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a ring is at most a gibibyte; intents have no data"
            )]
            self.add_row(CutRow::one(Cut { local, data_at: data_at as u32, bytes: part }));
            (local, data_at, bytes) =
                (local + u64::from(part), data_at + u64::from(part), bytes - u64::from(part));
        }
    }

    fn push(&mut self, object: ObjectId, stamp: CommitStamp, start: usize, data: Option<MemoryPiece<'a>>) {
        if !self.ascends {
            // Only for a view that maps bytes twice: the later position in the stream wins, as if written in stream order.
            self.make_disjoint(start);
        }
        let rows = start..self.rows.len();
        let bytes = self.rows[rows.clone()].iter().map(CutRow::bytes).sum();
        let pieces = pieces_of(&self.rows[rows.clone()]);
        self.slices.push(RecordSlice { object, stamp, rows, pieces, bytes, data });
    }

    /// Makes the cuts from `start` on ascending and disjoint; later ones win.
    fn make_disjoint(&mut self, start: usize) {
        let cuts: Vec<Cut> = self.split_rows(start).into_iter().flat_map(CutRow::cuts).collect();
        let mut covered = Covered::default();
        for cut in cuts.iter().rev() {
            covered.add(cut.local..cut.end(), |rest| self.add_row(CutRow::one(sub_cut(cut, &rest))));
        }
        self.rows[start..].sort_unstable_by_key(|row| row.first.local);
    }

    /// Writes all slices; a failure is recorded for its source and the other slices are still written.
    pub(super) fn apply(&mut self, ground: &RoundContext<'_>) -> Errors {
        // Stable: slices of one source stay in the order of their commits.
        self.slices.sort_by_key(|slice| (slice.object, slice.stamp.committed));
        let mut writer = RunWriter::new(self.index, ground);
        for (place, object, fault) in self.given_up.drain(..) {
            writer.errors.keep((place, object), &fault);
        }
        for slices in self.slices.chunk_by(|a, b| a.object == b.object) {
            Join { slices, rows: &self.rows }.write(&mut writer);
        }
        writer.errors
    }
}

/// A piece of the file's own bytes: the stream is the file.
fn in_file(piece: pario_core::StripePiece) -> ServerRow {
    let pario_core::StripePiece { local, file_offset, bytes, .. } = piece;
    let first = ServerPart { stream_offset: file_offset, file_offset, local, bytes };
    ServerRow { first, stride: 0, count: 1 }
}

fn pieces_of(rows: &[CutRow]) -> u64 {
    rows.iter().map(|row| u64::from(row.count)).sum()
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
