//! What the command says when it cannot do what was asked: one line, and an exit code.
//!
//! Always: one line per error, `pario: WHAT (CURE)`; the exit code says which kind it was.

use std::fmt;
use std::io;
use std::path::Path;

use pario::core::Code;
use pario::partition::{ConfigError, LocationError, RegistryError};

/// The operation failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command line, the partition file or the environment is wrong; nothing was done.
pub(crate) const EXIT_USAGE: u8 = 2;
/// A part was done, or problems remain.
pub(crate) const EXIT_PARTLY: u8 = 3;
/// Added to the number of a signal that ended something.
pub(crate) const EXIT_SIGNAL: u8 = 128;

/// Why a subcommand ends without success.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The operation failed.
    Failed {
        /// What, where, why.
        text: String,
        /// What can be done about it.
        cure: Option<String>,
    },
    /// What was typed, or set, cannot be.
    Usage {
        /// What, and the rule.
        text: String,
    },
    /// Every failure was told where it happened; only the exit code is left to give.
    Told {
        /// The code.
        code: u8,
    },
    /// A signal ended it.
    Interrupted {
        /// Which.
        signal: i32,
    },
    /// Nobody reads the output any more: nothing to complain about.
    NobodyReads,
}

/// What a subcommand returns.
pub(crate) type Outcome<T = ()> = Result<T, CliError>;

impl CliError {
    /// A failure without a cure of its own.
    pub(crate) fn failed(text: impl fmt::Display) -> CliError {
        CliError::Failed { text: text.to_string(), cure: None }
    }

    /// A failure and its cure.
    pub(crate) fn with_cure(text: impl fmt::Display, cure: impl Into<String>) -> CliError {
        CliError::Failed { text: text.to_string(), cure: Some(cure.into()) }
    }

    /// A wrong command line.
    pub(crate) fn usage(text: impl fmt::Display) -> CliError {
        CliError::Usage { text: text.to_string() }
    }

    /// A fault of this machine's own file system.
    pub(crate) fn local(path: &Path, error: &io::Error) -> CliError {
        let text = format!("{}: {}", path.display(), plain(error));
        let kind = error.kind();
        if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return CliError::with_cure(text, "free some space, then repeat the command");
        }
        if matches!(kind, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) {
            return CliError::with_cure(text, "choose another place, or change its permissions");
        }
        CliError::failed(text)
    }

    /// A fault of a partition, about the file that `place` names.
    pub(crate) fn remote(place: impl fmt::Display, error: &pario::Error) -> CliError {
        let code = error.code();
        let text = if is_about_a_name(code) { code.text().to_owned() } else { error.to_string() };
        let text = if matches!(error, pario::Error::Setup(_)) { text } else { format!("{place}: {text}") };
        CliError::Failed { text, cure: cure(code).filter(|_| !matches!(error, pario::Error::Setup(_))) }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            CliError::Failed { .. } => EXIT_FAILED,
            CliError::Usage { .. } => EXIT_USAGE,
            CliError::Told { code } => *code,
            CliError::Interrupted { signal } => signal_code(*signal),
            CliError::NobodyReads => 0,
        }
    }
}

/// The exit code that stands for the end by a signal.
pub(crate) fn signal_code(signal: i32) -> u8 {
    EXIT_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// The system's words without the number behind them.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Codes whose few words say everything once the file is named.
fn is_about_a_name(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::Exists
            | Code::NotDirectory
            | Code::IsDirectory
            | Code::NotEmpty
            | Code::LinkLoop
            | Code::Denied
    )
}

fn cure(code: Code) -> Option<String> {
    let text = match code {
        Code::NotEmpty => "empty it first, or use `pario rm -r`",
        Code::NoSpace => "free some space: `pario df -v` shows which server is full",
        Code::Unreachable => "`pario status` shows the servers; `pario up NAME` starts those that died",
        Code::WrongSecret => {
            "the partition was restarted, or the registry is another one: check PARIO_REGISTRY"
        }
        Code::Protocol => "use the same version of Pario as the servers, or restart them with this one",
        Code::NotFound
        | Code::Exists
        | Code::NotDirectory
        | Code::IsDirectory
        | Code::NameTooLong
        | Code::LinkLoop
        | Code::Invalid
        | Code::TooLarge
        | Code::ReadOnly
        | Code::Denied
        | Code::Stale
        | Code::Busy
        | Code::Io
        | Code::Lost
        | Code::Unsupported
        | Code::TooMany
        | Code::Corrupt
        | Code::ShuttingDown
        | Code::Closed
        | Code::CrossDevice
        | Code::TimedOut => return None,
    };
    Some(text.to_owned())
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Failed { text, cure: Some(cure) } => write!(f, "{} ({cure})", one_line(text)),
            CliError::Failed { text, cure: None } | CliError::Usage { text } => f.write_str(&one_line(text)),
            CliError::Interrupted { signal } => write!(f, "interrupted by signal {signal}"),
            CliError::Told { .. } | CliError::NobodyReads => Ok(()),
        }
    }
}

/// A text as one line, whatever a file's name holds.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl From<pario::Error> for CliError {
    fn from(error: pario::Error) -> CliError {
        let cure = cure(error.code()).filter(|_| !matches!(error, pario::Error::Setup(_)));
        CliError::Failed { text: error.to_string(), cure }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> CliError {
        CliError::usage(error)
    }
}

impl From<LocationError> for CliError {
    fn from(error: LocationError) -> CliError {
        CliError::usage(error)
    }
}

impl From<RegistryError> for CliError {
    fn from(error: RegistryError) -> CliError {
        CliError::failed(error)
    }
}

/// Errors of the output stream.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> CliError {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return CliError::NobodyReads;
        }
        CliError::failed(format!("cannot write the output: {}", plain(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario::core::Fault;

    #[test]
    fn a_fault_is_one_line_that_names_the_file() {
        let error = pario::Error::from(Fault::new(Code::NotEmpty, "x: whatever"));
        let text = CliError::remote("pario://s/x", &error).to_string();
        assert_eq!(text, "pario://s/x: directory not empty (empty it first, or use `pario rm -r`)");
        let error = pario::Error::from(Fault::new(Code::Unreachable, "server 2 is\nunreachable"));
        let text = CliError::remote("pario://s/x", &error).to_string();
        assert!(text.starts_with("pario://s/x: server 2 is?unreachable ("), "{text}");
    }

    #[test]
    fn codes_tell_kinds_apart() {
        assert_eq!(CliError::failed("x").code(), 1);
        assert_eq!(CliError::usage("x").code(), 2);
        assert_eq!(CliError::Interrupted { signal: 15 }.code(), 143);
        assert_eq!(CliError::from(io::Error::from(io::ErrorKind::BrokenPipe)).code(), 0);
    }

    #[test]
    fn a_local_fault_has_no_number() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(CliError::local(Path::new("/x"), &error).to_string(), "/x: no such file or directory");
    }
}
