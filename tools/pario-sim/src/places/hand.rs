//! What a task does the world with: it asks, answers, waits and looks, and goes on only when its turn comes.

use std::cell::{RefCell, RefMut};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use pario_core::{Code, Fault};

use super::net::{Ask, Reply};
use super::world::{Waits, World, home};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Hand {
    world: Rc<RefCell<World>>,
    pub(super) server: usize,
    task: u64,
}

impl Hand {
    pub(super) fn new(world: &Rc<RefCell<World>>, server: usize, task: u64) -> Hand {
        Hand { world: Rc::clone(world), server, task }
    }

    pub(super) fn world(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// The home of a block.
    pub(super) fn home(&self, block: u64) -> usize {
        home(block, self.world().servers.len())
    }

    fn waits(&self, waits: Waits) {
        if let Some(task) = self.world().tasks.get_mut(&self.task) {
            task.waits = waits;
        }
    }

    /// Others go on first.
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

    /// Sends a request; [`Hand::finish`] waits for the answer.
    pub(super) fn start(&self, to: usize, ask: Ask) -> u64 {
        let (server, task) = (self.server, self.task);
        self.world().send((server, to), task, ask)
    }

    /// The answer to a request, or why there is none.
    pub(super) async fn finish(&self, number: u64) -> Result<Reply, Fault> {
        let answer = poll_fn(|_| {
            let answer = self.world().answer(number);
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
            Reply::Failed(fault) => Err(fault),
            Reply::Grants(_)
            | Reply::Done
            | Reply::NotMine
            | Reply::NotNow
            | Reply::Found(_)
            | Reply::Moment(..)
            | Reply::Taken(_) => Ok(answer),
        }
    }

    /// Asks and waits; what homes are asked is repeated once.
    pub(super) async fn call(&self, to: usize, ask: Ask) -> Result<Reply, Fault> {
        let first = self.finish(self.start(to, ask.clone())).await;
        match first {
            Err(fault) if ask.repeats() && fault.code == Code::Unreachable => {
                self.finish(self.start(to, ask)).await
            }
            first => first,
        }
    }

    /// Waits until `look` finds something, looking again when the table has changed.
    pub(super) async fn wait<T>(&self, mut look: impl FnMut(&mut World) -> Option<T>) -> T {
        poll_fn(|_| {
            let found = look(&mut self.world());
            match found {
                Some(found) => Poll::Ready(found),
                None => {
                    self.waits(Waits::Stir);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The same, but not for long: `None` then.
    pub(super) async fn wait_a_while<T>(&self, mut look: impl FnMut(&mut World) -> Option<T>) -> Option<T> {
        poll_fn(|_| {
            let found = look(&mut self.world());
            if found.is_some() {
                return Poll::Ready(found);
            }
            let task = self.task;
            let is_over = self.world().is_impatient(task);
            if is_over {
                return Poll::Ready(None);
            }
            self.waits(Waits::Patience);
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
    let cell = |at: u64| usize::try_from(at).unwrap_or(0) / super::world::CELL;
    cell(bytes.start)..cell(bytes.end)
}
