//! State shared by the files of one node-cache server: the memory, its limits, and the write-back thread.
//!
//! Never: writes back a file without a lease, or after a failed write-back. Always: a thread that needs memory when no block is
//! clean writes blocks back itself; only bytes that wait for a lease, each from a rank that waits for its write, can exceed the
//! limit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use pario_core::InodeId;
use pario_net::outbox::write_behind_bit;
use pario_server::DrainHandle;
use pario_server::store::cache::{BlockKey, Ledger, SharedBlock};

use super::flush::RUN_BLOCKS_MAX;
use super::lock;
use super::object::NodeCacheObject;

/// Smallest number of blocks, for any configured size.
const BLOCKS_MIN: u64 = 4;
/// Limit of closed files that stay cached.
pub(super) const IDLE_FILES_MAX: usize = 16;
/// Attempts to reclaim memory before the limit is exceeded.
const TRIES_MAX: usize = 64;

/// See the module head.
#[derive(Debug)]
pub(super) struct NodeCacheShared {
    pub(super) ledger: Mutex<Ledger>,
    pub(super) objects: RwLock<HashMap<InodeId, Arc<NodeCacheObject>>>,
    /// Closed files, the one closed longest ago first.
    idle: Mutex<VecDeque<InodeId>>,
    /// The server's drain thread, while it runs.
    drainer: Mutex<Option<DrainHandle>>,
    pub(super) counts: NodeCacheCounters,
    limit: AtomicU64,
    order: Mutex<WriteBackOrder>,
    wake: Condvar,
}

/// Counters.
#[derive(Debug, Default)]
pub(super) struct NodeCacheCounters {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) staged_bytes: AtomicU64,
    pub(super) staged_writes: AtomicU64,
}

/// Next action of the write-back thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteBackOrder {
    Rest,
    Stage,
    Stop,
}

impl NodeCacheShared {
    /// For a cache of `cache_bytes`.
    pub(super) fn new(cache_bytes: u64) -> NodeCacheShared {
        NodeCacheShared {
            ledger: Mutex::default(),
            objects: RwLock::default(),
            idle: Mutex::default(),
            drainer: Mutex::default(),
            counts: NodeCacheCounters::default(),
            limit: AtomicU64::new(cache_bytes),
            order: Mutex::new(WriteBackOrder::Rest),
            wake: Condvar::new(),
        }
    }

    /// The server's drain thread, while it runs.
    pub(super) fn drainer(&self) -> Option<DrainHandle> {
        lock(&self.drainer).clone()
    }

    pub(super) fn begin_draining(&self, taking: DrainHandle) {
        *lock(&self.drainer) = Some(taking);
    }

    pub(super) fn end_draining(&self) {
        lock(&self.drainer).take();
    }

    /// Sets the size of the cache.
    pub(super) fn set_limit(&self, cache_bytes: u64) {
        self.limit.store(cache_bytes, Ordering::Release);
    }

