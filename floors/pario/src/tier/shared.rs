//! What the files of one tier-1 server share: the memory, its limits, and the thread that stages.
//!
//! Never: stages a file whose lease is not held, or one whose last staging failed. Always: who needs room when no block is clean writes
//! some out itself; only bytes that wait for a lease, each from a rank that waits for its write, can exceed the limit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use pario_core::InodeId;
use pario_net::outbox::write_behind_bit;
use pario_server::Taking;
use pario_server::store::cache::{Key, Ledger, SharedBlock};

use super::flush::RUN_BLOCKS_MAX;
use super::lock;
use super::object::TierObject;

/// Blocks that there is room for, whatever was asked for.
const BLOCKS_MIN: u64 = 4;
/// Closed files that are kept.
pub(super) const IDLE_FILES_MAX: usize = 16;
/// How often room is looked for before the limit is exceeded.
const TRIES_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ledger: Mutex<Ledger>,
    pub(super) objects: RwLock<HashMap<InodeId, Arc<TierObject>>>,
    /// Closed files, the one closed longest ago first.
    idle: Mutex<VecDeque<InodeId>>,
    /// The server's taking thread, while it runs.
    taking: Mutex<Option<Taking>>,
    pub(super) counts: Counts,
    limit: AtomicU64,
    order: Mutex<Order>,
    wake: Condvar,
}

/// What was done, counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) staged_bytes: AtomicU64,
    pub(super) staged_writes: AtomicU64,
}

/// What the staging thread is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Rest,
    Stage,
    Stop,
}

impl Shared {
    /// For a cache of that size.
    pub(super) fn new(cache_bytes: u64) -> Shared {
        Shared {
            ledger: Mutex::default(),
            objects: RwLock::default(),
            idle: Mutex::default(),
            taking: Mutex::default(),
            counts: Counts::default(),
            limit: AtomicU64::new(cache_bytes),
            order: Mutex::new(Order::Rest),
            wake: Condvar::new(),
        }
    }

    /// The server's taking thread, while there is one.
    pub(super) fn taking(&self) -> Option<Taking> {
        lock(&self.taking).clone()
    }

    pub(super) fn begin_taking(&self, taking: Taking) {
        *lock(&self.taking) = Some(taking);
    }

    pub(super) fn end_taking(&self) {
        lock(&self.taking).take();
    }

    /// Sets the size of the cache.
    pub(super) fn set_limit(&self, cache_bytes: u64) {
        self.limit.store(cache_bytes, Ordering::Release);
    }

