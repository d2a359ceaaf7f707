//! The scenarios of each kernel, and their figures.

use pario::core::Size;

use super::super::error::BenchError;
use super::super::figures::{Figure, Goal};
use super::KernelReport;
use super::btio::btio;
use super::plan::{KernelKind, KernelPlan, Only};
use super::run::{KernelRun, ScenarioSettings};
use super::scenario::KernelSamples;
use super::shapes::{ShapeSpec, Strided};
use super::show::{Ratio, TimeKind, number};
use super::side::KernelSide;
use super::workers::KernelPass;

/// Figures of every kernel, if their sides were run.
pub(super) const COMMON: [Ratio; 6] = [
    Ratio::new("total_vs_pwrite", KernelSide::Pwrite, TimeKind::Total),
    Ratio::new("total_vs_two_phase", KernelSide::TwoPhasePlain, TimeKind::Total),
    Ratio::new("total_vs_two_phase_objects", KernelSide::TwoPhase, TimeKind::Total),
    Ratio::new("two_phase_vs_plain", KernelSide::Whole, TimeKind::Total).of(KernelSide::TwoPhasePlain),
    Ratio::new("read_vs_pread", KernelSide::Pwrite, TimeKind::Read),
    Ratio::new("reread_vs_two_phase", KernelSide::TwoPhasePlain, TimeKind::Read).warm(),
];
pub(super) const WRITE_VS_MEMORY: Ratio =
    Ratio::new("write_vs_memory", KernelSide::Memory, TimeKind::Write).warm();
pub(super) const WRITE_VS_TWO_PHASE: Ratio =
    Ratio::new("write_vs_two_phase", KernelSide::TwoPhasePlain, TimeKind::Write);

/// Runs the kernel of a plan.
pub(super) fn run(plan: &KernelPlan) -> Result<KernelReport, BenchError> {
    let mut play = KernelRun::new(plan)?;
    match plan.kernel {
        _ if plan.only == Some(Only::Cache) => cached(&mut play)?,
        KernelKind::Btio { run_bytes, .. } => btio(&mut play, run_bytes)?,
        KernelKind::Strided { .. } => strided(&mut play)?,
        KernelKind::Irregular { seed, .. } => irregular(&mut play, seed)?,
        KernelKind::Scale { servers_max, size } => scale(&mut play, servers_max, size)?,
        KernelKind::Tile(_) | KernelKind::Flash(_) | KernelKind::Subarray { .. } => all_methods(&mut play)?,
    }
    play.end()
}

/// The file cache on a plain file, against the plain file alone.
fn cached(play: &mut KernelRun<'_>) -> Result<(), BenchError> {
    let against = |name, yardstick, what| Ratio::new(name, yardstick, what).of(KernelSide::Cache).bare();
    let ratios = [
        against("cache_total_vs_pwrite", KernelSide::Pwrite, TimeKind::Total),
        against("cache_total_vs_two_phase", KernelSide::TwoPhasePlain, TimeKind::Total),
        against("cache_write_vs_pwrite", KernelSide::Pwrite, TimeKind::Write),
        against("cache_read_vs_pread", KernelSide::Pwrite, TimeKind::Read),
        against("cache_read_vs_two_phase", KernelSide::TwoPhasePlain, TimeKind::Read),
    ];
    let (_, spec) = shapes(play.plan)?.remove(0);
    let sides = vec![
        KernelSide::Memory,
        KernelSide::Pwrite,
        KernelSide::Whole,
        KernelSide::TwoPhasePlain,
        KernelSide::Cache,
    ];
    let setting = ScenarioSettings { sides, is_counted: false, ..named(play, "cache", spec) };
    play.run_scenario(&setting, &ratios).map(|_| ())
}

/// All methods on every shape of the kernel.
fn all_methods(play: &mut KernelRun<'_>) -> Result<(), BenchError> {
    let ratios = [&COMMON[..], &[WRITE_VS_MEMORY, WRITE_VS_TWO_PHASE]].concat();
    for (word, spec) in shapes(play.plan)? {
        let setting = named(play, word, spec);
        play.run_scenario(&setting, &ratios)?;
    }
    Ok(())
}

/// Interleaved pieces: independent calls of one piece each, beside the collective methods.
fn strided(play: &mut KernelRun<'_>) -> Result<(), BenchError> {
    for (word, spec) in shapes(play.plan)? {
        let mut setting = named(play, word, spec);
        setting.sides.push(KernelSide::Independent);
        let goal = if word == "contiguous" { 1.5 } else { 1.2 };
        let collective = Ratio::new("collective_total_vs_pwrite", KernelSide::Pwrite, TimeKind::Total);
        let own = |ratio: Ratio| ratio.side == KernelSide::ServerDirected;
        let mut ratios =
            COMMON.map(|ratio| if own(ratio) { ratio.of(KernelSide::Independent) } else { ratio });
        ratios[0] = ratios[0].at_least(goal);
        play.run_scenario(&setting, &[&ratios[..], &[collective, WRITE_VS_MEMORY]].concat())?;
    }
    Ok(())
}

