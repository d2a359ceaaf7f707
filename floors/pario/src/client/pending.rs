//! Non-blocking calls: a few threads of the mount carry them out; the caller polls or waits.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use pario_core::{Code, Fault};

use super::mount::Mount;
use crate::error::{Error, Result};

/// Threads that carry out non-blocking calls of one mount.
const WORKERS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// The threads; they end when the mount does.
#[derive(Debug)]
pub(crate) struct Workers {
    jobs: std::sync::mpsc::SyncSender<Job>,
}

/// A call under way. Dropping it lets the call finish by itself.
#[derive(Debug)]
pub struct Pending<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    result: Mutex<Option<Result<T>>>,
    done: Condvar,
}

impl<T: Send + 'static> Pending<T> {
    /// A call under way, and what its end is told to.
    pub(crate) fn new() -> (Pending<T>, impl FnOnce(Result<T>) + Send + 'static) {
        let shared = Arc::new(Shared { result: Mutex::new(None), done: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let finish = move |result| {
            *theirs.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            theirs.done.notify_all();
        };
        (Pending { shared }, finish)
    }
}

impl<T> Pending<T> {
    /// Whether the call has finished.
    pub fn is_done(&self) -> bool {
        self.shared.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits for the call, so long at most; whether it has finished.
    pub(crate) fn wait_for(&self, limit: std::time::Duration) -> bool {
        let result = self.shared.result.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.done.wait_timeout_while(result, limit, |result| result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Waits for the call and returns what it returned.
    pub fn wait(self) -> Result<T> {
        let mut result = self.shared.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            result = self.shared.done.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Mount {
    /// Starts `call` on one of the threads. At most 256 wait for a thread; more make the caller wait.
    pub(super) fn start_call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        self.check_process()?;
        let (pending, finish) = Pending::new();
        let job: Job = Box::new(move || finish(call()));
        let closed = || Error::from(Fault::new(Code::Closed, "the mount's threads are gone"));
        self.pool.get_or_init(start_workers).jobs.send(job).map_err(|_| closed())?;
        Ok(pending)
    }
}

fn start_workers() -> Workers {
    let (jobs, inbox) = std::sync::mpsc::sync_channel::<Job>(pario_core::limits::IN_FLIGHT_MAX);
    let inbox = Arc::new(Mutex::new(inbox));
    for number in 0..WORKERS {
        let inbox = Arc::clone(&inbox);
        let worker = std::thread::Builder::new().name(format!("pario-call-{number}")).spawn(move || {
            loop {
                let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
                match job {
                    Ok(job) => job(),
                    Err(_) => return,
                }
            }
        });
        if let Err(error) = worker {
            tracing::warn!(%error, "one thread less for non-blocking calls");
        }
    }
    Workers { jobs }
}
