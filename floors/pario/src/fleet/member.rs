//! A fleet as seen by one member: the session with its servers, and the server that the member runs.
//!
//! Always: a server ends, with its records drained, before its store is shut; in a forked child it belongs to the parent.

use std::sync::Arc;

use pario_core::{PartitionId, ServerIndex};
use pario_server::Server;
use pario_server::store::Store;
use pario_sys::process::fork_generation;
use serde::{Deserialize, Serialize};

use crate::client::Session;

/// The store of a server inside a fleet.
pub(crate) trait FleetStore: Store {
    /// Its server has started.
    fn begin(&self, server: &Server) {
        let _ = server;
    }

    /// Its server has ended: ends its threads and drops its files. Called by the owner of the server, since the last reference to the store
    /// may be held by a thread of the server, which cannot wait for itself.
    fn shut(&self) {}
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Fleet<S: FleetStore> {
    pub(super) id: PartitionId,
    /// Ranks with a server, in server order.
    pub(super) ranks: Vec<usize>,
    // Declared before the server: the session closes while the server still listens.
    pub(super) session: Arc<Session>,
    pub(super) own: Option<FleetServer<S>>,
}

/// The server that this member runs.
#[derive(Debug)]
pub(crate) struct FleetServer<S: FleetStore> {
    pub(super) index: ServerIndex,
    pub(super) server: Server,
    pub(crate) store: Arc<S>,
    pub(super) fork: u64,
}

impl<S: FleetStore> FleetServer<S> {
    /// Whether this process started it: it is not a forked child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.fork == fork_generation()
    }
}

impl<S: FleetStore> Drop for FleetServer<S> {
    fn drop(&mut self) {
        if self.is_own_process() {
            self.server.stop();
            self.server.wait_finished();
            self.store.shut();
        }
    }
}

/// A member's role in a fleet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FleetRole {
    id: [u8; 16],
    servers: usize,
    index: Option<u16>,
}

impl<S: FleetStore> Fleet<S> {
    /// This member's role.
    pub(super) fn role(&self) -> FleetRole {
        let index = self.own.as_ref().map(|own| own.index.0);
        FleetRole { id: self.id.0, servers: self.ranks.len(), index }
    }

    /// Whether the server of this member has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.server.is_finished())
    }
}

/// The oldest fleet that every member knows, with its servers on exactly those ranks, in that order. `known`: the roles of each member.
pub(super) fn common(known: &[&[FleetRole]], ranks: &[usize]) -> Option<PartitionId> {
    let fits = |role: &&FleetRole| {
        known.iter().enumerate().all(|(rank, roles)| {
            let wanted = ranks.iter().position(|other| *other == rank);
            let mine = roles.iter().find(|other| other.id == role.id);
            mine.is_some_and(|mine| mine.servers == ranks.len() && mine.index.map(usize::from) == wanted)
        })
    };
    known.first()?.iter().find(fits).map(|role| PartitionId(role.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(id: u8, servers: usize, index: Option<u16>) -> FleetRole {
        FleetRole { id: [id; 16], servers, index }
    }

    #[test]
    fn a_fleet_is_used_again_only_by_members_in_the_same_roles() {
        let first = [role(1, 1, Some(0)), role(2, 2, Some(0))];
        let second = [role(2, 2, Some(1)), role(1, 1, None)];
        let known: [&[FleetRole]; 2] = [&first, &second];
        assert_eq!(common(&known, &[0]), Some(PartitionId([1; 16])));
        assert_eq!(common(&known, &[0, 1]), Some(PartitionId([2; 16])));
        // The same servers in another order, or on another rank, are another fleet.
        assert_eq!(common(&known, &[1, 0]), None);
        assert_eq!(common(&known, &[1]), None);
        assert_eq!(common(&[&first, &[]], &[0]), None);
        assert_eq!(common(&[], &[0]), None);
    }
}
