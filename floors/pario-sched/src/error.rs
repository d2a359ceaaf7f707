//! What can be refused, and why. Always: an error says what was asked and what the limit or the list is.

use std::error::Error;
use std::fmt;

use crate::request::{ApplicationId, HostId, RequestId};

/// A controller cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupError {
    /// No policy has this name.
    UnknownPolicy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// An option has a value that cannot work.
    Option {
        /// Which.
        name: &'static str,
        /// What it must be.
        rule: &'static str,
    },
}

/// A request is not taken; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The application has as many requests unfinished as it may now have: post again when one of its requests is complete.
    ApplicationFull {
        /// Which.
        application: ApplicationId,
        /// How many it has.
        queued: usize,
        /// How many it may have now; falls as the whole queue fills, so that there is always room for others.
        limit: usize,
    },
    /// The controller is full, whoever asks.
    Full {
        /// How many requests it holds at most.
        limit: usize,
    },
    /// More applications or files have unfinished requests than the options allow.
    TooMany {
        /// `applications` or `files`.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// `offset + length` is more than a `u64` holds.
    Range {
        /// As posted.
        offset: u64,
        /// As posted.
        length: u64,
    },
    /// No such host was added.
    UnknownHost(HostId),
}

/// `complete` was told of a request that is not running: never picked, already completed, or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRunning(pub RequestId);

impl fmt::Display for SetupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy { name, known } => {
                write!(out, "no scheduling policy is called `{name}`; there are {}", known.join(", "))
            }
            Self::Option { name, rule } => write!(out, "scheduler option `{name}` {rule}"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApplicationFull { application, queued, limit } => {
                write!(
                    out,
                    "application {} has {queued} unfinished requests and may now have {limit}",
                    application.0
                )
            }
            Self::Full { limit } => write!(out, "the scheduler holds {limit} requests and no more"),
            Self::TooMany { what, limit } => write!(out, "more than {limit} {what} have unfinished requests"),
            Self::Range { offset, length } => {
                write!(out, "a request of {length} bytes at {offset} ends beyond the largest offset")
            }
            Self::UnknownHost(host) => write!(out, "host {} was never added", host.0),
        }
    }
}

impl fmt::Display for NotRunning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "request {} is not running, so it cannot complete", self.0)
    }
}

impl Error for SetupError {}
impl Error for Refused {}
impl Error for NotRunning {}
