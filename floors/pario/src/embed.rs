//! A partition whose servers are threads of this process: for tests, for embedding, and for a first look.

use std::path::PathBuf;
use std::sync::Arc;

use pario_core::limits::{OUTBOX_BYTES_DEFAULT, STRIPE_BYTES_DEFAULT};
use pario_core::{Code, Fault, Layout, PartitionId, ServerIndex};
use pario_net::greeting::{Secret, nonce};
use pario_net::stream::Address;
use pario_server::stores::{StoreChoice, names_in};
use pario_server::{Connect, SchedulerSpec, Server, ServerSpec};

use pario_sys::process::fork_generation;

use crate::client::{Application, MountSpec, Way};
use crate::connect::{ByAddress, InProcess};
use crate::error::Result;

/// How this process and its own servers talk; the data path differs as it does between processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EmbedTransport {
    /// A pair of sockets without a name.
    #[default]
    InProcess,
    /// A socket file and shared memory, as between processes of one node.
    Unix,
    /// TCP on loopback, as between nodes.
    Tcp,
}

/// What kind of store the embedded servers stand on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EmbedStore {
    /// Memory.
    #[default]
    Memory,
    /// Plain files.
    Files,
    /// Plain files past the kernel's cache.
    Direct,
}

/// A partition inside this process.
#[derive(Clone, Debug)]
pub struct EmbedOptions {
    /// Number of servers.
    pub servers: u16,
    /// Block size of files that wish for none.
    pub stripe_bytes: u64,
    /// Where bytes rest.
    pub store: EmbedStore,
    /// How the servers are reached.
    pub transport: EmbedTransport,
    /// Where files rest; a temporary directory, removed at the end, if `None`.
    pub dir: Option<PathBuf>,
    /// Each client's outbox.
    pub outbox_bytes: usize,
    /// Memory of a memory store, or cache of a direct one, per server.
    pub memory_bytes: u64,
    /// Which request each server's store gets next.
    pub scheduler: SchedulerSpec,
}

impl Default for EmbedOptions {
    fn default() -> Self {
        EmbedOptions {
            servers: 1,
            stripe_bytes: STRIPE_BYTES_DEFAULT,
            store: EmbedStore::default(),
            transport: EmbedTransport::default(),
            dir: None,
            outbox_bytes: OUTBOX_BYTES_DEFAULT,
            memory_bytes: 1 << 30,
            scheduler: SchedulerSpec::default(),
        }
    }
}

/// The running servers; they end in order when the last user is gone.
#[derive(Debug)]
pub(crate) struct Embedded {
    servers: Arc<Vec<Server>>,
    base: PathBuf,
    temporary: bool,
    fork: u64,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if self.fork != fork_generation() {
            // Servers and directory are the parent's.
            return;
        }
        // The manager talks to the others while they end, so it goes first; all drain before any is waited for.
        for server in self.servers.iter() {
            server.stop();
        }
        // Somebody may be connecting and hold them for a moment, so their end is waited for, not their drop.
        for server in self.servers.iter() {
            server.wait_finished();
        }
        if self.temporary
            && let Err(error) = remove(&self.base)
        {
            tracing::warn!(%error, "could not remove {}", self.base.display());
        }
    }
}

/// Removes a directory whose last users may still be putting something down: their threads end a moment after their server.
fn remove(base: &std::path::Path) -> std::io::Result<()> {
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    for _ in 0..200 {
        match std::fs::remove_dir_all(base) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !base.exists() => return Ok(()),
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
        // An empty poll is a pause.
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    std::fs::remove_dir_all(base)
}

/// Starts the servers; returns them and how to mount.
pub(crate) fn start(options: &EmbedOptions) -> Result<(Embedded, MountSpec)> {
    let application = Application::own()?;
    let defaults = Layout::new(options.stripe_bytes, options.servers, 0, options.servers)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
    let number = pario_net::greeting::random_number();
    let temporary = options.dir.is_none();
    let base = options
        .dir
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("pario-embedded-{number:016x}")));
    std::fs::create_dir_all(&base).map_err(|error| Fault::from_io(&error, base.display()))?;
    let id: [u8; 32] = nonce();
    let mut partition = PartitionId::default();
    partition.0.copy_from_slice(&id[..16]);
    let secret = Secret::random();
    let mut servers = Vec::new();
    let mut addresses = Vec::new();
    for index in 0..options.servers {
        let spec = server_spec(options, &base, ServerIndex(index), (partition, &secret, defaults))?;
        let unix = spec.unix.clone();
        let server = Server::start(spec)?;
        addresses.push(
            unix.map(Address::Unix).into_iter().chain(server.tcp_address().map(Address::Tcp)).collect(),
        );
        servers.push(server);
    }
    let servers = Arc::new(servers);
    let connect: Arc<dyn Connect> = match options.transport {
        EmbedTransport::InProcess => Arc::new(InProcess { servers: Arc::downgrade(&servers) }),
        EmbedTransport::Unix | EmbedTransport::Tcp => Arc::new(ByAddress { servers: addresses }),
    };
    servers.iter().for_each(|server| server.set_peers(Arc::clone(&connect)));
    let mount = MountSpec {
        name: "embedded".into(),
        partition,
        way: Way { secret, connect },
        servers: usize::from(options.servers),
        locate: None,
        outbox_bytes: options.outbox_bytes,
        method: crate::partition::choices::Method::Auto,
        tied: None,
        application,
    };
    Ok((Embedded { servers, base, temporary, fork: fork_generation() }, mount))
}

fn server_spec(
    options: &EmbedOptions,
    base: &std::path::Path,
    index: ServerIndex,
    shared: (PartitionId, &Secret, Layout),
) -> Result<ServerSpec> {
    let (partition, secret, defaults) = shared;
    let dir = base.join(format!("server-{index}"));
    std::fs::create_dir_all(&dir).map_err(|error| Fault::from_io(&error, dir.display()))?;
    let unix = (options.transport == EmbedTransport::Unix).then(|| dir.join("socket"));
    let store = match options.store {
        EmbedStore::Memory => StoreChoice::Memory { bytes: options.memory_bytes },
        EmbedStore::Files => StoreChoice::Files { dir },
        EmbedStore::Direct => {
            StoreChoice::Direct { dir, cache_bytes: options.memory_bytes, high: 0.75, low: 0.5 }
        }
    }
    .open()?;
    Ok(ServerSpec {
        partition,
        name: "embedded".into(),
        index,
        servers: usize::from(options.servers),
        secret: secret.clone(),
        store: store.store,
        volatile: store.volatile,
        lends: store.lends,
        lends_writing: store.lends_writing,
        names: (index == ServerIndex::MANAGER).then(|| names_in(&base.join("names"), defaults)),
        outbox_bytes: options.outbox_bytes as u64,
        transfer_bytes: 1 << 20,
        lives: None,
        take_before_read: false,
        scheduler: options.scheduler.clone(),
        unix,
        tcp: (options.transport == EmbedTransport::Tcp).then(|| ([127, 0, 0, 1], 0).into()),
    })
}
