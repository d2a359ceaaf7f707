//! A peer's queue and the workers that serve it.
//!
//! Never: holds more than `TASKS_MAX` tasks, has more than `WORKERS_MAX` workers. Always: workers start when a task finds none idle, and
//! end after [`IDLE`] without a task or with the server.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault};

use super::call::PeerTask;
use super::link::PeerLink;

/// Calls to one peer that may wait; more are refused, and the requester retries later or reports the error to its caller.
pub(crate) const TASKS_MAX: usize = 4096;
/// Concurrent calls to one peer.
pub(super) const WORKERS_MAX: usize = 4;
/// An idle worker ends after this.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct PeerQueue {
    link: PeerLink,
    queue: Mutex<TaskQueue>,
    news: Condvar,
}

#[derive(Default)]
struct TaskQueue {
    tasks: VecDeque<PeerTask>,
    workers: usize,
    /// Workers that wait for a task.
    idle: usize,
    ended: bool,
}

impl PeerQueue {
    pub(super) fn new(link: PeerLink) -> PeerQueue {
        PeerQueue { link, queue: Mutex::default(), news: Condvar::new() }
    }

    /// The peer was restarted.
    pub(super) fn restarted(&self) {
        self.link.restarted();
    }

    pub(super) fn put(self: &Arc<PeerQueue>, task: PeerTask) {
        let mut queue = self.queue();
        if let Err(fault) = self.make_ready(&mut queue) {
            // The reply may start a round that uses this queue again.
            drop(queue);
            return task.answer(Err(fault));
        }
        queue.tasks.push_back(task);
        drop(queue);
        self.news.notify_one();
    }

    /// Ensures room for one more task, and a worker for it.
    fn make_ready(self: &Arc<PeerQueue>, queue: &mut TaskQueue) -> Result<(), Fault> {
        let server = self.link.server();
        if queue.ended {
            return Err(Fault::new(
                Code::ShuttingDown,
                format!("request to server {server} not sent: the manager is shutting down"),
            ));
        }
        if TASKS_MAX <= queue.tasks.len() {
            let text =
                format!("server {server} is not keeping up: {TASKS_MAX} calls of the manager wait for it");
            return Err(Fault::new(Code::TooMany, text));
        }
        if queue.tasks.len() < queue.idle || queue.workers == WORKERS_MAX {
            return Ok(());
        }
        let peer = Arc::clone(self);
        let name = format!("pario-peer-{server}");
        match std::thread::Builder::new().name(name).spawn(move || peer.work()) {
            Ok(_) => queue.workers += 1,
            Err(error) if queue.workers == 0 => {
                return Err(Fault::from_io(
                    &error,
                    format!("starting a thread that talks to server {server}"),
                ));
            }
            Err(error) => tracing::debug!(%error, "fewer threads than wanted talk to a peer"),
        }
        Ok(())
    }

    fn work(&self) {
        let _leaves = LeavesWhenPanicking(self);
        while let Some(task) = self.next() {
            let result = self.link.call(&task.request);
            task.answer(result);
        }
    }

    /// The next task; `None` when this worker must end, and then it is no longer counted.
    fn next(&self) -> Option<PeerTask> {
        let mut queue = self.queue();
        loop {
            let task = queue.tasks.pop_front();
            if task.is_some() {
                return task;
            }
            if queue.ended {
                break;
            }
            queue.idle += 1;
            let (woken, rest) = self.news.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if rest.timed_out() && queue.tasks.is_empty() {
                break;
            }
        }
        queue.workers -= 1;
        None
    }

    /// Refuses waiting tasks, wakes the workers, and accepts no more.
    pub(super) fn end(&self) {
        let mut queue = self.queue();
        queue.ended = true;
        let refused = std::mem::take(&mut queue.tasks);
        drop(queue);
        self.news.notify_all();
        self.link.close();
        drop(refused);
    }

    fn queue(&self) -> MutexGuard<'_, TaskQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn workers(&self) -> usize {
        self.queue().workers
    }
}

/// A worker that panics is replaced by another.
struct LeavesWhenPanicking<'a>(&'a PeerQueue);

impl Drop for LeavesWhenPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue().workers -= 1;
        }
    }
}
