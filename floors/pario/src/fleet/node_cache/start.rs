//! Finds or starts the node cache of a group: one that all its processes know in the same roles, or a new one.
//!
//! Always: all members get the same node cache, or the same error.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use pario_core::limits::OUTBOX_BYTES_DEFAULT;
use pario_core::{PartitionId, ServerIndex};
use pario_server::stores::OpenStore;
use pario_server::{Server, ServerIdentity, ServerSpec};
use serde::{Deserialize, Serialize};

use super::{NodeCache, UpstreamStore};
use crate::client::Session;
use crate::error::Result;
use crate::fleet::{FleetListen, FleetPlan, FleetRole, FleetStore, choose_servers, common, start_fleet};
use crate::group::{Group, exchange_values};

/// Default cache size of one server.
const CACHE_BYTES_DEFAULT: u64 = 64 << 20;

/// Requested parameters of a node cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeCacheOptions {
    /// Number of serving processes; `None`: one per node.
    pub(crate) aggregators: Option<usize>,
    /// Cache size of each.
    pub(crate) cache_bytes: Option<u64>,
}

/// A member's knowledge when a file is opened.
#[derive(Serialize, Deserialize)]
struct NodeCacheKnowledge {
    /// Roles in known node caches, the oldest first.
    roles: Vec<FleetRole>,
    /// Its own address on the route to the manager, and the manager's address.
    network: Option<(IpAddr, IpAddr)>,
}

impl NodeCache {
    /// The group's node cache above the partition of `mount`; collective.
    pub(crate) fn of(
        group: &Arc<dyn Group>,
        mount: &Arc<Session>,
        wish: NodeCacheOptions,
    ) -> Result<Arc<NodeCache>> {
        let ranks = choose_servers(group.as_ref(), wish.aggregators);
        let known = mount.node_caches.known();
        let knows = NodeCacheKnowledge {
            roles: known.iter().map(|cache| cache.fleet.role()).collect(),
            network: network(mount),
        };
        let all: Vec<NodeCacheKnowledge> = exchange_values(group.as_ref(), &knows)?;
        let roles: Vec<&[FleetRole]> = all.iter().map(|knows| &*knows.roles).collect();
        let found = common(&roles, &ranks);
        let cache = match known.into_iter().find(|cache| Some(cache.fleet.id) == found) {
            Some(cache) => cache,
            None => NodeCache::start(group, mount, ranks, &all)?,
        };
        if let (Some(own), Some(bytes)) = (&cache.fleet.own, wish.cache_bytes) {
            own.store.set_cache_bytes(bytes);
        }
        Ok(cache)
    }

    fn start(
        group: &Arc<dyn Group>,
        mount: &Arc<Session>,
        ranks: Vec<usize>,
        all: &[NodeCacheKnowledge],
    ) -> Result<Arc<NodeCache>> {
        let below = mount.spec();
        let outbox_bytes = if below.outbox_bytes == 0 { OUTBOX_BYTES_DEFAULT } else { below.outbox_bytes };
        let plan = FleetPlan {
            name: format!("{} (tier 1)", below.name),
            ranks,
            protect: below.endpoint.protect,
            application: below.application.clone(),
            outbox_bytes: below.outbox_bytes,
            listen: FleetListen::At(reachable(group.rank(), all)),
        };
        let fleet = start_fleet(group, plan, |identity: ServerIdentity| {
            let store = Arc::new(UpstreamStore::new(identity.index, CACHE_BYTES_DEFAULT));
            let opened = OpenStore {
                store: Arc::<UpstreamStore>::clone(&store),
                volatile: true,
                lends: false,
                lends_writing: false,
            };
            // The partition's servers schedule the requests of the node cache.
            let spec = ServerSpec {
                outbox_bytes: outbox_bytes as u64,
                drain_before_read: true,
                ..ServerSpec::new(identity, opened)
            };
            Ok((store, spec))
        })?;
        let upstream = fleet.own.as_ref().map(|_| Session::in_lease_group(below, lease_group(fleet.id)));
        let cache = Arc::new(NodeCache { fleet, upstream });
        mount.node_caches.add(&cache);
        Ok(cache)
    }
}

impl FleetStore for UpstreamStore {
    fn begin(&self, server: &Server) {
        self.set_drainer(server.drain_handle());
    }

    fn shut(&self) {
        self.shut_down();
    }
}

/// The lease group of a node cache's servers; 0 would be none.
fn lease_group(id: PartitionId) -> u64 {
    let (first, _) = id.0.split_at(8);
    first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)).max(1)
}

/// The address of this host that other members can reach: its own on the route to the manager; or, on the manager's host, the
/// manager's.
fn reachable(rank: usize, all: &[NodeCacheKnowledge]) -> IpAddr {
    let outside = |address: &IpAddr| !address.is_loopback();
    let own = all[rank].network.map(|(own, _)| own).filter(outside);
    let managers = || all.iter().filter_map(|knows| knows.network).map(|(_, manager)| manager).find(outside);
    own.or_else(managers).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn network(mount: &Session) -> Option<(IpAddr, IpAddr)> {
    let (own, manager) = mount.network_addresses(ServerIndex::MANAGER).ok().flatten()?;
    Some((own.ip(), manager.ip()))
}
