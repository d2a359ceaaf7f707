//! Threads for independent non-blocking accesses, and the outcome of any non-blocking access. Collective accesses run in the queue of
//! their file (`pario::collective::OrderedQueue`).
//!
//! Never: calls MPI, unless a job does.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use crate::problem::{Class, MpiError, Result};

/// Limit of queued accesses; more make the caller wait.
const WAITING_MAX: usize = 256;
/// Threads for independent accesses.
const THREADS: usize = 2;
type WorkerJob = Box<dyn FnOnce() + Send>;

/// Threads with one queue; they end with it.
#[derive(Debug)]
pub struct WorkerPool {
    jobs: OnceLock<Option<SyncSender<WorkerJob>>>,
}

impl WorkerPool {
    /// Threads for independent accesses of any file.
    pub fn independent() -> &'static WorkerPool {
        static POOL: WorkerPool = WorkerPool { jobs: OnceLock::new() };
        &POOL
    }

    /// Runs a job on a thread.
    pub fn run(&self, job: WorkerJob) -> Result<()> {
        let gone = || MpiError::new(Class::NoMem, "no thread could be started for a non-blocking access");
        let jobs = self.jobs.get_or_init(|| start(THREADS)).as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())
    }
}

fn start(threads: usize) -> Option<SyncSender<WorkerJob>> {
    let (jobs, inbox) = sync_channel::<WorkerJob>(WAITING_MAX);
    let inbox = Arc::new(Mutex::new(inbox));
    for _ in 0..threads {
        let inbox = Arc::clone(&inbox);
        let spawned = std::thread::Builder::new().name("pario-mpi".into()).spawn(move || {
            loop {
                let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
                match next {
                    Ok(job) => job(),
                    Err(_) => return,
                }
            }
        });
        spawned.ok()?;
    }
    Some(jobs)
}

/// Outcome of a non-blocking access: bytes, or the error.
#[derive(Debug)]
pub struct AccessOutcome {
    result: Mutex<Option<Result<u64>>>,
    finished: Condvar,
}

impl AccessOutcome {
    /// Of an access in progress.
    #[must_use]
    pub fn new() -> Arc<AccessOutcome> {
        Arc::new(AccessOutcome { result: Mutex::new(None), finished: Condvar::new() })
    }

    /// Stores the outcome and wakes waiting threads.
    pub fn finish(&self, result: Result<u64>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.finished.notify_all();
    }

    /// The outcome, if the access has ended.
    pub fn now(&self) -> Option<Result<u64>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the end of the access.
    pub fn wait(&self) -> Result<u64> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            result = self.finished.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_waits_and_stays() {
        let outcome = AccessOutcome::new();
        assert_eq!(outcome.now(), None);
        let told = Arc::clone(&outcome);
        WorkerPool::independent().run(Box::new(move || told.finish(Ok(7)))).unwrap();
        assert_eq!(outcome.wait(), Ok(7));
        assert_eq!(outcome.now(), Some(Ok(7)));
    }
}
