//! The outboxes of this node's clients, and how far this server has come in each.
//!
//! Never: looks at a record of an outbox that lied once. Always: cursors move in the order of commit times, so that what a
//! server that was killed had already taken is a prefix of that order.

use std::collections::HashMap;

use pario_core::limits::WAKE_BYTES;
use pario_core::{Clock, Fault, InodeId, Nanos, SessionId};
use pario_net::outbox::{CursorPage, OutboxError, OutboxReader, RECORD_ALIGN, RecordKind};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{Point, reach};

use super::batch::{Batch, Errors, Source, Stamp};
use crate::stats::ServerStats;

/// Errors kept per session until it asks.
const ERRORS_KEPT: usize = 64;
/// Records taken per outbox and round.
const RECORDS_MAX: usize = 16 << 10;
/// Room beside the outboxes themselves that must be free for writing behind.
const SPARE_BYTES: u64 = 4 << 20;

struct Attached {
    session: SessionId,
    outbox: OutboxReader,
    cursor: CursorPage,
    taken: u64,
    /// Reached in this round, to be published at its end.
    next: u64,
    last_commit: Nanos,
    leaving: bool,
    /// Where it stood when the server was told to stop.
    stop_at: u64,
    errors: HashMap<InodeId, Fault>,
}

/// How far one round came, outbox by outbox, and whose outbox lied.
#[derive(Default)]
pub(super) struct Reached {
    positions: Vec<(u64, Nanos)>,
    pub(super) lies: Vec<(SessionId, String)>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Outboxes {
    attached: Vec<Attached>,
}

impl Outboxes {
    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    pub(super) fn attach(&mut self, session: SessionId, outbox: OutboxReader, cursor: CursorPage, from: u64) {
        // A session that offers its outbox again may not know how far we came before its connection broke.
        let known = self.taken(session).unwrap_or(0);
        let taken = from.max(known.min(outbox.tail(from).unwrap_or(from)));
        cursor.move_to(taken, &outbox);
        let before = self.attached.iter().position(|attached| attached.session == session);
        let errors = before.map(|place| self.attached.swap_remove(place).errors).unwrap_or_default();
        for _ in &errors {
            cursor.count_error();
        }
        self.attached.push(Attached {
            session,
            outbox,
            cursor,
            taken,
            next: taken,
            stop_at: u64::MAX,
            last_commit: Nanos(0),
            leaving: false,
            errors,
        });
    }

    /// The session is gone: forget it once everything is taken.
    pub(super) fn leave(&mut self, session: SessionId) {
        for attached in self.attached.iter_mut().filter(|attached| attached.session == session) {
            attached.leaving = true;
        }
    }

    pub(super) fn shut_out(&mut self, session: SessionId) {
        self.attached.retain(|attached| attached.session != session);
    }

    pub(super) fn tail(&self, session: SessionId) -> Option<u64> {
        let attached = self.attached.iter().find(|attached| attached.session == session)?;
        attached.outbox.tail(attached.taken).ok()
    }

    pub(super) fn taken(&self, session: SessionId) -> Option<u64> {
        self.attached.iter().find(|attached| attached.session == session).map(|attached| attached.taken)
    }

    pub(super) fn take_errors(&mut self, session: SessionId, inode: InodeId) -> Vec<Fault> {
        let attached = self.attached.iter_mut().find(|attached| attached.session == session);
        attached.and_then(|attached| attached.errors.remove(&inode)).into_iter().collect()
    }

    /// Adds to the batch what was committed before `began`, and before any record that is too many for this round.
    pub(super) fn collect<'a>(&'a self, began: Nanos, batch: &mut Batch<'a>) -> Reached {
        let mut reached = Reached::default();
        let left: Vec<Option<Nanos>> = self.attached.iter().map(Attached::first_left).collect();
        for (place, attached) in self.attached.iter().enumerate() {
            let stayed = (attached.taken, attached.last_commit);
            let others = left.iter().enumerate().filter(|(other, _)| *other != place);
            let before = others.filter_map(|(_, left)| *left).fold(began, Nanos::min);
            reached.positions.push(collect_one(attached, place, before, batch).unwrap_or_else(|error| {
                reached.lies.push((attached.session, error.to_string()));
                stayed
            }));
        }
        reached
    }

