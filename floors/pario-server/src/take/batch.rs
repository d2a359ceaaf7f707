//! One round's records, cut into this server's pieces.
//!
//! Never: keeps a piece that is not in the data of its record. Always: the pieces of a slice ascend and do not overlap.

use std::ops::Range;

use pario_core::{Code, Fault, Layout, LocalOffset, Nanos, ObjectId, ServerIndex, SessionId};
use pario_sys::piece::Piece;
use pario_view::{ServerPart, ServerRow, View};

use super::ahead::{Ahead, Verdict};
use super::cut::{Covered, Cut, Row, sub_cut};
use super::join::Join;
use super::writer::{Errors, Ground, Writer};

/// Where a slice came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// The n-th write by message of this round.
    Message(usize),
    /// An outbox, by its place in the list.
    Outbox(usize),
}

/// When something was committed, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) committed: Nanos,
    pub(super) source: Source,
    /// Where the record stands in its outbox.
    pub(super) position: u64,
}

/// What one record, message or intent brings to this server: rows of cuts in ascending order.
pub(super) struct Slice<'a> {
    pub(super) object: ObjectId,
    pub(super) stamp: Stamp,
    pub(super) rows: Range<usize>,
    /// All cuts, and their bytes.
    pub(super) pieces: u64,
    pub(super) bytes: u64,
    /// `None`: an intent, whose bytes are in the store already.
    pub(super) data: Option<Piece<'a>>,
}

/// A round's slices.
pub(super) struct Batch<'a> {
    index: ServerIndex,
    slices: Vec<Slice<'a>>,
    rows: Vec<Row>,
    /// Cuts in all rows.
    pieces: u64,
    /// Of the slice that is being added: where its last cut ends, and whether its cuts ascend.
    end: u64,
    ascends: bool,
    /// Records that cannot be taken, and direct writes that did not last.
    given_up: Vec<(usize, ObjectId, Fault)>,
}

/// What was taken of one outbox.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Amount {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// The part of a view's stream that a slice holds, and how its file lies on the servers.
pub(super) struct Streamed<'v> {
    pub(super) view: Option<&'v View>,
    pub(super) layout: Layout,
    pub(super) stream: Range<u64>,
    /// Only what falls into this part of the object.
    pub(super) local: Range<u64>,
}

/// How a slice's data is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Packing {
    /// The whole stream range, of which this server takes its part.
    Whole,
    /// This server's part only.
    Part,
}

impl<'a> Batch<'a> {
    #[cfg(test)]
    pub(super) fn new(index: ServerIndex) -> Self {
        Batch::with_room(index, Vec::new())
    }

    /// An empty one, with the memory of an earlier one.
    pub(super) fn with_room(index: ServerIndex, mut room: Vec<Row>) -> Self {
        room.clear();
        Batch {
            index,
            slices: Vec::new(),
            rows: room,
            pieces: 0,
            end: 0,
            ascends: true,
            given_up: Vec::new(),
        }
    }

