//! `pario bench mpi`: one C program on the MPI library's own I/O and on Pario, in one run, on the same disk.
//!
//! Never: compares runs of different programs, sizes or ranks. Always: a time is the best of several rounds of one run, and what was read
//! back is what was written; how each side was set is printed.

mod figures;
mod run;

use std::path::PathBuf;

use serde_json::json;

use self::figures::{Figure, figures};
use self::run::{Ground, Run};
use super::BenchError;
use crate::table::Table;

const KERNELS: &str = include_str!("../../mpi/kernels.c");
/// The store of the limited runs, in bytes a second.
const LIMIT: f64 = 500e6;
/// Milliseconds of computing between dumps in limited runs.
const COMPUTE_MS: u32 = 200;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct MpiPlan {
    /// Where; by default the system's directory for temporary files.
    pub(crate) dir: Option<PathBuf>,
    /// Kernels by name.
    pub(crate) kernels: Vec<String>,
    /// Numbers of ranks.
    pub(crate) ranks: Vec<u16>,
    /// Megabytes of each file.
    pub(crate) megabytes: u64,
    /// Rounds of each run.
    pub(crate) rounds: u32,
    /// Whether runs on a limited store are made too.
    pub(crate) limited: bool,
}

/// The kernels there are.
pub(crate) const NAMES: [&str; 8] =
    ["strided8k", "btio", "subarray3d", "subarray4d", "tile", "flash", "irregular", "contiguous"];

/// Whose I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// The MPI library's.
    Native,
    Pario,
    /// Exchange and `pwrite`, as users write it.
    Hand,
}

/// One run and its times.
#[derive(Clone, Debug)]
struct Case {
    mpi: &'static str,
    kernel: String,
    side: Side,
    how: &'static str,
    ranks: u16,
    limited: bool,
    times: Times,
}

/// Seconds, and the bytes that they are for.
#[derive(Clone, Copy, Debug)]
struct Times {
    bytes: f64,
    open: f64,
    write: f64,
    total: f64,
    read: f64,
}

/// All runs and what follows from them.
pub(crate) struct MpiReport {
    settings: Vec<String>,
    cases: Vec<Case>,
    figures: Vec<Figure>,
}

/// Runs it.
pub(crate) fn run(plan: &MpiPlan) -> Result<MpiReport, BenchError> {
    let ground = Ground::new(plan)?;
    let mut cases = Vec::new();
    for mpi in &ground.installations {
        for kernel in &plan.kernels {
            for ranks in &plan.ranks {
                for (side, how) in sides(kernel) {
                    let run = Run { mpi, kernel, side, how, ranks: *ranks, limited: false };
                    cases.push(ground.measure(plan, &run)?);
                }
                if plan.limited && kernel != "irregular" {
                    let run = Run {
                        mpi,
                        kernel,
                        side: Side::Pario,
                        how: "collective",
                        ranks: *ranks,
                        limited: true,
                    };
                    cases.push(ground.measure(plan, &run)?);
                }
            }
        }
    }
    let figures = figures(&cases);
    Ok(MpiReport { settings: ground.settings(plan), cases, figures })
}

fn sides(kernel: &str) -> Vec<(Side, &'static str)> {
    let mut sides = vec![
        (Side::Native, "collective"),
        (Side::Native, "independent"),
        (Side::Pario, "collective"),
        (Side::Pario, "independent"),
        (Side::Pario, "nonblocking"),
    ];
    if kernel.starts_with("subarray") {
        sides.push((Side::Hand, "handwritten"));
    }
    sides
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Side::Native => "native",
            Side::Pario => "pario",
            Side::Hand => "by hand",
        }
    }
}

impl MpiReport {
    /// For people.
    pub(crate) fn table(&self) -> String {
        let head =
            ["<kernel", "<MPI", "ranks", "<side", "<how", "open ms", "write MB/s", "total MB/s", "read MB/s"];
        let mut table = Table::with_head(&head);
        for case in &self.cases {
            let Times { bytes, open, write, total, read } = case.times;
            let speed = |seconds: f64| {
                if seconds == 0.0 { "-".into() } else { format!("{:.0}", bytes / seconds / 1e6) }
            };
            let how = if case.limited { format!("{}, limited", case.how) } else { case.how.to_owned() };
            table.row(vec![
                case.kernel.clone(),
                case.mpi.to_owned(),
                case.ranks.to_string(),
                case.side.word().to_owned(),
                how,
                format!("{:.1}", open * 1e3),
                speed(write),
                speed(total),
                speed(read),
            ]);
        }
        let mut text = Vec::new();
        let mut figures = Table::with_head(&["<figure", "is", "wanted"]);
        for figure in &self.figures {
            let wanted = figure.wanted.map_or("-".to_owned(), |wanted| format!("{wanted}"));
            figures.row(vec![figure.name.clone(), format!("{:.2}", figure.value), wanted]);
        }
        // Writing into memory does not fail.
        let _ = table.print(&mut text);
        text.push(b'\n');
        let _ = figures.print(&mut text);
        format!("{}\n{}", self.settings.join("\n"), String::from_utf8_lossy(&text))
    }

    /// For programs.
    pub(crate) fn json(&self) -> String {
        let cases: Vec<_> = self
            .cases
            .iter()
            .map(|case| {
                json!({
                    "kernel": case.kernel, "mpi": case.mpi, "ranks": case.ranks, "side": case.side.word(),
                    "how": case.how, "limited": case.limited, "bytes": case.times.bytes, "open_s": case.times.open,
                    "write_s": case.times.write, "total_s": case.times.total, "read_s": case.times.read,
                })
            })
            .collect();
        let figures: serde_json::Map<String, serde_json::Value> =
            self.figures.iter().map(|figure| (figure.name.clone(), json!(figure.value))).collect();
        let all = json!({ "settings": self.settings, "figures": figures, "cases": cases });
        serde_json::to_string_pretty(&all).unwrap_or_default()
    }
}
