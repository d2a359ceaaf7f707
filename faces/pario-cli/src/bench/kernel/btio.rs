//! The scenes of `btio`: the base, data that fits into outboxes, short runs, computing, slow stores.

use pario::core::Size;

use super::super::error::BenchError;
use super::super::figures::{Figure, Goal};
use super::super::sliding::hosts::Hosts;
use super::plan::{Only, Plan, SHORT_RUN_BYTES};
use super::play::{Apart, Play, Setting};
use super::programme::{COMMON, WRITE_VS_MEMORY, WRITE_VS_TWO_PHASE, named, shapes};
use super::scene::{Directions, Hidden, Scene, Take};
use super::shapes::{Btio, CELL_BYTES, Spec};
use super::show::{self, Ratio, What};
use super::side::Side;

/// Computing between dumps where it is part of a figure.
const COMPUTE_MS: f64 = 8.0;
/// What a shared file system gives a node.
const STORE_LIMIT: u64 = 500_000_000;
/// Outboxes for programs that write in bursts and then compute.
const LARGE_OUTBOX: Size = Size(64 << 20);
/// Dumps whose data fits into an outbox.
const FEW_DUMPS: u64 = 5;
/// Dumps where every byte goes over a slow link, within what tier-1 servers keep.
const HOSTS_DUMPS: u64 = 10;
/// What the common figures should reach, in their order.
const COMMON_GOALS: [f64; 6] = [3.0, 1.2, 0.85, 0.8, 1.2, 2.0];

const SHORT_RUNS: Ratio = Ratio::new("total_vs_pwrite_240", Side::Pwrite, What::Total).at_least(5.0).bare();
const LIMITED: Ratio =
    Ratio::new("limited_write_vs_two_phase", Side::TwoPhasePlain, What::Write).at_least(5.0).bare();

/// Between hosts; two-phase goes onto the partition's objects, since the hosts have no file system in common.
const HOSTS: [Ratio; 3] = [
    Ratio::new("write_vs_two_phase", Side::TwoPhase, What::Write).of(Side::ClientDirected).at_least(2.0),
    Ratio::new("total_vs_two_phase", Side::TwoPhase, What::Total).at_least(1.0),
    Ratio::new("client_directed_total_vs_two_phase", Side::TwoPhase, What::Total).of(Side::ClientDirected),
];

const ATOMIC: Ratio = Ratio::new("atomic_vs_non_atomic", Side::ServerDirected, What::Total)
    .of(Side::Atomic)
    .at_least(0.95)
    .bare();
const ATOMIC_READ: Ratio =
    Ratio::new("atomic_read_vs_non_atomic", Side::ServerDirected, What::Read).of(Side::Atomic).bare();

/// Plays all scenes; only those that were asked for, if something was.
pub(super) fn btio(play: &mut Play<'_>, run_bytes: Option<u64>) -> Result<(), BenchError> {
    let Plan { compute_ms, store_limit, .. } = *play.plan;
    let (_, spec) = shapes(play.plan)?.remove(0);
    let Spec::Btio(shape) = spec else { return Ok(()) };
    match play.plan.only {
        Some(Only::Atomic) => return atomic(play, shape),
        Some(Only::Within) => return within_outboxes(play, shape),
        Some(Only::Hosts { link_bits_s }) => return hosts(play, shape, link_bits_s),
        Some(Only::Cache) | None => {}
    }
    if let Some(limit) = store_limit {
        return limited(play, shape, limit, compute_ms.unwrap_or(COMPUTE_MS));
    }
    if let Some(ms) = compute_ms {
        return computing(play, shape, ms);
    }
    base(play, shape, run_bytes)?;
    if run_bytes.is_some() {
        return Ok(());
    }
    within_outboxes(play, shape)?;
    short_runs(play, shape)?;
    computing(play, shape, COMPUTE_MS)?;
    limited(play, shape, STORE_LIMIT, COMPUTE_MS)?;
    apart(play, shape)?;
    atomic(play, shape)
}

fn base(play: &mut Play<'_>, shape: Btio, run_bytes: Option<u64>) -> Result<(), BenchError> {
    let goals = COMMON.iter().zip(COMMON_GOALS);
    let mut ratios: Vec<Ratio> = goals.map(|(ratio, goal)| ratio.at_least(goal)).collect();
    if run_bytes.is_some() {
        ratios.push(WRITE_VS_MEMORY);
    }
    if run_bytes == Some(SHORT_RUN_BYTES) {
        ratios[0] = SHORT_RUNS;
    }
    let setting = named(play, "", Spec::Btio(shape));
    play.scene(&setting, &ratios).map(|_| ())
}

/// `write_vs_memory`: what is written fits into the outboxes, whose pages have all been used before.
fn within_outboxes(play: &mut Play<'_>, shape: Btio) -> Result<(), BenchError> {
    let few = Spec::Btio(Btio { dumps: FEW_DUMPS.min(shape.dumps), ..shape });
    let rank_bytes = few.data_bytes(play.plan.procs) / play.plan.procs;
    // Records have heads, and a record does not wrap around the end.
    let outbox = (rank_bytes + rank_bytes / 4).next_power_of_two().max(8 << 20);
    let setting = Setting {
        sides: vec![Side::Memory, Side::ServerDirected],
        directions: Directions::Write,
        outbox: Some(Size(outbox)),
        is_counted: false,
        passes: 0,
        ..named(play, "outbox", few)
    };
    play.scene(&setting, &[WRITE_VS_MEMORY.at_least(0.66).bare()]).map(|_| ())
}

