//! Looking at what the outboxes hold, before anything is taken.
//!
//! Records that a round leaves are not read again by the next one: what was read of them is kept with the outboxes. Those that bring this
//! server nothing are only passed over.
//!
//! Never: believes a record; one that cannot be ends its client's connection. Always: records come in the order of their commits,
//! and all that were committed before the limit are there.

use std::ops::Range;
use std::sync::Arc;

use pario_core::{Clock, Nanos, ObjectId, ServerIndex, SessionId};
use pario_net::outbox::{IntentState, OutboxError, RecordKind, RecordView};
use pario_sys::clock::MonotonicClock;
use pario_view::{Answer, Share, View, disjoint};

use super::ahead::Ahead;
use super::batch::{Batch, Packing, Source, Stamp, Streamed};
use super::due::{self, Due};
use super::outboxes::{Attached, Outboxes};
use super::patience::Upto;
use crate::views::Views;

/// Records looked at per outbox and round.
pub(super) const RECORDS_MAX: usize = 16 << 10;
/// Pieces of one round; what is more waits for the next.
const PIECES_MAX: u64 = 1 << 20;

/// Work that is worth it to find that two records have nothing in common.
const COMPARE_STEPS_MAX: u64 = 2000;

/// One record that was looked at.
pub(super) struct Scanned {
    /// Its outbox.
    pub(super) place: usize,
    pub(super) record: RecordView,
    view: Option<Arc<View>>,
    /// From its first to its last byte in the file.
    span: Range<u64>,
    /// The part of that in this server's object, and how many bytes of it it brings.
    local: Range<u64>,
    local_bytes: u64,
    /// What lies below this place of the object was taken before.
    done_below: u64,
    intent: Option<IntentState>,
    /// It was committed while this server did not have its outbox.
    is_late: bool,
    /// It brings something for this server.
    is_ours: bool,
    /// The position behind it and behind what follows and brings us nothing.
    end: u64,
}

impl Scanned {
    /// Sees what may have changed since it was read.
    fn look_again(&mut self, attached: &Attached) -> Result<(), OutboxError> {
        self.done_below = attached.done_below(self.record.head.position);
        if self.intent.is_some() {
            self.intent = Some(attached.outbox.intent(&self.record)?.1);
        }
        Ok(())
    }

    pub(super) fn committed(&self) -> Nanos {
        self.record.head.committed
    }

    pub(super) fn object(&self) -> ObjectId {
        self.record.head.object
    }

    /// It brings this server data, or an intent.
    pub(super) fn concerns_us(&self) -> bool {
        self.is_ours && self.record.head.kind != RecordKind::Pad
    }

    fn is_data(&self) -> bool {
        self.record.head.kind == RecordKind::Data && self.is_ours && !self.is_done()
    }

    /// Whether it is known to have no byte of the file in common with another.
    fn is_apart_from(&self, other: &Scanned) -> bool {
        let Some((view, other_view)) = self.view.as_deref().zip(other.view.as_deref()) else { return false };
        let shares = [
            Share { view, stream: self.record.head.stream() },
            Share { view: other_view, stream: other.record.head.stream() },
        ];
        disjoint(&shares, COMPARE_STEPS_MAX) == Answer::Yes
    }

    /// Everything of it was taken before.
    fn is_done(&self) -> bool {
        0 < self.done_below && self.local.end <= self.done_below
    }

    /// About how many of its bytes were not taken before.
    pub(super) fn bytes_left(&self) -> u64 {
        let length = u128::from(self.local.end - self.local.start).max(1);
        let left = u128::from(self.local.end.saturating_sub(self.done_below.max(self.local.start)));
        u64::try_from(u128::from(self.local_bytes) * left / length).unwrap_or(self.local_bytes)
    }

    /// What of it is taken: up to which place of the object.
    fn taken_below(&self, upto: Upto) -> u64 {
        match upto {
            Upto::Committed(before) if self.committed() < before => u64::MAX,
            Upto::Committed(_) => self.done_below,
            Upto::Below(below) => below.max(self.done_below),
        }
    }
}

