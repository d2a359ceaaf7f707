//! The interface between the modelled server and a scheduler: it receives requests and returns those to serve next.

use super::disk::DiskDirection;
use super::{FileIndex, RequestIndex, VirtualNanos};

/// A request as passed to the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) index: RequestIndex,
    pub(crate) file: FileIndex,
    /// Number of the application.
    pub(crate) app: u32,
    pub(crate) kind: DiskDirection,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// Decision of a discipline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Serve these as one run: one file, one kind, adjacent.
    Serve(Vec<RequestIndex>),
    /// Nothing now; call again at this time, or at the next arrival or completion.
    Wait(VirtualNanos),
    /// Nothing until the next arrival or completion.
    Idle,
}

/// See the module.
pub(crate) trait Discipline {
    /// Whether it determines the order of service: then one run at a time is served, since the elevator below would reorder
    /// several. Otherwise all daemons of the server work concurrently.
    fn orders_service(&self) -> bool;
    /// A request arrived.
    fn post(&mut self, request: Posted, now: VirtualNanos);
    /// The next decision; called only while the server can accept more.
    fn next(&mut self, now: VirtualNanos) -> Next;
    /// A served request completed.
    fn complete(&mut self, index: RequestIndex, now: VirtualNanos);
}
