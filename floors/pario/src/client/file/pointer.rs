//! A shared file pointer on the client's side: shared memory of the manager where possible, else messages.
//!
//! Always: a move is executed once and atomically; a pointer lost with its manager is an error, and never read as 0.

use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{PointerId, PointerMove, Reply, Request};
use pario_net::pointer::PointerPage;

use crate::client::file::state::OpenFile;
use crate::client::session::state::unexpected_reply;

/// See the module.
pub(crate) struct GroupPointer {
    file: Arc<OpenFile>,
    group: u64,
    state: Mutex<PointerState>,
}

#[derive(Default)]
struct PointerState {
    /// Number of views set so far.
    epoch: u64,
    /// Ordered calls since.
    calls: u64,
    /// The manager's epoch in which it was created.
    manager: u64,
    known: Option<KnownPointer>,
}

#[derive(Clone)]
struct KnownPointer {
    page: Option<Arc<PointerPage>>,
}

impl std::fmt::Debug for GroupPointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupPointer").field("group", &self.group).finish_non_exhaustive()
    }
}

impl GroupPointer {
    pub(in crate::client) fn new(file: Arc<OpenFile>, group: u64) -> GroupPointer {
        let manager = file.context.session.epoch();
        GroupPointer { file, group, state: Mutex::new(PointerState { manager, ..PointerState::default() }) }
    }

    /// A new pointer, at 0, from now on. All members of the group call this together.
    pub(crate) fn renew(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.epoch += 1;
        state.calls = 0;
        state.manager = self.file.context.session.epoch();
        state.known = None;
    }

    /// Moves it forward and returns its previous value.
    pub(crate) fn add(&self, by: u64) -> Result<u64, Fault> {
        match self.known()?.page {
            Some(page) => Ok(page.add(by)),
            None => self.send_move(PointerMove::Add { by }),
        }
    }

    /// Sets it.
    pub(crate) fn set(&self, at: u64) -> Result<(), Fault> {
        if let Some(page) = self.known()?.page {
            page.set(at);
            return Ok(());
        }
        self.send_move(PointerMove::Set { at }).map(|_| ())
    }

    /// Its current value.
    pub(crate) fn get(&self) -> Result<u64, Fault> {
        match self.known()?.page {
            Some(page) => Ok(page.get()),
            None => self.send_move(PointerMove::Add { by: 0 }),
        }
    }

    /// Moves it forward in rank order, call after call: each member waits until all lower ranks have moved it. `check` fails when a member
    /// has died. Only if all members share memory with the manager.
    pub(crate) fn add_in_rank_order(
        &self,
        (rank, size): (usize, usize),
        by: u64,
        check: impl Fn() -> Result<(), crate::Error>,
    ) -> Result<u64, crate::Error> {
        let Some(page) = self.known()?.page else {
            let text = "the shared file pointer is not available as shared memory; reopen the file";
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

    /// Its cached state; asks the manager the first time.
    fn known(&self) -> Result<KnownPointer, Fault> {
        let mount = &self.file.context.session;
        mount.check_process()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.known.is_none() {
            mount.listen()?;
        }
        if state.manager != mount.epoch() {
            let text = format!(
                "{}: the shared pointer was lost with the manager, server 0",
                self.file.context.describe()
            );
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
            (other, _) => return Err(unexpected_reply(&other)),
        };
        let known = KnownPointer { page };
        state.known = Some(known.clone());
        Ok(known)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn send_move(&self, how: PointerMove) -> Result<u64, Fault> {
        let epoch = self.state.lock().unwrap_or_else(PoisonError::into_inner).epoch;
        let request = Request::MovePointer { pointer: self.id(epoch), how };
        match self.file.context.session.call(ServerIndex::MANAGER, &request)?.reply {
            Reply::Position { at } => Ok(at),
            other => Err(unexpected_reply(&other)),
        }
    }

    fn id(&self, epoch: u64) -> PointerId {
        PointerId { inode: self.file.context.inode, group: self.group, epoch }
    }
}
