//! The worker threads of a session: non-blocking calls, and returns of recalled leases.
//!
//! ```text
//!  lane        threads  a job may wait for
//!  calls             4  servers, leases of other clients
//!  returns           4  servers only: records of the file are drained, the lease is returned
//!  observers        64  servers, drains of a node cache, and returns of the two other kinds
//! ```
//! A lane starts a thread when a job finds none idle, up to its limit. Calls wait for leases of other clients, which may wait for leases of
//! this one; so calls and returns share no thread. A return that has not begun delays no access of this process: the access returns the
//! lease itself.
//!
//! Never: starts a thread per recalled file. Always: threads end with the session.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::mutex::lock;

use crate::client::session::state::Session;
use crate::error::{Error, Result};

/// Threads for non-blocking calls.
const CALL_THREADS_MAX: usize = 4;
/// Threads that return leases of files without observers.
pub(in crate::client) const RETURN_THREADS_MAX: usize = 4;
/// Threads that run lease observers: one observer may wait for the return of another file.
const OBSERVER_THREADS_MAX: usize = 64;

type LaneJob = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Debug)]
pub(in crate::client) struct Executor {
    calls: Lane,
    pub(in crate::client) returns: Lane,
    pub(in crate::client) observers: Lane,
}

impl Default for Executor {
    fn default() -> Executor {
        Executor {
            calls: Lane::new("pario-call", CALL_THREADS_MAX, pario_core::limits::IN_FLIGHT_MAX),
            // At most one job per open file.
            returns: Lane::new("pario-return", RETURN_THREADS_MAX, usize::MAX),
            observers: Lane::new("pario-observer", OBSERVER_THREADS_MAX, usize::MAX),
        }
    }
}

/// Jobs of one kind, run in order by a bounded number of threads.
#[derive(Debug)]
pub(in crate::client) struct Lane {
    name: &'static str,
    threads_max: usize,
    queued_max: usize,
    shared: Arc<LaneShared>,
}

#[derive(Debug, Default)]
struct LaneShared {
    state: Mutex<LaneState>,
    /// A job was queued, or the lane was closed.
    queued: Condvar,
    /// A job was taken from a full queue.
    taken: Condvar,
}

#[derive(Default)]
struct LaneState {
    jobs: VecDeque<LaneJob>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl std::fmt::Debug for LaneState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneState").field("jobs", &self.jobs.len()).field("threads", &self.threads).finish()
    }
}

impl Lane {
    fn new(name: &'static str, threads_max: usize, queued_max: usize) -> Lane {
        Lane { name, threads_max, queued_max, shared: Arc::default() }
    }

    /// Queues a job. Waits while the queue is full.
    ///
    /// # Errors
    /// No thread runs, and none can be started; the job is dropped.
    pub(in crate::client) fn run(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let mut state = lock(&self.shared.state);
        while self.queued_max <= state.jobs.len() {
            state = self.shared.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() <= state.idle {
            self.shared.queued.notify_one();
            return Ok(());
        }
        if self.threads_max <= state.threads {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new().name(self.name.into()).spawn(move || work(&shared));
        match spawned {
            Ok(_) => state.threads += 1,
            // The running threads serve the queue.
            Err(error) if 0 < state.threads => {
                tracing::debug!(%error, "no further worker thread could be started")
            }
            Err(error) => {
                state.jobs.pop_back();
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        lock(&self.shared.state).is_closed = true;
        self.shared.queued.notify_all();
    }
}

/// Runs jobs until the lane is closed and empty.
fn work(shared: &LaneShared) {
    let mut state = lock(&shared.state);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            shared.taken.notify_one();
            drop(state);
            // A job that panics has printed its message; the thread goes on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            state = lock(&shared.state);
            continue;
        }
        if state.is_closed {
            return;
        }
        state.idle += 1;
        state = shared.queued.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
    }
}

/// A call under way. Dropping it lets the call finish in the background.
#[derive(Debug)]
pub struct Pending<T> {
    shared: Arc<PendingState<T>>,
}

#[derive(Debug)]
struct PendingState<T> {
    result: Mutex<Option<Result<T>>>,
    done: Condvar,
}

impl<T: Send + 'static> Pending<T> {
    /// A call under way, and the function that completes it.
    pub(crate) fn new() -> (Pending<T>, impl FnOnce(Result<T>) + Send + 'static) {
        let shared = Arc::new(PendingState { result: Mutex::new(None), done: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let finish = move |result| {
            *lock(&theirs.result) = Some(result);
            theirs.done.notify_all();
        };
        (Pending { shared }, finish)
    }
}

impl<T> Pending<T> {
    /// Whether the call has finished.
    pub fn is_done(&self) -> bool {
        lock(&self.shared.result).is_some()
    }

    /// Waits for the call up to `limit`; returns whether it has finished.
    pub(crate) fn wait_for(&self, limit: std::time::Duration) -> bool {
        let result = lock(&self.shared.result);
        let waited = self.shared.done.wait_timeout_while(result, limit, |result| result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Waits for the call and returns its result.
    pub fn wait(self) -> Result<T> {
        let mut result = lock(&self.shared.result);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            result = self.shared.done.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Session {
    /// Starts `call` on a worker thread. At most 256 calls wait for a thread; further callers wait.
    pub(in crate::client) fn start_call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        self.check_process()?;
        let (pending, finish) = Pending::new();
        self.executor.calls.run(move || finish(call())).map_err(|error| {
            let text = format!("no worker thread of the session could be started: {error}; retry");
            Error::from(Fault::new(Code::Busy, text))
        })?;
        Ok(pending)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Jobs beyond the limit of threads wait, in order; an idle thread is used again.
    #[test]
    fn a_lane_keeps_to_its_threads_and_runs_every_job() {
        let lane = Lane::new("test", 2, usize::MAX);
        let (tell, told) = channel();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for number in 0..10 {
            let (tell, gate) = (tell.clone(), Arc::clone(&gate));
            lane.run(move || {
                let mut open = lock(&gate.0);
                while !*open {
                    open = gate.1.wait(open).unwrap();
                }
                tell.send(number).unwrap();
            })
            .unwrap();
        }
        assert_eq!(lock(&lane.shared.state).threads, 2);
        *lock(&gate.0) = true;
        gate.1.notify_all();
        let mut all: Vec<i32> = told.iter().take(10).collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<i32>>());
        lane.run(|| panic!("a job that fails")).unwrap();
        lane.run(move || tell.send(11).unwrap()).unwrap();
        assert_eq!(told.recv().unwrap(), 11);
        assert_eq!(lock(&lane.shared.state).threads, 2);
    }
}
