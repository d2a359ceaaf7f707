//! Pario, an ad-hoc parallel I/O system: the public Rust interface.
//!
//! ```
//! let partition = pario::Partition::in_process(4)?;           // four servers in this process
//! partition.create_dir("run1")?;
//! let file = partition.create("run1/field")?;
//! file.write_at(0, b"hello")?;
//! file.close()?;
//! assert_eq!(partition.metadata("run1/field")?.size, 5);
//! # Ok::<(), pario::Error>(())
//! ```
//! A partition with separate server processes is started with `pario up` (or [`partition`]) and mounted by name.
//!
//! Never: needs an MPI, FUSE or HDF5 installation. Always: an error names server, file and range.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

mod handle;

pub mod client;
pub mod collective;
pub mod containers;
pub mod distant;
pub mod environment;
mod fleet;
pub mod group;
pub mod health;
pub mod names;
pub mod orders;
pub mod partition;
pub mod posix;
pub mod start;
pub mod team;
pub mod transfer;

mod bound;
mod connect;
mod embed;
mod error;
mod repair;
mod serve;
mod stopping;

pub use bound::Bound;
pub use client::{
    Application, Counts, File, FoundRecord, LeaseObserver, LockCancel, LockHolder, LockOptions, OpenOptions,
    Pending, PendingLock, RangeLock, ReadDir, RecordLocks, RecordMode, RecordWait,
};
pub use collective::{GroupFile, Hints, Seek};
pub use connect::ByAddress;
pub use distant::{Distant, DistantOptions, SharedFile, SharedFileOptions};
pub use embed::{EmbedOptions, EmbedStore, EmbedTransport};
pub use error::{Error, Result};
pub use file_cache::from_env as cache_from_env;
pub use file_cache::{CacheOptions, Placement, open_cached};
pub use fleet::file_cache;
use fleet::node_cache;
pub use group::{Alone, Group, LocalGroup, ThreadGroup};
pub use handle::Partition;
pub use node_cache::TierStats;
pub use partition::choices::Method;
pub use team::{TeamFile, TeamMember, TeamOptions};

/// Datatypes and views, for [`GroupFile::set_view`].
pub use pario_view as view;
pub use pario_view::{Datatype, Elements, View};

/// The clock of all waits in this crate, for the faces.
pub use pario_sys::MonotonicClock;
/// Free memory of this machine, for tools that measure.
pub use pario_sys::backing;
/// Directories by their descriptors, and those owned by the user.
pub use pario_sys::dir;
/// Byte-range locks of plain files (`fcntl`).
pub use pario_sys::file_lock;
/// Differs in a forked child, for the handle tables of the faces.
pub use pario_sys::fork_generation;
/// The name of this machine in greetings.
pub use pario_sys::process::host_name;

/// Base types of this interface.
pub use pario_core as core;
/// Messages to servers, for tools such as `pario doctor`.
pub use pario_net::message;

/// The scheduler of a server's store.
pub use pario_server::SchedulerSpec;
/// Counters of the server of a file cache.
pub use pario_server::store::CacheStats;
pub use pario_server::stores::Checksums;
