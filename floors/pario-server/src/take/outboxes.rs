//! The outboxes of this node's clients, and how far this server has come in each.
//!
//! Never: looks at a record of an outbox that lied once. Always: where records of several outboxes overlap, cursors move
//! in the order of commit times, so that the successor of a server that was killed takes nothing again over newer bytes.

use std::collections::{HashMap, VecDeque};

use pario_core::limits::WAKE_BYTES;
use pario_core::{Clock, Fault, InodeId, Nanos, ServerIndex, SessionId};
use pario_net::outbox::{CursorPage, OutboxReader, Sleep};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{Point, reach};

use super::scan::{Advance, Kept, Scan};
use super::writer::Errors;
use crate::stats::ServerStats;
use crate::views::Views;

/// Errors kept per session until it asks.
const ERRORS_KEPT: usize = 64;
/// Sessions that are over, of which it is known how far they were taken.
const ENDED_KEPT: usize = 1024;
/// Room beside the outboxes themselves that must be free for writing behind.
const SPARE_BYTES: u64 = 4 << 20;

pub(super) struct Attached {
    pub(super) session: SessionId,
    pub(super) outbox: OutboxReader,
    cursor: CursorPage,
    pub(super) taken: u64,
    /// Reached in this round, to be published at its end.
    next: u64,
    pub(super) last_commit: Nanos,
    pub(super) leaving: bool,
    /// Records before this position were committed while this server did not have the outbox: it may have put newer bytes down already.
    pub(super) late_before: u64,
    /// Records beyond `taken` of which what lies below a place of the object is taken.
    parts: HashMap<u64, u64>,
    /// Where it stood when the server was told to stop.
    stop_at: u64,
    errors: HashMap<InodeId, Fault>,
}

/// How much writers press.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// A session is over and its rest is to be taken.
    pub(super) leaving: bool,
    /// Somebody waits for its own records to be taken.
    pub(super) waits: bool,
    /// And not in a call that all members of its group make.
    pub(super) alone: bool,
    /// Somebody waits for room.
    pub(super) full: bool,
    /// An outbox is half full.
    pub(super) half: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Outboxes {
    attached: Vec<Attached>,
    /// Sessions that are over and may come again, and how far they were taken; the oldest first.
    ended: VecDeque<(SessionId, u64)>,
    /// What was read and not taken.
    kept: Kept,
}

