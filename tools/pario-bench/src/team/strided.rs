//! `pario bench team strided`: pieces of 47,008 bytes in turn, and opening a container of many entries.

use super::container::ContainerJob;
use super::scenario::{TeamScenario, TeamTime, versus};
use super::side::TeamSide::{Log, OneFile, Partition, Plain, Separate};
use super::{PARTITION, SERVERS, TeamBench};
use crate::error::BenchError;
use crate::figures::{Figure, Goal};
use crate::job::BenchJob;
use crate::worker::Worker;

const PIECE_BYTES: u64 = 47_008;
const THREADS: u32 = 4;
/// Longest time to open a container of 10⁶ entries.
const OPEN_S_MAX: f64 = 1.0;

pub(super) fn bench(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    bench.progress.show("bringing up a partition");
    bench.testbed.up(PARTITION, SERVERS)?;
    let mut scenario = TeamScenario::parts("strided", THREADS, PIECE_BYTES, bench.plan.size.0);
    scenario.title = format!("{THREADS} threads, pieces of {PIECE_BYTES} bytes in turn");
    scenario.sides = vec![OneFile, Separate, Plain, Partition, Log];
    let samples = bench.run_scenario(&scenario)?;
    let write = |side| samples.times(side, TeamTime::Write);
    let note = "4 threads, pieces of 47,008 bytes in turn";
    bench.add_ratio("log_strided_vs_pwrite", versus(&write(OneFile), &write(Log)), 1.3, note);
    bench.add_ratio("partition_strided_vs_pwrite", versus(&write(OneFile), &write(Partition)), 0.0, note);
    bench.add_ratio("plain_strided_vs_pwrite", versus(&write(OneFile), &write(Plain)), 0.0, note);
    bench.testbed.down(PARTITION)?;
    opening(bench)
}

/// `log_open_s`: each time in a fresh process.
fn opening(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let (path, entries) = (bench.testbed.dir().join("many"), bench.plan.entries);
    bench.progress.show(&format!("making a container of {entries} entries"));
    let worker = || Worker::start(&bench.testbed.registry_path(), &[]);
    let filled =
        worker()?.run_job(&BenchJob::Container(ContainerJob::Fill { path: path.clone(), entries }))?;
    let mut times = Vec::new();
    for run in 0..bench.plan.pairs {
        bench.progress.step("opening it, run", run, bench.plan.pairs);
        let opened = worker()?.run_job(&BenchJob::Container(ContainerJob::Open { path: path.clone() }))?;
        times.push(opened.seconds);
    }
    let count = filled.counts.get("entries").copied().unwrap_or(0);
    let note = format!("{count} entries at random places");
    bench.add("log_open_s", Figure::of(&times, "s"), Goal::AtMost(OPEN_S_MAX), note);
    Ok(())
}
