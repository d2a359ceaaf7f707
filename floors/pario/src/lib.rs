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
//! A partition that runs as processes of its own is brought up with `pario up` (or [`partition`]) and mounted by name.
//!
//! Never: needs an MPI, FUSE or HDF5 installation. Always: an error names server, file and range.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

mod handle;

pub mod client;
pub mod collective;
pub mod group;
pub mod partition;
pub mod start;

pub mod cooperative;

mod connect;
mod embed;
mod error;
mod serve;
mod tier;

pub use client::{
    Application, Counts, File, LockHolder, LockOptions, OpenOptions, Pending, PendingLock, RangeLock, ReadDir,
};
pub use collective::{GroupFile, Hints, Seek};
pub use connect::ByAddress;
pub use cooperative::from_env as cache_from_env;
pub use cooperative::{Placement, SharedOptions, open_shared};
pub use embed::{EmbedOptions, EmbedStore, EmbedTransport};
pub use error::{Error, Result};
pub use group::{Alone, Group, LocalGroup, ThreadGroup};
pub use handle::Partition;
pub use partition::choices::Method;
pub use tier::TierStats;

/// Datatypes and views, for [`GroupFile::set_view`].
pub use pario_view as view;
pub use pario_view::{Datatype, Elements, View};

/// The clock that all waits here go by, for faces.
pub use pario_sys::MonotonicClock;
/// Free memory of this machine, for tools that measure.
pub use pario_sys::backing;
/// Byte-range locks of plain files, as programs take them that have nothing better.
pub use pario_sys::file_lock;

/// Words that appear in this interface.
pub use pario_core as core;
/// Messages to servers, for tools such as `pario doctor`.
pub use pario_net::message;

/// Which request a server's store gets next.
pub use pario_server::SchedulerSpec;
/// What the server of a cooperative cache has done.
pub use pario_server::store::CacheStats;
