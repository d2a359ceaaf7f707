//! Where bytes rest: one trait, several stores, one conformance suite.
//!
//! Never: knows files, views or clients; a store keeps objects. Always: what [`Store::sync`] acknowledged survives a power
//! cut (where the store lies on a disk); every store and wrapper passes [`conformance::all`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod store;

pub mod error;

pub mod files;

pub mod direct;

pub mod memory;

pub mod shared_file;

pub mod places;

pub mod ownership;

mod directory;
mod listing;
mod lru;
mod names;
mod random;
mod source;
mod sync;

pub mod cache;
pub mod disk;
pub mod memory_disk;
pub mod ranges;
pub mod real_disk;
pub mod recording;

pub mod faulty;
pub mod throttled;

pub mod conformance;
#[cfg(test)]
mod testing;

pub use direct::{DirectSettings, DirectStore};
pub use disk::{Disk, DiskFile, EntryKind, OpenMode};
pub use error::StoreError;
pub use faulty::Faulty;
pub use files::FilesStore;
pub use memory::MemoryStore;
pub use memory_disk::MemoryDisk;
pub use places::{Answer, Claim, Companions, GiveBack, Grant, Pass, Places, Take, Taken, Visit, Visited};
pub use real_disk::RealDisk;
pub use recording::RecordingDisk;
pub use shared_file::{CacheStats, SharedFileStore};
pub use store::{LendAccess, Lent, Store, StoreStats};
pub use throttled::{Pace, Throttled};
