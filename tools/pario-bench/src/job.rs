//! Jobs of a worker, and their outcomes.

use std::collections::{BTreeMap, HashMap};

use pario::Partition;
use serde::{Deserialize, Serialize};

use super::distant::worker::{self as distant, DistantJob};
use super::error::BenchError;
use super::full::background_writer::{self, BackgroundWriter, BackgroundWriterJob};
use super::full::neighbour::{self, NeighbourJob};
use super::full::{FillJob, fill};
use super::io::transfer::{self, Transfer};
use super::kernel::rank::{self as kernel_rank, KernelJob};
use super::lock::worker::{self as lock, LockJob};
use super::meta::names::{self, NamesJob};
use super::sched::real::pieces::{self, PiecesJob};
use super::shared_files::worker::{self as records, RecordJob};
use super::sliding::worker::{self as sliding, SlidingJob};
use super::team::container::{self, ContainerJob};
use super::team::job::{self as team, TeamJob};
use super::team::meeting::{self, MeetingJob};

/// A job of a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum BenchJob {
    /// Allocate a buffer and touch it, before anything is timed.
    Prepare {
        /// Its size.
        buffer_bytes: usize,
    },
    /// Write a fresh file, open to close.
    Write(Transfer),
    /// Read a file, open to close.
    Read(Transfer),
    /// Remove a file; not part of any time.
    Remove(Transfer),
    /// Operations on names.
    Names(NamesJob),
    /// Fill a server.
    Fill(FillJob),
    /// Write without pause until `HammerEnd`.
    HammerBegin(BackgroundWriterJob),
    /// End that.
    HammerEnd,
    /// Write and read a file beside it.
    Neighbour(NeighbourJob),
    /// A rank of a kernel.
    Kernel(KernelJob),
    /// Write a file piece by piece.
    WritePieces(PiecesJob),
    /// Read some pieces of it.
    ReadPieces(PiecesJob),
    /// Locks and shared pointers.
    Lock(LockJob),
    /// Access sliding windows.
    Sliding(SlidingJob),
    /// Files written or read by threads.
    Team(Box<TeamJob>),
    /// Empty calls of a team.
    Meeting(MeetingJob),
    /// A container with many entries.
    Container(ContainerJob),
    /// Access the file of another process.
    Distant(DistantJob),
    /// Change records of a file.
    Records(RecordJob),
}

/// Outcome of a job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JobOutcome {
    /// Duration.
    pub(crate) seconds: f64,
    /// Time inside calls that move data, if measured.
    pub(crate) calls_seconds: f64,
    /// Calls made.
    pub(crate) calls: u64,
    /// Counters of the session, by name.
    pub(crate) counts: BTreeMap<String, u64>,
}

/// State of a worker between jobs.
#[derive(Debug, Default)]
pub(crate) struct JobState {
    pub(crate) buffer: Vec<u8>,
    pub(crate) background_writer: Option<BackgroundWriter>,
    pub(crate) kernel: Option<kernel_rank::KernelRank>,
    mounts: HashMap<String, Partition>,
}

impl JobState {
    /// Runs a job.
    pub(crate) fn run(&mut self, job: &BenchJob) -> Result<JobOutcome, BenchError> {
        match job {
            BenchJob::Prepare { buffer_bytes } => {
                self.buffer = vec![0xA5; *buffer_bytes];
                Ok(JobOutcome::default())
            }
            BenchJob::Write(transfer) => transfer::write(self, transfer),
            BenchJob::Read(transfer) => transfer::read(self, transfer),
            BenchJob::Remove(transfer) => transfer::remove(self, transfer),
            BenchJob::Names(job) => names::run(self, job),
            BenchJob::Fill(job) => fill(self, job),
            BenchJob::HammerBegin(job) => background_writer::begin(self, job),
            BenchJob::HammerEnd => background_writer::end(self),
            BenchJob::Neighbour(job) => neighbour::run(self, job),
            BenchJob::Kernel(job) => kernel_rank::run(self, job),
            BenchJob::WritePieces(job) => pieces::write(self, job),
            BenchJob::ReadPieces(job) => pieces::read(self, job),
            BenchJob::Lock(job) => lock::run(self, job),
            BenchJob::Sliding(job) => sliding::run(job),
            BenchJob::Team(job) => team::run(self, job),
            BenchJob::Meeting(job) => meeting::run(job),
            BenchJob::Container(job) => container::run(job),
            BenchJob::Distant(job) => distant::run(job),
            BenchJob::Records(job) => records::run(job),
        }
    }

    /// A partition by name, mounted at first use.
    pub(crate) fn mount(&mut self, name: &str) -> Result<Partition, BenchError> {
        if let Some(partition) = self.mounts.get(name) {
            return Ok(partition.clone());
        }
        let partition = Partition::mount(name)?;
        self.mounts.insert(name.to_owned(), partition.clone());
        Ok(partition)
    }
}

/// Counters of a session, by name.
pub(crate) fn counts_of(partition: &Partition) -> BTreeMap<String, u64> {
    let counts = serde_json::to_value(partition.counts()).expect("counts are plain data");
    serde_json::from_value(counts).expect("counts are numbers by name")
}

/// Difference of the counters since `before`.
pub(crate) fn counts_since(partition: &Partition, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let since = |(name, now): (String, u64)| {
        let earlier = before.get(&name).copied().unwrap_or(0);
        (name, now.saturating_sub(earlier))
    };
    counts_of(partition).into_iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_by_name_and_since_a_moment() {
        let partition = Partition::in_process(1).unwrap();
        let before = counts_of(&partition);
        partition.create_dir("d").unwrap();
        assert_eq!(counts_since(&partition, &before)["messages"], 1);
    }
}