/// What a round takes of each outbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Portion {
    /// The same of all.
    Same(Upto),
    /// By place in the list.
    Each(Vec<Upto>),
}

impl Portion {
    fn of(&self, place: usize) -> Upto {
        match self {
            Portion::Same(upto) => *upto,
            Portion::Each(each) => each.get(place).copied().unwrap_or(Upto::NOTHING),
        }
    }

    /// Up to which place of the object, if that is how an outbox is cut.
    fn below(&self, place: usize) -> Option<u64> {
        match self.of(place) {
            Upto::Below(below) => Some(below),
            Upto::Committed(_) => None,
        }
    }

    /// Whether some outbox is cut by place.
    pub(super) fn is_by_place(&self) -> bool {
        match self {
            Portion::Same(upto) => matches!(upto, Upto::Below(_)),
            Portion::Each(each) => each.iter().any(|upto| matches!(upto, Upto::Below(_))),
        }
    }
}

/// What an earlier look found and no round has taken whole.
#[derive(Default)]
pub(super) struct Kept {
    records: Vec<Scanned>,
    /// Where the look ended in each outbox, and when the last record before was committed.
    ends: Vec<(u64, Nanos)>,
}

impl Kept {
    /// Takes no more memory than it needs.
    pub(super) fn shrink(&mut self) {
        self.records.shrink_to_fit();
    }
}

/// What was found.
pub(super) struct Scan {
    pub(super) records: Vec<Scanned>,
    pub(super) lies: Vec<(SessionId, String)>,
    /// Read, but not sure to be complete.
    later: Vec<Scanned>,
    /// How many records were read, beside those that were known.
    pub(super) read: usize,
    ends: Vec<(u64, Nanos)>,
    /// Only what was committed before is sure to be complete.
    limit: Nanos,
    index: ServerIndex,
}

impl Scan {
    /// A look that begins now: whatever was committed before is seen.
    pub(super) fn new(index: ServerIndex, began: Nanos, kept: Kept) -> Scan {
        let Kept { records, ends } = kept;
        Scan { records, lies: Vec::new(), later: Vec::new(), read: 0, ends, limit: began, index }
    }

    /// What the next look need not read again, if the outboxes are still in the same places.
    pub(super) fn keep(self) -> Kept {
        let Scan { mut records, mut later, ends, .. } = self;
        records.append(&mut later);
        Kept { records, ends }
    }

    /// Looks at all outboxes.
    pub(super) fn look_at(&mut self, outboxes: &[Attached], views: &Views) {
        self.forget_gone(outboxes);
        let mut known: Vec<(Result<(), OutboxError>, usize)> = outboxes.iter().map(|_| (Ok(()), 0)).collect();
        for record in &mut self.records {
            let (result, count) = &mut known[record.place];
            *count += 1;
            if let Err(error) = record.look_again(&outboxes[record.place]) {
                *result = Err(error);
            }
        }
        for (place, (attached, (again, count))) in outboxes.iter().zip(known).enumerate() {
            if self.ends.len() <= place {
                self.ends.push((attached.taken, attached.last_commit));
            }
            if let Err(error) = again.and_then(|()| self.look(place, attached, (views, count))) {
                self.lies.push((attached.session, error.to_string()));
                self.records.retain(|record| record.place != place);
            }
        }
        self.sort();
        tracing::trace!(records = self.records.len(), read = self.read, "looked at the outboxes");
    }

    /// Forgets what is taken. Where a record has made way for others, its outbox is read anew from there: what was passed over with it may
    /// still be there, and is to be passed over by the cursor too.
    fn forget_gone(&mut self, outboxes: &[Attached]) {
        let from =
            |attached: &Attached| attached.outbox.span(attached.taken).map_or(u64::MAX, |span| span.start);
        let from: Vec<u64> = outboxes.iter().map(from).collect();
        self.records.retain(|record| outboxes[record.place].taken <= record.record.head.position);
        let mut has_gone = vec![false; outboxes.len()];
        for record in &self.records {
            has_gone[record.place] |= record.record.head.position < from[record.place];
        }
        self.records.retain(|record| !has_gone[record.place]);
        for (place, end) in self.ends.iter_mut().enumerate().filter(|(place, _)| has_gone[*place]) {
            *end = (outboxes[place].taken, outboxes[place].last_commit);
        }
    }

