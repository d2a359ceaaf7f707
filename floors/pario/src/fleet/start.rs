//! Starts a fleet: identity and secret of rank 0, a server in each of the given ranks, their addresses exchanged.
//!
//! Never: leaves a member waiting: a member that cannot start its server reports it in the exchange that all take part in; writes a
//! secret or a socket to a disk. Always: all members get the same fleet, or the same error, which names the rank that could not start.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use pario_core::{Code, Fault, PartitionId, ServerIndex};
use pario_net::greeting::{Secret, nonce};
use pario_net::protect::Protect;
use pario_net::stream::Address;
use pario_server::{Connect, Server, ServerIdentity, ServerSpec};
use pario_sys::process::fork_generation;
use serde::{Deserialize, Serialize};

use super::member::{Fleet, FleetServer, FleetStore};
use crate::client::{Application, Endpoint, MountSpec, Session};
use crate::collective::own_addresses;
use crate::connect::ByAddress;
use crate::error::Result;
use crate::group::{Group, broadcast_value, exchange_values};
use crate::partition::choices::Method;

/// Parameters of a new fleet; equal on all members, except `listen`.
#[derive(Debug)]
pub(crate) struct FleetPlan {
    /// Name of the partition that the servers form, for messages.
    pub(crate) name: String,
    /// Ranks with a server, in server order: any subset of the group.
    pub(crate) ranks: Vec<usize>,
    /// Which connections are protected.
    pub(crate) protect: Protect,
    /// The application that the members' sessions belong to.
    pub(crate) application: Application,
    /// Outbox of each member; 0: the default.
    pub(crate) outbox_bytes: usize,
    /// How members on other nodes reach this member's server; unused if all are on one node.
    pub(crate) listen: FleetListen,
}

/// Addresses by which a server is reached from other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FleetListen {
    /// One address of this host.
    At(IpAddr),
    /// All addresses of this host.
    Everywhere,
}

/// Identity of a new fleet.
#[derive(Serialize, Deserialize)]
struct FleetSeed {
    id: [u8; 16],
    secret: [u8; 32],
}

/// Addresses of a new server, or why it failed to start.
#[derive(Serialize, Deserialize, Default)]
struct FleetAddresses {
    unix: Option<Vec<u8>>,
    tcp: Vec<SocketAddr>,
    failed: Option<String>,
}

/// Servers of a group, and how to reach them.
#[derive(Debug)]
pub(crate) struct FleetServers<S: FleetStore> {
    pub(crate) id: PartitionId,
    pub(crate) endpoint: Endpoint,
    pub(crate) own: Option<FleetServer<S>>,
}

/// Starts a fleet; collective. `open` is called on the ranks with a server and returns its store and configuration; where it listens and
/// what it protects is filled in here.
pub(crate) fn start_fleet<S: FleetStore>(
    group: &Arc<dyn Group>,
    plan: FleetPlan,
    open: impl FnOnce(ServerIdentity) -> Result<(Arc<S>, ServerSpec)>,
) -> Result<Fleet<S>> {
    let FleetServers { id, endpoint, own } = start_servers(group, &plan, open)?;
    let session = Session::new(MountSpec {
        name: plan.name,
        partition: id,
        endpoint,
        servers: plan.ranks.len(),
        locate: None,
        outbox_bytes: plan.outbox_bytes,
        method: Method::Auto,
        tied: None,
        application: plan.application,
    });
    Ok(Fleet { id, ranks: plan.ranks, session, own })
}

