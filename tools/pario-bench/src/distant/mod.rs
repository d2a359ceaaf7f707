//! `pario bench distant`: own, near and far accesses to the file of one process, against its own `pread` and `pwrite`.
//!
//! Always: three processes, one after the other: the home, one of its node, one that plays another node and is reached over TCP.

pub(crate) mod worker;

use std::path::PathBuf;

use pario::core::Size;
use pario::group::Hub;

use self::worker::{COMPARED, DistantJob, REPORTED};
use super::error::BenchError;
use super::figures::{Figure, Figures, Goal};
use super::job::{BenchJob, JobOutcome};
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;
use super::worker::{Worker, together};

/// Checked options of `bench distant`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DistantPlan {
    /// Directory; the system's temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Bytes of the file.
    pub(crate) size: Size,
    /// Bytes of one measurement.
    pub(crate) bytes: u64,
    /// Pairs of runs.
    pub(crate) pairs: usize,
    /// Seconds without requests.
    pub(crate) idle_seconds: u64,
}

/// Times by name and pair, in nanoseconds.
struct DistantTimes {
    outcomes: Vec<JobOutcome>,
    pairs: usize,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &DistantPlan) -> Result<BenchReport, BenchError> {
    let ground = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let progress = BenchProgress::new();
    progress.show("own, near and far accesses");
    let hub = Hub::start(3)?;
    let start = |rank: usize| {
        let node = if rank == 2 { "other" } else { "home" };
        Worker::invited(&ground.registry_path(), &hub.invitation(rank), &[("PARIO_NODE", node)])
    };
    let mut workers = (0..3).map(start).collect::<Result<Vec<_>, _>>()?;
    let job = DistantJob {
        dir: ground.dir().to_owned(),
        file_bytes: plan.size.0,
        bytes: plan.bytes,
        pairs: plan.pairs,
        idle_seconds: plan.idle_seconds,
    };
    let outcomes = together(&mut workers, |_| BenchJob::Distant(job.clone()))?;
    drop(workers);
    let figures = DistantTimes { outcomes, pairs: plan.pairs }.figures(plan.bytes)?;
    let title = format!(
        "pario bench distant: a file of {} at one process, three processes, {} pairs; far: TCP on loopback, as to another node",
        plan.size, plan.pairs
    );
    let settings = serde_json::json!({
        "file_bytes": plan.size.0,
        "bytes": plan.bytes,
        "pairs": plan.pairs,
        "link": "loopback TCP, neither shaped nor protected",
        "dir": ground.dir().parent(),
    });
    ground.end()?;
    Ok(BenchReport { title, figures, machine, settings })
}

impl DistantTimes {
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a measurement")]
    fn times(&self, name: &str) -> Result<Vec<f64>, BenchError> {
        let time = |pair: usize| {
            let key = format!("{name} {pair}");
            let found = self.outcomes.iter().find_map(|outcome| outcome.counts.get(&key));
            found.map(|ns| (*ns).max(1) as f64).ok_or_else(|| BenchError::Worker(format!("no time of {key}")))
        };
        (0..self.pairs).map(time).collect()
    }

    /// Speed of `side` by speed of `yardstick`, pair by pair.
    fn ratio(&self, side: &str, yardstick: &str) -> Result<Figure, BenchError> {
        let (side, yardstick) = (self.times(side)?, self.times(yardstick)?);
        let ratios: Vec<f64> =
            yardstick.iter().zip(&side).map(|(yardstick, side)| yardstick / side).collect();
        Ok(Figure::of(&ratios, "ratio"))
    }

    fn figures(&self, bytes: u64) -> Result<Figures, BenchError> {
        let mut figures = Figures::default();
        for word in ["read", "write"] {
            for (kib, goal) in COMPARED.iter().zip([0.6, 0.7, 0.8, 0.9]) {
                let ratio = self.ratio(&format!("own_{word} {kib}"), &format!("plain_{word} {kib}"))?;
                let name = format!("own_{word}_vs_p{word}_{kib}k");
                figures.add(name, ratio, Goal::AtLeast(goal), format!("own file, requests of {kib} KiB"));
            }
            for (kib, goal) in COMPARED.iter().zip([0.8, 0.9, 0.9, 0.9]) {
                let ratio = self.ratio(&format!("near_{word} {kib}"), &format!("own_{word} {kib}"))?;
                let name = format!("near_{word}_vs_own_{kib}k");
                figures.add(name, ratio, Goal::AtLeast(goal), "file of another process of the node");
            }
        }
        for (word, goal) in [("read", 0.9), ("write", 0.85)] {
            let ratio = self.ratio(&format!("far_{word}_500 32"), &format!("own_{word}_500 32"))?;
            let note = "store of 500 MB/s, 4 requests under way";
            figures.add(format!("far_{word}_vs_own_32k"), ratio, Goal::AtLeast(goal), note);
        }
        for (kib, goal) in [(4, 0.8), (32, 0.95)] {
            let ratio = self.ratio(&format!("far_read_disk {kib}"), &format!("own_read_disk {kib}"))?;
            let name = format!("far_read_vs_own_{kib}k_disk");
            figures.add(name, ratio, Goal::AtLeast(goal), "store of 10 MB/s, as the paper's disks");
        }
        for word in ["read", "write"] {
            for kib in REPORTED {
                let moved = moved_bytes(kib, bytes);
                let speeds: Vec<f64> =
                    self.times(&format!("far_{word} {kib}"))?.iter().map(|ns| moved * 1e3 / ns).collect();
                let name = format!("far_{word}_mb_s_{kib}k");
                figures.add(
                    name,
                    Figure::of(&speeds, "MB/s"),
                    Goal::None,
                    "4 requests under way, nothing limited",
                );
            }
        }
        for word in ["read", "write"] {
            let [transfer, compute, both] =
                ["transfer", "compute", "both"].map(|what| self.times(&format!("{what}_{word}")));
            let (transfer, compute, both) = (transfer?, compute?, both?);
            let hidden = |pair: usize| {
                let least = transfer[pair].min(compute[pair]);
                (transfer[pair] + compute[pair] - both[pair]) / least
            };
            let shares: Vec<f64> = (0..self.pairs).map(hidden).collect();
            let note = "share of far transfers of 1 MiB behind computing";
            figures.add(format!("overlap_{word}_1m"), Figure::of(&shares, "share"), Goal::AtLeast(0.8), note);
        }
        let slowdown: Vec<f64> = self
            .times("home_serving")?
            .iter()
            .zip(self.times("home_alone")?)
            .map(|(serving, alone)| serving / alone)
            .collect();
        for (name, unit, goal) in [("idle_kib", "KiB", 2048.0), ("idle_wakeups", "wake-ups", 0.0)] {
            #[expect(clippy::cast_precision_loss, reason = "figures")]
            let homes: Vec<f64> = self
                .outcomes
                .iter()
                .map(|outcome| outcome.counts.get(name).map_or(f64::MAX, |count| *count as f64))
                .collect();
            figures.add(name, Figure::of(&homes, unit), Goal::AtMost(goal), "a home without requests");
        }
        let note = "time of a computing home that serves 100 MB/s, by its time alone";
        figures.add("home_slowdown", Figure::of(&slowdown, "ratio"), Goal::AtMost(1.1), note);
        Ok(figures)
    }
}

/// Bytes that a measurement with requests of this size moves.
#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn moved_bytes(kib: u64, bytes: u64) -> f64 {
    ((bytes / (kib << 10)).max(4) * (kib << 10)) as f64
}
