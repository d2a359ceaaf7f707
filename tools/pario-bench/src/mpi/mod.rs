//! `pario bench mpi`: one C program on the MPI library's own I/O and on Pario, in one run, on the same disk.
//!
//! Never: compares runs of different programs, sizes, ranks or limits. Always: read data is verified; the settings of each side
//! are printed.

mod case;
mod figures;
mod picture;
mod run;
mod show;

use std::path::PathBuf;

use self::case::{MpiCallKind, MpiCase, MpiRunSpec, MpiSide};
use self::figures::figures;
use self::run::{MpiBench, MpiRun};
pub(crate) use self::show::MpiReport;
use super::BenchError;
use super::machine::Machine;
use super::progress::BenchProgress;
use super::testbed::Testbed;

/// Limit of the store in limited runs, in bytes per second.
const LIMIT: u64 = 500_000_000;
/// Servers of Pario's side.
const SERVERS: u32 = 2;
/// Outbox of each rank in limited runs: holds a dump.
const LIMITED_OUTBOX: &str = "64MiB";
/// Repetitions on a limited store: the limit decides the time, not the machine.
const LIMITED_ROUNDS: u32 = 3;

/// Checked options of `bench mpi`.
#[derive(Clone, Debug)]
pub(crate) struct MpiPlan {
    /// Directory; the system\'s temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Kernels by name.
    pub(crate) kernels: Vec<String>,
    /// Numbers of ranks.
    pub(crate) ranks: Vec<u16>,
    /// Megabytes of each file.
    pub(crate) megabytes: u64,
    /// Alternating runs of all sides of a kernel.
    pub(crate) passes: u32,
    /// Repetitions of each run.
    pub(crate) rounds: u32,
    /// Whether free memory is touched before each run.
    pub(crate) backed: bool,
    /// Whether to run on a limited store too.
    pub(crate) limited: bool,
    /// Directory of plots and the page of figures.
    pub(crate) plots: Option<PathBuf>,
}

/// All kernels.
pub(crate) const NAMES: [&str; 9] = [
    "strided8k",
    "strided64k",
    "btio",
    "subarray3d",
    "subarray4d",
    "tile",
    "flash",
    "irregular",
    "contiguous",
];

/// Runs the benchmark.
pub(crate) fn run(plan: &MpiPlan) -> Result<MpiReport, BenchError> {
    let ground = Testbed::new(plan.dir.as_deref())?;
    let bench = MpiBench::new(&ground)?;
    let progress = BenchProgress::new();
    let mut cases: Vec<MpiCase> = Vec::new();
    let mut left_out: Vec<((&str, &MpiRunSpec), String)> = Vec::new();
    let works: Vec<MpiRunSpec> = plan.ranks.iter().flat_map(|ranks| works(plan, *ranks)).collect();
    let turns = turns(plan, &works);
    let of = turns.len() * bench.installations.len();
    for (done, work) in turns.into_iter().enumerate() {
        for (at, mpi) in bench.installations.iter().enumerate() {
            let text = format!("{}, {} ranks", work.kernel, work.ranks);
            progress.step(&text, done * bench.installations.len() + at, of);
            if left_out.iter().any(|(which, _)| *which == (mpi.io, work)) {
                continue;
            }
            let case = match bench.measure(plan, &MpiRun { mpi, work }) {
                // A library may lack a feature; the others are still measured.
                Err(BenchError::Worker(why)) if work.side == MpiSide::Native => {
                    left_out.push(((mpi.io, work), why));
                    continue;
                }
                measured => measured?,
            };
            match cases.iter_mut().find(|known| known.mpi == case.mpi && known.work == case.work) {
                Some(known) => known.times.append(case.times),
                None => cases.push(case),
            }
        }
    }
    drop(progress);
    let machine = Machine::here(ground.dir());
    let mut settings = bench.settings(plan);
    settings.extend(left_out.into_iter().map(|(_, why)| format!("left out, since it failed: {why}")));
    let report = MpiReport::new(plan, (figures(&cases), cases), (machine, settings));
    ground.end()?;
    if let Some(dir) = &plan.plots {
        report.draw(dir)?;
    }
    Ok(report)
}

