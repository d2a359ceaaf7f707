//! I/O queue between service and store: orders pending requests per application (`pario-sched` decides).
//!
//! ```text
//!  service ─ read ──► idle? ── yes ─► pool (bypass)                    ┌─► a thread of the queue reads, for several requests
//!          ─ write ─►   └── no ──► Controller ── its turn ─────────────┼─► the drain thread writes the data of a message
//!  drain ── turn ──►                                                   └─► the drain thread writes records of outboxes
//! ```
//! There is none under `fifo`: every call goes to the store in arrival order. Under any other policy a request that finds the store idle
//! bypasses the queue, which costs one uncontended lock; only requests that must wait are posted and ordered.
//!
//! Never: touches bytes of a request; waits while its lock is held. Always: a posted request is answered, or its application has ended; a
//! turn that is waited for is granted, since operations in progress end without the waiting thread.

mod applications;
mod read;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Fault, ObjectId, SessionId};
use pario_sched::{ApplicationId, IoKind, Outcome, RequestId};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;

pub(crate) use self::read::ReadDone;
use self::read::{ReadJob, read_run};
use self::state::{Picked, QueueState, QueuedJob};
use self::trace::{RewriteMode, TRACE_EVERY, TRACE_RECORDS_MAX, TraceFile};
use crate::drain::Amount;
use crate::pool::ThreadPool;

/// The policy without an I/O queue.
pub const FIFO: &str = "fifo";

/// Largest weight of an application.
pub const WEIGHT_MAX: u32 = 1000;

/// Threads that carry out reads; as many as the pool has.
const THREADS: usize = 3;
/// Interval of the check for runs that never end, while requests wait.
const OVERDUE_CHECK: Duration = Duration::from_secs(10);

/// How requests to the store are ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedulerSpec {
    /// One of [`pario_sched::policy_names`].
    pub policy: String,
    /// Weights of applications by name; they override the weight that an application requests.
    pub weights: BTreeMap<String, u32>,
    /// File of the trace, written every second and when the server ends.
    pub trace: Option<PathBuf>,
}

impl Default for SchedulerSpec {
    fn default() -> Self {
        SchedulerSpec { policy: FIFO.to_owned(), weights: BTreeMap::new(), trace: None }
    }
}

/// See the module.
pub(crate) struct IoQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Operations at the store that the queue knows of.
    in_progress: AtomicUsize,
    /// Of these, writes by message, which end only when the drain thread reaches them.
    messages: AtomicUsize,
    /// Requests that wait for their turn.
    waiting: AtomicUsize,
    store: Arc<dyn Store>,
    pool: ThreadPool,
    trace: Option<Mutex<TraceFile>>,
    /// Signalled when the queue is closed, to the trace writer.
    closing: Condvar,
    clock: MonotonicClock,
}

fn start(desk: &Arc<IoQueue>, name: String, work: fn(&Arc<IoQueue>)) -> Result<(), Fault> {
    let desk = Arc::clone(desk);
    let thread = std::thread::Builder::new().name(name).spawn(move || work(&desk));
    thread.map(|_| ()).map_err(|error| Fault::from_io(&error, "starting a thread"))
}

/// Bytes of an object that a session wants to access.
#[derive(Clone, Debug)]
pub(crate) struct IoRequest {
    pub(crate) session: SessionId,
    pub(crate) object: ObjectId,
    pub(crate) bytes: Range<u64>,
}

/// Holder of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TurnHolder {
    /// A write by message that waits for the drain thread.
    Message,
    /// The drain thread itself.
    Drainer,
}

/// Permission to use the store; it ends when this is dropped.
pub(crate) struct StoreTurn {
    io_queue: Arc<IoQueue>,
    holder: TurnHolder,
    /// Its posted request; `None`: it did not have to wait.
    posted: Option<RequestId>,
    bytes: u64,
}

impl Drop for StoreTurn {
    fn drop(&mut self) {
        if self.holder == TurnHolder::Message {
            self.io_queue.messages.fetch_sub(1, Ordering::SeqCst);
        }
        match self.posted {
            Some(id) => self.io_queue.end_posted(&[(id, Outcome::Done { bytes: self.bytes })], 1),
            None => self.io_queue.end_bypass(),
        }
    }
}

