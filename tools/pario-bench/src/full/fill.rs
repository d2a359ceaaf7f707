//! Fills a server: a file on it grows until a write is refused.

use pario::core::Code;
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{JobOutcome, JobState};

/// The last steps are small, so that almost nothing is left.
const STEPS_BYTES: [usize; 3] = [1 << 20, 64 << 10, 4 << 10];

/// The server to fill.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FillJob {
    pub(crate) partition: String,
    pub(crate) server: u16,
    /// A server that accepts more has no limit.
    pub(crate) bytes_max: u64,
}

/// Fills it; the outcome counts accepted calls.
pub(crate) fn fill(state: &mut JobState, job: &FillJob) -> Result<JobOutcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let options = partition.options().write(true).create(true).stripe_count(1).first_server(job.server);
    let file = options.open("filler")?;
    let (mut end, mut calls) = (0, 0);
    for step in STEPS_BYTES {
        let data = vec![1; step];
        loop {
            // A write may be refused after it returned: each is synced.
            match file.write_at(end, &data).and_then(|()| file.sync()) {
                Ok(()) => (end, calls) = (end + step as u64, calls + 1),
                Err(error) if error.code() == Code::NoSpace => break,
                Err(error) => return Err(error.into()),
            }
            if job.bytes_max < end {
                return Err(BenchError::Wrong(format!(
                    "server {} is not full after {end} bytes",
                    job.server
                )));
            }
        }
    }
    // The refusal was reported; the file has the length of the accepted writes.
    drop(file);
    Ok(JobOutcome { calls, ..JobOutcome::default() })
}
