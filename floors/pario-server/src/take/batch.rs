//! One round's records: cut into this server's pieces, merged, written.
//!
//! Records of several writers that interleave are merged by a walk over all of them at once, so that neighbours from different
//! outboxes become one vectored write. Where records overlap, or an older one meets a direct write, the object is written newest
//! first instead, each byte once.
//!
//! Fine pieces are not merged: each is put in its place in a window of the object, and the bytes of all are written from there. Other
//! small pieces are copied together first, and go to the store in one call even where there are holes between them; larger ones go to
//! the store from where they lie. What lies together is written by calls that end at multiples of a power of two in
//! the object: the kernel keeps what one call brings in as few and large pages as its place allows, and both writing and mapping them costs
//! by the page.
//!
//! Never: joins pieces that overlap. Always: of overlapping pieces the one that was committed last wins.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use pario_core::{Code, Fault, Layout, LocalOffset, Nanos, ObjectId, ServerIndex, SessionId};
use pario_store::Store;
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::Piece;
use pario_view::View;

use super::ahead::{Ahead, Marks, Verdict};
use super::run::{Run, stride};
use super::store_fault;
use super::window::WINDOW_BYTES;
use crate::desk::{Desk, Turn, Wish};
use crate::stats::ServerStats;

/// Pieces of fewer bytes, on average, are fine: choosing which one comes next would cost more than everything else.
const FINE_BYTES_MAX: u64 = 64;

/// As long as they are not further apart, on average: a window is looked at as a whole.
const FINE_DISTANCE_MAX: u64 = 1024;

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

/// Bytes that lie together in the object and in the slice's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    local: u64,
    data_at: u32,
    bytes: u32,
}

impl Cut {
    fn end(&self) -> u64 {
        self.local + u64::from(self.bytes)
    }
}

/// What one record, message or intent brings to this server: cuts in ascending order.
struct Slice<'a> {
    object: ObjectId,
    stamp: Stamp,
    cuts: Range<usize>,
    /// `None`: an intent, whose bytes are in the store already.
    data: Option<Piece<'a>>,
}

/// What a round is written to, and how its pieces are looked after.
pub(super) struct Ground<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) desk: Option<&'a Arc<Desk>>,
    pub(super) stats: &'a ServerStats,
    pub(super) outboxes: Option<&'a super::outboxes::Outboxes>,
    /// Who wants to know what is put down.
    pub(super) ahead: Option<&'a Ahead>,
}

/// A round's slices.
pub(super) struct Batch<'a> {
    index: ServerIndex,
    slices: Vec<Slice<'a>>,
    cuts: Vec<Cut>,
    /// Records that cannot be taken, and direct writes that did not last.
    given_up: Vec<(usize, ObjectId, Fault)>,
}

/// What failed, by source. For outboxes with the object, since errors are kept per file.
#[derive(Default)]
pub(super) struct Errors {
    /// Not an error: pieces overlapped.
    pub(super) overlap: bool,
    messages: HashMap<usize, Fault>,
    pub(super) outboxes: Vec<(usize, ObjectId, Fault)>,
    /// Not an error either: what was put down, where somebody wants to know.
    pub(super) marks: Option<Marks>,
}