    pub(super) fn object(&self, inode: InodeId) -> Option<Arc<NodeCacheObject>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(&inode).map(Arc::clone)
    }

    pub(super) fn all(&self) -> Vec<Arc<NodeCacheObject>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }

    /// A file is opened: it is no longer idle.
    pub(super) fn mark_open(&self, inode: InodeId) {
        lock(&self.idle).retain(|idle| *idle != inode);
    }

    /// The last handle of a file here was closed. The file stays for the next open, within [`IDLE_FILES_MAX`].
    pub(super) fn keep_idle(&self, object: &Arc<NodeCacheObject>) {
        if !object.is_worth_keeping() {
            return self.forget_if_idle(object);
        }
        let mut idle = lock(&self.idle);
        idle.retain(|other| *other != object.inode());
        idle.push_back(object.inode());
        let over = if IDLE_FILES_MAX < idle.len() { idle.pop_front() } else { None };
        drop(idle);
        if let Some(over) = over.and_then(|inode| self.object(inode)) {
            self.forget_if_idle(&over);
        }
    }

    /// Drops a file, unless it is open here.
    pub(super) fn forget_if_idle(&self, object: &Arc<NodeCacheObject>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        // Checked under the lock that an open takes.
        let is_idle = |known: &Arc<NodeCacheObject>| {
            Arc::ptr_eq(known, object) && known.opens.load(Ordering::Acquire) == 0
        };
        if !objects.get(&object.inode()).is_some_and(is_idle) {
            return;
        }
        objects.remove(&object.inode());
        drop(objects);
        self.close_object(object);
    }

    /// Drops a file, open or not.
    pub(super) fn forget(&self, object: &Arc<NodeCacheObject>) {
        let removed = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&object.inode());
        if removed.is_some() {
            self.close_object(object);
        }
    }

    fn close_object(&self, object: &NodeCacheObject) {
        self.mark_open(object.inode());
        // Closed while the object exists, so that it can return its lease.
        let flushed = object.flush();
        let closed = object.file().close_shared().map_err(super::object::into_fault);
        if let Err(fault) = flushed.and(closed) {
            tracing::warn!(%fault, "an error of a file in the node cache was not reported by any sync or close");
        }
    }

    /// Evicts and writes back blocks until one more fits. Call it without holding a lock.
    pub(super) fn reclaim(&self, block_bytes: u64) {
        let rest = self.limit_with(block_bytes) - block_bytes;
        for _ in 0..TRIES_MAX {
            if lock(&self.ledger).shrink_to(rest, |_| ()) || !self.stage_oldest() {
                return;
            }
        }
    }

    /// Pins the block, creating it if it is missing; evicts clean blocks for it.
    pub(super) fn pin(&self, key: BlockKey, block_bytes: usize) -> SharedBlock {
        let mut ledger = lock(&self.ledger);
        if ledger.find(key).is_none() {
            // If too few are clean the limit is exceeded: the caller has tried to reclaim memory before.
            let bytes = block_bytes as u64;
            ledger.shrink_to(self.limit_with(bytes) - bytes, |_| ());
        }
        ledger.pin(key, block_bytes)
    }

    /// The limit, but at least [`BLOCKS_MIN`] blocks.
    fn limit_with(&self, block_bytes: u64) -> u64 {
        self.limit.load(Ordering::Acquire).max(BLOCKS_MIN.saturating_mul(block_bytes))
    }

    /// Marks a block dirty; write-back begins when many are dirty.
    pub(super) fn set_dirty(&self, key: BlockKey) {
        let mut ledger = lock(&self.ledger);
        ledger.set_dirty(key, true);
        let high = self.limit.load(Ordering::Relaxed) / 4 * 3;
        if high < ledger.dirty_bytes() {
            drop(ledger);
            self.set_order(WriteBackOrder::Stage);
        }
    }

    /// Bit mask of files that may be written behind: the remainders with leases on all their open files.
    pub(super) fn write_behind(&self) -> u32 {
        let written = |object: &Arc<NodeCacheObject>| {
            0 < object.opens.load(Ordering::Acquire) && object.is_written.load(Ordering::Acquire)
        };
        let (mut may, mut may_not) = (0, 0);
        for object in self.all().iter().filter(|object| written(object)) {
            let bit = write_behind_bit(object.inode());
            if object.is_confirmed() { may |= bit } else { may_not |= bit }
        }
        may & !may_not
    }

    /// Loop of the write-back thread.
    pub(super) fn stage_in_background(&self) {
        loop {
            let mut order = lock(&self.order);
            while *order == WriteBackOrder::Rest {
                order = self.wake.wait(order).unwrap_or_else(PoisonError::into_inner);
            }
            if *order == WriteBackOrder::Stop {
                return;
            }
            *order = WriteBackOrder::Rest;
            drop(order);
            while self.is_above_low() && *lock(&self.order) != WriteBackOrder::Stop && self.stage_oldest() {}
        }
    }

    pub(super) fn stop(&self) {
        self.set_order(WriteBackOrder::Stop);
    }

    fn set_order(&self, order: WriteBackOrder) {
        let mut current = lock(&self.order);
        if *current != WriteBackOrder::Stop && *current != order {
            *current = order;
            self.wake.notify_one();
        }
    }

    fn is_above_low(&self) -> bool {
        self.limit.load(Ordering::Relaxed) / 2 < lock(&self.ledger).dirty_bytes()
    }

    /// Writes back the block that has been dirty longest and its successors; false if none can be.
    fn stage_oldest(&self) -> bool {
        let can =
            |object: &Arc<NodeCacheObject>| !object.is_stuck.load(Ordering::Acquire) && object.is_confirmed();
        let ready: HashMap<InodeId, Arc<NodeCacheObject>> =
            self.all().into_iter().filter(can).map(|object| (object.inode(), object)).collect();
        let oldest = lock(&self.ledger).oldest_dirty(|key| ready.contains_key(&key.inode));
        let Some(key) = oldest else { return false };
        ready.get(&key.inode).is_some_and(|object| object.stage(key, RUN_BLOCKS_MAX))
    }

    /// Files with dirty blocks.
    pub(super) fn dirty_files(&self) -> HashSet<InodeId> {
        let ledger = lock(&self.ledger);
        self.all().iter().map(|object| object.inode()).filter(|inode| ledger.has_dirty(*inode)).collect()
    }
}
