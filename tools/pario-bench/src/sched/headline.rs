//! The figures with goals: `mlf` against `fifo` and against no scheduler, and the model against the paper.

use super::judged::{FIFO, VECTORED};
use super::model::{App, RunResult};
use super::runs::{ModelJob, NONE, all};
use super::workloads::{self as work, paper};
use crate::figures::{Figure, Figures, Goal, Versus};
use crate::progress::BenchProgress;

/// The policy compared with `fifo`.
pub(crate) const MLF: &str = "mlf";
/// Granularities of two readers, with the goals.
const TWO_READERS: [(u64, f64); 4] = [(8 << 10, 20.0), (16 << 10, 3.5), (32 << 10, 3.5), (64 << 10, 3.5)];
/// Tolerance of the calibration against the paper.
pub(crate) const CALIBRATION: (f64, f64) = (0.75, 1.25);

/// Runs of two policies on the same applications, per seed.
struct Pairs {
    yardstick: Vec<RunResult>,
    judged: Vec<RunResult>,
}

impl Pairs {
    fn run(what: &str, sides: [&str; 2], apps: &[App], seeds: &[u64], progress: &BenchProgress) -> Pairs {
        let side =
            |policy: &str| seeds.iter().map(|seed| ModelJob::new(policy, apps.to_vec(), *seed)).collect();
        let runs: Vec<ModelJob> = sides.map(side).into_iter().flat_map(|side: Vec<ModelJob>| side).collect();
        let mut yardstick = all(what, &runs, progress);
        let judged = yardstick.split_off(seeds.len());
        Pairs { yardstick, judged }
    }

    /// Speed by speed of `seconds` of a run.
    fn versus(&self, seconds: impl Fn(&RunResult) -> f64) -> (Figure, String) {
        let mut versus = Versus::default();
        for (yardstick, judged) in self.yardstick.iter().zip(&self.judged) {
            versus.pair(seconds(yardstick), seconds(judged));
        }
        let median =
            |runs: &[RunResult]| Figure::of(&runs.iter().map(&seconds).collect::<Vec<_>>(), "s").value;
        (versus.ratio(), format!("{:.1} s against {:.1} s", median(&self.judged), median(&self.yardstick)))
    }
}

/// Adds them all.
pub(crate) fn add(figures: &mut Figures, seeds: &[u64], progress: &BenchProgress) {
    two_readers(figures, seeds, progress);
    beside_cat(figures, seeds, progress);
    ten_apps(figures, seeds, progress);
    lone(figures, seeds, progress);
}

fn two_readers(figures: &mut Figures, seeds: &[u64], progress: &BenchProgress) {
    let mut gaps = Vec::new();
    for (granularity, goal) in TWO_READERS {
        let what = format!("two readers at {}", work::short(granularity));
        let pairs = Pairs::run(&what, [FIFO, MLF], &work::two(granularity), seeds, progress);
        if granularity == TWO_READERS[0].0 {
            calibrate(figures, "calibration_two_readers", &pairs.yardstick, paper::TWO_READERS_S);
        }
        let (ratio, note) = pairs.versus(RunResult::seconds);
        let name = format!("two_readers_mlf_vs_fifo_{}", work::short(granularity));
        figures.add(name, ratio, Goal::AtLeast(goal), note);
        gaps.extend(pairs.judged.iter().map(RunResult::finish_gap));
    }
    let vectored = format!("{MLF}{VECTORED}");
    let apps = work::two(TWO_READERS[0].0);
    let pairs = Pairs::run("two readers, merged", [vectored.as_str(), MLF], &apps, seeds, progress);
    let (ratio, note) = pairs.versus(RunResult::seconds);
    figures.add("two_readers_virtual_vs_real_8k", ratio, Goal::None, note);
    let note = "of their time, under mlf, at all four granularities";
    figures.add("two_readers_finish_gap", Figure::of(&gaps, "ratio"), Goal::AtMost(0.05), note);
}

fn beside_cat(figures: &mut Figures, seeds: &[u64], progress: &BenchProgress) {
    let apps = work::beside_cat(work::MIDDLE_GRANULARITY);
    let pairs = Pairs::run("cat beside a large reader", [FIFO, MLF], &apps, seeds, progress);
    let (cat, note) = pairs.versus(|run| run.apps[1].seconds());
    figures.add("cat_mlf_vs_fifo", cat, Goal::AtLeast(5.0), note);
    let (large, note) = pairs.versus(|run| run.apps[0].seconds());
    figures.add("large_beside_cat_mlf_vs_fifo", large, Goal::AtLeast(1.0), note);
}

fn ten_apps(figures: &mut Figures, seeds: &[u64], progress: &BenchProgress) {
    let pairs = Pairs::run("ten applications", [FIFO, MLF], &work::ten(), seeds, progress);
    calibrate(figures, "calibration_ten_apps", &pairs.yardstick, paper::TEN_APPS_S);
    let (ratio, note) = pairs.versus(RunResult::seconds);
    figures.add("ten_apps_mlf_vs_fifo", ratio, Goal::AtLeast(4.0), note);
    let small = |run: &RunResult| work::TEN_SMALL.iter().map(|at| run.apps[*at].response_ms()).sum::<f64>();
    let (ratio, _) = pairs.versus(small);
    figures.add(
        "ten_apps_small_response_mlf_vs_fifo",
        ratio,
        Goal::None,
        "mean response of the four small ones",
    );
}

fn lone(figures: &mut Figures, seeds: &[u64], progress: &BenchProgress) {
    let pairs = Pairs::run("lone stream", [NONE, MLF], &work::lone(), seeds, progress);
    let (ratio, note) = pairs.versus(RunResult::seconds);
    figures.add("lone_stream_mlf_vs_none", ratio, Goal::AtLeast(0.98), note);
}

/// Model against paper, without a scheduler.
fn calibrate(figures: &mut Figures, name: &str, runs: &[RunResult], paper_s: f64) {
    let shares: Vec<f64> = runs.iter().map(|run| run.seconds() / paper_s).collect();
    let figure = Figure::of(&shares, "ratio");
    // A goal has one side: the farther bound.
    let goal = if figure.value < 1.0 { Goal::AtLeast(CALIBRATION.0) } else { Goal::AtMost(CALIBRATION.1) };
    figures.add(name, figure, goal, format!("the paper: {paper_s:.0} s"));
}