impl IoQueue {
    /// The I/O queue of a server, unless its policy is `fifo`.
    pub(crate) fn open(
        spec: &SchedulerSpec,
        store: &Arc<dyn Store>,
        pool: &ThreadPool,
        name: &str,
    ) -> Result<Option<Arc<IoQueue>>, Fault> {
        let state = QueueState::new(spec)?;
        if spec.policy == FIFO {
            return Ok(None);
        }
        let desk = Arc::new(IoQueue {
            state: Mutex::new(state),
            changed: Condvar::new(),
            in_progress: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            store: Arc::clone(store),
            pool: pool.clone(),
            trace: spec.trace.clone().map(|path| Mutex::new(TraceFile::new(path, TRACE_RECORDS_MAX))),
            closing: Condvar::new(),
            clock: MonotonicClock,
        });
        for number in 0..THREADS {
            start(&desk, format!("pario-desk-{name}-{number}"), IoQueue::work)?;
        }
        if desk.trace.is_some() {
            desk.write_trace(RewriteMode::Append);
            start(&desk, format!("pario-desk-{name}-trace"), IoQueue::keep_trace)?;
        }
        Ok(Some(desk))
    }

    /// A session has mounted on behalf of an application.
    pub(crate) fn joined(&self, session: SessionId, application: &str, weight: u32) {
        self.lock().joined(session, application, weight);
    }

    /// A session ended; with an application's last session its requests that do not run yet are cancelled.
    pub(crate) fn left(&self, session: SessionId) {
        let taken_back = {
            let mut state = self.lock();
            let jobs = state.left(session);
            // Other requests may have room now.
            state.post_held_back();
            self.waiting.store(state.waiting(), Ordering::SeqCst);
            jobs
        };
        self.changed.notify_one();
        // A thread that waited for a turn sees its channel closed.
        drop(taken_back);
    }

    /// The application of each session, and its weight.
    pub(crate) fn applications_of(
        &self,
        sessions: impl Iterator<Item = SessionId>,
    ) -> Vec<(ApplicationId, u32)> {
        let state = self.lock();
        sessions.map(|session| state.applications.application_of(session)).collect()
    }

    /// Records were drained from the outboxes of sessions.
    pub(crate) fn count_drained(&self, taken: impl Iterator<Item = (SessionId, Amount)>) {
        let mut state = self.lock();
        taken.for_each(|(session, amount)| state.applications.count_drained(session, amount));
    }

    /// Reads bytes at the request's turn; fewer at the object's end.
    pub(crate) fn read(self: &Arc<Self>, wish: &IoRequest, done: ReadDone) {
        let job = ReadJob { object: wish.object, bytes: wish.bytes.clone(), done };
        let mut state = self.lock();
        if self.is_idle() {
            self.bypass(&mut state, wish);
            drop(state);
            let desk = Arc::clone(self);
            let store = Arc::clone(&self.store);
            let read = move || Ok(job.read_alone(store.as_ref()));
            self.pool.run(read, move |_| desk.end_bypass());
            return;
        }
        self.post(&mut state, wish, IoKind::Read, QueuedJob::Read(job));
    }

    /// Passes a write to the drain thread at its turn; the turn ends when `release`'s argument is dropped.
    pub(crate) fn write(self: &Arc<Self>, wish: &IoRequest, release: Box<dyn FnOnce(StoreTurn) + Send>) {
        let mut state = self.lock();
        if self.is_idle() {
            self.bypass(&mut state, wish);
            self.messages.fetch_add(1, Ordering::SeqCst);
            drop(state);
            release(self.turn_of(TurnHolder::Message, None, 0));
            return;
        }
        let bytes = wish.bytes.end - wish.bytes.start;
        let of = (wish.session, wish.object.inode);
        self.post(&mut state, wish, IoKind::Write, QueuedJob::Write { release, bytes, of });
    }

    /// Waits until the drain thread may write records of an outbox. While a message's write has its turn the drain thread does not wait,
    /// since that write waits for the drain thread.
    pub(crate) fn turn(self: &Arc<Self>, wish: &IoRequest) -> StoreTurn {
        let granted = {
            let mut state = self.lock();
            if self.is_idle() || 0 < self.messages.load(Ordering::SeqCst) {
                self.bypass(&mut state, wish);
                return self.turn_of(TurnHolder::Drainer, None, 0);
            }
            let (grant, granted) = crossbeam_channel::bounded(1);
            self.post(&mut state, wish, IoKind::Write, QueuedJob::Drainer(grant));
            granted
        };
        match granted.recv() {
            Ok(Some(id)) => self.turn_of(TurnHolder::Drainer, Some(id), wish.bytes.end - wish.bytes.start),
            // Released before its turn; or its application has ended, and its remaining records are drained without waiting.
            Ok(None) | Err(_) => {
                self.in_progress.fetch_add(1, Ordering::SeqCst);
                self.turn_of(TurnHolder::Drainer, None, 0)
            }
        }
    }

    fn turn_of(self: &Arc<Self>, holder: TurnHolder, posted: Option<RequestId>, bytes: u64) -> StoreTurn {
        StoreTurn { io_queue: Arc::clone(self), holder, posted, bytes }
    }

