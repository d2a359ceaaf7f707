//! Scan of the outboxes before anything is drained.
//!
//! Records that a round leaves are not read again by the next one: they are kept with the outboxes. Records without data for this server
//! are only skipped.
//!
//! Never: trusts a record: an impossible head ends its client's connection, and a record that does not fit its view is refused. Always:
//! records are in commit order, and all that were committed before the limit are included.

use std::ops::Range;
use std::sync::Arc;

use pario_core::{Clock, Nanos, ObjectId, ServerIndex, SessionId};
use pario_net::outbox::{IntentState, OutboxError, RecordHead, RecordKind, RecordView};
use pario_sys::clock::MonotonicClock;
use pario_view::{OverlapAnswer, View, ViewShare, disjoint};

use super::batch::{CommitStamp, Packing, RoundBatch, SliceSource, Streamed};
use super::merge_wait::Cutoff;
use super::outboxes::{AttachedOutbox, Outboxes};
use super::overwrites::Overwrites;
use super::pending::{self, PendingRecord};
use super::refused::{RefusedRecord, ScanFault};
use crate::views::DefinedViews;

/// Records read per outbox and round.
pub(super) const RECORDS_MAX: usize = 16 << 10;
/// Pieces of one round; the rest waits for the next round.
const PIECES_MAX: u64 = 1 << 20;

/// Work spent to prove that two records do not overlap.
const COMPARE_STEPS_MAX: u64 = 2000;

/// One record that was read.
pub(super) struct Scanned {
    /// Index of its outbox.
    pub(super) outbox: usize,
    pub(super) record: RecordView,
    view: Option<Arc<View>>,
    /// From its first to its last byte in the file.
    span: Range<u64>,
    /// The part of that in this server's object, and the number of its bytes.
    local: Range<u64>,
    local_bytes: u64,
    /// Bytes below this offset of the object were drained before.
    done_below: u64,
    intent: Option<IntentState>,
    /// It was committed while this server did not have its outbox.
    is_late: bool,
    /// It has data for this server.
    is_ours: bool,
    /// The position after it and after the following records without data for this server.
    end: u64,
}

/// Where a record was read.
#[derive(Clone, Copy)]
struct RecordPlace {
    /// Index of its outbox.
    outbox: usize,
    /// The server that reads.
    index: ServerIndex,
    /// The position after the record.
    end: u64,
}

impl Scanned {
    /// A record that was read. One that does not fit its view is refused, and has no data.
    fn read(
        RecordPlace { outbox, index, end }: RecordPlace,
        attached: &AttachedOutbox,
        record: RecordView,
        views: (&DefinedViews, &mut Option<KnownView>),
        refused: &mut Vec<RefusedRecord>,
    ) -> Result<Scanned, OutboxError> {
        let head = record.head;
        let found = match head.concerned.includes(index) {
            true => find_view(attached, &head, views).and_then(|view| {
                let (span, intent) = extent(attached, &record, view.as_deref())?;
                Ok(Some((view, span, intent)))
            }),
            false => Ok(None),
        };
        let found = match found {
            Ok(found) => found,
            Err(ScanFault::Outbox(error)) => return Err(error),
            Err(ScanFault::Record(why)) => {
                refused.push(RefusedRecord { outbox, head, why });
                None
            }
        };
        let is_ours = found.is_some();
        let (view, span, intent) = found.unwrap_or((None, 0..0, None));
        let local = if is_ours { head.layout.local_range(index, span.clone()) } else { 0..0 };
        let local_bytes = match &view {
            Some(view) => view.bytes_on_server(&head.layout, index, head.stream()),
            None => local.end - local.start,
        };
        Ok(Scanned {
            outbox,
            record,
            view,
            span,
            local,
            local_bytes,
            done_below: attached.done_below(head.position),
            intent,
            is_late: head.position < attached.late_before,
            is_ours,
            end,
        })
    }

