//! The node cache of an application (tier 1): a Pario server as threads of one process per node, above the partition's servers
//! (tier 2).
//!
//! ```text
//!  rank ─► record in the outbox | message ─► node-cache server (blocks in memory) ─► File of the partition ─► its servers
//! ```
//! Ranks mount the node cache as they mount a partition, but need no leases: its servers hold them, as one lease group.
//!
//! Never: started before a file is opened through it; grows past its configured size. Always: the same processes in the same
//! roles use the same node cache again; it leaves nothing behind when a process dies.

mod flush;
mod object;
mod shared;
mod start;
mod store;

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use self::start::NodeCacheOptions;
pub use self::store::TierStats;
pub(crate) use self::store::UpstreamStore;
use crate::client::Session;
use crate::fleet::Fleet;

/// Ignores poisoning: every critical section of this module leaves its data valid after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Node caches that one session retains beside those in use.
const RETAINED_MAX: usize = 4;

/// The node caches that files opened from one session use or used recently.
#[derive(Debug, Default)]
pub(crate) struct NodeCaches(Mutex<Vec<Arc<NodeCache>>>);

/// One node cache, as seen by one of its processes.
#[derive(Debug)]
pub(crate) struct NodeCache {
    fleet: Fleet<UpstreamStore>,
    /// The partition, mounted as a member of the cache's lease group, if this process runs a server. Declared after the fleet: the server's
    /// store writes back through it.
    upstream: Option<Arc<Session>>,
}

impl NodeCache {
    /// The session with its servers.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.fleet.session
    }

    /// Ranks of the creating group, in server order.
    pub(crate) fn aggregators(&self) -> &[usize] {
        &self.fleet.ranks
    }

    /// The store of the server in this process, and the partition below it.
    pub(crate) fn own(&self) -> Option<(&UpstreamStore, &Arc<Session>)> {
        Some((&*self.fleet.own.as_ref()?.store, self.upstream.as_ref()?))
    }
}

impl NodeCaches {
    fn known(&self) -> Vec<Arc<NodeCache>> {
        let mut caches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| !cache.fleet.has_ended());
        caches.clone()
    }

    fn add(&self, cache: &Arc<NodeCache>) {
        let mut caches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        caches.push(Arc::clone(cache));
        let mut dropped = Vec::new();
        while RETAINED_MAX < caches.len()
            && let Some(unused) = caches.iter().position(|cache| Arc::strong_count(cache) == 1)
        {
            dropped.push(caches.remove(unused));
        }
        drop(caches);
        // Dropped outside the lock: stopping a server waits for it.
        drop(dropped);
    }
}
