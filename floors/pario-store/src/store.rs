//! The trait that every store implements, and its types.

use std::ops::Range;
use std::os::fd::OwnedFd;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;
use serde::Serialize;

use crate::checksummed::GranuleSum;
use crate::error::StoreError;
use crate::hooks::CacheHooks;

/// A container of objects. Calls come from several threads; calls on one object may overlap in time, and overlapping writes then leave
/// the bytes of either.
///
/// A call on an object concurrent with a `truncate` or `remove` of its inode acts before or after it, never on its result.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Writes the pieces one after the other from `at` on; makes and extends the object. All of it, or an error.
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError>;

    /// Writes pieces that ascend and do not overlap, each at its offset, and no byte between them; makes and extends the object. All of
    /// it, or an error.
    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        let write = |piece: &Scattered<'_>| {
            self.write(object, LocalOffset(piece.at), &[MemoryPiece::from(piece.bytes)])
        };
        pieces.iter().try_for_each(write)
    }

    /// Fills `target` up to the object's end; returns how many bytes there were. Holes are zeros; a missing object has none.
    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError>;

    /// The object's length: one past the last byte written since the last truncation. `None`: there is no such object.
    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError>;

    /// The largest length written, if recorded: a shorter object was truncated by another program, and reading the lost bytes is an
    /// error. `None`: not recorded, or there is no such object.
    fn marked(&self, _object: ObjectId) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// Compares the granules of a range with their checksums. `None`: the store keeps none.
    fn verify(&self, _object: ObjectId, _range: Range<u64>) -> Result<Option<Verified>, StoreError> {
        Ok(None)
    }

    /// Gives the inode's object the generation `to`, truncated to at most `bytes`. If `to` exists already it is only truncated; if
    /// neither exists, nothing happens. A repetition completes it; afterwards `from` does not exist.
    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError>;

    /// Removes the object; a missing one is no error.
    fn remove(&self, object: ObjectId) -> Result<(), StoreError>;

    /// Writes back the store's own cache of the object. Nothing to do without a cache.
    fn flush(&self, object: ObjectId) -> Result<(), StoreError>;

    /// Flushes the object and its name to stable storage; a missing one is no error.
    fn sync(&self, object: ObjectId) -> Result<(), StoreError>;

    /// Flushes everything to stable storage, removals too.
    fn sync_all(&self) -> Result<(), StoreError>;

    /// A descriptor by which clients read or write the object directly; a loan for writing makes the object.
    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError>;

    /// The first `limit` objects after `after`, in ascending order, with their lengths. Fewer than `limit`: the last page. Objects that
    /// exist throughout appear once; others may or may not.
    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError>;

    /// Capacity and free space.
    fn space(&self) -> Result<Space, StoreError>;

    /// Counters, and the present contents of the cache.
    fn stats(&self) -> StoreStats;

    /// An operation that only this kind of store has, in bytes that only it defines; returns the bytes of its result.
    fn call(&self, _operation: &[u8]) -> Result<Vec<u8>, StoreError> {
        Err(StoreError::Unsupported { what: "this store has no operations of its own".to_owned() })
    }

    /// The store's hooks, if it is a cache above other servers.
    fn hooks(&self) -> Option<&dyn CacheHooks> {
        None
    }
}

/// Purpose of a lent descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LendAccess {
    /// Reading only.
    Read,
    /// Reading and writing; a missing object is created.
    Write,
}

/// The answer to [`Store::lend`].
#[derive(Debug)]
pub enum Lent {
    /// For positioned calls only. It stays valid after the object was removed or truncated; the lease limits its use.
    Descriptor(OwnedFd),
    /// The same, with the table of its checksums: the borrower verifies what it reads, and reads mismatching bytes through the store.
    Summed {
        /// The object.
        descriptor: OwnedFd,
        /// The table.
        sums: OwnedFd,
    },
    /// There is no such object to read.
    NoObject,
    /// This store lends nothing: read and write through the store.
    NotLent,
}

/// Result of a comparison of stored bytes with their checksums.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Granules that match.
    pub right: u64,
    /// Granules with bytes, but without a checksum.
    pub unknown: u64,
    /// Offsets of damaged granules in the object.
    pub wrong: Vec<u64>,
}

impl Verified {
    /// Counts the granule at `at`, which has these bytes.
    pub(crate) fn count(&mut self, at: u64, sum: GranuleSum, bytes: &[u8]) {
        match sum {
            GranuleSum::Known(_) if sum.allows(bytes) => self.right += 1,
            GranuleSum::Known(_) | GranuleSum::Damaged => self.wrong.push(at),
            // A hole that was never written has no bytes to check.
            GranuleSum::None if bytes.iter().all(|byte| *byte == 0) => {}
            GranuleSum::None | GranuleSum::Unknown => self.unknown += 1,
        }
    }
}

/// Counters since the store was opened, and the present contents of its cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StoreStats {
    /// Read calls.
    pub reads: u64,
    /// Bytes they returned.
    pub read_bytes: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Sync calls.
    pub syncs: u64,
    /// Blocks found in the store's own cache.
    pub hits: u64,
    /// Blocks not found there.
    pub misses: u64,
    /// Bytes of memory that the cache holds now.
    pub cached_bytes: u64,
    /// Dirty bytes among them.
    pub dirty_bytes: u64,
    /// Bytes written back from the cache.
    pub staged_bytes: u64,
    /// Calls of these write-backs: bytes per call shows how well blocks were coalesced.
    pub staged_writes: u64,
}
