//! Order of memory between processes, by name: what code over shared memory uses instead of bare fences, so that the same code runs in
//! models.
//!
//! With `--cfg loom` the memory is loom's ([`crate::shared`], [`crate::doorbell`]), and named places can be made weak: a deliberate bug
//! that a model must find. Otherwise each function is the instruction that it names.
//!
//! Always: a fence that pairs with another says with which, where it is used.

#[cfg(not(loom))]
use std::sync::atomic::{Ordering, fence as real_fence};

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence as real_fence};

/// Places where order between two processes matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A record is committed.
    Tail,
    /// A client looks whether the server sleeps.
    Wake,
    /// A server has said that it sleeps.
    Asleep,
    /// A client has said that it waits for a cursor.
    Waiting,
    /// A server has moved its cursor.
    Moved,
    /// A client looks for its permission behind a commit.
    Permission,
    /// A server has withdrawn a permission and looks at tails.
    Withdrawn,
    /// A client has announced a direct write.
    Announced,
    /// A server begins a round.
    Round,
    /// A client has said that memory is used again.
    Floor,
    /// A server looks whether memory it has read was used again.
    Holds,
    /// A shared pointer is moved.
    PointerAdd,
    /// A member says that it sleeps until its turn.
    TurnSleep,
    /// A member has passed the turn on.
    TurnPassed,
}

/// A full fence.
#[inline]
pub fn fence(place: Place) {
    if is_strong(place) {
        real_fence(Ordering::SeqCst);
    }
}

/// The order of a store that publishes what was written before it.
#[inline]
#[must_use]
pub fn publishing(place: Place) -> Ordering {
    if is_strong(place) { Ordering::Release } else { Ordering::Relaxed }
}

/// Whether a place is as it should be: always, but in a model of a deliberate bug.
#[cfg(not(loom))]
#[inline]
#[must_use]
pub fn is_strong(_place: Place) -> bool {
    true
}

#[cfg(loom)]
pub use model::{is_strong, weaken};

/// Gives the processor to somebody else.
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

    use super::Place;

    static WEAK: Mutex<&[Place]> = Mutex::new(&[]);

    /// Makes these places weak, and no others. For all models of this process: run them one after the other.
    pub fn weaken(places: &'static [Place]) {
        *WEAK.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = places;
    }

    /// See above.
    #[must_use]
    pub fn is_strong(place: Place) -> bool {
        !WEAK.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains(&place)
    }
}