fn short_runs(play: &mut Play<'_>, shape: Btio) -> Result<(), BenchError> {
    let short = Spec::Btio(Btio { run_cells: Some(SHORT_RUN_BYTES / CELL_BYTES), ..shape });
    if let Err(error) = short.check(play.plan.procs) {
        play.say(&format!("not played: short runs ({error})"));
        return Ok(());
    }
    let sides = vec![Side::Memory, Side::Pwrite, Side::TwoPhasePlain, Side::TwoPhase, Side::ServerDirected];
    let setting = Setting { sides, is_counted: false, ..named(play, "short", short) };
    play.scene(&setting, &[SHORT_RUNS]).map(|_| ())
}

/// `write_vs_two_phase`: time inside write calls while ranks compute between dumps.
fn computing(play: &mut Play<'_>, shape: Btio, ms: f64) -> Result<(), BenchError> {
    let setting = Setting { compute_ms: Some(ms), ..busy(play, "compute", shape) };
    play.scene(&setting, &[WRITE_VS_TWO_PHASE.at_least(2.0).bare()]).map(|_| ())
}

/// `limited_write_vs_two_phase`, `staging_hidden`, `compute_slowdown`: stores as slow as a shared file system's share of a node.
fn limited(play: &mut Play<'_>, shape: Btio, limit: u64, ms: f64) -> Result<(), BenchError> {
    let setting = Setting {
        compute_ms: Some(ms),
        limit: Some(limit),
        outbox: Some(LARGE_OUTBOX),
        ..busy(play, "limited", shape)
    };
    play.scene_and(&setting, &[LIMITED], hidden).map(|_| ())
}

/// `messages_between_nodes`: ranks share no memory with the servers.
fn apart(play: &mut Play<'_>, shape: Btio) -> Result<(), BenchError> {
    let few = Btio { dumps: FEW_DUMPS.min(shape.dumps), ..shape };
    let setting = Setting {
        sides: vec![Side::ServerDirected],
        directions: Directions::Write,
        node: Some("apart"),
        is_counted: false,
        ..named(play, "apart", Spec::Btio(few))
    };
    let takes = play.scene(&setting, &[])?;
    let each = show::steady_messages(&takes, play.plan.servers as u64);
    if !each.is_empty() {
        let note = "sent by a process to a server inside a server-directed write call, in the second half of the steps, when they share no memory; warm";
        play.add("messages_between_nodes", Figure::of(&each, "messages"), Goal::AtMost(1.0), note);
    }
    Ok(())
}

/// `write_vs_two_phase`, client-directed, and `total_vs_two_phase`, server-directed: processes on one host, servers on another.
fn hosts(play: &mut Play<'_>, shape: Btio, link_bits_s: u64) -> Result<(), BenchError> {
    let hosts = Hosts::bare(2, link_bits_s, play.stage.ground.dir())?;
    let apart = Apart { ranks: hosts.holder(0), servers: hosts.holder(1), address: hosts.address(1) };
    let few = Btio { dumps: HOSTS_DUMPS.min(shape.dumps), ..shape };
    play.say(&format!(
        "{} processes on one host, {} servers on another, {} Mbit/s in between",
        play.plan.procs,
        play.plan.servers,
        link_bits_s / 1_000_000
    ));
    let setting = Setting {
        sides: vec![Side::Memory, Side::TwoPhase, Side::ClientDirected, Side::ServerDirected],
        directions: Directions::Write,
        node: Some("ranks"),
        apart: Some(apart),
        is_counted: false,
        ..named(play, "", Spec::Btio(few))
    };
    play.scene(&setting, &HOSTS).map(|_| ())
}

/// `atomic_vs_non_atomic`, `lock_waits`: ranks share no byte, so that atomic mode has nothing to keep apart.
fn atomic(play: &mut Play<'_>, shape: Btio) -> Result<(), BenchError> {
    let sides = vec![Side::ServerDirected, Side::Atomic];
    let setting = Setting { sides, is_counted: false, ..named(play, "atomic", Spec::Btio(shape)) };
    let takes = play.scene(&setting, &[ATOMIC, ATOMIC_READ])?;
    let waits = |take: &Take| {
        let passes = take.write.iter().chain(&take.read);
        show::number(passes.map(|pass| pass.count("locks")).sum())
    };
    let waits: Vec<f64> = takes.of(Side::Atomic).iter().map(waits).collect();
    if waits.is_empty() {
        return Ok(());
    }
    let note = "locks that any process had to ask for and wait for, atomic, written and read";
    play.add("lock_waits", Figure::of(&waits, "locks"), Goal::AtMost(0.0), note);
    Ok(())
}

/// A scene of ranks that write, and compute in between.
fn busy(play: &Play<'_>, word: &str, shape: Btio) -> Setting {
    let sides = vec![
        Side::Memory,
        Side::Pwrite,
        Side::TwoPhasePlain,
        Side::TwoPhase,
        Side::ClientDirected,
        Side::ServerDirected,
    ];
    Setting {
        sides,
        directions: Directions::Write,
        is_counted: false,
        ..named(play, word, Spec::Btio(shape))
    }
}

fn hidden(play: &mut Play<'_>, scene: &Scene<'_>) -> Result<(), BenchError> {
    let rounds = play.stage.hide(scene, Side::ServerDirected)?;
    let of = |number: fn(&Hidden) -> f64| -> Vec<f64> { rounds.iter().map(number).collect() };
    let note = "1 − (T(I/O + compute) − T(compute)) / T(I/O), open to close, server-directed, computing as long as staging";
    play.add("staging_hidden", Figure::of(&of(Hidden::share), "share"), Goal::AtLeast(0.9), note);
    let note = "time computing beside I/O, against computing alone";
    play.add("compute_slowdown", Figure::of(&of(Hidden::slowdown), "ratio"), Goal::None, note);
    Ok(())
}
