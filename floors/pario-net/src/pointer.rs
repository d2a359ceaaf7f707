//! The memory of a shared file pointer: a number that several processes add to, and the turn counter of ordered calls.
//!
//! The only memory with several writers (decision 0009). Each change is one atomic addition or store, so a process that dies at any
//! instruction leaves it consistent.
//!
//! Never: waits without checking every 50 ms whether the group is alive. Always: no two additions return overlapping ranges; a turn is
//! passed to the next member only, and a member that sleeps for it is woken.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pario_sys::shared::{AttachError, AttachLimit, MapAccess, SharedMemory};
use pario_sys::sync::{FenceSite, fence, is_strong, yield_now};

/// Where the number is.
const VALUE: usize = 0;
/// Turn counter of ordered calls: counts members of the group, call after call.
const TURN: usize = 8;
/// Words that members sleep on, each on its own.
const SLOTS: usize = 64;
const SLOT_COUNT: usize = 512;
const PAGE_BYTES: usize = 4096;
const _: () = assert!(SLOTS + 4 * SLOT_COUNT <= PAGE_BYTES, "the slots lie in the page");
/// Interval at which a waiting member checks that its group is alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Polls of the turn, with a yield after each, before the member sleeps.
const YIELDS: usize = if cfg!(loom) { 1 } else { 40 };
/// In a word that its member sleeps on.
const ASLEEP: u32 = 1;

/// See the module.
#[derive(Debug)]
pub struct PointerPage {
    page: SharedMemory,
}

impl PointerPage {
    /// A new pointer, at 0; the descriptor is for the members of the group.
    pub fn create() -> io::Result<(PointerPage, OwnedFd)> {
        let (page, descriptor) = SharedMemory::create("pario-pointer", PAGE_BYTES)?;
        Ok((PointerPage { page }, descriptor))
    }

    /// Maps the memory received from the manager.
    pub fn attach(descriptor: OwnedFd) -> Result<PointerPage, AttachError> {
        let limit = AttachLimit { bytes_min: PAGE_BYTES, bytes_max: PAGE_BYTES };
        Ok(PointerPage { page: SharedMemory::attach(descriptor, MapAccess::ReadWrite, limit)? })
    }

    /// Advances it and returns the previous value.
    pub fn add(&self, by: u64) -> u64 {
        if !is_strong(FenceSite::PointerAdd) {
            let before = self.get();
            self.set(before + by);
            return before;
        }
        self.page.fetch_add_u64(VALUE, by, Ordering::AcqRel)
    }

    /// Puts it somewhere.
    pub fn set(&self, at: u64) {
        self.page.store_u64(VALUE, at, Ordering::Release);
    }

    /// Where it is.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.page.load_u64(VALUE, Ordering::Acquire)
    }

    /// Advances it when `turn` is reached, and passes the turn on. `check`, called every 50 ms, can end the wait.
    pub fn add_in_turn<E>(&self, turn: u64, by: u64, check: impl Fn() -> Result<(), E>) -> Result<u64, E> {
        let mut looks = 0;
        while self.turn() != turn {
            looks += 1;
            if looks < YIELDS {
                yield_now();
                continue;
            }
            self.page.store_u32(slot(turn), ASLEEP, Ordering::Relaxed);
            // Pairs with the one below: the member that passes the turn on sees that we sleep, or we see that it is ours.
            fence(FenceSite::TurnSleep);
            if self.turn() != turn {
                let _ = self.page.futex_wait(slot(turn), ASLEEP, Some(CHECK_INTERVAL));
                check()?;
            }
        }
        let at = self.add(by);
        self.page.store_u64(TURN, turn + 1, Ordering::Release);
        fence(FenceSite::TurnPassed);
        let next = slot(turn + 1);
        if self.page.load_u32(next, Ordering::Relaxed) == ASLEEP {
            self.page.store_u32(next, 0, Ordering::Relaxed);
            self.page.futex_wake(next, u32::MAX >> 1);
        }
        Ok(at)
    }

    fn turn(&self) -> u64 {
        self.page.load_u64(TURN, Ordering::Acquire)
    }
}

fn slot(turn: u64) -> usize {
    SLOTS + 4 * usize::try_from(turn % SLOT_COUNT as u64).expect("small")
}
