//! Ownership of blocks with dynamic placement: state machines of homes, of owners, and of accesses that search for a block.
//!
//! ```text
//!  access ─ OwnerWalk ─► OwnershipTable (per server) ─ claim ─► OwnerDirectory (per home)
//!                          └─ HandoverAttempt: blocks from another server's table, which reports the new owner to the directory
//! ```
//! Never: waits, sends or touches bytes; `plain_cache` does that with threads, the simulator step by step. Always: exchanges only the
//! messages of [`peers`].

mod atomic;
mod directory;
mod handover;
mod handover_attempt;
pub mod peers;
mod sabotage;
mod table;
mod walk;

pub use atomic::{AtomicLookup, HoldStep};
pub use directory::OwnerDirectory;
pub use handover::HandoverState;
pub use handover_attempt::{HandoverAttempt, HandoverOutcome, runs};
pub use sabotage::Bug;
pub use table::{AccessStart, CLAIMED_MAX, OwnershipTable, RemoteLookup, RemoteRequest};
pub use walk::{OwnerWalk, WalkStep};

#[cfg(test)]
pub(crate) use table::REMEMBERED_MAX;
