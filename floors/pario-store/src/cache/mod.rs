//! Cached blocks with exact dirty ranges, used by the node cache above a partition and by the file cache above a plain file.
//!
//! Never: knows or writes to the backing store. Always: bounded by its owner, through [`Ledger::shrink_to`].

mod block;
mod ledger;

pub use block::Block;
pub use ledger::{BlockKey, Ledger, SharedBlock};
