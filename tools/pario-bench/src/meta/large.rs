//! A directory with very many entries: time of listing, and its effect on creating.

use super::super::error::BenchError;
use super::super::figures::{Figure, Figures, Goal, per_second};
use super::super::job::BenchJob;
use super::super::progress::BenchProgress;
use super::super::testbed::Testbed;
use super::super::worker::Worker;
use super::names::NameOp;
use super::{MetaPlan, MetaWorkers, PROCESSES, names_job};
use crate::clock::BenchTimer;

const LARGE: &str = "large";
const EMPTY: &str = "empty";
/// Files per comparison and process.
const TURN: u64 = 1000;

/// Adds `list_1e6_s` and `create_at_1e6_ratio`, and the rate at which the directory was filled.
pub(super) fn measure(
    plan: &MetaPlan,
    ground: &Testbed,
    progress: &BenchProgress,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let mut crew = MetaWorkers::start(ground)?;
    crew.one(names_job(NameOp::MakeDir, LARGE, "", 0))?;
    crew.one(names_job(NameOp::MakeDir, EMPTY, "", 0))?;
    let each = plan.large / PROCESSES as u64;
    let entries = each * PROCESSES as u64;
    progress.show(&format!("making a directory of {entries} entries"));
    let began = BenchTimer::now();
    crew.all(|process| names_job(NameOp::Create, LARGE, &format!("entry-{process}-"), each))?;
    let filled = per_second(entries, began.elapsed().as_secs_f64());
    figures.add(
        "creates_to_1e6_per_s",
        Figure::of(&[filled], "1/s"),
        Goal::None,
        format!("until {entries} are there"),
    );
    compare_creates(plan, &mut crew, progress, figures)?;
    list(plan, (ground, entries), progress, figures)
}

/// Creating in the large directory against creating in an empty one, alternately.
fn compare_creates(
    plan: &MetaPlan,
    crew: &mut MetaWorkers,
    progress: &BenchProgress,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let mut ratios = Vec::new();
    for run in 0..plan.pairs {
        progress.step("creating in a large and in an empty directory, pair", run, plan.pairs);
        let mut rates = [0.0; 2];
        for (dir, rate) in [EMPTY, LARGE].into_iter().zip(&mut rates) {
            *rate = crew.rate(NameOp::Create, TURN, |_| dir.to_owned())?;
            crew.rate(NameOp::Unlink, TURN, |_| dir.to_owned())?;
        }
        ratios.push(rates[1] / rates[0]);
    }
    let note = "speed in a large directory against an empty one";
    figures.add("create_at_1e6_ratio", Figure::of(&ratios, "ratio"), Goal::AtLeast(0.5), note);
    Ok(())
}

/// Listing by fresh processes.
fn list(
    plan: &MetaPlan,
    (ground, entries): (&Testbed, u64),
    progress: &BenchProgress,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let mut seconds = Vec::new();
    for run in 0..plan.pairs {
        progress.step("listing the large directory, run", run, plan.pairs);
        let mut worker = Worker::start(&ground.registry_path(), &[])?;
        seconds.push(worker.run_job(&BenchJob::Names(names_job(NameOp::List, LARGE, "", entries)))?.seconds);
    }
    let note = format!("{entries} entries with attributes, fresh process");
    figures.add("list_1e6_s", Figure::of(&seconds, "s"), Goal::AtMost(3.0), note);
    Ok(())
}