/// All runs with `ranks` ranks, for each MPI. The sides of a kernel are adjacent.
fn works(plan: &MpiPlan, ranks: u16) -> Vec<MpiRunSpec> {
    let work = |kernel: &str, side, how, limited| MpiRunSpec {
        kernel: kernel.to_owned(),
        side,
        how,
        ranks,
        limited,
    };
    let mut works = Vec::new();
    for kernel in plan.kernels.iter().map(String::as_str) {
        works.extend(sides(kernel).into_iter().map(|(side, how)| work(kernel, side, how, false)));
        if plan.limited && is_dumped(kernel) {
            for (side, how) in [
                (MpiSide::Native, MpiCallKind::Collective),
                (MpiSide::Native, MpiCallKind::Independent),
                (MpiSide::Pario, MpiCallKind::Collective),
            ] {
                works.push(work(kernel, side, how, true));
            }
        }
    }
    works.push(work(case::OPEN_CLOSE, MpiSide::Native, MpiCallKind::Collective, false));
    works.push(work(case::OPEN_CLOSE, MpiSide::Pario, MpiCallKind::Collective, false));
    if plan.limited {
        works.push(work(case::OVERLAP, MpiSide::Pario, MpiCallKind::Nonblocking, true));
    }
    works
}

/// Order of runs: all sides of a kernel one after the other, repeated per pass. Limited runs need one pass: the store decides
/// their time, not the machine.
fn turns<'a>(plan: &MpiPlan, works: &'a [MpiRunSpec]) -> Vec<&'a MpiRunSpec> {
    let mut turns = Vec::new();
    for kernel in works.chunk_by(|one, next| (&one.kernel, one.ranks) == (&next.kernel, next.ranks)) {
        for pass in 0..plan.passes {
            turns.extend(kernel.iter().filter(|work| pass == 0 || !work.limited));
        }
    }
    turns
}

fn sides(kernel: &str) -> Vec<(MpiSide, MpiCallKind)> {
    let mut sides = vec![
        (MpiSide::Native, MpiCallKind::Collective),
        (MpiSide::Native, MpiCallKind::Independent),
        (MpiSide::Pario, MpiCallKind::Collective),
        (MpiSide::Pario, MpiCallKind::Independent),
        (MpiSide::Pario, MpiCallKind::Nonblocking),
    ];
    if kernel.starts_with("subarray") {
        sides.push((MpiSide::Hand, MpiCallKind::Handwritten));
    }
    sides
}

/// Whether a kernel writes several dumps with computing in between.
fn is_dumped(kernel: &str) -> bool {
    !matches!(kernel, "irregular" | "contiguous")
}

/// Milliseconds of computing after each dump of a limited run: the store writes two dumps meanwhile, or, where hidden writing
/// is measured, one and a quarter.
fn compute_ms(kernel: &str, megabytes: u64) -> u64 {
    let (dumps, quarters) = match kernel {
        "flash" => (24, 8),
        case::OVERLAP => (8, 5),
        _ => (8, 8),
    };
    (megabytes << 20) * 1000 * quarters / 4 / dumps / LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_is_as_long_as_the_store_needs_twice() {
        assert_eq!(compute_ms("btio", 400), 209);
        assert_eq!(compute_ms("flash", 400), 69);
        assert_eq!(compute_ms(case::OVERLAP, 400), 131);
    }

    fn plan(kernels: &[&str], passes: u32) -> MpiPlan {
        MpiPlan {
            dir: None,
            kernels: kernels.iter().map(|name| (*name).to_owned()).collect(),
            ranks: vec![2],
            megabytes: 400,
            passes,
            rounds: 1,
            backed: false,
            limited: true,
            plots: None,
        }
    }

    #[test]
    fn sides_of_a_kernel_are_run_in_turn() {
        let plan = plan(&["irregular", "contiguous"], 2);
        let works = works(&plan, 2);
        let turns = turns(&plan, &works);
        let kernels: Vec<&str> = turns.iter().map(|work| work.kernel.as_str()).collect();
        assert_eq!(kernels[..10], ["irregular"; 10]);
        assert_eq!((turns[0], turns[2]), (turns[5], turns[7]), "the second pass is as the first");
        assert_eq!(kernels.iter().filter(|kernel| **kernel == case::OVERLAP).count(), 1);
        assert_eq!(kernels.iter().filter(|kernel| **kernel == case::OPEN_CLOSE).count(), 4);
    }

    #[test]
    fn every_limited_run_has_a_native_one_beside_it() {
        let plan = plan(&NAMES, 1);
        let works = works(&plan, 2);
        for kernel in NAMES.iter().filter(|kernel| is_dumped(kernel)) {
            let limited = |side| works.iter().any(|w| w.kernel == **kernel && w.limited && w.side == side);
            assert!(limited(MpiSide::Native) && limited(MpiSide::Pario), "{kernel}");
        }
    }
}
