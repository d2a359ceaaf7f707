//! Handle of the drain thread: starts it, and queues tasks for it.
//!
//! Always: a panic of the thread is reported to the server, which ends.

use std::sync::Arc;

use crossbeam_channel::Sender;
use pario_core::{Clock, ServerIndex};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;

use super::restart_log::{self, RestartLog, RestartLogSpec};
use super::task::{DrainTask, ViolationHandler};
use super::worker::DrainWorker;
use crate::io_queue::IoQueue;
use crate::stats::ServerStats;
use crate::views::DefinedViews;

/// Handle of the drain thread.
#[derive(Clone)]
pub(crate) struct Drainer {
    tasks: Sender<DrainTask>,
    doorbell: Arc<Doorbell>,
    views: DefinedViews,
}

impl Drainer {
    /// Starts the thread of server `index`.
    pub(crate) fn start(
        index: ServerIndex,
        (store, desk, lives): (Arc<dyn Store>, Option<Arc<IoQueue>>, Option<&RestartLogSpec>),
        stats: Arc<ServerStats>,
        on_violation: ViolationHandler,
        on_end: Box<dyn Fn() + Send>,
    ) -> std::io::Result<Drainer> {
        let (tasks, inbox) = crossbeam_channel::unbounded();
        let (doorbell, views) = (Arc::new(Doorbell::new()?), DefinedViews::default());
        let lives =
            lives.and_then(|spec| RestartLog::begin(spec, &restart_log::boot(), MonotonicClock.now()));
        let made = DrainWorker::new(index, store, inbox, Arc::clone(&doorbell), on_violation);
        let worker = DrainWorker { io_queue: desk, stats, views: views.clone(), restart_log: lives, ..made };
        std::thread::Builder::new().name(format!("pario-drain-{index}")).spawn(move || {
            let _alarm = Alarm(on_end);
            worker.run();
        })?;
        Ok(Drainer { tasks, doorbell, views })
    }

    /// Tasks that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.tasks.len()
    }

    /// Queues a task; requests of clients are queued only below `TASKS_WAITING_MAX` (`service/park.rs`).
    pub(crate) fn post(&self, task: DrainTask) {
        // The thread ends only after `Stop`; no task posted after that has a waiting caller.
        if self.tasks.send(task).is_ok() {
            let _ = self.doorbell.ring();
        }
    }

    /// Views defined by clients.
    pub(crate) fn views(&self) -> &DefinedViews {
        &self.views
    }

    /// The doorbell that clients ring.
    pub(crate) fn doorbell(&self) -> Arc<Doorbell> {
        Arc::clone(&self.doorbell)
    }
}

/// Called when the thread panics: a server that replies but does not drain would block its clients for ever.
struct Alarm(Box<dyn Fn() + Send>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}
