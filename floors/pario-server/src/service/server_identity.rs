//! Identity of a server, and the configuration that follows from it and from a store.
//!
//! Always: a field without a value here has a default that is right for a server inside an application: it does not listen, keeps no names and
//! no restart log, and protects connections as [`Protect`] does by default.

use pario_core::limits::OUTBOX_BYTES_DEFAULT;
use pario_core::{PartitionId, ServerIndex};
use pario_net::greeting::Secret;
use pario_net::protect::Protect;

use super::ServerSpec;
use crate::io_queue::SchedulerSpec;
use crate::stores::OpenStore;

/// Default number of threads for reads, lends and syncs.
pub const POOL_THREADS_DEFAULT: usize = 3;
/// Default bytes of data in one message.
const TRANSFER_BYTES_DEFAULT: u32 = 1 << 20;

/// The place of a server in its partition.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
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
}

impl ServerSpec {
    /// A server of that identity above a store, with defaults for all else.
    #[must_use]
    pub fn new(identity: ServerIdentity, store: OpenStore) -> ServerSpec {
        let ServerIdentity { partition, name, index, servers, secret } = identity;
        let OpenStore { store, volatile, lends, lends_writing } = store;
        ServerSpec {
            partition,
            name,
            index,
            servers,
            secret,
            protect: Protect::default(),
            store,
            volatile,
            lends,
            lends_writing,
            names: None,
            outbox_bytes: OUTBOX_BYTES_DEFAULT as u64,
            transfer_bytes: TRANSFER_BYTES_DEFAULT,
            drain_before_read: false,
            scheduler: SchedulerSpec::default(),
            restart_log: None,
            pool_threads: POOL_THREADS_DEFAULT,
            unix: None,
            tcp: None,
        }
    }
}
