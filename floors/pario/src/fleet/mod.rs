//! Fleets: servers as threads of a group's own processes.
//!
//! ```text
//!  start.rs      seed of rank 0 ─► a server in each chosen rank ─► addresses exchanged ─► a session with all of them
//!  node_cache/   blocks of files of a partition, in the memory of an application's nodes
//!  file_cache/   blocks of plain files, in the memory of a group's nodes
//! ```
//! A user of [`start_fleet`] names the ranks, opens the store of each server, and uses the session.
//!
//! Never: starts a process, or writes a socket or a secret to a disk. Always: all members of the group get the same servers, or the same
//! error; the servers of a process end with it.

mod choose;
pub mod file_cache;
mod member;
pub(crate) mod node_cache;
mod start;
#[cfg(test)]
mod tests;

use self::choose::choose_servers;
use self::member::{Fleet, FleetRole, common};
pub(crate) use self::member::{FleetServer, FleetStore};
use self::start::start_fleet;
pub(crate) use self::start::{FleetListen, FleetPlan, FleetServers, start_servers};
