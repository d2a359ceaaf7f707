//! The real testbed: real servers and processes on a store that is limited in calls per second.
//!
//! Two partitions of four servers, one under `fifo` and one under `mlf`, otherwise alike; runs alternate between them. Two applications
//! of sixteen processes each read a file of their own, dealt to the processes in pieces of 4 KiB; and a lone process
//! reads a file from its beginning to its end. What reached the stores is counted by the servers.
//!
//! Never: compares runs on different partitions in any other way than pair by pair. Always: every piece that is read is checked.

pub(crate) mod pieces;

use pario::Partition;
use pario::partition::{Key, Registry};

use super::headline::MLF;
use super::judged::FIFO;
use crate::clock::BenchTimer;
use crate::error::BenchError;
use crate::figures::{Figure, Figures, Goal, Versus};
use crate::job::BenchJob;
use crate::progress::BenchProgress;
use crate::testbed::Testbed;
use crate::worker::{Worker, together};
use pieces::PiecesJob;

/// Servers of each partition.
pub(crate) const SERVERS: u64 = 4;
/// Limit of all stores of a partition together.
pub(crate) const STORE_CALLS_PER_S: u64 = 2000;
/// Processes of each of the two applications.
pub(crate) const PROCESSES: usize = 16;
/// Bytes of a piece, and of each application's file.
pub(crate) const PIECE_BYTES: usize = 4 << 10;
const DEALT_BYTES: u64 = 4 << 20;
/// The same of the lone stream.
const STREAM_PIECE_BYTES: usize = 32 << 10;
const STREAM_BYTES: u64 = 32 << 20;

/// The processes of one partition.
struct PartitionReaders {
    name: &'static str,
    /// Of the first application, then of the second.
    readers: Vec<Worker>,
    lone: Worker,
}

/// Result of one run of two readers.
struct ReadersRun {
    seconds: f64,
    store_reads: u64,
    /// Lead of the first application, as a share of the time.
    gap: f64,
}

/// Adds the figures of `pairs` pairs of runs.
pub(crate) fn add(
    figures: &mut Figures,
    ground: &Testbed,
    pairs: usize,
    progress: &BenchProgress,
) -> Result<(), BenchError> {
    let mut sides = [PartitionReaders::start(ground, FIFO)?, PartitionReaders::start(ground, MLF)?];
    let (mut readers, mut lone) = (Versus::default(), Versus::default());
    let (mut saved, mut gaps) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        progress.step("two readers on a slowed store, pair", pair, pairs);
        let [fifo, mlf] = &mut sides;
        let (before, after) = (fifo.read_both(ground)?, mlf.read_both(ground)?);
        readers.pair(before.seconds, after.seconds);
        saved.push(ratio(before.store_reads, after.store_reads));
        gaps.push(after.gap);
        lone.pair(fifo.read_lone()?, mlf.read_lone()?);
    }
    let note = format!(
        "{PROCESSES} processes each, pieces of 4 KiB, {SERVERS} servers, {STORE_CALLS_PER_S} calls a second in all"
    );
    figures.add("real_two_readers_mlf_vs_fifo", readers.ratio(), Goal::AtLeast(3.0), note);
    let note = "calls of the stores under fifo for each under mlf";
    figures.add("store_operations_saved", Figure::of(&saved, "ratio"), Goal::None, note);
    figures.add("real_two_readers_finish_gap", Figure::of(&gaps, "ratio"), Goal::None, "under mlf");
    let note = "one process, 32 MiB in pieces of 32 KiB, the same stores";
    figures.add("real_lone_stream_mlf_vs_none", lone.ratio(), Goal::AtLeast(0.98), note);
    drop(sides);
    [FIFO, MLF].iter().try_for_each(|name| ground.down(name))
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