    /// Looks at what is new in one outbox, of which so many records are known.
    fn look(
        &mut self,
        place: usize,
        attached: &Attached,
        (views, known_records): (&Views, usize),
    ) -> Result<(), OutboxError> {
        let span = attached.outbox.span(attached.taken)?;
        let (tail, (end, mut last)) = (span.end, self.ends[place]);
        let mut position = end.max(span.start);
        let mut known: Option<((u32, u64), Arc<View>)> = None;
        let mut is_first = true;
        for count in known_records.. {
            if tail <= position {
                break;
            }
            let record = attached.outbox.record(position, tail)?;
            let head = record.head;
            let lie = |what| OutboxError::Lie { what, position };
            if head.committed < last {
                return Err(lie("a record from before its predecessor"));
            }
            if self.limit <= head.committed || count == RECORDS_MAX {
                // It would never be taken, and those behind it neither.
                if MonotonicClock.now() < head.committed {
                    return Err(lie("a record from the future"));
                }
                self.limit = self.limit.min(head.committed);
                break;
            }
            self.read += 1;
            let is_ours = head.concerned.includes(self.index);
            let end = (position + head.span(), head.committed);
            let is_idle = !is_ours || head.kind == RecordKind::Pad;
            if let Some(before) = self.records.last_mut().filter(|_| is_idle && !is_first) {
                before.end = end.0;
                ((position, last), self.ends[place]) = (end, end);
                continue;
            }
            let which = (head.view, head.moved);
            if is_ours && head.view != 0 && known.as_ref().is_none_or(|(known, _)| *known != which) {
                let view = views.get(attached.session, head.view, head.moved);
                known =
                    Some((which, view.ok_or_else(|| lie("a record of a view that was never made known"))?));
            }
            let view = known.as_ref().filter(|_| is_ours && head.view != 0).map(|(_, view)| Arc::clone(view));
            let (span, intent) =
                if is_ours { extent(attached, &record, view.as_deref())? } else { (0..0, None) };
            let local = if is_ours { head.layout.local_range(self.index, span.clone()) } else { 0..0 };
            let local_bytes = match &view {
                Some(view) => view.bytes_on_server(&head.layout, self.index, head.stream()),
                None => local.end - local.start,
            };
            let done_below = attached.done_below(position);
            self.records.push(Scanned {
                place,
                record,
                view,
                span,
                local,
                local_bytes,
                done_below,
                intent,
                is_late: position < attached.late_before,
                is_ours,
                end: end.0,
            });
            is_first = false;
            ((position, last), self.ends[place]) = (end, end);
        }
        Ok(())
    }

    /// In the order of commits; what may be incomplete is left out.
    fn sort(&mut self) {
        let limit = self.limit;
        self.records.sort_by_key(Scanned::committed);
        let ready = self.records.partition_point(|record| record.committed() < limit);
        self.later = self.records.split_off(ready);
    }

    /// Records of some outboxes that bring data, and intents, for the decision how much to take.
    pub(super) fn due(&self, of: &dyn Fn(usize) -> bool) -> Vec<Due> {
        let due = |record: &Scanned| Due {
            place: record.place,
            committed: record.committed(),
            newest: record.committed(),
            object: record.record.head.object,
            companions: usize::from(record.record.head.companions),
            span: record.done_below.max(record.local.start)..record.local.end,
            bytes: record.bytes_left(),
            is_whole: record.intent.is_some(),
            is_joined: false,
        };
        let counts = |record: &&Scanned| record.concerns_us() && !record.is_done() && of(record.place);
        due::joined(self.records.iter().filter(counts).map(due))
    }

