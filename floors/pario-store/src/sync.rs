//! Helpers around locks, and the gate that separates operations on an object from its end.
//!
//! Always: a panic of one holder propagates to the others, since the guarded state may be inconsistent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::store::StoreStats;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("another thread panicked while it held this lock")
}

/// Operations enter it while the object exists; after [`ObjectGate::close`] none is in progress and none enters.
#[derive(Debug, Default)]
pub(crate) struct ObjectGate {
    closed: RwLock<bool>,
}

impl ObjectGate {
    /// Admits an operation for the lifetime of the guard; `None` if the object was closed.
    pub(crate) fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let closed = self.closed.read().expect("a closer panicked");
        (!*closed).then_some(closed)
    }

    /// Like `enter` without waiting: `None` also while a thread waits to close it.
    pub(crate) fn try_enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let closed = self.closed.try_read().ok()?;
        (!*closed).then_some(closed)
    }

    /// Waits for the operations in progress, and admits none for the lifetime of the guard; `None` if the object was closed.
    pub(crate) fn alone(&self) -> Option<RwLockWriteGuard<'_, bool>> {
        let closed = self.closed.write().expect("a closer panicked");
        (!*closed).then_some(closed)
    }

    /// Waits for the operations in progress and admits no more.
    pub(crate) fn close(&self) {
        *self.closed.write().expect("a closer panicked") = true;
    }
}

/// Counters of every store.
#[derive(Debug, Default)]
pub(crate) struct StoreCounters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl StoreCounters {
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
