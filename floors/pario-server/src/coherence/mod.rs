//! Coherence: who may use a file, and how. Pure state machines; the manager's shell carries out what they decide.
//!
//! Leases by phase are here, and range locks (`locks`). Every file is in one phase for all its holders:
//!
//! | phase | holders | a holder may |
//! |---|---|---|
//! | exclusive | one | write behind, read and write objects directly, cache |
//! | write | writers | write behind through its outbox |
//! | read | readers | read directly, read ahead, cache |
//! | mixed | readers and writers | write through to the stores, read from the stores each time |
//!
//! Never: reads a clock, sends, waits, spawns. Always: input in, [`Action`]s out, time as an argument, and the
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

pub use action::{Action, Ask, Barrier, BarrierAsk, Party, Return, Ticket, WaitLine, Waiter};
pub use file::MIXED_MIN;
pub use flips::{FLIP_FILES_MAX, FLIP_WINDOW, FLIPS_MAX};
pub use leases::Leases;
pub use locks::{
    LockAction, LockLine, LockState, LockWait, LockWish, Locks, Owner, Patience, Refusal, Shape,
};
pub use sabotage::Bug;
