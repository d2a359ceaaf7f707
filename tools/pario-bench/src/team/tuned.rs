//! `pario bench team tuned`: tuning at run time against every fixed choice, and threads that go on before their bytes are written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pario::partition::Key;

use super::images::sweeps;
use super::job::{TeamJob, TeamWork};
use super::pattern::TeamPattern;
use super::scenario::versus;
use super::side::TeamSide;
use super::{SERVERS, TeamBench};
use crate::error::BenchError;
use crate::figures::{Figure, Goal};
use crate::job::{BenchJob, JobOutcome};
use crate::testbed::Testbed;
use crate::worker::Worker;

/// Share of a node in a shared file system, in bytes per second.
const STORE_LIMIT: u64 = 500_000_000;
const LIMITED: &str = "limited";
/// Repetitions of the exhaustive sweep, at most.
const PASSES_MAX: usize = 3;
const SATURATIONS: [&str; 4] = ["64KiB", "512KiB", "4MiB", "32MiB"];
const ACTIVE: [u32; 3] = [1, 2, 4];
const THREADS: u32 = 4;
/// Parts of the bytes of a run that a thread writes in a call: 2 MiB of 128 MiB.
const PARTS: u64 = 64;
/// Calls of a run; the second half is timed.
const CALLS: u64 = 96;
/// Calls that fill the file, which is then written again.
const WRAP: u64 = 8;

/// Threads and active ones of `inactive_share`.
const INACTIVE_THREADS: u32 = 8;
const INACTIVE_PART_BYTES: u64 = 512 << 10;
const INACTIVE_CALLS: u64 = 32;
/// Computing of each thread between calls: with 8 threads on 2 processors longer than the store needs for a call.
const INACTIVE_COMPUTE: Duration = Duration::from_millis(4);

/// Where files lie.
struct TunedPlace {
    name: &'static str,
    what: String,
    side: TeamSide,
    path: PathBuf,
}

pub(super) fn bench(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        let testbed = Testbed::new(Some(memory))?;
        let path = testbed.plain_file();
        let place =
            TunedPlace { name: "memory", what: "plain file in /dev/shm".into(), side: TeamSide::Plain, path };
        tuned(bench, &place)?;
        testbed.end()?;
    } else {
        bench.note("no /dev/shm: tuned_vs_best_memory is left out");
    }
    let path = bench.testbed.plain_file();
    let what = "plain file in the directory of the benchmark".to_owned();
    tuned(bench, &TunedPlace { name: "disk", what, side: TeamSide::Plain, path: path.clone() })?;
    bench.progress.show("bringing up a partition");
    let each = STORE_LIMIT / SERVERS as u64;
    bench.testbed.up_with(LIMITED, SERVERS, &[(Key::LimitsStore, each.to_string())])?;
    let what = "partition on stores of 500 MB/s together".to_owned();
    tuned(bench, &TunedPlace { name: "limited", what, side: TeamSide::Partition, path })?;
    inactive(bench)?;
    bench.testbed.down(LIMITED)
}

/// `tuned_vs_best_PLACE`: the second half of the calls, against the fixed choice with the best median.
fn tuned(bench: &mut TeamBench<'_>, place: &TunedPlace) -> Result<(), BenchError> {
    let fixed =
        SATURATIONS.iter().flat_map(|size| ACTIVE.map(|active| format!("saturation={size},active={active}")));
    let choices: Vec<String> = fixed.chain([String::new()]).collect();
    let calls = if bench.plan.quick { CALLS / 2 } else { CALLS };
    let part_bytes = bench.plan.size.0 / PARTS;
    let pattern = TeamPattern::Again { part_bytes, calls, wrap: WRAP };
    let mut times = vec![Vec::new(); choices.len()];
    let passes = bench.plan.pairs.min(PASSES_MAX);
    for pass in 0..=passes {
        bench.progress.step(&format!("tuned on {}, pass", place.name), pass.saturating_sub(1), passes);
        for (index, settings) in choices.iter().enumerate() {
            let job = |work| TeamJob {
                work,
                side: place.side,
                pattern: pattern.clone(),
                threads: THREADS,
                files: 1,
                path: place.path.clone(),
                partition: LIMITED.to_owned(),
                settings: settings.clone(),
                sync: false,
                sweeps: 0,
                steady: true,
            };
            let seconds = run(bench, &job)?.seconds;
            if 0 < pass {
                times[index].push(seconds);
            }
        }
    }
    let own = times.pop().unwrap_or_default();
    let median = |times: &Vec<f64>| Figure::of(times, "s").value;
    let best = (0..times.len()).min_by(|one, two| median(&times[*one]).total_cmp(&median(&times[*two])));
    let Some(best) = best else { return Ok(()) };
    let note = format!("{}; best of {} choices: {}", place.what, times.len(), choices[best]);
    bench.add_ratio(&format!("tuned_vs_best_{}", place.name), versus(&times[best], &own), 0.95, &note);
    Ok(())
}

/// Writes in a fresh process, and removes the file.
fn run(bench: &TeamBench<'_>, job: &dyn Fn(TeamWork) -> TeamJob) -> Result<JobOutcome, BenchError> {
    let mut worker = Worker::start(&bench.testbed.registry_path(), &[])?;
    let outcome = worker.run_job(&BenchJob::Team(Box::new(job(TeamWork::Write))))?;
    worker.run_job(&BenchJob::Team(Box::new(job(TeamWork::Remove))))?;
    if job(TeamWork::Write).side == TeamSide::Partition {
        bench.testbed.wait_idle(LIMITED)?;
    }
    Ok(outcome)
}

/// `inactive_share`: time of inactive threads inside of calls, against the same calls without write-behind.
fn inactive(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let pattern = TeamPattern::Parts { part_bytes: INACTIVE_PART_BYTES, calls: INACTIVE_CALLS };
    let (sweeps, path) = (sweeps(INACTIVE_COMPUTE), bench.testbed.plain_file());
    let mut shares = Vec::new();
    for pair in 0..=bench.plan.pairs {
        bench.progress.step("inactive threads, pair", pair.saturating_sub(1), bench.plan.pairs);
        let seen = |write_behind: &str| {
            let job = |work| TeamJob {
                work,
                side: TeamSide::Partition,
                pattern: pattern.clone(),
                threads: INACTIVE_THREADS,
                files: 1,
                path: path.clone(),
                partition: LIMITED.to_owned(),
                settings: format!("active=2,write_behind={write_behind}"),
                sync: false,
                sweeps,
                steady: false,
            };
            let outcome = run(bench, &job)?;
            let nanos = outcome.counts.get("inactive_ns").copied().unwrap_or(0);
            Ok::<f64, BenchError>(Duration::from_nanos(nanos).as_secs_f64())
        };
        let (waiting, behind) = (seen("off")?, seen("on")?);
        if 0 < pair && 0.0 < waiting {
            shares.push((1.0 - behind / waiting).max(0.0));
        }
    }
    if !shares.is_empty() {
        let note = "8 threads, 2 active, parts of 512KiB, stores of 500 MB/s; against write_behind=off";
        bench.add("inactive_share", Figure::of(&shares, "share"), Goal::AtLeast(0.9), note);
    }
    Ok(())
}
