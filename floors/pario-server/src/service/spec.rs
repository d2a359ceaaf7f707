//! Configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use pario_core::{Layout, PartitionId, ServerIndex};
use pario_net::greeting::Secret;
use pario_net::protect::Protect;
use pario_store::Store;
use pario_store::disk::Disk;

use crate::drain::RestartLogSpec;
use crate::io_queue::SchedulerSpec;

/// The manager's part of a server.
#[derive(Clone, Debug)]
pub struct NamesSpec {
    /// Directory of names and inodes.
    pub dir: PathBuf,
    /// The disk that holds it.
    pub disk: Arc<dyn Disk>,
    /// Default layout of files.
    pub defaults: Layout,
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The partition's identity.
    pub partition: PartitionId,
    /// The partition's name, for messages.
    pub name: String,
    /// Index of this server.
    pub index: ServerIndex,
    /// Number of servers.
    pub servers: usize,
    /// The partition's secret.
    pub secret: Secret,
    /// Which connections must be protected.
    pub protect: Protect,
    /// Store of its objects.
    pub store: Arc<dyn Store>,
    /// Whether the store's bytes are lost with the process.
    pub volatile: bool,
    /// Whether the store lends descriptors for reading.
    pub lends: bool,
    /// Whether it lends them for writing too.
    pub lends_writing: bool,
    /// The manager's part, on server 0.
    pub names: Option<NamesSpec>,
    /// Size of the outboxes that clients should create.
    pub outbox_bytes: u64,
    /// Data that one message should carry.
    pub transfer_bytes: u32,
    /// Whether a read waits until all records committed before its arrival are drained, and a write by message until the store has
    /// confirmed it. For servers with clients that hold no leases: those of an application's node cache.
    pub drain_before_read: bool,
    /// Order of requests to the store. Under any policy but `fifo` no descriptors are lent: accesses that bypass the server cannot be
    /// ordered.
    pub scheduler: SchedulerSpec,
    /// Restart log for its successor; `None` where clients do not outlive the server.
    pub restart_log: Option<RestartLogSpec>,
    /// Threads for reads, lends and syncs; at least one is started.
    pub pool_threads: usize,
    /// Socket file to listen on.
    pub unix: Option<PathBuf>,
    /// Address to listen on; port 0 picks one.
    pub tcp: Option<SocketAddr>,
}