    /// Updates the state that may have changed since it was read.
    fn refresh(&mut self, attached: &AttachedOutbox) -> Result<(), OutboxError> {
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

    /// It has data, or an intent, for this server.
    pub(super) fn concerns_us(&self) -> bool {
        self.is_ours && self.record.head.kind != RecordKind::Pad
    }

    fn is_data(&self) -> bool {
        self.record.head.kind == RecordKind::Data && self.is_ours && !self.is_done()
    }

    /// Whether it is known not to overlap another record.
    fn is_apart_from(&self, other: &Scanned) -> bool {
        let Some((view, other_view)) = self.view.as_deref().zip(other.view.as_deref()) else { return false };
        let shares = [
            ViewShare { view, stream: self.record.head.stream() },
            ViewShare { view: other_view, stream: other.record.head.stream() },
        ];
        disjoint(&shares, COMPARE_STEPS_MAX) == OverlapAnswer::Yes
    }

    /// It was drained before.
    fn is_done(&self) -> bool {
        0 < self.done_below && self.local.end <= self.done_below
    }

    /// Estimate of its bytes that were not drained before.
    pub(super) fn bytes_left(&self) -> u64 {
        let length = u128::from(self.local.end - self.local.start).max(1);
        let left = u128::from(self.local.end.saturating_sub(self.done_below.max(self.local.start)));
        u64::try_from(u128::from(self.local_bytes) * left / length).unwrap_or(self.local_bytes)
    }

    /// The offset of the object up to which it is drained.
    fn drained_below(&self, upto: Cutoff) -> u64 {
        match upto {
            Cutoff::Committed(before) if self.committed() < before => u64::MAX,
            Cutoff::Committed(_) => self.done_below,
            Cutoff::Below(below) => below.max(self.done_below),
        }
    }
}

/// How much a round drains of each outbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DrainLimit {
    /// The same cutoff for all.
    Same(Cutoff),
    /// By index in the list.
    Each(Vec<Cutoff>),
}

impl DrainLimit {
    fn of(&self, place: usize) -> Cutoff {
        match self {
            DrainLimit::Same(upto) => *upto,
            DrainLimit::Each(each) => each.get(place).copied().unwrap_or(Cutoff::NOTHING),
        }
    }

    /// The cutoff as an offset of the object, if the outbox is cut by offset.
    fn below(&self, place: usize) -> Option<u64> {
        match self.of(place) {
            Cutoff::Below(below) => Some(below),
            Cutoff::Committed(_) => None,
        }
    }

    /// Whether some outbox is cut by offset.
    pub(super) fn is_by_offset(&self) -> bool {
        match self {
            DrainLimit::Same(upto) => matches!(upto, Cutoff::Below(_)),
            DrainLimit::Each(each) => each.iter().any(|upto| matches!(upto, Cutoff::Below(_))),
        }
    }
}

/// Records that an earlier scan read and no round has drained entirely.
#[derive(Default)]
pub(super) struct KeptRecords {
    records: Vec<Scanned>,
    /// End of the scan in each outbox, and the commit time of the last record before it.
    ends: Vec<(u64, Nanos)>,
}

impl KeptRecords {
    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        self.records.shrink_to_fit();
    }
}

/// Result of a scan.
pub(super) struct Scan {
    pub(super) records: Vec<Scanned>,
    pub(super) violations: Vec<(SessionId, String)>,
    /// Records that are skipped, with the reason.
    pub(super) refused: Vec<RefusedRecord>,
    /// Read, but possibly incomplete.
    later: Vec<Scanned>,
    /// Number of records read, without those known before.
    pub(super) read: usize,
    ends: Vec<(u64, Nanos)>,
    /// Only records committed before this time are certain to be complete.
    limit: Nanos,
    index: ServerIndex,
}

impl Scan {
    /// A scan that begins now: all records committed before are seen.
    pub(super) fn new(index: ServerIndex, began: Nanos, kept: KeptRecords) -> Scan {
        let KeptRecords { records, ends } = kept;
        let (lies, refused, later) = (Vec::new(), Vec::new(), Vec::new());
        Scan { records, violations: lies, refused, later, read: 0, ends, limit: began, index }
    }

    /// Records that the next scan need not read again, if the indexes of the outboxes have not changed.
    pub(super) fn keep(self) -> KeptRecords {
        let Scan { mut records, mut later, ends, .. } = self;
        records.append(&mut later);
        KeptRecords { records, ends }
    }

