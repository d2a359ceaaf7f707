//! The desk between service and store: who asked for what, and whose turn it is (`pario-sched` decides).
//!
//! ```text
//!  service ─ read ──► idle? ── yes ─► pool (bypass)                    ┌─► a thread of the desk reads, for several at once
//!          ─ write ─►   └── no ──► Controller ── its turn ─────────────┼─► the taker writes what a message brought
//!  taker ── turn ──►                                                   └─► the taker writes what it took from outboxes
//! ```
//! There is none under `fifo`: every call goes its way as it comes. Under any other policy a request that meets an idle store
//! goes ahead without being posted, which costs one lock that nobody else holds; only what must wait is posted and ordered.
//!
//! Never: touches bytes of a request; waits while its lock is held. Always: what was posted is answered, or its application is gone;
//! a turn that is waited for comes, since whatever is under way ends without the waiting thread.

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
use pario_sched::{ApplicationId, Kind, Outcome, RequestId};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;

pub(crate) use self::read::ReadDone;
use self::read::{ReadJob, read_run};
use self::state::{Job, Picked, State};
use self::trace::{How, TRACE_EVERY, TRACE_RECORDS_MAX, TraceFile};
use crate::pool::Pool;
use crate::take::Amount;

/// The policy under which there is no desk.
pub const FIFO: &str = "fifo";

/// Weights that an application may have.
pub const WEIGHT_MAX: u32 = 1000;

/// Threads that carry out reads; as many as the pool has.
const THREADS: usize = 3;
/// How often runs that never end are looked for while something waits.
const WATCH: Duration = Duration::from_secs(10);

/// How requests to the store are ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedulerSpec {
    /// One of [`pario_sched::policy_names`].
    pub policy: String,
    /// Weights of applications by name; they win over what an application says itself.
    pub weights: BTreeMap<String, u32>,
    /// File that the trace goes to, every second and when the server ends.
    pub trace: Option<PathBuf>,
}

impl Default for SchedulerSpec {
    fn default() -> Self {
        SchedulerSpec { policy: FIFO.to_owned(), weights: BTreeMap::new(), trace: None }
    }
}

/// See the module.
pub(crate) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
    /// Operations at the store that the desk knows of.
    under_way: AtomicUsize,
    /// Of these, writes by message, which end only when the taker comes to them.
    messages: AtomicUsize,
    /// Requests that wait for their turn.
    waiting: AtomicUsize,
    store: Arc<dyn Store>,
    pool: Pool,
    trace: Option<Mutex<TraceFile>>,
    /// Told when the desk is closed, to who writes the trace.
    closing: Condvar,
    clock: MonotonicClock,
}

fn start(desk: &Arc<Desk>, name: String, work: fn(&Arc<Desk>)) -> Result<(), Fault> {
    let desk = Arc::clone(desk);
    let thread = std::thread::Builder::new().name(name).spawn(move || work(&desk));
    thread.map(|_| ()).map_err(|error| Fault::from_io(&error, "starting a thread"))
}

/// Bytes of an object that somebody's session wants to touch.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) session: SessionId,
    pub(crate) object: ObjectId,
    pub(crate) bytes: Range<u64>,
}

/// Who has a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// A write that came as a message and waits for the taker.
    Message,
    /// The taker itself.
    Taker,
}

/// Permission to use the store; it ends when this is dropped.
pub(crate) struct Turn {
    desk: Arc<Desk>,
    holder: Holder,
    /// As posted; `None`: it did not have to wait.
    posted: Option<RequestId>,
    bytes: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.holder == Holder::Message {
            self.desk.messages.fetch_sub(1, Ordering::SeqCst);
        }
        match self.posted {
            Some(id) => self.desk.end_posted(&[(id, Outcome::Done { bytes: self.bytes })], 1),
            None => self.desk.end_bypass(),
        }
    }
}