    /// The commit time of the first record of some outboxes that must wait for a direct write over the same bytes; `None` if none must.
    pub(super) fn held_up(&self, outboxes: &Outboxes, of: &dyn Fn(usize) -> bool) -> Option<Nanos> {
        let under_way = self.records.iter().filter(|record| {
            record.intent == Some(IntentState::UnderWay) && !outboxes.at(record.place).leaving
        });
        let under_way: Vec<&Scanned> = under_way.collect();
        if under_way.is_empty() {
            return None;
        }
        let meets = |record: &&Scanned| {
            under_way.iter().any(|intent| {
                intent.record.head.object == record.record.head.object
                    && record.committed() <= intent.committed()
                    && record.place != intent.place
                    && record.span.start < intent.span.end
                    && intent.span.start < record.span.end
            })
        };
        let mine = |record: &&Scanned| record.is_data() && of(record.place);
        self.records.iter().filter(mine).find(meets).map(Scanned::committed)
    }

    /// Adds what is to be taken to the batch, and says how far that brings each outbox.
    pub(super) fn fill<'a>(
        &self,
        outboxes: &'a Outboxes,
        portion: &Portion,
        (batch, ahead): (&mut Batch<'a>, Option<&Ahead>),
    ) -> Advance {
        let mut advance = Advance { positions: outboxes.positions(), parts: Vec::new() };
        let mut behind = vec![false; advance.positions.len()];
        for record in &self.records {
            if PIECES_MAX < batch.pieces() {
                break;
            }
            let upto = portion.of(record.place);
            let (head, below) = (record.record.head, record.taken_below(upto));
            if record.is_ours && record.done_below < below {
                record.add_to((batch, ahead), outboxes, below);
            }
            let untouched = matches!(upto, Upto::Committed(before) if before <= record.committed());
            let is_done = !untouched && (record.is_done() || !record.is_ours || record.local.end <= below);
            behind[record.place] |= !is_done;
            if !behind[record.place] {
                advance.positions[record.place] = (record.end, record.committed());
            } else if record.is_ours && record.local.start < below {
                advance.parts.push(TakenPart { place: record.place, position: head.position, below });
            }
        }
        advance
    }

    /// Whether bytes of a record that is new to this round may lie over bytes of an older one that will have been taken in part
    /// only: were the server killed then, its successor would take the older one whole, over the newer.
    pub(super) fn crosses(&self, portion: &Portion, advance: &Advance) -> bool {
        // Also one that is taken whole, behind another of its outbox that is not: a successor takes it once more.
        let is_left = |record: &&Scanned| advance.positions[record.place].0 <= record.record.head.position;
        let halves = self.records.iter().filter(|record| 0 < record.done_below).filter(is_left);
        let halves: Vec<&Scanned> = halves.collect();
        let is_new = |record: &&Scanned| record.is_ours && record.done_below == 0;
        let by_place = |record: &&Scanned| portion.below(record.place).is_some();
        self.records.iter().filter(is_new).filter(by_place).any(|record| {
            halves.iter().any(|half| {
                half.place != record.place
                    && half.committed() <= record.committed()
                    && record.local.start < half.done_below
                    && !record.is_apart_from(half)
            })
        })
    }

    /// Whether a write that came at that time would be put down before a record of the same bytes that was committed before it.
    pub(super) fn leaves_older(
        &self,
        advance: &Advance,
        (object, bytes): (ObjectId, &Range<u64>),
        arrived: Nanos,
    ) -> bool {
        let is_left = |record: &&Scanned| {
            record.is_data()
                && record.object() == object
                && record.committed() <= arrived
                && advance.positions[record.place].0 <= record.record.head.position
                && record.local.start < bytes.end
                && bytes.start < record.local.end
        };
        // What was committed after the limit was not looked at.
        self.limit <= arrived || self.records.iter().any(|record| is_left(&record))
    }

    /// The first record of some outboxes that is not over yet: what was committed before is.
    pub(super) fn first_left(&self, advance: &Advance, of: &dyn Fn(usize) -> bool) -> Option<Nanos> {
        let is_left = |record: &&Scanned| advance.positions[record.place].0 <= record.record.head.position;
        self.records.iter().filter(|record| of(record.place)).find(is_left).map(Scanned::committed)
    }

