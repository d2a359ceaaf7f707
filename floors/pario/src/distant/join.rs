//! Joining: the members find their homes, and each home starts its server.
//!
//! Always: all members get the same homes, or the same error, which names the member that could not start.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use pario_core::{Code, Fault};
use pario_net::protect::Protect;
use pario_server::store::{Store, StoreRate, Throttled};
use pario_server::stores::OpenStore;
use pario_server::{ServerIdentity, ServerSpec};
use pario_sys::mutex::lock;
use pario_sys::process::host_name;
use serde::{Deserialize, Serialize};

use super::Distant;
use super::home_store::{HomeLayer, HomeStore};
use super::homes::{Home, Homes};
use super::options::{DistantOptions, MemberRole};
use crate::client::Application;
use crate::collective::network;
use crate::error::Result;
use crate::fleet::{FleetListen, FleetPlan, start_servers};
use crate::group::{CollectiveCall, Group, exchange_values};
use crate::partition::choices::ProtectChoice;

/// Name of the servers, for messages.
const NAME: &str = "distant files";
/// Threads of a home for reads, lends and syncs.
const POOL_THREADS: usize = 2;

/// A member as the others know it.
#[derive(Serialize, Deserialize)]
struct MemberFacts {
    network: String,
    host: String,
    /// Its directory if it is a home; empty: none.
    home: Option<String>,
}

impl Distant {
    /// Joins; collective. Members that are homes start a server in their own threads.
    ///
    /// # Errors
    /// On all members if a home cannot start, for example because its directory is missing.
    pub fn join(group: &Arc<dyn Group>, options: &DistantOptions) -> Result<Distant> {
        let group = group.duplicate()?;
        let chosen = Application::own().and_then(|application| Ok((application, protect(options)?)));
        let shown = format!("{:?}", chosen.as_ref().map(|(_, protect)| *protect).ok());
        let alike = [("the protection of distant files", shown.as_bytes())];
        group.agree_on(CollectiveCall::Open, chosen.as_ref().map(|_| &alike[..]).map_err(Clone::clone))?;
        let (application, protect) = chosen?;
        let home = match &options.role {
            MemberRole::Serving => Some(String::new()),
            MemberRole::InDir(dir) => Some(dir.display().to_string()),
            MemberRole::Client => None,
        };
        let facts = MemberFacts { network: network(), host: host_name(), home };
        let all: Vec<MemberFacts> = exchange_values(group.as_ref(), &facts)?;
        let one_host = all.iter().all(|other| other.network == all[0].network && !other.network.is_empty());
        let list: Vec<Home> =
            all.iter().enumerate().filter_map(|(rank, facts)| home_of(&*group, rank, facts)).collect();
        let plan = FleetPlan {
            name: NAME.into(),
            ranks: list.iter().map(|home| home.rank).collect(),
            protect,
            application: application.clone(),
            outbox_bytes: 0,
            listen: match one_host {
                true => FleetListen::At(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                false => FleetListen::Everywhere,
            },
        };
        let opened: Mutex<Option<Arc<dyn Store>>> = Mutex::default();
        let servers = start_servers(&group, &plan, |identity| {
            let (store, spec) = open_store(identity, group.rank(), options)?;
            *lock(&opened) = Some(Arc::clone(&spec.store));
            Ok((store, spec))
        })?;
        let own_store = opened.into_inner().unwrap_or_default();
        let is_limited = options.bytes_per_second.is_some();
        let homes = Homes::new(group.rank(), list, servers, application, (own_store, is_limited));
        Ok(Distant { group, homes: Arc::new(homes), next: AtomicU64::new(1) })
    }
}

fn home_of(group: &dyn Group, rank: usize, facts: &MemberFacts) -> Option<Home> {
    Some(Home {
        rank,
        host: facts.host.clone(),
        dir: facts.home.clone()?,
        is_near: group.node_of(rank) == group.node_of(group.rank()),
    })
}

/// Store and configuration of this member's server.
fn open_store(
    identity: ServerIdentity,
    rank: usize,
    options: &DistantOptions,
) -> Result<(Arc<HomeStore>, ServerSpec)> {
    let dir = match &options.role {
        MemberRole::InDir(dir) => Some(dir.as_path()),
        MemberRole::Serving | MemberRole::Client => None,
    };
    let home = Arc::new(HomeStore::new(rank, dir)?);
    let store: Arc<dyn Store> = match options.bytes_per_second {
        None => Arc::<HomeStore>::clone(&home),
        Some(rate) => {
            let rate = StoreRate { bytes_per_second: Some(rate), ..StoreRate::default() };
            Arc::new(Throttled::new(Box::new(HomeLayer(Arc::clone(&home))), rate))
        }
    };
    let lends = options.bytes_per_second.is_none();
    let opened = OpenStore { store, volatile: false, lends, lends_writing: lends };
    let spec = ServerSpec { pool_threads: POOL_THREADS, ..ServerSpec::new(identity, opened) };
    Ok((home, spec))
}

/// Which connections between the members are protected.
fn protect(options: &DistantOptions) -> std::result::Result<Protect, Fault> {
    if options.protects_all {
        return Ok(Protect::All);
    }
    ProtectChoice::of_environment().map(Protect::from).map_err(|text| Fault::new(Code::Invalid, text))
}
