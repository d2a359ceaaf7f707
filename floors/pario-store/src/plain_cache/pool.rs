//! Memory of all files of one server: cached blocks, reservations, and requests that wait for memory.
//!
//! ```text
//!  limit = blocks in the ledger + memory reserved by requests that have not made their blocks yet
//! ```
//! Never: grants a part of a reservation (no two requests wait for each other's memory); waits while holding a block. Always: a request
//! with a reservation ends without a second one; a request that cannot get one bypasses the cache.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pario_core::InodeId;

use crate::cache::{BlockKey, Ledger, SharedBlock};
use crate::sync::lock;

/// Longest sleep of a request that waits for memory before it checks again.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Evicted blocks that are listed at most.
const EVICTED_MAX: usize = 1 << 14;

/// See the module.
#[derive(Debug)]
pub(super) struct BlockPool {
    state: Mutex<PoolState>,
    freed: Condvar,
    /// Held while memory is searched, so that a large reservation is not overtaken without bound.
    reserving: Mutex<()>,
    limit: AtomicU64,
}

/// What the pool's lock guards.
#[derive(Debug, Default)]
pub(super) struct PoolState {
    pub(super) ledger: Ledger,
    reserved: u64,
    /// Reservations and write-backs in progress: when they end, memory may be free.
    users: usize,
    /// Files with a failed write-back: not retried before the error is reported.
    pub(super) failed: HashSet<InodeId>,
    /// Evicted blocks, if the owner table needs them; emptied by the background thread.
    pub(super) evicted: Option<EvictedBlocks>,
}

/// Evicted blocks.
#[derive(Debug, Default)]
pub(super) struct EvictedBlocks {
    pub(super) keys: Vec<BlockKey>,
    /// More blocks were evicted than are listed.
    pub(super) more: bool,
}

impl EvictedBlocks {
    pub(super) fn add(&mut self, key: BlockKey) {
        if self.keys.len() < EVICTED_MAX {
            self.keys.push(key);
        } else {
            self.more = true;
        }
    }
}

impl PoolState {
    /// The least recently written block that can be written back.
    pub(super) fn oldest(&self) -> Option<BlockKey> {
        self.ledger.oldest_dirty(|key| !self.failed.contains(&key.inode))
    }

    /// The least recently written block that can be written back, if not written after `mark`.
    pub(super) fn quiet(&self, mark: u64) -> Option<BlockKey> {
        self.ledger.quiet(mark, |key| !self.failed.contains(&key.inode))
    }

    fn shrink_to(&mut self, limit: u64) -> bool {
        let PoolState { ledger, evicted: gone, .. } = self;
        ledger.shrink_to(limit, |key| {
            if let Some(gone) = gone {
                gone.add(key);
            }
        })
    }

    /// Whether evicted blocks are listed.
    pub(super) fn has_evicted(&self) -> bool {
        self.evicted.as_ref().is_some_and(|gone| !gone.keys.is_empty())
    }
}

/// Memory reserved for the blocks of one request; the unused part is released on drop.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    pool: &'a BlockPool,
    left: u64,
}

/// A write-back in progress.
#[derive(Debug)]
pub(super) struct WriteBackGuard<'a>(&'a BlockPool);

impl BlockPool {
    pub(super) fn new(limit: u64) -> BlockPool {
        BlockPool {
            state: Mutex::default(),
            freed: Condvar::new(),
            reserving: Mutex::default(),
            limit: AtomicU64::new(limit),
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Release);
        self.freed.notify_all();
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    /// Reserves memory for `bytes` of blocks; `write_out` writes back a dirty block and its neighbours. `None`: more than the pool, or
    /// the blocks that fill the pool cannot be written back.
    pub(super) fn reserve(&self, bytes: u64, write_out: impl Fn(BlockKey)) -> Option<Reservation<'_>> {
        let _turn = lock(&self.reserving);
        loop {
            let limit = self.limit();
            if limit < bytes {
                return None;
            }
            let mut state = lock(&self.state);
            let rest = limit.checked_sub(state.reserved + bytes);
            if rest.is_some_and(|rest| state.shrink_to(rest)) {
                return Some(self.grant(&mut state, bytes));
            }
            let oldest = rest.and_then(|_| state.oldest());
            if let Some(key) = oldest {
                drop(state);
                write_out(key);
            } else if state.users == 0 {
                return None;
            } else {
                drop(
                    self.freed.wait_timeout(state, RECHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner),
                );
            }
        }
    }