    /// Scans all outboxes.
    pub(super) fn scan_all(&mut self, outboxes: &[AttachedOutbox], views: &DefinedViews) {
        self.drop_drained(outboxes);
        let mut known: Vec<(Result<(), OutboxError>, usize)> = outboxes.iter().map(|_| (Ok(()), 0)).collect();
        for record in &mut self.records {
            let (result, count) = &mut known[record.outbox];
            *count += 1;
            if let Err(error) = record.refresh(&outboxes[record.outbox]) {
                *result = Err(error);
            }
        }
        for (place, (attached, (again, count))) in outboxes.iter().zip(known).enumerate() {
            if self.ends.len() <= place {
                self.ends.push((attached.drained, attached.last_commit));
            }
            if let Err(error) = again.and_then(|()| self.read_outbox(place, attached, (views, count))) {
                self.violations.push((attached.session, error.to_string()));
                self.records.retain(|record| record.outbox != place);
            }
        }
        self.sort();
        tracing::trace!(records = self.records.len(), read = self.read, "scanned the outboxes");
    }

    /// Drops drained records. Where a record was overwritten, its outbox is read again from there: records skipped with it may still exist,
    /// and the cursor must skip them too.
    fn drop_drained(&mut self, outboxes: &[AttachedOutbox]) {
        let from = |attached: &AttachedOutbox| {
            attached.outbox.span(attached.drained).map_or(u64::MAX, |span| span.start)
        };
        let from: Vec<u64> = outboxes.iter().map(from).collect();
        self.records.retain(|record| outboxes[record.outbox].drained <= record.record.head.position);
        let mut has_gone = vec![false; outboxes.len()];
        for record in &self.records {
            has_gone[record.outbox] |= record.record.head.position < from[record.outbox];
        }
        self.records.retain(|record| !has_gone[record.outbox]);
        for (place, end) in self.ends.iter_mut().enumerate().filter(|(place, _)| has_gone[*place]) {
            *end = (outboxes[place].drained, outboxes[place].last_commit);
        }
    }

    /// Reads new records of one outbox, of which `known` records were read before.
    fn read_outbox(
        &mut self,
        place: usize,
        attached: &AttachedOutbox,
        (views, known_records): (&DefinedViews, usize),
    ) -> Result<(), OutboxError> {
        let span = attached.outbox.span(attached.drained)?;
        let (mut tail, (end, mut last)) = (span.end, self.ends[place]);
        let mut position = end.max(span.start);
        let mut known: Option<KnownView> = None;
        let mut is_first = true;
        for count in known_records.. {
            if tail <= position {
                break;
            }
            let lie = |what| OutboxError::Violation { what, position };
            let Some(record) = attached.outbox.record(position, tail)? else {
                // It concerned other servers, which have drained it, and its memory is reused: the scan goes on at the oldest record.
                if RECORDS_MAX <= count {
                    return Err(lie("records that are overwritten as soon as they are committed"));
                }
                let span = attached.outbox.span(position)?;
                (position, tail) = (span.start, span.end);
                continue;
            };
            let head = record.head;
            if head.committed < last {
                return Err(lie("a record committed before its predecessor"));
            }
            if self.limit <= head.committed || RECORDS_MAX <= count {
                // Neither it nor the records after it would ever be drained.
                if MonotonicClock.now() < head.committed {
                    return Err(lie("a record committed in the future"));
                }
                self.limit = self.limit.min(head.committed);
                break;
            }
            self.read += 1;
            let end = (position + head.span(), head.committed);
            let is_idle = !head.concerned.includes(self.index) || head.kind == RecordKind::Pad;
            if let Some(before) = self.records.last_mut().filter(|_| is_idle && !is_first) {
                before.end = end.0;
                ((position, last), self.ends[place]) = (end, end);
                continue;
            }
            let (records, refused) = (&mut self.records, &mut self.refused);
            let at = RecordPlace { outbox: place, index: self.index, end: end.0 };
            records.push(Scanned::read(at, attached, record, (views, &mut known), refused)?);
            is_first = false;
            ((position, last), self.ends[place]) = (end, end);
        }
        Ok(())
    }

    /// Sorts by commit time; possibly incomplete records are left out.
    fn sort(&mut self) {
        let limit = self.limit;
        self.records.sort_by_key(Scanned::committed);
        let ready = self.records.partition_point(|record| record.committed() < limit);
        self.later = self.records.split_off(ready);
    }

