//! One server of a partition: service, coherence (leases, locks), draining of outboxes, I/O queue; and the manager.
//!
//! Runs as threads of the process that starts it: `pario serve`, an application, a test.
//!
//! Never: blocks its service thread on a disk or a peer. Always: a client that violates the protocol loses its own connection only.

pub mod service;
pub mod stats;
pub mod stores;

pub mod coherence;
pub mod io_queue;
pub mod names;

mod data_parts;
mod drain;
mod gather;
mod inspect;
mod manager;
mod peers;
mod pool;
mod relay;
mod views;

/// The scheduler of a server's I/O queue.
pub use pario_sched as sched;

pub use drain::RestartLogSpec;
pub use io_queue::SchedulerSpec;
/// The stores below a server, for programs that embed a server over their own store.
pub use pario_store as store;
pub use peers::Connect;
pub use service::{
    DrainHandle, Ending, Keeping, LocalServer, NamesSpec, POOL_THREADS_DEFAULT, Server, ServerIdentity,
    ServerSpec,
};
