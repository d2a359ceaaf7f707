//! The measured application: writes a file of its own, open to close, reads it back and checks it, and removes it.

use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{JobOutcome, JobState};
use crate::clock::BenchTimer;

/// Its file and layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct NeighbourJob {
    pub(crate) partition: String,
    pub(crate) first_server: u16,
    pub(crate) servers: u16,
    /// A multiple of `call_bytes`.
    pub(crate) bytes: u64,
    pub(crate) call_bytes: usize,
}

/// Runs it; removing is not timed.
pub(crate) fn run(state: &mut JobState, job: &NeighbourJob) -> Result<JobOutcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let buffer = &mut state.buffer[..job.call_bytes];
    let calls = job.bytes / job.call_bytes as u64;
    let began = BenchTimer::now();
    let options = partition.options().write(true).create_new(true).stripe_count(job.servers);
    let file = options.first_server(job.first_server).open("neighbour")?;
    for call in 0..calls {
        buffer[..8].copy_from_slice(&call.to_le_bytes());
        file.write_at(call * job.call_bytes as u64, buffer)?;
    }
    file.close()?;
    let file = partition.open("neighbour")?;
    for call in 0..calls {
        file.read_exact_at(call * job.call_bytes as u64, buffer)?;
        if buffer[..8] != call.to_le_bytes() {
            return Err(BenchError::Wrong(format!("call {call} read what was not written there")));
        }
    }
    file.close()?;
    let seconds = began.elapsed().as_secs_f64();
    partition.remove_file("neighbour")?;
    Ok(JobOutcome { seconds, calls: 2 * calls, ..JobOutcome::default() })
}
