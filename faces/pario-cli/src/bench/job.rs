//! What a worker can be told to do, and what it tells.

use std::collections::{BTreeMap, HashMap};

use pario::Partition;
use serde::{Deserialize, Serialize};

use super::error::BenchError;
use super::full::hammer::{self, Hammer, HammerJob};
use super::full::neighbour::{self, NeighbourJob};
use super::full::{FillJob, fill};
use super::io::transfer::{self, Transfer};
use super::kernel::rank::{self as kernel_rank, KernelJob};
use super::lock::worker::{self as lock, LockJob};
use super::meta::names::{self, NamesJob};
use super::sched::real::pieces::{self, PiecesJob};
use super::sliding::worker::{self as sliding, SlidingJob};
use crate::demo::rank::{self, RankJob};

/// What a worker is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Make a buffer and touch it, before anything is timed.
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
    /// A rank of the demonstration.
    Rank(RankJob),
    /// Fill a server.
    Fill(FillJob),
    /// Write without pause until told to end.
    HammerBegin(HammerJob),
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
    /// Go through windows that slide.
    Sliding(SlidingJob),
}

/// What a job came to.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// How long it took.
    pub(crate) seconds: f64,
    /// How long of it inside calls that move data, where that was taken.
    pub(crate) calls_seconds: f64,
    /// Calls made.
    pub(crate) calls: u64,
    /// What the mount counted meanwhile, by name.
    pub(crate) counts: BTreeMap<String, u64>,
}

/// What a worker keeps between jobs.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) buffer: Vec<u8>,
    pub(crate) hammer: Option<Hammer>,
    pub(crate) kernel: Option<kernel_rank::Rank>,
    mounts: HashMap<String, Partition>,
}

impl State {
    /// Does a job.
    pub(crate) fn run(&mut self, job: &Job) -> Result<Outcome, BenchError> {
        match job {
            Job::Prepare { buffer_bytes } => {
                self.buffer = vec![0xA5; *buffer_bytes];
                Ok(Outcome::default())
            }
            Job::Write(transfer) => transfer::write(self, transfer),
            Job::Read(transfer) => transfer::read(self, transfer),
            Job::Remove(transfer) => transfer::remove(self, transfer),
            Job::Names(job) => names::run(self, job),
            Job::Rank(job) => rank::run(self, job),
            Job::Fill(job) => fill(self, job),
            Job::HammerBegin(job) => hammer::begin(self, job),
            Job::HammerEnd => hammer::end(self),
            Job::Neighbour(job) => neighbour::run(self, job),
            Job::Kernel(job) => kernel_rank::run(self, job),
            Job::WritePieces(job) => pieces::write(self, job),
            Job::ReadPieces(job) => pieces::read(self, job),
            Job::Lock(job) => lock::run(self, job),
            Job::Sliding(job) => sliding::run(job),
        }
    }

    /// A partition by name, mounted when first used.
    pub(crate) fn mount(&mut self, name: &str) -> Result<Partition, BenchError> {
        if let Some(partition) = self.mounts.get(name) {
            return Ok(partition.clone());
        }
        let partition = Partition::mount(name)?;
        self.mounts.insert(name.to_owned(), partition.clone());
        Ok(partition)
    }
}

/// What a mount has counted, by name.
pub(crate) fn counts_of(partition: &Partition) -> BTreeMap<String, u64> {
    let counts = serde_json::to_value(partition.counts()).expect("counts are plain data");
    serde_json::from_value(counts).expect("counts are numbers by name")
}

/// What was counted since `before`.
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
