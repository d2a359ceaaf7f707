//! Partitions over several hosts, launch commands, unauthenticated peers, and programs that link Pario; all with real processes.
//!
//! Hosts are network namespaces with disks of their own (see [`hosts`]): only the network joins them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod client;
mod collective;
mod cutting;
mod dying;
mod hosts;
mod launching;
mod linked;
mod protecting;
mod refusing;
mod sharing;
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "the world of the command line's tests; not all of it is used here")]
mod support;
mod together;