    /// Its memory, for a later one.
    pub(super) fn into_room(self) -> Vec<Row> {
        self.rows
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Pieces so far.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Records, or parts of them, and bytes that come from each of so many outboxes.
    pub(super) fn by_place(&self, places: usize) -> Vec<Amount> {
        let mut amounts = vec![Amount::default(); places];
        for slice in self.slices.iter().filter(|slice| slice.data.is_some()) {
            if let Source::Outbox(place) = slice.stamp.source {
                amounts[place].records += 1;
                amounts[place].bytes += slice.bytes;
            }
        }
        amounts
    }

    /// Bytes of one object, as a message brings them.
    pub(super) fn add_bytes(&mut self, object: ObjectId, at: LocalOffset, stamp: Stamp, data: Piece<'a>) {
        let start = self.begin();
        self.cut(at.0, 0, data.len() as u64);
        self.push(object, stamp, start, Some(data));
    }

    /// A range of a stream. False if the data is not what the view asks for.
    pub(super) fn add_stream(
        &mut self,
        object: ObjectId,
        stamp: Stamp,
        streamed: &Streamed<'_>,
        data: (Packing, Piece<'a>),
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

    /// Adds rows of a stream; returns their bytes, or `None` if one lies behind the end of data of so many bytes.
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
    pub(super) fn add_intent(&mut self, object: ObjectId, stamp: Stamp, layout: &Layout, file: Range<u64>) {
        let start = self.begin();
        for piece in layout.pieces_on(self.index, file) {
            self.cut(piece.local.0, 0, piece.bytes);
        }
        self.push(object, stamp, start, None);
    }

    /// What was added last comes late: leaves out what newer bytes lie over already.
    pub(super) fn leave_out(&mut self, session: SessionId, ahead: &Ahead) {
        let Some(slice) = self.slices.pop() else { return };
        let (object, stamp, start) = (slice.object, slice.stamp, slice.rows.start);
        let rows = self.take_from(start);
        let mut is_known = true;
        for cut in rows.into_iter().flat_map(Row::cuts) {
            match ahead.judge((session, stamp.committed), object, cut.local..cut.end()) {
                Verdict::Take(free) => {
                    free.iter().for_each(|rest| self.add_row(Row::one(sub_cut(&cut, rest))));
                }
                Verdict::Unknown => is_known = false,
            }
        }
        if !is_known {
            self.forget(start);
        }
        self.push(object, stamp, start, slice.data);
        if !is_known {
            self.give_up(object, stamp, "came too late to tell whether it is newer than what lies there");
        }
    }

    /// A direct write whose intent comes late. Records older than it may have been put over it.
    pub(super) fn add_late_intent(
        &mut self,
        (object, stamp): (ObjectId, Stamp),
        (layout, file): (&Layout, Range<u64>),
        (session, ahead): (SessionId, &Ahead),
    ) {
        self.add_intent(object, stamp, layout, file);
        let Some(rows) = self.slices.last().map(|slice| slice.rows.clone()) else { return };
        let when = (session, stamp.committed);
        let covered = |cut: &Cut| ahead.may_have_covered(when, object, &(cut.local..cut.end()));
        if self.rows[rows].iter().flat_map(|row| row.cuts()).any(|cut| covered(&cut)) {
            // It may be there all the same, and is kept from older ones: nobody would be told of those if this server were killed now.
            self.give_up(object, stamp, "was made directly, and older ones were put over it");
        }
    }

    fn give_up(&mut self, object: ObjectId, stamp: Stamp, why: &str) {
        let Source::Outbox(place) = stamp.source else { return };
        let text = format!("server {} was replaced, and a write to object {object} {why}", self.index);
        self.given_up.push((place, object, Fault::new(Code::Lost, text)));
    }

    /// A slice begins; returns the number of its first row.
    fn begin(&mut self) -> usize {
        (self.end, self.ascends) = (0, true);
        self.rows.len()
    }

    #[inline]
    fn add_row(&mut self, row: Row) {
        self.ascends &= self.end <= row.first.local && row.ascends();
        self.end = row.end();
        self.pieces += u64::from(row.count);
        self.rows.push(row);
    }

    /// Takes back the rows from `start` on.
    fn take_from(&mut self, start: usize) -> Vec<Row> {
        let rows = self.rows.split_off(start);
        self.pieces -= pieces_of(&rows);
        self.begin();
        rows
    }

    fn forget(&mut self, start: usize) {
        drop(self.take_from(start));
    }

    /// Adds what of a row, or of a single cut, falls into a part of the object.
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
            return self.add_row(Row { first, count, stride });
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
            self.add_row(Row::one(Cut { local, data_at: data_at as u32, bytes: part }));
            (local, data_at, bytes) =
                (local + u64::from(part), data_at + u64::from(part), bytes - u64::from(part));
        }
    }

    fn push(&mut self, object: ObjectId, stamp: Stamp, start: usize, data: Option<Piece<'a>>) {
        if !self.ascends {
            // Only a view that shows bytes twice: what lies later in the stream wins, as if written in its order.
            self.straighten(start);
        }
        let rows = start..self.rows.len();
        let bytes = self.rows[rows.clone()].iter().map(Row::bytes).sum();
        let pieces = pieces_of(&self.rows[rows.clone()]);
        self.slices.push(Slice { object, stamp, rows, pieces, bytes, data });
    }

    /// Makes the cuts from `start` on ascending and disjoint; later ones win.
    fn straighten(&mut self, start: usize) {
        let cuts: Vec<Cut> = self.take_from(start).into_iter().flat_map(Row::cuts).collect();
        let mut covered = Covered::default();
        for cut in cuts.iter().rev() {
            covered.add(cut.local..cut.end(), |rest| self.add_row(Row::one(sub_cut(cut, &rest))));
        }
        self.rows[start..].sort_unstable_by_key(|row| row.first.local);
    }

    /// Writes everything; what fails is told, the rest goes on.
    pub(super) fn apply(&mut self, ground: &Ground<'_>) -> Errors {
        // Stable: slices of one source stay in the order of their commits.
        self.slices.sort_by_key(|slice| (slice.object, slice.stamp.committed));
        let mut writer = Writer::new(self.index, ground);
        for (place, object, fault) in self.given_up.drain(..) {
            writer.errors.keep((place, object), &fault);
        }
        for slices in self.slices.chunk_by(|a, b| a.object == b.object) {
            Join { slices, rows: &self.rows }.write(&mut writer);
        }
        writer.errors
    }
}

/// A piece of the file's own bytes, whose stream is the file.
fn in_file(piece: pario_core::Piece) -> ServerRow {
    let pario_core::Piece { local, file_offset, bytes, .. } = piece;
    let first = ServerPart { stream_offset: file_offset, file_offset, local, bytes };
    ServerRow { first, stride: 0, count: 1 }
}

fn pieces_of(rows: &[Row]) -> u64 {
    rows.iter().map(|row| u64::from(row.count)).sum()
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