impl Desk {
    /// The desk of a server, unless its policy is `fifo`.
    pub(crate) fn open(
        spec: &SchedulerSpec,
        store: &Arc<dyn Store>,
        pool: &Pool,
        name: &str,
    ) -> Result<Option<Arc<Desk>>, Fault> {
        let state = State::new(spec)?;
        if spec.policy == FIFO {
            return Ok(None);
        }
        let desk = Arc::new(Desk {
            state: Mutex::new(state),
            changed: Condvar::new(),
            under_way: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            store: Arc::clone(store),
            pool: pool.clone(),
            trace: spec.trace.clone().map(|path| Mutex::new(TraceFile::new(path, TRACE_RECORDS_MAX))),
            closing: Condvar::new(),
            clock: MonotonicClock,
        });
        for number in 0..THREADS {
            start(&desk, format!("pario-desk-{name}-{number}"), Desk::work)?;
        }
        if desk.trace.is_some() {
            desk.write_trace(How::Append);
            start(&desk, format!("pario-desk-{name}-trace"), Desk::keep_trace)?;
        }
        Ok(Some(desk))
    }

    /// A session has mounted on behalf of an application.
    pub(crate) fn joined(&self, session: SessionId, application: &str, weight: u32) {
        self.lock().joined(session, application, weight);
    }

    /// A session is gone; with an application's last one its requests that do not run yet are taken back.
    pub(crate) fn left(&self, session: SessionId) {
        let taken_back = {
            let mut state = self.lock();
            let jobs = state.left(session);
            // Others may have room now.
            state.post_held_back();
            self.waiting.store(state.waiting(), Ordering::SeqCst);
            jobs
        };
        self.changed.notify_one();
        // Whoever waited for a turn hears of it by the loss of its channel.
        drop(taken_back);
    }

    /// The application of each session, and its weight.
    pub(crate) fn parties(&self, sessions: impl Iterator<Item = SessionId>) -> Vec<(ApplicationId, u32)> {
        let state = self.lock();
        sessions.map(|session| state.applications.party(session)).collect()
    }

    /// Records were taken from the outboxes of sessions.
    pub(crate) fn count_taken(&self, taken: impl Iterator<Item = (SessionId, Amount)>) {
        let mut state = self.lock();
        taken.for_each(|(session, amount)| state.applications.count_taken(session, amount));
    }

    /// Reads bytes when it is their turn; fewer at the object's end.
    pub(crate) fn read(self: &Arc<Self>, wish: &Wish, done: ReadDone) {
        let job = ReadJob { object: wish.object, bytes: wish.bytes.clone(), done };
        let mut state = self.lock();
        if self.is_idle() {
            self.bypass(&mut state, wish);
            drop(state);
            let desk = Arc::clone(self);
            self.pool.run(move || {
                job.read_alone(desk.store.as_ref());
                desk.end_bypass();
            });
            return;
        }
        self.post(&mut state, wish, Kind::Read, Job::Read(job));
    }

    /// Passes a write on to the taker when it is its turn; the turn ends when `release`'s argument is dropped.
    pub(crate) fn write(self: &Arc<Self>, wish: &Wish, release: Box<dyn FnOnce(Turn) + Send>) {
        let mut state = self.lock();
        if self.is_idle() {
            self.bypass(&mut state, wish);
            self.messages.fetch_add(1, Ordering::SeqCst);
            drop(state);
            release(self.turn_of(Holder::Message, None, 0));
            return;
        }
        let bytes = wish.bytes.end - wish.bytes.start;
        let of = (wish.session, wish.object.inode);
        self.post(&mut state, wish, Kind::Write, Job::Write { release, bytes, of });
    }

    /// Waits until the taker may write what it took from an outbox. While a message's write has its turn the taker waits for
    /// nothing, since that write waits for the taker.
    pub(crate) fn turn(self: &Arc<Self>, wish: &Wish) -> Turn {
        let granted = {
            let mut state = self.lock();
            if self.is_idle() || 0 < self.messages.load(Ordering::SeqCst) {
                self.bypass(&mut state, wish);
                return self.turn_of(Holder::Taker, None, 0);
            }
            let (grant, granted) = crossbeam_channel::bounded(1);
            self.post(&mut state, wish, Kind::Write, Job::Taker(grant));
            granted
        };
        match granted.recv() {
            Ok(Some(id)) => self.turn_of(Holder::Taker, Some(id), wish.bytes.end - wish.bytes.start),
            // Let go before its turn; or its application is gone, and what it left is taken without waiting.
            Ok(None) | Err(_) => {
                self.under_way.fetch_add(1, Ordering::SeqCst);
                self.turn_of(Holder::Taker, None, 0)
            }
        }
    }