    /// Keeps errors and moves the cursors.
    pub(super) fn settle(&mut self, reached: &Reached, errors: &Errors, stats: &ServerStats) {
        for (attached, (next, last)) in self.attached.iter_mut().zip(&reached.positions) {
            (attached.next, attached.last_commit) = (*next, *last);
        }
        for (place, object, fault) in &errors.outboxes {
            let attached = &mut self.attached[*place];
            if attached.errors.len() < ERRORS_KEPT {
                attached.errors.entry(object.inode).or_insert_with(|| fault.clone());
            }
            attached.cursor.count_error();
            stats.count_background_error();
        }
        let mut moved: Vec<&mut Attached> = self.attached.iter_mut().filter(|a| a.taken < a.next).collect();
        moved.sort_by_key(|attached| attached.last_commit);
        for attached in moved {
            attached.taken = attached.next;
            attached.cursor.move_to(attached.taken, &attached.outbox);
            reach(Point::DrainCursor);
        }
        self.attached.retain(|attached| !attached.leaving || attached.pending() != 0);
    }

    /// Whether the memory that a piece of a round points to still holds its record. It does not when this server was stopped for
    /// so long that its client took it for gone.
    pub(super) fn still_holds(&self, place: usize, position: u64) -> bool {
        self.attached[place].outbox.still_holds(position)
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        for attached in &self.attached {
            attached.cursor.set_asleep(asleep);
        }
    }

    /// The server is to stop: what is committed by now is still taken.
    pub(super) fn mark_stop(&mut self) {
        for attached in &mut self.attached {
            attached.stop_at = attached.taken + attached.pending();
        }
    }

    pub(super) fn reached_stop(&self) -> bool {
        self.attached.iter().all(|attached| {
            attached.stop_at <= attached.taken || attached.outbox.tail(attached.taken).is_err()
        })
    }

    /// Whether a client waits for its records, or enough has come together, or a dead client's rest is to be taken.
    pub(super) fn wants_service(&self) -> bool {
        self.attached.iter().any(|attached| {
            let pending = attached.pending();
            0 < pending && (attached.leaving || WAKE_BYTES <= pending || attached.outbox.somebody_waits())
        })
    }

    /// Writing behind is allowed while everything that can be pending has room in the store.
    pub(super) fn grant(&self, store: &dyn Store) {
        let reserved: u64 = self.attached.iter().map(|attached| attached.outbox.capacity()).sum();
        let free = store.space().map_or(0, |space| space.free_bytes);
        for attached in &self.attached {
            attached.cursor.set_write_behind(reserved + SPARE_BYTES < free);
        }
    }
}

impl Attached {
    fn pending(&self) -> u64 {
        // An outbox that lies is found out at the next look at its records.
        self.outbox.tail(self.taken).map_or(1, |tail| tail - self.taken)
    }

    /// When the first record was committed that is too many for a round: nothing newer may be taken before it.
    fn first_left(&self) -> Option<Nanos> {
        let tail = self.outbox.tail(self.taken).ok()?;
        if tail - self.taken <= RECORDS_MAX as u64 * RECORD_ALIGN {
            return None;
        }
        let (mut position, mut count) = (self.taken, 0);
        while position < tail {
            let head = self.outbox.record(position, tail).ok()?.head;
            if count == RECORDS_MAX {
                return Some(head.committed);
            }
            position += head.span();
            count += 1;
        }
        None
    }
}

fn collect_one<'a>(
    attached: &'a Attached,
    place: usize,
    before: Nanos,
    batch: &mut Batch<'a>,
) -> Result<(u64, Nanos), OutboxError> {
    let span = attached.outbox.span(attached.taken)?;
    let tail = span.end;
    let (mut position, mut last) = (span.start, attached.last_commit);
    for _ in 0..RECORDS_MAX {
        if tail <= position {
            break;
        }
        let record = attached.outbox.record(position, tail)?;
        let head = record.head;
        if before <= head.committed {
            // It would never be taken, and those behind it neither.
            if MonotonicClock.now() < head.committed {
                return Err(OutboxError::Lie { what: "a record from the future", position });
            }
            break;
        }
        if head.kind == RecordKind::Data {
            let range = head.offset..head.offset + u64::from(head.data_bytes);
            let stamp = Stamp { committed: head.committed, source: Source::Outbox(place), position };
            for piece in head.layout.pieces_on(batch.index(), range) {
                #[expect(clippy::cast_possible_truncation, reason = "inside a record of at most a mebibyte")]
                let (start, bytes) = ((piece.file_offset - head.offset) as usize, piece.bytes as usize);
                let data = attached.outbox.data(&record, start, bytes);
                batch.add(head.object, piece.local, stamp, data);
            }
        }
        position += head.span();
        last = last.max(head.committed);
    }
    Ok((position, last))
}
