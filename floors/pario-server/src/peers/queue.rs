//! A peer's queue and the workers that serve it.
//!
//! Never: holds more than `TASKS_MAX` tasks, has more than `WORKERS_MAX` workers. Always: workers start when a task finds
//! none free, and end when they had nothing to do for a while or the server ends.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault};

use super::call::Task;
use super::link::Link;

/// Calls to one peer that may wait; more are refused, and whoever asked tries again later or tells its caller.
pub(crate) const TASKS_MAX: usize = 4096;
/// Calls to one peer under way at a time.
pub(super) const WORKERS_MAX: usize = 4;
/// A worker without work ends after this.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Peer {
    link: Link,
    queue: Mutex<Queue>,
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    workers: usize,
    /// Workers that wait for a task.
    idle: usize,
    ended: bool,
}

impl Peer {
    pub(super) fn new(link: Link) -> Peer {
        Peer { link, queue: Mutex::default(), news: Condvar::new() }
    }

    /// Has the task carried out soon, or answers it with the reason why not.
    pub(super) fn put(self: &Arc<Peer>, task: Task) {
        let mut queue = self.queue();
        if let Err(fault) = self.make_ready(&mut queue) {
            // The answer may start a round that comes back to this queue.
            drop(queue);
            return task.answer(Err(fault));
        }
        queue.tasks.push_back(task);
        drop(queue);
        self.news.notify_one();
    }

    /// Makes sure that there is room for one more task, and somebody who will take it.
    fn make_ready(self: &Arc<Peer>, queue: &mut Queue) -> Result<(), Fault> {
        let server = self.link.server();
        if queue.ended {
            return Err(Fault::new(
                Code::ShuttingDown,
                format!("server {server} was not asked: the manager ends"),
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

    /// The next task; `None` when this worker is to end, and then it is counted no more.
    fn next(&self) -> Option<Task> {
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

    /// Refuses what waits, wakes who works, and takes nothing more.
    pub(super) fn end(&self) {
        let mut queue = self.queue();
        queue.ended = true;
        let refused = std::mem::take(&mut queue.tasks);
        drop(queue);
        self.news.notify_all();
        self.link.close();
        drop(refused);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn workers(&self) -> usize {
        self.queue().workers
    }
}

/// A worker that dies of a bug makes room for another.
struct LeavesWhenPanicking<'a>(&'a Peer);

impl Drop for LeavesWhenPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue().workers -= 1;
        }
    }
}
