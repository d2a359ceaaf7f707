//! Coherence: which sessions may use a file, and how. Pure state machines; the manager's shell carries out their actions.
//!
//! Leases by phase are here, and range locks (`locks`). Every file is in one phase for all its holders:
//!
//! | phase | holders | a holder may |
//! |---|---|---|
//! | exclusive | one | write back, read and write objects directly, cache |
//! | write | writers | write back through its outbox |
//! | read | readers | read directly, read ahead, cache |
//! | mixed | readers and writers | write through to the stores, read from the stores each time |
//!
//! Never: reads a clock, sends, waits, spawns. Always: input in, [`LeaseAction`]s out, time as an argument, and the
//! same inputs give the same actions.

mod action;
mod file;
mod flips;
mod leases;
mod locks;
mod sabotage;

#[cfg(test)]
mod check;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod mixed_tests;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;

pub use action::{
    Barrier, BarrierRequest, LeaseAction, LeaseGroup, LeaseRequest, Return, WaitLine, WaitTicket, Waiter,
};
pub use file::MIXED_MIN;
pub use flips::{FLIP_FILES_MAX, FLIP_WINDOW, FLIPS_MAX};
pub use leases::Leases;
pub use locks::{
    LockAction, LockLine, LockRequest, LockState, LockWait, LockedBytes, Locks, Refusal, TokenOwner,
    WaitLimit,
};
pub use sabotage::Bug;
