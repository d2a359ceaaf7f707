//! State shared by the files of one store: the pool, the table of files, and the threads for write-back and read-ahead.
//!
//! Never: holds the pool's lock during I/O. Always: blocks not written for a while are written back (see [`super::write_behind`]); when dirty
//! blocks fill three quarters of the pool, the least recently written are written back until they fill half of it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};

use pario_core::InodeId;

use super::file::{CachedFile, CachedFileRef};
use super::pool::{BlockPool, EvictedBlocks, Reservation};
use super::write_behind::{PERIOD, WriteBehind};
use crate::cache::BlockKey;
use crate::peers::PeerServers;
use crate::placement::OwnerDirectory;
use crate::sync::lock;

/// Blocks queued for prefetching.
const PREFETCH_QUEUE_MAX: usize = 64;

/// Counters beside those of plain files.
#[derive(Debug, Default)]
pub(super) struct CacheCounts {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) prefetched: AtomicU64,
    pub(super) uncached: AtomicU64,
    pub(super) staged_bytes: AtomicU64,
    pub(super) staged_writes: AtomicU64,
    pub(super) claims: AtomicU64,
    pub(super) forwards: AtomicU64,
    pub(super) remote_accesses: AtomicU64,
    pub(super) handed_back: AtomicU64,
    pub(super) handover_requests: AtomicU64,
    pub(super) handed_over: AtomicU64,
    pub(super) atomic_reads: AtomicU64,
    pub(super) atomic_repeats: AtomicU64,
}

impl CacheCounts {
    pub(super) fn count_lookup(&self, found: bool) {
        let counter = if found { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_write_back(&self, bytes: u64) {
        self.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.staged_writes.fetch_add(1, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pool: BlockPool,
    pub(super) files: RwLock<HashMap<InodeId, CachedFileRef>>,
    pub(super) counts: CacheCounts,
    /// Owners of the blocks with their home here.
    pub(super) directory: Mutex<OwnerDirectory>,
    /// The other servers; set for dynamic placement.
    pub(super) peers: OnceLock<Arc<dyn PeerServers>>,
    pub(super) work: Mutex<BackgroundWork>,
    /// Wakes the thread that prefetches and gives back.
    wake: Condvar,
    /// Wakes the write-back thread.
    wake_stager: Condvar,
    write_behind: Mutex<WriteBehind>,
}

/// Work for the background threads.
#[derive(Debug, Default)]
pub(super) struct BackgroundWork {
    stage: bool,
    stop: bool,
    /// Write-behind is enabled.
    write_behind: bool,
    /// Blocks are dirty; cleared by the write-back thread when it finds none.
    has_dirty: bool,
    hand_back: bool,
    pub(super) prefetch: VecDeque<(InodeId, u64)>,
}

impl Core {
    pub(super) fn new(cache_bytes: u64) -> Core {
        Core {
            pool: BlockPool::new(cache_bytes),
            files: RwLock::default(),
            counts: CacheCounts::default(),
            directory: Mutex::default(),
            peers: OnceLock::new(),
            work: Mutex::default(),
            wake: Condvar::new(),
            wake_stager: Condvar::new(),
            write_behind: Mutex::default(),
        }
    }

    /// Stops the background threads.
    pub(super) fn stop(&self) {
        lock(&self.work).stop = true;
        self.wake.notify_all();
        self.wake_stager.notify_all();
    }

    /// Enables or disables write-behind.
    pub(super) fn set_write_behind(&self, behind: bool) {
        lock(&self.work).write_behind = behind;
        self.wake_stager.notify_all();
    }

    pub(super) fn file(&self, inode: InodeId) -> Option<CachedFileRef> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&inode).map(Arc::clone)
    }

    pub(super) fn all(&self) -> Vec<CachedFileRef> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }

    pub(super) fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        let room = self.pool.reserve(bytes, |key| self.write_out(key));
        self.give_back_evicted();
        room
    }

    /// Gives back the ownerships of evicted blocks, in the background.
    pub(super) fn give_back_evicted(&self) {
        if self.peers.get().is_none() || !self.pool.state().has_evicted() {
            return;
        }
        lock(&self.work).hand_back = true;
        self.wake.notify_one();
    }

    /// Queues blocks owned without cached bytes to be given back.
    pub(super) fn queue_give_back(&self, keys: impl IntoIterator<Item = BlockKey>) {
        let mut state = self.pool.state();
        if let Some(gone) = &mut state.evicted {
            keys.into_iter().for_each(|key| gone.add(key));
        }
        drop(state);
        self.give_back_evicted();
    }

    fn give_back(&self) {
        let gone = self.pool.state().evicted.as_mut().map(std::mem::take);
        let Some(EvictedBlocks { mut keys, more }) = gone else { return };
        keys.sort_unstable();
        for some in keys.chunk_by(|one, next| one.inode == next.inode) {
            if let Some(file) = some.first().and_then(|key| self.file(key.inode)) {
                file.give_back(self, some.iter().map(|key| key.index));
            }
        }
        if more {
            self.all().iter().for_each(|file| file.give_back_all(self));
        }
    }

