//! `pario bench sliding`: sliding windows, in which every process reads and changes data that the others have just changed;
//! through the file cache, with byte-range locks around every access, and without locks.
//!
//! ```text
//!  plan ─► scenario (processes, bytes) ─► sides alternate, each in fresh processes ─► check of the final contents ─► figures, plot
//!                   └─► one node: a plain file; several hosts: a file behind shaped links (hosts, remote)
//! ```
//! Always: all sides work on the same file, recreated equal before each; a wrong byte ends the benchmark.

pub(crate) mod hosts;
mod pattern;
mod remote;
mod scenario;
mod show;
mod side;
pub(crate) mod worker;

use std::path::{Path, PathBuf};

use pario::core::Size;

use self::scenario::{SlidingFixture, SlidingScenario};
use self::show::SlidingResults;
pub(crate) use self::side::SlidingSide;
use super::error::BenchError;
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;

/// Checked options of `bench sliding`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SlidingPlan {
    /// Directory; the system\'s temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Runs per figure and side.
    pub(crate) pairs: usize,
    /// Each is a scenario of its own, with each of the sizes.
    pub(crate) processes: Vec<u64>,
    /// Of the file.
    pub(crate) bytes: Vec<Size>,
    pub(crate) page: Size,
    pub(crate) rounds: u64,
    pub(crate) hosts: usize,
    /// Bits a second of each host's link.
    pub(crate) link_bits_s: u64,
    /// Memory of the cache on each node.
    pub(crate) cache: Size,
    /// Only these; all if empty.
    pub(crate) sides: Vec<SlidingSide>,
}

/// Most processes of a scenario.
pub(crate) const PROCESSES_MAX: u64 = 16;
/// Most hosts.
pub(crate) const HOSTS_MAX: usize = 16;

impl SlidingPlan {
    /// Checks the plan; the error is one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(odd) = self.processes.iter().find(|count| !(2..=PROCESSES_MAX).contains(*count)) {
            return Err(format!("--processes {odd}: from 2 to {PROCESSES_MAX}"));
        }
        if self.hosts == 0 || HOSTS_MAX < self.hosts {
            return Err(format!("--hosts {}: from 1 to {HOSTS_MAX}", self.hosts));
        }
        if let Some(few) = self.processes.iter().find(|count| **count < self.hosts as u64) {
            return Err(format!("--processes {few}: at least one on each of {} hosts", self.hosts));
        }
        let page = self.page.0;
        if !(4096..=64 << 20).contains(&page) || !page.is_multiple_of(4096) {
            return Err(format!("--page {}: a multiple of 4KiB, up to 64MiB", self.page));
        }
        let most = self.processes.iter().max().copied().unwrap_or(PROCESSES_MAX);
        if let Some(few) = self.bytes.iter().find(|bytes| bytes.0 < most * page) {
            return Err(format!(
                "--bytes {few}: at least a page of {} for each of {most} processes",
                self.page
            ));
        }
        if !(1..=1000).contains(&self.rounds) {
            return Err(format!("--rounds {}: from 1 to 1000", self.rounds));
        }
        if self.link_bits_s < 1_000_000 {
            return Err("--link: at least 1Mbit".to_owned());
        }
        Ok(())
    }

    /// Whether the published figures apply to this plan.
    fn is_promised(&self) -> bool {
        let far = self.hosts == 4 && self.link_bits_s == 1_000_000_000 && self.bytes == [Size(256_000_000)];
        let usual = self.processes == [4] || far && self.processes == [16];
        usual && self.page == Size(256 << 10) && (self.hosts == 1 || far)
    }
}

/// Result of the benchmark.
#[derive(Debug)]
pub(crate) struct SlidingReport {
    report: BenchReport,
    shown: SlidingResults,
}

impl SlidingReport {
    /// Draws the speeds of all sides into a file.
    pub(crate) fn plot(&self, path: &Path) -> Result<(), BenchError> {
        std::fs::write(path, self.shown.svg()).map_err(BenchError::at("writing", path))
    }

    /// As a table.
    pub(crate) fn table(&self) -> String {
        self.report.table()
    }

    /// One JSON object.
    pub(crate) fn json(&self) -> String {
        self.report.json()
    }
}

/// Runs the benchmark; its plan must be checked.
pub(crate) fn run(plan: &SlidingPlan) -> Result<SlidingReport, BenchError> {
    if 1 < plan.hosts {
        hosts::check_machine()?;
    }
    let ground = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let progress = BenchProgress::new();
    let mut shown = SlidingResults::new(plan);
    for processes in &plan.processes {
        for bytes in &plan.bytes {
            let scene = SlidingScenario::new(plan, *processes, *bytes);
            let stage = SlidingFixture::set(plan, &ground, &scene)?;
            let takes = stage.run(&scene, &progress)?;
            shown.add(&scene, &takes);
        }
    }
    let settings = shown.settings(plan, ground.dir().parent());
    ground.end()?;
    let report = BenchReport { title: title(plan, &shown), figures: shown.figures(), machine, settings };
    Ok(SlidingReport { report, shown })
}

fn title(plan: &SlidingPlan, shown: &SlidingResults) -> String {
    let list = |words: Vec<String>| words.join(", ");
    let processes = list(plan.processes.iter().map(ToString::to_string).collect());
    let bytes = list(plan.bytes.iter().map(|bytes| bytes.rounded()).collect());
    let below = match plan.hosts {
        1 => "Below all of them: a plain file of this machine, fcntl locks".to_owned(),
        hosts => format!(
            "{hosts} hosts, links of {} Mbit/s. Below all of them: a plain file of one more host, over the network (FUSE without a cache; \
             reads, writes and fcntl locks are round trips to its server)",
            plan.link_bits_s / 1_000_000
        ),
    };
    let missing = if shown.has_free_placement() || !plan.sides.is_empty() {
        ""
    } else {
        ". Placements but home: not supported"
    };
    format!(
        "pario bench sliding: {processes} processes, file of {bytes}, windows of two pages of {}, {} rounds per segment; cooperative cache of {} \
         per node (placement last-writer; home and first-touch beside it), range locks and unlocked access in turn, {} times. {below}{missing}",
        plan.page, plan.rounds, plan.cache, plan.pairs
    )
}
