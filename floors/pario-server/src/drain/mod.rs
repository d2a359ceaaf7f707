//! Draining: one thread per server that moves records from the node's outboxes, and writes sent by message, into the store.
//!
//! Never: lets a record that was committed before another began win over it. Always: a cursor moves only when everything before it is in
//! the store or its error is kept.

mod batch;
mod conflict_groups;
mod cut;
mod interleave;
mod join;
mod merge_wait;
mod outboxes;
mod overwrites;
mod pending;
mod refused;
mod restart_log;
mod run;
mod scan;
mod scatter_buffer;
mod shared;
mod shares;
mod store_speed;
mod writer;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Clock, Code, Fault, InodeId, Layout, LocalOffset, Nanos, ObjectId, ServerIndex, SessionId};
use pario_net::buffers;
use pario_net::outbox::{CursorPage, OutboxReader, Sleep};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::MemoryPiece;
use pario_view::View;

pub(crate) use self::batch::Amount;
use self::batch::{CommitStamp, Packing, RoundBatch, SliceSource, Streamed};
use self::cut::CutRow;
use self::merge_wait::{Conditions, Cutoff, DrainDecision, MergeWait};
use self::outboxes::{Outboxes, Pressure};
use self::restart_log::RestartLog;
pub use self::restart_log::RestartLogSpec;
use self::scan::{DrainLimit, Scan};
use self::shares::Shares;
use self::store_speed::StoreSpeed;
use self::writer::{Errors, RoundContext};
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

/// Completion callback, called from the drain thread.
pub(crate) type DrainDone<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;

/// Requests of the service to the drain thread.
pub(crate) enum DrainTask {
    /// A session offers its outbox.
    Attach { session: SessionId, outbox: OutboxReader, cursor: CursorPage, from: u64, done: DrainDone<()> },
    /// A session ended: drain its committed records, then remove it.
    Detach { session: SessionId },
    /// Reply when all records committed so far by a session are in the store.
    Drain { session: SessionId, done: DrainDone<()> },
    /// Reply when all records committed so far by all sessions are in the store.
    DrainAll { done: DrainDone<()> },
    /// The set of files that may be written back has changed.
    Grant,
    /// A write sent by message.
    Write { write: ByValue, done: DrainDone<()> },
    /// A session defines a view.
    DefineView { session: SessionId, view: u32, bytes: Vec<u8>, done: DrainDone<()> },
    /// A session will not use a view again.
    ForgetView { session: SessionId, view: u32, done: DrainDone<()> },
    /// Errors kept for a session's file.
    Errors { session: SessionId, inode: InodeId, done: DrainDone<Vec<Fault>> },
    /// Drain all records, then end.
    Stop { done: DrainDone<()> },
}

/// A write sent by message, with its bytes.
pub(crate) struct ByValue {
    pub(crate) object: ObjectId,
    pub(crate) to: WriteTarget,
    pub(crate) data: Vec<u8>,
}

impl ByValue {
    /// Fails if it exceeds the largest file.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let WriteTarget::Bytes(at) = self.to else { return Ok(()) };
        match at.0.checked_add(self.data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX) {
            Some(_) => Ok(()),
            None => Err(Fault::new(
                Code::TooLarge,
                format!("byte {} of an object is beyond the largest file", at.0),
            )),
        }
    }

    /// Range from its first to its last byte in the object of a server.
    fn bytes(&self, index: ServerIndex) -> Range<u64> {
        let (view, layout, stream) = match &self.to {
            WriteTarget::Bytes(at) => return at.0..at.0.saturating_add(self.data.len() as u64),
            WriteTarget::Stream { stream, .. } if stream.is_empty() => return 0..0,
            WriteTarget::Stream { view, layout, stream } => (view, layout, stream.clone()),
        };
        let file = match view {
            None => Some(stream),
            Some(view) => view
                .file_offset(stream.start)
                .zip(view.file_offset(stream.end - 1))
                .map(|(first, last)| first..last.saturating_add(1)),
        };
        file.map_or(0..u64::MAX, |file| layout.local_range(index, file))
    }
}

/// Target of the bytes of a message.
pub(crate) enum WriteTarget {
    /// One offset of the object.
    Bytes(LocalOffset),
    /// Through a view; the bytes are this server's part of a range of its stream.
    Stream { view: Option<Arc<View>>, layout: Layout, stream: Range<u64> },
}

/// Reports protocol violations of a session to the service.
pub(crate) type ViolationHandler = Box<dyn Fn(SessionId, String) + Send>;

/// Handle of the drain thread.
#[derive(Clone)]
pub(crate) struct Drainer {
    tasks: Sender<DrainTask>,
    doorbell: Arc<Doorbell>,
    views: DefinedViews,
}

impl Drainer {
    /// Starts the thread of server `index`.
    pub(crate) fn start(
        index: ServerIndex,
        (store, desk, lives): (Arc<dyn Store>, Option<Arc<IoQueue>>, Option<&RestartLogSpec>),
        stats: Arc<ServerStats>,
        on_violation: ViolationHandler,
        on_end: Box<dyn Fn() + Send>,
    ) -> std::io::Result<Drainer> {
        let (tasks, inbox) = crossbeam_channel::unbounded();
        let (doorbell, views) = (Arc::new(Doorbell::new()?), DefinedViews::default());
        let lives =
            lives.and_then(|spec| RestartLog::begin(spec, &restart_log::boot(), MonotonicClock.now()));
        let worker = DrainWorker {
            index,
            store,
            io_queue: desk,
            stats,
            on_violation,
            views: views.clone(),
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
            doorbell: Arc::clone(&doorbell),
            outboxes: Outboxes::default(),
            restart_log: lives,
            writes: Vec::new(),
            drains: Vec::new(),
            drain_alls: Vec::new(),
            stop: None,
            clock: MonotonicClock,
        };
        std::thread::Builder::new().name(format!("pario-take-{index}")).spawn(move || {
            let _alarm = Alarm(on_end);
            worker.run();
        })?;
        Ok(Drainer { tasks, doorbell, views })
    }

