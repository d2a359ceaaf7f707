//! Filling a server: a file on it alone grows until it is refused.

use pario::core::Code;
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{Outcome, State};

/// The last steps are small, so that next to nothing is left.
const STEPS_BYTES: [usize; 3] = [1 << 20, 64 << 10, 4 << 10];

/// Which server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FillJob {
    pub(crate) partition: String,
    pub(crate) server: u16,
    /// A server that takes more has no limit.
    pub(crate) bytes_max: u64,
}

/// Fills it; the calls of the outcome are those that were accepted.
pub(crate) fn fill(state: &mut State, job: &FillJob) -> Result<Outcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let options = partition.options().write(true).create(true).stripe_count(1).first_server(job.server);
    let file = options.open("filler")?;
    let (mut end, mut calls) = (0, 0);
    for step in STEPS_BYTES {
        let data = vec![1; step];
        loop {
            // A write that returned may still be refused behind its back, so each is looked after.
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
    // What was refused was told; the file is as long as what was accepted.
    drop(file);
    Ok(Outcome { calls, ..Outcome::default() })
}
