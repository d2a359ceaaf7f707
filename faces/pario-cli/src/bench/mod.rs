//! `pario bench`: sides of a comparison in turn, each in fresh processes, and figures with median and spread.
//!
//! ```text
//!  cmd::bench ─► io | meta | full (a kernel: which sides, which figures) ─► Worker (a process per side) ─► Job
//!                     │                                                 Ground (directory, registry, partitions, janitor)
//!                     └─► Figures ─► Report (table or --json, with machine and settings)
//! ```
//! A further kernel adds a module that fills [`figures::Figures`], and a [`job::Job`] for what its processes do. `sched` has no
//! processes: it models a disk in virtual time, and `plot` draws what it finds.
//!
//! Never: measures inside the process that prints; leaves a server, a file or a directory behind, also when interrupted.
//! Always: the sides of a pair run one right after the other, on the same file system, with the same calls.

mod backed;
mod error;
mod figures;
mod footprint;
pub(crate) mod full;
mod ground;
pub(crate) mod io;
pub(crate) mod job;
pub(crate) mod kernel;
pub(crate) mod lock;
mod machine;
pub(crate) mod meta;
pub(crate) mod mpi;
mod plot;
mod progress;
mod report;
pub(crate) mod sched;
pub(crate) mod sliding;
pub(crate) mod worker;

pub(crate) use error::BenchError;
pub(crate) use figures::mib;
pub(crate) use ground::janitor;
pub(crate) use report::Report;

/// Pairs that a figure rests on unless told otherwise.
pub(crate) const PAIRS_DEFAULT: usize = 9;
/// Pairs of `--quick`.
pub(crate) const PAIRS_QUICK: usize = 3;
