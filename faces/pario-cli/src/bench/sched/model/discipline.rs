//! The seam between the modelled server and what is judged: who is told of requests and says which ones go on now.

use super::disk::Kind;
use super::{FileIndex, Nanos, RequestIndex};

/// A request as the scheduler sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) index: RequestIndex,
    pub(crate) file: FileIndex,
    /// Number of the application.
    pub(crate) app: u32,
    pub(crate) kind: Kind,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// What a discipline wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// These go on, as one run: one file, one kind, one behind the other.
    Serve(Vec<RequestIndex>),
    /// Nothing now; ask again then, or when something comes or ends.
    Wait(Nanos),
    /// Nothing until something comes or ends.
    Idle,
}

/// See the module.
pub(crate) trait Discipline {
    /// Whether the order of service is its own: then one run at a time goes on, as the elevator below would mix several. Else
    /// all daemons of the server work at the same time.
    fn orders_service(&self) -> bool;
    /// A request came.
    fn post(&mut self, request: Posted, now: Nanos);
    /// What goes on now; asked only while the server can take more.
    fn next(&mut self, now: Nanos) -> Next;
    /// A request that went on was carried out.
    fn complete(&mut self, index: RequestIndex, now: Nanos);
}
