//! The store of the file cache: blocks of plain files cached in memory and written back.
//!
//! An object is this server's part of a plain file on any file system: blocks are distributed over the servers of a group, and each
//! server caches and writes its own. A write is copied into the cache and returns. Dirty bytes are written back when their block has not
//! been written for a while (`write_behind.rs`), when they fill three quarters of the pool, when memory is needed, on sync and on close;
//! the least recently written first, adjacent ones in one vectored write.
//!
//! Placement: fixed (each block cached at its home), first touch, or last writer (`placement/`).
//!
//! Never: two copies of a block, since each has one home or one owner; writes a byte that was not written here; lends descriptors of
//! files with cached blocks; removes or renames the plain file. Always: one pool for all files; memory is reserved before a block is
//! held; an access larger than the pool bypasses it.

mod core;
mod file;
mod flush;
mod placement;
mod plain;
mod pool;
mod read_ahead;
mod stats;
mod store;
mod write_behind;

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod tests;

pub use self::file::CachePlacement;
pub use self::plain::{PlainFileOpening, extend};
pub use self::stats::CacheStats;
pub use self::store::PlainCacheStore;
