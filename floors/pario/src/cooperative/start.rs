//! How a group comes to its servers: those that all its members know in the same roles, or new ones.
//!
//! Never: writes a secret or a socket to a disk: both go through the group. Always: all members come to the same servers, or to the same
//! error, which names the member that could not start.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pario_core::limits::{OUTBOX_BYTES_DEFAULT, STRIPE_BYTES_DEFAULT};
use pario_core::{Code, Fault, Layout, PartitionId, ServerIndex};
use pario_net::greeting::{Secret, nonce};
use pario_net::stream::Address;
use pario_server::store::{MemoryDisk, SharedFileStore};
use pario_server::{Connect, NamesSpec, SchedulerSpec, Server, ServerSpec};
use pario_sys::process::fork_generation;
use serde::{Deserialize, Serialize};

use super::companions::Others;
use super::options::SharedOptions;
use super::{Cooperation, Own, Role};
use crate::client::{Application, Mount, MountSpec, Way};
use crate::collective::{network, own_addresses};
use crate::connect::ByAddress;
use crate::error::Result;
use crate::group::Group;
use crate::tier::{choose, decode, encode, exchange};

/// The partition's name, for messages.
const NAME: &str = "cooperative cache";
/// Where names are, in a file system that is memory of one process.
const NAMES: &str = "/names";
/// All that names may take there.
const NAMES_BYTES_MAX: u64 = 64 << 20;

/// What makes new servers.
#[derive(Serialize, Deserialize)]
struct Seed {
    id: [u8; 16],
    secret: [u8; 32],
}

/// What a member knows before.
#[derive(Serialize, Deserialize)]
struct Knows {
    cooperations: Vec<[u8; 16]>,
    /// Tells hosts apart.
    network: String,
}

/// Where a new server listens, or why there is none.
#[derive(Serialize, Deserialize, Default)]
struct Started {
    unix: Option<Vec<u8>>,
    tcp: Vec<SocketAddr>,
    failed: Option<String>,
}

impl Cooperation {
    /// The group's servers; collective.
    pub(super) fn of(group: &Arc<dyn Group>, options: &SharedOptions) -> Result<Arc<Cooperation>> {
        let role = Role::of(group.as_ref());
        let known = Cooperation::known(&role);
        let cooperations = known.iter().map(|one| one.id.0).collect();
        let all: Vec<Knows> = exchange(group.as_ref(), &Knows { cooperations, network: network() })?;
        let common = |id: &&[u8; 16]| all.iter().all(|knows| knows.cooperations.contains(*id));
        let found = all.first().and_then(|first| first.cooperations.iter().find(common));
        let one_host = all.iter().all(|knows| knows.network == all[0].network && !knows.network.is_empty());
        if let Some(cooperation) = known.into_iter().find(|one| Some(&one.id.0) == found) {
            if let Some(own) = &cooperation.own {
                own.store.set_cache_bytes(options.cache_bytes);
                own.store.set_write_behind(options.write_behind);
            }
            return Ok(cooperation);
        }
        let made = Arc::new(make(group, role, options, one_host)?);
        made.remember();
        Ok(made)
    }
}