    /// Writes back a dirty block and those after it.
    fn write_out(&self, key: BlockKey) {
        match self.file(key.inode) {
            Some(file) => file.write_back_background(self, key),
            None => self.drop_unowned(key),
        }
    }

    /// Drops a block of a closed file, unless the file was opened again.
    fn drop_unowned(&self, key: BlockKey) {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        if !files.contains_key(&key.inode) {
            self.pool.state().ledger.remove(key);
        }
    }

    /// A block was written and is locked; wakes the write-back thread above the limit.
    pub(super) fn written(&self, key: BlockKey) {
        let mut state = self.pool.state();
        let was_clean = state.ledger.dirty_bytes() == 0;
        let in_vain = state.ledger.written(key);
        let is_full = self.pool.limit() / 4 * 3 < state.ledger.dirty_bytes();
        drop(state);
        if in_vain {
            self.wasted_write_behind();
        }
        if was_clean || is_full {
            let mut orders = lock(&self.work);
            orders.has_dirty = true;
            orders.stage |= is_full;
            self.wake_stager.notify_one();
        }
    }

    /// A block was written again after a write-behind.
    pub(super) fn wasted_write_behind(&self) {
        lock(&self.write_behind).wasted();
    }

    /// These blocks of a file's object were read: queues the next blocks of its streams for prefetching.
    pub(super) fn queue_prefetch(&self, file: &CachedFile, blocks: Range<u64>) {
        let next = lock(&file.streams).read(&blocks);
        let missing: Vec<u64> = next.into_iter().filter(|index| !file.has_block(self, *index)).collect();
        if missing.is_empty() {
            return;
        }
        let inode = file.id().inode;
        let mut orders = lock(&self.work);
        for index in missing {
            if orders.prefetch.len() < PREFETCH_QUEUE_MAX && !orders.prefetch.contains(&(inode, index)) {
                orders.prefetch.push_back((inode, index));
            }
        }
        self.wake.notify_one();
    }

    /// Loop of the prefetching thread.
    pub(super) fn prefetch_loop(&self) {
        loop {
            let mut orders = lock(&self.work);
            while !orders.stop && !orders.hand_back && orders.prefetch.is_empty() {
                orders = self.wake.wait(orders).unwrap_or_else(PoisonError::into_inner);
            }
            if orders.stop {
                return;
            }
            let hand_back = std::mem::take(&mut orders.hand_back);
            let wanted = orders.prefetch.pop_front();
            drop(orders);
            if let Some((inode, index)) = wanted
                && let Some(file) = self.file(inode)
            {
                file.prefetch(self, index);
            }
            if hand_back {
                self.give_back();
            }
        }
    }

    /// Loop of the write-back thread.
    pub(super) fn write_back_loop(&self) {
        loop {
            let mut orders = lock(&self.work);
            let mut is_over = false;
            while !orders.stop && !orders.stage && !is_over {
                if orders.write_behind && orders.has_dirty {
                    let woken = self.wake_stager.wait_timeout(orders, PERIOD);
                    let (next, waited) = woken.unwrap_or_else(PoisonError::into_inner);
                    (orders, is_over) = (next, waited.timed_out());
                } else {
                    orders = self.wake_stager.wait(orders).unwrap_or_else(PoisonError::into_inner);
                }
            }
            if orders.stop {
                return;
            }
            let is_full = std::mem::take(&mut orders.stage);
            drop(orders);
            if is_over {
                self.write_back_quiet();
            }
            while is_full && self.write_back_oldest() {}
        }
    }

    /// One step of the write-back; returns whether more work is left.
    fn write_back_oldest(&self) -> bool {
        let state = self.pool.state();
        if state.ledger.dirty_bytes() <= self.pool.limit() / 2 || lock(&self.work).stop {
            return false;
        }
        let Some(key) = state.oldest() else { return false };
        drop(state);
        self.write_out(key);
        true
    }

    /// A period ends: writes back quiet blocks, unless memory is short.
    fn write_back_quiet(&self) {
        let newest = self.pool.state().ledger.newest();
        let Some(mark) = lock(&self.write_behind).tick(newest) else { return };
        loop {
            let state = self.pool.state();
            let mut orders = lock(&self.work);
            orders.has_dirty = 0 < state.ledger.dirty_bytes();
            if orders.stop || orders.stage {
                return;
            }
            drop(orders);
            let Some(key) = state.quiet(mark) else { return };
            drop(state);
            let Some(file) = self.file(key.inode) else {
                self.drop_unowned(key);
                continue;
            };
            if !file.write_back_quiet(self, key, mark) {
                return;
            }
        }
    }
}
