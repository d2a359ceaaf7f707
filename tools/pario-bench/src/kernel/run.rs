//! Runs a kernel's scenarios one after the other, each on a partition with its own settings, and collects the results.

use std::net::Ipv4Addr;

use pario::core::Size;
use pario::group::NODE_VARIABLE;
use pario::partition::Key;
use serde_json::{Value, json};

use super::super::error::BenchError;
use super::super::figures::{Figure, Figures, Goal};
use super::super::machine::Machine;
use super::super::progress::BenchProgress;
use super::super::report::BenchReport;
use super::super::testbed::Testbed;
use super::KernelReport;
use super::picture::Bars;
use super::plan::KernelPlan;
use super::scenario::{KernelFixture, KernelSamples, KernelScenario, ScenarioDirections};
use super::shapes::ShapeSpec;
use super::show::{self, Ratio};
use super::side::KernelSide;

/// Name of the partition.
const PARTITION: &str = "kernel";

/// See the module.
pub(super) struct KernelRun<'a> {
    pub(super) plan: &'a KernelPlan,
    pub(super) fixture: KernelFixture,
    machine: Machine,
    /// Comparisons and counts.
    pub(super) figures: Figures,
    /// Speeds of every side.
    speeds: Figures,
    tables: Vec<String>,
    bars: Vec<Bars>,
    scenes: Vec<Value>,
}

/// Settings of one scenario that differ from the plan.
#[derive(Clone, Debug)]
pub(super) struct ScenarioSettings {
    pub(super) title: String,
    /// Prefix of figure names.
    pub(super) prefix: String,
    pub(super) spec: ShapeSpec,
    pub(super) sides: Vec<KernelSide>,
    pub(super) directions: ScenarioDirections,
    pub(super) procs: u64,
    pub(super) servers: usize,
    pub(super) outbox: Option<Size>,
    /// Limit of all stores together, in bytes per second.
    pub(super) limit: Option<u64>,
    pub(super) compute_ms: Option<f64>,
    /// Node label of the processes, if different from the servers'.
    pub(super) node: Option<&'static str>,
    /// Hosts of processes and servers, if two.
    pub(super) apart: Option<Apart>,
    /// Whether its messages are counted in figures.
    pub(super) is_counted: bool,
    /// Writing passes; 0: until an outbox that holds all data was filled twice.
    pub(super) passes: usize,
}

/// Two hosts: one with the processes, the other with the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Apart {
    /// Process that holds the namespaces of the ranks.
    pub(super) ranks: u32,
    /// Process that holds the namespaces of the servers.
    pub(super) servers: u32,
    /// Address of the servers.
    pub(super) address: Ipv4Addr,
}

impl Apart {
    /// Launch command that starts servers on their host, without shared memory with other processes.
    fn launch(self) -> (Key, String) {
        let Apart { servers, .. } = self;
        let command = format!("nsenter --target {servers} --net -- env {NODE_VARIABLE}={{host}} {{command}}");
        (Key::Launch, command)
    }
}

