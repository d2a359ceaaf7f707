//! What the files of one store share: the pool, the table of files, and the threads that stage and read ahead.
//!
//! Never: holds the pool's lock during I/O. Always: what is left alone for a while is staged (see [`super::behind`]); when dirty blocks fill
//! three quarters of the pool, what was written longest ago is, until they fill half of it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};

use pario_core::InodeId;

use super::behind::{Behind, PERIOD};
use super::file::{Shared, SharedFile};
use super::pool::{Gone, Pool, Room};
use crate::cache::Key;
use crate::ownership::Directory;
use crate::places::Companions;
use crate::sync::lock;

/// Blocks that wait to be read ahead.
const WANTED_MAX: usize = 64;

/// What is counted beside accesses to plain files.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) ahead: AtomicU64,
    pub(super) straight: AtomicU64,
    pub(super) staged_bytes: AtomicU64,
    pub(super) staged_writes: AtomicU64,
    pub(super) claims: AtomicU64,
    pub(super) forwards: AtomicU64,
    pub(super) visits: AtomicU64,
    pub(super) handed_back: AtomicU64,
    pub(super) takes: AtomicU64,
    pub(super) passed: AtomicU64,
    pub(super) at_once: AtomicU64,
    pub(super) again: AtomicU64,
}

impl Counts {
    pub(super) fn looked(&self, found: bool) {
        let counter = if found { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn staged(&self, bytes: u64) {
        self.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.staged_writes.fetch_add(1, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pool: Pool,
    pub(super) files: RwLock<HashMap<InodeId, Shared>>,
    pub(super) counts: Counts,
    /// Of blocks that this server is home of.
    pub(super) directory: Mutex<Directory>,
    /// The other servers, where blocks have no fixed place.
    pub(super) companions: OnceLock<Arc<dyn Companions>>,
    pub(super) orders: Mutex<Orders>,
    /// For the thread that reads ahead and hands back.
    wake: Condvar,
    /// For the thread that stages.
    wake_stager: Condvar,
    behind: Mutex<Behind>,
}

/// What the background threads are to do.
#[derive(Debug, Default)]
pub(super) struct Orders {
    stage: bool,
    stop: bool,
    /// Whether what is left alone is staged before it must be.
    behind: bool,
    /// Something is dirty; cleared by the thread that stages when it finds nothing.
    has_dirty: bool,
    hand_back: bool,
    pub(super) wanted: VecDeque<(InodeId, u64)>,
}

impl Core {
    pub(super) fn new(cache_bytes: u64) -> Core {
        Core {
            pool: Pool::new(cache_bytes),
            files: RwLock::default(),
            counts: Counts::default(),
            directory: Mutex::default(),
            companions: OnceLock::new(),
            orders: Mutex::default(),
            wake: Condvar::new(),
            wake_stager: Condvar::new(),
            behind: Mutex::default(),
        }
    }

    /// Tells the background threads to end.
    pub(super) fn stop(&self) {
        lock(&self.orders).stop = true;
        self.wake.notify_all();
        self.wake_stager.notify_all();
    }

    /// Whether blocks that are left alone go down before they must.
    pub(super) fn set_behind(&self, behind: bool) {
        lock(&self.orders).behind = behind;
        self.wake_stager.notify_all();
    }

    pub(super) fn file(&self, inode: InodeId) -> Option<Shared> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&inode).map(Arc::clone)
    }

    pub(super) fn all(&self) -> Vec<Shared> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }

    pub(super) fn reserve(&self, bytes: u64) -> Option<Room<'_>> {
        let room = self.pool.reserve(bytes, |key| self.write_out(key));
        self.see_to_gone();
        room
    }

    /// Has ownerships of blocks that were thrown out given back.
    pub(super) fn see_to_gone(&self) {
        if self.companions.get().is_none() || !self.pool.state().has_gone() {
            return;
        }
        lock(&self.orders).hand_back = true;
        self.wake.notify_one();
    }

    /// Blocks of a file are owned without bytes: they are given back soon.
    pub(super) fn let_go(&self, keys: impl IntoIterator<Item = Key>) {
        let mut state = self.pool.state();
        if let Some(gone) = &mut state.gone {
            keys.into_iter().for_each(|key| gone.add(key));
        }
        drop(state);
        self.see_to_gone();
    }