    /// Closes the queue: threads end, the trace is written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
        self.closing.notify_all();
        self.write_trace(RewriteMode::Anew);
    }

    fn write_trace(&self, how: RewriteMode) {
        let Some(trace) = &self.trace else { return };
        let mut file = trace.lock().unwrap_or_else(PoisonError::into_inner);
        let news = file.update(self.lock().controller.trace(), how);
        if let Some(news) = news {
            file.write(&news);
        }
    }

    /// The thread that writes the trace out.
    fn keep_trace(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.closed {
            let waited = self.closing.wait_timeout(state, TRACE_EVERY);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.write_trace(RewriteMode::Append);
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        self.clock.now().0 / 1000
    }

    /// Whether no other request is posted or running; call with the lock held.
    fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.in_progress.load(Ordering::SeqCst) == 0
    }

    fn bypass(&self, state: &mut QueueState, wish: &IoRequest) {
        self.in_progress.fetch_add(1, Ordering::SeqCst);
        state.count_bypass(wish);
    }

    fn post(&self, state: &mut QueueState, wish: &IoRequest, kind: IoKind, job: QueuedJob) {
        state.post(wish, kind, job, self.now_us());
        self.waiting.store(state.waiting(), Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// Without the lock, unless requests wait: the counter is decremented before the check, as it is incremented before a poster checks.
    fn end_bypass(&self) {
        self.in_progress.fetch_sub(1, Ordering::SeqCst);
        if 0 < self.waiting.load(Ordering::SeqCst) {
            drop(self.lock());
            self.changed.notify_one();
        }
    }

    /// Requests of one operation have ended, as `operations` of those in progress.
    fn end_posted(&self, ended: &[(RequestId, Outcome)], operations: usize) {
        let now_us = self.now_us();
        let mut state = self.lock();
        for (id, outcome) in ended {
            state.complete(*id, *outcome, now_us);
        }
        state.post_held_back();
        self.in_progress.fetch_sub(operations, Ordering::SeqCst);
        self.waiting.store(state.waiting(), Ordering::SeqCst);
        drop(state);
        self.changed.notify_one();
    }

    /// Main loop of a thread of the queue.
    fn work(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.closed {
            let picked = state.pick(self.in_progress.load(Ordering::SeqCst), self.now_us());
            self.waiting.store(state.waiting(), Ordering::SeqCst);
            match picked {
                Picked::Run(jobs) => {
                    self.begin(&mut state, &jobs);
                    let more = 0 < state.waiting();
                    drop(state);
                    if more {
                        self.changed.notify_one();
                    }
                    self.carry_out(jobs);
                    state = self.lock();
                }
                Picked::Wait { us } => {
                    let limit = Duration::from_micros(us).min(OVERDUE_CHECK);
                    state = self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0;
                }
                Picked::Full => {
                    state = self
                        .changed
                        .wait_timeout(state, OVERDUE_CHECK)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                    state.report_overdue(self.now_us());
                }
                Picked::Nothing => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Counts operations that start now: reads as one operation, writes one by one.
    fn begin(&self, state: &mut QueueState, jobs: &[(RequestId, QueuedJob)]) {
        let messages = jobs.iter().filter(|(_, job)| matches!(job, QueuedJob::Write { .. })).count();
        let reads = matches!(jobs.first(), Some((_, QueuedJob::Read(_))));
        self.in_progress.fetch_add(if reads { 1 } else { jobs.len() }, Ordering::SeqCst);
        if 0 < messages {
            self.messages.fetch_add(messages, Ordering::SeqCst);
            state.release_drainer();
        }
    }

    fn carry_out(self: &Arc<Self>, jobs: Vec<(RequestId, QueuedJob)>) {
        let mut reads = Vec::new();
        for (id, job) in jobs {
            match job {
                QueuedJob::Read(job) => reads.push((id, job)),
                QueuedJob::Write { release, bytes, of } => {
                    release(self.turn_of(TurnHolder::Message, Some(id), bytes));
                    // Not before: another thread could overtake it with the next request.
                    let mut state = self.lock();
                    state.write_next(of);
                    self.waiting.store(state.waiting(), Ordering::SeqCst);
                    drop(state);
                    self.changed.notify_one();
                }
                QueuedJob::Drainer(grant) => {
                    if grant.send(Some(id)).is_err() {
                        self.end_posted(&[(id, Outcome::Failed)], 1);
                    }
                }
            }
        }
        if !reads.is_empty() {
            let ended = read_run(self.store.as_ref(), reads);
            self.end_posted(&ended, 1);
        }
    }
}
