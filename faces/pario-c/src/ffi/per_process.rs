//! A value of this process: a forked child begins with a new one.
//!
//! Never: waits for a lock that another thread held at the fork; drops the parent's value. Always: one value for all threads.

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that each process makes for itself.
pub(crate) struct PerProcess<T> {
    current: AtomicPtr<OfProcess<T>>,
}

struct OfProcess<T> {
    generation: u64,
    value: T,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess { current: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// The value of this process, made by `make` at the first use.
    pub(crate) fn get(&self, make: impl Fn() -> T) -> &'static T {
        let generation = pario_api::fork_generation();
        let mut current = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a value that is never freed.
            let found: Option<&'static OfProcess<T>> = unsafe { current.as_ref() };
            if let Some(owned) = found.filter(|owned| owned.generation == generation) {
                return &owned.value;
            }
            let made = Box::into_raw(Box::new(OfProcess { generation, value: make() }));
            match self.current.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => current = made,
                Err(other) => {
                    // SAFETY: made above, and not published.
                    drop(unsafe { Box::from_raw(made) });
                    current = other;
                }
            }
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}
