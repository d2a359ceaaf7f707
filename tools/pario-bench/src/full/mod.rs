//! `pario bench full`: the effect of a process that writes to a full server on an application with files of its own.
//!
//! Two partitions of four servers run, each server with the same limit: in one the last server is full, in the other none is.
//! The measured application writes and reads its own files on the other three servers, while another process writes to the last
//! one as fast as it can; with free space all its writes succeed, without they are refused.
//!
//! Always: the runs alternate: beside a writer with space, beside one without, alone; a run counts only if the writer was
//! active from before its start to its end.

pub(crate) mod background_writer;
mod fill;
pub(crate) mod neighbour;

use std::path::PathBuf;

use pario::core::Size;
use pario::partition::Key;

use self::background_writer::BackgroundWriterJob;
use self::neighbour::NeighbourJob;
use super::error::BenchError;
use super::figures::{Figure, Figures, Goal, Versus, mib, per_second};
use super::job::{BenchJob, JobOutcome};
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;
use super::worker::Worker;

pub(crate) use fill::{FillJob, fill};

/// Checked options of `bench full`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FullPlan {
    /// Directory; the system\'s temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Bytes that the neighbour writes and reads in one run.
    pub(crate) size: Size,
    /// Runs per figure and side.
    pub(crate) pairs: usize,
}

/// Servers of each partition.
const SERVERS: u16 = 4;
/// Index of the full server.
const FULL: u16 = SERVERS - 1;
/// Bytes per call of the application and of the writer.
const CALL_BYTES: usize = 64 << 10;
/// Space beside the application's files: the writer's file, and data of clients in flight.
const SPACE_BYTES: u64 = 128 << 20;
const WITH_SPACE: &str = "roomy";
const WITHOUT_SPACE: &str = "full";

/// Load beside the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    /// Writes to a server with free space.
    Roomy,
    /// Writes to a full server.
    Full,
    /// None.
    Alone,
}

impl Beside {
    fn partition(self) -> &'static str {
        match self {
            Beside::Roomy => WITH_SPACE,
            Beside::Full | Beside::Alone => WITHOUT_SPACE,
        }
    }
}

/// Results, run by run.
#[derive(Default)]
struct FullRuns {
    against_roomy: Versus,
    against_alone: Versus,
    roomy_against_alone: Versus,
    refusals_per_s: Vec<f64>,
    writes_per_s: Vec<f64>,
    full_s: Vec<f64>,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &FullPlan) -> Result<BenchReport, BenchError> {
    let ground = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let limit = Size((plan.size.0 / u64::from(FULL) + SPACE_BYTES).next_multiple_of(1 << 20));
    let progress = BenchProgress::new();
    progress.show("filling a server");
    for name in [WITH_SPACE, WITHOUT_SPACE] {
        let options = [(Key::Store, "memory".to_owned()), (Key::Memory, limit.to_string())];
        ground.up_with(name, usize::from(SERVERS), &options)?;
    }
    let filled = FillJob { partition: WITHOUT_SPACE.to_owned(), server: FULL, bytes_max: 2 * limit.0 };
    Worker::start(&ground.registry_path(), &[])?.run_job(&BenchJob::Fill(filled))?;
    let runs = measure(plan, &ground, &progress)?;
    let figures = runs.figures(plan);
    let title = format!(
        "pario bench full: a neighbour writes and reads {} on three of {SERVERS} servers while somebody writes to the fourth; \
         {} runs beside one with room, beside one that is full, and alone, in turn. Servers keep files in memory (store = \
         \"memory\"), {limit} each; the full one was filled to that limit",
        plan.size, plan.pairs
    );
    let settings = serde_json::json!({
        "bytes": plan.size.0,
        "call_bytes": CALL_BYTES,
        "pairs": plan.pairs,
        "servers": SERVERS,
        "store": "memory",
        "server_bytes": limit.0,
        "dir": ground.dir().parent(),
    });
    for name in [WITH_SPACE, WITHOUT_SPACE] {
        ground.down(name)?;
    }
    ground.end()?;
    Ok(BenchReport { title, figures, machine, settings })
}

