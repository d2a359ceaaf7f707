//! `pario bench meta`: creating, stating and removing files by several processes, in one directory and in one each.

mod large;
pub(crate) mod names;

use std::path::PathBuf;

use super::error::BenchError;
use super::figures::{Figure, Figures, Goal, per_second};
use super::job::BenchJob;
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;
use super::worker::{Worker, together};
use crate::clock::BenchTimer;
use names::{NameOp, NamesJob};

/// Checked options of `bench meta`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MetaPlan {
    /// Directory; the system\'s temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Files of each run, over all processes.
    pub(crate) files: u64,
    /// Runs per figure; one directory and one each alternate.
    pub(crate) pairs: usize,
    /// Entries of the large directory; none is made if 0.
    pub(crate) large: u64,
}

/// Processes that work at the same time.
const PROCESSES: usize = 4;
/// Servers of the partition.
const SERVERS: usize = 4;
const PARTITION: &str = "names";

/// Whether the processes share a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    One,
    Four,
}

impl Spread {
    fn dir(self, run: usize, process: usize) -> String {
        match self {
            Spread::One => format!("shared-{run}"),
            Spread::Four => format!("own-{run}-{process}"),
        }
    }

    fn dirs(self, run: usize) -> Vec<String> {
        let processes = if self == Spread::One { 1 } else { PROCESSES };
        (0..processes).map(|process| self.dir(run, process)).collect()
    }

    fn suffix(self) -> &'static str {
        match self {
            Spread::One => "",
            Spread::Four => "_four",
        }
    }
}

/// The worker processes of a run.
struct MetaWorkers {
    workers: Vec<Worker>,
}

/// Rates of one run: create, stat, unlink.
type Rates = [f64; 3];

const OPS: [(NameOp, &str, Goal); 3] = [
    (NameOp::Create, "creates_per_s", Goal::AtLeast(20_000.0)),
    (NameOp::Stat, "stats_per_s", Goal::AtLeast(50_000.0)),
    (NameOp::Unlink, "unlinks_per_s", Goal::None),
];

/// Runs the benchmark.
pub(crate) fn run(plan: &MetaPlan) -> Result<BenchReport, BenchError> {
    let ground = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let progress = BenchProgress::new();
    let mut figures = Figures::default();
    ground.up(PARTITION, SERVERS)?;
    measure_small(plan, &ground, &progress, &mut figures)?;
    if plan.large != 0 {
        large::measure(plan, &ground, &progress, &mut figures)?;
    }
    ground.down(PARTITION)?;
    let title = format!(
        "pario bench meta: {} files a run by {PROCESSES} processes, {} runs, one directory and one each in turn",
        plan.files, plan.pairs
    );
    let settings = serde_json::json!({
        "files": plan.files,
        "processes": PROCESSES,
        "servers": SERVERS,
        "pairs": plan.pairs,
        "large": plan.large,
        "dir": ground.dir().parent(),
    });
    ground.end()?;
    Ok(BenchReport { title, figures, machine, settings })
}

fn measure_small(
    plan: &MetaPlan,
    ground: &Testbed,
    progress: &BenchProgress,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let mut crew = MetaWorkers::start(ground)?;
    let mut rates: [Vec<Rates>; 2] = Default::default();
    for run in 0..plan.pairs {
        for (spread, rates) in [Spread::One, Spread::Four].into_iter().zip(&mut rates) {
            progress.step("create, stat, unlink, run", run, plan.pairs);
            rates.push(crew.round(plan, spread, run)?);
        }
    }
    for (spread, rates) in [Spread::One, Spread::Four].into_iter().zip(&rates) {
        for (at, (_, name, goal)) in OPS.into_iter().enumerate() {
            let each: Vec<f64> = rates.iter().map(|rates| rates[at]).collect();
            let note = if spread == Spread::One { "in one directory" } else { "in one directory each" };
            figures.add(format!("{name}{}", spread.suffix()), Figure::of(&each, "1/s"), goal, note);
        }
    }
    Ok(())
}

impl MetaWorkers {
    /// Starts the processes and their connections.
    fn start(ground: &Testbed) -> Result<MetaWorkers, BenchError> {
        let start = |_| Worker::start(&ground.registry_path(), &[]);
        let mut crew = MetaWorkers { workers: (0..PROCESSES).map(start).collect::<Result<_, _>>()? };
        crew.all(|_| names_job(NameOp::Stat, "/", "", 0))?;
        Ok(crew)
    }

    fn all(&mut self, job: impl Fn(usize) -> NamesJob) -> Result<f64, BenchError> {
        let began = BenchTimer::now();
        together(&mut self.workers, |process| BenchJob::Names(job(process)))?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// One process alone.
    fn one(&mut self, job: NamesJob) -> Result<(), BenchError> {
        self.workers[0].run_job(&BenchJob::Names(job)).map(|_| ())
    }

    /// Fresh directories, then each operation by all processes concurrently.
    fn round(&mut self, plan: &MetaPlan, spread: Spread, run: usize) -> Result<Rates, BenchError> {
        for dir in spread.dirs(run) {
            self.one(names_job(NameOp::MakeDir, &dir, "", 0))?;
        }
        let each = plan.files / PROCESSES as u64;
        let mut rates = Rates::default();
        for ((op, _, _), rate) in OPS.into_iter().zip(&mut rates) {
            *rate = self.rate(op, each, |process| spread.dir(run, process))?;
        }
        for dir in spread.dirs(run) {
            self.one(names_job(NameOp::RemoveDir, &dir, "", 0))?;
        }
        Ok(rates)
    }

    /// Operations per second of all processes together.
    fn rate(&mut self, op: NameOp, each: u64, dir: impl Fn(usize) -> String) -> Result<f64, BenchError> {
        let seconds = self.all(|process| names_job(op, &dir(process), &format!("p{process}-"), each))?;
        Ok(per_second(each * PROCESSES as u64, seconds))
    }
}

fn names_job(op: NameOp, dir: &str, prefix: &str, count: u64) -> NamesJob {
    NamesJob { partition: PARTITION.to_owned(), op, dir: dir.to_owned(), prefix: prefix.to_owned(), count }
}
