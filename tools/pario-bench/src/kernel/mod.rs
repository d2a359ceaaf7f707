//! `pario bench KERNEL`: the access patterns of parallel programs, by every method, against plain files and memory.
//!
//! ```text
//!  plan ─► play: scenarios, each with its own partition ─► testbed: sides alternate ─► workers: processes ─► rank: shape, target
//!                                                             figures, tables ◄─ show ◄─ samples
//! ```
//! Always: all sides of a scenario alternate in one run, on one partition, with the same data; each is verified byte by byte once.

mod btio;
pub(crate) mod data;
mod picture;
mod plain;
mod plan;
mod programme;
pub(crate) mod rank;
mod run;
mod scenario;
pub(crate) mod shapes;
mod show;
mod side;
pub(crate) mod stencil;
mod tally;
mod target;
pub(crate) mod workers;

use std::path::Path;

use super::error::BenchError;
use super::figures::Figures;
use super::report::BenchReport;

pub(crate) use plan::{KernelKind, KernelPlan, Only};
pub(crate) use shapes::{BtioClass, Flash, Tile};
pub(crate) use side::KernelSide;

/// Result of a kernel.
#[derive(Debug)]
pub(crate) struct KernelReport {
    /// Comparisons and counts.
    report: BenchReport,
    /// Speeds of every side.
    speeds: Figures,
    tables: String,
    bars: Vec<picture::Bars>,
    /// Notes on the figures.
    foot: String,
}

impl KernelReport {
    /// Draws the speeds of every side into a file.
    pub(crate) fn plot(&self, path: &Path) -> Result<(), BenchError> {
        let text = picture::svg(&self.report.title, &self.bars);
        std::fs::write(path, text).map_err(BenchError::at("writing", path))
    }

    /// As tables.
    pub(crate) fn table(&self) -> String {
        format!("{}\n{}\n{}\n", self.tables, self.report.table(), self.foot)
    }

    /// One JSON object.
    pub(crate) fn json(mut self) -> String {
        for row in self.speeds.rows() {
            self.report.figures.add(row.name.clone(), row.figure.clone(), row.goal, "");
        }
        self.report.json()
    }
}

/// Runs a kernel; its plan must be checked.
pub(crate) fn run(plan: &KernelPlan) -> Result<KernelReport, BenchError> {
    if matches!(plan.only, Some(Only::Hosts { .. })) {
        super::sliding::hosts::own_network()?;
    }
    programme::run(plan)
}