impl Errors {
    pub(super) fn of_message(&self, number: usize) -> Option<&Fault> {
        self.messages.get(&number)
    }
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
            keep(&mut writer.errors, (place, object), &fault);
        }
        for group in self.slices.chunk_by(|a, b| a.object == b.object) {
            let amount = self.amount(group);
            let stride = stride(amount.1 / amount.0.max(1));
            writer.begin(group.len(), stride);
            self.mark_intents(group, &mut writer);
            let direct = group.iter().any(|slice| slice.data.is_none()) && self.meets_intent(group);
            if direct || self.join(group, amount, &mut writer).is_err() {
                writer.errors.overlap = true;
                writer.begin(group.len(), stride);
                self.write_newest_first(group, &mut writer);
            }
            writer.flush(group);
        }
        writer.errors
    }

    /// Bytes of direct writes are in the store.
    fn mark_intents(&self, group: &[Slice<'a>], writer: &mut Writer<'a, '_>) {
        let Some(marks) = &mut writer.errors.marks else { return };
        for slice in group.iter().filter(|slice| slice.data.is_none()) {
            for cut in &self.cuts[slice.cuts.clone()] {
                marks.add(slice.object, cut.local..cut.end(), slice.stamp.committed);
            }
        }
        marks.put();
    }

    /// Whether a record touches bytes of a direct write.
    fn meets_intent(&self, group: &[Slice<'a>]) -> bool {
        let mut direct = Covered::default();
        for slice in group.iter().filter(|slice| slice.data.is_none()) {
            for cut in &self.cuts[slice.cuts.clone()] {
                direct.add(cut.local..cut.end(), |_| ());
            }
        }
        let records = group.iter().filter(|slice| slice.data.is_some());
        records
            .flat_map(|slice| &self.cuts[slice.cuts.clone()])
            .any(|cut| direct.touches(cut.local..cut.end()))
    }

    /// Pieces that are to be written, and their bytes.
    fn amount(&self, group: &[Slice<'a>]) -> (u64, u64) {
        let (mut pieces, mut bytes) = (0, 0);
        for slice in group.iter().filter(|slice| slice.data.is_some()) {
            let cuts = &self.cuts[slice.cuts.clone()];
            pieces += cuts.len() as u64;
            bytes += cuts.iter().map(|cut| u64::from(cut.bytes)).sum::<u64>();
        }
        (pieces, bytes)
    }

    /// Brings the pieces of all slices of an object together. Fails at the first overlap; what was written by then is written again.
    fn join(
        &self,
        group: &[Slice<'a>],
        (pieces, bytes): (u64, u64),
        writer: &mut Writer<'a, '_>,
    ) -> Result<(), Overlap> {
        let cuts = || group.iter().filter(|slice| slice.data.is_some()).map(|slice| slice.cuts.clone());
        let some = || cuts().filter(|cuts| !cuts.is_empty());
        let start = some().map(|cuts| self.cuts[cuts.start].local).min().unwrap_or(0);
        let end = some().map(|cuts| self.cuts[cuts.end - 1].end()).max().unwrap_or(0);
        let is_fine = bytes < pieces * FINE_BYTES_MAX && end - start < pieces * FINE_DISTANCE_MAX;
        // Who remembers what it puts down must see each piece.
        if is_fine && writer.errors.marks.is_none() {
            return self.scatter(group, writer);
        }
        self.merge(group, writer)
    }

    /// Puts all pieces in their places, one window of the object after the other.
    fn scatter(&self, group: &[Slice<'a>], writer: &mut Writer<'a, '_>) -> Result<(), Overlap> {
        let fine = |(number, slice): (usize, &Slice<'a>)| {
            let first = *self.cuts[slice.cuts.clone()].first()?;
            let rest = slice.cuts.start + 1..slice.cuts.end;
            Some(Fine { number, data: slice.data?, next: first, rest })
        };
        let mut lanes: Vec<Fine<'a>> = group.iter().enumerate().filter_map(fine).collect();
        while let Some(start) = lanes.iter().map(|lane| lane.next.local).min() {
            writer.run.open_window(start);
            let end = (start / WINDOW_BYTES as u64 + 1).saturating_mul(WINDOW_BYTES as u64);
            for lane in lanes.iter_mut().filter(|lane| lane.next.local < end) {
                writer.run.slices.push(lane.number);
                lane.place_below(end, &self.cuts, &mut writer.run)?;
            }
            lanes.retain(|lane| 0 < lane.next.bytes);
            writer.run.close_window();
            writer.flush(group);
        }
        Ok(())
    }

    /// Walks over all slices of an object at once. Fails at the first overlap.
    fn merge(&self, group: &[Slice<'a>], writer: &mut Writer<'a, '_>) -> Result<(), Overlap> {
        let mut lanes = self.lanes(group);
        let mut end = 0;
        while let Some(best) = smallest(&lanes) {
            let limit = lanes.iter().enumerate().filter(|(n, _)| *n != best).map(|(_, lane)| lane.next.local);
            let limit = limit.min().unwrap_or(u64::MAX);
            let lane = &mut lanes[best];
            loop {
                if lane.next.local < end {
                    return Err(Overlap);
                }
                end = lane.next.end();
                writer.push(group, lane.slice(), &lane.next);
                if !lane.advance(group, &self.cuts) {
                    lanes.swap_remove(best);
                    break;
                }
                if limit <= lane.next.local {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Slices that follow each other in the object, as the records of one writer do, are one lane.
    fn lanes(&self, group: &[Slice<'a>]) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = Vec::new();
        for (number, slice) in group.iter().enumerate() {
            let cuts = &self.cuts[slice.cuts.clone()];
            let (Some(first), Some(last)) = (cuts.first(), cuts.last()) else { continue };
            if slice.data.is_none() {
                continue;
            }
            match lanes.iter_mut().find(|lane| lane.source == slice.stamp.source && lane.end <= first.local) {
                Some(lane) => {
                    lane.slices.push(number);
                    lane.end = last.end();
                }
                None => lanes.push(Lane {
                    source: slice.stamp.source,
                    end: last.end(),
                    slices: vec![number],
                    at: 0,
                    cut: slice.cuts.start,
                    next: *first,
                }),
            }
        }
        lanes
    }

    /// Newest first, each byte once; bytes of direct writes count as written.
    fn write_newest_first(&self, group: &[Slice<'a>], writer: &mut Writer<'a, '_>) {
        let mut covered = Covered::default();
        let mut left = Vec::new();
        for (number, slice) in group.iter().enumerate().rev() {
            for cut in &self.cuts[slice.cuts.clone()] {
                covered.add(cut.local..cut.end(), |rest| left.push(sub_cut(cut, &rest)));
            }
            left.sort_unstable_by_key(|cut| cut.local);
            for cut in left.drain(..) {
                if slice.data.is_some() {
                    writer.push(group, number, &cut);
                }
            }
        }
    }
}

/// Two slices of an object touch the same byte.
struct Overlap;

/// A slice of fine pieces that are put in their places.
struct Fine<'a> {
    number: usize,
    data: Piece<'a>,
    /// The next piece, or what is left of it; without bytes when all are in their places.
    next: Cut,
    rest: Range<usize>,
}

impl<'a> Fine<'a> {
    fn place_below(&mut self, end: u64, cuts: &[Cut], run: &mut Run<'a>) -> Result<(), Overlap> {
        let mut next = self.next;
        while next.local < end {
            #[expect(clippy::cast_possible_truncation, reason = "at most the bytes of a cut")]
            let bytes = (end - next.local).min(u64::from(next.bytes)) as u32;
            let piece = self.data.part(next.data_at as usize, bytes as usize);
            if !run.place(next.local, piece) {
                return Err(Overlap);
            }
            if bytes < next.bytes {
                next = sub_cut(&next, &(end..next.end()));
                break;
            }
            let Some(number) = self.rest.next() else {
                next.bytes = 0;
                break;
            };
            next = cuts[number];
        }
        self.next = next;
        Ok(())
    }
}

/// Slices of one source, one behind the other.
struct Lane {
    source: Source,
    end: u64,
    slices: Vec<usize>,
    at: usize,
    cut: usize,
    next: Cut,
}

impl Lane {
    fn slice(&self) -> usize {
        self.slices[self.at]
    }

    #[inline]
    fn advance(&mut self, group: &[Slice<'_>], cuts: &[Cut]) -> bool {
        self.cut += 1;
        if self.cut == group[self.slices[self.at]].cuts.end {
            self.at += 1;
            let Some(next) = self.slices.get(self.at) else { return false };
            self.cut = group[*next].cuts.start;
        }
        self.next = cuts[self.cut];
        true
    }
}

fn smallest(lanes: &[Lane]) -> Option<usize> {
    (0..lanes.len()).min_by_key(|lane| lanes[*lane].next.local)
}

fn sub_cut(cut: &Cut, rest: &Range<u64>) -> Cut {
    #[expect(clippy::cast_possible_truncation, reason = "inside a cut")]
    let (skip, bytes) = ((rest.start - cut.local) as u32, (rest.end - rest.start) as u32);
    Cut { local: rest.start, data_at: cut.data_at.saturating_add(skip), bytes }
}

/// Bytes of an object that are settled: disjoint ranges.
#[derive(Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds a range; `fresh` gets the parts that were not covered.
    fn add(&mut self, range: Range<u64>, mut fresh: impl FnMut(Range<u64>)) {
        let before = self.0.range(..range.start).next_back().filter(|(_, to)| range.start <= **to);
        let first = before.map_or(range.start, |(from, _)| *from);
        let touched: Vec<(u64, u64)> =
            self.0.range(first..=range.end).map(|(from, to)| (*from, *to)).collect();
        let (mut start, mut end, mut at) = (range.start, range.end, range.start);
        for (from, to) in touched {
            self.0.remove(&from);
            if at < from {
                fresh(at..from);
            }
            (start, end, at) = (start.min(from), end.max(to), at.max(to));
        }
        if at < range.end {
            fresh(at..range.end);
        }
        self.0.insert(start, end);
    }

    fn touches(&self, range: Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, to)| range.start < *to)
    }
}

/// Puts pieces together and writes them.
struct Writer<'a, 'g> {
    index: ServerIndex,
    ground: &'g Ground<'g>,
    errors: Errors,
    run: Run<'a>,
    /// The number of the run, and in which one each slice of the group was last.
    runs: u64,
    last_in: Vec<u64>,
}

impl<'a, 'g> Writer<'a, 'g> {
    fn new(index: ServerIndex, ground: &'g Ground<'g>) -> Self {
        let errors = Errors { marks: ground.ahead.and_then(Ahead::wanted), ..Errors::default() };
        Writer { index, ground, errors, run: Run::default(), runs: 1, last_in: Vec::new() }
    }

    /// What follows are so many slices of one object, in runs that end at multiples of `stride`.
    fn begin(&mut self, slices: usize, stride: u64) {
        self.run.clear();
        self.run.stride = stride;
        if let Some(marks) = &mut self.errors.marks {
            marks.failed();
        }
        self.last_in.clear();
        self.last_in.resize(slices, 0);
    }

    #[inline]
    fn push(&mut self, group: &[Slice<'a>], number: usize, cut: &Cut) {
        let mut cut = *cut;
        if let Some(at) = self.run.ends_inside(cut.local, cut.bytes) {
            self.push_part(group, number, &sub_cut(&cut, &(cut.local..at)));
            cut = sub_cut(&cut, &(at..cut.end()));
        }
        self.push_part(group, number, &cut);
    }

    #[inline]
    fn push_part(&mut self, group: &[Slice<'a>], number: usize, cut: &Cut) {
        let Some(data) = group[number].data else { return };
        if !self.run.takes(cut.local, cut.bytes as usize) {
            self.flush(group);
        }
        self.run.push(cut.local, data.part(cut.data_at as usize, cut.bytes as usize));
        if let Some(marks) = &mut self.errors.marks {
            let slice = &group[number];
            marks.add(slice.object, cut.local..cut.end(), slice.stamp.committed);
        }
        if self.last_in[number] != self.runs {
            self.last_in[number] = self.runs;
            self.run.slices.push(number);
        }
    }

    fn flush(&mut self, group: &[Slice<'a>]) {
        if self.run.is_empty() {
            return;
        }
        let slices = self.run.slices.iter().map(|number| &group[*number]);
        let _turn = self.turn(group);
        reach(Point::DrainUnwritten);
        // As close to the system call as can be: a server that was stopped meanwhile must not write what is no longer there.
        let held = slices.clone().all(|slice| is_held(&slice.stamp, self.ground));
        if held {
            reach(Point::DrainChecked);
        }
        let written = if held { self.write(group) } else { Err(stopped_too_long(self.index)) };
        reach(Point::DrainWritten);
        if let Some(marks) = &mut self.errors.marks {
            if written.is_ok() { marks.put() } else { marks.failed() }
        }
        match written {
            Ok(()) => self.ground.stats.staged(self.run.pieces, self.run.bytes),
            Err(fault) => slices.for_each(|slice| note(slice, &fault, &mut self.errors)),
        }
        self.run.clear();
        self.runs += 1;
    }

    /// Waits for the turn of the first writer. What came as a message has had its turn.
    fn turn(&self, group: &[Slice<'a>]) -> Option<Turn> {
        let slice = &group[*self.run.slices.first()?];
        let (Source::Outbox(place), Some(outboxes)) = (slice.stamp.source, self.ground.outboxes) else {
            return None;
        };
        let wish = Wish {
            session: outboxes.session(place)?,
            object: slice.object,
            bytes: self.run.start..self.run.end,
        };
        self.ground.desk.map(|desk| desk.turn(&wish))
    }

    fn write(&self, group: &[Slice<'a>]) -> Result<(), Fault> {
        let object = group[self.run.slices[0]].object;
        let (store, run) = (self.ground.store, &self.run);
        let written = if run.holes.is_empty() {
            store.write(object, LocalOffset(run.start), &run.buffers())
        } else {
            store.write_scattered(object, &run.scattered())
        };
        written.map_err(|error| store_fault(self.index, &error))
    }
}

fn is_held(stamp: &Stamp, ground: &Ground<'_>) -> bool {
    match (stamp.source, ground.outboxes) {
        (Source::Outbox(place), Some(outboxes)) => outboxes.still_holds(place, stamp.position),
        (Source::Message(_), _) | (Source::Outbox(_), None) => true,
    }
}

fn stopped_too_long(index: ServerIndex) -> Fault {
    let text =
        format!("server {index} was stopped for so long that records were given up before it took them");
    Fault::new(Code::Lost, text)
}

/// Notes what a slice met.
fn note(slice: &Slice<'_>, fault: &Fault, errors: &mut Errors) {
    match slice.stamp.source {
        Source::Message(number) => {
            errors.messages.entry(number).or_insert_with(|| fault.clone());
        }
        Source::Outbox(place) => keep(errors, (place, slice.object), fault),
    }
}

/// Keeps the first fault of an outbox's file.
fn keep(errors: &mut Errors, of: (usize, ObjectId), fault: &Fault) {
    if !errors.outboxes.iter().any(|(place, object, _)| (*place, *object) == of) {
        errors.outboxes.push((of.0, of.1, fault.clone()));
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
