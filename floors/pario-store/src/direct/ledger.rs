//! Index of the cache: its blocks, in the order of their last use and in the order in which they became dirty.
//!
//! Never: touches a block's bytes or the disk; waits. Always: a slot is in `by_use` (clean) or in `by_dirt` (dirty), never in both; a
//! block in use has more references than its slot.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use pario_core::ObjectId;
use pario_sys::AlignedBuffer;

use super::block::DirectBlock;
use super::object::DirectObject;

pub(super) type SharedDirectBlock = Arc<Mutex<DirectBlock>>;

/// Blocks of one object with their indices, in order.
pub(super) type DirectBlocks = Vec<(u64, SharedDirectBlock)>;

/// Entries without blocks that are kept before a sweep.
const IDLE_OBJECTS_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DirectKey {
    pub(super) object: ObjectId,
    pub(super) index: u64,
}

#[derive(Debug, Default)]
pub(super) struct DirectLedger {
    objects: BTreeMap<ObjectId, ObjectEntry>,
    by_use: BTreeMap<u64, DirectKey>,
    by_dirt: BTreeMap<u64, DirectKey>,
    stamps: u64,
    dirty_bytes: u64,
}

#[derive(Debug)]
struct ObjectEntry {
    object: Arc<DirectObject>,
    slots: BTreeMap<u64, DirectSlot>,
}

#[derive(Debug)]
struct DirectSlot {
    block: SharedDirectBlock,
    sequence: u64,
    dirty_bytes: Option<u64>,
}

impl DirectLedger {
    pub(super) fn blocks(&self) -> usize {
        self.by_use.len() + self.by_dirt.len()
    }

    pub(super) fn dirty_blocks(&self) -> usize {
        self.by_dirt.len()
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    pub(super) fn object(&self, id: ObjectId) -> Option<Arc<DirectObject>> {
        self.objects.get(&id).map(|entry| Arc::clone(&entry.object))
    }

    pub(super) fn objects_with_dirt(&self) -> Vec<ObjectId> {
        let dirty = |entry: &&ObjectEntry| entry.slots.values().any(|slot| slot.dirty_bytes.is_some());
        self.objects.values().filter(dirty).map(|entry| entry.object.id).collect()
    }

    pub(super) fn insert_object(&mut self, object: Arc<DirectObject>) {
        if self.blocks() + IDLE_OBJECTS_MAX < self.objects.len() {
            self.objects.retain(|_, entry| !entry.is_idle());
        }
        let before = self.objects.insert(object.id, ObjectEntry { object, slots: BTreeMap::new() });
        assert!(before.is_none(), "an object has one entry");
    }

    /// Removes the object, with all its blocks.
    pub(super) fn take_object(&mut self, id: ObjectId) -> Option<(Arc<DirectObject>, DirectBlocks)> {
        let entry = self.objects.remove(&id)?;
        let blocks = entry.slots.into_iter().map(|(index, slot)| {
            match slot.dirty_bytes {
                Some(bytes) => {
                    self.by_dirt.remove(&slot.sequence);
                    self.dirty_bytes -= bytes;
                }
                None => _ = self.by_use.remove(&slot.sequence),
            }
            (index, slot.block)
        });
        let blocks = blocks.collect();
        Some((entry.object, blocks))
    }

    /// The block, if it is cached; marks it as used now.
    pub(super) fn pin(&mut self, key: DirectKey) -> Option<SharedDirectBlock> {
        let slot = self.objects.get_mut(&key.object)?.slots.get_mut(&key.index)?;
        if slot.dirty_bytes.is_none() {
            self.stamps += 1;
            self.by_use.remove(&slot.sequence);
            self.by_use.insert(self.stamps, key);
            slot.sequence = self.stamps;
        }
        Some(Arc::clone(&slot.block))
    }

    /// Adds a clean block; returns the existing one if there is one.
    pub(super) fn add(&mut self, key: DirectKey, block: DirectBlock) -> SharedDirectBlock {
        if let Some(there) = self.pin(key) {
            return there;
        }
        self.stamps += 1;
        let block = Arc::new(Mutex::new(block));
        let slot = DirectSlot { block: Arc::clone(&block), sequence: self.stamps, dirty_bytes: None };
        let entry = self.objects.get_mut(&key.object).expect("blocks are added to objects in use");
        entry.slots.insert(key.index, slot);
        self.by_use.insert(self.stamps, key);
        block
    }

    /// Sets the number of dirty bytes of the block; call it while holding the block.
    pub(super) fn set_dirty(&mut self, key: DirectKey, bytes: u64) {
        let entry = self.objects.get_mut(&key.object).expect("the object is in use");
        let slot = entry.slots.get_mut(&key.index).expect("the block is in use");
        self.dirty_bytes += bytes;
        self.dirty_bytes -= slot.dirty_bytes.unwrap_or(0);
        let now = (0 < bytes).then_some(bytes);
        if slot.dirty_bytes.is_some() != now.is_some() {
            let (from, to) = match now {
                Some(_) => (&mut self.by_use, &mut self.by_dirt),
                None => (&mut self.by_dirt, &mut self.by_use),
            };
            from.remove(&slot.sequence);
            self.stamps += 1;
            to.insert(self.stamps, key);
            slot.sequence = self.stamps;
        }
        slot.dirty_bytes = now;
    }

    /// Evicts the least recently used clean block that is not in use; its memory can be reused.
    pub(super) fn evict(&mut self) -> Option<AlignedBuffer> {
        let unused =
            |key: &&DirectKey| Arc::strong_count(&self.objects[&key.object].slots[&key.index].block) == 1;
        let key = *self.by_use.values().find(unused)?;
        let entry = self.objects.get_mut(&key.object)?;
        let slot = entry.slots.remove(&key.index)?;
        self.by_use.remove(&slot.sequence);
        if entry.is_idle() {
            self.objects.remove(&key.object);
        }
        let block = Arc::into_inner(slot.block)?;
        Some(block.into_inner().expect("a panic while holding a block stops everything").data)
    }

    /// The block that has been dirty longest, among the objects that `passes` accepts.
    pub(super) fn oldest_dirty(
        &self,
        passes: impl Fn(&DirectObject) -> bool,
    ) -> Option<(Arc<DirectObject>, u64)> {
        self.by_dirt.values().find_map(|key| {
            let object = &self.objects[&key.object].object;
            passes(object).then(|| (Arc::clone(object), key.index))
        })
    }

    /// The dirty blocks of an object within `indices`, in order.
    pub(super) fn dirty_within(&self, object: ObjectId, indices: Range<u64>) -> DirectBlocks {
        let Some(entry) = self.objects.get(&object) else { return Vec::new() };
        let slots = entry.slots.range(indices).filter(|(_, slot)| slot.dirty_bytes.is_some());
        slots.map(|(index, slot)| (*index, Arc::clone(&slot.block))).collect()
    }

    /// The dirty blocks adjacent to `index`, with itself, at most `limit`, in order.
    pub(super) fn dirty_around(&self, object: ObjectId, index: u64, limit: u64) -> DirectBlocks {
        let near = self.dirty_within(object, index.saturating_sub(limit - 1)..index.saturating_add(limit));
        let Some(own) = near.iter().position(|(at, _)| *at == index) else { return Vec::new() };
        let (mut first, mut end) = (own, own + 1);
        while 0 < first && near[first - 1].0 + 1 == near[first].0 {
            first -= 1;
        }
        while end < near.len() && near[end - 1].0 + 1 == near[end].0 {
            end += 1;
        }
        // Prefer preceding blocks: they are usually older, and a run that starts early ends in one write.
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let first = first.max((own + 1).saturating_sub(limit));
        near[first..end.min(first + limit)].to_vec()
    }
}

impl ObjectEntry {
    /// It can be dropped: a new one can be made from the disk.
    fn is_idle(&self) -> bool {
        self.slots.is_empty() && Arc::strong_count(&self.object) == 1 && !self.object.has_error()
    }
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId};

