//! Plots: one per number of ranks and kind of time, a group of bars per kernel, a bar per side.
//!
//! Never: draws a plot that has no bar.

use super::case::{MpiCallKind, MpiCase, MpiSide};
use crate::plot::{BarChart, Labels, Scale, Series};

/// Kinds of times: suffix of the plot's name, title, and whether the store is limited.
const KINDS: [(&str, &str, &str, bool); 5] = [
    ("write_s", "write", "inside write calls", false),
    ("total_s", "total", "open to close", false),
    ("read_s", "read", "reading, warm", false),
    ("cold_read_s", "cold_read", "reading, page cache empty", false),
    ("write_s", "limited_write", "inside write calls, store of 500 MB/s", true),
];

/// Names and SVG documents.
pub(super) fn pictures(cases: &[MpiCase]) -> Vec<(String, String)> {
    let mut ranks: Vec<u16> = cases.iter().map(|case| case.work.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut pictures = Vec::new();
    for ranks in ranks {
        for (times, name, words, limited) in KINDS {
            let fits = |case: &&MpiCase| {
                let measured = case.times.median(times).is_some();
                measured && case.work.ranks == ranks && case.work.limited == limited
            };
            let of: Vec<&MpiCase> = cases.iter().filter(fits).collect();
            if !of.is_empty() {
                let title = format!("{ranks} ranks, {words}");
                pictures.push((format!("{name}_{ranks}"), chart(title, times, &of).svg()));
            }
        }
    }
    pictures
}

fn chart(title: String, times: &str, cases: &[&MpiCase]) -> BarChart {
    let mut groups: Vec<String> = Vec::new();
    let mut sides: Vec<(MpiSide, MpiCallKind, &str)> = Vec::new();
    for case in cases {
        if !groups.contains(&case.work.kernel) {
            groups.push(case.work.kernel.clone());
        }
        let side = (case.work.side, case.work.how, case.mpi);
        if !sides.contains(&side) {
            sides.push(side);
        }
    }
    sides.sort_unstable();
    let series = sides.iter().map(|(side, how, mpi)| {
        let value = |kernel: &String| {
            let fits = |case: &&&MpiCase| {
                case.work.kernel == *kernel
                    && (case.work.side, case.work.how, case.mpi) == (*side, *how, *mpi)
            };
            cases.iter().find(fits).and_then(|case| case.times.speed(times)).unwrap_or(f64::NAN)
        };
        Series { name: name(*side, *how, mpi), values: groups.iter().map(value).collect() }
    });
    let series = series.collect();
    let labels = Labels { title, x: "kernel".into(), y: "MB/s".into() };
    BarChart { labels, y: Scale::Log10, groups, series }
}

/// Name in the legend; Pario runs on either MPI.
fn name(side: MpiSide, how: MpiCallKind, mpi: &str) -> String {
    match side {
        MpiSide::Native => format!("{mpi} {}", how.word()),
        MpiSide::Hand => format!("by hand, {mpi}"),
        MpiSide::Pario => {
            let on = if mpi == "romio" { "mpich" } else { "open mpi" };
            let word = match how {
                MpiCallKind::Collective => "coll.",
                MpiCallKind::Independent => "indep.",
                MpiCallKind::Nonblocking | MpiCallKind::Handwritten => "nonbl.",
            };
            format!("pario {word}, {on}")
        }
    }
}
