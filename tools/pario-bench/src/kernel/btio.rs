//! The scenarios of `btio`: base, data that fits into outboxes, short runs, computing, slow stores.

use pario::core::Size;

use super::super::error::BenchError;
use super::super::figures::{Figure, Goal};
use super::super::sliding::hosts::BenchHosts;
use super::plan::{KernelPlan, Only, SHORT_RUN_BYTES};
use super::programme::{COMMON, WRITE_VS_MEMORY, WRITE_VS_TWO_PHASE, named, shapes};
use super::run::{Apart, KernelRun, ScenarioSettings};
use super::scenario::{Hidden, KernelSample, KernelScenario, ScenarioDirections};
use super::shapes::{Btio, CELL_BYTES, ShapeSpec};
use super::show::{self, Ratio, TimeKind};
use super::side::KernelSide;

/// Computing between dumps where a figure includes it.
const COMPUTE_MS: f64 = 8.0;
/// Share of a node in a shared file system, in bytes per second.
const STORE_LIMIT: u64 = 500_000_000;
/// Outboxes for programs that write in bursts and then compute.
const LARGE_OUTBOX: Size = Size(64 << 20);
/// Dumps with data that fits into an outbox.
const FEW_DUMPS: u64 = 5;
/// Dumps over a slow link, within the capacity of the node caches.
const HOSTS_DUMPS: u64 = 10;
/// Goals of the common figures, in their order.
const COMMON_GOALS: [f64; 6] = [3.0, 1.2, 0.85, 0.8, 1.2, 2.0];

const SHORT_RUNS: Ratio =
    Ratio::new("total_vs_pwrite_240", KernelSide::Pwrite, TimeKind::Total).at_least(5.0).bare();
const LIMITED: Ratio =
    Ratio::new("limited_write_vs_two_phase", KernelSide::TwoPhasePlain, TimeKind::Write).at_least(5.0).bare();

/// Between hosts; two-phase writes the partition's objects, since the hosts share no file system.
const HOSTS: [Ratio; 3] = [
    Ratio::new("write_vs_two_phase", KernelSide::TwoPhase, TimeKind::Write)
        .of(KernelSide::ClientDirected)
        .at_least(2.0),
    Ratio::new("total_vs_two_phase", KernelSide::TwoPhase, TimeKind::Total).at_least(1.0),
    Ratio::new("client_directed_total_vs_two_phase", KernelSide::TwoPhase, TimeKind::Total)
        .of(KernelSide::ClientDirected),
];

const ATOMIC: Ratio = Ratio::new("atomic_vs_non_atomic", KernelSide::ServerDirected, TimeKind::Total)
    .of(KernelSide::Atomic)
    .at_least(0.95)
    .bare();
const ATOMIC_READ: Ratio =
    Ratio::new("atomic_read_vs_non_atomic", KernelSide::ServerDirected, TimeKind::Read)
        .of(KernelSide::Atomic)
        .bare();

