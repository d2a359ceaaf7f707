//! The application's own tier: a Pario server as threads of one process per node, which stands on the partition's servers.
//!
//! ```text
//!  rank ─► record in the outbox | message ─► server of tier 1 (blocks in memory) ─► File of the partition ─► servers of tier 2
//! ```
//! Ranks mount the tier as they mount a partition, but ask nobody for leases: its servers hold them, as one party.
//!
//! Never: started before a file is opened through it; grows past the size that was set. Always: the same processes in the same roles
//! use the same tier again; it leaves nothing behind when a process dies.

mod flush;
mod object;
mod shared;
mod start;
mod store;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::{PartitionId, ServerIndex};
use pario_server::Server;

pub(crate) use self::start::{Wish, choose, decode, encode, exchange};
pub use self::store::TierStats;
pub(crate) use self::store::UpstreamStore;
use crate::client::Mount;

/// A panic while something was held leaves nothing half done that a later user could not live with.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tiers that one mount keeps beside those in use.
const KEPT: usize = 4;

/// The tiers that files opened from one mount use or used of late.
#[derive(Debug, Default)]
pub(crate) struct Tiers(Mutex<Vec<Arc<Tier>>>);

/// One tier, as one of its processes sees it.
#[derive(Debug)]
pub(crate) struct Tier {
    id: PartitionId,
    /// Ranks whose processes serve, in the order of servers.
    aggregators: Vec<usize>,
    // Before the server: a mount says goodbye while it still listens.
    mount: Arc<Mount>,
    own: Option<Own>,
}

/// The server that this process runs.
#[derive(Debug)]
struct Own {
    index: ServerIndex,
    server: Server,
    store: Arc<UpstreamStore>,
    /// The partition, as a member of the tier's party.
    upstream: Arc<Mount>,
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.store.is_own_process() {
            self.server.stop();
            self.server.wait_finished();
            self.store.shut();
        }
    }
}

impl Tier {
    /// The way to its servers.
    pub(crate) fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Ranks of the group that it was made by, in the order of servers.
    pub(crate) fn aggregators(&self) -> &[usize] {
        &self.aggregators
    }

    /// What the server in this process stands on, and the partition below it.
    pub(crate) fn own(&self) -> Option<(&UpstreamStore, &Arc<Mount>)> {
        self.own.as_ref().map(|own| (&*own.store, &own.upstream))
    }

    fn is_over(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.server.is_finished())
    }
}

impl Tiers {
    fn known(&self) -> Vec<Arc<Tier>> {
        let mut tiers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tiers.retain(|tier| !tier.is_over());
        tiers.clone()
    }

    fn add(&self, tier: &Arc<Tier>) {
        let mut tiers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tiers.push(Arc::clone(tier));
        let mut dropped = Vec::new();
        while KEPT < tiers.len()
            && let Some(unused) = tiers.iter().position(|tier| Arc::strong_count(tier) == 1)
        {
            dropped.push(tiers.remove(unused));
        }
        drop(tiers);
        // Out here: ending a server waits for it.
        drop(dropped);
    }
}
