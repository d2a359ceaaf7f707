//! How a group comes to a tier: one that all its processes know in the same roles, or a new one.
//!
//! Never: leaves a member waiting: whoever cannot start its server says so in the exchange that all take part in. Always: all members
//! come to the same tier, or to the same error.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use pario_core::{Code, Fault, PartitionId, ServerIndex};
use pario_net::greeting::{Secret, nonce, random_number};
use pario_net::stream::Address;
use pario_server::{Server, ServerSpec};
use serde::{Deserialize, Serialize};

use super::{Own, Tier, UpstreamStore};
use crate::client::{Mount, MountSpec, Way};
use crate::connect::ByAddress;
use crate::error::Result;
use crate::group::Group;

/// Cache of one server where none is wished for.
const CACHE_BYTES_DEFAULT: u64 = 64 << 20;

/// What is wished of a tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// How many processes serve; `None`: one per node.
    pub(crate) aggregators: Option<usize>,
    /// Cache of each.
    pub(crate) cache_bytes: Option<u64>,
}

/// What a member knows when a file is opened.
#[derive(Serialize, Deserialize)]
struct Knows {
    /// Tiers, the oldest first.
    tiers: Vec<Role>,
    /// Its own address on the way to the manager, and the manager's.
    network: Option<(IpAddr, IpAddr)>,
}

/// A member's part in a tier.
#[derive(Serialize, Deserialize)]
struct Role {
    id: [u8; 16],
    servers: usize,
    index: Option<u16>,
}

/// What makes a new tier.
#[derive(Serialize, Deserialize)]
struct Seed {
    id: [u8; 16],
    secret: [u8; 32],
    party: u64,
}

/// Where a new server listens, or why there is none.
#[derive(Serialize, Deserialize, Default)]
struct Started {
    unix: Option<Vec<u8>>,
    tcp: Option<SocketAddr>,
    failed: Option<String>,
}

impl Tier {
    /// The group's tier above the partition of `mount`; collective.
    pub(crate) fn of(group: &Arc<dyn Group>, mount: &Arc<Mount>, wish: Wish) -> Result<Arc<Tier>> {
        let aggregators = choose(group.as_ref(), wish.aggregators);
        let known = mount.tiers.known();
        let knows = Knows { tiers: known.iter().map(|tier| tier.role()).collect(), network: network(mount) };
        let all: Vec<Knows> = exchange(group.as_ref(), &knows)?;
        let common = all[0].tiers.iter().find(|role| fits(role, &all, &aggregators)).map(|role| role.id);
        let tier = match known.into_iter().find(|tier| Some(tier.id.0) == common) {
            Some(tier) => tier,
            None => make(group, mount, &aggregators, &all)?,
        };
        if let (Some(own), Some(bytes)) = (&tier.own, wish.cache_bytes) {
            own.store.set_cache_bytes(bytes);
        }
        Ok(tier)
    }

    fn role(&self) -> Role {
        let index = self.own.as_ref().map(|own| own.index.0);
        Role { id: self.id.0, servers: self.aggregators.len(), index }
    }
}

/// The processes that serve: the first of each node, then the second of each, and so on.
pub(crate) fn choose(group: &dyn Group, wished: Option<usize>) -> Vec<usize> {
    let nodes = (0..group.size()).map(|rank| group.node_of(rank) + 1).max().unwrap_or(1);
    let most = group.size().min(pario_core::limits::SERVERS_MAX);
    let count = wished.unwrap_or(nodes).clamp(1, most);
    let mut seen = vec![0usize; nodes];
    let place_on_node = |rank: usize| {
        let place = &mut seen[group.node_of(rank)];
        *place += 1;
        (*place, rank)
    };
    let mut ranks: Vec<(usize, usize)> = (0..group.size()).map(place_on_node).collect();
    ranks.sort_unstable();
    ranks.into_iter().take(count).map(|(_, rank)| rank).collect()
}

/// Whether every member knows the tier, and those who are to serve do so in their order.
fn fits(role: &Role, all: &[Knows], aggregators: &[usize]) -> bool {
    all.iter().enumerate().all(|(rank, knows)| {
        let wanted = aggregators.iter().position(|aggregator| *aggregator == rank);
        let mine = knows.tiers.iter().find(|other| other.id == role.id);
        mine.is_some_and(|mine| mine.servers == aggregators.len() && mine.index.map(usize::from) == wanted)
    })
}

