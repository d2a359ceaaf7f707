//! `pario bench shared-files`: records of about 30 KB, read, changed and written back by all processes, in a shared file, in one plain file
//! and in a file of a partition.
//!
//! Always: the sides of a pair run one right after the other, each with fresh processes; every byte is verified.

pub(crate) mod worker;

use std::path::PathBuf;

use pario::group::Hub;

use self::worker::{RecordJob, RecordSide, SLOT};
use super::error::BenchError;
use super::figures::{Figure, Figures, Goal};
use super::job::{BenchJob, JobOutcome};
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;
use super::worker::{Worker, together};

/// Checked options of `bench shared-files`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SharedFilesPlan {
    /// Directory; the system's temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Pairs of runs.
    pub(crate) pairs: usize,
    /// Processes.
    pub(crate) processes: usize,
    /// Records.
    pub(crate) records: u64,
    /// Seed of sizes and order.
    pub(crate) seed: u64,
}

const PARTITION: &str = "records";
const SERVERS: usize = 4;

/// Results of one side.
#[derive(Default)]
struct SideRuns {
    bytes: f64,
    seconds: Vec<f64>,
    summed: Vec<f64>,
    create_ms: Vec<f64>,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &SharedFilesPlan) -> Result<BenchReport, BenchError> {
    let ground = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let progress = BenchProgress::new();
    progress.show("bringing up a partition");
    ground.up_with(PARTITION, SERVERS, &[])?;
    let sides = [RecordSide::Plain, RecordSide::Shared, RecordSide::Partition];
    let mut runs: [SideRuns; 3] = Default::default();
    for pair in 0..plan.pairs {
        progress.step("records of all sides, run", pair, plan.pairs);
        for turn in 0..sides.len() {
            let number = (turn + pair) % sides.len();
            let outcomes = run_side(plan, &ground, sides[number], pair)?;
            runs[number].add(&outcomes);
        }
    }
    let figures = figures(&runs);
    let title = format!(
        "pario bench shared-files: {} records of 15 to 45 KB in places of {SLOT} bytes, {} processes on one node, {} pairs, seed {}",
        plan.records, plan.processes, plan.pairs, plan.seed
    );
    let settings = serde_json::json!({
        "processes": plan.processes,
        "records": plan.records,
        "pairs": plan.pairs,
        "seed": plan.seed,
        "servers": SERVERS,
        "dir": ground.dir().parent(),
    });
    ground.down(PARTITION)?;
    ground.end()?;
    Ok(BenchReport { title, figures, machine, settings })
}

fn run_side(
    plan: &SharedFilesPlan,
    ground: &Testbed,
    side: RecordSide,
    pair: usize,
) -> Result<Vec<JobOutcome>, BenchError> {
    let dir = ground.dir().join(format!("run-{pair}-{side:?}"));
    std::fs::create_dir(&dir).map_err(BenchError::at("creating", &dir))?;
    let job = RecordJob {
        side,
        dir: dir.clone(),
        partition: PARTITION.to_owned(),
        records: plan.records,
        seed: plan.seed + pair as u64,
    };
    let hub = Hub::start(plan.processes)?;
    let start = |rank| Worker::invited(&ground.registry_path(), &hub.invitation(rank), &[]);
    let mut workers = (0..plan.processes).map(start).collect::<Result<Vec<_>, _>>()?;
    let outcomes = together(&mut workers, |_| BenchJob::Records(job.clone()));
    drop(workers);
    std::fs::remove_dir_all(&dir).map_err(BenchError::at("removing", &dir))?;
    outcomes
}

impl SideRuns {
    #[expect(clippy::cast_precision_loss, reason = "figures")]
    fn add(&mut self, outcomes: &[JobOutcome]) {
        let count =
            |outcome: &JobOutcome, name: &str| outcome.counts.get(name).map_or(0.0, |count| *count as f64);
        self.bytes = outcomes.iter().map(|outcome| count(outcome, "bytes")).sum();
        self.seconds.push(outcomes.iter().map(|outcome| outcome.seconds).fold(0.0, f64::max));
        self.summed.push(outcomes.iter().map(|outcome| outcome.seconds).sum());
        let slowest = outcomes.iter().map(|outcome| count(outcome, "create_destroy_ns")).fold(0.0, f64::max);
        self.create_ms.push(slowest / 1e6);
    }

    /// Volume, time summed over processes, rate of a process: the form of the paper's table.
    fn line(&self) -> String {
        let summed = Figure::of(&self.summed, "s").value;
        format!(
            "{:.3} GB, {summed:.2} s over all processes, {:.1} MB/s each",
            self.bytes / 1e9,
            self.bytes / 1e6 / summed
        )
    }
}

fn figures([plain, shared, partition]: &[SideRuns; 3]) -> Figures {
    let mut figures = Figures::default();
    let ratio = |other: &SideRuns| {
        let pairs = other.seconds.iter().zip(&shared.seconds);
        let ratios: Vec<f64> = pairs.map(|(other, shared)| other / shared).collect();
        Figure::of(&ratios, "ratio")
    };
    figures.add("shared_vs_plain", ratio(plain), Goal::AtLeast(0.85), format!("plain: {}", plain.line()));
    let note = format!("partition: {}", partition.line());
    figures.add("shared_vs_partition", ratio(partition), Goal::AtLeast(3.0), note);
    let rates: Vec<f64> = shared.summed.iter().map(|seconds| shared.bytes / 1e6 / seconds).collect();
    figures.add("shared_mb_s", Figure::of(&rates, "MB/s"), Goal::None, format!("shared: {}", shared.line()));
    let create = Figure::of(&shared.create_ms, "ms");
    figures.add("create_destroy_ms", create, Goal::AtMost(5.0), "a shared file of all processes");
    figures
}
