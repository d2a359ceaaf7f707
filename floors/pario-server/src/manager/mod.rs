//! The manager: names and inodes of a partition, kept in a ledger (redb behind a log).
//!
//! From the bottom up: [`batch`] and [`record`] are bytes, [`log`], [`replay`], [`memtable`] and [`base`] make a [`ledger`] with
//! its [`threads`]; [`rows`] are what the names keep in it, [`tree`] walks them, [`edit`] changes them, [`names`] is what the
//! server calls.

pub mod base;
pub mod batch;
pub mod edit;
pub mod ledger;
pub mod length;
pub mod log;
mod make;
pub mod memtable;
pub mod names;
pub mod record;
pub mod replay;
pub mod reserve;
pub mod rows;
pub mod sessions;
pub mod threads;
pub mod tree;
mod unmake;

pub use ledger::{Done, Ledger, LedgerStats, Pace};
pub use length::{Pending, Truncation};
pub use names::{Answer, Names, NamesStats, Origin, Unlinked, Writer};

#[cfg(test)]
mod tests;
