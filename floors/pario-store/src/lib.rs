//! Storage of objects: one trait, several stores, one conformance suite.
//!
//! Never: knows files, views or clients; a store keeps objects. Always: data acknowledged by [`Store::sync`] survives a power cut (if the
//! store is on a disk); every store and wrapper passes [`conformance::all`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod store;

pub mod hooks;

pub mod error;

pub mod files;

pub mod direct;

pub mod checksummed;

pub mod log;

pub mod memory;

pub mod plain_cache;

pub mod placement;

mod directory;
mod listing;
mod lru;
mod marks;
mod names;
mod source;
mod sync;

pub mod cache;
pub mod disk;
pub mod memory_disk;
pub mod ranges;
pub mod real_disk;
pub mod recording;
mod rooted_disk;

pub mod faulty;
pub mod layer;
pub mod throttled;

pub mod conformance;
#[cfg(test)]
mod testing;

pub use checksummed::Checksummed;
pub use direct::{DirectSettings, DirectStore};
pub use disk::{Disk, DiskFile, EntryKind, OpenMode};
pub use error::StoreError;
pub use faulty::Faulty;
pub use files::FilesStore;
pub use hooks::CacheHooks;
pub use layer::{Operation, StoreCall, StoreLayer};
pub use log::{LogContainer, LogError, LogStore, LogWriter};
pub use marks::Life;
pub use memory::MemoryStore;
pub use memory_disk::MemoryDisk;
pub use placement::peers;
pub use placement::peers::{
    AtomicReadReply, Claim, GiveBack, Grant, Handover, HandoverReply, HandoverReport, PeerServers,
    PeerService, PendingAnswer, RemoteAccess,
};
pub use plain_cache::{CacheStats, PlainCacheStore};
pub use real_disk::RealDisk;
pub use recording::RecordingDisk;
pub use rooted_disk::RootedDisk;
pub use store::{LendAccess, Lent, Store, StoreStats, Verified};
pub use throttled::{StoreRate, Throttled};
