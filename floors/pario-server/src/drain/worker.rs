//! The drain thread: rounds that scan the outboxes, write what a decision selects, and move the cursors.
//!
//! Never: sleeps while a task, a message or a full outbox needs a round. Always: a message is answered after the cursors have moved.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use pario_core::{Clock, Code, Fault, Nanos, ServerIndex, SessionId};
use pario_net::buffers;
use pario_net::outbox::Sleep;
use pario_store::Store;
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::MemoryPiece;

use super::batch::{CommitStamp, Packing, RoundBatch, SliceSource, Streamed};
use super::cut::CutRow;
use super::merge_wait::{Conditions, Cutoff, DrainDecision, MergeWait};
use super::outboxes::{Outboxes, Pressure};
use super::restart_log::RestartLog;
use super::scan::{DrainLimit, Scan};
use super::shares::Shares;
use super::store_speed::StoreSpeed;
use super::task::{ByValue, DrainDone, DrainTask, ViolationHandler, WriteTarget};
use super::writer::{Errors, RoundContext};
use crate::io_queue::IoQueue;
use crate::stats::ServerStats;
use crate::views::DefinedViews;

/// Longest sleep while outboxes are attached: records below the wake threshold are drained then.
const SLEEP_SHORT: Duration = Duration::from_millis(50);
/// Sleep after [`SLEEPS_SHORT`] sleeps without records.
const SLEEP_LONG: Duration = Duration::from_secs(1);
/// Interval at which a direct write that blocks an older record is polled.
const DIRECT_POLL_NS: u64 = 500_000;
/// A row buffer larger than this, 12 MiB, is freed after a round.
const KEPT_ROWS_MAX: usize = 1 << 19;
/// Sleeps without records before they become long.
const SLEEPS_SHORT: u32 = 20;

/// A write by message, its completion callback, and its arrival time.
pub(super) type MessageWrite = (ByValue, DrainDone<()>, Nanos);

/// What a round does with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MessageFate {
    Written,
    /// It does not match its view.
    Refused,
    /// Older records of its bytes must be drained first.
    Waits,
}

/// A drain request in progress: done when the session's cursor has reached the position.
pub(super) struct Drain {
    pub(super) session: SessionId,
    pub(super) position: u64,
    pub(super) done: DrainDone<()>,
}

/// The same for all sessions.
pub(super) struct DrainAll {
    pub(super) positions: Vec<(SessionId, u64)>,
    pub(super) done: DrainDone<()>,
}

/// Whether callers wait for their records, outside a collective call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct WaitingCallers {
    pub(super) any: bool,
    pub(super) outside_collective: bool,
}

impl WaitingCallers {
    /// Whether `now` has a caller that `self` has not.
    fn lacks(self, now: WaitingCallers) -> bool {
        (now.any && !self.any) || (now.outside_collective && !self.outside_collective)
    }
}

/// Result of a round.
pub(super) struct RoundOutcome {
    /// The round wrote data.
    pub(super) found: bool,
    /// It progressed, and left records that it saw. Only used by shared rounds.
    pub(super) more: bool,
    /// Bytes drained per outbox; empty if they are not counted.
    pub(super) by_outbox: Vec<u64>,
}

