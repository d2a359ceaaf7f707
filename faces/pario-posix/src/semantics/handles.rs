//! Open handles by number.
//!
//! Always: a number is used once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;

use super::error::PosixResult;

/// See the module.
#[derive(Debug)]
pub(super) struct HandleTable<T> {
    open: RwLock<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Default for HandleTable<T> {
    fn default() -> HandleTable<T> {
        HandleTable { open: RwLock::default(), next: AtomicU64::new(1) }
    }
}

impl<T> HandleTable<T> {
    /// Adds a handle; returns its number.
    pub(super) fn add(&self, handle: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    /// A handle by its number.
    pub(super) fn get(&self, number: u64) -> PosixResult<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).cloned().ok_or(Errno::BADF)
    }

    /// Removes a handle.
    pub(super) fn take(&self, number: u64) -> PosixResult<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number).ok_or(Errno::BADF)
    }

    /// Removes every handle.
    pub(super) fn take_all(&self) -> Vec<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).drain().map(|(_, handle)| handle).collect()
    }

    /// Calls a function for every handle.
    pub(super) fn for_each(&self, action: impl Fn(&T)) {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().for_each(|handle| action(handle));
    }

    /// Number of handles.
    pub(super) fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
