//! Plots: one per number of ranks and kind of time, a group of bars per kernel, a bar per side.
//!
//! Never: draws a plot that has no bar.

use super::case::{Case, How, Side};
use crate::bench::plot::{BarChart, Labels, Scale, Series};

/// Kinds of times, with the end of a plot's name, what is drawn, and whether the store is limited.
const KINDS: [(&str, &str, &str, bool); 5] = [
    ("write_s", "write", "inside write calls", false),
    ("total_s", "total", "open to close", false),
    ("read_s", "read", "reading, warm", false),
    ("cold_read_s", "cold_read", "reading, page cache empty", false),
    ("write_s", "limited_write", "inside write calls, store of 500 MB/s", true),
];

/// Names and SVG documents.
pub(super) fn pictures(cases: &[Case]) -> Vec<(String, String)> {
    let mut ranks: Vec<u16> = cases.iter().map(|case| case.work.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut pictures = Vec::new();
    for ranks in ranks {
        for (times, name, words, limited) in KINDS {
            let fits = |case: &&Case| {
                let measured = case.times.median(times).is_some();
                measured && case.work.ranks == ranks && case.work.limited == limited
            };
            let of: Vec<&Case> = cases.iter().filter(fits).collect();
            if !of.is_empty() {
                let title = format!("{ranks} ranks, {words}");
                pictures.push((format!("{name}_{ranks}"), chart(title, times, &of).svg()));
            }
        }
    }
    pictures
}

fn chart(title: String, times: &str, cases: &[&Case]) -> BarChart {
    let mut groups: Vec<String> = Vec::new();
    let mut sides: Vec<(Side, How, &str)> = Vec::new();
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
            let fits = |case: &&&Case| {
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

/// As a legend has it; Pario stands on either MPI.
fn name(side: Side, how: How, mpi: &str) -> String {
    match side {
        Side::Native => format!("{mpi} {}", how.word()),
        Side::Hand => format!("by hand, {mpi}"),
        Side::Pario => {
            let on = if mpi == "romio" { "mpich" } else { "open mpi" };
            let word = match how {
                How::Collective => "coll.",
                How::Independent => "indep.",
                How::Nonblocking | How::Handwritten => "nonbl.",
            };
            format!("pario {word}, {on}")
        }
    }
}
