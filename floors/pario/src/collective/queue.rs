//! The order of a file's collective accesses: one queue and one thread per file, for blocking, non-blocking and split calls, and for faces.
//!
//! Always: jobs run in the order in which they were started, so that all ranks run the same access concurrently, with any method.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{OnceLock, PoisonError};
use std::thread::ThreadId;

use pario_core::limits::IN_FLIGHT_MAX;
use pario_core::{Code, Fault};

use crate::error::Result;

/// A job of the queue.
pub type OrderedJob = Box<dyn FnOnce() + Send>;

/// See the module head. The thread is started by the first job and ends with the queue.
#[derive(Debug, Default)]
pub struct OrderedQueue {
    thread: OnceLock<QueueThread>,
    starting: std::sync::Mutex<()>,
}

#[derive(Debug)]
struct QueueThread {
    jobs: SyncSender<OrderedJob>,
    id: ThreadId,
}

impl OrderedQueue {
    /// Queues a job after all earlier ones. At most 256 wait; further callers wait.
    pub fn start(&self, job: OrderedJob) -> Result<()> {
        self.started_thread()?.jobs.send(job).map_err(|_| gone().into())
    }

    /// Waits until all earlier jobs have run. A job of this queue does not wait for itself.
    pub fn wait_earlier(&self) -> Result<()> {
        let Some(thread) = self.thread.get() else { return Ok(()) };
        if thread.id == std::thread::current().id() {
            return Ok(());
        }
        let (done, over) = sync_channel::<()>(1);
        // The caller waits for it.
        let tell: OrderedJob = Box::new(move || {
            let _ = done.send(());
        });
        thread.jobs.send(tell).map_err(|_| gone())?;
        Ok(over.recv().map_err(|_| gone())?)
    }

    fn started_thread(&self) -> Result<&QueueThread> {
        let _one = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = self.thread.get() {
            return Ok(thread);
        }
        let thread = start_thread()?;
        Ok(self.thread.get_or_init(|| thread))
    }
}

fn gone() -> Fault {
    Fault::new(Code::Closed, "the thread for the file's collective accesses has ended; reopen the file")
}

fn start_thread() -> Result<QueueThread> {
    let (jobs, inbox): (SyncSender<OrderedJob>, Receiver<OrderedJob>) = sync_channel(IN_FLIGHT_MAX);
    let run = move || {
        while let Ok(job) = inbox.recv() {
            job();
        }
    };
    let spawned = std::thread::Builder::new().name("pario-collective".into()).spawn(run);
    let thread =
        spawned.map_err(|error| Fault::from_io(&error, "starting a thread for collective accesses"))?;
    Ok(QueueThread { jobs, id: thread.thread().id() })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn jobs_run_in_order_and_do_not_wait_for_themselves() {
        let queue = Arc::new(OrderedQueue::default());
        queue.wait_earlier().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let (seen, own) = (Arc::clone(&seen), Arc::downgrade(&queue));
            let job = move || {
                own.upgrade().map_or(Ok(()), |queue| queue.wait_earlier()).unwrap();
                seen.lock().unwrap().push(number);
            };
            queue.start(Box::new(job)).unwrap();
        }
        queue.wait_earlier().unwrap();
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }
}
