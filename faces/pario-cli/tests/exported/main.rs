//! Exported partitions: `pario export`, used by the tools of libnfs and by a client that keeps its handles while processes die.
//!
//! Processes and files of a test end with it, also when it fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../../pario-posix/tests/nfs/client.rs"]
#[expect(dead_code, reason = "the users of the export's tests; exports of this process are not used here")]
mod client;
mod dying;
mod fixture;
mod mistakes;
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "the world of the command line's tests; not all of it is used here")]
mod support;
mod tools;