/// The same without a session.
pub(crate) fn start_servers<S: FleetStore>(
    group: &Arc<dyn Group>,
    plan: &FleetPlan,
    open: impl FnOnce(ServerIdentity) -> Result<(Arc<S>, ServerSpec)>,
) -> Result<FleetServers<S>> {
    let id: [u8; 32] = nonce();
    let mut seed = FleetSeed { id: [0; 16], secret: Secret::random().0 };
    seed.id.copy_from_slice(&id[..16]);
    let seed: FleetSeed = broadcast_value(group.as_ref(), &seed)?;
    let (own, told) = match start_own(group.as_ref(), plan, &seed, open).transpose() {
        Ok(None) => (None, FleetAddresses::default()),
        Ok(Some((own, told))) => (Some(own), told),
        Err(fault) => (None, FleetAddresses { failed: Some(fault.to_string()), ..FleetAddresses::default() }),
    };
    let all: Vec<FleetAddresses> = exchange_values(group.as_ref(), &told)?;
    let failed = all.iter().enumerate().find_map(|(rank, told)| Some((rank, told.failed.as_ref()?)));
    if let Some((rank, why)) = failed {
        let text = format!("rank {rank} could not start its server of the {}: {why}", plan.name);
        return Err(Fault::new(Code::Io, text).into());
    }
    let here = |rank: usize| group.node_of(rank) == group.node_of(group.rank());
    let servers = plan.ranks.iter().map(|rank| addresses(&all[*rank], here(*rank))).collect();
    let connect: Arc<dyn Connect> = Arc::new(ByAddress { servers });
    if let Some(own) = &own {
        own.server.set_peers(Arc::clone(&connect));
    }
    let endpoint = Endpoint { secret: Secret(seed.secret), connect, protect: plan.protect };
    Ok(FleetServers { id: PartitionId(seed.id), endpoint, own })
}

/// Starts the server of this member, if the plan has one.
fn start_own<S: FleetStore>(
    group: &dyn Group,
    plan: &FleetPlan,
    seed: &FleetSeed,
    open: impl FnOnce(ServerIdentity) -> Result<(Arc<S>, ServerSpec)>,
) -> Option<Result<(FleetServer<S>, FleetAddresses)>> {
    let place = plan.ranks.iter().position(|rank| *rank == group.rank())?;
    let is_far = |rank| group.node_of(rank) != group.node_of(group.rank());
    let listen = (0..group.size()).any(is_far).then_some(plan.listen);
    Some(start_server(plan, seed, place, listen, open))
}

fn start_server<S: FleetStore>(
    plan: &FleetPlan,
    seed: &FleetSeed,
    place: usize,
    listen: Option<FleetListen>,
    open: impl FnOnce(ServerIdentity) -> Result<(Arc<S>, ServerSpec)>,
) -> Result<(FleetServer<S>, FleetAddresses)> {
    let servers = plan.ranks.len();
    let too_many = |_| Fault::new(Code::TooMany, format!("{servers} servers are more than the limit"));
    let index = ServerIndex(u16::try_from(place).map_err(too_many)?);
    let partition = PartitionId(seed.id);
    let identity =
        ServerIdentity { partition, name: plan.name.clone(), index, servers, secret: Secret(seed.secret) };
    let (store, spec) = open(identity)?;
    let unix = format!("\0pario-fleet-{partition}-{index}").into_bytes();
    let bind = listen.map(|listen| match listen {
        FleetListen::At(address) => address,
        FleetListen::Everywhere => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    });
    let server = Server::start(ServerSpec {
        protect: plan.protect,
        unix: Some(PathBuf::from(OsString::from_vec(unix.clone()))),
        tcp: bind.map(|address| SocketAddr::new(address, 0)),
        ..spec
    })?;
    store.begin(&server);
    let tcp = server.tcp_address().map_or_else(Vec::new, |at| reachable(at, listen));
    let own = FleetServer { index, server, store, fork: fork_generation() };
    Ok((own, FleetAddresses { unix: Some(unix), tcp, failed: None }))
}

/// Addresses of a server: its memory is shared only on its own node.
fn addresses(started: &FleetAddresses, here: bool) -> Vec<Address> {
    let unix = started.unix.as_ref().filter(|_| here);
    let unix = unix.map(|name| Address::Unix(PathBuf::from(OsString::from_vec(name.clone()))));
    unix.into_iter().chain(started.tcp.iter().copied().map(Address::Tcp)).collect()
}

/// Addresses of this host by which others reach a listening socket.
fn reachable(at: SocketAddr, listen: Option<FleetListen>) -> Vec<SocketAddr> {
    if listen != Some(FleetListen::Everywhere) {
        return vec![at];
    }
    own_addresses().into_iter().map(|address| SocketAddr::new(IpAddr::V4(address), at.port())).collect()
}
