//! A task's access to the simulation: it sends, replies, waits and reads, and continues only when scheduled.

use std::cell::{RefCell, RefMut};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use pario_core::{Code, Fault};

use super::net::{PeerReply, PeerRequest};
use super::simulation::{PlacementSim, Waits, home};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct TaskHandle {
    state: Rc<RefCell<PlacementSim>>,
    pub(super) server: usize,
    task: u64,
}

impl TaskHandle {
    pub(super) fn new(world: &Rc<RefCell<PlacementSim>>, server: usize, task: u64) -> TaskHandle {
        TaskHandle { state: Rc::clone(world), server, task }
    }

    pub(super) fn state(&self) -> RefMut<'_, PlacementSim> {
        self.state.borrow_mut()
    }

    /// The home of a block.
    pub(super) fn home(&self, block: u64) -> usize {
        home(block, self.state().servers.len())
    }

    fn waits(&self, waits: Waits) {
        if let Some(task) = self.state().tasks.get_mut(&self.task) {
            task.waits = waits;
        }
    }

    /// Lets other tasks run first.
    pub(super) async fn pause(&self) {
        let mut turns = 0;
        poll_fn(|_| {
            turns += 1;
            if 1 < turns {
                return Poll::Ready(());
            }
            self.waits(Waits::Ready);
            Poll::Pending
        })
        .await;
    }

    /// Sends a request; [`TaskHandle::finish`] waits for the answer.
    pub(super) fn start(&self, to: usize, ask: PeerRequest) -> u64 {
        let (server, task) = (self.server, self.task);
        self.state().send((server, to), task, ask)
    }

    /// The answer to a request, or why there is none.
    pub(super) async fn finish(&self, number: u64) -> Result<PeerReply, Fault> {
        let answer = poll_fn(|_| {
            let answer = self.state().answer(number);
            match answer {
                Some(answer) => Poll::Ready(answer),
                None => {
                    self.waits(Waits::Answer(number));
                    Poll::Pending
                }
            }
        })
        .await?;
        match answer {
            PeerReply::Failed(fault) => Err(fault),
            PeerReply::Grants(_)
            | PeerReply::Done
            | PeerReply::NotOwner
            | PeerReply::NotNow
            | PeerReply::Found(_)
            | PeerReply::AtomicData(..)
            | PeerReply::HandoverReply(_) => Ok(answer),
        }
    }

    /// Sends a request and waits; requests to homes are repeated once.
    pub(super) async fn call(&self, to: usize, ask: PeerRequest) -> Result<PeerReply, Fault> {
        let first = self.finish(self.start(to, ask.clone())).await;
        match first {
            Err(fault) if ask.repeats() && fault.code == Code::Unreachable => {
                self.finish(self.start(to, ask)).await
            }
            first => first,
        }
    }

    /// Waits until `look` returns a value; called again when the table has changed.
    pub(super) async fn wait<T>(&self, mut look: impl FnMut(&mut PlacementSim) -> Option<T>) -> T {
        poll_fn(|_| {
            let found = look(&mut self.state());
            match found {
                Some(found) => Poll::Ready(found),
                None => {
                    self.waits(Waits::TableChange);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The same, but not for long: `None` then.
    pub(super) async fn wait_a_while<T>(
        &self,
        mut look: impl FnMut(&mut PlacementSim) -> Option<T>,
    ) -> Option<T> {
        poll_fn(|_| {
            let found = look(&mut self.state());
            if found.is_some() {
                return Poll::Ready(found);
            }
            let task = self.task;
            let is_over = self.state().is_impatient(task);
            if is_over {
                return Poll::Ready(None);
            }
            self.waits(Waits::Timeout);
            Poll::Pending
        })
        .await
    }

    /// Blocks by their homes.
    pub(super) fn by_home<T: Copy>(
        &self,
        blocks: impl IntoIterator<Item = T>,
        block: impl Fn(T) -> u64,
    ) -> std::collections::BTreeMap<usize, Vec<T>> {
        let mut homes: std::collections::BTreeMap<usize, Vec<T>> = std::collections::BTreeMap::new();
        for one in blocks {
            homes.entry(self.home(block(one))).or_default().push(one);
        }
        homes
    }
}

/// Cells of a range of bytes.
pub(super) fn cells(bytes: &Range<u64>) -> Range<usize> {
    let cell = |at: u64| usize::try_from(at).unwrap_or(0) / super::simulation::CELL;
    cell(bytes.start)..cell(bytes.end)
}
