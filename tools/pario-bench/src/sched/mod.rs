//! `pario bench sched`: the effect of the I/O scheduler's policies on several concurrent applications.
//!
//! ```text
//!  SchedPlan ─► headline (mlf against fifo, model against paper: figures with goals, every seed)
//!           └─► sweeps (every policy: tables, first seed) ─► plots (SVG)
//!                 └─► runs ─► model::World, with judged::Judged between its clients and its disk
//! ```
//! The first ground is a modelled disk in virtual time: no time is measured, and one seed gives one result on every machine. The
//! second is real servers and processes on a slowed store (`real`); its figures carry `real_` in their names, or count what only it has.
//!
//! Never: touches a partition of the user, or a disk except for requested plots and the real testbed.

mod headline;
mod judged;
mod model;
mod plots;
pub(crate) mod real;
mod runs;
mod sweeps;
mod table;
mod workloads;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::error::BenchError;
use super::figures::Figures;
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;
use sweeps::Tables;

/// The default first seed. Settings were tuned on seeds below 100, which figures must not use.
pub(crate) const SEED_DEFAULT: u64 = 101;
/// Default number of seeds per figure.
pub(crate) const SEEDS_DEFAULT: usize = 9;
/// Seeds of `--quick`.
pub(crate) const SEEDS_QUICK: usize = 3;
/// Seeds at most.
pub(crate) const SEEDS_MAX: usize = 1000;

/// Checked options of `bench sched`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SchedPlan {
    /// The first seed; the others follow.
    pub(crate) seed: u64,
    /// How many.
    pub(crate) seeds: usize,
    /// Policies of the tables; no tables if empty.
    pub(crate) policies: Vec<String>,
    /// Directory of the plots.
    pub(crate) plots: Option<PathBuf>,
    /// Testbeds.
    pub(crate) grounds: Grounds,
    /// Directory of the real testbed; the system's temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Pairs of runs on the real testbed.
    pub(crate) pairs: usize,
}

/// Testbeds of the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Grounds {
    /// A modelled disk in virtual time.
    Modelled,
    /// Servers and processes on a limited store.
    Real,
    /// One after the other.
    Both,
}

/// Figures and tables.
#[derive(Debug, Serialize)]
pub(crate) struct SchedReport {
    #[serde(flatten)]
    pub(crate) report: BenchReport,
    #[serde(serialize_with = "as_object", skip_serializing_if = "Vec::is_empty")]
    tables: Tables,
}

fn as_object<S: Serializer>(tables: &Tables, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(tables.iter().map(|(name, table)| (name, table)))
}

impl SchedReport {
    /// One JSON object.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("figures and tables are plain data")
    }

    /// Tables.
    pub(crate) fn table(&self) -> String {
        let tables: String = self.tables.iter().map(|(_, table)| table.text()).collect();
        self.report.table() + &tables
    }
}

/// All policies, `none`, and `mlf` with real aggregation.
pub(crate) fn policy_names() -> Vec<String> {
    let named = pario_sched::policy_names().into_iter().map(str::to_owned);
    let merging = format!("{}{}", headline::MLF, judged::VECTORED);
    std::iter::once(runs::NONE.to_owned()).chain(named).chain([merging]).collect()
}

/// Runs the benchmark.
pub(crate) fn run(plan: &SchedPlan) -> Result<SchedReport, BenchError> {
    let progress = BenchProgress::new();
    let seeds: Vec<u64> = (0..plan.seeds as u64).map(|number| plan.seed.wrapping_add(number)).collect();
    let mut figures = Figures::default();
    if plan.grounds != Grounds::Real {
        headline::add(&mut figures, &seeds, &progress);
    }
    if plan.grounds != Grounds::Modelled {
        let ground = Testbed::new(plan.dir.as_deref())?;
        real::add(&mut figures, &ground, plan.pairs, &progress)?;
        ground.end()?;
    }
    let mut tables = Tables::new();
    if !plan.policies.is_empty() && plan.grounds != Grounds::Real {
        tables = sweeps::all_tables(&plan.policies, plan.seed, &progress);
    }
    if let Some(dir) = &plan.plots {
        plots::draw(dir, &tables)?;
    }
    let title = match plan.grounds {
        Grounds::Modelled => {
            format!("pario bench sched: a modelled disk in virtual time, {} seeds", plan.seeds)
        }
        Grounds::Real => format!("pario bench sched: a slowed store, {} pairs of runs", plan.pairs),
        Grounds::Both => format!(
            "pario bench sched: a modelled disk in virtual time, {} seeds; a slowed store, {} pairs of runs",
            plan.seeds, plan.pairs
        ),
    };
    let settings = serde_json::json!({
        "ground": format!("{:?}", plan.grounds).to_lowercase(),
        "pairs": plan.pairs,
        "real_store_calls_per_s": real::STORE_CALLS_PER_S,
        "real_servers": real::SERVERS,
        "real_processes": 2 * real::PROCESSES,
        "real_piece_bytes": real::PIECE_BYTES,
        "disk": "57 MB/s, 9 ms",
        "request_bytes_max": model::Params::PAPER.request_max,
        "daemons": model::Params::PAPER.daemons,
        "elevator_depth": model::Params::PAPER.elevator.depth,
        "seed": plan.seed,
        "seeds": plan.seeds,
        "policies": plan.policies,
    });
    let machine = Machine::here(&std::env::temp_dir());
    Ok(SchedReport { report: BenchReport { title, figures, machine, settings }, tables })
}
