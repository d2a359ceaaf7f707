//! A file server of the paper's time, in virtual time: clients, network, scheduler, page cache, elevator, disk.
//!
//! ```text
//!  clients ── network ──► Discipline (post, next, complete) ──► Cache, Behind ──► Elevator ──► Disk
//!     ▲                      what is judged                      read-ahead,       128 deep,     seek,
//!     └────── network ◄── replies                                write-behind      merged        rotation
//! ```
//! [`ModelRun::run`] goes from event to event. Its constants are in [`Params`], one set for all experiments.
//!
//! Never: reads a clock, starts a thread, accesses a file. Always: the same result for the same applications, discipline and seed.

mod app;
mod cache;
mod client;
mod discipline;
mod disk;
mod elevator;
mod event_loop;
mod network;
mod params;
mod random;
mod result;
mod server;
mod write_behind;

#[cfg(test)]
mod tests;

pub(crate) use app::App;
pub(crate) use discipline::{Discipline, Next, Posted};
pub(crate) use disk::DiskDirection;
pub(crate) use event_loop::ModelRun;
pub(crate) use params::Params;
pub(crate) use result::{AppResult, RunResult};

/// Virtual time and spans of it.
pub(crate) type VirtualNanos = u64;

/// Nanoseconds of a second.
pub(crate) const NS: VirtualNanos = 1_000_000_000;

/// A file of the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FileIndex(pub(crate) usize);

/// An operation of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpId(pub(crate) u32);

/// A request that a client sent and that has not been answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RequestIndex(pub(crate) u32);