pub(super) struct DrainWorker {
    pub(super) index: ServerIndex,
    pub(super) store: Arc<dyn Store>,
    pub(super) io_queue: Option<Arc<IoQueue>>,
    pub(super) stats: Arc<ServerStats>,
    pub(super) on_violation: ViolationHandler,
    pub(super) inbox: Receiver<DrainTask>,
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) outboxes: Outboxes,
    /// Restart log, where an earlier server may exist.
    pub(super) restart_log: Option<RestartLog>,
    pub(super) views: DefinedViews,
    pub(super) merge_wait: MergeWait,
    pub(super) store_speed: StoreSpeed,
    /// Records are not drained before this time, unless new ones arrive.
    pub(super) wait_until: Option<Nanos>,
    /// Until then new records are not even scanned, while no caller waits and no outbox is half full.
    pub(super) rests: bool,
    /// The waiting callers known to the last round.
    pub(super) known_waiting: WaitingCallers,
    /// Partly drained records must be completed before newer ones are drained.
    pub(super) must_complete: bool,
    /// The last round left records for the next one.
    pub(super) more: bool,
    pub(super) shares: Shares,
    /// Row buffer kept for the next round.
    pub(super) row_memory: Vec<CutRow>,
    pub(super) writes: Vec<MessageWrite>,
    pub(super) drains: Vec<Drain>,
    pub(super) drain_alls: Vec<DrainAll>,
    pub(super) stop: Option<DrainDone<()>>,
    pub(super) clock: MonotonicClock,
}

impl DrainWorker {
    /// A worker without outboxes, I/O queue and restart log.
    pub(super) fn new(
        index: ServerIndex,
        store: Arc<dyn Store>,
        inbox: Receiver<DrainTask>,
        doorbell: Arc<Doorbell>,
        on_violation: ViolationHandler,
    ) -> DrainWorker {
        DrainWorker {
            index,
            store,
            io_queue: None,
            stats: Arc::default(),
            on_violation,
            views: DefinedViews::default(),
            store_speed: StoreSpeed::default(),
            merge_wait: MergeWait::new(std::thread::available_parallelism().map_or(1, usize::from)),
            wait_until: None,
            rests: false,
            known_waiting: WaitingCallers::default(),
            must_complete: false,
            more: false,
            shares: Shares::default(),
            row_memory: Vec::new(),
            inbox,
            doorbell,
            outboxes: Outboxes::default(),
            restart_log: None,
            writes: Vec::new(),
            drains: Vec::new(),
            drain_alls: Vec::new(),
            stop: None,
            clock: MonotonicClock,
        }
    }

    pub(super) fn run(mut self) {
        let mut idle_naps = 0;
        self.store_speed = StoreSpeed::of_this_thread();
        loop {
            self.read_tasks();
            let found = self.round();
            self.finish_drains();
            if self.stop.is_some() && self.outboxes.reached_stop() && self.writes.is_empty() {
                if let Some(lives) = self.restart_log.take().filter(|_| self.outboxes.is_empty()) {
                    lives.end();
                }
                if let Some(done) = self.stop.take() {
                    done(Ok(()));
                }
                return;
            }
            idle_naps = if found { 0 } else { idle_naps + 1 };
            self.sleep(idle_naps);
        }
    }

