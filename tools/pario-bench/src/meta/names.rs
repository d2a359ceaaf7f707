//! A worker of `bench meta`: one operation on many names, one after the other.

use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{JobOutcome, JobState, counts_of, counts_since};
use crate::clock::BenchTimer;

/// An operation on a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum NameOp {
    /// Create an empty file, exclusively, and close it.
    Create,
    /// Get its attributes.
    Stat,
    /// Remove it.
    Unlink,
    /// List the directory with attributes; `count` is the expected number.
    List,
    /// Make the directory.
    MakeDir,
    /// Remove the directory.
    RemoveDir,
}

/// One operation on names `PREFIX0`, `PREFIX1`, … of a directory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct NamesJob {
    pub(crate) partition: String,
    pub(crate) op: NameOp,
    pub(crate) dir: String,
    pub(crate) prefix: String,
    pub(crate) count: u64,
}

/// Runs the job.
pub(crate) fn run(state: &mut JobState, job: &NamesJob) -> Result<JobOutcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let before = counts_of(&partition);
    let path = |index: u64| format!("{}/{}{index}", job.dir, job.prefix);
    let began = BenchTimer::now();
    match job.op {
        NameOp::Create => {
            for index in 0..job.count {
                partition.options().write(true).create_new(true).open(path(index))?.close()?;
            }
        }
        NameOp::Stat => {
            for index in 0..job.count {
                partition.metadata(path(index))?;
            }
        }
        NameOp::Unlink => {
            for index in 0..job.count {
                partition.remove_file(path(index))?;
            }
        }
        NameOp::List => list(&partition, job)?,
        NameOp::MakeDir => partition.create_dir(&job.dir)?,
        NameOp::RemoveDir => partition.remove_dir(&job.dir)?,
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(JobOutcome {
        seconds,
        calls: job.count,
        counts: counts_since(&partition, &before),
        ..JobOutcome::default()
    })
}

fn list(partition: &pario::Partition, job: &NamesJob) -> Result<(), BenchError> {
    let mut count = 0;
    for entry in partition.read_dir(&job.dir)? {
        entry?;
        count += 1;
    }
    if count == job.count {
        return Ok(());
    }
    Err(BenchError::Wrong(format!("{} lists {count} entries where {} are", job.dir, job.count)))
}
