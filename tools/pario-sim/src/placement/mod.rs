//! Simulation of placement in the file cache: servers on one plain file with blocks that have a fixed home, or an owner that changes.
//!
//! The directories of homes, the tables of owners, the walk of an access and the outcome of a handover (`pario_store::placement`) are the
//! real code, as are the blocks and ledgers of caches. Threads are tasks scheduled by the seeded generator, which wait as the real ones
//! do; messages are delayed, reordered, lost with their connection, late or duplicated:
//!
//! ```text
//!  client ─► task: walk ─┬─ own block
//!                        ├─ claim, give back, report handover ─► home (directory)
//!                        ├─ remote access ─► owner's task ─► its block
//!                        ├─ handover ──► owner's task ─► out of its cache ─► report ─► home
//!                        └─ atomic: all blocks held, or read with the same versions (atomic)
//! ```
//! Not simulated: truncation, read-ahead, a second file. Always: the same seed gives the same run. Never: reads a clock, sleeps, spawns a
//! thread.

mod access;
mod atomic;
mod faults;
mod net;
mod oracle;
mod owner;
mod runner;
mod server;
mod simulation;
mod task;

pub(crate) use runner::run;
