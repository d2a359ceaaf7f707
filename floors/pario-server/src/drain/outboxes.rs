//! The outboxes of this node's clients, and this server's position in each.
//!
//! Never: reads a record of an outbox after a protocol violation in it. Always: where records of several outboxes overlap, cursors move in
//! commit order, so that the successor of a killed server drains nothing again over newer bytes.

use std::collections::{HashMap, VecDeque};

use pario_core::limits::WAKE_BYTES;
use pario_core::{Clock, Fault, InodeId, Nanos, ServerIndex, SessionId};
use pario_net::outbox::{CursorPage, OutboxReader, Sleep};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{Point, reach};

use super::refused::RefusedRecord;
use super::scan::{Advance, KeptRecords, Scan};
use super::writer::Errors;
use crate::stats::ServerStats;
use crate::views::DefinedViews;

/// Errors kept per session until the client requests them.
const ERRORS_KEPT: usize = 64;
/// Ended sessions with a known drain position.
const ENDED_KEPT: usize = 1024;
/// Free space beyond the outboxes themselves that writing back requires.
const SPARE_BYTES: u64 = 4 << 20;

pub(super) struct AttachedOutbox {
    pub(super) session: SessionId,
    pub(super) outbox: OutboxReader,
    cursor: CursorPage,
    pub(super) drained: u64,
    /// Reached in this round, published at its end.
    next: u64,
    pub(super) last_commit: Nanos,
    pub(super) leaving: bool,
    /// Records before this position were committed while this server did not have the outbox: it may have written newer bytes already.
    pub(super) late_before: u64,
    /// Records beyond `taken` that are drained up to an offset of the object.
    parts: HashMap<u64, u64>,
    /// Tail of the outbox when the server was asked to stop.
    stop_at: u64,
    errors: HashMap<InodeId, Fault>,
    /// Refused records before this position are noted.
    refused_before: u64,
}

/// Urgency of draining: waiting callers and full outboxes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// A session has ended and its remaining records must be drained.
    pub(super) leaving: bool,
    /// A caller waits for its own records.
    pub(super) waits: bool,
    /// A caller waits outside a collective call.
    pub(super) outside_collective: bool,
    /// A writer waits for free space.
    pub(super) full: bool,
    /// An outbox is half full.
    pub(super) half: bool,
}

/// The attached outboxes.
#[derive(Default)]
pub(super) struct Outboxes {
    attached: Vec<AttachedOutbox>,
    /// Ended sessions that may reconnect, and their drain positions; the oldest first.
    ended: VecDeque<(SessionId, u64)>,
    /// Records that were read and not drained.
    kept: KeptRecords,
}

