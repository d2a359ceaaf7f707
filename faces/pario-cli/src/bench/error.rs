//! Why a benchmark or the demonstration could not be finished.

use std::io;
use std::path::Path;

/// Why a benchmark or the demonstration could not be finished; each prints as one line.
#[derive(Debug)]
pub(crate) enum BenchError {
    /// This machine refused.
    Local {
        /// What was tried.
        doing: String,
        /// Why not.
        source: io::Error,
    },
    /// A partition refused or failed.
    Pario(pario::Error),
    /// A process that took part failed, and said so.
    Worker(String),
    /// What came back is not what was written.
    Wrong(String),
    /// A state that should come by itself did not, in the time there was.
    Late(String),
}

impl BenchError {
    /// For `map_err`: the machine refused `doing` about `path`.
    pub(crate) fn at<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> BenchError + 'a {
        move |source| BenchError::Local { doing: format!("{doing} {}", path.display()), source }
    }

    /// For `map_err`: the machine refused `doing`.
    pub(crate) fn when(doing: &str) -> impl FnOnce(io::Error) -> BenchError + '_ {
        move |source| BenchError::Local { doing: doing.to_owned(), source }
    }
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchError::Local { doing, source } => write!(f, "{doing}: {source}"),
            BenchError::Pario(error) => write!(f, "{error}"),
            BenchError::Worker(text) | BenchError::Wrong(text) | BenchError::Late(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<pario::Error> for BenchError {
    fn from(error: pario::Error) -> Self {
        BenchError::Pario(error)
    }
}
