//! The lock machine: range locks of all files of a partition, queued fairly, cached by their holders until another owner requests them.
//!
//! A client is granted a *token*: within it it locks and unlocks without messages. A conflicting request makes the machine recall the
//! tokens that block it; a client returns unused ones, replies *busy* for those in use, and returns them when it unlocks.
//!
//! Never: revokes a token by time; lets a request overtake an older one that it conflicts with, unless that waits for a token of the same
//! owner; recalls a token twice without need. Always: requests of one owner do not conflict; a request is answered once, unless its session
//! ends; a cycle of waiting user locks ends with an error for the youngest request in it.

mod deadlock;
mod file;
mod machine;
mod request;
mod shape;
mod spans;

#[cfg(test)]
mod tests;

pub use self::machine::Locks;
pub use self::request::{
    LockAction, LockLine, LockRequest, LockState, LockWait, Refusal, TokenOwner, WaitLimit,
};
pub use self::shape::LockedBytes;
use super::WaitTicket;
