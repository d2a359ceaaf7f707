//! Requests for locks, their owners, and the actions and reports of the lock machine.

use std::ops::Range;
use std::time::Duration;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{LockMode, LockSpace};

use super::{LockedBytes, WaitTicket};

/// Owner of a lock. Equal owners never exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TokenOwner {
    /// The requesting session.
    pub session: SessionId,
    /// Owner slot inside the session: a handle, a call in progress; chosen by the client.
    pub slot: u64,
    /// Lock group or application on behalf of which the session requests; 0: only the owner slot.
    pub lock_group: u64,
}

impl TokenOwner {
    /// Whether the two are one owner, so that their locks do not exclude each other.
    #[must_use]
    pub fn is_one_with(self, other: TokenOwner) -> bool {
        match self.lock_group {
            0 => self == other,
            club => club == other.lock_group,
        }
    }
}

/// A request for a lock.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// The owner.
    pub owner: TokenOwner,
    /// The file.
    pub inode: InodeId,
    /// Locks of different spaces are independent.
    pub space: LockSpace,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// The bytes.
    pub shape: LockedBytes,
    /// Timeout.
    pub wait_limit: WaitLimit,
    /// Ticket of the answer.
    pub ticket: WaitTicket,
}

/// How long a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitLimit {
    /// Not for a lock that is in use.
    Try,
    /// Without limit.
    Wait,
    /// Until this time.
    Until(Nanos),
}

/// Actions for the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockAction {
    /// Answer a request. `bytes` may be more than was requested.
    Grant {
        /// The request's ticket.
        ticket: WaitTicket,
        /// Its session.
        session: SessionId,
        /// The token's number.
        number: u64,
        /// The covered bytes lie in this range; all of it, unless a shape was requested.
        bytes: Range<u64>,
    },
    /// Recall a token from its holder.
    Recall {
        /// The holder.
        session: SessionId,
        /// The file.
        inode: InodeId,
        /// The number of the token.
        number: u64,
        /// Range in which it blocks a request.
        wanted: Range<u64>,
    },
    /// Refuse a request.
    Refuse {
        /// The request's ticket.
        ticket: WaitTicket,
        /// The reason.
        why: Refusal,
    },
}

/// Reason of a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It must not wait, and these owners hold the lock.
    InUse(Vec<TokenOwner>),
    /// Its timeout expired, and these owners hold the lock.
    TimedOut(Vec<TokenOwner>),
    /// Deadlock: each of these owners waits for the next, the last for the first.
    Deadlock(Vec<TokenOwner>),
    /// It was cancelled.
    Cancelled,
    /// The session has too many tokens and requests.
    TooMany,
}

/// A token, for `status` and for lock queries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockLine {
    /// The file.
    pub inode: InodeId,
    /// The owner.
    pub owner: TokenOwner,
    /// The lock space.
    pub space: LockSpace,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Its range.
    pub bytes: Range<u64>,
    /// Its state.
    pub state: LockState,
}

/// State of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// Its holder has it, in use or not.
    Held,
    /// Recalled, not answered yet.
    Recalled,
    /// Recalled, and in use.
    InUse,
    /// Its holder is dead, and its records are being drained.
    Dead,
}

/// A waiting request, for `status` and for notices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockWait {
    /// The file.
    pub inode: InodeId,
    /// The owner.
    pub owner: TokenOwner,
    /// Its ticket.
    pub ticket: WaitTicket,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Its range.
    pub bytes: Range<u64>,
    /// Duration so far.
    pub waited: Duration,
    /// Owners that block it.
    pub holders: Vec<TokenOwner>,
}
