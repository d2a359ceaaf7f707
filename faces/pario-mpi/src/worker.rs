//! Threads that carry out what does not block: one per file for collective accesses, in order; a few for all others.
//!
//! Never: calls MPI, unless what it is given does. Always: a file's collective accesses run in the order in which they were
//! started, so that ranks meet in the same access whatever the method.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pario::MonotonicClock;
use pario::core::{Clock as _, Nanos};

use crate::problem::{Class, Problem, Result};

/// Accesses that wait for a thread; more make the caller wait.
const WAITING_MAX: usize = 256;
/// Threads for accesses that are nobody else's affair.
const THREADS: usize = 2;
/// Who asks again sooner than this does nothing but ask.
const LOOP_GAP: Duration = Duration::from_micros(20);
/// And is a loop after so many times.
const LOOP_TIMES: u32 = 32;
/// How long such a loop is held up: an MPI library makes progress with its other affairs in between.
const LOOP_WAIT: Duration = Duration::from_micros(100);

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
    asking: Mutex<Asking>,
}

/// How somebody asks whether an access has ended.
#[derive(Debug, Default)]
struct Asking {
    last: Option<Nanos>,
    /// So often without doing anything else in between.
    times: u32,
    /// How often it was held up.
    held_up: u32,
}

impl Outcome {
    /// Of an access that goes on.
    #[must_use]
    pub fn new() -> Arc<Outcome> {
        Arc::new(Outcome { result: Mutex::new(None), told: Condvar::new(), asking: Mutex::default() })
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

    /// How it ended, if it has; who asks again and again in a loop is made to wait a moment for it. MPI libraries wait by asking, and ranks
    /// that ask all the time take the processors from the threads and servers that they wait for.
    pub fn asked(&self) -> Option<Result<u64>> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_some() {
            return result.clone();
        }
        let now = MonotonicClock.now();
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let in_a_loop = asking.last.is_some_and(|last| now.since(last) < LOOP_GAP);
        asking.times = if in_a_loop { asking.times.saturating_add(1) } else { 0 };
        asking.last = Some(now);
        if asking.times < LOOP_TIMES {
            return None;
        }
        drop(asking);
        let (result, _) = self.told.wait_timeout(result, LOOP_WAIT).unwrap_or_else(PoisonError::into_inner);
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.last = Some(MonotonicClock.now());
        asking.held_up += 1;
        result.clone()
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

    #[test]
    fn only_a_loop_that_asks_is_held_up() {
        let held_up = |gap: Duration| {
            let outcome = Outcome::new();
            for _ in 0..2000 {
                assert!(outcome.asked().is_none());
                let begin = MonotonicClock.now();
                while MonotonicClock.now().since(begin) < gap {
                    std::hint::spin_loop();
                }
            }
            outcome.tell(Ok(3));
            assert!(matches!(outcome.asked(), Some(Ok(3))));
            outcome.asking.lock().unwrap().held_up
        };
        assert_eq!(held_up(LOOP_GAP), 0);
        assert!(0 < held_up(Duration::ZERO));
    }

    #[test]
    fn a_loop_that_asks_hears_the_end_in_the_middle_of_a_wait() {
        let outcome = Outcome::new();
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| {
                loop {
                    if let Some(ended) = outcome.asked() {
                        return ended;
                    }
                }
            });
            while outcome.asking.lock().unwrap().held_up < 3 {
                std::thread::yield_now();
            }
            outcome.tell(Ok(7));
            assert!(matches!(asker.join().unwrap(), Ok(7)));
        });
    }
}