    pub(super) fn read_tasks(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(task) => self.accept(task),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.stop.get_or_insert_with(|| Box::new(|_| ()));
                    return;
                }
            }
        }
    }

    pub(super) fn accept(&mut self, task: DrainTask) {
        match task {
            DrainTask::Attach { session, outbox, cursor, from, done } => {
                self.outboxes.attach(session, outbox, cursor, from);
                if let Some(lives) = &mut self.restart_log {
                    lives.attached(session, self.clock.now());
                }
                self.merge_wait.forget_outboxes();
                self.outboxes.grant(self.store.as_ref());
                reach(Point::OfferTaken);
                done(Ok(()));
            }
            DrainTask::Detach { session } => {
                if !self.outboxes.leave(session) {
                    self.views.end(session);
                }
            }
            DrainTask::DefineView { session, view, bytes, done } => {
                // Removing the rest must not end the session and its views while the session reconnects.
                self.outboxes.keep_attached(session);
                done(self.views.define(session, view, &bytes));
            }
            DrainTask::ForgetView { session, view, done } => {
                self.views.forget(session, view);
                self.outboxes.forget_read();
                done(Ok(()));
            }
            DrainTask::Drain { session, done } => match self.outboxes.tail(session) {
                Some(position) => self.drains.push(Drain { session, position, done }),
                None => done(Ok(())),
            },
            DrainTask::DrainAll { done } => {
                self.outboxes.grant(self.store.as_ref());
                self.drain_alls.push(DrainAll { positions: self.outboxes.tails(), done });
            }
            DrainTask::Grant => self.outboxes.grant(self.store.as_ref()),
            DrainTask::Write { write, done } => self.writes.push((write, done, self.clock.now())),
            DrainTask::Errors { session, inode, done } => done(Ok(self.outboxes.take_errors(session, inode))),
            DrainTask::Stop { done } => {
                self.outboxes.mark_stop();
                self.stop = Some(done);
            }
        }
    }

    /// Drains pending records. Only records committed before the round began: then every record committed before one of them is among them,
    /// in whichever outbox, and the commit order is the order in the store.
    pub(super) fn round(&mut self) -> bool {
        self.outboxes.begin_round();
        let mut scan = self.outboxes.scan(self.index, &self.views);
        self.outboxes.refuse(std::mem::take(&mut scan.refused), self.index, &self.stats);
        (self.more, self.rests) = (false, false);
        if let Some(circles) = self.conflict_groups(&scan) {
            return self.shared_round(scan, &circles);
        }
        let upto = self.cutoff(&scan);
        self.drain(scan, &DrainLimit::Same(upto)).found
    }

    /// Writes the selected records and moves the cursors.
    pub(super) fn drain(&mut self, mut scan: Scan, portion: &DrainLimit) -> RoundOutcome {
        let writes = std::mem::take(&mut self.writes);
        let mut batch = RoundBatch::with_memory(self.index, std::mem::take(&mut self.row_memory));
        let ahead = self.restart_log.as_ref().and_then(RestartLog::overwrites);
        let mut advance = scan.fill(&self.outboxes, portion, (&mut batch, ahead));
        let mut fates = vec![MessageFate::Written; writes.len()];
        for (number, (write, _, arrived)) in writes.iter().enumerate() {
            // If written now, those records would overwrite them later: in a later round, or drained by a successor.
            if scan.leaves_older(&advance, (write.object, &write.bytes(self.index)), *arrived) {
                fates[number] = MessageFate::Waits;
            } else if !add_message(&mut batch, write, number, *arrived) {
                fates[number] = MessageFate::Refused;
            }
        }
        let found = !batch.is_empty();
        if found {
            reach(Point::DrainHeads);
        }
        let ground = RoundContext {
            store: self.store.as_ref(),
            io_queue: self.io_queue.as_ref(),
            stats: &self.stats,
            outboxes: Some(&self.outboxes),
            overwrites: ahead,
        };
        let began = if found { self.store_speed.sample(self.clock.now()) } else { None };
        let mut errors = batch.apply(&ground);
        let ended = if found { self.store_speed.sample(self.clock.now()) } else { None };
        self.store_speed.note(began, ended);
        let by_place = self.count(&batch);
        self.row_memory =
            Some(batch.into_memory()).filter(|room| room.capacity() <= KEPT_ROWS_MAX).unwrap_or_default();
        if found {
            reach(Point::DrainRound);
        }
        self.outboxes.end_round();
        if let Some((lives, marks)) = self.restart_log.as_mut().zip(errors.marks.take()) {
            lives.note(marks, self.clock.now());
        }
        let out_of_order = portion.is_by_offset() && (errors.overlap || scan.crosses(portion, &advance));
        let more = matches!(portion, DrainLimit::Each(_))
            && scan.first_left(&advance, &|_| true).is_some()
            && (found || advance.positions != self.outboxes.positions());
        if out_of_order {
            advance = scan.in_order(&self.outboxes, advance, portion);
        }
        let ended = self.outboxes.advance_cursors(&advance, &errors, &self.stats);
        let lies = std::mem::take(&mut scan.violations);
        if ended.is_empty() && lies.is_empty() {
            self.outboxes.keep(scan);
        }
        for session in ended {
            self.views.end(session);
            self.merge_wait.forget_outboxes();
        }
        // Until no record is partly drained: a direct write in progress may block a part of one for a while.
        self.must_complete = out_of_order || (self.must_complete && self.outboxes.has_parts());
        // After the cursors have moved: a successor would drain those records again, over the acknowledged message.
        self.answer_messages(writes, &errors, &fates);
        for (session, what) in lies {
            self.outboxes.drop_violator(session);
            self.views.end(session);
            self.merge_wait.forget_outboxes();
            (self.on_violation)(session, what);
        }
        if found {
            self.outboxes.grant(self.store.as_ref());
        }
        RoundOutcome { found, more, by_outbox: by_place }
    }

    /// Reports drained bytes per session to the I/O queue, if there is one.
    fn count(&self, batch: &RoundBatch<'_>) -> Vec<u64> {
        let Some(desk) = &self.io_queue else { return Vec::new() };
        let amounts = batch.by_outbox(self.outboxes.len());
        let some = amounts.iter().enumerate().filter(|(_, amount)| 0 < amount.records);
        if some.clone().next().is_some() {
            desk.count_drained(some.map(|(place, amount)| (self.outboxes.at(place).session, *amount)));
        }
        amounts.iter().map(|amount| amount.bytes).collect()
    }

    /// How much of all outboxes this round drains.
    pub(super) fn cutoff(&mut self, scan: &Scan) -> Cutoff {
        // A message must not overtake records that were committed before it arrived.
        let mood = self.conditions(!self.writes.is_empty());
        let (upto, until) = self.decide(scan, mood, &|_| true);
        self.wait_until = until;
        upto
    }

    /// Current conditions for the merge-wait decision.
    pub(super) fn conditions(&mut self, urgent: bool) -> Conditions {
        let Pressure { leaving, waits, outside_collective: alone, full, half } = self.outboxes.pressure();
        self.known_waiting = WaitingCallers { any: waits, outside_collective: alone };
        self.merge_wait.set_in_collective(self.outboxes.in_collective());
        let waited_for = !self.drains.is_empty() || !self.drain_alls.is_empty();
        let urgent = urgent || leaving || waited_for || self.stop.is_some() || self.must_complete;
        let slow = self.store_speed.store_is_slow();
        Conditions { now: self.clock.now(), urgent, waits, in_collective: waits && !alone, full, half, slow }
    }

    /// How much of some outboxes may be drained now, and when to check the rest again.
    pub(super) fn decide(
        &mut self,
        scan: &Scan,
        mood: Conditions,
        of: &dyn Fn(usize) -> bool,
    ) -> (Cutoff, Option<Nanos>) {
        let choice = self.merge_wait.choose(&scan.pending(of), mood);
        let look_again = Nanos(self.clock.now().0 + DIRECT_POLL_NS);
        match (choice, scan.held_up(&self.outboxes, of)) {
            (DrainDecision::Wait { until }, _) => (Cutoff::NOTHING, Some(until)),
            (DrainDecision::Rest { until }, _) => {
                self.rests = true;
                (Cutoff::NOTHING, Some(until))
            }
            (DrainDecision::Drain(Cutoff::Committed(before)), Some(held_up)) => {
                (Cutoff::Committed(before.min(held_up)), Some(look_again))
            }
            (DrainDecision::Drain(Cutoff::Below(_)), Some(held_up)) => {
                (Cutoff::Committed(held_up), Some(look_again))
            }
            (DrainDecision::Drain(upto), None) => (upto, None),
        }
    }

    fn answer_messages(&mut self, writes: Vec<MessageWrite>, errors: &Errors, fates: &[MessageFate]) {
        for (number, (write, done, arrived)) in writes.into_iter().enumerate() {
            if fates[number] == MessageFate::Waits {
                self.writes.push((write, done, arrived));
                continue;
            }
            let what = format!("writing {} bytes of object {}", write.data.len(), write.object);
            match errors.of_message(number) {
                _ if fates[number] == MessageFate::Refused => {
                    done(Err(Fault::new(
                        Code::Protocol,
                        format!("{what}: the data does not match the view"),
                    )));
                }
                Some(error) => done(Err(error.clone().at(what))),
                None => done(Ok(())),
            }
            buffers::give_back(write.data);
        }
    }

    pub(super) fn finish_drains(&mut self) {
        let outboxes = &self.outboxes;
        let ready =
            |drain: &Drain| outboxes.drained(drain.session).is_none_or(|taken| drain.position <= taken);
        let (finished, waiting) = std::mem::take(&mut self.drains).into_iter().partition::<Vec<_>, _>(ready);
        self.drains = waiting;
        for drain in finished {
            (drain.done)(Ok(()));
        }
        let outboxes = &self.outboxes;
        let reached = |(session, position): &(SessionId, u64)| {
            outboxes.drained(*session).is_none_or(|taken| *position <= taken)
        };
        let ready = |all: &DrainAll| all.positions.iter().all(reached);
        let (finished, waiting) =
            std::mem::take(&mut self.drain_alls).into_iter().partition::<Vec<_>, _>(ready);
        self.drain_alls = waiting;
        for all in finished {
            (all.done)(Ok(()));
        }
    }

    /// Sleeps until a client or the service rings, or the sleep ends. Announces the sleep first, then checks once more.
    pub(super) fn sleep(&mut self, idle_naps: u32) {
        self.outboxes.announce_sleep(if self.rests { Sleep::Resting } else { Sleep::Light });
        let waited_for = !self.drains.is_empty() || !self.drain_alls.is_empty();
        let presses = self.must_complete || waited_for || self.stop.is_some() || !self.writes.is_empty();
        let busy = self.more || (self.wait_until.is_none() && presses);
        let pressure = self.outboxes.pressure();
        let is_disturbed = self.rests && (pressure.half || pressure.full);
        let waiting = WaitingCallers { any: pressure.waits, outside_collective: pressure.outside_collective };
        let news = pressure.leaving || self.known_waiting.lacks(waiting) || is_disturbed;
        let waits = self.wait_until.is_some() && !news;
        if self.inbox.is_empty() && !busy && (waits || !self.outboxes.wants_service()) {
            let limit = match (self.wait_until, self.outboxes.is_empty(), idle_naps < SLEEPS_SHORT) {
                (Some(until), _, _) => Some(until.since(self.clock.now())),
                (None, true, _) => None,
                (None, false, true) => Some(SLEEP_SHORT),
                (None, false, false) => Some(SLEEP_LONG),
            };
            if limit.is_none_or(|limit| SLEEP_LONG <= limit) {
                self.row_memory = Vec::new();
                self.outboxes.release_memory();
            }
            if let Err(error) = self.doorbell.wait(limit) {
                tracing::warn!(%error, "the drain thread cannot wait for its doorbell");
            }
        }
        // Rung or not, the next round scans all outboxes.
        let _ = self.doorbell.take();
        self.outboxes.announce_sleep(Sleep::Awake);
    }
}

fn add_message<'a>(batch: &mut RoundBatch<'a>, write: &'a ByValue, number: usize, arrived: Nanos) -> bool {
    let stamp = CommitStamp { committed: arrived, source: SliceSource::Message(number), position: 0 };
    let data = MemoryPiece::from(write.data.as_slice());
    match &write.to {
        WriteTarget::Bytes(at) => {
            batch.add_bytes(write.object, *at, stamp, data);
            true
        }
        WriteTarget::Stream { view, layout, stream } => {
            let streamed = Streamed {
                view: view.as_deref(),
                layout: *layout,
                stream: stream.clone(),
                local: 0..u64::MAX,
            };
            batch.add_stream(write.object, stamp, &streamed, (Packing::Part, data))
        }
    }
}

#[cfg(test)]
#[path = "drain_tests.rs"]
pub(super) mod tests;