    /// The same with outboxes that come no further than the order of commits allows, of those that are cut by place.
    pub(super) fn in_order(&self, outboxes: &Outboxes, advance: Advance, portion: &Portion) -> Advance {
        let by_place = |place: usize| portion.below(place).is_some();
        let limit = self.first_left(&advance, &by_place).unwrap_or(Nanos(u64::MAX));
        let Advance { positions, mut parts } = advance;
        let mut strict = outboxes.positions();
        for (place, strict) in strict.iter_mut().enumerate().filter(|(place, _)| !by_place(*place)) {
            *strict = positions[place];
        }
        for record in self.records.iter().filter(|record| by_place(record.place)) {
            let head = record.record.head;
            if positions[record.place].0 <= head.position {
                continue;
            }
            if record.committed() < limit {
                strict[record.place] = (record.end, record.committed());
            } else if record.is_ours {
                parts.push(TakenPart {
                    place: record.place,
                    position: head.position,
                    below: record.local.end,
                });
            }
        }
        Advance { positions: strict, parts }
    }
}

/// How far a round brings the outboxes.
pub(super) struct Advance {
    /// Everything before it is taken.
    pub(super) positions: Vec<(u64, Nanos)>,
    /// Records beyond of which a part is.
    pub(super) parts: Vec<TakenPart>,
}

/// A record of which everything below a place of the object is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TakenPart {
    pub(super) place: usize,
    pub(super) position: u64,
    pub(super) below: u64,
}

impl Scanned {
    /// Adds what lies below a place of the object and was not taken before.
    fn add_to<'a>(
        &self,
        (batch, ahead): (&mut Batch<'a>, Option<&Ahead>),
        outboxes: &'a Outboxes,
        below: u64,
    ) {
        let head = self.record.head;
        let session = outboxes.at(self.place).session;
        let judge = ahead.filter(|_| self.is_late);
        let stamp =
            Stamp { committed: head.committed, source: Source::Outbox(self.place), position: head.position };
        match (head.kind, self.intent) {
            (RecordKind::Data, _) => {
                let data = outboxes.at(self.place).outbox.data(&self.record, 0, head.data_bytes as usize);
                let (stream, local) = (head.stream(), self.done_below..below);
                let streamed = Streamed { view: self.view.as_deref(), layout: head.layout, stream, local };
                let fits = batch.add_stream(head.object, stamp, &streamed, (Packing::Whole, data));
                assert!(fits, "a record holds its whole range of the stream");
                if let Some(ahead) = judge {
                    batch.leave_out(session, ahead);
                }
            }
            (RecordKind::Intent, Some(IntentState::Done)) => {
                let (what, bytes) = ((head.object, stamp), (&head.layout, self.span.clone()));
                match judge {
                    None => batch.add_intent(head.object, stamp, bytes.0, bytes.1),
                    Some(ahead) => batch.add_late_intent(what, bytes, (session, ahead)),
                }
            }
            (RecordKind::Intent | RecordKind::Pad, _) => {}
        }
    }
}

/// Where a record begins and ends in its file, and the state of an intent.
fn extent(
    attached: &Attached,
    record: &RecordView,
    view: Option<&View>,
) -> Result<(Range<u64>, Option<IntentState>), OutboxError> {
    let head = record.head;
    let lie = |what| OutboxError::Lie { what, position: head.position };
    let end = head.offset + u64::from(head.data_bytes);
    match (head.kind, view) {
        (RecordKind::Pad, _) => Ok((0..0, None)),
        (RecordKind::Intent, _) => {
            let (bytes, state) = attached.outbox.intent(record)?;
            Ok((head.offset..head.offset + bytes, Some(state)))
        }
        (RecordKind::Data, None) => Ok((head.offset..end, None)),
        (RecordKind::Data, Some(_)) if head.data_bytes == 0 => Ok((0..0, None)),
        (RecordKind::Data, Some(view)) => {
            if view.direction() != pario_view::Direction::Increasing {
                return Err(lie("a record through a view that shows bytes twice"));
            }
            let first = view.file_offset(head.offset);
            let last = view.file_offset(end - 1);
            first
                .zip(last)
                .map(|(first, last)| (first..last + 1, None))
                .ok_or_else(|| lie("a record beyond its view"))
        }
    }
}
