//! The export: a partition through NFS version 3, for machines that run nothing of Pario.
//!
//! ```text
//!  export (listener) ─► connection ─► rpc: record, head of the call ─► dispatch ─► a procedure ─► semantics
//! ```
//! NFS and MOUNT share one TCP port, and no rpcbind is needed. Never: locks (NLM is not served: clients mount with `nolock`); an identity
//! that is more than claimed, so the export listens on the loopback interface unless networks are allowed by name. Always: a record that is
//! malformed ends its connection at most; a handle stays valid across restarts of the export and of the partition.

mod allow;
mod attributes;
mod connection;
mod cookies;
mod creating;
mod data;
mod dispatch;
mod export;
mod exported;
mod handle;
mod listing;
mod mounting;
mod names;
mod objects;
mod open_files;
mod permission;
mod replies;
mod rpc;
mod status;
mod window;
mod xdr;

pub use allow::{AllowedNetwork, NetworkError};
pub use export::{Export, ExportError, ExportOptions};

/// Version of NFS and of MOUNT.
const NFS_PROTOCOL: u32 = 3;
/// The largest read, write or listing.
const DATA_BYTES_MAX: usize = 1 << 20;
/// A longer name than any that exists is read, so that it is refused as too long and not as malformed.
const NAME_BYTES_READ: usize = 4096;