impl PartitionReaders {
    /// Brings a partition up and writes its files.
    fn start(ground: &Testbed, policy: &'static str) -> Result<PartitionReaders, BenchError> {
        let options = [
            (Key::Scheduler, policy.to_owned()),
            (Key::LimitsOperations, (STORE_CALLS_PER_S / SERVERS).to_string()),
        ];
        ground.up_with(policy, usize::try_from(SERVERS).unwrap_or(usize::MAX), &options)?;
        let start =
            |application: &str| Worker::start(&ground.registry_path(), &[("PARIO_APPLICATION", application)]);
        let applications = [FIRST, SECOND].into_iter().flat_map(|name| std::iter::repeat_n(name, PROCESSES));
        let readers = applications.map(start).collect::<Result<_, _>>()?;
        let mut side = PartitionReaders { name: policy, readers, lone: start(LONE)? };
        for path in [FIRST, SECOND] {
            side.lone.run_job(&BenchJob::WritePieces(side.dealt(path, 0)))?;
        }
        side.lone.run_job(&BenchJob::WritePieces(side.stream()))?;
        // All processes mount and read a piece before anything is timed.
        side.read_all(1)?;
        Ok(side)
    }

    fn dealt(&self, path: &str, first: usize) -> PiecesJob {
        PiecesJob {
            partition: self.name.to_owned(),
            path: path.to_owned(),
            piece_bytes: PIECE_BYTES,
            pieces: DEALT_BYTES / PIECE_BYTES as u64,
            first: first as u64,
            step: PROCESSES as u64,
        }
    }

    fn stream(&self) -> PiecesJob {
        PiecesJob {
            partition: self.name.to_owned(),
            path: LONE.to_owned(),
            piece_bytes: STREAM_PIECE_BYTES,
            pieces: STREAM_BYTES / STREAM_PIECE_BYTES as u64,
            first: 0,
            step: 1,
        }
    }

    /// All processes read their pieces; returns the time of each.
    fn read_all(&mut self, rounds: u64) -> Result<Vec<f64>, BenchError> {
        let jobs: Vec<PiecesJob> = (0..2 * PROCESSES)
            .map(|process| {
                let path = if process < PROCESSES { FIRST } else { SECOND };
                let job = self.dealt(path, process % PROCESSES);
                PiecesJob { pieces: job.pieces.min(rounds.saturating_mul(PROCESSES as u64)), ..job }
            })
            .collect();
        let outcomes = together(&mut self.readers, |process| BenchJob::ReadPieces(jobs[process].clone()))?;
        Ok(outcomes.iter().map(|outcome| outcome.seconds).collect())
    }

    fn read_both(&mut self, ground: &Testbed) -> Result<ReadersRun, BenchError> {
        let reads = store_reads(ground, self.name)?;
        let began = BenchTimer::now();
        let each = self.read_all(u64::MAX)?;
        let seconds = began.elapsed().as_secs_f64();
        let store_reads = store_reads(ground, self.name)?.saturating_sub(reads);
        let last = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let (first, second) = (last(&each[..PROCESSES]), last(&each[PROCESSES..]));
        let gap = 1.0 - first.min(second) / first.max(second);
        Ok(ReadersRun { seconds, store_reads, gap })
    }

    fn read_lone(&mut self) -> Result<f64, BenchError> {
        let job = BenchJob::ReadPieces(self.stream());
        Ok(self.lone.run_job(&job)?.seconds)
    }
}

const FIRST: &str = "first";
const SECOND: &str = "second";
const LONE: &str = "lone";

/// Store reads of a partition so far.
fn store_reads(ground: &Testbed, name: &str) -> Result<u64, BenchError> {
    let registry = Registry::open(&ground.registry_path());
    let entry = registry.find(name).map_err(|error| pario::Error::Setup(error.to_string()))?;
    let partition = Partition::mount_entry(&entry);
    let reads = entry.servers.iter().map(|server| {
        let report = partition.mount_handle().server_status(server.index)?;
        let report: serde_json::Value = serde_json::from_str(&report)
            .map_err(|error| BenchError::Worker(format!("the report of server {}: {error}", server.index)))?;
        Ok(report.pointer("/store/reads").and_then(serde_json::Value::as_u64).unwrap_or(0))
    });
    reads.sum()
}
