//! Index of a cache: its blocks, in the order of their last use, of becoming dirty, and of their last write.
//!
//! Never: touches a block's bytes or the backing store; waits; evicts a block that is dirty or in use. Always: a block is in `by_use`
//! (clean) or in `by_dirt` (dirty), never in both; blocks are locked before the ledger, never after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pario_core::InodeId;

use super::block::Block;

/// A block shared by the cache and its users.
pub type SharedBlock = Arc<Mutex<Block>>;

/// Key of a block: its file, and its index there as the cache's owner counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockKey {
    /// The file.
    pub inode: InodeId,
    /// The block's index.
    pub index: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    slots: BTreeMap<BlockKey, BlockSlot>,
    by_use: BTreeMap<u64, BlockKey>,
    by_dirt: BTreeMap<u64, BlockKey>,
    stamps: u64,
    bytes: u64,
    dirty_bytes: u64,
}

#[derive(Debug)]
struct BlockSlot {
    block: SharedBlock,
    /// Its key in `by_use` or `by_dirt`.
    sequence: u64,
    /// Sequence number of its last use: its key in `by_use` once it is clean.
    used: u64,
    bytes: u64,
    is_dirty: bool,
    /// Written back by write-behind, and not written since.
    is_written_behind: bool,
}

impl Ledger {
    /// Memory of all blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory of the dirty ones.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// The block, made if it is not cached; marks it as used now.
    pub fn pin(&mut self, key: BlockKey, block_bytes: usize) -> SharedBlock {
        self.touch(key).unwrap_or_else(|| self.add(key, Block::new(block_bytes)))
    }

    /// The same; `None` without memory for it.
    pub fn try_pin(&mut self, key: BlockKey, block_bytes: usize) -> Option<SharedBlock> {
        self.touch(key).or_else(|| Some(self.add(key, Block::try_new(block_bytes)?)))
    }

    fn touch(&mut self, key: BlockKey) -> Option<SharedBlock> {
        let slot = self.slots.get_mut(&key)?;
        self.stamps += 1;
        slot.used = self.stamps;
        if !slot.is_dirty {
            self.by_use.remove(&slot.sequence);
            self.by_use.insert(self.stamps, key);
            slot.sequence = self.stamps;
        }
        Some(Arc::clone(&slot.block))
    }

    fn add(&mut self, key: BlockKey, block: Block) -> SharedBlock {
        self.stamps += 1;
        let bytes = block.len() as u64;
        let block = Arc::new(Mutex::new(block));
        let slot = BlockSlot {
            block: Arc::clone(&block),
            sequence: self.stamps,
            used: self.stamps,
            bytes,
            is_dirty: false,
            is_written_behind: false,
        };
        self.slots.insert(key, slot);
        self.by_use.insert(self.stamps, key);
        self.bytes += bytes;
        block
    }

    /// The block, if it is cached.
    #[must_use]
    pub fn find(&self, key: BlockKey) -> Option<SharedBlock> {
        self.slots.get(&key).map(|slot| Arc::clone(&slot.block))
    }

