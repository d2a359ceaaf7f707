//! Threads for accesses that would make a start wait: reads from a disk, and large transfers.
//!
//! Never: more than [`THREADS_MAX`] threads, or more than [`JOBS_MAX`] jobs that wait; runs without jobs. Always: a job that was accepted
//! is run; threads sleep without jobs and end with the last handle.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::mutex::lock;

const THREADS_MAX: usize = 4;
const JOBS_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Workers(Arc<WorkQueue>);

#[derive(Default)]
struct WorkQueue {
    state: Mutex<WorkQueueState>,
    /// A job came, or the end.
    came: Condvar,
    /// A job went.
    went: Condvar,
}

impl std::fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkQueue").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct WorkQueueState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Workers {
    /// Runs a job; waits while too many wait.
    pub(super) fn run(&self, job: Job) -> Result<(), Fault> {
        let queue = &self.0;
        let mut state = lock(&queue.state);
        while JOBS_MAX <= state.jobs.len() {
            state = queue.went.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < THREADS_MAX {
            let thread = Arc::clone(queue);
            let spawned =
                std::thread::Builder::new().name("pario-distant".to_owned()).spawn(move || thread.serve());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.jobs.pop_back();
                    return Err(Fault::new(Code::TooMany, format!("no thread for distant files: {error}")));
                }
                Err(_) => {}
            }
        }
        drop(state);
        queue.came.notify_one();
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Not joined: the last handle may be dropped by a job.
        lock(&self.0.state).is_closed = true;
        self.0.came.notify_all();
    }
}

impl WorkQueue {
    fn serve(&self) {
        loop {
            let mut state = lock(&self.state);
            let job = loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.is_closed {
                    state.threads -= 1;
                    return;
                }
                state.idle += 1;
                state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            };
            drop(state);
            self.went.notify_one();
            // The job reports its panic by the drop of its result slot.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    }
}

/// The result of a job.
#[derive(Debug, Default)]
pub(super) struct JobResult {
    result: Mutex<Option<Result<usize, Fault>>>,
    done: Condvar,
}

/// Sets the result of a job, also if it panics.
pub(super) struct JobEnd(pub(super) Arc<JobResult>);

impl JobEnd {
    pub(super) fn set(self, result: Result<usize, Fault>) {
        *lock(&self.0.result) = Some(result);
    }
}

impl Drop for JobEnd {
    fn drop(&mut self) {
        let panicked = || Err(Fault::new(Code::Io, "internal error: an access ended in a panic"));
        lock(&self.0.result).get_or_insert_with(panicked);
        self.0.done.notify_all();
    }
}

impl JobResult {
    pub(super) fn is_done(&self) -> bool {
        lock(&self.result).is_some()
    }

    pub(super) fn wait(&self) -> Result<usize, Fault> {
        let mut result = lock(&self.result);
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None => result = self.done.wait(result).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_and_a_panic_is_a_result() {
        let workers = Workers::default();
        let results: Vec<Arc<JobResult>> = (0..600).map(|_| Arc::default()).collect();
        for (number, result) in results.iter().enumerate() {
            let end = JobEnd(Arc::clone(result));
            let job = move || match number {
                7 => panic!("on purpose"),
                number => end.set(Ok(number)),
            };
            workers.run(Box::new(job)).unwrap();
        }
        for (number, result) in results.iter().enumerate() {
            match number {
                7 => assert!(result.wait().unwrap_err().text.contains("panic")),
                number => assert_eq!(result.wait(), Ok(number)),
            }
            assert!(result.is_done());
        }
    }
}
