//! Threads that carry out what does not block: one per file for collective accesses, in order; a few for all others.
//!
//! Never: calls MPI, unless what it is given does. Always: a file's collective accesses run in the order in which they were
//! started, so that ranks meet in the same access whatever the method.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use crate::problem::{Class, Problem, Result};

/// Accesses that wait for a thread; more make the caller wait.
const WAITING_MAX: usize = 256;
/// Threads for accesses that are nobody else's affair.
const THREADS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// Some threads with one queue; they end with it.
#[derive(Debug, Default)]
pub struct Pool {
    jobs: OnceLock<Option<SyncSender<Job>>>,
}

impl Pool {
    /// Threads for accesses of any file that others need not take part in.
    pub fn independent() -> &'static Pool {
        static POOL: Pool = Pool { jobs: OnceLock::new() };
        POOL.jobs.get_or_init(|| start(THREADS));
        &POOL
    }

    /// Runs a job on a thread.
    pub fn run(&self, job: Job) -> Result<()> {
        let gone = || Problem::new(Class::NoMem, "no thread can be had for an access that does not block");
        let jobs = self.jobs.get_or_init(|| start(1)).as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())
    }

    /// Waits until everything that was given before has run.
    pub fn drain(&self) -> Result<()> {
        if self.jobs.get().is_none() {
            return Ok(());
        }
        let done = Outcome::new();
        let told = Arc::clone(&done);
        self.run(Box::new(move || told.tell(Ok(0))))?;
        done.wait().map(|_| ())
    }
}

fn start(threads: usize) -> Option<SyncSender<Job>> {
    let (jobs, inbox) = sync_channel::<Job>(WAITING_MAX);
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

/// How an access that does not block ended: bytes, or what went wrong.
#[derive(Debug)]
pub struct Outcome {
    result: Mutex<Option<Result<u64>>>,
    told: Condvar,
}

impl Outcome {
    /// Of an access that goes on.
    #[must_use]
    pub fn new() -> Arc<Outcome> {
        Arc::new(Outcome { result: Mutex::new(None), told: Condvar::new() })
    }

    /// It has ended.
    pub fn tell(&self, result: Result<u64>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.told.notify_all();
    }

    /// How it ended, if it has.
    pub fn now(&self) -> Option<Result<u64>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for its end.
    pub fn wait(&self) -> Result<u64> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            result = self.told.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_file_run_in_order() {
        let pool = Pool::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let seen = Arc::clone(&seen);
            pool.run(Box::new(move || seen.lock().unwrap().push(number))).unwrap();
        }
        pool.drain().unwrap();
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn an_outcome_waits_and_stays() {
        let outcome = Outcome::new();
        assert_eq!(outcome.now(), None);
        let told = Arc::clone(&outcome);
        Pool::independent().run(Box::new(move || told.tell(Ok(7)))).unwrap();
        assert_eq!(outcome.wait(), Ok(7));
        assert_eq!(outcome.now(), Some(Ok(7)));
    }
}
