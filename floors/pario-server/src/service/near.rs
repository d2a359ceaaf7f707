//! The way to a server for the process that runs it: a call instead of a message, where blocks have no fixed place.
//!
//! ```text
//!  client's thread ─► store ─┬─ own block: one copy
//!                            └─ another server's ─► as for any client
//! ```
//! Never: used for files whose writes go behind, in records: these are taken in their order. Always: a write of a session that was taken for
//! gone is refused, and one that is under way is waited for before its file is given to others, as those that come by message.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use pario_core::{Fault, InodeId, LocalOffset, ObjectId, ServerIndex, SessionId};
use pario_store::Store;
use pario_sys::Piece;

use super::Service;
use super::visits::{UnderWay, Writes, put_at_once};
use crate::take::store_fault;

/// See the module.
#[derive(Clone)]
pub struct Near {
    index: ServerIndex,
    store: Arc<dyn Store>,
    writes: Arc<Mutex<Writes>>,
}

impl std::fmt::Debug for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Near").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Near {
    pub(super) fn of(service: &Service) -> Near {
        let (index, store) = (service.spec.index, Arc::clone(&service.spec.store));
        Near { index, store, writes: Arc::clone(&service.visits.writes) }
    }

    /// Which server it is.
    #[must_use]
    pub fn index(&self) -> ServerIndex {
        self.index
    }

    /// Whether a range of a file lies in blocks of this server's.
    #[must_use]
    pub fn has(&self, inode: InodeId, range: Range<u64>) -> bool {
        self.store.places().is_some_and(|places| places.is_here(inode, range))
    }

    /// Fills `target`; how many bytes there were.
    pub fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, Fault> {
        self.store.read(object, at, target).map_err(|error| store_fault(self.index, &error))
    }

    /// Fills `target` with what was there at one moment; false: that cannot be told without a lock.
    pub fn read_at_once(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<bool, Fault> {
        let Some(places) = self.store.places() else { return Ok(false) };
        places.read_at_once(object, at, target).map_err(|error| store_fault(self.index, &error))
    }

    /// Writes for a session; returns when the blocks' owners have it. `at_once`: others see it as a whole.
    pub fn write(
        &self,
        session: SessionId,
        (object, at_once): (ObjectId, bool),
        (at, bytes): (LocalOffset, &[u8]),
    ) -> Result<(), Fault> {
        let _under_way = UnderWay::begin(&self.writes, session)?;
        let written = match at_once {
            true => put_at_once(self.store.as_ref(), (object, at), bytes),
            false => self.store.write(object, at, &[Piece::from(bytes)]),
        };
        written.map_err(|error| {
            let what = format!("writing {} bytes of object {object}", bytes.len());
            store_fault(self.index, &error).at(what)
        })
    }
}