impl<'a> KernelRun<'a> {
    pub(super) fn new(plan: &'a KernelPlan) -> Result<KernelRun<'a>, BenchError> {
        let ground = Testbed::new(plan.dir.as_deref())?;
        let machine = Machine::here(ground.dir());
        let stage = KernelFixture {
            testbed: ground,
            progress: BenchProgress::new(),
            rounds: plan.rounds,
            backed: plan.backed,
        };
        let (figures, speeds) = (Figures::default(), Figures::default());
        let (tables, bars, scenes) = (Vec::new(), Vec::new(), Vec::new());
        Ok(KernelRun { plan, fixture: stage, machine, figures, speeds, tables, bars, scenes })
    }

    /// A scenario with all methods, as in the plan.
    pub(super) fn setting(&self, title: impl Into<String>, spec: ShapeSpec) -> ScenarioSettings {
        ScenarioSettings {
            title: title.into(),
            prefix: String::new(),
            spec,
            sides: KernelSide::collective(),
            directions: ScenarioDirections::Both,
            procs: self.plan.procs,
            servers: self.plan.servers,
            outbox: None,
            limit: self.plan.store_limit,
            compute_ms: self.plan.compute_ms,
            node: None,
            apart: None,
            is_counted: true,
            passes: 2,
        }
    }

    /// Runs a scenario on a partition of its own and keeps the results.
    pub(super) fn run_scenario(
        &mut self,
        setting: &ScenarioSettings,
        ratios: &[Ratio],
    ) -> Result<KernelSamples, BenchError> {
        self.run_scenario_and(setting, ratios, |_, _| Ok(()))
    }

    /// The same, then calls `more` on the same partition.
    pub(super) fn run_scenario_and(
        &mut self,
        setting: &ScenarioSettings,
        ratios: &[Ratio],
        more: impl FnOnce(&mut Self, &KernelScenario<'_>) -> Result<(), BenchError>,
    ) -> Result<KernelSamples, BenchError> {
        let asked = |side: &KernelSide| self.plan.sides.is_empty() || self.plan.sides.contains(side);
        let sides: Vec<KernelSide> = setting.sides.iter().copied().filter(asked).collect();
        let mut options = self.plan.options(setting.servers, setting.outbox, setting.limit);
        options.extend(setting.apart.map(|apart| apart.launch()));
        let host = setting.apart.map(|apart| apart.address);
        let up = self.fixture.testbed.up_on(host, PARTITION, setting.servers, &options)?;
        let settings = &up.entry.settings;
        let scene = KernelScenario {
            title: title(setting, settings.cache.outbox),
            spec: setting.spec.clone(),
            ranks: setting.procs,
            partition: PARTITION,
            sides,
            directions: setting.directions,
            passes: passes(setting, settings.cache.outbox),
            compute_ms: setting.compute_ms,
            limit_bytes_s: setting.limit,
            node: setting.node,
            holder: setting.apart.map(|apart| apart.ranks),
            outbox_bytes: settings.cache.outbox.0,
        };
        let takes = self.fixture.run(&scene)?;
        self.scenes.push(json!({
            "title": setting.title,
            "figures": setting.prefix,
            "shape": scene.spec,
            "procs": setting.procs,
            "servers": setting.servers,
            "data_bytes": scene.data_bytes(),
            "outbox_bytes": settings.cache.outbox.0,
            "server_cache_bytes": settings.cache.server.0,
            "stripe_bytes": settings.stripe.0,
            "store_limit_bytes_per_s": setting.limit,
            "compute_ms": scene.compute_ms,
            "passes": scene.passes,
            "sides": scene.sides.iter().map(|side| side.word()).collect::<Vec<_>>(),
        }));
        self.keep(setting, &scene, &takes, ratios);
        more(self, &scene)?;
        self.fixture.testbed.down(PARTITION)?;
        Ok(takes)
    }

    fn keep(
        &mut self,
        setting: &ScenarioSettings,
        scene: &KernelScenario<'_>,
        takes: &KernelSamples,
        ratios: &[Ratio],
    ) {
        let ratios: Vec<Ratio> = if self.plan.is_promised() {
            ratios.to_vec()
        } else {
            ratios.iter().map(|ratio| ratio.without_goal()).collect()
        };
        show::add_ratios(&mut self.figures, takes, &ratios, &setting.prefix);
        if setting.is_counted {
            show::add_counts(&mut self.figures, takes, setting.procs, &setting.prefix);
        }
        show::add_speeds(&mut self.speeds, takes, scene, &setting.prefix);
        self.bars.extend(Bars::of(&self.speeds, &setting.prefix, &scene.sides));
        self.tables.push(show::table(scene, takes));
    }

    /// Adds a figure, with its goal if the plan is the published one.
    pub(super) fn add(&mut self, name: impl Into<String>, figure: Figure, goal: Goal, note: &str) {
        let goal = if self.plan.is_promised() { goal } else { Goal::None };
        self.figures.add(name, figure, goal, note);
    }

    /// A line of text among the tables.
    pub(super) fn add_line(&mut self, text: &str) {
        self.tables.push(format!("{text}\n"));
    }

    /// Takes everything down and reports.
    pub(super) fn end(self) -> Result<KernelReport, BenchError> {
        let KernelRun { plan, fixture: stage, machine, figures, speeds, tables, bars, scenes } = self;
        let title = format!(
            "pario bench {}: {} processes, {} servers, {} rounds, all sides in turn",
            plan.kernel.word(),
            plan.procs,
            plan.servers,
            plan.rounds
        );
        let comparisons: serde_json::Map<String, Value> =
            figures.rows().iter().map(|row| (row.name.clone(), row.note.clone().into())).collect();
        let settings = json!({
            "kernel": plan.kernel.word(),
            "pairs": plan.rounds,
            "procs": plan.procs,
            "servers": plan.servers,
            "backed_memory": plan.backed,
            "dir": stage.testbed.dir().parent(),
            "scenes": scenes,
            "comparisons": comparisons,
        });
        let foot = foot(plan, &figures);
        stage.testbed.end()?;
        let report = BenchReport { title, figures, machine, settings };
        Ok(KernelReport { report, speeds, tables: tables.join("\n"), bars, foot })
    }
}

/// Notes on the figures, and why there are none, a line each.
fn foot(plan: &KernelPlan, figures: &Figures) -> String {
    let memory = if plan.backed {
        "memory: before each pass, of every side, as much free memory was touched as it may use"
    } else {
        "memory: as the host left it; first touches of what it had not backed hit any side"
    };
    let mut lines = vec![memory.to_owned()];
    if !plan.sides.is_empty() && !figures.rows().iter().any(|row| row.figure.unit == "ratio") {
        let words: Vec<&str> = plan.sides.iter().map(|side| side.word()).collect();
        lines.push(format!(
            "nothing to compare: no figure has both of its sides among --sides {}",
            words.join(",")
        ));
    }
    lines.join("\n")
}

/// Title of a scenario, in one line.
fn title(setting: &ScenarioSettings, outbox: Size) -> String {
    let data = Size(setting.spec.data_bytes(setting.procs)).rounded();
    let compute =
        setting.compute_ms.map_or(String::new(), |ms| format!(", {ms} ms of computing before each"));
    format!(
        "{}: {data} in {} steps by {} processes, outboxes of {outbox}{compute}",
        setting.title,
        setting.spec.steps(),
        setting.procs
    )
}

/// Passes until every page of an outbox was written at least once.
fn passes(setting: &ScenarioSettings, outbox: Size) -> usize {
    if 0 < setting.passes {
        return setting.passes;
    }
    let rank_bytes = setting.spec.data_bytes(setting.procs) / setting.procs;
    usize::try_from(1 + (2 * outbox.0).div_ceil(rank_bytes.max(1))).unwrap_or(2).clamp(2, 64)
}
