//! `pario bench team KERNEL`: threads that write one file together, against what threads do without Pario.
//!
//! ```text
//!  plan ─► kernel (micro, btio, images, strided, tuned, meeting): scenarios ─► scenario: sides alternate, a process each ─► job: threads
//!                                                                     figures, tables, bars ◄─ show ◄─ samples
//! ```
//! Always: all sides of a scenario alternate in one run, with the same data; each is verified byte by byte once, before the timed runs.

mod btio;
pub(crate) mod container;
mod images;
pub(crate) mod job;
pub(crate) mod meeting;
mod micro;
mod open;
mod pattern;
mod scenario;
mod show;
mod side;
mod strided;
mod tuned;

use std::path::{Path, PathBuf};

use pario::core::Size;
use serde_json::json;

pub(crate) use side::TeamSide;

use crate::error::BenchError;
use crate::figures::{Figure, Figures, Goal};
use crate::kernel::BtioClass;
use crate::machine::Machine;
use crate::progress::BenchProgress;
use crate::report::BenchReport;
use crate::testbed::Testbed;
use show::SpeedGroup;

/// Servers of the partition.
const SERVERS: usize = 4;
/// Name of the partition without a limit.
const PARTITION: &str = "team";

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum TeamKernel {
    /// Parts of equal size, by every way in which threads write
    Micro,
    /// Dumps of the NAS BT benchmark, by threads and by processes
    Btio,
    /// Files one after the other, each written by all threads, with computing between them
    Images,
    /// Pieces of 47,008 bytes in turn; opening a container of many entries
    Strided,
    /// Tuning at run time against every fixed choice; threads that go on before their bytes are written
    Tuned,
    /// An empty call against the barrier of the OpenMP runtime
    Meeting,
}

impl TeamKernel {
    fn word(self) -> &'static str {
        match self {
            TeamKernel::Micro => "micro",
            TeamKernel::Btio => "btio",
            TeamKernel::Images => "images",
            TeamKernel::Strided => "strided",
            TeamKernel::Tuned => "tuned",
            TeamKernel::Meeting => "meeting",
        }
    }
}

/// Checked options of `bench team`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TeamBenchPlan {
    /// Directory; the system's temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) kernel: TeamKernel,
    /// Pairs per figure.
    pub(crate) pairs: usize,
    pub(crate) quick: bool,
    /// Bytes that all threads write in a run; of `images`, of each file.
    pub(crate) size: Size,
    /// Numbers of threads of `micro`; those of the figures if empty.
    pub(crate) threads: Vec<u32>,
    /// Sizes of parts of `micro`; those of the figures if empty.
    pub(crate) parts: Vec<Size>,
    /// Whether every side syncs before it closes.
    pub(crate) sync: bool,
    /// Only these; all if empty.
    pub(crate) sides: Vec<TeamSide>,
    /// Of `btio`.
    pub(crate) class: BtioClass,
    /// Of `btio`.
    pub(crate) dumps: u64,
    /// Entries of the container of `strided`.
    pub(crate) entries: u64,
}

impl TeamBenchPlan {
    /// Whether the published figures apply to this plan.
    fn is_promised(&self) -> bool {
        !self.sync && self.threads.is_empty() && self.parts.is_empty()
    }
}

/// State of a run.
struct TeamBench<'a> {
    plan: &'a TeamBenchPlan,
    testbed: Testbed,
    progress: BenchProgress,
    figures: Figures,
    /// Speeds of every side.
    speeds: Figures,
    groups: Vec<SpeedGroup>,
    tables: Vec<String>,
    notes: Vec<String>,
}

impl TeamBench<'_> {
    /// Adds a figure, with its goal if the plan is the published one.
    fn add(&mut self, name: &str, figure: Figure, goal: Goal, note: impl Into<String>) {
        let goal = if self.plan.is_promised() { goal } else { Goal::None };
        self.figures.add(name, figure, goal, note);
    }

    /// A line below the tables.
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    /// The sides of a scenario that are wanted.
    fn wanted(&self, sides: &[TeamSide]) -> Vec<TeamSide> {
        let is_wanted = |side: &TeamSide| self.plan.sides.is_empty() || self.plan.sides.contains(side);
        sides.iter().copied().filter(is_wanted).collect()
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct TeamReport {
    report: BenchReport,
    speeds: Figures,
    groups: Vec<SpeedGroup>,
    tables: String,
    notes: Vec<String>,
}

impl TeamReport {
    /// Draws the speeds of all sides into a file.
    pub(crate) fn plot(&self, path: &Path) -> Result<(), BenchError> {
        let text = show::svg(&self.report.title, &self.groups);
        std::fs::write(path, text).map_err(BenchError::at("writing", path))
    }

    /// As tables.
    pub(crate) fn table(&self) -> String {
        let notes = self.notes.join("\n");
        format!("{}\n{}\n{notes}\n", self.tables, self.report.table())
    }

    /// One JSON object.
    pub(crate) fn json(mut self) -> String {
        for row in self.speeds.rows() {
            self.report.figures.add(row.name.clone(), row.figure.clone(), row.goal, "");
        }
        self.report.json()
    }
}

/// Runs the benchmark; its plan must be checked.
pub(crate) fn run(plan: &TeamBenchPlan) -> Result<TeamReport, BenchError> {
    let testbed = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(testbed.dir());
    let mut bench = TeamBench {
        plan,
        testbed,
        progress: BenchProgress::new(),
        figures: Figures::default(),
        speeds: Figures::default(),
        groups: Vec::new(),
        tables: Vec::new(),
        notes: Vec::new(),
    };
    match plan.kernel {
        TeamKernel::Micro => micro::bench(&mut bench)?,
        TeamKernel::Btio => btio::bench(&mut bench)?,
        TeamKernel::Images => images::bench(&mut bench)?,
        TeamKernel::Strided => strided::bench(&mut bench)?,
        TeamKernel::Tuned => tuned::bench(&mut bench)?,
        TeamKernel::Meeting => meeting::bench(&mut bench)?,
    }
    let TeamBench { testbed, figures, speeds, groups, tables, notes, .. } = bench;
    let sync = if plan.sync { ", synced before close" } else { "" };
    let title = format!(
        "pario bench team {}: {SERVERS} servers, {} pairs, all sides in turn{sync}",
        plan.kernel.word(),
        plan.pairs
    );
    let comparisons: serde_json::Map<String, serde_json::Value> =
        figures.rows().iter().map(|row| (row.name.clone(), row.note.clone().into())).collect();
    let settings = json!({
        "kernel": plan.kernel.word(),
        "pairs": plan.pairs,
        "bytes": plan.size.0,
        "servers": SERVERS,
        "sync": plan.sync,
        "dir": testbed.dir().parent(),
        "notes": notes,
        "comparisons": comparisons,
    });
    testbed.end()?;
    let report = BenchReport { title, figures, machine, settings };
    Ok(TeamReport { report, speeds, groups, tables: tables.join("\n"), notes })
}
