//! `pario bench team micro`: parts of equal size, by every way in which threads write.

use pario::core::Size;

use super::pattern::TeamPattern;
use super::scenario::{TeamScenario, TeamTime, versus};
use super::side::TeamSide::{Log, Merged, OneFile, Ordered, Partition, Plain, Separate, Serial};
use super::{PARTITION, SERVERS, TeamBench};
use crate::error::BenchError;

/// The buffer of a common call.
const COMMON_BYTES: u64 = 64 << 20;
/// Share of the bytes that small parts write: their calls cost more.
const SMALL_SHARE: u64 = 4;
/// Parts below this size are small.
const SMALL_BYTES: u64 = 64 << 10;

/// Runs all scenarios of the figures, or those that are asked for.
pub(super) fn bench(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    bench.progress.show("bringing up a partition");
    bench.testbed.up(PARTITION, SERVERS)?;
    if bench.plan.is_promised() || bench.plan.threads.is_empty() && bench.plan.parts.is_empty() {
        large(bench)?;
        four(bench)?;
        small(bench)?;
        common(bench)?;
    } else {
        sweep(bench)?;
    }
    bench.testbed.down(PARTITION)
}

fn large(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let scenario = TeamScenario::parts("2x1MiB", 2, 1 << 20, bench.plan.size.0);
    let samples = bench.run_scenario(&scenario)?;
    let write = |side| samples.times(side, TeamTime::Write);
    let read = |side| samples.times(side, TeamTime::Read);
    let note = "2 threads, parts of 1MiB";
    bench.add_ratio("partition_write_vs_separate", versus(&write(Separate), &write(Partition)), 0.9, note);
    bench.add_ratio("partition_write_vs_merged", versus(&write(Merged), &write(Partition)), 2.5, note);
    bench.add_ratio("partition_write_vs_ordered", versus(&write(Ordered), &write(Partition)), 1.0, note);
    let single = samples.best_times([Serial, OneFile], TeamTime::Write);
    let best = "by the faster of one thread and threads on one file";
    bench.add_ratio("plain_write_vs_best_single", versus(&single, &write(Plain)), 0.9, best);
    bench.add_ratio("log_write_vs_separate", versus(&write(Separate), &write(Log)), 0.9, note);
    bench.add_ratio("partition_read_vs_separate", versus(&read(Separate), &read(Partition)), 0.95, note);
    bench.add_ratio("plain_read_vs_separate", versus(&read(Separate), &read(Plain)), 0.95, note);
    bench.add_ratio("log_read_vs_plain", versus(&read(Plain), &read(Log)), 0.8, "a team on either");
    let flat = samples.times(Log, TeamTime::FlatRead);
    bench.add_ratio(
        "log_flattened_read_vs_plain",
        versus(&read(Plain), &flat),
        1.0,
        "the flattened container",
    );
    Ok(())
}

fn four(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let scenario = TeamScenario::parts("4x64KiB", 4, 64 << 10, bench.plan.size.0);
    let samples = bench.run_scenario(&scenario)?;
    let write = |side| samples.times(side, TeamTime::Write);
    let note = "4 threads, parts of 64KiB";
    bench.add_ratio("partition_write_vs_separate_4", versus(&write(Separate), &write(Partition)), 0.9, note);
    bench.add_ratio("partition_write_vs_ordered_4", versus(&write(Ordered), &write(Partition)), 1.4, note);
    let single = samples.best_times([Serial, OneFile], TeamTime::Write);
    bench.add_ratio("plain_write_vs_best_single_4", versus(&single, &write(Plain)), 0.9, note);
    Ok(())
}

fn small(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let mut scenario = TeamScenario::parts("2x4KiB", 2, 4 << 10, bench.plan.size.0 / SMALL_SHARE);
    scenario.sides.retain(|side| *side != Merged);
    scenario.is_read = false;
    let samples = bench.run_scenario(&scenario)?;
    let write = |side| samples.times(side, TeamTime::Write);
    let note = "2 threads, parts of 4KiB";
    bench.add_ratio("partition_small_vs_ordered", versus(&write(Ordered), &write(Partition)), 1.5, note);
    bench.add_ratio("partition_small_vs_separate", versus(&write(Separate), &write(Partition)), 0.8, note);
    bench.add_ratio("plain_small_vs_ordered", versus(&write(Ordered), &write(Plain)), 1.2, note);
    Ok(())
}

/// One buffer of all threads against one thread with the same buffer.
fn common(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let bytes = COMMON_BYTES.min(bench.plan.size.0);
    let mut scenario = TeamScenario::parts("common", 2, bytes / 2, bytes);
    scenario.title = format!("2 threads, one buffer of {}", Size(bytes));
    scenario.pattern = TeamPattern::Common { bytes, calls: 1 };
    scenario.sides = vec![Serial, Plain, Partition];
    scenario.is_read = false;
    let samples = bench.run_scenario(&scenario)?;
    let write = |side| samples.times(side, TeamTime::Write);
    let note = "one buffer of both threads, against one thread on a plain file";
    bench.add_ratio("common_write_vs_serial", versus(&write(Serial), &write(Partition)), 1.3, note);
    Ok(())
}

/// Every number of threads with every size of parts.
fn sweep(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let or = |given: &[u64], usual: &[u64]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
    let threads: Vec<u64> = bench.plan.threads.iter().map(|count| u64::from(*count)).collect();
    let parts: Vec<u64> = bench.plan.parts.iter().map(|size| size.0).collect();
    let (threads, parts) = (or(&threads, &[2]), or(&parts, &[1 << 20]));
    for count in threads {
        for part in &parts {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let share = if *part < SMALL_BYTES { SMALL_SHARE } else { 1 };
            let name = format!("{count}x{}", Size(*part));
            let scenario = TeamScenario::parts(&name, count, *part, bench.plan.size.0 / share);
            bench.run_scenario(&scenario)?;
        }
    }
    Ok(())
}
