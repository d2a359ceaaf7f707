//! A partition with servers that are threads of this process: for tests, for embedding, and for a first try.

use std::path::PathBuf;
use std::sync::Arc;

use pario_core::limits::{OUTBOX_BYTES_DEFAULT, STRIPE_BYTES_DEFAULT};
use pario_core::{Code, Fault, Layout, PartitionId, ServerIndex};
use pario_net::greeting::{Secret, nonce};
use pario_net::protect::Protect;
use pario_net::stream::Address;
use pario_server::stores::{Checksums, StoreChoice, names_in};
use pario_server::{Connect, SchedulerSpec, Server, ServerIdentity, ServerSpec};

use pario_sys::dir::{Missing, open_own, scratch, temporary_path};
use pario_sys::process::fork_generation;

use crate::client::{Application, Endpoint, MountSpec};
use crate::connect::{ByAddress, InProcess};
use crate::error::Result;

/// Transport between this process and its own servers; the data path differs as it does between processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EmbedTransport {
    /// A pair of unnamed sockets.
    #[default]
    InProcess,
    /// A socket file and shared memory, as between processes of one node.
    Unix,
    /// TCP on loopback, as between nodes, without protection.
    Tcp,
    /// TCP on loopback, protected as between nodes.
    TcpProtected,
}

impl EmbedTransport {
    fn is_tcp(self) -> bool {
        matches!(self, EmbedTransport::Tcp | EmbedTransport::TcpProtected)
    }

    fn protect(self) -> Protect {
        match self {
            EmbedTransport::TcpProtected => Protect::All,
            EmbedTransport::InProcess | EmbedTransport::Unix | EmbedTransport::Tcp => Protect::None,
        }
    }
}

/// Store of the embedded servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EmbedStore {
    /// Memory.
    #[default]
    Memory,
    /// Plain files.
    Files,
    /// Plain files without the kernel's page cache.
    Direct,
    /// Containers: writes are appended to logs.
    Log,
}

/// A partition inside this process.
#[derive(Clone, Debug)]
pub struct EmbedOptions {
    /// Number of servers.
    pub servers: u16,
    /// Default block size of files.
    pub stripe_bytes: u64,
    /// The store.
    pub store: EmbedStore,
    /// The transport.
    pub transport: EmbedTransport,
    /// Directory of the files; if `None`, a temporary directory that is removed at the end.
    pub dir: Option<PathBuf>,
    /// Each client's outbox.
    pub outbox_bytes: usize,
    /// Memory of a memory store, or cache of a direct one, per server.
    pub memory_bytes: u64,
    /// The scheduler of each server's store.
    pub scheduler: SchedulerSpec,
    /// Whether checksums of stored bytes are kept; a memory store keeps none.
    pub checksums: Checksums,
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
            checksums: Checksums::Off,
        }
    }
}

/// The running servers; they are stopped in order when the last user is dropped.
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
            // Servers and directory belong to the parent.
            return;
        }
        // The manager sends requests to the others while they end, so it is stopped first; all drain before any is waited for.
        for server in self.servers.iter() {
            server.stop();
        }
        // A connecting thread may hold them for a short time, so this waits for their end, not for their drop.
        for server in self.servers.iter() {
            server.wait_finished();
        }
        if self.temporary
            && let Err(error) = remove(&self.base)
        {
            tracing::warn!(%error, "could not remove {}", self.base.display());
        }
        if self.temporary {
            // The parent directory is removed with its last entry.
            let _ = std::fs::remove_dir(temporary_path());
        }
    }
}

/// Removes a directory that may still be written to: the threads of a server end shortly after the server.
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

/// Starts the servers; returns them and the parameters to mount.
pub(crate) fn start(options: &EmbedOptions) -> Result<(Embedded, MountSpec)> {
    let application = Application::own()?;
    let defaults = Layout::new(options.stripe_bytes, options.servers, 0, options.servers)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
    let temporary = options.dir.is_none();
    let base = match &options.dir {
        Some(dir) => dir.clone(),
        None => scratch("embedded").map_err(crate::error::Error::setup)?,
    };
    open_own(&base, Missing::Make).map_err(crate::error::Error::setup)?;
    let id: [u8; 32] = nonce();
    let mut partition = PartitionId::default();
    partition.0.copy_from_slice(&id[..16]);
    let secret = Secret::random();
    let mut servers = Vec::new();
    let mut addresses = Vec::new();
    for index in 0..options.servers {
        let identity = ServerIdentity {
            partition,
            name: "embedded".into(),
            index: ServerIndex(index),
            servers: usize::from(options.servers),
            secret: secret.clone(),
        };
        let spec = server_spec(options, &base, identity, defaults)?;
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
        EmbedTransport::Unix | EmbedTransport::Tcp | EmbedTransport::TcpProtected => {
            Arc::new(ByAddress { servers: addresses })
        }
    };
    servers.iter().for_each(|server| server.set_peers(Arc::clone(&connect)));
    let mount = MountSpec {
        name: "embedded".into(),
        partition,
        endpoint: Endpoint { secret, connect, protect: options.transport.protect() },
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
    identity: ServerIdentity,
    defaults: Layout,
) -> Result<ServerSpec> {
    let index = identity.index;
    let dir = base.join(format!("server-{index}"));
    std::fs::create_dir_all(&dir).map_err(|error| Fault::from_io(&error, dir.display()))?;
    let unix = (options.transport == EmbedTransport::Unix).then(|| dir.join("socket"));
    let store = match options.store {
        EmbedStore::Memory => StoreChoice::Memory { bytes: options.memory_bytes },
        EmbedStore::Files => StoreChoice::Files { dir },
        EmbedStore::Log => StoreChoice::Log { dir },
        EmbedStore::Direct => {
            StoreChoice::Direct { dir, cache_bytes: options.memory_bytes, high: 0.75, low: 0.5 }
        }
    }
    .open_as(pario_server::stores::real_disk(), options.checksums, None)?;
    Ok(ServerSpec {
        protect: options.transport.protect(),
        names: (index == ServerIndex::MANAGER).then(|| names_in(&base.join("names"), defaults)),
        outbox_bytes: options.outbox_bytes as u64,
        scheduler: options.scheduler.clone(),
        unix,
        tcp: options.transport.is_tcp().then(|| ([127, 0, 0, 1], 0).into()),
        ..ServerSpec::new(identity, store)
    })
}
