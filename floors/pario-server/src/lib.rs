//! One server of a partition: service, coherence (leases, locks), merge and cache, staging; and the manager.
//!
//! Runs as threads of whatever process starts it: `pario serve`, an application, a test.
//!
//! Never: blocks its service thread on a disk or a peer. Always: a client that breaks the rules loses its connection and nothing
//! else does.

pub mod service;
pub mod stats;
pub mod stores;

pub mod coherence;
pub mod desk;
pub mod manager;

mod gather;
mod home;
mod peers;
mod pool;
mod relay;
mod take;
mod views;

/// The scheduler behind a server's desk.
pub use pario_sched as sched;

pub use desk::SchedulerSpec;
/// What a server stands on, for those who embed one above something of their own.
pub use pario_store as store;
pub use peers::Connect;
pub use service::{Ending, NamesSpec, Near, Server, ServerSpec, Taking};
pub use take::LivesSpec;
