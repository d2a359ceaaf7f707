//! Random faults against real processes of a partition, and the check that no acknowledged write is lost.
//!
//! Never: reads a partition's files directly; all checks go through clients, as a program would see it. Always: a failure prints the
//! seed, the round and its plan, and keeps the data.

pub mod cluster;
pub mod faults;
pub mod journal;
pub mod model;
pub mod names;
pub mod round;
pub mod soak;
pub mod writer;
