//! Handles of Pario's files. A handle is created by the MPI library for the null device, so that its own functions for handles
//! and error handlers work on it.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pario_mpi::MpiFile;

use super::split::SplitCall;
use super::views::ViewState;
use crate::abi::{File, Group};

/// A file of Pario's that the program has open.
#[derive(Debug)]
pub(crate) struct OpenHandle {
    pub(crate) file: MpiFile,
    /// The bits of the mode as passed by the program.
    pub(crate) mode: c_int,
    pub(crate) view: Mutex<ViewState>,
    pub(crate) split: Mutex<Option<SplitCall>>,
    members: Members,
    /// Keeps the group of the ranks.
    _meeting: Arc<pario::group::FormedGroup>,
}

/// The MPI group of the communicator.
#[derive(Clone, Copy, Debug)]
struct Members(Group);
// SAFETY: a handle, which any thread may pass to the MPI library that made it.
unsafe impl Send for Members {}
// SAFETY: the same.
unsafe impl Sync for Members {}

static FILES: RwLock<Option<HashMap<usize, Arc<OpenHandle>>>> = RwLock::new(None);

impl OpenHandle {
    pub(crate) fn new(
        file: MpiFile,
        mode: c_int,
        members: Group,
        meeting: Arc<pario::group::FormedGroup>,
    ) -> OpenHandle {
        let (view, split) = (Mutex::new(ViewState::default()), Mutex::new(None));
        OpenHandle { file, mode, view, split, members: Members(members), _meeting: meeting }
    }

    pub(crate) fn members(&self) -> Group {
        self.members.0
    }
}

/// The file of a handle; `None`: it is not Pario's.
pub(crate) fn find(handle: File) -> Option<Arc<OpenHandle>> {
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    files.as_ref()?.get(&handle.addr()).map(Arc::clone)
}

pub(crate) fn insert(handle: File, opened: OpenHandle) {
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    files.get_or_insert_default().insert(handle.addr(), Arc::new(opened));
}

pub(crate) fn remove(handle: File) -> Option<Arc<OpenHandle>> {
    FILES.write().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&handle.addr())
}

/// Removes and returns the open files that satisfy `holds`.
pub(crate) fn take_if(holds: impl Fn(&OpenHandle) -> bool) -> Vec<Arc<OpenHandle>> {
    let all: Vec<(usize, Arc<OpenHandle>)> = {
        let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().flatten().map(|(handle, opened)| (*handle, Arc::clone(opened))).collect()
    };
    let taken: Vec<(usize, Arc<OpenHandle>)> = all.into_iter().filter(|(_, opened)| holds(opened)).collect();
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    taken.iter().for_each(|(handle, _)| drop(files.as_mut().and_then(|files| files.remove(handle))));
    taken.into_iter().map(|(_, opened)| opened).collect()
}