    /// Tasks that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.tasks.len()
    }

    /// Queues a task; requests of clients are queued only below `TASKS_WAITING_MAX` (`service/park.rs`).
    pub(crate) fn post(&self, task: DrainTask) {
        // The thread ends only after `Stop`; no task posted after that has a waiting caller.
        if self.tasks.send(task).is_ok() {
            let _ = self.doorbell.ring();
        }
    }

    /// Views defined by clients.
    pub(crate) fn views(&self) -> &DefinedViews {
        &self.views
    }

    /// The doorbell that clients ring.
    pub(crate) fn doorbell(&self) -> Arc<Doorbell> {
        Arc::clone(&self.doorbell)
    }
}

/// Called when the thread panics: a server that replies but does not drain would block its clients for ever.
struct Alarm(Box<dyn Fn() + Send>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// A write by message, its completion callback, and its arrival time.
type MessageWrite = (ByValue, DrainDone<()>, Nanos);

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
struct Drain {
    session: SessionId,
    position: u64,
    done: DrainDone<()>,
}

/// The same for all sessions.
struct DrainAll {
    positions: Vec<(SessionId, u64)>,
    done: DrainDone<()>,
}

/// Whether callers wait for their records, outside a collective call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct WaitingCallers {
    any: bool,
    outside_collective: bool,
}

impl WaitingCallers {
    /// Whether `now` has a caller that `self` has not.
    fn lacks(self, now: WaitingCallers) -> bool {
        (now.any && !self.any) || (now.outside_collective && !self.outside_collective)
    }
}

/// Result of a round.
struct RoundOutcome {
    /// The round wrote data.
    found: bool,
    /// It progressed, and left records that it saw. Only used by shared rounds.
    more: bool,
    /// Bytes drained per outbox; empty if they are not counted.
    by_outbox: Vec<u64>,
}

struct DrainWorker {
    index: ServerIndex,
    store: Arc<dyn Store>,
    io_queue: Option<Arc<IoQueue>>,
    stats: Arc<ServerStats>,
    on_violation: ViolationHandler,
    inbox: Receiver<DrainTask>,
    doorbell: Arc<Doorbell>,
    outboxes: Outboxes,
    /// Restart log, where an earlier server may exist.
    restart_log: Option<RestartLog>,
    views: DefinedViews,
    merge_wait: MergeWait,
    store_speed: StoreSpeed,
    /// Records are not drained before this time, unless new ones arrive.
    wait_until: Option<Nanos>,
    /// Until then new records are not even scanned, while no caller waits and no outbox is half full.
    rests: bool,
    /// The waiting callers known to the last round.
    known_waiting: WaitingCallers,
    /// Partly drained records must be completed before newer ones are drained.
    must_complete: bool,
    /// The last round left records for the next one.
    more: bool,
    shares: Shares,
    /// Row buffer kept for the next round.
    row_memory: Vec<CutRow>,
    writes: Vec<MessageWrite>,
    drains: Vec<Drain>,
    drain_alls: Vec<DrainAll>,
    stop: Option<DrainDone<()>>,
    clock: MonotonicClock,
}

impl DrainWorker {
    fn run(mut self) {
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

    fn read_tasks(&mut self) {
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

    fn accept(&mut self, task: DrainTask) {
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
    fn round(&mut self) -> bool {
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
    fn drain(&mut self, mut scan: Scan, portion: &DrainLimit) -> RoundOutcome {
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
    fn cutoff(&mut self, scan: &Scan) -> Cutoff {
        // A message must not overtake records that were committed before it arrived.
        let mood = self.conditions(!self.writes.is_empty());
        let (upto, until) = self.decide(scan, mood, &|_| true);
        self.wait_until = until;
        upto
    }

    /// Current conditions for the merge-wait decision.
    fn conditions(&mut self, urgent: bool) -> Conditions {
        let Pressure { leaving, waits, outside_collective: alone, full, half } = self.outboxes.pressure();
        self.known_waiting = WaitingCallers { any: waits, outside_collective: alone };
        self.merge_wait.set_in_collective(self.outboxes.in_collective());
        let waited_for = !self.drains.is_empty() || !self.drain_alls.is_empty();
        let urgent = urgent || leaving || waited_for || self.stop.is_some() || self.must_complete;
        let slow = self.store_speed.store_is_slow();
        Conditions { now: self.clock.now(), urgent, waits, in_collective: waits && !alone, full, half, slow }
    }

    /// How much of some outboxes may be drained now, and when to check the rest again.
    fn decide(
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

    fn finish_drains(&mut self) {
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
    fn sleep(&mut self, idle_naps: u32) {
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

/// The fault of a store error, with the server's index.
pub(crate) fn store_fault(index: ServerIndex, error: &pario_store::StoreError) -> Fault {
    let fault = Fault::from(error);
    if fault.code == Code::NoSpace {
        return Fault::new(Code::NoSpace, format!("server {index} is full: {}", fault.text));
    }
    fault.at(format!("server {index}"))
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
