//! One process of the real testbed: writes a file, or reads every n-th piece of one, and checks it.
//!
//! Always: a piece begins with its own number, so that misplaced bytes are detected.

use serde::{Deserialize, Serialize};

use crate::clock::BenchTimer;
use crate::error::BenchError;
use crate::job::{JobOutcome, JobState};

/// Which pieces of which file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct PiecesJob {
    pub(crate) partition: String,
    pub(crate) path: String,
    pub(crate) piece_bytes: usize,
    /// Pieces of the file.
    pub(crate) pieces: u64,
    /// The first piece of this process, and its stride.
    pub(crate) first: u64,
    pub(crate) step: u64,
}

/// Writes the whole file.
pub(crate) fn write(state: &mut JobState, job: &PiecesJob) -> Result<JobOutcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let mut piece = vec![0; job.piece_bytes];
    let file = partition.create(&job.path)?;
    for number in 0..job.pieces {
        piece[..8].copy_from_slice(&number.to_le_bytes());
        file.write_at(number * job.piece_bytes as u64, &piece)?;
    }
    file.close()?;
    Ok(JobOutcome { calls: job.pieces, ..JobOutcome::default() })
}

/// Reads its pieces one after the other, open to close.
pub(crate) fn read(state: &mut JobState, job: &PiecesJob) -> Result<JobOutcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let mut piece = vec![0; job.piece_bytes];
    let began = BenchTimer::now();
    let file = partition.open(&job.path)?;
    let mut calls = 0;
    for number in (job.first..job.pieces).step_by(usize::try_from(job.step.max(1)).unwrap_or(usize::MAX)) {
        file.read_exact_at(number * job.piece_bytes as u64, &mut piece)?;
        if piece[..8] != number.to_le_bytes() {
            return Err(BenchError::Wrong(format!("piece {number} read what was not written there")));
        }
        calls += 1;
    }
    file.close()?;
    Ok(JobOutcome { seconds: began.elapsed().as_secs_f64(), calls, ..JobOutcome::default() })
}
