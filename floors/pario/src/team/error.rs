//! The error of a team's call: the same on all members, with the bytes that this member transferred.

use std::fmt;
use std::sync::Arc;

use pario_core::{Code, Fault};

use crate::error::Error;

/// Kind of an error, to act on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TeamCode {
    /// The file ends inside, or before, the bytes of the call.
    EndOfFile,
    /// The disk is full.
    NoSpace,
    /// The user's quota is used up.
    Quota,
    /// An argument that a call cannot have.
    BadArgument,
    /// Members do not agree: on the function, the hint, the length of a common call, the name or the flags.
    NotSame,
    /// The handle is closed, or belongs to the parent of this process.
    Closed,
    /// A member ended, or did not come in time.
    Lost,
    /// Two teams use one handle at once.
    TwoTeams,
    /// Any other error, by its code.
    Other(Code),
}

impl TeamCode {
    /// The closest POSIX error number; 0 for the end of the file, which has none.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            TeamCode::EndOfFile => 0,
            TeamCode::NoSpace => Code::NoSpace.errno(),
            TeamCode::Quota => 122,
            TeamCode::BadArgument | TeamCode::NotSame => Code::Invalid.errno(),
            TeamCode::Closed => Code::Closed.errno(),
            TeamCode::Lost => Code::TimedOut.errno(),
            TeamCode::TwoTeams => Code::Busy.errno(),
            TeamCode::Other(code) => code.errno(),
        }
    }
}

/// An error of a call. Code and sentence are the same on all members; the count is that of this member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TeamError {
    code: TeamCode,
    text: Arc<str>,
    count: u64,
}

/// Result of a call.
pub type TeamResult<T> = std::result::Result<T, TeamError>;

impl TeamError {
    /// An error with its sentence, which names file, range and thread.
    pub fn new(code: TeamCode, text: impl Into<Arc<str>>) -> TeamError {
        TeamError { code, text: text.into(), count: 0 }
    }

    /// The kind of the error.
    #[must_use]
    pub fn code(&self) -> TeamCode {
        self.code
    }

    /// Bytes that this member got or wrote in the call. Exact at the end of the file; 0 after other errors.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The closest POSIX error number; 0 for the end of the file.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.code.errno()
    }

    pub(super) fn with_count(mut self, count: u64) -> TeamError {
        self.count = count;
        self
    }

    /// An error of the operating system; `doing` names file and range.
    pub(super) fn from_io(error: &std::io::Error, doing: impl fmt::Display) -> TeamError {
        if error.raw_os_error() == Some(TeamCode::Quota.errno()) {
            return TeamError::new(TeamCode::Quota, format!("{doing}: {error}"));
        }
        Fault::from_io(error, doing).into()
    }
}

impl fmt::Display for TeamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TeamError {}

impl From<Fault> for TeamError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other codes are passed on")]
    fn from(fault: Fault) -> TeamError {
        let code = match fault.code {
            Code::NoSpace => TeamCode::NoSpace,
            Code::Invalid => TeamCode::BadArgument,
            Code::NotSame => TeamCode::NotSame,
            Code::Closed => TeamCode::Closed,
            code => TeamCode::Other(code),
        };
        TeamError::new(code, fault.text)
    }
}

impl From<Error> for TeamError {
    fn from(error: Error) -> TeamError {
        Fault::new(error.code(), error.to_string()).into()
    }
}
