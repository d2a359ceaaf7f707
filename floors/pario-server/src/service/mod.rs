//! The service: one thread that accepts, greets, decodes, dispatches and replies; blocking work is done on other threads.
//!
//! ```text
//!  listeners ─┐                     ┌─► manager (names, leases, locks)  its own thread ──► events
//!  links ─────┼─► epoll ─► dispatch ┼─► drain (outboxes, writes)        its own thread ──► events
//!  events ────┘                     └─► pool (reads, lends, syncs)      a few threads  ──► events
//! ```
//! Never: waits except in epoll. Always: every request gets exactly one answer, or its connection ends.

mod accept;
mod answer;
mod bound;
mod describe;
mod dispatch;
mod drain_handle;
mod event_loop;
mod keep;
mod link;
mod links;
mod listen;
mod mailbox;
mod near;
mod park;
mod remote_access;
mod report;
mod server;
mod server_identity;
mod spec;
mod unproved;

pub(crate) use self::describe::{describe, presentable};
pub use self::drain_handle::DrainHandle;
pub(crate) use self::event_loop::{Open, Service, TICK};
pub use self::keep::Keeping;
pub(crate) use self::link::LinkId;
use self::link::ServiceLink;
pub(crate) use self::mailbox::{Mailbox, RequestAnswer, ServiceEvent};
pub use self::near::LocalServer;
pub use self::server::{Ending, Server};
pub use self::server_identity::{POOL_THREADS_DEFAULT, ServerIdentity};
pub use self::spec::{NamesSpec, ServerSpec};