fn measure(plan: &FullPlan, ground: &Testbed, progress: &BenchProgress) -> Result<FullRuns, BenchError> {
    let mut runs = FullRuns::default();
    // The first run is not counted: it touches memory for the first time.
    for pair in 0..=plan.pairs {
        progress.step("a neighbour of a full server, run", pair.saturating_sub(1), plan.pairs);
        let (roomy, hammered) = side(plan, ground, Beside::Roomy)?;
        let (full, refused) = side(plan, ground, Beside::Full)?;
        let (alone, _) = side(plan, ground, Beside::Alone)?;
        if pair == 0 {
            continue;
        }
        runs.against_roomy.pair(roomy.seconds, full.seconds);
        runs.against_alone.pair(alone.seconds, full.seconds);
        runs.roomy_against_alone.pair(alone.seconds, roomy.seconds);
        runs.full_s.push(full.seconds);
        runs.writes_per_s.push(per_second(hammered.calls, hammered.seconds));
        runs.refusals_per_s.push(per_second(refused.calls, refused.seconds));
    }
    Ok(runs)
}

/// One run of the application: its result, and the writer's counts.
fn side(plan: &FullPlan, ground: &Testbed, beside: Beside) -> Result<(JobOutcome, JobOutcome), BenchError> {
    let partition = beside.partition();
    let mut neighbour = Worker::start(&ground.registry_path(), &[])?;
    neighbour.run_job(&BenchJob::Prepare { buffer_bytes: CALL_BYTES })?;
    let mut hammer = match beside {
        Beside::Alone => None,
        Beside::Roomy | Beside::Full => Some(Worker::start(&ground.registry_path(), &[])?),
    };
    if let Some(hammer) = &mut hammer {
        let job =
            BackgroundWriterJob { partition: partition.to_owned(), server: FULL, call_bytes: CALL_BYTES };
        hammer.run_job(&BenchJob::HammerBegin(job))?;
    }
    let job = NeighbourJob {
        partition: partition.to_owned(),
        first_server: 0,
        servers: FULL,
        bytes: plan.size.0,
        call_bytes: CALL_BYTES,
    };
    let outcome = neighbour.run_job(&BenchJob::Neighbour(job))?;
    let hammered = match &mut hammer {
        Some(hammer) => hammer.run_job(&BenchJob::HammerEnd)?,
        None => JobOutcome::default(),
    };
    check_writer(beside, &hammered)?;
    drop((neighbour, hammer));
    ground.wait_idle(partition)?;
    Ok((outcome, hammered))
}

/// A writer that was refused with free space, or not refused without, invalidates the run.
fn check_writer(beside: Beside, hammered: &JobOutcome) -> Result<(), BenchError> {
    let refused = hammered.counts.get(background_writer::REFUSED).copied().unwrap_or(0);
    let right = match beside {
        Beside::Roomy => refused == 0,
        Beside::Full => refused == hammered.calls && 0 < refused,
        Beside::Alone => true,
    };
    if right {
        return Ok(());
    }
    let text =
        format!("{refused} of {} writes beside the neighbour were refused: {beside:?}", hammered.calls);
    Err(BenchError::Wrong(text))
}

impl FullRuns {
    fn figures(&self, plan: &FullPlan) -> Figures {
        let mut figures = Figures::default();
        let speed = 2.0 * mib(plan.size.0) / Figure::of(&self.full_s, "s").value;
        figures.add(
            "neighbour_beside_full",
            self.against_roomy.ratio(),
            Goal::AtLeast(0.9),
            format!("{speed:.0} MiB/s; compared with a writer on a server with free space"),
        );
        figures.add(
            "neighbour_beside_full_vs_alone",
            self.against_alone.ratio(),
            Goal::None,
            "for information: the writer needs processors too",
        );
        let roomy = self.roomy_against_alone.ratio();
        figures.add(
            "neighbour_beside_roomy_vs_alone",
            roomy,
            Goal::None,
            "cost of the writer with free space",
        );
        let refusals = Figure::of(&self.refusals_per_s, "1/s");
        figures.add("full_refusals_per_s", refusals, Goal::None, "refused writes on the full server");
        let writes = Figure::of(&self.writes_per_s, "1/s");
        figures.add("roomy_writes_per_s", writes, Goal::None, "writes on the server with free space");
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hammered(calls: u64, refused: u64) -> JobOutcome {
        let counts = [(background_writer::REFUSED.to_owned(), refused)].into();
        JobOutcome { calls, counts, ..JobOutcome::default() }
    }

    #[test]
    fn a_hammer_must_have_met_what_it_stands_for() {
        assert!(check_writer(Beside::Full, &hammered(10, 10)).is_ok());
        assert!(check_writer(Beside::Full, &hammered(10, 9)).is_err());
        assert!(check_writer(Beside::Full, &hammered(0, 0)).is_err());
        assert!(check_writer(Beside::Roomy, &hammered(10, 0)).is_ok());
        assert!(check_writer(Beside::Roomy, &hammered(10, 1)).is_err());
    }
}
