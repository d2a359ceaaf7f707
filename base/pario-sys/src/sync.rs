//! Memory order between processes, and locks between threads that models run, by name: code over shared memory uses these functions instead of bare fences, so that the same code
//! runs in models.
//!
//! With `--cfg loom` the memory is loom's ([`crate::shared`], [`crate::doorbell`]), and named sites can be weakened: a deliberate bug
//! that a model must find. Otherwise each function is the instruction that it names.
//!
//! Always: a comment at each fence names its pair.

#[cfg(not(loom))]
use std::sync::atomic::{Ordering, fence as real_fence};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(not(loom))]
pub use crate::mutex::lock;

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence as real_fence};
#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard};

/// Locks; see [`crate::mutex::lock`].
#[cfg(loom)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Code sites at which the memory order between two processes matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FenceSite {
    /// A record is committed.
    Tail,
    /// The tail passes only records that are copied.
    InOrder,
    /// A commit returns after its record is committed.
    Returned,
    /// Threads that wait for a commit are woken.
    Committed,
    /// Space is not reused while it is copied into.
    Copied,
    /// The space of a record that is given up becomes a pad.
    GivenUp,
    /// A client checks whether the server sleeps.
    Wake,
    /// A server has announced that it sleeps.
    Asleep,
    /// A client has announced that it waits for a cursor.
    Waiting,
    /// A server has moved its cursor.
    Moved,
    /// A client checks its permission after a commit.
    Permission,
    /// A server has revoked a permission and reads the tails.
    Withdrawn,
    /// A client has announced a direct write.
    Announced,
    /// A server begins a round.
    Round,
    /// A client has announced that memory is reused.
    Floor,
    /// A server checks whether memory it has read was reused.
    Holds,
    /// A shared pointer is advanced.
    PointerAdd,
    /// A member announces that it sleeps until its turn.
    TurnSleep,
    /// A member has passed the turn on.
    TurnPassed,
    /// A thread lends memory.
    Lent,
    /// A borrower gives memory back.
    LentBack,
    /// An owner waits for its borrowers; weakened, it does not.
    LentWait,
}

/// A full fence.
#[inline]
pub fn fence(place: FenceSite) {
    if is_strong(place) {
        real_fence(Ordering::SeqCst);
    }
}

/// Order of a store that publishes earlier writes.
#[inline]
#[must_use]
pub fn publishing(place: FenceSite) -> Ordering {
    if is_strong(place) { Ordering::Release } else { Ordering::Relaxed }
}

/// Whether a site has its full memory order: always, except in a model of a deliberate bug.
#[cfg(not(loom))]
#[inline]
#[must_use]
pub fn is_strong(_place: FenceSite) -> bool {
    true
}

#[cfg(loom)]
pub use model::{is_strong, weaken};

/// Yields the processor.
#[inline]
pub fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(loom)]
mod model {
    use std::sync::Mutex;

    use super::FenceSite;

    static WEAK: Mutex<&[FenceSite]> = Mutex::new(&[]);

    /// Weakens exactly these sites, for all models of this process: run models one after another.
    pub fn weaken(places: &'static [FenceSite]) {
        *WEAK.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = places;
    }

    /// See above.
    #[must_use]
    pub fn is_strong(place: FenceSite) -> bool {
        !WEAK.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains(&place)
    }
}
