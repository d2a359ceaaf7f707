//! One way to lock a mutex with data that stays valid after a panic, and in debug builds a count of locks for tests of hot paths.
//!
//! Never: fails because another thread panicked. Always: counts per thread, so that tests do not disturb each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(debug_assertions)]
std::thread_local! {
    static LOCKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Locks. Poisoning is ignored: only for data that every critical section leaves valid after a panic.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(debug_assertions)]
    LOCKED.with(|count| count.set(count.get() + 1));
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often this thread has called [`lock`].
#[cfg(debug_assertions)]
#[must_use]
pub fn locks_of_this_thread() -> u64 {
    LOCKED.with(std::cell::Cell::get)
}
