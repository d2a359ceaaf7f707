//! `pario bench full`: what an application notices of another one that hammers a server without room, on files of its own.
//!
//! Two partitions of four servers are up, each server with the same limit: in one the last server is full, in the other none is. A
//! neighbour writes and reads its own files on the other three servers, while another process writes to the last one as fast as it
//! can; with room all its writes succeed, without room they are refused.
//!
//! Always: the neighbour's runs alternate: beside the hammer with room, beside the one without, alone; a run counts only if the
//! hammer was at it from before its beginning to its end.

mod fill;
pub(crate) mod hammer;
pub(crate) mod neighbour;

use std::path::PathBuf;

use pario::core::Size;
use pario::partition::Key;

use self::hammer::HammerJob;
use self::neighbour::NeighbourJob;
use super::error::BenchError;
use super::figures::{Figure, Figures, Goal, Versus, mib, per_second};
use super::ground::Ground;
use super::job::{Job, Outcome};
use super::machine::Machine;
use super::progress::Progress;
use super::report::Report;
use super::worker::Worker;

pub(crate) use fill::{FillJob, fill};

/// What `bench full` is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FullPlan {
    /// Where; the system's directory for temporary files if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Bytes that the neighbour writes and reads in one run.
    pub(crate) size: Size,
    /// Runs per figure and side.
    pub(crate) pairs: usize,
}

/// Servers of each partition.
const SERVERS: u16 = 4;
/// The one that is full.
const FULL: u16 = SERVERS - 1;
/// Bytes of each call, of the neighbour and of the hammer.
const CALL_BYTES: usize = 64 << 10;
/// Room beside the neighbour's files: the hammer's file, and what clients may have under way.
const ROOM_BYTES: u64 = 128 << 20;
const WITH_ROOM: &str = "roomy";
const WITHOUT_ROOM: &str = "full";

/// What goes on beside the neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    /// Somebody writes to a server that has room.
    Roomy,
    /// Somebody writes to a server that is full.
    Full,
    /// Nothing.
    Nobody,
}

impl Beside {
    fn partition(self) -> &'static str {
        match self {
            Beside::Roomy => WITH_ROOM,
            Beside::Full | Beside::Nobody => WITHOUT_ROOM,
        }
    }
}

/// What was measured, run by run.
#[derive(Default)]
struct Runs {
    against_roomy: Versus,
    against_alone: Versus,
    roomy_against_alone: Versus,
    refusals_per_s: Vec<f64>,
    writes_per_s: Vec<f64>,
    full_s: Vec<f64>,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &FullPlan) -> Result<Report, BenchError> {
    let ground = Ground::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let limit = Size((plan.size.0 / u64::from(FULL) + ROOM_BYTES).next_multiple_of(1 << 20));
    let progress = Progress::new();
    progress.say("filling a server");
    for name in [WITH_ROOM, WITHOUT_ROOM] {
        let options = [(Key::Store, "memory".to_owned()), (Key::Memory, limit.to_string())];
        ground.up_with(name, usize::from(SERVERS), &options)?;
    }
    let filled = FillJob { partition: WITHOUT_ROOM.to_owned(), server: FULL, bytes_max: 2 * limit.0 };
    Worker::start(&ground.registry_path(), &[])?.ask(&Job::Fill(filled))?;
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
    for name in [WITH_ROOM, WITHOUT_ROOM] {
        ground.down(name)?;
    }
    ground.end()?;
    Ok(Report { title, figures, machine, settings })
}