    use super::*;

    const OBJECT: ObjectId = ObjectId { inode: InodeId(1), generation: Generation(0) };

    fn key(index: u64) -> DirectKey {
        DirectKey { object: OBJECT, index }
    }

    fn ledger(indices: &[u64]) -> DirectLedger {
        let mut ledger = DirectLedger::default();
        ledger.insert_object(Arc::new(DirectObject::new(OBJECT, 0)));
        for index in indices {
            ledger.add(key(*index), DirectBlock::new(None));
        }
        ledger
    }

    fn indices(blocks: &[(u64, SharedDirectBlock)]) -> Vec<u64> {
        blocks.iter().map(|(index, _)| *index).collect()
    }

    #[test]
    fn clean_and_unused_blocks_go_oldest_first() {
        let mut ledger = ledger(&[0, 1, 2, 3]);
        ledger.set_dirty(key(0), 10);
        let used = ledger.pin(key(1)).unwrap();
        assert!(ledger.evict().is_some());
        assert!(ledger.pin(key(2)).is_none());
        assert!(ledger.evict().is_some());
        assert!(ledger.evict().is_none(), "0 is dirty and 1 is in use");
        drop(used);
        assert!(ledger.evict().is_some());
        assert_eq!((ledger.blocks(), ledger.dirty_blocks(), ledger.dirty_bytes()), (1, 1, 10));
        ledger.set_dirty(key(0), 0);
        assert!(ledger.evict().is_some());
        assert_eq!((ledger.blocks(), ledger.dirty_bytes()), (0, 0));
        assert!(ledger.object(OBJECT).is_none(), "an object without blocks is not kept");
    }

    #[test]
    fn oldest_dirt_first_and_its_neighbours_with_it() {
        let mut ledger = ledger(&[1, 2, 3, 4, 6, 7]);
        for index in [4, 6, 2, 3, 7] {
            ledger.set_dirty(key(index), 1);
        }
        // More dirty bytes in a dirty block do not make it younger.
        ledger.set_dirty(key(4), 9);
        assert_eq!(ledger.oldest_dirty(|_| true).map(|(_, index)| index), Some(4));
        assert_eq!(ledger.dirty_bytes(), 13);
        assert_eq!(indices(&ledger.dirty_around(OBJECT, 4, 16)), [2, 3, 4]);
        assert_eq!(indices(&ledger.dirty_around(OBJECT, 4, 2)), [3, 4]);
        assert_eq!(indices(&ledger.dirty_around(OBJECT, 2, 2)), [2, 3]);
        assert_eq!(indices(&ledger.dirty_around(OBJECT, 1, 2)), []);
        let (_, blocks) = ledger.take_object(OBJECT).unwrap();
        assert_eq!(indices(&blocks), [1, 2, 3, 4, 6, 7]);
        assert_eq!(
            (ledger.blocks(), ledger.dirty_bytes(), ledger.oldest_dirty(|_| true).is_none()),
            (0, 0, true)
        );
    }
}
