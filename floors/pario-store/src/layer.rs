//! Stores around another store that see each call, and delay or refuse it.
//!
//! Never: change the bytes or the objects of the store below. Always: a call that the layer refuses does not reach the store below.

use std::ops::Range;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;

use crate::error::StoreError;
use crate::files::{scattered_bytes, total_bytes};
use crate::store::{LendAccess, Lent, Store, StoreStats, Verified};

/// Operation of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// [`Store::write`] and [`Store::write_scattered`].
    Write,
    /// [`Store::read`].
    Read,
    /// [`Store::length`].
    Length,
    /// [`Store::truncate`].
    Truncate,
    /// [`Store::remove`].
    Remove,
    /// [`Store::flush`].
    Flush,
    /// [`Store::sync`].
    Sync,
    /// [`Store::sync_all`].
    SyncAll,
    /// [`Store::lend`].
    Lend,
    /// [`Store::list`].
    List,
    /// [`Store::space`].
    Space,
}

/// One call of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreCall {
    /// Its operation.
    pub operation: Operation,
    /// Its object, if it has one.
    pub object: Option<ObjectId>,
    /// Bytes of the object from the first to the last that it writes; empty for other operations.
    pub range: Range<u64>,
    /// The number of bytes that it writes.
    pub bytes: u64,
}

impl StoreCall {
    fn new(operation: Operation, object: Option<ObjectId>) -> StoreCall {
        StoreCall { operation, object, range: 0..0, bytes: 0 }
    }
}

/// See the module. Every layer is a [`Store`].
pub trait StoreLayer: Send + Sync + std::fmt::Debug {
    /// The store below.
    fn below(&self) -> &dyn Store;

    /// Before each call; an error is its result.
    fn before(&self, call: &StoreCall) -> Result<(), StoreError>;

    /// After a read of so many bytes.
    fn after_read(&self, _bytes: u64) {}

    /// Whether descriptors for this access are lent.
    fn lends(&self, _access: LendAccess) -> bool {
        true
    }

    /// The space that callers see.
    fn visible_space(&self, space: Space) -> Space {
        space
    }
}

impl<Layer: StoreLayer> Store for Layer {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        let bytes = total_bytes(pieces);
        let range = at.0..at.0.saturating_add(bytes);
        self.before(&StoreCall { range, bytes, ..StoreCall::new(Operation::Write, Some(object)) })?;
        self.below().write(object, at, pieces)
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        let bytes = scattered_bytes(pieces);
        let end = |piece: &Scattered<'_>| piece.at.saturating_add(piece.bytes.len() as u64);
        let range = pieces.first().map_or(0, |first| first.at)..pieces.last().map_or(0, end);
        self.before(&StoreCall { range, bytes, ..StoreCall::new(Operation::Write, Some(object)) })?;
        self.below().write_scattered(object, pieces)
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        self.before(&StoreCall::new(Operation::Read, Some(object)))?;
        let count = self.below().read(object, at, target)?;
        self.after_read(count as u64);
        Ok(count)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.before(&StoreCall::new(Operation::Length, Some(object)))?;
        self.below().length(object)
    }

    fn marked(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.below().marked(object)
    }

    fn verify(&self, object: ObjectId, range: Range<u64>) -> Result<Option<Verified>, StoreError> {
        self.below().verify(object, range)
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let object = ObjectId { inode, generation: from };
        self.before(&StoreCall::new(Operation::Truncate, Some(object)))?;
        self.below().truncate(inode, from, to, bytes)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        self.before(&StoreCall::new(Operation::Remove, Some(object)))?;
        self.below().remove(object)
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.before(&StoreCall::new(Operation::Flush, Some(object)))?;
        self.below().flush(object)
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.before(&StoreCall::new(Operation::Sync, Some(object)))?;
        self.below().sync(object)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.before(&StoreCall::new(Operation::SyncAll, None))?;
        self.below().sync_all()
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        self.before(&StoreCall::new(Operation::Lend, Some(object)))?;
        if self.lends(access) { self.below().lend(object, access) } else { Ok(Lent::NotLent) }
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        self.before(&StoreCall::new(Operation::List, None))?;
        self.below().list(after, limit)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.before(&StoreCall::new(Operation::Space, None))?;
        Ok(self.visible_space(self.below().space()?))
    }

    fn stats(&self) -> StoreStats {
        self.below().stats()
    }

    fn call(&self, operation: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.below().call(operation)
    }
}
