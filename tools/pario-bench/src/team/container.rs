//! Opening a container with many entries at random places.

use std::path::{Path, PathBuf};

use pario::containers::{self, LogContainer, LogError};
use serde::{Deserialize, Serialize};

use crate::clock::BenchTimer;
use crate::error::BenchError;
use crate::job::JobOutcome;

/// Bytes of every second write; the others are shorter, since equal pieces share an entry.
const PIECE: [u8; 24] = [0xA5; 24];
/// Bytes of the others.
const SHORT_BYTES: usize = 16;
/// Writes at random places lie in a file of this size.
const FILE_BYTES: u64 = 1 << 34;

/// A job of a process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ContainerJob {
    /// Make a container with this many entries.
    Fill {
        /// Its path.
        path: PathBuf,
        /// Writes at random places.
        entries: u64,
    },
    /// Open it and read the first bytes, timed; then close it.
    Open {
        /// Its path.
        path: PathBuf,
    },
}

/// Runs a job.
pub(crate) fn run(job: &ContainerJob) -> Result<JobOutcome, BenchError> {
    match job {
        ContainerJob::Fill { path, entries } => fill(path, *entries).map_err(failed),
        ContainerJob::Open { path } => open(path).map_err(failed),
    }
}

fn failed(error: LogError) -> BenchError {
    BenchError::Worker(error.to_string())
}

fn fill(path: &Path, entries: u64) -> Result<JobOutcome, LogError> {
    let container = LogContainer::create(path)?;
    let writer = container.writer();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..entries {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = if number % 2 == 0 { PIECE.len() } else { SHORT_BYTES };
        writer.write_at(&PIECE[..bytes], state % (FILE_BYTES / 64) * 64)?;
    }
    drop(writer);
    container.close()?;
    let report = containers::check(path, false)?;
    let counts = [("entries".to_owned(), report.entries), ("index_bytes".to_owned(), report.index_bytes)];
    Ok(JobOutcome { calls: entries, counts: counts.into(), ..JobOutcome::default() })
}

fn open(path: &Path) -> Result<JobOutcome, LogError> {
    let mut first = [0; 64];
    let began = BenchTimer::now();
    let container = LogContainer::open(path)?;
    container.read_at(&mut first, 0)?;
    let seconds = began.elapsed().as_secs_f64();
    container.close()?;
    Ok(JobOutcome { seconds, calls: 1, ..JobOutcome::default() })
}
