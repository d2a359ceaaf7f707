//! Inputs and actions of the lease machine.

use std::time::Duration;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Lease, Want};

/// Identifies one waiting request, so that its answer finds it. Chosen by the shell; unique among waiting requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaitTicket(pub u64);

/// A session's request for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRequest {
    /// The requesting session.
    pub session: SessionId,
    /// The file.
    pub inode: InodeId,
    /// The access it needs.
    pub want: Want,
    /// Its lease group.
    pub group: LeaseGroup,
    /// Ticket of the answer.
    pub ticket: WaitTicket,
}

/// Lease group: sessions that coordinate their writes themselves and so count as one user of a file, as the node-cache servers of one
/// application. Zero means no group: such a session is a user of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeaseGroup(pub u64);

impl LeaseGroup {
    /// Whether two sessions are of one lease group.
    #[must_use]
    pub fn is_one_with(self, other: LeaseGroup) -> bool {
        self.0 != 0 && self == other
    }
}

/// A session returns a lease: everything written under it is in the stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Return {
    /// The returning session.
    pub session: SessionId,
    /// The file.
    pub inode: InodeId,
    /// The number of the lease.
    pub number: u64,
}

/// How quiet a file must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// No write-back is in progress: length and contents are final (stat). Ends as soon as the file is quiet.
    Look,
    /// No session holds or gets a lease until [`Leases::barrier_end`](super::Leases::barrier_end) (truncate, removal).
    Stop,
}

/// Request of the shell for a quiet file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierRequest {
    /// The file.
    pub inode: InodeId,
    /// Ticket of the answer.
    pub ticket: WaitTicket,
    /// Kind of barrier.
    pub kind: Barrier,
    /// The session on behalf of which it is requested. For a `Look` its own exclusive lease may stay: it knows its own length.
    pub requester: Option<SessionId>,
}

/// Actions for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseAction {
    /// Answer a request. The lease replaces any other that the session had on the file.
    Grant {
        /// The request's ticket.
        ticket: WaitTicket,
        /// The requesting session.
        session: SessionId,
        /// The granted lease.
        lease: Lease,
    },
    /// Recall a lease from its holder. Sent at most once per number.
    Recall {
        /// The holder.
        session: SessionId,
        /// The file.
        inode: InodeId,
        /// The number of the lease.
        number: u64,
    },
    /// Drain the records that the session left in its outbox, measure the file's length, then call
    /// [`Leases::recovered`](super::Leases::recovered).
    Recover {
        /// The file.
        inode: InodeId,
        /// The dead session.
        session: SessionId,
    },
    /// The file is as quiet as this barrier requested.
    Quiet {
        /// The barrier's ticket.
        ticket: WaitTicket,
    },
}

/// Kind of waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiter {
    /// A session, for a lease.
    Session(SessionId),
    /// A barrier, for silence.
    Barrier(Barrier),
}

/// One wait, for `status` and for notices to waiting clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitLine {
    /// The file.
    pub inode: InodeId,
    /// The waiter.
    pub waiter: Waiter,
    /// Its ticket.
    pub ticket: WaitTicket,
    /// Start of the wait.
    pub since: Nanos,
    /// Duration so far.
    pub waited: Duration,
    /// Holders of the file, dead ones that are not recovered included.
    pub holders: Vec<SessionId>,
    /// The stop barrier in force, if it waits for that.
    pub stopped_by: Option<WaitTicket>,
}