    fn hand_back(&self) {
        let gone = self.pool.state().gone.as_mut().map(std::mem::take);
        let Some(Gone { mut keys, more }) = gone else { return };
        keys.sort_unstable();
        for some in keys.chunk_by(|one, next| one.inode == next.inode) {
            if let Some(file) = some.first().and_then(|key| self.file(key.inode)) {
                file.hand_back(self, some.iter().map(|key| key.index));
            }
        }
        if more {
            self.all().iter().for_each(|file| file.hand_back_all(self));
        }
    }

    /// Writes a dirty block and those behind it out.
    fn write_out(&self, key: Key) {
        match self.file(key.inode) {
            Some(file) => file.stage(self, key),
            None => self.drop_unowned(key),
        }
    }

    /// A block whose file has ended, and with it whoever could want it. Not if it was opened again meanwhile.
    fn drop_unowned(&self, key: Key) {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        if !files.contains_key(&key.inode) {
            self.pool.state().ledger.remove(key);
        }
    }

    /// A block was written to and is held; staging begins when there are many such.
    pub(super) fn written(&self, key: Key) {
        let mut state = self.pool.state();
        let was_clean = state.ledger.dirty_bytes() == 0;
        let in_vain = state.ledger.written(key);
        let is_full = self.pool.limit() / 4 * 3 < state.ledger.dirty_bytes();
        drop(state);
        if in_vain {
            self.in_vain();
        }
        if was_clean || is_full {
            let mut orders = lock(&self.orders);
            orders.has_dirty = true;
            orders.stage |= is_full;
            self.wake_stager.notify_one();
        }
    }

    /// A block was put down because it was left alone, and then written again.
    pub(super) fn in_vain(&self) {
        lock(&self.behind).in_vain();
    }

    /// These blocks of a file's object were read: what its streams want next is fetched in the background.
    pub(super) fn look_ahead(&self, file: &SharedFile, blocks: Range<u64>) {
        let next = lock(&file.streams).read(&blocks);
        let missing: Vec<u64> = next.into_iter().filter(|index| !file.has_block(self, *index)).collect();
        if missing.is_empty() {
            return;
        }
        let inode = file.id().inode;
        let mut orders = lock(&self.orders);
        for index in missing {
            if orders.wanted.len() < WANTED_MAX && !orders.wanted.contains(&(inode, index)) {
                orders.wanted.push_back((inode, index));
            }
        }
        self.wake.notify_one();
    }

    /// What the thread that reads ahead does until it is told to stop.
    pub(super) fn fetch(&self) {
        loop {
            let mut orders = lock(&self.orders);
            while !orders.stop && !orders.hand_back && orders.wanted.is_empty() {
                orders = self.wake.wait(orders).unwrap_or_else(PoisonError::into_inner);
            }
            if orders.stop {
                return;
            }
            let hand_back = std::mem::take(&mut orders.hand_back);
            let wanted = orders.wanted.pop_front();
            drop(orders);
            if let Some((inode, index)) = wanted
                && let Some(file) = self.file(inode)
            {
                file.fetch_ahead(self, index);
            }
            if hand_back {
                self.hand_back();
            }
        }
    }

    /// What the thread that stages does until it is told to stop.
    pub(super) fn stage(&self) {
        loop {
            let mut orders = lock(&self.orders);
            let mut is_over = false;
            while !orders.stop && !orders.stage && !is_over {
                if orders.behind && orders.has_dirty {
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
                self.stage_quiet();
            }
            while is_full && self.stage_oldest() {}
        }
    }

    /// One step of staging; whether there is more to do.
    fn stage_oldest(&self) -> bool {
        let state = self.pool.state();
        if state.ledger.dirty_bytes() <= self.pool.limit() / 2 || lock(&self.orders).stop {
            return false;
        }
        let Some(key) = state.oldest() else { return false };
        drop(state);
        self.write_out(key);
        true
    }

    /// A period is over: what was left alone goes down, unless there is something more urgent.
    fn stage_quiet(&self) {
        let newest = self.pool.state().ledger.newest();
        let Some(mark) = lock(&self.behind).tick(newest) else { return };
        loop {
            let state = self.pool.state();
            let mut orders = lock(&self.orders);
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
            if !file.stage_quiet(self, key, mark) {
                return;
            }
        }
    }
}
