//! Which scenes each kernel consists of, and which figures they are for.

use pario::core::Size;

use super::super::error::BenchError;
use super::super::figures::{Figure, Goal};
use super::KernelReport;
use super::btio::btio;
use super::crew::Pass;
use super::plan::{Kernel, Only, Plan};
use super::play::{Play, Setting};
use super::scene::Takes;
use super::shapes::{Spec, Strided};
use super::show::{Ratio, What, number};
use super::side::Side;

/// Figures that every kernel shows where their sides were played.
pub(super) const COMMON: [Ratio; 6] = [
    Ratio::new("total_vs_pwrite", Side::Pwrite, What::Total),
    Ratio::new("total_vs_two_phase", Side::TwoPhasePlain, What::Total),
    Ratio::new("total_vs_two_phase_objects", Side::TwoPhase, What::Total),
    Ratio::new("two_phase_vs_plain", Side::Whole, What::Total).of(Side::TwoPhasePlain),
    Ratio::new("read_vs_pread", Side::Pwrite, What::Read),
    Ratio::new("reread_vs_two_phase", Side::TwoPhasePlain, What::Read).warm(),
];
pub(super) const WRITE_VS_MEMORY: Ratio = Ratio::new("write_vs_memory", Side::Memory, What::Write).warm();
pub(super) const WRITE_VS_TWO_PHASE: Ratio =
    Ratio::new("write_vs_two_phase", Side::TwoPhasePlain, What::Write);

/// Runs the kernel of a plan.
pub(super) fn run(plan: &Plan) -> Result<KernelReport, BenchError> {
    let mut play = Play::new(plan)?;
    match plan.kernel {
        _ if plan.only == Some(Only::Cache) => cached(&mut play)?,
        Kernel::Btio { run_bytes, .. } => btio(&mut play, run_bytes)?,
        Kernel::Strided { .. } => strided(&mut play)?,
        Kernel::Irregular { seed, .. } => irregular(&mut play, seed)?,
        Kernel::Scale { servers_max, size } => scale(&mut play, servers_max, size)?,
        Kernel::Tile(_) | Kernel::Flash(_) | Kernel::Subarray { .. } => all_methods(&mut play)?,
    }
    play.end()
}

/// The cooperative cache on a plain file, beside the plain file alone.
fn cached(play: &mut Play<'_>) -> Result<(), BenchError> {
    let against = |name, yardstick, what| Ratio::new(name, yardstick, what).of(Side::Cache).bare();
    let ratios = [
        against("cache_total_vs_pwrite", Side::Pwrite, What::Total),
        against("cache_total_vs_two_phase", Side::TwoPhasePlain, What::Total),
        against("cache_write_vs_pwrite", Side::Pwrite, What::Write),
        against("cache_read_vs_pread", Side::Pwrite, What::Read),
        against("cache_read_vs_two_phase", Side::TwoPhasePlain, What::Read),
    ];
    let (_, spec) = shapes(play.plan)?.remove(0);
    let sides = vec![Side::Memory, Side::Pwrite, Side::Whole, Side::TwoPhasePlain, Side::Cache];
    let setting = Setting { sides, is_counted: false, ..named(play, "cache", spec) };
    play.scene(&setting, &ratios).map(|_| ())
}

/// All methods on every shape of the kernel.
fn all_methods(play: &mut Play<'_>) -> Result<(), BenchError> {
    let ratios = [&COMMON[..], &[WRITE_VS_MEMORY, WRITE_VS_TWO_PHASE]].concat();
    for (word, spec) in shapes(play.plan)? {
        let setting = named(play, word, spec);
        play.scene(&setting, &ratios)?;
    }
    Ok(())
}

/// Pieces in turn: independent calls of one piece each, beside the collective methods.
fn strided(play: &mut Play<'_>) -> Result<(), BenchError> {
    for (word, spec) in shapes(play.plan)? {
        let mut setting = named(play, word, spec);
        setting.sides.push(Side::Independent);
        let goal = if word == "contiguous" { 1.5 } else { 1.2 };
        let collective = Ratio::new("collective_total_vs_pwrite", Side::Pwrite, What::Total);
        let own = |ratio: Ratio| ratio.side == Side::ServerDirected;
        let mut ratios = COMMON.map(|ratio| if own(ratio) { ratio.of(Side::Independent) } else { ratio });
        ratios[0] = ratios[0].at_least(goal);
        play.scene(&setting, &[&ratios[..], &[collective, WRITE_VS_MEMORY]].concat())?;
    }
    Ok(())
}

/// Pieces of four bytes: how large their views are, and how fast.
fn irregular(play: &mut Play<'_>, seed: u64) -> Result<(), BenchError> {
    play.say(&format!("gaps are drawn from seed {seed}"));
    for (word, spec) in shapes(play.plan)? {
        let goal = if word == "gaps" { 2.0 } else { 5.0 };
        let ratios = [&COMMON[..], &[WRITE_VS_MEMORY, WRITE_VS_TWO_PHASE.at_least(goal)]].concat();
        let extents = if let Spec::Irregular(shape) = &spec { shape.extents } else { 1 };
        let setting = named(play, word, spec);
        let takes = play.scene(&setting, &ratios)?;
        view_bytes(play, word, &takes, extents);
    }
    Ok(())
}

/// `vector4_view_bytes`, `gaps_view_bytes_per_extent`: what was sent to a server to describe a rank's part; `…_views_sent`: how often.
fn view_bytes(play: &mut Play<'_>, word: &str, takes: &Takes, extents: u64) {
    let written = takes.of(Side::ServerDirected).iter().map(|take| &take.write);
    let sent = |passes: &[Pass; 2], name: &str| number(passes.iter().map(|pass| pass.count(name)).sum());
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
fn scale(play: &mut Play<'_>, servers_max: usize, size: Size) -> Result<(), BenchError> {
    let mut servers = 1;
    while servers <= servers_max {
        let many = play.plan.procs;
        for (prefix, procs) in [(format!("n{servers}_"), servers as u64), (format!("many_n{servers}_"), many)]
        {
            let bytes = size.0.saturating_mul(procs);
            let spec = Spec::Strided(Strided::of(super::plan::SEGMENT_BYTES, bytes, procs));
            let title = format!("{procs} on {servers} servers");
            let setting = Setting {
                prefix,
                procs,
                servers,
                sides: vec![Side::Memory, Side::Pwrite, Side::TwoPhasePlain, Side::Independent],
                ..play.setting(title, spec)
            };
            play.scene(&setting, &COMMON.map(|ratio| ratio.of(Side::Independent))[..1])?;
        }
        servers *= 2;
    }
    Ok(())
}

/// The shapes of the plan's kernel.
pub(super) fn shapes(plan: &Plan) -> Result<Vec<(&'static str, Spec)>, BenchError> {
    plan.kernel.shapes(plan.procs).map_err(|error| BenchError::Worker(error.0))
}

/// A scene of a shape, whose word goes before the names of its figures.
pub(super) fn named(play: &Play<'_>, word: &str, spec: Spec) -> Setting {
    let kernel = play.plan.kernel.word();
    if word.is_empty() {
        return play.setting(kernel, spec);
    }
    Setting { prefix: format!("{word}_"), ..play.setting(format!("{kernel}, {word}"), spec) }
}
