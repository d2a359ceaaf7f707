//! The trait that every store implements, and the words it uses.

use std::os::fd::OwnedFd;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::Piece;
use pario_sys::file_map::Scattered;
use serde::Serialize;

use crate::error::StoreError;
use crate::places::Places;

/// A place for objects. Calls come from several threads; calls on one object may overlap in time, and overlapping writes
/// then leave either's bytes.
///
/// A call on an object that runs beside a `truncate` or `remove` of its inode acts before or after it, never on what comes
/// out of it.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Writes the pieces one after the other from `at` on; makes and extends the object. All of it, or an error.
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[Piece<'_>]) -> Result<(), StoreError>;

    /// Writes pieces that ascend and do not overlap, each to its place, and nothing between them; makes and extends the object. All
    /// of it, or an error.
    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        let write =
            |piece: &Scattered<'_>| self.write(object, LocalOffset(piece.at), &[Piece::from(piece.bytes)]);
        pieces.iter().try_for_each(write)
    }

    /// Fills `target` up to the object's end; returns how many bytes there were. Holes are zeros; a missing object has none.
    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError>;

    /// The object's length: one past the last byte ever written since it was cut. `None`: there is no such object.
    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError>;

    /// Gives the inode's object the generation `to`, cut to at most `bytes`. If `to` is there already it is only cut; if
    /// neither is there nothing happens. Repeating it completes it; afterwards there is no `from` any more.
    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError>;

    /// Removes the object; a missing one is fine.
    fn remove(&self, object: ObjectId) -> Result<(), StoreError>;

    /// Moves what the store's own cache holds of the object into what lies below. Nothing to do where there is no cache.
    fn flush(&self, object: ObjectId) -> Result<(), StoreError>;

    /// Puts the object and its name on stable storage; a missing one is fine.
    fn sync(&self, object: ObjectId) -> Result<(), StoreError>;

    /// Puts everything on stable storage, removals too.
    fn sync_all(&self) -> Result<(), StoreError>;

    /// A descriptor by which others read or write the object themselves; asking to write makes the object.
    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError>;

    /// The first `limit` objects after `after`, in ascending order, with their lengths. Fewer than `limit`: those were the
    /// last. Objects that stay all the while appear once; others may or may not.
    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError>;

    /// How much there is and how much is free.
    fn space(&self) -> Result<Space, StoreError>;

    /// What the store has done so far and holds now.
    fn stats(&self) -> StoreStats;

    /// Files whose writes may return before the store has them: one bit for each remainder of an inode divided by 32.
    fn write_behind(&self) -> u32 {
        u32::MAX
    }

    /// Whether what was written to the object counts for everybody. A store that stands on other servers needs their permission.
    fn is_settled(&self, _object: ObjectId) -> bool {
        true
    }

    /// What it answers to other servers of its kind, if blocks have no fixed place there.
    fn places(&self) -> Option<&dyn Places> {
        None
    }

    /// Makes what was written to the object count for everybody; may wait for others.
    fn settle(&self, _object: ObjectId) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What a lent descriptor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LendAccess {
    /// Reading only.
    Read,
    /// Reading and writing; the object is made if it is not there.
    Write,
}

/// The answer to [`Store::lend`].
#[derive(Debug)]
pub enum Lent {
    /// Use it by positioned calls only. It stays valid after the object was removed or cut; leases say when to stop.
    Descriptor(OwnedFd),
    /// There is no such object to read.
    NoObject,
    /// This store lends none: ask it to read and write.
    NotLent,
}

/// Counts since the store was opened, and what its cache holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StoreStats {
    /// Read calls.
    pub reads: u64,
    /// Bytes they returned.
    pub read_bytes: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes they brought.
    pub written_bytes: u64,
    /// Sync calls.
    pub syncs: u64,
    /// Blocks found in the store's own cache.
    pub hits: u64,
    /// Blocks not found there.
    pub misses: u64,
    /// Bytes of memory that the cache holds now.
    pub cached_bytes: u64,
    /// Of these, bytes that are not in the store below yet.
    pub dirty_bytes: u64,
    /// Bytes moved from the cache into the store below.
    pub staged_bytes: u64,
    /// Calls that moved them: staged bytes divided by this is how well blocks were put together.
    pub staged_writes: u64,
}
