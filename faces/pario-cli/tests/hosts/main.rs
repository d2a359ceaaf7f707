//! Partitions over several hosts, launch commands, strangers at the door, and programs that link Pario; all with real processes.
//!
//! Hosts are network namespaces that also see a disk of their own (see [`hosts`]): nothing but the wire joins them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod client;
mod collective;
mod cutting;
mod hosts;
mod launching;
mod linked;
mod refusing;
mod sharing;
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "the world of the command line's tests; not all of it is used here")]
mod support;
mod together;
