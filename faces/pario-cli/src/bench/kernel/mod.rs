//! `pario bench KERNEL`: the access patterns of parallel programs, by every method side by side, against plain files and memory.
//!
//! ```text
//!  plan ─► play: scenes, each on a partition of its own ─► stage: rounds of sides ─► crew: processes ─► rank: shape, target
//!                                                             figures, tables ◄─ show ◄─ takes
//! ```
//! Always: all sides of a scene run in turn in one run, on one partition, with the same data; each is verified byte by byte once.

mod btio;
mod crew;
mod data;
mod picture;
mod plain;
mod plan;
mod play;
mod programme;
pub(crate) mod rank;
mod scene;
mod shapes;
mod show;
mod side;
mod stencil;
mod tally;
mod target;

use std::path::Path;

use super::error::BenchError;
use super::figures::Figures;
use super::report::Report;

pub(crate) use plan::{Kernel, Only, Plan};
pub(crate) use shapes::{Class, Flash, Tile};
pub(crate) use side::Side;

/// What a kernel showed.
#[derive(Debug)]
pub(crate) struct KernelReport {
    /// Comparisons and counts.
    report: Report,
    /// Speeds of every side.
    speeds: Figures,
    tables: String,
    bars: Vec<picture::Bars>,
    /// What they must be read with.
    foot: String,
}

impl KernelReport {
    /// Draws the speeds of every side into a file.
    pub(crate) fn plot(&self, path: &Path) -> Result<(), BenchError> {
        let text = picture::svg(&self.report.title, &self.bars);
        std::fs::write(path, text).map_err(BenchError::at("writing", path))
    }

    /// Tables for people.
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

/// Runs a kernel; its plan must have been checked.
pub(crate) fn run(plan: &Plan) -> Result<KernelReport, BenchError> {
    if matches!(plan.only, Some(Only::Hosts { .. })) {
        super::sliding::hosts::own_network()?;
    }
    programme::run(plan)
}
