//! A kernel's play: its scenes one after the other, each on a partition of its own settings, and what they show.

use std::net::Ipv4Addr;

use pario::core::Size;
use pario::group::NODE_VARIABLE;
use pario::partition::Key;
use serde_json::{Value, json};

use super::super::error::BenchError;
use super::super::figures::{Figure, Figures, Goal};
use super::super::ground::Ground;
use super::super::machine::Machine;
use super::super::progress::Progress;
use super::super::report::Report;
use super::KernelReport;
use super::picture::Bars;
use super::plan::Plan;
use super::scene::{Directions, Scene, Stage, Takes};
use super::shapes::Spec;
use super::show::{self, Ratio};
use super::side::Side;

/// Name of the partition that scenes are played on.
const PARTITION: &str = "kernel";

/// See the module.
pub(super) struct Play<'a> {
    pub(super) plan: &'a Plan,
    pub(super) stage: Stage,
    machine: Machine,
    /// Comparisons and counts.
    pub(super) figures: Figures,
    /// Speeds of every side.
    speeds: Figures,
    tables: Vec<String>,
    bars: Vec<Bars>,
    scenes: Vec<Value>,
}

/// How one scene differs from the plan.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) title: String,
    /// Before the names of figures.
    pub(super) prefix: String,
    pub(super) spec: Spec,
    pub(super) sides: Vec<Side>,
    pub(super) directions: Directions,
    pub(super) procs: u64,
    pub(super) servers: usize,
    pub(super) outbox: Option<Size>,
    /// What all stores together get through in a second.
    pub(super) limit: Option<u64>,
    pub(super) compute_ms: Option<f64>,
    /// The node that the processes play, if another than the servers'.
    pub(super) node: Option<&'static str>,
    /// The hosts of processes and servers, if they are two.
    pub(super) apart: Option<Apart>,
    /// Whether what it sends is worth figures.
    pub(super) is_counted: bool,
    /// Writing passes; 0: as many as it takes until an outbox that holds all data was filled twice.
    pub(super) passes: usize,
}

/// Two hosts: one has the processes, the other the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Apart {
    /// Who holds the namespaces of the processes.
    pub(super) ranks: u32,
    /// Who holds those of the servers.
    pub(super) servers: u32,
    /// Where the servers are reached.
    pub(super) address: Ipv4Addr,
}

impl Apart {
    /// How servers get onto their host, where they share memory with nobody else.
    fn launch(self) -> (Key, String) {
        let Apart { servers, .. } = self;
        let command = format!("nsenter --target {servers} --net -- env {NODE_VARIABLE}={{host}} {{command}}");
        (Key::Launch, command)
    }
}

impl<'a> Play<'a> {
    pub(super) fn new(plan: &'a Plan) -> Result<Play<'a>, BenchError> {
        let ground = Ground::new(plan.dir.as_deref())?;
        let machine = Machine::here(ground.dir());
        let stage = Stage { ground, progress: Progress::new(), rounds: plan.rounds, backed: plan.backed };
        let (figures, speeds) = (Figures::default(), Figures::default());
        let (tables, bars, scenes) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Play { plan, stage, machine, figures, speeds, tables, bars, scenes })
    }

    /// A scene with all methods, as the plan has it.
    pub(super) fn setting(&self, title: impl Into<String>, spec: Spec) -> Setting {
        Setting {
            title: title.into(),
            prefix: String::new(),
            spec,
            sides: Side::collective(),
            directions: Directions::Both,
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

    /// Plays a scene on a partition of its own and keeps what it shows.
    pub(super) fn scene(&mut self, setting: &Setting, ratios: &[Ratio]) -> Result<Takes, BenchError> {
        self.scene_and(setting, ratios, |_, _| Ok(()))
    }

    /// The same, and something more on the same partition.
    pub(super) fn scene_and(
        &mut self,
        setting: &Setting,
        ratios: &[Ratio],
        more: impl FnOnce(&mut Self, &Scene<'_>) -> Result<(), BenchError>,
    ) -> Result<Takes, BenchError> {
        let asked = |side: &Side| self.plan.sides.is_empty() || self.plan.sides.contains(side);
        let sides: Vec<Side> = setting.sides.iter().copied().filter(asked).collect();
        let mut options = self.plan.options(setting.servers, setting.outbox, setting.limit);
        options.extend(setting.apart.map(|apart| apart.launch()));
        let host = setting.apart.map(|apart| apart.address);
        let up = self.stage.ground.up_on(host, PARTITION, setting.servers, &options)?;
        let settings = &up.entry.settings;
        let scene = Scene {
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
        let takes = self.stage.play(&scene)?;
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
        self.stage.ground.down(PARTITION)?;
        Ok(takes)
    }

    fn keep(&mut self, setting: &Setting, scene: &Scene<'_>, takes: &Takes, ratios: &[Ratio]) {
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

    /// Adds a figure, with its goal if the plan is the one that it is promised for.
    pub(super) fn add(&mut self, name: impl Into<String>, figure: Figure, goal: Goal, note: &str) {
        let goal = if self.plan.is_promised() { goal } else { Goal::None };
        self.figures.add(name, figure, goal, note);
    }

    /// A line of words among the tables.
    pub(super) fn say(&mut self, text: &str) {
        self.tables.push(format!("{text}\n"));
    }

    /// Takes everything down and reports.
    pub(super) fn end(self) -> Result<KernelReport, BenchError> {
        let Play { plan, stage, machine, figures, speeds, tables, bars, scenes } = self;
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
            "dir": stage.ground.dir().parent(),
            "scenes": scenes,
            "comparisons": comparisons,
        });
        let foot = foot(plan, &figures);
        stage.ground.end()?;
        let report = Report { title, figures, machine, settings };
        Ok(KernelReport { report, speeds, tables: tables.join("\n"), bars, foot })
    }
}

/// What figures must be read with, and why there are none, in a line each.
fn foot(plan: &Plan, figures: &Figures) -> String {
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

/// What is run, in a line.
fn title(setting: &Setting, outbox: Size) -> String {
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
fn passes(setting: &Setting, outbox: Size) -> usize {
    if 0 < setting.passes {
        return setting.passes;
    }
    let rank_bytes = setting.spec.data_bytes(setting.procs) / setting.procs;
    usize::try_from(1 + (2 * outbox.0).div_ceil(rank_bytes.max(1))).unwrap_or(2).clamp(2, 64)
}
