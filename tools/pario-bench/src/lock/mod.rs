//! `pario bench lock`: cost of locks, shared pointers and atomic counting, with real processes on one partition.
//!
//! Always: every result is verified (no increment lost, no record missing); a wrong result fails the run.

pub(crate) mod worker;

use std::path::PathBuf;

use pario::group::Hub;

use self::worker::{LockJob, LockWork};
use super::error::BenchError;
use super::figures::{Figure, Figures, Goal, per_second};
use super::job::{BenchJob, JobOutcome};
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;
use super::worker::{Worker, together};

/// Checked options of `bench lock`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LockPlan {
    /// Directory; the system\'s temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Runs per figure.
    pub(crate) runs: usize,
    /// Processes that work together.
    pub(crate) processes: usize,
    /// Increments of the counter, by all processes together.
    pub(crate) increments: u64,
    /// Records of a run, by all processes together.
    pub(crate) records: u64,
}

const SERVERS: usize = 4;
const PARTITION: &str = "locks";
/// Locks and unlocks of a run, one process.
const CACHED: u64 = 1_000_000;

#[derive(Default)]
struct LockRuns {
    cached_ns: Vec<f64>,
    cached_messages: Vec<f64>,
    cached_switches: Vec<f64>,
    shared_per_s: Vec<f64>,
    ordered_per_s: Vec<f64>,
    increments_per_s: Vec<f64>,
    moves: Vec<f64>,
    moved_messages: Vec<f64>,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &LockPlan) -> Result<BenchReport, BenchError> {
    let ground = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let progress = BenchProgress::new();
    progress.show("bringing up a partition");
    ground.up_with(PARTITION, SERVERS, &[])?;
    let mut runs = LockRuns::default();
    for run in 0..plan.runs {
        progress.step("locks and shared pointers, run", run, plan.runs);
        measure(plan, &ground, &mut runs)?;
    }
    let figures = runs.figures(plan);
    let title = format!(
        "pario bench lock: {} processes, {SERVERS} servers on one node; {} runs. Records of {} bytes; {} increments of one counter in a file",
        plan.processes,
        plan.runs,
        worker::RECORD_BYTES,
        plan.increments
    );
    let settings = serde_json::json!({
        "processes": plan.processes,
        "servers": SERVERS,
        "runs": plan.runs,
        "record_bytes": worker::RECORD_BYTES,
        "records": plan.records,
        "increments": plan.increments,
        "cached_locks": CACHED,
        "dir": ground.dir().parent(),
    });
    ground.down(PARTITION)?;
    ground.end()?;
    Ok(BenchReport { title, figures, machine, settings })
}

fn measure(plan: &LockPlan, ground: &Testbed, runs: &mut LockRuns) -> Result<(), BenchError> {
    let job = |work: LockWork, count: u64| {
        BenchJob::Lock(LockJob { partition: PARTITION.to_owned(), path: "locked".to_owned(), work, count })
    };
    let mut lone = Worker::start(&ground.registry_path(), &[])?;
    let cached = lone.run_job(&job(LockWork::Cached, CACHED))?;
    runs.cached_ns.push(cached.seconds * 1e9 / CACHED as f64);
    runs.cached_messages.push(count(&cached, "messages"));
    runs.cached_switches.push(count(&cached, worker::CALLS));
    drop(lone);
    let each = |total: u64| total / plan.processes as u64;
    let shared = run_workers(plan, ground, |_| job(LockWork::Shared, each(plan.records)))?;
    runs.shared_per_s.push(rate(&shared));
    let ordered = run_workers(plan, ground, |_| job(LockWork::Ordered, each(plan.records)))?;
    runs.ordered_per_s.push(rate(&ordered));
    let counted = run_workers(plan, ground, |_| job(LockWork::Increment, each(plan.increments)))?;
    runs.increments_per_s.push(rate(&counted));
    runs.moves.push(counted.iter().map(|outcome| count(outcome, "locks")).sum());
    let messages: f64 = counted.iter().map(|outcome| count(outcome, "lock_messages")).sum();
    let moves: f64 = counted.iter().map(|outcome| count(outcome, "locks")).sum();
    runs.moved_messages.push(messages / moves.max(1.0));
    Ok(())
}

fn run_workers(
    plan: &LockPlan,
    ground: &Testbed,
    job: impl Fn(usize) -> BenchJob,
) -> Result<Vec<JobOutcome>, BenchError> {
    let hub = Hub::start(plan.processes)?;
    let start = |rank| Worker::invited(&ground.registry_path(), &hub.invitation(rank), &[]);
    let mut workers = (0..plan.processes).map(start).collect::<Result<Vec<_>, _>>()?;
    let outcomes = together(&mut workers, job);
    drop(workers);
    outcomes
}

fn count(outcome: &JobOutcome, name: &str) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    outcome.counts.get(name).map_or(0.0, |count| *count as f64)
}

/// Calls of all processes per second of the slowest.
fn rate(outcomes: &[JobOutcome]) -> f64 {
    let slowest = outcomes.iter().map(|outcome| outcome.seconds).fold(0.0, f64::max);
    per_second(outcomes.iter().map(|outcome| outcome.calls).sum(), slowest)
}

impl LockRuns {
    fn figures(&self, plan: &LockPlan) -> Figures {
        let mut figures = Figures::default();
        let of = |runs: &[f64], unit: &'static str| Figure::of(runs, unit);
        figures.add(
            "cached_lock_ns",
            of(&self.cached_ns, "ns"),
            Goal::AtMost(100.0),
            "lock and unlock of a range with a cached lock",
        );
        figures.add(
            "cached_lock_messages",
            of(&self.cached_messages, "messages"),
            Goal::AtMost(0.0),
            "of a million",
        );
        figures.add(
            "cached_lock_syscalls",
            of(&self.cached_switches, "calls"),
            Goal::AtMost(0.0),
            "reads, writes and waits of the kernel's count, of a million",
        );
        figures.add(
            "shared_records_per_s",
            of(&self.shared_per_s, "/s"),
            Goal::AtLeast(300_000.0),
            format!("{} processes, open to close", plan.processes),
        );
        figures.add(
            "ordered_records_per_s",
            of(&self.ordered_per_s, "/s"),
            Goal::AtLeast(100_000.0),
            format!("{} processes, open to close", plan.processes),
        );
        figures.add(
            "increments_per_s",
            of(&self.increments_per_s, "/s"),
            Goal::AtLeast(20_000.0),
            format!("{} processes, none of {} lost", plan.processes, plan.increments),
        );
        figures.add("lock_moves", of(&self.moves, ""), Goal::None, "changes of the counter's holder");
        figures.add(
            "messages_per_move",
            of(&self.moved_messages, ""),
            Goal::None,
            "asked for, in use, given back",
        );
        figures
    }
}