fn make(group: &Arc<dyn Group>, role: Role, options: &SharedOptions, one_host: bool) -> Result<Cooperation> {
    let id: [u8; 32] = nonce();
    let mut seed = Seed { id: [0; 16], secret: Secret::random().0 };
    seed.id.copy_from_slice(&id[..16]);
    let seed: Seed = decode(&group.broadcast(0, &encode(&seed)?)?)?;
    let aggregators = choose(group.as_ref(), None);
    let place = aggregators.iter().position(|rank| *rank == group.rank());
    let far = (0..group.size()).any(|rank| group.node_of(rank) != group.node_of(group.rank()));
    let listen = far.then_some(one_host);
    let started = place.map(|place| start(&seed, (place, aggregators.len()), options, listen));
    let (own, told) = match started {
        None => (None, Started::default()),
        Some(Ok((own, told))) => (Some(own), told),
        Some(Err(fault)) => (None, Started { failed: Some(fault.to_string()), ..Started::default() }),
    };
    let told: Vec<Started> = exchange(group.as_ref(), &told)?;
    let failed = told.iter().enumerate().find_map(|(rank, told)| Some((rank, told.failed.as_ref()?)));
    if let Some((rank, why)) = failed {
        let text = format!("rank {rank} could not start its server of the cooperative cache: {why}");
        return Err(Fault::new(Code::Io, text).into());
    }
    let here = |rank: usize| group.node_of(rank) == group.node_of(group.rank());
    let servers = aggregators.iter().map(|rank| addresses(&told[*rank], here(*rank))).collect();
    let connect: Arc<dyn Connect> = Arc::new(ByAddress { servers });
    if let Some(own) = &own {
        own.server.set_peers(Arc::clone(&connect));
    }
    let application = Application::own();
    group.agree(application.as_ref().map(|_| ()).map_err(Clone::clone))?;
    let spec = MountSpec {
        name: NAME.into(),
        partition: PartitionId(seed.id),
        way: Way { secret: Secret(seed.secret), connect },
        servers: aggregators.len(),
        locate: None,
        outbox_bytes: 0,
        method: crate::partition::choices::Method::Auto,
        tied: None,
        application: application?,
    };
    if let Some(own) = &own {
        let others = Others::new(Mount::new(spec.clone()), aggregators.clone());
        own.store.set_companions(Arc::new(others));
    }
    let mount = Mount::new(spec);
    mount.serve_plain_files();
    Ok(Cooperation { id: PartitionId(seed.id), role, aggregators, mount, own, open: Mutex::default() })
}

/// Addresses by which a server is reached: its memory is shared only on its own node.
fn addresses(started: &Started, here: bool) -> Vec<Address> {
    let unix = started.unix.as_ref().filter(|_| here);
    let unix = unix.map(|name| Address::Unix(PathBuf::from(OsString::from_vec(name.clone()))));
    unix.into_iter().chain(started.tcp.iter().copied().map(Address::Tcp)).collect()
}

/// Starts the server of this member. `listen`: members of other nodes must reach it, and whether all are on one host.
fn start(
    seed: &Seed,
    (place, servers): (usize, usize),
    options: &SharedOptions,
    listen: Option<bool>,
) -> std::result::Result<(Own, Started), Fault> {
    let too_many = |_| Fault::new(Code::TooMany, format!("{servers} nodes"));
    let index = ServerIndex(u16::try_from(place).map_err(too_many)?);
    let count = u16::try_from(servers).map_err(too_many)?;
    let defaults = Layout::new(STRIPE_BYTES_DEFAULT, count, 0, count)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
    let store = Arc::new(SharedFileStore::new(options.cache_bytes)?);
    store.set_write_behind(options.write_behind);
    let id = PartitionId(seed.id);
    let unix = [b"\0pario-cache-", id.to_string().as_bytes(), format!("-{index}").as_bytes()].concat();
    let bind = listen.map(|one_host| if one_host { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED });
    let names = || NamesSpec {
        dir: NAMES.into(),
        disk: Arc::new(MemoryDisk::new(Path::new(NAMES), NAMES_BYTES_MAX)),
        defaults,
    };
    let server = Server::start(ServerSpec {
        partition: id,
        name: NAME.into(),
        index,
        servers,
        secret: Secret(seed.secret),
        store: Arc::<SharedFileStore>::clone(&store),
        volatile: true,
        // Which files it lends is the store's affair.
        lends: servers == 1,
        lends_writing: servers == 1,
        names: (index == ServerIndex::MANAGER).then(names),
        outbox_bytes: OUTBOX_BYTES_DEFAULT as u64,
        transfer_bytes: 1 << 20,
        lives: None,
        take_before_read: false,
        scheduler: SchedulerSpec::default(),
        unix: Some(PathBuf::from(OsString::from_vec(unix.clone()))),
        tcp: bind.map(|bind| SocketAddr::new(IpAddr::V4(bind), 0)),
    })?;
    let tcp = server.tcp_address().map_or_else(Vec::new, |at| reachable(at, listen == Some(true)));
    let own = Own { index, server, store, fork: fork_generation() };
    Ok((own, Started { unix: Some(unix), tcp, failed: None }))
}

/// The addresses of this host by which others come to a listening socket.
fn reachable(at: SocketAddr, one_host: bool) -> Vec<SocketAddr> {
    if one_host {
        return vec![at];
    }
    own_addresses().into_iter().map(|address| SocketAddr::new(IpAddr::V4(address), at.port())).collect()
}
