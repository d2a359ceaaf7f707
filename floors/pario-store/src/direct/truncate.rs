//! Truncation and removal of objects with cached blocks.
//!
//! Always: the object's gate is closed first and a new object replaces it, so that an operation on the old object never touches the new
//! one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::ObjectId;

use super::block::BLOCK_BYTES;
use super::cache::{DirectCache, start_of};
use super::ledger::{DirectBlocks, DirectKey};
use super::object::DirectObject;
use crate::error::{Doing, StoreError};
use crate::sync::lock;

impl DirectCache {
    /// See [`crate::store::Store::truncate`].
    pub(super) fn truncate(&self, from: ObjectId, to: ObjectId, bytes: u64) -> Result<(), StoreError> {
        let _names = lock(&self.names);
        let to_was_there = self.directory.length(to)?.is_some();
        let old = self.close(from);
        let kept = if from == to || !to_was_there { old } else { self.close(to) };
        let cut = self.directory.truncate(from.inode, from.generation, to.generation, bytes);
        self.freed.fetch_add(1, Ordering::AcqRel);
        let Some((object, blocks)) = kept else { return cut };
        let (id, bytes) = match &cut {
            Ok(()) => (to, bytes),
            // Half done at worst: cached blocks belong to the name that the object has now, and a repetition truncates it.
            Err(_) if self.directory.length(to).is_ok_and(|there| there.is_some()) => (to, u64::MAX),
            Err(_) => (from, u64::MAX),
        };
        self.reopen(id, &object, blocks, bytes);
        cut.and_then(|()| self.lengthen(to, object.length().min(bytes)))
    }

    /// Extends the file if the truncation dropped dirty bytes: no dirty byte is left that would carry the length to the disk.
    fn lengthen(&self, id: ObjectId, length: u64) -> Result<(), StoreError> {
        self.on_disk(id, Doing::Writing, 0..length, |open| {
            if open.plain.length()? < length { open.plain.set_len(length) } else { Ok(()) }
        })
    }

    pub(super) fn remove(&self, id: ObjectId) -> Result<(), StoreError> {
        let _names = lock(&self.names);
        let closed = self.close(id);
        let removed = self.directory.remove(id);
        self.freed.fetch_add(1, Ordering::AcqRel);
        if let (Err(_), Some((object, blocks))) = (&removed, closed) {
            self.reopen(id, &object, blocks, u64::MAX);
        }
        removed
    }

    /// Waits for the object's operations, refuses new ones, and removes it from the cache.
    fn close(&self, id: ObjectId) -> Option<(Arc<DirectObject>, DirectBlocks)> {
        let object = lock(&self.ledger).object(id)?;
        object.gate.close();
        lock(&self.ledger).take_object(id)
    }

    /// Puts the blocks back under a new object, truncated to `bytes`.
    fn reopen(&self, id: ObjectId, old: &DirectObject, blocks: DirectBlocks, bytes: u64) {
        let object = Arc::new(DirectObject::new(id, old.length().min(bytes)));
        object.inherit_error(old);
        let mut ledger = lock(&self.ledger);
        ledger.insert_object(object);
        for (index, shared) in blocks {
            let start = start_of(index);
            if bytes <= start {
                continue;
            }
            let block = Arc::into_inner(shared).expect("no block is in use behind a closed gate");
            let mut block = block.into_inner().expect("another thread panicked while it held this lock");
            if bytes - start < BLOCK_BYTES as u64 {
                block.cut(usize::try_from(bytes - start).expect("within a block"));
            }
            let (key, dirty_bytes) = (DirectKey { object: id, index }, block.dirty_bytes());
            ledger.add(key, block);
            ledger.set_dirty(key, dirty_bytes);
        }
    }
}