    /// Sets whether the block is dirty; call it while holding the block.
    pub fn set_dirty(&mut self, key: BlockKey, is_dirty: bool) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        if slot.is_dirty == is_dirty {
            return;
        }
        let (from, to, stamp) = if is_dirty {
            self.stamps += 1;
            self.dirty_bytes += slot.bytes;
            (&mut self.by_use, &mut self.by_dirt, self.stamps)
        } else {
            // A write-back is not a use.
            self.dirty_bytes -= slot.bytes;
            (&mut self.by_dirt, &mut self.by_use, slot.used)
        };
        from.remove(&slot.sequence);
        to.insert(stamp, key);
        slot.sequence = stamp;
        slot.is_dirty = is_dirty;
    }

    /// The block was written: it is the newest dirty block; call it while holding the block. Returns whether its last write-behind was
    /// wasted.
    pub fn written(&mut self, key: BlockKey) -> bool {
        self.set_dirty(key, true);
        let Some(slot) = self.slots.get_mut(&key) else { return false };
        if slot.sequence < self.stamps {
            self.stamps += 1;
            self.by_dirt.remove(&slot.sequence);
            self.by_dirt.insert(self.stamps, key);
            slot.sequence = self.stamps;
        }
        std::mem::take(&mut slot.is_written_behind)
    }

    /// The block is clean after a write-behind; call it while holding the block.
    pub fn written_behind(&mut self, key: BlockKey) {
        self.set_dirty(key, false);
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.is_written_behind = true;
        }
    }

    /// Whether the block is clean after a write-behind and was not written since.
    #[must_use]
    pub fn is_written_behind(&self, key: BlockKey) -> bool {
        self.slots.get(&key).is_some_and(|slot| slot.is_written_behind)
    }

    /// The newest sequence number: every later write has a larger one.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.stamps
    }

    /// Evicts clean blocks that are not in use, the least recently used first, down to `limit` bytes, and calls `gone` for each. False if
    /// too many are dirty or in use.
    pub fn shrink_to(&mut self, limit: u64, mut gone: impl FnMut(BlockKey)) -> bool {
        let mut skipped = 0;
        while limit < self.bytes {
            let Some((&stamp, &key)) = self.by_use.range(skipped..).next() else { return false };
            skipped = stamp + 1;
            let unused = self.slots.get(&key).is_some_and(|slot| Arc::strong_count(&slot.block) == 1);
            if unused {
                self.remove(key);
                gone(key);
            }
        }
        true
    }

    /// The block that has been dirty longest, among those that pass.
    #[must_use]
    pub fn oldest_dirty(&self, passes: impl Fn(BlockKey) -> bool) -> Option<BlockKey> {
        self.by_dirt.values().copied().find(|key| passes(*key))
    }

    /// The least recently written dirty block among those that pass, if not written after `mark`.
    #[must_use]
    pub fn quiet(&self, mark: u64, passes: impl Fn(BlockKey) -> bool) -> Option<BlockKey> {
        self.by_dirt.range(..=mark).map(|(_, key)| *key).find(|key| passes(*key))
    }

    /// Whether a file has dirty blocks.
    #[must_use]
    pub fn has_dirty(&self, inode: InodeId) -> bool {
        self.of(inode).any(|(_, slot)| slot.is_dirty)
    }

    /// The dirty blocks of a file, in order.
    #[must_use]
    pub fn dirty(&self, inode: InodeId) -> Vec<(BlockKey, SharedBlock)> {
        let dirty = self.of(inode).filter(|(_, slot)| slot.is_dirty);
        dirty.map(|(key, slot)| (*key, Arc::clone(&slot.block))).collect()
    }

    /// The contiguous dirty blocks from `key` on, at most `limit`.
    #[must_use]
    pub fn dirty_from(&self, key: BlockKey, limit: usize) -> Vec<(BlockKey, SharedBlock)> {
        self.quiet_from(key, limit, u64::MAX)
    }

    /// The same, for blocks not written after `mark`.
    #[must_use]
    pub fn quiet_from(&self, key: BlockKey, limit: usize, mark: u64) -> Vec<(BlockKey, SharedBlock)> {
        let ends = |(place, (next, slot)): &(usize, (&BlockKey, &BlockSlot))| {
            let follows = next.inode == key.inode && next.index == key.index + *place as u64;
            follows && slot.is_dirty && slot.sequence <= mark
        };
        let run = self.slots.range(key..).take(limit).enumerate().take_while(ends);
        run.map(|(_, (key, slot))| (*key, Arc::clone(&slot.block))).collect()
    }

    /// All blocks of a file.
    #[must_use]
    pub fn all(&self, inode: InodeId) -> Vec<(BlockKey, SharedBlock)> {
        self.of(inode).map(|(key, slot)| (*key, Arc::clone(&slot.block))).collect()
    }

    /// Drops a block.
    pub fn remove(&mut self, key: BlockKey) {
        let Some(slot) = self.slots.remove(&key) else { return };
        if slot.is_dirty {
            self.by_dirt.remove(&slot.sequence);
            self.dirty_bytes -= slot.bytes;
        } else {
            self.by_use.remove(&slot.sequence);
        }
        self.bytes -= slot.bytes;
    }

    fn of(&self, inode: InodeId) -> impl Iterator<Item = (&BlockKey, &BlockSlot)> {
        self.slots.range(BlockKey { inode, index: 0 }..=BlockKey { inode, index: u64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u64) -> BlockKey {
        BlockKey { inode: InodeId(7), index }
    }

    #[test]
    fn clean_and_unused_blocks_go_oldest_first() {
        let mut ledger = Ledger::default();
        for index in 0..4 {
            drop(ledger.pin(key(index), 10));
        }
        ledger.set_dirty(key(0), true);
        let used = ledger.pin(key(1), 10);
        let mut gone = Vec::new();
        assert!(ledger.shrink_to(30, |key| gone.push(key)));
        assert_eq!(gone, [key(2)]);
        assert!(ledger.find(key(2)).is_none() && ledger.find(key(3)).is_some());
        assert!(!ledger.shrink_to(10, |_| ()), "0 is dirty and 1 is in use");
        assert_eq!((ledger.bytes(), ledger.dirty_bytes()), (20, 10));
        drop(used);
        ledger.set_dirty(key(0), false);
        assert!(ledger.shrink_to(0, |_| ()));
        assert_eq!((ledger.bytes(), ledger.dirty_bytes()), (0, 0));
    }

    #[test]
    fn what_is_written_down_is_as_old_as_its_last_use() {
        let mut ledger = Ledger::default();
        for index in 0..3 {
            drop(ledger.pin(key(index), 10));
        }
        ledger.set_dirty(key(0), true);
        ledger.set_dirty(key(1), true);
        drop(ledger.pin(key(1), 10));
        ledger.set_dirty(key(0), false);
        ledger.set_dirty(key(1), false);
        let mut gone = Vec::new();
        assert!(ledger.shrink_to(0, |key| gone.push(key)));
        assert_eq!(gone, [key(0), key(2), key(1)]);
    }

    #[test]
    fn oldest_dirt_first_and_what_follows_it() {
        let mut ledger = Ledger::default();
        for index in [1, 2, 3, 4, 6] {
            drop(ledger.pin(key(index), 10));
        }
        for index in [2, 6, 1, 3] {
            ledger.set_dirty(key(index), true);
        }
        assert_eq!(ledger.oldest_dirty(|_| true), Some(key(2)));
        assert_eq!(ledger.oldest_dirty(|key| key.index != 2), Some(key(6)));
        let indices =
            |run: Vec<(BlockKey, SharedBlock)>| run.iter().map(|(key, _)| key.index).collect::<Vec<_>>();
        assert_eq!(indices(ledger.dirty_from(key(2), 16)), [2, 3]);
        assert_eq!(indices(ledger.dirty_from(key(1), 2)), [1, 2]);
        assert_eq!(indices(ledger.dirty(InodeId(7))), [1, 2, 3, 6]);
        assert!(!ledger.has_dirty(InodeId(8)));
    }
    #[test]
    fn quiet_blocks_are_those_not_written_since_the_mark() {
        let mut ledger = Ledger::default();
        for index in 1..5 {
            drop(ledger.pin(key(index), 10));
            assert!(!ledger.written(key(index)));
        }
        let mark = ledger.newest();
        assert!(!ledger.written(key(1)), "still dirty, so no write-back was wasted");
        assert_eq!(ledger.dirty_bytes(), 40);
        assert_eq!(ledger.oldest_dirty(|_| true), Some(key(2)));
        assert_eq!(ledger.quiet(mark, |_| true), Some(key(2)));
        assert_eq!(ledger.quiet(mark, |key| key.index != 2), Some(key(3)));
        ledger.written(key(4));
        let run = ledger.quiet_from(key(2), 16, mark);
        assert_eq!(run.iter().map(|(key, _)| key.index).collect::<Vec<_>>(), [2, 3]);
        for index in [2, 3] {
            ledger.written_behind(key(index));
        }
        assert_eq!((ledger.quiet(mark, |_| true), ledger.dirty_bytes()), (None, 20));
        assert!(ledger.is_written_behind(key(2)) && !ledger.is_written_behind(key(1)));
        assert!(ledger.written(key(2)), "a wasted write-behind");
        assert!(!ledger.is_written_behind(key(2)) && ledger.is_written_behind(key(3)));
        assert!(!ledger.written(key(9)), "not cached");
    }
}
