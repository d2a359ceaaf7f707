//! Hooks of the stores that cache files of other servers: the node cache and the file cache.
//!
//! Never: needed by a store of a partition. Always: a store without hooks has confirmed every write that returned, and has no peers.

use pario_core::ObjectId;

use crate::error::StoreError;
use crate::peers::PeerService;
use crate::store::Store;

/// Hooks of a cache above other servers; the defaults are the answers of a store without hooks.
pub trait CacheHooks {
    /// Files with writes that may return before the store has them: one bit for each remainder of an inode divided by 32.
    fn write_behind(&self) -> u32 {
        u32::MAX
    }

    /// Whether writes to the object are confirmed, that is, visible to all clients. A store above other servers needs their permission.
    fn is_confirmed(&self, _object: ObjectId) -> bool {
        true
    }

    /// Confirms writes to the object, so that they are visible to all clients; may wait for other servers.
    fn confirm(&self, _object: ObjectId) -> Result<(), StoreError> {
        Ok(())
    }

    /// The store's service for the other servers of its file cache, with dynamic placement.
    fn peer_service(&self) -> Option<&dyn PeerService> {
        None
    }
}

/// The hooks of any store.
impl<'store> dyn Store + 'store {
    /// See [`CacheHooks::write_behind`].
    #[must_use]
    pub fn write_behind(&self) -> u32 {
        self.hooks().map_or(u32::MAX, CacheHooks::write_behind)
    }

    /// See [`CacheHooks::is_confirmed`].
    #[must_use]
    pub fn is_confirmed(&self, object: ObjectId) -> bool {
        self.hooks().is_none_or(|hooks| hooks.is_confirmed(object))
    }

    /// See [`CacheHooks::confirm`].
    pub fn confirm(&self, object: ObjectId) -> Result<(), StoreError> {
        self.hooks().map_or(Ok(()), |hooks| hooks.confirm(object))
    }

    /// See [`CacheHooks::peer_service`].
    #[must_use]
    pub fn peer_service(&self) -> Option<&dyn PeerService> {
        self.hooks()?.peer_service()
    }
}
