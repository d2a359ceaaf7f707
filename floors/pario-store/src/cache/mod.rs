//! Blocks in memory above something slower, for caches that know their dirty bytes exactly: the tier of an application above a
//! partition, and the cooperative cache above a plain file.
//!
//! Never: knows what lies below, or writes to it. Always: bounded by whoever owns it, through [`Ledger::shrink_to`].

mod block;
mod ledger;

pub use block::Block;
pub use ledger::{Key, Ledger, SharedBlock};