    fn turn_of(self: &Arc<Self>, holder: Holder, posted: Option<RequestId>, bytes: u64) -> Turn {
        Turn { desk: Arc::clone(self), holder, posted, bytes }
    }

    /// Everything is over: threads end, the trace is written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
        self.closing.notify_all();
        self.write_trace(How::Anew);
    }

    fn write_trace(&self, how: How) {
        let Some(trace) = &self.trace else { return };
        let mut file = trace.lock().unwrap_or_else(PoisonError::into_inner);
        let news = file.news(self.lock().controller.trace(), how);
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
            self.write_trace(How::Append);
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        self.clock.now().0 / 1000
    }

    /// Whether nothing is there that a request could come before or behind; asked under the lock.
    fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.under_way.load(Ordering::SeqCst) == 0
    }

    fn bypass(&self, state: &mut State, wish: &Wish) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        state.count_bypass(wish);
    }

    fn post(&self, state: &mut State, wish: &Wish, kind: Kind, job: Job) {
        state.post(wish, kind, job, self.now_us());
        self.waiting.store(state.waiting(), Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// Without the lock, unless somebody waits: the counter goes down before the look, as it goes up before a poster looks.
    fn end_bypass(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        if 0 < self.waiting.load(Ordering::SeqCst) {
            drop(self.lock());
            self.changed.notify_one();
        }
    }

    /// Requests of one operation are over, as `operations` of those under way.
    fn end_posted(&self, ended: &[(RequestId, Outcome)], operations: usize) {
        let now_us = self.now_us();
        let mut state = self.lock();
        for (id, outcome) in ended {
            state.complete(*id, *outcome, now_us);
        }
        state.post_held_back();
        self.under_way.fetch_sub(operations, Ordering::SeqCst);
        self.waiting.store(state.waiting(), Ordering::SeqCst);
        drop(state);
        self.changed.notify_one();
    }

    /// A thread of the desk.
    fn work(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.closed {
            let picked = state.pick(self.under_way.load(Ordering::SeqCst), self.now_us());
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
                    let limit = Duration::from_micros(us).min(WATCH);
                    state = self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0;
                }
                Picked::Full => {
                    state = self.changed.wait_timeout(state, WATCH).unwrap_or_else(PoisonError::into_inner).0;
                    state.tell_overdue(self.now_us());
                }
                Picked::Nothing => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Counts what goes to the store now: reads as one operation, writes one by one.
    fn begin(&self, state: &mut State, jobs: &[(RequestId, Job)]) {
        let messages = jobs.iter().filter(|(_, job)| matches!(job, Job::Write { .. })).count();
        let reads = matches!(jobs.first(), Some((_, Job::Read(_))));
        self.under_way.fetch_add(if reads { 1 } else { jobs.len() }, Ordering::SeqCst);
        if 0 < messages {
            self.messages.fetch_add(messages, Ordering::SeqCst);
            state.let_taker_go();
        }
    }

    fn carry_out(self: &Arc<Self>, jobs: Vec<(RequestId, Job)>) {
        let mut reads = Vec::new();
        for (id, job) in jobs {
            match job {
                Job::Read(job) => reads.push((id, job)),
                Job::Write { release, bytes, of } => {
                    release(self.turn_of(Holder::Message, Some(id), bytes));
                    // Not before: another thread could be faster with the next one.
                    let mut state = self.lock();
                    state.write_next(of);
                    self.waiting.store(state.waiting(), Ordering::SeqCst);
                    drop(state);
                    self.changed.notify_one();
                }
                Job::Taker(grant) => {
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