    /// Records of some outboxes that have data, and intents, for the decision how much to drain.
    pub(super) fn pending(&self, of: &dyn Fn(usize) -> bool) -> Vec<PendingRecord> {
        let due = |record: &Scanned| PendingRecord {
            outbox: record.outbox,
            committed: record.committed(),
            newest: record.committed(),
            object: record.record.head.object,
            local_writers: usize::from(record.record.head.local_writers),
            span: record.done_below.max(record.local.start)..record.local.end,
            bytes: record.bytes_left(),
            is_whole: record.intent.is_some(),
            is_joined: false,
        };
        let counts = |record: &&Scanned| record.concerns_us() && !record.is_done() && of(record.outbox);
        pending::joined(self.records.iter().filter(counts).map(due))
    }

    /// The commit time of the first record of some outboxes that must wait for a direct write over the same bytes; `None` if none must.
    pub(super) fn held_up(&self, outboxes: &Outboxes, of: &dyn Fn(usize) -> bool) -> Option<Nanos> {
        let under_way = self.records.iter().filter(|record| {
            record.intent == Some(IntentState::InProgress) && !outboxes.at(record.outbox).leaving
        });
        let under_way: Vec<&Scanned> = under_way.collect();
        if under_way.is_empty() {
            return None;
        }
        let meets = |record: &&Scanned| {
            under_way.iter().any(|intent| {
                intent.record.head.object == record.record.head.object
                    && record.committed() <= intent.committed()
                    && record.outbox != intent.outbox
                    && record.span.start < intent.span.end
                    && intent.span.start < record.span.end
            })
        };
        let mine = |record: &&Scanned| record.is_data() && of(record.outbox);
        self.records.iter().filter(mine).find(meets).map(Scanned::committed)
    }

    /// Adds the selected records to the batch, and returns the new position of each outbox.
    pub(super) fn fill<'a>(
        &self,
        outboxes: &'a Outboxes,
        portion: &DrainLimit,
        (batch, ahead): (&mut RoundBatch<'a>, Option<&Overwrites>),
    ) -> Advance {
        let mut advance = Advance { positions: outboxes.positions(), parts: Vec::new() };
        let mut behind = vec![false; advance.positions.len()];
        for record in &self.records {
            if PIECES_MAX < batch.pieces() {
                break;
            }
            let upto = portion.of(record.outbox);
            let (head, below) = (record.record.head, record.drained_below(upto));
            if record.is_ours && record.done_below < below {
                record.add_to((batch, ahead), outboxes, below);
            }
            let untouched = matches!(upto, Cutoff::Committed(before) if before <= record.committed());
            let is_done = !untouched && (record.is_done() || !record.is_ours || record.local.end <= below);
            behind[record.outbox] |= !is_done;
            if !behind[record.outbox] {
                advance.positions[record.outbox] = (record.end, record.committed());
            } else if record.is_ours && record.local.start < below {
                advance.parts.push(DrainedPart { outbox: record.outbox, position: head.position, below });
            }
        }
        advance
    }

    /// Whether a record new to this round may overlap an older one that will be only partly drained: if the server were killed then, its
    /// successor would drain the older one entirely, over the newer.
    pub(super) fn crosses(&self, portion: &DrainLimit, advance: &Advance) -> bool {
        // Also a record that is drained entirely, after an incomplete one of its outbox: a successor drains it once more.
        let is_left = |record: &&Scanned| advance.positions[record.outbox].0 <= record.record.head.position;
        let halves = self.records.iter().filter(|record| 0 < record.done_below).filter(is_left);
        let halves: Vec<&Scanned> = halves.collect();
        let is_new = |record: &&Scanned| record.is_ours && record.done_below == 0;
        let by_place = |record: &&Scanned| portion.below(record.outbox).is_some();
        self.records.iter().filter(is_new).filter(by_place).any(|record| {
            halves.iter().any(|half| {
                half.outbox != record.outbox
                    && half.committed() <= record.committed()
                    && record.local.start < half.done_below
                    && !record.is_apart_from(half)
            })
        })
    }