    pub(super) fn object(&self, inode: InodeId) -> Option<Arc<TierObject>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(&inode).map(Arc::clone)
    }

    pub(super) fn all(&self) -> Vec<Arc<TierObject>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }

    /// A file is opened: it is not idle any more.
    pub(super) fn is_used(&self, inode: InodeId) {
        lock(&self.idle).retain(|idle| *idle != inode);
    }

    /// A file's last user here has closed it. It stays for the next open, if there can be one and not too many are kept.
    pub(super) fn keep_idle(&self, object: &Arc<TierObject>) {
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

    /// Lets go of a file, unless somebody has it open here.
    pub(super) fn forget_if_idle(&self, object: &Arc<TierObject>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        // Looked at under the lock that an open takes.
        let is_idle =
            |known: &Arc<TierObject>| Arc::ptr_eq(known, object) && known.opens.load(Ordering::Acquire) == 0;
        if !objects.get(&object.inode()).is_some_and(is_idle) {
            return;
        }
        objects.remove(&object.inode());
        drop(objects);
        self.let_go(object);
    }

    /// Lets go of a file, whoever has it open.
    pub(super) fn forget(&self, object: &Arc<TierObject>) {
        let removed = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&object.inode());
        if removed.is_some() {
            self.let_go(object);
        }
    }

    fn let_go(&self, object: &TierObject) {
        self.is_used(object.inode());
        // Closed while the object is there to give up what it keeps.
        let flushed = object.flush();
        let closed = object.file().close_shared().map_err(super::object::into_fault);
        if let Err(fault) = flushed.and(closed) {
            tracing::warn!(%fault, "a file in tier 1 had an error that nobody asked for");
        }
    }

    /// Throws out and writes out blocks until there is room for one more. Call it while holding nothing.
    pub(super) fn make_room(&self, block_bytes: u64) {
        let rest = self.limit_with(block_bytes) - block_bytes;
        for _ in 0..TRIES_MAX {
            if lock(&self.ledger).shrink_to(rest, |_| ()) || !self.stage_oldest() {
                return;
            }
        }
    }

    /// The block, made if it is not there; clean ones make way for it.
    pub(super) fn pin(&self, key: Key, block_bytes: usize) -> SharedBlock {
        let mut ledger = lock(&self.ledger);
        if ledger.find(key).is_none() {
            // If there are not enough of them, whoever came here has looked for room before.
            let bytes = block_bytes as u64;
            ledger.shrink_to(self.limit_with(bytes) - bytes, |_| ());
        }
        ledger.pin(key, block_bytes)
    }

    /// The limit, but enough for a few blocks.
    fn limit_with(&self, block_bytes: u64) -> u64 {
        self.limit.load(Ordering::Acquire).max(BLOCKS_MIN.saturating_mul(block_bytes))
    }

    /// A block was written to; staging begins when there are many such.
    pub(super) fn set_dirty(&self, key: Key) {
        let mut ledger = lock(&self.ledger);
        ledger.set_dirty(key, true);
        let high = self.limit.load(Ordering::Relaxed) / 4 * 3;
        if high < ledger.dirty_bytes() {
            drop(ledger);
            self.tell(Order::Stage);
        }
    }

    /// Which files may be written behind: those of each remainder whose open files all have leases for it.
    pub(super) fn write_behind(&self) -> u32 {
        let written = |object: &Arc<TierObject>| {
            0 < object.opens.load(Ordering::Acquire) && object.is_written.load(Ordering::Acquire)
        };
        let (mut may, mut may_not) = (0, 0);
        for object in self.all().iter().filter(|object| written(object)) {
            let bit = write_behind_bit(object.inode());
            if object.is_settled() { may |= bit } else { may_not |= bit }
        }
        may & !may_not
    }

    /// What the staging thread does until it is told to stop.
    pub(super) fn stage_in_background(&self) {
        loop {
            let mut order = lock(&self.order);
            while *order == Order::Rest {
                order = self.wake.wait(order).unwrap_or_else(PoisonError::into_inner);
            }
            if *order == Order::Stop {
                return;
            }
            *order = Order::Rest;
            drop(order);
            while self.is_above_low() && *lock(&self.order) != Order::Stop && self.stage_oldest() {}
        }
    }

    pub(super) fn stop(&self) {
        self.tell(Order::Stop);
    }

    fn tell(&self, order: Order) {
        let mut current = lock(&self.order);
        if *current != Order::Stop && *current != order {
            *current = order;
            self.wake.notify_one();
        }
    }

    fn is_above_low(&self) -> bool {
        self.limit.load(Ordering::Relaxed) / 2 < lock(&self.ledger).dirty_bytes()
    }

    /// Writes out the block that has been dirty longest and what follows it; false if none can be.
    fn stage_oldest(&self) -> bool {
        let can = |object: &Arc<TierObject>| !object.is_stuck.load(Ordering::Acquire) && object.is_settled();
        let ready: HashMap<InodeId, Arc<TierObject>> =
            self.all().into_iter().filter(can).map(|object| (object.inode(), object)).collect();
        let oldest = lock(&self.ledger).oldest_dirty(|key| ready.contains_key(&key.inode));
        let Some(key) = oldest else { return false };
        ready.get(&key.inode).is_some_and(|object| object.stage(key, RUN_BLOCKS_MAX))
    }

    /// Files that have something dirty.
    pub(super) fn dirty_files(&self) -> HashSet<InodeId> {
        let ledger = lock(&self.ledger);
        self.all().iter().map(|object| object.inode()).filter(|inode| ledger.has_dirty(*inode)).collect()
    }
}
