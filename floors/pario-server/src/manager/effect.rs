//! The caller of a request, and the manager's decisions for it and for others.

use pario_core::SessionId;
use pario_net::message::{Notice, Reply};

use crate::names::RequestOrigin;
use crate::peers::CallRounds;
use crate::service::LinkId;

/// The requesting connection and the number of its request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RequestCaller {
    pub(crate) link: LinkId,
    pub(crate) request: u64,
    pub(crate) session: SessionId,
}

impl RequestCaller {
    pub(super) fn origin(self) -> RequestOrigin {
        RequestOrigin { session: self.session, request: self.request }
    }
}

/// Actions for the service.
pub(crate) enum ManagerEffect {
    Reply {
        caller: RequestCaller,
        reply: Reply,
    },
    Waiting {
        caller: RequestCaller,
        on: String,
    },
    Recall {
        session: SessionId,
        notice: Notice,
    },
    /// A notice for a session; lost if the session has no notice connection.
    Notify {
        session: SessionId,
        notice: Notice,
    },
    Peers {
        token: u64,
        rounds: CallRounds,
    },
    Sync {
        caller: RequestCaller,
    },
    /// The manager knows of the end of a session's connection; earlier effects are of that connection.
    SessionEnded {
        session: SessionId,
    },
    /// A reply with a descriptor, for callers on the same node.
    Lend {
        caller: RequestCaller,
        reply: Reply,
        descriptor: std::os::fd::OwnedFd,
    },
}
