//! A thread pool for blocking operations: reading, opening, syncing, truncating and removing objects.
//!
//! Never: blocks the service thread. Always: jobs of one pool start in order of arrival; each job is answered, a panicking one
//! by a fault, and its thread continues.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::Sender;
use pario_core::text::shown;
use pario_core::{Code, Fault};

type PoolJob = Box<dyn FnOnce() + Send>;

/// A pool of named threads; ends when dropped and empty.
#[derive(Clone)]
pub(crate) struct ThreadPool {
    jobs: Sender<PoolJob>,
}

impl ThreadPool {
    /// Starts `threads` threads.
    pub(crate) fn start(name: &str, threads: usize) -> std::io::Result<ThreadPool> {
        let (jobs, inbox) = crossbeam_channel::unbounded::<PoolJob>();
        for number in 0..threads {
            let inbox = inbox.clone();
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                for job in inbox {
                    // A panicking callback has no caller to report to; other jobs need the thread.
                    if let Err(fault) = guarded(job) {
                        tracing::error!(%fault, "the callback of a job panicked");
                    }
                }
            })?;
        }
        Ok(ThreadPool { jobs })
    }

    /// Jobs that wait. Requests of clients are queued only below `TASKS_WAITING_MAX` (`service/park.rs`).
    pub(crate) fn waiting(&self) -> usize {
        self.jobs.len()
    }

    /// Queues `work` and passes its result to `done`: a fault if `work` panics.
    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
        done: impl FnOnce(Result<T, Fault>) + Send + 'static,
    ) {
        // The send succeeds: threads end only when every handle of the pool is dropped.
        let _ = self.jobs.send(Box::new(move || done(guarded(work).flatten())));
    }
}

/// Runs `work`; a panic, which is a bug, is logged and becomes a fault.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let cause = message(&*panic);
        let thread = std::thread::current();
        tracing::error!(
            thread = thread.name(),
            cause = &*shown(cause),
            "a job of the store's threads panicked"
        );
        let text = "internal error: the request ended in a panic, a bug of the server, which goes on; \
                    its log names the cause";
        Fault::new(Code::Io, text)
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Nothing takes longer, unless it never comes.
    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_job_that_panics_is_answered_and_its_thread_goes_on() {
        let pool = ThreadPool::start("test", 1).unwrap();
        let (answered, answers) = crossbeam_channel::unbounded();
        let post = |work: fn() -> Result<u32, Fault>| {
            let answered = answered.clone();
            pool.run(work, move |result| answered.send((std::thread::current().id(), result)).unwrap());
        };
        post(|| panic!("on purpose"));
        post(|| Ok(7));
        post(|| Err(Fault::new(Code::NoSpace, "full")));
        let [first, second, third] = std::array::from_fn(|_| answers.recv_timeout(LIMIT).expect("an answer"));
        let fault = first.1.unwrap_err();
        assert_eq!(fault.code, Code::Io);
        assert!(fault.text.contains("internal error"), "{fault}");
        assert_eq!(second, (first.0, Ok(7)), "the same thread did the next job");
        assert_eq!(third.1.unwrap_err().code, Code::NoSpace);
    }

    #[test]
    fn an_answer_that_panics_does_not_end_the_thread() {
        let pool = ThreadPool::start("test", 1).unwrap();
        let (answered, answers) = crossbeam_channel::unbounded();
        pool.run(|| Ok(()), |_| panic!("on purpose"));
        pool.run(|| Ok(()), move |result| answered.send(result).unwrap());
        assert_eq!(answers.recv_timeout(LIMIT).expect("an answer"), Ok(()));
    }
}
