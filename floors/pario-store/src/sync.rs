//! Small helpers around locks, and the gate that keeps operations on an object apart from its end.
//!
//! Always: a panic of one holder stops the others too, since what it guarded may be half changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::store::StoreStats;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("another thread panicked while it held this lock")
}

/// Operations go through it while the object lives; after [`Gate::close`] there are none under way and none get in.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: RwLock<bool>,
}

impl Gate {
    /// Lets an operation in for as long as the guard is kept; `None` if the object is gone.
    pub(crate) fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let closed = self.closed.read().expect("a closer panicked");
        (!*closed).then_some(closed)
    }

    /// The same without waiting: `None` also while somebody waits to close it.
    pub(crate) fn try_enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let closed = self.closed.try_read().ok()?;
        (!*closed).then_some(closed)
    }

    /// Waits for the operations under way, and lets none in for as long as the guard is kept; `None` if the object is gone.
    pub(crate) fn alone(&self) -> Option<RwLockWriteGuard<'_, bool>> {
        let closed = self.closed.write().expect("a closer panicked");
        (!*closed).then_some(closed)
    }

    /// Waits for the operations under way and lets no more in.
    pub(crate) fn close(&self) {
        *self.closed.write().expect("a closer panicked") = true;
    }
}

/// What every store counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    pub(crate) fn count_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> StoreStats {
        StoreStats {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            ..StoreStats::default()
        }
    }
}
