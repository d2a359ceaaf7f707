//! Handles of Pario's files. A handle is one that the MPI library made for the null device, so that its own functions for handles
//! and error handlers work on it.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pario_mpi::OpenFile;

use super::split::Split;
use super::views::ViewState;
use crate::abi::{File, Group};

/// A file of Pario's that the program has open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: OpenFile,
    /// The mode's bits as they were given.
    pub(crate) mode: c_int,
    pub(crate) view: Mutex<ViewState>,
    pub(crate) split: Mutex<Option<Split>>,
    members: Members,
    /// Keeps the meeting point of the ranks.
    _meeting: Arc<super::comm::Meeting>,
}

/// The MPI group of the communicator.
#[derive(Clone, Copy, Debug)]
struct Members(Group);
// SAFETY: a handle, which any thread may pass to the MPI library that made it.
unsafe impl Send for Members {}
// SAFETY: the same.
unsafe impl Sync for Members {}

static FILES: RwLock<Option<HashMap<usize, Arc<Opened>>>> = RwLock::new(None);

impl Opened {
    pub(crate) fn new(
        file: OpenFile,
        mode: c_int,
        members: Group,
        meeting: Arc<super::comm::Meeting>,
    ) -> Opened {
        let (view, split) = (Mutex::new(ViewState::default()), Mutex::new(None));
        Opened { file, mode, view, split, members: Members(members), _meeting: meeting }
    }

    pub(crate) fn members(&self) -> Group {
        self.members.0
    }
}

/// The file of a handle; `None`: it is not Pario's.
pub(crate) fn find(handle: File) -> Option<Arc<Opened>> {
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    files.as_ref()?.get(&handle.addr()).map(Arc::clone)
}

pub(crate) fn insert(handle: File, opened: Opened) {
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    files.get_or_insert_default().insert(handle.addr(), Arc::new(opened));
}

pub(crate) fn remove(handle: File) -> Option<Arc<Opened>> {
    FILES.write().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&handle.addr())
}

/// Everything that is still open.
pub(crate) fn take_all() -> Vec<Arc<Opened>> {
    let taken = FILES.write().unwrap_or_else(PoisonError::into_inner).take();
    taken.into_iter().flatten().map(|(_, opened)| opened).collect()
}