    /// Whether a write that arrived at this time would be written before an overlapping record that was committed before it.
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
                && advance.positions[record.outbox].0 <= record.record.head.position
                && record.local.start < bytes.end
                && bytes.start < record.local.end
        };
        // Records committed after the limit were not read.
        self.limit <= arrived || self.records.iter().any(|record| is_left(&record))
    }

    /// Commit time of the first record of some outboxes that remains: all records committed before are drained.
    pub(super) fn first_left(&self, advance: &Advance, of: &dyn Fn(usize) -> bool) -> Option<Nanos> {
        let is_left = |record: &&Scanned| advance.positions[record.outbox].0 <= record.record.head.position;
        self.records.iter().filter(|record| of(record.outbox)).find(is_left).map(Scanned::committed)
    }

    /// The same, with cursors limited to commit order for outboxes that are cut by offset.
    pub(super) fn in_order(&self, outboxes: &Outboxes, advance: Advance, portion: &DrainLimit) -> Advance {
        let by_place = |place: usize| portion.below(place).is_some();
        let limit = self.first_left(&advance, &by_place).unwrap_or(Nanos(u64::MAX));
        let Advance { positions, mut parts } = advance;
        let mut strict = outboxes.positions();
        for (place, strict) in strict.iter_mut().enumerate().filter(|(place, _)| !by_place(*place)) {
            *strict = positions[place];
        }
        for record in self.records.iter().filter(|record| by_place(record.outbox)) {
            let head = record.record.head;
            if positions[record.outbox].0 <= head.position {
                continue;
            }
            if record.committed() < limit {
                strict[record.outbox] = (record.end, record.committed());
            } else if record.is_ours {
                parts.push(DrainedPart {
                    outbox: record.outbox,
                    position: head.position,
                    below: record.local.end,
                });
            }
        }
        Advance { positions: strict, parts }
    }
}

/// Progress of the outboxes in a round.
pub(super) struct Advance {
    /// All records before it are drained.
    pub(super) positions: Vec<(u64, Nanos)>,
    /// Partly drained records beyond it.
    pub(super) parts: Vec<DrainedPart>,
}

/// A record that is drained below an offset of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DrainedPart {
    pub(super) outbox: usize,
    pub(super) position: u64,
    pub(super) below: u64,
}

impl Scanned {
    /// Adds the bytes below an offset of the object that were not drained before.
    fn add_to<'a>(
        &self,
        (batch, ahead): (&mut RoundBatch<'a>, Option<&Overwrites>),
        outboxes: &'a Outboxes,
        below: u64,
    ) {
        let head = self.record.head;
        let session = outboxes.at(self.outbox).session;
        let judge = ahead.filter(|_| self.is_late);
        let stamp = CommitStamp {
            committed: head.committed,
            source: SliceSource::Outbox(self.outbox),
            position: head.position,
        };
        match (head.kind, self.intent) {
            (RecordKind::Data, _) => {
                let data = outboxes.at(self.outbox).outbox.data(&self.record, 0, head.data_bytes as usize);
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

/// The view of the last record that had one: its number, its displacement, and itself.
type KnownView = ((u32, u64), Arc<View>);

/// The view of a record; `None` is the file's own bytes.
fn find_view(
    attached: &AttachedOutbox,
    head: &RecordHead,
    (views, known): (&DefinedViews, &mut Option<KnownView>),
) -> Result<Option<Arc<View>>, ScanFault> {
    let which = (head.view, head.displacement);
    if head.view == 0 {
        return Ok(None);
    }
    if known.as_ref().is_none_or(|(known, _)| *known != which) {
        let view = views.get(attached.session, head.view, head.displacement);
        *known = Some((which, view.ok_or(ScanFault::Record("its view was never defined"))?));
    }
    Ok(known.as_ref().map(|(_, view)| Arc::clone(view)))
}

/// Range of a record in its file, and the state of an intent.
fn extent(
    attached: &AttachedOutbox,
    record: &RecordView,
    view: Option<&View>,
) -> Result<(Range<u64>, Option<IntentState>), ScanFault> {
    let head = record.head;
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
                return Err(ScanFault::Record("its view is not monotonic in the file"));
            }
            let first = view.file_offset(head.offset);
            let last = view.file_offset(end - 1);
            first
                .zip(last)
                .map(|(first, last)| (first..last + 1, None))
                .ok_or(ScanFault::Record("it ends beyond its view"))
        }
    }
}
