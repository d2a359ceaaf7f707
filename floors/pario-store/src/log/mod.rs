//! Log-structured containers: a file as a directory with one data log and one index for each writer. Format: docs/formats/log.md.
//!
//! ```text
//!  LogWriter ─► data log (append)            read_at ─► LogIndex (memory) ─► data logs
//!      └─► LogIndex (memory) ─► index file (each MiB, sync, close)
//! ```
//! Never: two writers share a file; a byte of a log is changed. Always: what was synced is there after a power cut, and every other write
//! is there whole or not at all; all access goes through the [`Disk`](crate::disk::Disk) interface.

mod check;
mod container;
mod entry;
mod error;
mod flatten;
mod index;
mod load;
mod marker;
mod read;
#[cfg(test)]
mod repair_tests;
mod store;
mod summary;
#[cfg(test)]
mod tests;
mod writer;

pub use check::{LogReport, check, is_container, remove, repair};
pub use container::{LogContainer, LogOptions};
pub use error::LogError;
pub use flatten::flatten;
pub use load::{FindingKind, LogFinding};
pub use store::LogStore;
pub use writer::{IndexFlush, LogWriter};
