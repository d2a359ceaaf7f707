//! Errors of a benchmark.

use std::io;
use std::path::Path;

/// A benchmark failed.
const EXIT_FAILED: u8 = 1;
/// The command line or the environment is wrong; nothing was done.
pub(crate) const EXIT_USAGE: u8 = 2;

/// Result of a benchmark.
pub(crate) type BenchResult<T = ()> = Result<T, BenchError>;

/// Why a benchmark failed; each prints as one line.
#[derive(Debug)]
pub(crate) enum BenchError {
    /// The operating system failed.
    Local {
        /// The operation.
        doing: String,
        /// The cause.
        source: io::Error,
    },
    /// The command line or the environment is wrong.
    Usage(String),
    /// A partition refused or failed.
    Pario(pario::Error),
    /// A worker process reported a failure.
    Worker(String),
    /// Data read differs from data written.
    Wrong(String),
    /// A condition did not hold within its time limit.
    Late(String),
}

impl BenchError {
    /// A wrong command line.
    pub(crate) fn usage(text: impl std::fmt::Display) -> BenchError {
        BenchError::Usage(text.to_string())
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        if matches!(self, BenchError::Usage(_)) { EXIT_USAGE } else { EXIT_FAILED }
    }

    /// For `map_err`: `doing` failed for `path`.
    pub(crate) fn at<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> BenchError + 'a {
        move |source| BenchError::Local { doing: format!("{doing} {}", path.display()), source }
    }

    /// For `map_err`: `doing` failed.
    pub(crate) fn when(doing: &str) -> impl FnOnce(io::Error) -> BenchError + '_ {
        move |source| BenchError::Local { doing: doing.to_owned(), source }
    }
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchError::Local { doing, source } => write!(f, "{doing}: {source}"),
            BenchError::Pario(error) => write!(f, "{error}"),
            BenchError::Usage(text)
            | BenchError::Worker(text)
            | BenchError::Wrong(text)
            | BenchError::Late(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<pario::Error> for BenchError {
    fn from(error: pario::Error) -> Self {
        BenchError::Pario(error)
    }
}
