//! An allocator that counts the allocations of each thread, for tests of hot paths.
//!
//! Never: in a product: only a test binary sets it as its global allocator. Always: the system's allocator does the work.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

std::thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

/// How often this thread has allocated or grown memory, if [`CountingAllocator`] is the global allocator.
#[must_use]
pub fn allocations_of_this_thread() -> u64 {
    ALLOCATED.with(Cell::get)
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = ALLOCATED.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing, since the thread-local counter is
// initialised at compile time and has no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller fulfils the conditions of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller fulfils the conditions of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller fulfils the conditions of `GlobalAlloc::realloc`; the memory came from the system's allocator.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the conditions of `GlobalAlloc::dealloc`; the memory came from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}
