//! `pario bench team images`: files one after the other, each written by all threads, with computing before each.

use std::time::Duration;

use super::pattern::TeamPattern;
use super::scenario::{TeamScenario, TeamTime, versus};
use super::side::TeamSide::{Log, Partition, Plain, Serial};
use super::{PARTITION, SERVERS, TeamBench};
use crate::error::BenchError;
use crate::kernel::stencil::Stencil;

const FILES: u32 = 13;
const THREADS: u32 = 2;
/// Computing of each thread before each file.
const COMPUTE: Duration = Duration::from_millis(10);
/// Time of counting sweeps.
const CALIBRATION: Duration = Duration::from_millis(100);

pub(super) fn bench(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    bench.progress.show("bringing up a partition");
    bench.testbed.up(PARTITION, SERVERS)?;
    let part_bytes = bench.plan.size.0 / u64::from(THREADS);
    let mut scenario = TeamScenario::parts("images", THREADS, part_bytes, bench.plan.size.0);
    scenario.title = format!(
        "{FILES} files of {} by {THREADS} threads, {COMPUTE:?} of computing before each",
        bench.plan.size
    );
    scenario.pattern = TeamPattern::Parts { part_bytes, calls: 1 };
    (scenario.files, scenario.is_read) = (FILES, false);
    scenario.sides = vec![Serial, Plain, Partition, Log];
    scenario.sweeps = sweeps(COMPUTE);
    let samples = bench.run_scenario(&scenario)?;
    let time = |side, kind| samples.times(side, kind);
    let io = |side| time(side, TeamTime::WriteOnly);
    let note = "time without computing; all threads on a partition, against one thread on plain files";
    bench.add_ratio("threads_vs_serial", versus(&io(Serial), &io(Partition)), 1.3, note);
    bench.add_ratio(
        "plain_threads_vs_serial",
        versus(&io(Serial), &io(Plain)),
        0.0,
        "the same on plain files",
    );
    bench.add_ratio("log_threads_vs_serial", versus(&io(Serial), &io(Log)), 0.0, "the same on containers");
    let whole = |side| time(side, TeamTime::Write);
    bench.add_ratio(
        "threads_vs_serial_total",
        versus(&whole(Serial), &whole(Partition)),
        0.0,
        "with computing",
    );
    bench.testbed.down(PARTITION)
}

/// Sweeps of the stencil in a time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive count far below 2^53"
)]
pub(super) fn sweeps(time: Duration) -> u64 {
    ((Stencil::new().sweeps_per_s(CALIBRATION) * time.as_secs_f64()) as u64).max(1)
}
