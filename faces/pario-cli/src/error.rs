//! Errors of the command: one line, and an exit code.
//!
//! Always: one line per error, `pario: WHAT (CURE)`; the exit code tells the kind of failure.

use std::fmt;
use std::io;
use std::path::Path;

use pario::core::Code;
use pario::partition::{ConfigError, LocationError, RegistryError};
use pario::transfer::TransferError;

/// The operation failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command line, the partition file or the environment is wrong; nothing was done.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Partial success, or problems remain.
pub(crate) const EXIT_PARTLY: u8 = 3;
/// Shell convention: the command could not be run.
pub(crate) const EXIT_NOT_RUN: u8 = 126;
/// Shell convention: the command was not found.
pub(crate) const EXIT_NO_COMMAND: u8 = 127;
/// Added to the number of the signal that ended a command.
pub(crate) const EXIT_SIGNAL: u8 = 128;

/// Why a subcommand failed.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The operation failed.
    Failed {
        /// Object and cause.
        text: String,
        /// The cure.
        cure: Option<String>,
    },
    /// The command line or the environment is wrong.
    Usage {
        /// Object and rule.
        text: String,
    },
    /// Every failure was already printed; only the exit code remains.
    Reported {
        /// The code.
        code: u8,
    },
    /// A signal ended the subcommand.
    Interrupted {
        /// Which.
        signal: i32,
    },
    /// Standard output was closed by its reader: no message.
    OutputClosed,
}

/// Result of a subcommand.
pub(crate) type CliResult<T = ()> = Result<T, CliError>;

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

    /// An error of this machine's file system.
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

    /// An error of a partition, about the file or partition `place`.
    pub(crate) fn remote(place: impl fmt::Display, error: &pario::Error) -> CliError {
        let code = error.code();
        let place = place.to_string();
        let partition = partition_of(&place);
        if matches!(error, pario::Error::Setup(_)) {
            return CliError::Failed { text: error.to_string(), cure: None };
        }
        // A server of another user denies every request, for any name.
        let foreign = error.to_string().contains("belongs to user");
        let text = if is_about_a_name(code) && !foreign { code.text().to_owned() } else { error.to_string() };
        let told = text.contains(&format!("{place}: ")) || (place.contains('/') && text.contains(&place));
        let text = if told { text } else { format!("{place}: {text}") };
        // The location names the partition.
        let text = match partition {
            Some(name) => text.replacen(&format!(": {name}: "), ": ", 1),
            None => text,
        };
        CliError::Failed { text, cure: cure(code, partition) }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            CliError::Failed { .. } => EXIT_FAILED,
            CliError::Usage { .. } => EXIT_USAGE,
            CliError::Reported { code } => *code,
            CliError::Interrupted { signal } => signal_code(*signal),
            CliError::OutputClosed => 0,
        }
    }
}

/// The exit code for the end by a signal.
pub(crate) fn signal_code(signal: i32) -> u8 {
    EXIT_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// The system's error text without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Codes that need no further text once the file is named.
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

/// `NAME` of `pario://NAME/path`, or of `NAME` alone.
fn partition_of(place: &str) -> Option<&str> {
    let name = place.strip_prefix("pario://").map_or(place, |rest| rest.split('/').next().unwrap_or(""));
    (!name.is_empty() && !name.contains(['/', ' '])).then_some(name)
}

/// `NAME` of `NAME: server 2 …`, as a partition's faults start.
fn partition_in(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once(": ")?;
    let plain = rest.starts_with("server ") && !name.contains([' ', '/']);
    plain.then_some(name).or_else(|| partition_of(name))
}

fn cure(code: Code, partition: Option<&str>) -> Option<String> {
    if let (Code::Unreachable, Some(name)) = (code, partition) {
        return Some(format!(
            "`pario status {name}` shows its servers; `pario up {name}` brings it back if some died"
        ));
    }
    let text = match code {
        Code::NotEmpty => "empty it first, or use `pario rm -r`",
        Code::NoSpace => "free some space: `pario df -v` shows which server is full",
        Code::Unreachable => {
            "`pario status` shows the servers; `pario up` with the partition's name brings it back"
        }
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
        | Code::TimedOut
        | Code::Datatype
        | Code::NotSame
        | Code::NotWritable
        | Code::NotReadable
        | Code::Deadlock
        | Code::WouldBlock
        | Code::NoAttribute
        | Code::TooManyLinks => return None,
    };
    Some(text.to_owned())
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Failed { text, cure: Some(cure) } => write!(f, "{} ({cure})", one_line(text)),
            CliError::Failed { text, cure: None } | CliError::Usage { text } => f.write_str(&one_line(text)),
            CliError::Interrupted { signal } => write!(f, "interrupted by signal {signal}"),
            CliError::Reported { .. } | CliError::OutputClosed => Ok(()),
        }
    }
}