/// Runs all scenarios, or only the requested one.
pub(super) fn btio(play: &mut KernelRun<'_>, run_bytes: Option<u64>) -> Result<(), BenchError> {
    let KernelPlan { compute_ms, store_limit, .. } = *play.plan;
    let (_, spec) = shapes(play.plan)?.remove(0);
    let ShapeSpec::Btio(shape) = spec else { return Ok(()) };
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

fn base(play: &mut KernelRun<'_>, shape: Btio, run_bytes: Option<u64>) -> Result<(), BenchError> {
    let goals = COMMON.iter().zip(COMMON_GOALS);
    let mut ratios: Vec<Ratio> = goals.map(|(ratio, goal)| ratio.at_least(goal)).collect();
    if run_bytes.is_some() {
        ratios.push(WRITE_VS_MEMORY);
    }
    if run_bytes == Some(SHORT_RUN_BYTES) {
        ratios[0] = SHORT_RUNS;
    }
    let setting = named(play, "", ShapeSpec::Btio(shape));
    play.run_scenario(&setting, &ratios).map(|_| ())
}

/// `write_vs_memory`: the data fits into the outboxes, with all their pages touched before.
fn within_outboxes(play: &mut KernelRun<'_>, shape: Btio) -> Result<(), BenchError> {
    let few = ShapeSpec::Btio(Btio { dumps: FEW_DUMPS.min(shape.dumps), ..shape });
    let rank_bytes = few.data_bytes(play.plan.procs) / play.plan.procs;
    // Records have headers, and a record does not wrap around the end.
    let outbox = (rank_bytes + rank_bytes / 4).next_power_of_two().max(8 << 20);
    let setting = ScenarioSettings {
        sides: vec![KernelSide::Memory, KernelSide::ServerDirected],
        directions: ScenarioDirections::Write,
        outbox: Some(Size(outbox)),
        is_counted: false,
        passes: 0,
        ..named(play, "outbox", few)
    };
    play.run_scenario(&setting, &[WRITE_VS_MEMORY.at_least(0.66).bare()]).map(|_| ())
}

fn short_runs(play: &mut KernelRun<'_>, shape: Btio) -> Result<(), BenchError> {
    let short = ShapeSpec::Btio(Btio { run_cells: Some(SHORT_RUN_BYTES / CELL_BYTES), ..shape });
    if let Err(error) = short.check(play.plan.procs) {
        play.add_line(&format!("not played: short runs ({error})"));
        return Ok(());
    }
    let sides = vec![
        KernelSide::Memory,
        KernelSide::Pwrite,
        KernelSide::TwoPhasePlain,
        KernelSide::TwoPhase,
        KernelSide::ServerDirected,
    ];
    let setting = ScenarioSettings { sides, is_counted: false, ..named(play, "short", short) };
    play.run_scenario(&setting, &[SHORT_RUNS]).map(|_| ())
}

/// `write_vs_two_phase`: time inside write calls while ranks compute between dumps.
fn computing(play: &mut KernelRun<'_>, shape: Btio, ms: f64) -> Result<(), BenchError> {
    let setting = ScenarioSettings { compute_ms: Some(ms), ..busy(play, "compute", shape) };
    play.run_scenario(&setting, &[WRITE_VS_TWO_PHASE.at_least(2.0).bare()]).map(|_| ())
}

/// `limited_write_vs_two_phase`, `staging_hidden`, `compute_slowdown`: stores limited to a node's share of a shared file system.
fn limited(play: &mut KernelRun<'_>, shape: Btio, limit: u64, ms: f64) -> Result<(), BenchError> {
    let setting = ScenarioSettings {
        compute_ms: Some(ms),
        limit: Some(limit),
        outbox: Some(LARGE_OUTBOX),
        ..busy(play, "limited", shape)
    };
    play.run_scenario_and(&setting, &[LIMITED], hidden).map(|_| ())
}

/// `messages_between_nodes`: ranks share no memory with the servers.
fn apart(play: &mut KernelRun<'_>, shape: Btio) -> Result<(), BenchError> {
    let few = Btio { dumps: FEW_DUMPS.min(shape.dumps), ..shape };
    let setting = ScenarioSettings {
        sides: vec![KernelSide::ServerDirected],
        directions: ScenarioDirections::Write,
        node: Some("apart"),
        is_counted: false,
        ..named(play, "apart", ShapeSpec::Btio(few))
    };
    let takes = play.run_scenario(&setting, &[])?;
    let each = show::steady_messages(&takes, play.plan.servers as u64);
    if !each.is_empty() {
        let note = "sent by a process to a server inside a server-directed write call, in the second half of the steps, when they share no memory; warm";
        play.add("messages_between_nodes", Figure::of(&each, "messages"), Goal::AtMost(1.0), note);
    }
    Ok(())
}

/// `write_vs_two_phase`, client-directed, and `total_vs_two_phase`, server-directed: processes on one host, servers on another.
fn hosts(play: &mut KernelRun<'_>, shape: Btio, link_bits_s: u64) -> Result<(), BenchError> {
    let hosts = BenchHosts::bare(2, link_bits_s, play.fixture.testbed.dir())?;
    let apart = Apart { ranks: hosts.holder(0), servers: hosts.holder(1), address: hosts.address(1) };
    let few = Btio { dumps: HOSTS_DUMPS.min(shape.dumps), ..shape };
    play.add_line(&format!(
        "{} processes on one host, {} servers on another, {} Mbit/s in between",
        play.plan.procs,
        play.plan.servers,
        link_bits_s / 1_000_000
    ));
    let setting = ScenarioSettings {
        sides: vec![
            KernelSide::Memory,
            KernelSide::TwoPhase,
            KernelSide::ClientDirected,
            KernelSide::ServerDirected,
        ],
        directions: ScenarioDirections::Write,
        node: Some("ranks"),
        apart: Some(apart),
        is_counted: false,
        ..named(play, "", ShapeSpec::Btio(few))
    };
    play.run_scenario(&setting, &HOSTS).map(|_| ())
}

/// `atomic_vs_non_atomic`, `lock_waits`: ranks share no byte, so atomic mode finds no conflicts.
fn atomic(play: &mut KernelRun<'_>, shape: Btio) -> Result<(), BenchError> {
    let sides = vec![KernelSide::ServerDirected, KernelSide::Atomic];
    let setting =
        ScenarioSettings { sides, is_counted: false, ..named(play, "atomic", ShapeSpec::Btio(shape)) };
    let takes = play.run_scenario(&setting, &[ATOMIC, ATOMIC_READ])?;
    let waits = |take: &KernelSample| {
        let passes = take.write.iter().chain(&take.read);
        show::number(passes.map(|pass| pass.count("locks")).sum())
    };
    let waits: Vec<f64> = takes.of(KernelSide::Atomic).iter().map(waits).collect();
    if waits.is_empty() {
        return Ok(());
    }
    let note = "locks that any process had to ask for and wait for, atomic, written and read";
    play.add("lock_waits", Figure::of(&waits, "locks"), Goal::AtMost(0.0), note);
    Ok(())
}

/// A scenario of ranks that write, and compute in between.
fn busy(play: &KernelRun<'_>, word: &str, shape: Btio) -> ScenarioSettings {
    let sides = vec![
        KernelSide::Memory,
        KernelSide::Pwrite,
        KernelSide::TwoPhasePlain,
        KernelSide::TwoPhase,
        KernelSide::ClientDirected,
        KernelSide::ServerDirected,
    ];
    ScenarioSettings {
        sides,
        directions: ScenarioDirections::Write,
        is_counted: false,
        ..named(play, word, ShapeSpec::Btio(shape))
    }
}

fn hidden(play: &mut KernelRun<'_>, scene: &KernelScenario<'_>) -> Result<(), BenchError> {
    let rounds = play.fixture.hide(scene, KernelSide::ServerDirected)?;
    let of = |number: fn(&Hidden) -> f64| -> Vec<f64> { rounds.iter().map(number).collect() };
    let note = "1 − (T(I/O + compute) − T(compute)) / T(I/O), open to close, server-directed, computing as long as staging";
    play.add("staging_hidden", Figure::of(&of(Hidden::share), "share"), Goal::AtLeast(0.9), note);
    let note = "time computing beside I/O, against computing alone";
    play.add("compute_slowdown", Figure::of(&of(Hidden::slowdown), "ratio"), Goal::None, note);
    Ok(())
}