/// Pieces of four bytes: the size of their views, and their speed.
fn irregular(play: &mut KernelRun<'_>, seed: u64) -> Result<(), BenchError> {
    play.add_line(&format!("gaps are drawn from seed {seed}"));
    for (word, spec) in shapes(play.plan)? {
        let goal = if word == "gaps" { 2.0 } else { 5.0 };
        let ratios = [&COMMON[..], &[WRITE_VS_MEMORY, WRITE_VS_TWO_PHASE.at_least(goal)]].concat();
        let extents = if let ShapeSpec::Irregular(shape) = &spec { shape.extents } else { 1 };
        let setting = named(play, word, spec);
        let takes = play.run_scenario(&setting, &ratios)?;
        view_bytes(play, word, &takes, extents);
    }
    Ok(())
}

/// `vector4_view_bytes`, `gaps_view_bytes_per_extent`: bytes sent to a server to describe a rank's part; `…_views_sent`: how often.
fn view_bytes(play: &mut KernelRun<'_>, word: &str, takes: &KernelSamples, extents: u64) {
    let written = takes.of(KernelSide::ServerDirected).iter().map(|take| &take.write);
    let sent =
        |passes: &[KernelPass; 2], name: &str| number(passes.iter().map(|pass| pass.count(name)).sum());
    let each: Vec<f64> = written
        .clone()
        .map(|passes| sent(passes, "view_bytes") / sent(passes, "views"))
        .filter(|bytes| bytes.is_finite())
        .collect();
    if each.is_empty() {
        return;
    }
    if word == "gaps" {
        let each: Vec<f64> = each.iter().map(|bytes| bytes / number(extents)).collect();
        let note = "bytes of a view as it was sent to a server, over its extents; server-directed";
        play.add("gaps_view_bytes_per_extent", Figure::of(&each, "B"), Goal::AtMost(2.0), note);
    } else {
        let note = "bytes of a view as it was sent to a server; server-directed";
        play.add("vector4_view_bytes", Figure::of(&each, "B"), Goal::AtMost(200.0), note);
    }
    let pairs = number(play.plan.procs * play.plan.servers as u64);
    let times: Vec<f64> = written.map(|passes| sent(passes, "views") / pairs).collect();
    let note = "views sent by a process to a server while it wrote the file twice; server-directed";
    play.add(format!("{word}_views_sent"), Figure::of(&times, "views"), Goal::AtMost(1.0), note);
}

/// n processes on n servers, then many processes on n servers, for n doubling from 1 on.
fn scale(play: &mut KernelRun<'_>, servers_max: usize, size: Size) -> Result<(), BenchError> {
    let mut servers = 1;
    while servers <= servers_max {
        let many = play.plan.procs;
        for (prefix, procs) in [(format!("n{servers}_"), servers as u64), (format!("many_n{servers}_"), many)]
        {
            let bytes = size.0.saturating_mul(procs);
            let spec = ShapeSpec::Strided(Strided::of(super::plan::SEGMENT_BYTES, bytes, procs));
            let title = format!("{procs} on {servers} servers");
            let setting = ScenarioSettings {
                prefix,
                procs,
                servers,
                sides: vec![
                    KernelSide::Memory,
                    KernelSide::Pwrite,
                    KernelSide::TwoPhasePlain,
                    KernelSide::Independent,
                ],
                ..play.setting(title, spec)
            };
            play.run_scenario(&setting, &COMMON.map(|ratio| ratio.of(KernelSide::Independent))[..1])?;
        }
        servers *= 2;
    }
    Ok(())
}

/// The shapes of the plan's kernel.
pub(super) fn shapes(plan: &KernelPlan) -> Result<Vec<(&'static str, ShapeSpec)>, BenchError> {
    plan.kernel.shapes(plan.procs).map_err(|error| BenchError::Worker(error.0))
}

/// A scenario of a shape, with the shape's word as prefix of its figures.
pub(super) fn named(play: &KernelRun<'_>, word: &str, spec: ShapeSpec) -> ScenarioSettings {
    let kernel = play.plan.kernel.word();
    if word.is_empty() {
        return play.setting(kernel, spec);
    }
    ScenarioSettings { prefix: format!("{word}_"), ..play.setting(format!("{kernel}, {word}"), spec) }
}