/// A text as one line; control characters are escaped.
pub(crate) fn one_line(text: &str) -> String {
    pario::core::text::shown(text).into_owned()
}

impl From<pario::Error> for CliError {
    fn from(error: pario::Error) -> CliError {
        let (code, text) = (error.code(), error.to_string());
        let told = !matches!(error, pario::Error::Setup(_));
        let cure = cure(code, partition_in(&text)).filter(|_| told);
        CliError::Failed { text, cure }
    }
}

impl From<TransferError> for CliError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library may have more kinds of errors one day")]
    fn from(error: TransferError) -> CliError {
        match error {
            TransferError::Local { path, error } => CliError::local(&path, &error),
            TransferError::Partition { path, error } => CliError::remote(path, &error),
            TransferError::Missing { path, parent: Some(dir) } => CliError::with_cure(
                format!("{path}: no such file or directory"),
                format!("there is no directory {dir}: make it first"),
            ),
            TransferError::NotRecursive { path } => {
                CliError::with_cure(format!("{path}: is a directory"), "use -r to copy it with what is in it")
            }
            TransferError::Refused { text, cure } => CliError::Failed { text, cure },
            TransferError::Several { first, others } => {
                CliError::failed(format!("{}; and {others} more", CliError::from(*first)))
            }
            other => CliError::failed(other),
        }
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
            return CliError::OutputClosed;
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
        let error = pario::Error::from(Fault::new(Code::NotEmpty, "x: other text"));
        let text = CliError::remote("pario://s/x", &error).to_string();
        assert_eq!(text, "pario://s/x: directory not empty (empty it first, or use `pario rm -r`)");
        let error = pario::Error::from(Fault::new(Code::Unreachable, "server 2 is\nunreachable"));
        let text = CliError::remote("pario://s/x", &error).to_string();
        assert!(text.starts_with("pario://s/x: server 2 is\\nunreachable ("), "{text}");
    }

    #[test]
    fn places_and_partitions_are_named_once_and_the_cure_has_the_name() {
        let error = pario::Error::from(Fault::new(Code::Unreachable, "s: server 2 is unreachable"));
        let expected = "(`pario status s` shows its servers; `pario up s` brings it back if some died)";
        let text = CliError::remote("pario://s/x", &error).to_string();
        assert_eq!(text, format!("pario://s/x: server 2 is unreachable {expected}"));
        let error = pario::Error::from(Fault::new(Code::Unreachable, "pario://s/x: server 2 is unreachable"));
        let again = CliError::remote("pario://s/x", &error);
        assert_eq!(again.to_string(), text);
        let error = pario::Error::from(Fault::new(Code::Unreachable, "server 2 (/s/socket) is unreachable"));
        let text = CliError::remote("s", &error).to_string();
        assert_eq!(text, format!("s: server 2 (/s/socket) is unreachable {expected}"));
        let error = pario::Error::from(Fault::new(Code::Unreachable, "s: server 2 is unreachable"));
        assert_eq!(CliError::from(error).to_string(), format!("s: server 2 is unreachable {expected}"));
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
