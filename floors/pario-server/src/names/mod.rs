//! Names and inodes of a partition, kept in a ledger (redb behind a log).
//!
//! From the bottom up: [`batch`] and [`record`] are bytes, [`log`], [`replay`], [`memtable`] and [`base`] make a [`ledger`] with its
//! [`threads`] and its second [`copy`], which [`recover`] opens; [`rows`] are the rows of the name space, [`tree`] walks them, [`edit`]
//! changes them, [`name_space`] is the interface for the server.

pub mod base;
pub mod batch;
pub mod copy;
pub mod edit;
mod guard;
pub mod ledger;
pub mod length;
pub mod log;
mod make;
pub mod memtable;
mod mend;
pub mod name_space;
pub mod offline;
pub mod record;
pub mod recover;
pub mod replay;
pub mod reserve;
pub mod rows;
pub mod sessions;
pub mod threads;
pub mod tree;
mod unmake;
mod xattrs;

pub use ledger::{Ledger, LedgerPace, LedgerStats, SyncDone};
pub use length::{PendingObjectChange, Truncation};
pub use name_space::{NameAnswer, Names, NamesStats, RequestOrigin, Unlinked, WriterSession};
pub use recover::{LedgerSpec, NamesExpected, Recovery};

#[cfg(test)]
mod tests;
