//! One mounted partition: connections and recovery, outbox, names, views, notices, watchdog, worker threads.
//!
//! Never: file data outside the outbox. Always: one session id per mount, the same on all connections.

pub(super) mod application;
mod attach_servers;
pub(super) mod counts;
pub(super) mod deferred;
mod direct_report;
pub(super) mod directory;
pub(super) mod executor;
mod exit;
mod notices;
pub(super) mod options;
mod recovery;
mod slots;
pub(super) mod state;
mod timed;
mod umask;
pub(super) mod views;
mod visits;
mod watchdog;
