//! Direct access to a server for the process that runs it: a call instead of a message, for cached files.
//!
//! ```text
//!  client's thread ─► store ─┬─ own block: one copy
//!                            └─ another server's ─► as for any client
//! ```
//! Never: used for files that are written back through records: these are drained in commit order. Always: a write of a session that was
//! declared dead is refused, and a write in progress is awaited before its file is given to others, as for writes by message.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use pario_core::{Fault, InodeId, LocalOffset, ObjectId, ServerIndex, SessionId};
use pario_store::Store;
use pario_sys::MemoryPiece;

use super::Service;
use super::remote_access::{WriteInProgress, Writes, store_atomic};
use crate::drain::store_fault;

/// See the module.
#[derive(Clone)]
pub struct LocalServer {
    index: ServerIndex,
    store: Arc<dyn Store>,
    writes: Arc<Mutex<Writes>>,
}

impl std::fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Near").field("index", &self.index).finish_non_exhaustive()
    }
}

impl LocalServer {
    pub(super) fn of(service: &Service) -> LocalServer {
        let (index, store) = (service.spec.index, Arc::clone(&service.spec.store));
        LocalServer { index, store, writes: Arc::clone(&service.visits.writes) }
    }

    /// Index of the server.
    #[must_use]
    pub fn index(&self) -> ServerIndex {
        self.index
    }

    /// Whether a range of a file lies in blocks owned by this server.
    #[must_use]
    pub fn has(&self, inode: InodeId, range: Range<u64>) -> bool {
        self.store.peer_service().is_some_and(|places| places.owns_range(inode, range))
    }

    /// Fills `target`; returns the number of bytes read.
    pub fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, Fault> {
        self.store.read(object, at, target).map_err(|error| store_fault(self.index, &error))
    }

    /// Fills `target` atomically; false: not possible without a lock.
    pub fn read_atomic(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<bool, Fault> {
        let Some(places) = self.store.peer_service() else { return Ok(false) };
        places.read_atomic(object, at, target).map_err(|error| store_fault(self.index, &error))
    }

    /// Writes for a session; returns when the blocks' owners have the data. `at_once`: atomically.
    pub fn write(
        &self,
        session: SessionId,
        (object, at_once): (ObjectId, bool),
        (at, bytes): (LocalOffset, &[u8]),
    ) -> Result<(), Fault> {
        let _under_way = WriteInProgress::begin(&self.writes, session)?;
        let written = match at_once {
            true => store_atomic(self.store.as_ref(), (object, at), bytes),
            false => self.store.write(object, at, &[MemoryPiece::from(bytes)]),
        };
        written.map_err(|error| {
            let what = format!("writing {} bytes of object {object}", bytes.len());
            store_fault(self.index, &error).at(what)
        })
    }
}