    /// Reserves memory for `bytes` of blocks if it is free without waiting or write-back.
    pub(super) fn try_reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        let mut state = lock(&self.state);
        let rest = self.limit().checked_sub(state.reserved + bytes)?;
        let room = state.shrink_to(rest);
        room.then(|| self.grant(&mut state, bytes))
    }

    fn grant(&self, state: &mut PoolState, bytes: u64) -> Reservation<'_> {
        state.reserved += bytes;
        state.users += 1;
        Reservation { pool: self, left: bytes }
    }

    /// Marks a write-back in progress until it is dropped.
    pub(super) fn begin_write_back(&self) -> WriteBackGuard<'_> {
        lock(&self.state).users += 1;
        WriteBackGuard(self)
    }

    fn end_use(&self, left: u64) {
        let mut state = lock(&self.state);
        state.reserved -= left;
        state.users -= 1;
        drop(state);
        self.freed.notify_all();
    }
}

impl Reservation<'_> {
    /// The block, made in this reservation if it is not cached. `None`: out of memory; the pool is limited to its present size from now
    /// on.
    pub(super) fn pin(&mut self, key: BlockKey, block_bytes: usize) -> Option<SharedBlock> {
        let mut state = lock(&self.pool.state);
        let before = state.ledger.bytes();
        let pinned = state.ledger.try_pin(key, block_bytes);
        if pinned.is_none() {
            tracing::warn!(cached_bytes = before, "out of memory: the file cache stays at this size");
            self.pool.limit.fetch_min(before, Ordering::AcqRel);
        }
        let made = (state.ledger.bytes() - before).min(self.left);
        self.left -= made;
        state.reserved -= made;
        pinned
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.pool.end_use(self.left);
    }
}

impl Drop for WriteBackGuard<'_> {
    fn drop(&mut self) {
        self.0.end_use(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u64) -> BlockKey {
        BlockKey { inode: InodeId(1), index }
    }

    #[test]
    fn a_request_gets_all_its_room_or_waits_for_all_of_it() {
        let pool = BlockPool::new(40);
        let mut first = pool.reserve(30, |_| ()).unwrap();
        let pinned = first.pin(key(0), 10).unwrap();
        assert!(pool.try_reserve(20).is_none(), "30 of 40 are reserved");
        assert!(pool.reserve(41, |_| ()).is_none(), "more than all");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| pool.reserve(40, |_| ()).is_some());
            drop((pinned, first));
            assert!(second.join().unwrap());
        });
        assert_eq!(pool.state().ledger.bytes(), 0, "the first reservation's blocks were evicted");
    }

    #[test]
    fn without_memory_the_pool_runs_smaller() {
        let pool = BlockPool::new(u64::MAX);
        let mut room = pool.reserve(100, |_| ()).unwrap();
        let kept = room.pin(key(0), 10).unwrap();
        assert!(room.pin(key(1), usize::MAX / 4).is_none());
        assert!(room.pin(key(0), 10).is_some(), "a cached block stays");
        drop((room, kept));
        assert_eq!((pool.limit(), pool.state().ledger.bytes()), (10, 10));
        assert!(pool.reserve(11, |_| ()).is_none() && pool.reserve(10, |_| ()).is_some());
    }

    #[test]
    fn dirty_blocks_are_written_out_for_room_and_stuck_ones_never_waited_for() {
        let pool = BlockPool::new(20);
        drop(pool.reserve(10, |_| ()).unwrap().pin(key(7), 10).unwrap());
        pool.state().ledger.set_dirty(key(7), true);
        let clean = |key: BlockKey| pool.state().ledger.set_dirty(key, false);
        drop(pool.reserve(20, clean).unwrap().pin(key(8), 10).unwrap());
        assert!(pool.state().ledger.find(key(7)).is_none());
        pool.state().ledger.set_dirty(key(8), true);
        pool.state().failed.insert(InodeId(1));
        assert!(pool.reserve(20, clean).is_none());
        assert!(pool.reserve(10, clean).is_some());
    }
}