fn make(
    group: &Arc<dyn Group>,
    mount: &Arc<Mount>,
    aggregators: &[usize],
    all: &[Knows],
) -> Result<Arc<Tier>> {
    let id: [u8; 32] = nonce();
    let mut seed = Seed { id: [0; 16], secret: Secret::random().0, party: random_number().max(1) };
    seed.id.copy_from_slice(&id[..16]);
    let seed: Seed = decode(&group.broadcast(0, &encode(&seed)?)?)?;
    let own_place = aggregators.iter().position(|rank| *rank == group.rank());
    let started =
        own_place.map(|place| start(group.as_ref(), mount, (place, aggregators.len()), (&seed, all)));
    let (own, told) = match started {
        None => (None, Started::default()),
        Some(Ok((own, told))) => (Some(own), told),
        Some(Err(fault)) => (None, Started { failed: Some(fault.to_string()), ..Started::default() }),
    };
    let told: Vec<Started> = exchange(group.as_ref(), &told)?;
    if let Some((rank, why)) =
        told.iter().enumerate().find_map(|(rank, told)| Some((rank, told.failed.as_ref()?)))
    {
        let text = format!("rank {rank} could not start its tier-1 server: {why}");
        return Err(Fault::new(Code::Io, text).into());
    }
    let here = |rank: usize| group.node_of(rank) == group.node_of(group.rank());
    let addresses = aggregators.iter().map(|rank| addresses(&told[*rank], here(*rank))).collect();
    let below = mount.spec();
    let spec = MountSpec {
        method: crate::partition::choices::Method::Auto,
        tied: None,
        name: format!("{} (tier 1)", below.name),
        partition: PartitionId(seed.id),
        way: Way { secret: Secret(seed.secret), connect: Arc::new(ByAddress { servers: addresses }) },
        servers: aggregators.len(),
        locate: None,
        outbox_bytes: below.outbox_bytes,
        application: below.application,
    };
    let tier = Arc::new(Tier {
        id: PartitionId(seed.id),
        aggregators: aggregators.to_vec(),
        mount: Mount::new(spec),
        own,
    });
    mount.tiers.add(&tier);
    Ok(tier)
}

/// Addresses by which a server is reached: its memory is shared only on its own node.
fn addresses(started: &Started, here: bool) -> Vec<Address> {
    let unix = started.unix.as_ref().filter(|_| here);
    let unix = unix.map(|name| Address::Unix(PathBuf::from(OsString::from_vec(name.clone()))));
    unix.into_iter().chain(started.tcp.map(Address::Tcp)).collect()
}

fn start(
    group: &dyn Group,
    mount: &Arc<Mount>,
    (place, servers): (usize, usize),
    (seed, all): (&Seed, &[Knows]),
) -> std::result::Result<(Own, Started), Fault> {
    let place = u16::try_from(place).map_err(|_| Fault::new(Code::TooMany, "too many aggregators"))?;
    let index = ServerIndex(place);
    let below = mount.spec();
    let store = Arc::new(UpstreamStore::new(index, CACHE_BYTES_DEFAULT));
    let unix =
        [b"\0pario-tier-", PartitionId(seed.id).to_string().as_bytes(), format!("-{index}").as_bytes()]
            .concat();
    let far = (0..group.size()).any(|rank| group.node_of(rank) != group.node_of(group.rank()));
    let server = Server::start(ServerSpec {
        partition: PartitionId(seed.id),
        name: format!("{} (tier 1)", below.name),
        index,
        servers,
        secret: Secret(seed.secret),
        store: Arc::<UpstreamStore>::clone(&store),
        volatile: true,
        lends: false,
        lends_writing: false,
        names: None,
        outbox_bytes: (if below.outbox_bytes == 0 {
            pario_core::limits::OUTBOX_BYTES_DEFAULT
        } else {
            below.outbox_bytes
        }) as u64,
        transfer_bytes: 1 << 20,
        lives: None,
        take_before_read: true,
        // The partition's servers order what the tier asks of them.
        scheduler: pario_server::SchedulerSpec::default(),
        unix: Some(PathBuf::from(OsString::from_vec(unix.clone()))),
        tcp: far.then(|| SocketAddr::new(reachable(group.rank(), all), 0)),
    })?;
    store.set_taking(server.taking());
    let told = Started { unix: Some(unix), tcp: server.tcp_address(), failed: None };
    let upstream = Mount::of_party(below, seed.party);
    Ok((Own { index, server, store, upstream }, told))
}

/// The address of this host that the others reach: the one by which it reaches the manager; or, beside the manager, the manager's.
fn reachable(rank: usize, all: &[Knows]) -> IpAddr {
    let outside = |address: &IpAddr| !address.is_loopback();
    let own = all[rank].network.map(|(own, _)| own).filter(outside);
    let managers = || all.iter().filter_map(|knows| knows.network).map(|(_, manager)| manager).find(outside);
    own.or_else(managers).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn network(mount: &Mount) -> Option<(IpAddr, IpAddr)> {
    let (own, manager) = mount.network_addresses(ServerIndex::MANAGER).ok().flatten()?;
    Some((own.ip(), manager.ip()))
}

/// Everybody's, in the order of ranks.
pub(crate) fn exchange<T: Serialize + for<'a> Deserialize<'a>>(
    group: &dyn Group,
    mine: &T,
) -> Result<Vec<T>> {
    group.allgather(&encode(mine)?)?.iter().map(|bytes| decode(bytes)).collect()
}

/// As bytes, for the others.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Fault::new(Code::Protocol, error.to_string()).into())
}

/// From another member's bytes.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Fault::new(Code::Protocol, format!("members of the group do not agree: {error}")).into()
    })
}