fn measure(plan: &FullPlan, ground: &Ground, progress: &Progress) -> Result<Runs, BenchError> {
    let mut runs = Runs::default();
    // The first is not counted: it finds memory that nobody has used yet.
    for pair in 0..=plan.pairs {
        progress.step("a neighbour of a full server, run", pair.saturating_sub(1), plan.pairs);
        let (roomy, hammered) = side(plan, ground, Beside::Roomy)?;
        let (full, refused) = side(plan, ground, Beside::Full)?;
        let (alone, _) = side(plan, ground, Beside::Nobody)?;
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

/// One run of the neighbour: what it came to, and what the hammer did meanwhile.
fn side(plan: &FullPlan, ground: &Ground, beside: Beside) -> Result<(Outcome, Outcome), BenchError> {
    let partition = beside.partition();
    let mut neighbour = Worker::start(&ground.registry_path(), &[])?;
    neighbour.ask(&Job::Prepare { buffer_bytes: CALL_BYTES })?;
    let mut hammer = match beside {
        Beside::Nobody => None,
        Beside::Roomy | Beside::Full => Some(Worker::start(&ground.registry_path(), &[])?),
    };
    if let Some(hammer) = &mut hammer {
        let job = HammerJob { partition: partition.to_owned(), server: FULL, call_bytes: CALL_BYTES };
        hammer.ask(&Job::HammerBegin(job))?;
    }
    let job = NeighbourJob {
        partition: partition.to_owned(),
        first_server: 0,
        servers: FULL,
        bytes: plan.size.0,
        call_bytes: CALL_BYTES,
    };
    let outcome = neighbour.ask(&Job::Neighbour(job))?;
    let hammered = match &mut hammer {
        Some(hammer) => hammer.ask(&Job::HammerEnd)?,
        None => Outcome::default(),
    };
    check_hammer(beside, &hammered)?;
    drop((neighbour, hammer));
    ground.settle(partition)?;
    Ok((outcome, hammered))
}

/// A hammer that was refused where there is room, or was not where there is none, did not do what it stands for.
fn check_hammer(beside: Beside, hammered: &Outcome) -> Result<(), BenchError> {
    let refused = hammered.counts.get(hammer::REFUSED).copied().unwrap_or(0);
    let right = match beside {
        Beside::Roomy => refused == 0,
        Beside::Full => refused == hammered.calls && 0 < refused,
        Beside::Nobody => true,
    };
    if right {
        return Ok(());
    }
    let text =
        format!("{refused} of {} writes beside the neighbour were refused: {beside:?}", hammered.calls);
    Err(BenchError::Wrong(text))
}

impl Runs {
    fn figures(&self, plan: &FullPlan) -> Figures {
        let mut figures = Figures::default();
        let speed = 2.0 * mib(plan.size.0) / Figure::of(&self.full_s, "s").value;
        figures.add(
            "neighbour_beside_full",
            self.against_roomy.ratio(),
            Goal::AtLeast(0.9),
            format!("{speed:.0} MiB/s; against beside a hammer whose server has room"),
        );
        figures.add(
            "neighbour_beside_full_vs_alone",
            self.against_alone.ratio(),
            Goal::None,
            "for information: the hammer takes processors too",
        );
        let roomy = self.roomy_against_alone.ratio();
        figures.add("neighbour_beside_roomy_vs_alone", roomy, Goal::None, "what it takes with room");
        let refusals = Figure::of(&self.refusals_per_s, "1/s");
        figures.add("full_refusals_per_s", refusals, Goal::None, "what the hammer of the full server got");
        let writes = Figure::of(&self.writes_per_s, "1/s");
        figures.add("roomy_writes_per_s", writes, Goal::None, "what the hammer with room wrote");
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hammered(calls: u64, refused: u64) -> Outcome {
        let counts = [(hammer::REFUSED.to_owned(), refused)].into();
        Outcome { calls, counts, ..Outcome::default() }
    }

    #[test]
    fn a_hammer_must_have_met_what_it_stands_for() {
        assert!(check_hammer(Beside::Full, &hammered(10, 10)).is_ok());
        assert!(check_hammer(Beside::Full, &hammered(10, 9)).is_err());
        assert!(check_hammer(Beside::Full, &hammered(0, 0)).is_err());
        assert!(check_hammer(Beside::Roomy, &hammered(10, 0)).is_ok());
        assert!(check_hammer(Beside::Roomy, &hammered(10, 1)).is_err());
    }
}