impl Outboxes {
    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.attached.len()
    }

    /// Where the outbox of a session stands in the list.
    pub(super) fn place(&self, session: SessionId) -> Option<usize> {
        self.attached.iter().position(|attached| attached.session == session)
    }

    pub(super) fn attach(&mut self, session: SessionId, outbox: OutboxReader, cursor: CursorPage, from: u64) {
        self.forget_read();
        // A session that offers its outbox again may not know how far we came before its connection broke.
        let known = self.taken(session);
        let ended = self.ended.iter().rfind(|(of, _)| *of == session).map(|(_, taken)| *taken);
        let tail = outbox.tail(from).unwrap_or(from);
        let taken = from.max(known.or(ended).unwrap_or(0).min(tail));
        // Without a gap nothing can have come before.
        let late_before = if known.is_some() { 0 } else { tail };
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
            parts: HashMap::new(),
            stop_at: u64::MAX,
            last_commit: Nanos(0),
            leaving: false,
            late_before,
            errors,
        });
    }

    /// The session is gone: forget it once everything is taken. False if it has no outbox here.
    pub(super) fn leave(&mut self, session: SessionId) -> bool {
        let mut known = false;
        for attached in self.attached.iter_mut().filter(|attached| attached.session == session) {
            (attached.leaving, known) = (true, true);
        }
        known
    }

    pub(super) fn shut_out(&mut self, session: SessionId) {
        self.forget_read();
        self.attached.retain(|attached| attached.session != session);
    }

    pub(super) fn tail(&self, session: SessionId) -> Option<u64> {
        let attached = self.attached.iter().find(|attached| attached.session == session)?;
        attached.outbox.tail(attached.taken).ok()
    }

    /// Where everybody's records end.
    pub(super) fn tails(&self) -> Vec<(SessionId, u64)> {
        CursorPage::withdrawn();
        let tail = |attached: &Attached| (attached.session, attached.taken + attached.pending());
        self.attached.iter().map(tail).collect()
    }

    /// Whose outbox stands at this place of the list.
    pub(super) fn session(&self, place: usize) -> Option<SessionId> {
        self.attached.get(place).map(|attached| attached.session)
    }

    pub(super) fn taken(&self, session: SessionId) -> Option<u64> {
        self.attached.iter().find(|attached| attached.session == session).map(|attached| attached.taken)
    }

    pub(super) fn take_errors(&mut self, session: SessionId, inode: InodeId) -> Vec<Fault> {
        let attached = self.attached.iter_mut().find(|attached| attached.session == session);
        attached.and_then(|attached| attached.errors.remove(&inode)).into_iter().collect()
    }

    /// What is there to take, of all outboxes, in the order of commits; and whose outbox lies.
    pub(super) fn scan(&mut self, index: ServerIndex, views: &Views) -> Scan {
        let mut scan = Scan::new(index, MonotonicClock.now(), std::mem::take(&mut self.kept));
        scan.look_at(&self.attached, views);
        scan
    }

    /// Everything is read once more: what was read holds on to views.
    pub(super) fn forget_read(&mut self) {
        self.kept = Kept::default();
    }

    /// Gives the memory back that reading records took.
    pub(super) fn rest(&mut self) {
        self.kept.shrink();
    }

    /// Keeps what was read and is left for another round. Not after outboxes have changed their places.
    pub(super) fn keep(&mut self, scan: Scan) {
        self.kept = scan.keep();
    }

    pub(super) fn at(&self, place: usize) -> &Attached {
        &self.attached[place]
    }

    /// Where every outbox stands.
    pub(super) fn positions(&self) -> Vec<(u64, Nanos)> {
        self.attached.iter().map(|attached| (attached.taken, attached.last_commit)).collect()
    }

    /// A round begins: direct writes that are announced from now on may not be seen by it.
    pub(super) fn begin_round(&self) {
        self.attached.iter().for_each(|attached| attached.cursor.begin_round());
    }

    pub(super) fn end_round(&self) {
        self.attached.iter().for_each(|attached| attached.cursor.end_round());
    }

    /// Who waits for what.
    pub(super) fn pressure(&self) -> Pressure {
        let behind = || self.attached.iter().filter(|attached| 0 < attached.pending());
        Pressure {
            leaving: behind().any(|attached| attached.leaving),
            waits: behind().any(|attached| attached.outbox.is_urgent()),
            alone: behind().any(|attached| attached.outbox.waits_alone()),
            full: behind().any(|attached| attached.outbox.wants_room()),
            half: behind().any(|attached| attached.outbox.capacity() / 2 <= attached.pending()),
        }
    }

    /// Those whose clients are in a call that all members of their group make.
    pub(super) fn gathering(&self) -> Vec<usize> {
        (0..self.len()).filter(|place| self.attached[*place].outbox.gathers()).collect()
    }

    /// Keeps errors and moves the cursors. Returns the sessions that are over.
    pub(super) fn settle(
        &mut self,
        advance: &Advance,
        errors: &Errors,
        stats: &ServerStats,
    ) -> Vec<SessionId> {
        for part in &advance.parts {
            self.attached[part.place].parts.insert(part.position, part.below);
        }
        for (attached, (next, last)) in self.attached.iter_mut().zip(&advance.positions) {
            (attached.next, attached.last_commit) = (*next, *last);
            attached.parts.retain(|position, _| next <= position);
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
        let over = |attached: &Attached| attached.leaving && attached.pending() == 0;
        let ended = self.attached.iter().filter(|attached| over(attached)).map(|attached| attached.session);
        let ended: Vec<SessionId> = ended.collect();
        for attached in self.attached.iter().filter(|attached| over(attached)) {
            if self.ended.len() == ENDED_KEPT {
                self.ended.pop_front();
            }
            self.ended.push_back((attached.session, attached.taken));
        }
        self.attached.retain(|attached| !over(attached));
        ended
    }

    /// Whether some record is taken in part.
    pub(super) fn has_parts(&self) -> bool {
        self.attached.iter().any(|attached| !attached.parts.is_empty())
    }

    /// Whether the memory that a piece of a round points to still holds its record. It does not when this server was stopped for
    /// so long that its client took it for gone.
    pub(super) fn still_holds(&self, place: usize, position: u64) -> bool {
        self.attached[place].outbox.still_holds(position)
    }

    pub(super) fn fall_asleep(&self, sleep: Sleep) {
        for attached in &self.attached {
            attached.cursor.fall_asleep(sleep);
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
        let files = if reserved + SPARE_BYTES < free { store.write_behind() } else { 0 };
        for attached in &self.attached {
            attached.cursor.set_write_behind(files);
        }
    }
}

impl Attached {
    /// The place of the object below which a record's bytes are taken; 0 if none are.
    pub(super) fn done_below(&self, position: u64) -> u64 {
        self.parts.get(&position).copied().unwrap_or(0)
    }

    /// Whether somebody waits for its records to be taken: a thread of its client, or those who come after a client that is gone.
    pub(super) fn is_waited_for(&self) -> bool {
        self.leaving || self.outbox.is_urgent()
    }

    fn pending(&self) -> u64 {
        // An outbox that lies is found out at the next look at its records.
        self.outbox.tail(self.taken).map_or(1, |tail| tail - self.taken)
    }
}
