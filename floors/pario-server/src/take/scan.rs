//! Looking at what the outboxes hold, before anything is taken.
//!
//! Never: believes a record; one that cannot be ends its client's connection. Always: records come in the order of their commits,
//! and all that were committed before the limit are there.

use std::ops::Range;
use std::sync::Arc;

use pario_core::{Clock, Nanos, ServerIndex, SessionId};
use pario_net::outbox::{IntentState, OutboxError, RecordKind, RecordView};
use pario_sys::clock::MonotonicClock;
use pario_view::View;

use super::batch::{Batch, Packing, Source, Stamp, Streamed};
use super::outboxes::{Attached, Outboxes};
use super::patience::Due;
use crate::views::Views;

/// Records looked at per outbox and round.
const RECORDS_MAX: usize = 16 << 10;
/// Pieces of one round; what is more waits for the next.
const CUTS_MAX: usize = 1 << 20;

/// One record that was looked at.
pub(super) struct Scanned {
    /// Its outbox.
    pub(super) place: usize,
    pub(super) record: RecordView,
    view: Option<Arc<View>>,
    /// From its first to its last byte in the file.
    span: Range<u64>,
    intent: Option<IntentState>,
    /// It brings something for this server.
    is_ours: bool,
}

impl Scanned {
    fn committed(&self) -> Nanos {
        self.record.head.committed
    }

    fn is_data(&self) -> bool {
        self.record.head.kind == RecordKind::Data && self.is_ours
    }
}

/// What was found.
pub(super) struct Scan {
    pub(super) records: Vec<Scanned>,
    pub(super) lies: Vec<(SessionId, String)>,
    /// Only what was committed before is sure to be complete.
    limit: Nanos,
    index: ServerIndex,
}

impl Scan {
    /// A look that begins now: whatever was committed before is seen.
    pub(super) fn new(index: ServerIndex, began: Nanos) -> Scan {
        Scan { records: Vec::new(), lies: Vec::new(), limit: began, index }
    }

    /// Looks at one outbox.
    pub(super) fn look(
        &mut self,
        place: usize,
        attached: &Attached,
        views: &Views,
    ) -> Result<(), OutboxError> {
        let span = attached.outbox.span(attached.taken)?;
        let (tail, mut position, mut last) = (span.end, span.start, attached.last_commit);
        let mut known: Option<(u32, Arc<View>)> = None;
        for count in 0.. {
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
            let is_ours = head.concerned.includes(self.index);
            if is_ours && head.view != 0 && known.as_ref().is_none_or(|(number, _)| *number != head.view) {
                let view = views.get(attached.session, head.view);
                known = Some((
                    head.view,
                    view.ok_or_else(|| lie("a record of a view that was never made known"))?,
                ));
            }
            let view = known.as_ref().filter(|_| is_ours && head.view != 0).map(|(_, view)| Arc::clone(view));
            let (span, intent) =
                if is_ours { extent(attached, &record, view.as_deref())? } else { (0..0, None) };
            self.records.push(Scanned { place, record, view, span, intent, is_ours });
            last = head.committed;
            position += head.span();
        }
        Ok(())
    }

    /// In the order of commits; what may be incomplete is left out.
    pub(super) fn sort(&mut self) {
        let limit = self.limit;
        self.records.retain(|record| record.committed() < limit);
        self.records.sort_by_key(Scanned::committed);
    }

    /// Records that bring data, for the decision how much to take.
    pub(super) fn due(&self) -> Vec<Due> {
        let due = |record: &Scanned| Due {
            place: record.place,
            committed: record.committed(),
            object: record.record.head.object,
            span: record.span.clone(),
            bytes: u64::from(record.record.head.data_bytes),
        };
        self.records.iter().filter(|record| record.is_data()).map(due).collect()
    }

    /// The commit time of the first record that must wait for a direct write over the same bytes; `None` if none must.
    pub(super) fn held_up(&self, outboxes: &Outboxes) -> Option<Nanos> {
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
        self.records.iter().filter(|record| record.is_data()).find(meets).map(Scanned::committed)
    }

    /// Adds what was committed before `before` to the batch; `positions` says how far each outbox was come, and is moved on.
    pub(super) fn fill<'a>(
        &self,
        outboxes: &'a Outboxes,
        before: Nanos,
        batch: &mut Batch<'a>,
        positions: &mut [(u64, Nanos)],
    ) {
        for record in &self.records {
            if before <= record.committed() || CUTS_MAX < batch.cuts() {
                break;
            }
            let head = record.record.head;
            let source = Source::Outbox(record.place);
            let stamp = Stamp { committed: head.committed, source, position: head.position };
            match (head.kind, record.intent) {
                (RecordKind::Data, _) if record.is_ours => {
                    let attached = outboxes.at(record.place);
                    let data = attached.outbox.data(&record.record, 0, head.data_bytes as usize);
                    let stream = head.offset..head.offset + u64::from(head.data_bytes);
                    let streamed = Streamed { view: record.view.as_deref(), layout: head.layout, stream };
                    let fits = batch.add_stream(head.object, stamp, &streamed, (Packing::Whole, data));
                    assert!(fits, "a record holds its whole range of the stream");
                }
                (RecordKind::Intent, Some(IntentState::Done)) => {
                    batch.add_intent(head.object, stamp, &head.layout, record.span.clone());
                }
                (RecordKind::Data | RecordKind::Intent | RecordKind::Pad, _) => {}
            }
            positions[record.place] = (head.position + head.span(), head.committed);
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
