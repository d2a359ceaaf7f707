//! Which scenes each kernel consists of, and which figures they are for.

use pario::core::Size;

use super::super::error::BenchError;
use super::super::figures::{Figure, Goal};
use super::KernelReport;
use super::btio::btio;
use super::plan::{Kernel, Plan};
use super::play::{Play, Setting};
use super::shapes::{Spec, Strided};
use super::show::{Ratio, What, number};
use super::side::{Side, available};

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
        Kernel::Btio { run_bytes, .. } => btio(&mut play, run_bytes)?,
        Kernel::Strided { .. } => strided(&mut play)?,
        Kernel::Irregular { seed, .. } => irregular(&mut play, seed)?,
        Kernel::Scale { servers_max, size } => scale(&mut play, servers_max, size)?,
        Kernel::Tile(_) | Kernel::Flash(_) | Kernel::Subarray { .. } => all_methods(&mut play)?,
    }
    play.end()
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
        view_bytes(play, word, &spec)?;
        let goal = if word == "gaps" { 2.0 } else { 5.0 };
        let ratios = [&COMMON[..], &[WRITE_VS_MEMORY, WRITE_VS_TWO_PHASE.at_least(goal)]].concat();
        let setting = named(play, word, spec);
        play.scene(&setting, &ratios)?;
    }
    Ok(())
}

/// `vector4_view_bytes`, `gaps_view_bytes_per_extent`: what describes a rank's part, wherever it is sent.
fn view_bytes(play: &mut Play<'_>, word: &str, spec: &Spec) -> Result<(), BenchError> {
    let Spec::Irregular(shape) = spec else { return Ok(()) };
    let mut bytes = Vec::new();
    for rank in 0..play.plan.procs {
        let part = spec.part(rank, play.plan.procs).map_err(|error| BenchError::Worker(error.0))?;
        let view = part.view().map_err(|error| BenchError::Worker(error.0))?;
        let encoded = view.encode().map_err(|error| BenchError::Worker(error.to_string()))?;
        bytes.push(number(encoded.len() as u64));
    }
    if word == "gaps" {
        let each: Vec<f64> = bytes.iter().map(|bytes| bytes / number(shape.extents)).collect();
        let note = "a view's serialised bytes, over its extents; one run per rank";
        play.add("gaps_view_bytes_per_extent", Figure::of(&each, "B"), Goal::AtMost(2.0), note);
    } else {
        let note = "a view's serialised bytes; one run per rank";
        play.add("vector4_view_bytes", Figure::of(&bytes, "B"), Goal::AtMost(200.0), note);
    }
    Ok(())
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
                sides: available(&[Side::Memory, Side::Pwrite, Side::TwoPhasePlain, Side::Independent]),
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
