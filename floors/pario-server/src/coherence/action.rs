//! The words that go into and come out of the lease machine.

use std::time::Duration;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Lease, Want};

/// Names one waiting request, so that its answer finds it. Chosen by the shell; not in use twice at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A session asks for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Who.
    pub session: SessionId,
    /// On which file.
    pub inode: InodeId,
    /// For what.
    pub want: Want,
    /// For whom.
    pub party: Party,
    /// Where the answer goes.
    pub ticket: Ticket,
}

/// Sessions that keep out of each other's bytes by themselves and so count as one user of a file: the tier-1 servers of one
/// application. Zero is nobody's: such a session is a user of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Party(pub u64);

impl Party {
    /// Whether two sessions are of one party.
    #[must_use]
    pub fn is_one_with(self, other: Party) -> bool {
        self.0 != 0 && self == other
    }
}

/// A session gives a lease back: everything written under it is in the stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Return {
    /// Who.
    pub session: SessionId,
    /// Of which file.
    pub inode: InodeId,
    /// Which lease.
    pub number: u64,
}

/// How quiet a file must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// Nothing is being written behind: length and contents are settled (stat). Over as soon as it is quiet.
    Look,
    /// Nobody holds or gets a lease until [`Leases::barrier_end`](super::Leases::barrier_end) (truncate, removal).
    Stop,
}

/// Somebody needs a file quiet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierAsk {
    /// Which file.
    pub inode: InodeId,
    /// Where the answer goes.
    pub ticket: Ticket,
    /// How quiet.
    pub kind: Barrier,
    /// The session for which it is. For a `Look` its own exclusive lease may stay: it knows its own length.
    pub asker: Option<SessionId>,
}

/// What the shell has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Answer a request. The lease replaces any other that the session had on the file.
    Grant {
        /// Which request.
        ticket: Ticket,
        /// Whose.
        session: SessionId,
        /// What it gets.
        lease: Lease,
    },
    /// Ask a holder for its lease. Sent at most once per number.
    Recall {
        /// The holder.
        session: SessionId,
        /// The file.
        inode: InodeId,
        /// Which lease.
        number: u64,
    },
    /// Drain what the session left in its outbox, measure the file's length, then call
    /// [`Leases::settled`](super::Leases::settled).
    Settle {
        /// The file.
        inode: InodeId,
        /// Whose records.
        session: SessionId,
    },
    /// The file is as quiet as this barrier wanted.
    Quiet {
        /// Which barrier.
        ticket: Ticket,
    },
}

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiter {
    /// A session, for a lease.
    Session(SessionId),
    /// A barrier, for silence.
    Barrier(Barrier),
}

/// One wait, for `status` and for notices to whoever waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitLine {
    /// The file.
    pub inode: InodeId,
    /// Who waits.
    pub waiter: Waiter,
    /// Its ticket.
    pub ticket: Ticket,
    /// Since when.
    pub since: Nanos,
    /// For how long by now.
    pub waited: Duration,
    /// Who holds the file, the dead that are not settled included.
    pub holders: Vec<SessionId>,
    /// The stop barrier in force, if that is what it waits for.
    pub stopped_by: Option<Ticket>,
}
