//! One round's records, cut into this server's pieces.
//!
//! Never: keeps a piece that is not in the data of its record. Always: the pieces of a slice ascend and do not overlap.

use std::ops::Range;

use pario_core::{Code, Fault, Layout, LocalOffset, Nanos, ObjectId, ServerIndex, SessionId};
use pario_sys::piece::Piece;
use pario_view::View;

use super::ahead::{Ahead, Verdict};
use super::cut::{Covered, Cut, sub_cut};
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

/// What one record, message or intent brings to this server: cuts in ascending order.
pub(super) struct Slice<'a> {
    pub(super) object: ObjectId,
    pub(super) stamp: Stamp,
    pub(super) cuts: Range<usize>,
    /// `None`: an intent, whose bytes are in the store already.
    pub(super) data: Option<Piece<'a>>,
}

/// A round's slices.
pub(super) struct Batch<'a> {
    index: ServerIndex,
    slices: Vec<Slice<'a>>,
    cuts: Vec<Cut>,
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
    pub(super) fn new(index: ServerIndex) -> Self {
        Batch { index, slices: Vec::new(), cuts: Vec::new(), given_up: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Pieces so far.
    pub(super) fn cuts(&self) -> usize {
        self.cuts.len()
    }

    /// Records, or parts of them, and bytes that come from each of so many outboxes.
    pub(super) fn by_place(&self, places: usize) -> Vec<Amount> {
        let mut amounts = vec![Amount::default(); places];
        for slice in self.slices.iter().filter(|slice| slice.data.is_some()) {
            if let Source::Outbox(place) = slice.stamp.source {
                amounts[place].records += 1;
                amounts[place].bytes +=
                    self.cuts[slice.cuts.clone()].iter().map(|cut| u64::from(cut.bytes)).sum::<u64>();
            }
        }
        amounts
    }

    /// Bytes of one object, as a message brings them.
    pub(super) fn add_bytes(&mut self, object: ObjectId, at: LocalOffset, stamp: Stamp, data: Piece<'a>) {
        let start = self.cuts.len();
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
        let (start, offset, (packing, data)) = (self.cuts.len(), streamed.stream.start, data);
        let mut packed = 0;
        let wanted = &streamed.local;
        let mut add = |batch: &mut Self, stream_offset: u64, local: LocalOffset, bytes: u64| {
            let data_at = if packing == Packing::Whole { stream_offset - offset } else { packed };
            packed += bytes;
            let fits = data_at + bytes <= data.len() as u64;
            let (from, to) = (local.0.max(wanted.start), (local.0 + bytes).min(wanted.end));
            if fits && from < to {
                batch.cut(from, data_at + from - local.0, to - from);
            }
            fits
        };
        let (index, stream) = (self.index, streamed.stream.clone());
        let fits = match streamed.view {
            Some(view) => view
                .on_server(&streamed.layout, index, stream)
                .take_while(|part| part.local.0 < wanted.end)
                .all(|part| add(self, part.stream_offset, part.local, part.bytes)),
            None => streamed
                .layout
                .pieces_on(index, stream)
                .take_while(|piece| piece.local.0 < wanted.end)
                .all(|piece| add(self, piece.file_offset, piece.local, piece.bytes)),
        };
        let exact = fits && (packing == Packing::Whole || packed == data.len() as u64);
        if exact {
            self.push(object, stamp, start, Some(data));
        } else {
            self.cuts.truncate(start);
        }
        exact
    }

    /// A direct write that is in the store.
    pub(super) fn add_intent(&mut self, object: ObjectId, stamp: Stamp, layout: &Layout, file: Range<u64>) {
        let start = self.cuts.len();
        for piece in layout.pieces_on(self.index, file) {
            self.cut(piece.local.0, 0, piece.bytes);
        }
        self.push(object, stamp, start, None);
    }

    /// What was added last comes late: leaves out what newer bytes lie over already.
    pub(super) fn leave_out(&mut self, session: SessionId, ahead: &Ahead) {
        let Some(slice) = self.slices.last_mut() else { return };
        let (object, stamp, start) = (slice.object, slice.stamp, slice.cuts.start);
        let cuts = self.cuts.split_off(start);
        let mut is_known = true;
        for cut in &cuts {
            match ahead.judge((session, stamp.committed), object, cut.local..cut.end()) {
                Verdict::Take(free) => self.cuts.extend(free.iter().map(|rest| sub_cut(cut, rest))),
                Verdict::Unknown => is_known = false,
            }
        }
        if !is_known {
            self.cuts.truncate(start);
        }
        slice.cuts = start..self.cuts.len();
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
        let Some(cuts) = self.slices.last().map(|slice| slice.cuts.clone()) else { return };
        let when = (session, stamp.committed);
        let covered = |cut: &Cut| ahead.may_have_covered(when, object, &(cut.local..cut.end()));
        if self.cuts[cuts].iter().any(covered) {
            // It may be there all the same, and is kept from older ones: nobody would be told of those if this server were killed now.
            self.give_up(object, stamp, "was made directly, and older ones were put over it");
        }
    }

    fn give_up(&mut self, object: ObjectId, stamp: Stamp, why: &str) {
        let Source::Outbox(place) = stamp.source else { return };
        let text = format!("server {} was replaced, and a write to object {object} {why}", self.index);
        self.given_up.push((place, object, Fault::new(Code::Lost, text)));
    }

    fn cut(&mut self, local: u64, data_at: u64, bytes: u64) {
        let (mut local, mut data_at, mut bytes) = (local, data_at, bytes);
        while 0 < bytes {
            let part = u32::try_from(bytes).unwrap_or(1 << 31);
            #[expect(clippy::cast_possible_truncation, reason = "data of at most 8 MiB; intents have none")]
            self.cuts.push(Cut { local, data_at: data_at as u32, bytes: part });
            (local, data_at, bytes) =
                (local + u64::from(part), data_at + u64::from(part), bytes - u64::from(part));
        }
    }

    fn push(&mut self, object: ObjectId, stamp: Stamp, start: usize, data: Option<Piece<'a>>) {
        let cuts = start..self.cuts.len();
        let ascending = self.cuts[cuts.clone()].windows(2).all(|pair| pair[0].end() <= pair[1].local);
        if !ascending {
            // Only a view that shows bytes twice: what lies later in the stream wins, as if written in its order.
            self.straighten(start);
        }
        self.slices.push(Slice { object, stamp, cuts: start..self.cuts.len(), data });
    }

    /// Makes the cuts from `start` on ascending and disjoint; later ones win.
    fn straighten(&mut self, start: usize) {
        let cuts = self.cuts.split_off(start);
        let mut covered = Covered::default();
        for cut in cuts.iter().rev() {
            covered.add(cut.local..cut.end(), |rest| self.cuts.push(sub_cut(cut, &rest)));
        }
        self.cuts[start..].sort_unstable_by_key(|cut| cut.local);
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
            Join { slices, cuts: &self.cuts }.write(&mut writer);
        }
        writer.errors
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