impl Outboxes {
    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.attached.len()
    }

    /// Index of a session's outbox in the list.
    pub(super) fn index_of(&self, session: SessionId) -> Option<usize> {
        self.attached.iter().position(|attached| attached.session == session)
    }

    pub(super) fn attach(&mut self, session: SessionId, outbox: OutboxReader, cursor: CursorPage, from: u64) {
        self.forget_read();
        // A session that offers its outbox again may not know the drain position at the loss of its connection.
        let known = self.drained(session);
        let ended = self.ended.iter().rfind(|(of, _)| *of == session).map(|(_, taken)| *taken);
        let tail = outbox.tail(from).unwrap_or(from);
        let taken = from.max(known.or(ended).unwrap_or(0).min(tail));
        // Without a gap no newer write can precede its records.
        let late_before = if known.is_some() { 0 } else { tail };
        cursor.move_to(taken, &outbox);
        let before = self.attached.iter().position(|attached| attached.session == session);
        let before = before.map(|place| self.attached.swap_remove(place));
        let (errors, refused_before) =
            before.map_or_else(Default::default, |before| (before.errors, before.refused_before));
        for _ in &errors {
            cursor.count_error();
        }
        self.attached.push(AttachedOutbox {
            session,
            outbox,
            cursor,
            drained: taken,
            next: taken,
            parts: HashMap::new(),
            stop_at: u64::MAX,
            last_commit: Nanos(0),
            leaving: false,
            late_before,
            errors,
            refused_before,
        });
    }

    /// The session ended: its outbox is removed once it is drained. False if it has no outbox here.
    pub(super) fn leave(&mut self, session: SessionId) -> bool {
        let mut known = false;
        for attached in self.attached.iter_mut().filter(|attached| attached.session == session) {
            (attached.leaving, known) = (true, true);
        }
        known
    }

    /// The session has reconnected: keeps its outbox.
    pub(super) fn keep_attached(&mut self, session: SessionId) {
        for attached in self.attached.iter_mut().filter(|attached| attached.session == session) {
            attached.leaving = false;
        }
    }

    /// Keeps the errors of refused records.
    pub(super) fn refuse(&mut self, refused: Vec<RefusedRecord>, index: ServerIndex, stats: &ServerStats) {
        for record in refused {
            let attached = &mut self.attached[record.outbox];
            if record.head.position < attached.refused_before {
                continue;
            }
            if attached.errors.is_empty() {
                tracing::warn!(session = %attached.session, "{}", record.fault(index).text);
            }
            attached.refused_before = record.head.position + 1;
            attached.keep_error(record.inode(), &record.fault(index), stats);
        }
    }

    pub(super) fn drop_violator(&mut self, session: SessionId) {
        self.forget_read();
        self.attached.retain(|attached| attached.session != session);
    }

    pub(super) fn tail(&self, session: SessionId) -> Option<u64> {
        let attached = self.attached.iter().find(|attached| attached.session == session)?;
        attached.outbox.tail(attached.drained).ok()
    }

    /// The end of the records of each session.
    pub(super) fn tails(&self) -> Vec<(SessionId, u64)> {
        CursorPage::withdrawn();
        let tail = |attached: &AttachedOutbox| (attached.session, attached.drained + attached.pending());
        self.attached.iter().map(tail).collect()
    }

    /// Session of the outbox at this index.
    pub(super) fn session(&self, place: usize) -> Option<SessionId> {
        self.attached.get(place).map(|attached| attached.session)
    }

    pub(super) fn drained(&self, session: SessionId) -> Option<u64> {
        self.attached.iter().find(|attached| attached.session == session).map(|attached| attached.drained)
    }

    pub(super) fn take_errors(&mut self, session: SessionId, inode: InodeId) -> Vec<Fault> {
        let attached = self.attached.iter_mut().find(|attached| attached.session == session);
        attached.and_then(|attached| attached.errors.remove(&inode)).into_iter().collect()
    }

    /// Pending records of all outboxes, in commit order, and outboxes with a protocol violation.
    pub(super) fn scan(&mut self, index: ServerIndex, views: &DefinedViews) -> Scan {
        let mut scan = Scan::new(index, MonotonicClock.now(), std::mem::take(&mut self.kept));
        scan.scan_all(&self.attached, views);
        scan
    }

    /// Drops the records read so far, which hold references to views; they are read once more.
    pub(super) fn forget_read(&mut self) {
        self.kept = KeptRecords::default();
    }

    /// Releases the memory used for reading records.
    pub(super) fn release_memory(&mut self) {
        self.kept.shrink();
    }

    /// Keeps records that were read and are left for another round. Not valid after the indexes of outboxes have changed.
    pub(super) fn keep(&mut self, scan: Scan) {
        self.kept = scan.keep();
    }

    pub(super) fn at(&self, place: usize) -> &AttachedOutbox {
        &self.attached[place]
    }

    /// The drain position of each outbox.
    pub(super) fn positions(&self) -> Vec<(u64, Nanos)> {
        self.attached.iter().map(|attached| (attached.drained, attached.last_commit)).collect()
    }

    /// A round begins: direct writes announced from now on may be missed by it.
    pub(super) fn begin_round(&self) {
        self.attached.iter().for_each(|attached| attached.cursor.begin_round());
    }

    pub(super) fn end_round(&self) {
        self.attached.iter().for_each(|attached| attached.cursor.end_round());
    }

    /// Waiting callers and full outboxes.
    pub(super) fn pressure(&self) -> Pressure {
        let behind = || self.attached.iter().filter(|attached| 0 < attached.pending());
        Pressure {
            leaving: behind().any(|attached| attached.leaving),
            waits: behind().any(|attached| attached.outbox.is_urgent()),
            outside_collective: behind().any(|attached| attached.outbox.waits_outside_collective()),
            full: behind().any(|attached| attached.outbox.waits_for_space()),
            half: behind().any(|attached| attached.outbox.capacity() / 2 <= attached.pending()),
        }
    }

    /// Outboxes with a client inside a collective call.
    pub(super) fn in_collective(&self) -> Vec<usize> {
        (0..self.len()).filter(|place| self.attached[*place].outbox.in_collective()).collect()
    }

    /// Keeps errors and moves the cursors. Returns the ended sessions.
    pub(super) fn advance_cursors(
        &mut self,
        advance: &Advance,
        errors: &Errors,
        stats: &ServerStats,
    ) -> Vec<SessionId> {
        for part in &advance.parts {
            self.attached[part.outbox].parts.insert(part.position, part.below);
        }
        for (attached, (next, last)) in self.attached.iter_mut().zip(&advance.positions) {
            (attached.next, attached.last_commit) = (*next, *last);
            attached.parts.retain(|position, _| next <= position);
        }
        for (place, object, fault) in &errors.outboxes {
            self.attached[*place].keep_error(object.inode, fault, stats);
        }
        let mut moved: Vec<&mut AttachedOutbox> =
            self.attached.iter_mut().filter(|a| a.drained < a.next).collect();
        moved.sort_by_key(|attached| attached.last_commit);
        for attached in moved {
            attached.drained = attached.next;
            attached.cursor.move_to(attached.drained, &attached.outbox);
            reach(Point::DrainCursor);
        }
        let over = |attached: &AttachedOutbox| attached.leaving && attached.pending() == 0;
        let ended = self.attached.iter().filter(|attached| over(attached)).map(|attached| attached.session);
        let ended: Vec<SessionId> = ended.collect();
        for attached in self.attached.iter().filter(|attached| over(attached)) {
            if self.ended.len() == ENDED_KEPT {
                self.ended.pop_front();
            }
            self.ended.push_back((attached.session, attached.drained));
        }
        self.attached.retain(|attached| !over(attached));
        ended
    }

    /// Whether a record is partly drained.
    pub(super) fn has_parts(&self) -> bool {
        self.attached.iter().any(|attached| !attached.parts.is_empty())
    }

    /// Whether the memory of a slice still holds its record. It does not if this server was stopped for so long that its client declared it
    /// dead.
    pub(super) fn still_holds(&self, place: usize, position: u64) -> bool {
        self.attached[place].outbox.still_holds(position)
    }

    pub(super) fn announce_sleep(&self, sleep: Sleep) {
        for attached in &self.attached {
            attached.cursor.announce_sleep(sleep);
        }
    }

    /// The server will stop: records committed by now are still drained.
    pub(super) fn mark_stop(&mut self) {
        for attached in &mut self.attached {
            attached.stop_at = attached.drained + attached.pending();
        }
    }

    pub(super) fn reached_stop(&self) -> bool {
        self.attached.iter().all(|attached| {
            attached.stop_at <= attached.drained || attached.outbox.tail(attached.drained).is_err()
        })
    }

    /// Whether a client waits for its records, or the wake threshold is reached, or a dead client's records must be drained.
    pub(super) fn wants_service(&self) -> bool {
        self.attached.iter().any(|attached| {
            let pending = attached.pending();
            0 < pending && (attached.leaving || WAKE_BYTES <= pending || attached.outbox.has_waiters())
        })
    }

    /// Writing back is allowed while the store has free space for all records that can be pending.
    pub(super) fn grant(&self, store: &dyn Store) {
        let reserved: u64 = self.attached.iter().map(|attached| attached.outbox.capacity()).sum();
        let free = store.space().map_or(0, |space| space.free_bytes);
        let files = if reserved + SPARE_BYTES < free { store.write_behind() } else { 0 };
        for attached in &self.attached {
            attached.cursor.set_write_behind(files);
        }
    }
}

impl AttachedOutbox {
    fn keep_error(&mut self, inode: InodeId, fault: &Fault, stats: &ServerStats) {
        if self.errors.len() < ERRORS_KEPT {
            self.errors.entry(inode).or_insert_with(|| fault.clone());
        }
        self.cursor.count_error();
        stats.count_background_error();
    }

    /// The offset of the object below which a record is drained; 0 if nothing is.
    pub(super) fn done_below(&self, position: u64) -> u64 {
        self.parts.get(&position).copied().unwrap_or(0)
    }

    /// Whether a thread of the client, or the recovery of a dead client, waits for its records.
    pub(super) fn is_waited_for(&self) -> bool {
        self.leaving || self.outbox.is_urgent()
    }

    fn pending(&self) -> u64 {
        // A protocol violation is detected when its records are next read.
        self.outbox.tail(self.drained).map_or(1, |tail| tail - self.drained)
    }
}
