//! The mailbox of the service: events of other threads, and the doorbell that wakes epoll.
//!
//! Its channel has no limit of its own, since no thread may wait for the service. Bound: an event ends or continues a task that was in a
//! queue with the limit `TASKS_WAITING_MAX`, or a request in flight of a peer; control events (stop, peers, names) come once each.

use std::sync::Arc;

use crossbeam_channel::Sender;
use pario_core::{Fault, SessionId};
use pario_net::message::Reply;
use pario_net::stream::Stream;
use pario_sys::doorbell::Doorbell;

use super::{Keeping, LinkId};
use crate::manager::{ManagerEffect, ManagerHandle};
use crate::peers::Connect;

/// Events posted to the service by other threads.
pub(crate) enum ServiceEvent {
    /// A reply is ready.
    Answer(RequestAnswer),
    /// A connection made inside this process.
    Accept(Stream),
    /// Connections to the peers, known when all servers are up.
    Peers(Arc<dyn Connect>),
    /// The manager's part, opened separately.
    Manager(ManagerHandle),
    /// Directory for files beside the objects.
    Keep(Box<Keeping>),
    /// An outbox violated the protocol.
    Violation(SessionId, String),
    /// Decisions of the manager.
    Effects(Vec<ManagerEffect>),
    /// The manager's thread has ended.
    NamesClosed(Result<(), Fault>),
    /// Orderly shutdown.
    Stop,
    /// The drain thread has stopped and the store is synced.
    Quiet(Result<(), Fault>),
}

/// A reply to one request.
pub(crate) struct RequestAnswer {
    pub(crate) link: LinkId,
    pub(crate) request: u64,
    pub(crate) reply: Reply,
    pub(crate) data: Vec<u8>,
    pub(crate) descriptors: Vec<std::os::fd::OwnedFd>,
}

/// Posts events to the service from any thread.
#[derive(Clone)]
pub(crate) struct Mailbox {
    pub(super) events: Sender<ServiceEvent>,
    pub(super) doorbell: Arc<Doorbell>,
}

impl Mailbox {
    pub(crate) fn post(&self, event: ServiceEvent) {
        if self.events.send(event).is_ok() {
            let _ = self.doorbell.ring();
        }
    }
}
