//! Mounted partitions: real mounts by the `pario` command, used by programs that know nothing of Pario.
//!
//! Every test needs root and `/dev/fuse`. Mounts, processes and files of a test end with it, also when it fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod calls;
mod dying;
mod fixture;
mod locks;
mod mistakes;
mod programs;
mod sharing;
mod suites;
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "the world of the command line's tests; not all of it is used here")]
mod support;
