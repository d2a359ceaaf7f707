//! Counters of the file cache, as users see them.

use serde::Serialize;

/// Counters of a cache, and its present size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CacheStats {
    /// Blocks found by reads.
    pub hits: u64,
    /// Blocks fetched from the plain file by reads.
    pub misses: u64,
    /// Blocks prefetched.
    pub read_ahead: u64,
    /// Reads of plain files.
    pub plain_reads: u64,
    /// Bytes read from plain files.
    pub plain_read_bytes: u64,
    /// Writes to plain files.
    pub plain_writes: u64,
    /// Bytes written to plain files.
    pub plain_written_bytes: u64,
    /// Uncached accesses, for lack of memory.
    pub straight: u64,
    /// Claims sent to other servers.
    pub claims: u64,
    /// Accesses carried out by another server, the owner of the blocks.
    pub forwards: u64,
    /// Accesses carried out here for other servers.
    pub visits: u64,
    /// Blocks given back to their homes.
    pub handed_back: u64,
    /// Handover requests sent to other servers.
    pub takes: u64,
    /// Blocks handed over to servers that overwrote them.
    pub passed_on: u64,
    /// Atomic reads completed without a lock.
    pub at_once: u64,
    /// Atomic reads repeated because a block changed meanwhile.
    pub again: u64,
    /// Byte-range locks taken around accesses to plain files.
    pub locks: u64,
    /// Memory of cached blocks.
    pub cached_bytes: u64,
    /// Memory of dirty blocks.
    pub dirty_bytes: u64,
}
