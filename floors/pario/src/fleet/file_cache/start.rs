//! Finds or starts the servers of a group's file cache: those that all its members know in the same roles, or new ones.
//!
//! Always: all members get the same servers, or the same error.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use pario_core::limits::STRIPE_BYTES_DEFAULT;
use pario_core::{Code, Fault, Layout, ServerIndex};
use pario_net::protect::Protect;
use pario_server::store::{MemoryDisk, PlainCacheStore};
use pario_server::stores::OpenStore;
use pario_server::{NamesSpec, ServerIdentity, ServerSpec};
use serde::{Deserialize, Serialize};

use super::options::CacheOptions;
use super::peer_servers::GroupServers;
use super::{CacheFleet, FileCacheRole};
use crate::client::{Application, Session};
use crate::collective::network;
use crate::error::Result;
use crate::fleet::{FleetListen, FleetPlan, FleetRole, FleetStore, choose_servers, common, start_fleet};
use crate::group::{Group, exchange_values};
use crate::partition::choices::ProtectChoice;

/// The partition's name, for messages.
const NAME: &str = "cooperative cache";
/// Directory of the names, in a file system in the memory of one process.
const NAMES: &str = "/names";
/// Limit of the names' memory.
const NAMES_BYTES_MAX: u64 = 64 << 20;

/// A member's knowledge before.
#[derive(Serialize, Deserialize)]
struct FileCacheKnowledge {
    roles: Vec<FleetRole>,
    /// Identifies the host.
    network: String,
}

impl FleetStore for PlainCacheStore {
    fn shut(&self) {
        PlainCacheStore::shut(self);
    }
}

impl CacheFleet {
    /// The group's servers; collective.
    pub(super) fn of(group: &Arc<dyn Group>, options: &CacheOptions) -> Result<Arc<CacheFleet>> {
        let role = FileCacheRole::of(group.as_ref());
        let ranks = choose_servers(group.as_ref(), None);
        let known = CacheFleet::known(&role);
        let roles = known.iter().map(|one| one.fleet.role()).collect();
        let all: Vec<FileCacheKnowledge> =
            exchange_values(group.as_ref(), &FileCacheKnowledge { roles, network: network() })?;
        let roles: Vec<&[FleetRole]> = all.iter().map(|knows| &*knows.roles).collect();
        let found = common(&roles, &ranks);
        let one_host = all.iter().all(|knows| knows.network == all[0].network && !knows.network.is_empty());
        if let Some(cooperation) = known.into_iter().find(|one| Some(one.fleet.id) == found) {
            if let Some(own) = &cooperation.fleet.own {
                own.store.set_cache_bytes(options.cache_bytes);
                own.store.set_write_behind(options.write_behind);
            }
            return Ok(cooperation);
        }
        let made = Arc::new(CacheFleet::start(group, role, (ranks, one_host), options)?);
        made.remember();
        Ok(made)
    }

    fn start(
        group: &Arc<dyn Group>,
        role: FileCacheRole,
        (ranks, one_host): (Vec<usize>, bool),
        options: &CacheOptions,
    ) -> Result<CacheFleet> {
        let chosen = Application::own().and_then(|application| Ok((application, protect()?)));
        group.agree(chosen.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let (application, protect) = chosen?;
        let listen =
            if one_host { FleetListen::At(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { FleetListen::Everywhere };
        let plan = FleetPlan { name: NAME.into(), ranks, protect, application, outbox_bytes: 0, listen };
        let fleet = start_fleet(group, plan, |identity| open_store(identity, options))?;
        if let Some(own) = &fleet.own {
            let others = Session::new(fleet.session.spec());
            own.store.set_peers(Arc::new(GroupServers::new(others, fleet.ranks.clone())));
        }
        fleet.session.serve_plain_files();
        Ok(CacheFleet { role, fleet, open: Mutex::default() })
    }
}

/// The store and configuration of this member's server.
fn open_store(
    identity: ServerIdentity,
    options: &CacheOptions,
) -> Result<(Arc<PlainCacheStore>, ServerSpec)> {
    let servers = identity.servers;
    let too_many =
        |_| Fault::new(Code::TooMany, format!("{servers} nodes are more than the limit of servers"));
    let count = u16::try_from(servers).map_err(too_many)?;
    let defaults = Layout::new(STRIPE_BYTES_DEFAULT, count, 0, count)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
    let store = Arc::new(PlainCacheStore::new(options.cache_bytes)?);
    store.set_write_behind(options.write_behind);
    let names = || NamesSpec {
        dir: NAMES.into(),
        disk: Arc::new(MemoryDisk::new(Path::new(NAMES), NAMES_BYTES_MAX)),
        defaults,
    };
    // The store decides which files it lends.
    let lends = servers == 1;
    let opened = OpenStore {
        store: Arc::<PlainCacheStore>::clone(&store),
        volatile: true,
        lends,
        lends_writing: lends,
    };
    let names = (identity.index == ServerIndex::MANAGER).then(names);
    Ok((store, ServerSpec { names, ..ServerSpec::new(identity, opened) }))
}

/// Which connections between the members are protected.
fn protect() -> std::result::Result<Protect, Fault> {
    ProtectChoice::of_environment().map(Protect::from).map_err(|text| Fault::new(Code::Invalid, text))
}
