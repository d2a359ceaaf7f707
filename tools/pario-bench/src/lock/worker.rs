//! One process of `pario bench lock`.

use std::sync::Arc;

use pario::{Group, Hints, LockOptions};
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{JobOutcome, JobState, counts_of, counts_since};
use crate::clock::BenchTimer;

/// Bytes of a record written at the shared pointer.
pub(crate) const RECORD_BYTES: usize = 4096;
/// Name of system calls in an outcome.
pub(crate) const CALLS: &str = "system_calls";

/// Measured operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum LockWork {
    /// Lock and unlock with a cached lock.
    Cached,
    /// Records at the shared pointer.
    Shared,
    /// The same in rank order.
    Ordered,
    /// Count together in a file.
    Increment,
}

/// A job of a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct LockJob {
    pub(crate) partition: String,
    pub(crate) path: String,
    pub(crate) work: LockWork,
    pub(crate) count: u64,
}

/// Runs the job.
pub(crate) fn run(state: &mut JobState, job: &LockJob) -> Result<JobOutcome, BenchError> {
    match job.work {
        LockWork::Cached => cached(state, job),
        LockWork::Shared | LockWork::Ordered => records(state, job),
        LockWork::Increment => increment(state, job),
    }
}

fn cached(state: &mut JobState, job: &LockJob) -> Result<JobOutcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let file = partition.options().read(true).write(true).create(true).open(&job.path)?;
    let options = LockOptions::exclusive();
    drop(file.lock(0..1, &options)?);
    let before = counts_of(&partition);
    // The cost of reading the counter is seen by the next read.
    let first = system_calls()?;
    let calls = system_calls()?;
    let look = calls.saturating_sub(first);
    let began = BenchTimer::now();
    for number in 0..job.count {
        let at = number % 1024 * 100;
        file.lock(at..at + 100, &options)?.unlock()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = system_calls()?;
    let mut counts = counts_since(&partition, &before);
    counts.insert(CALLS.to_owned(), after.saturating_sub(calls).saturating_sub(look));
    file.close()?;
    Ok(JobOutcome { seconds, calls: job.count, counts, ..JobOutcome::default() })
}

/// Reads, writes and waits of this process, from the kernel's counters.
fn system_calls() -> Result<u64, BenchError> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(BenchError::when("counting system calls"));
    let (io, status) = (read("/proc/self/io")?, read("/proc/self/status")?);
    let number = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok());
        number.ok_or_else(|| BenchError::Worker(format!("the kernel does not count {name}")))
    };
    Ok(number(&io, "syscr:")? + number(&io, "syscw:")? + number(&status, "voluntary_ctxt_switches:")?)
}

fn group() -> Result<Arc<dyn Group>, BenchError> {
    let group = pario::group::from_env()?;
    group.ok_or_else(|| BenchError::Worker("a process was not invited to its group".to_owned()))
}

fn records(state: &mut JobState, job: &LockJob) -> Result<JobOutcome, BenchError> {
    let group = group()?;
    let partition = state.mount(&job.partition)?;
    let mut record = vec![0xA5; RECORD_BYTES];
    record[..8].copy_from_slice(&(group.rank() as u64).to_le_bytes());
    let options = partition.options().read(true).write(true).create(true).truncate(true);
    group.barrier()?;
    let (before, began) = (counts_of(&partition), BenchTimer::now());
    let file = options.open_all(&group, &job.path, &Hints::default())?;
    for number in 0..job.count {
        record[8..16].copy_from_slice(&number.to_le_bytes());
        match job.work {
            LockWork::Ordered => file.write_ordered(&record)?,
            LockWork::Shared | LockWork::Cached | LockWork::Increment => file.write_shared(&record)?,
        }
    }
    file.close()?;
    let seconds = began.elapsed().as_secs_f64();
    let counts = counts_since(&partition, &before);
    group.barrier()?;
    if group.rank() == 0 {
        check_records(&partition, job, group.size() as u64)?;
    }
    group.barrier()?;
    Ok(JobOutcome { seconds, calls: job.count, counts, ..JobOutcome::default() })
}

/// Verifies that every record of every process is present once, in rank order if required.
fn check_records(partition: &pario::Partition, job: &LockJob, processes: u64) -> Result<(), BenchError> {
    let wrong = |what: String| BenchError::Worker(format!("records at a shared pointer: {what}"));
    let file = partition.open(&job.path)?;
    let total = processes * job.count;
    if file.len()? != total * RECORD_BYTES as u64 {
        return Err(wrong(format!("{} bytes of {}", file.len()?, total * RECORD_BYTES as u64)));
    }
    let mut next = vec![0u64; usize::try_from(processes).unwrap_or(0)];
    let mut head = [0; 16];
    for place in 0..total {
        file.read_exact_at(place * RECORD_BYTES as u64, &mut head)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (rank, number) = (word(0), word(8));
        let expected = usize::try_from(rank).ok().and_then(|rank| next.get_mut(rank));
        let Some(expected) = expected.filter(|expected| **expected == number) else {
            return Err(wrong(format!("place {place} has record {number} of rank {rank}")));
        };
        *expected += 1;
        if job.work == LockWork::Ordered && rank != place % processes {
            return Err(wrong(format!("place {place} is rank {rank}'s")));
        }
    }
    Ok(file.close()?)
}

fn increment(state: &mut JobState, job: &LockJob) -> Result<JobOutcome, BenchError> {
    let group = group()?;
    let partition = state.mount(&job.partition)?;
    let file = partition.options().read(true).write(true).create(true).open(&job.path)?;
    if group.rank() == 0 {
        file.write_at(0, &[0; 8])?;
        file.sync()?;
    }
    group.barrier()?;
    let (options, before, began) = (LockOptions::exclusive(), counts_of(&partition), BenchTimer::now());
    for _ in 0..job.count {
        let guard = file.lock(0..8, &options)?;
        let mut bytes = [0; 8];
        file.read_exact_at(0, &mut bytes)?;
        file.write_at(0, &(u64::from_le_bytes(bytes) + 1).to_le_bytes())?;
        guard.unlock()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let counts = counts_since(&partition, &before);
    group.barrier()?;
    let mut bytes = [0; 8];
    file.read_exact_at(0, &mut bytes)?;
    let (found, expected) = (u64::from_le_bytes(bytes), job.count * group.size() as u64);
    if found != expected {
        return Err(BenchError::Worker(format!("{} of {expected} increments were lost", expected - found)));
    }
    file.close()?;
    Ok(JobOutcome { seconds, calls: job.count, counts, ..JobOutcome::default() })
}
