//! Back-pressure: requests that find the queue of their thread full wait in their connection, which is not read meanwhile.
//!
//! Requests of peers are never parked: a pool of another server may wait for them. Requests that need no queue (probes) are answered
//! unless an earlier request of their connection is parked.
//!
//! Never: blocks the service thread; lets clients queue more than `TASKS_WAITING_MAX` tasks for one thread. Always: requests of one
//! connection are dispatched in order of arrival.

use pario_core::limits::TASKS_WAITING_MAX;
use pario_net::frame::Frame;
use pario_net::message::Request;

use super::{LinkId, Service};

/// A request that waits in its connection.
#[derive(Debug)]
pub(crate) struct ParkedRequest {
    pub(super) frame: Frame,
    pub(super) request: Request,
}

impl Service {
    /// Dispatches a request, or parks it.
    pub(super) fn admit(&mut self, id: LinkId, frame: Frame, request: Request) {
        let behind = self.parked.contains(&id);
        if !behind && !self.must_wait(id, &request) {
            return self.dispatch(id, frame, request);
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        link.park(ParkedRequest { frame, request });
        if !behind {
            self.parked.push_back(id);
        }
    }

    /// Dispatches parked requests that their queues have room for; connections in the order in which they were parked.
    pub(super) fn resume_parked(&mut self) {
        for id in std::mem::take(&mut self.parked) {
            while let Some(parked) = self.links.get_mut(&id).and_then(super::ServiceLink::unpark) {
                if self.must_wait(id, &parked.request) {
                    if let Some(link) = self.links.get_mut(&id) {
                        link.park_first(parked);
                    }
                    self.parked.push_back(id);
                    break;
                }
                self.dispatch(id, parked.frame, parked.request);
            }
            self.watch_link(id);
        }
    }

    /// Whether the queue that a request needs is full.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others need the store")]
    fn must_wait(&self, id: LinkId, request: &Request) -> bool {
        let store = || {
            let threads = self.drainer.waiting().max(self.pool.waiting());
            threads.max(self.visits.waiting())
        };
        let waiting = match request {
            Request::Ping {}
            | Request::CountDirect { .. }
            | Request::Status {}
            | Request::Shutdown { .. }
            | Request::AddressChanged { .. }
            | Request::Bind { .. } => 0,
            Request::Name { .. }
            | Request::Close { .. }
            | Request::Acquire { .. }
            | Request::AcquireFree { .. }
            | Request::Return { .. }
            | Request::Extend { .. }
            | Request::Use { .. }
            | Request::SetLength { .. }
            | Request::SyncNames { .. }
            | Request::Lock { .. }
            | Request::FindLock { .. }
            | Request::Unlock { .. }
            | Request::LockBusy { .. }
            | Request::CancelLock { .. }
            | Request::SharePointer { .. }
            | Request::MovePointer { .. }
            | Request::ListInodes { .. } => self.manager.as_ref().map_or(0, |manager| manager.waiting()),
            _ => store(),
        };
        TASKS_WAITING_MAX <= waiting && self.stopping.is_none() && !self.is_peer(id)
    }
}
