//! A shared file pointer on the client's side: memory of the manager's where that can be shared, else messages.
//!
//! Always: a move happens once and at once for all; a pointer that went with its manager is told of, and not taken for 0.

use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{PointerId, PointerMove, Reply, Request};
use pario_net::pointer::PointerPage;

use super::mount::odd;
use super::open_file::OpenFile;

/// See the module.
pub(crate) struct Pointer {
    file: Arc<OpenFile>,
    group: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Views that were set.
    epoch: u64,
    /// Ordered calls since.
    calls: u64,
    /// The manager's life in which it began.
    manager: u64,
    known: Option<Known>,
}

#[derive(Clone)]
struct Known {
    page: Option<Arc<PointerPage>>,
}

impl std::fmt::Debug for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pointer").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Pointer {
    pub(super) fn new(file: Arc<OpenFile>, group: u64) -> Pointer {
        let manager = file.mount.epoch();
        Pointer { file, group, state: Mutex::new(State { manager, ..State::default() }) }
    }

    /// A new pointer, at 0, from now on. All members of the group do so at the same time.
    pub(crate) fn renew(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.epoch += 1;
        state.calls = 0;
        state.manager = self.file.mount.epoch();
        state.known = None;
    }

    /// Moves it forward and returns where it was.
    pub(crate) fn add(&self, by: u64) -> Result<u64, Fault> {
        match self.known()?.page {
            Some(page) => Ok(page.add(by)),
            None => self.moved(PointerMove::Add { by }),
        }
    }

    /// Puts it somewhere.
    pub(crate) fn set(&self, at: u64) -> Result<(), Fault> {
        if let Some(page) = self.known()?.page {
            page.set(at);
            return Ok(());
        }
        self.moved(PointerMove::Set { at }).map(|_| ())
    }

    /// Where it is.
    pub(crate) fn get(&self) -> Result<u64, Fault> {
        match self.known()?.page {
            Some(page) => Ok(page.get()),
            None => self.moved(PointerMove::Add { by: 0 }),
        }
    }

    /// Moves it forward in the order of ranks, call after call: nobody moves it before those whose turn comes first have.
    /// `check` fails when a member is gone. Only where all members share memory with the manager.
    pub(crate) fn add_in_turn(
        &self,
        (rank, size): (usize, usize),
        by: u64,
        check: impl Fn() -> Result<(), crate::Error>,
    ) -> Result<u64, crate::Error> {
        let Some(page) = self.known()?.page else {
            let text = "a shared pointer that was to be had as memory is not";
            return Err(Fault::new(Code::Protocol, text).into());
        };
        let turn = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.calls += 1;
            (state.calls - 1) * size as u64 + rank as u64
        };
        page.add_in_turn(turn, by, || {
            check()?;
            self.known()?;
            Ok(())
        })
    }

    /// What is known of it; asks the manager the first time.
    fn known(&self) -> Result<Known, Fault> {
        let mount = &self.file.mount;
        mount.check_process()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.known.is_none() {
            mount.listen()?;
        }
        if state.manager != mount.epoch() {
            let text =
                format!("{}: the shared pointer was lost with the manager, server 0", self.file.describe());
            return Err(Fault::new(Code::Lost, text));
        }
        if let Some(known) = &state.known {
            return Ok(known.clone());
        }
        let pointer = self.id(state.epoch);
        let answer = mount.call(ServerIndex::MANAGER, &Request::SharePointer { pointer })?;
        let page = match (answer.reply, answer.descriptors.into_iter().next()) {
            (Reply::Pointer {}, Some(descriptor)) => {
                let page = PointerPage::attach(descriptor);
                Some(Arc::new(page.map_err(|error| Fault::new(Code::Protocol, error.to_string()))?))
            }
            (Reply::NotLent {}, _) => None,
            (other, _) => return Err(odd(&other)),
        };
        let known = Known { page };
        state.known = Some(known.clone());
        Ok(known)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn moved(&self, how: PointerMove) -> Result<u64, Fault> {
        let epoch = self.state.lock().unwrap_or_else(PoisonError::into_inner).epoch;
        let request = Request::MovePointer { pointer: self.id(epoch), how };
        match self.file.mount.call(ServerIndex::MANAGER, &request)?.reply {
            Reply::Position { at } => Ok(at),
            other => Err(odd(&other)),
        }
    }

    fn id(&self, epoch: u64) -> PointerId {
        PointerId { inode: self.file.inode, group: self.group, epoch }
    }
}
