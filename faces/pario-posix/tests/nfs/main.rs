//! The export, with the client of the crate `nfs3_client`: every procedure for what it does and for mistakes, rights, coherence with other
//! clients of the partition, and frames that lie.
//!
//! `PARIO_SEED` repeats the mutated frames, `PARIO_FRAMES` says how many are sent.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by a panic too")]

mod client;
mod coherence;
mod data;
mod frames;
mod listing;
mod names;
mod objects;
mod rights;
