//! Errors of the scheduler. Always: an error names the requested value and the limit or the list of valid values.

use std::error::Error;
use std::fmt;

use crate::request::{ApplicationId, HostId, RequestId};

/// A controller cannot be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupError {
    /// No policy has this name.
    UnknownPolicy {
        /// The requested name.
        name: String,
        /// The existing policies.
        known: Vec<&'static str>,
    },
    /// An option has an invalid value.
    Option {
        /// The option.
        name: &'static str,
        /// Its valid range.
        rule: &'static str,
    },
}

/// A request is refused; the controller is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostRefused {
    /// The application has reached its present limit of unfinished requests: post again when one of them is complete.
    ApplicationFull {
        /// The application.
        application: ApplicationId,
        /// Its unfinished requests.
        queued: usize,
        /// Its limit now; falls as the whole queue fills, so that other applications can always post.
        limit: usize,
    },
    /// The controller is full, for every application.
    Full {
        /// The limit.
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
    /// No host with this id was added.
    UnknownHost(HostId),
}

/// `complete` was called for a request that is not running: never picked, already completed, or unknown.
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

impl fmt::Display for PostRefused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApplicationFull { application, queued, limit } => {
                write!(
                    out,
                    "application {} has {queued} unfinished requests, its limit now is {limit}: wait for one to complete",
                    application.0
                )
            }
            Self::Full { limit } => {
                write!(out, "the scheduler is full ({limit} requests): wait for one to complete")
            }
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
impl Error for PostRefused {}
impl Error for NotRunning {}
