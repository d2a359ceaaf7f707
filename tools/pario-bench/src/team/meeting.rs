//! `pario bench team meeting`: an empty collective call against the barrier of the OpenMP runtime.
//!
//! The barrier is a small C program, compiled here. Its threads wait as those of a team do: spinning while there is a processor for each of
//! them, asleep otherwise.

use std::path::{Path, PathBuf};
use std::process::Command;

use pario::team::{Hint, Position, TeamFile, TeamOptions};
use serde::{Deserialize, Serialize};

use super::TeamBench;
use crate::clock::BenchTimer;
use crate::error::BenchError;
use crate::figures::{Figure, Goal, Versus};
use crate::job::{BenchJob, JobOutcome};
use crate::worker::Worker;

const BARRIER: &str = include_str!("barrier.c");
/// Threads, and calls of a run. With more threads than processors each call has switches of the kernel.
const RUNS: [(u32, u64); 2] = [(2, 100_000), (8, 5_000)];
/// Calls that are not timed.
const CALLS_BEFORE: u64 = 100;

/// A job of a process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct MeetingJob {
    path: PathBuf,
    threads: u32,
    calls: u64,
}

/// Runs a job: empty calls of all threads; the time is that of the first one.
pub(crate) fn run(job: &MeetingJob) -> Result<JobOutcome, BenchError> {
    let failed = |error: pario::team::TeamError| BenchError::Worker(error.to_string());
    let options = TeamOptions::default().create(true).write(true);
    let file = TeamFile::open(&job.path, &options).map_err(failed)?;
    let thread = |number: u32| {
        let member = || file.at(Position::of(number, job.threads));
        let calls = |count: u64| {
            let mut calls = (0..count).map(|_| member().write_all(&[], Hint::Contiguous).map(drop));
            calls.try_for_each(|done| done)
        };
        calls(CALLS_BEFORE)?;
        let began = BenchTimer::now();
        calls(job.calls).map(|()| began.elapsed())
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let thread = &thread;
        let threads: Vec<_> = (0..job.threads).map(|number| scope.spawn(move || thread(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("calls return errors")).collect()
    });
    let times = results.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let counts = file.counts();
    file.close().map_err(failed)?;
    Ok(JobOutcome {
        seconds: times[0].as_secs_f64(),
        calls: job.calls,
        counts: [("waits".to_owned(), counts.waits)].into(),
        ..JobOutcome::default()
    })
}

/// Adds `meeting_vs_barrier`, `meeting_vs_barrier_8`, and the times of a call.
pub(super) fn bench(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let barrier = compile(bench.testbed.dir())?;
    if barrier.is_none() {
        bench.note("no C compiler with OpenMP (cc -fopenmp): the barrier of the runtime is left out");
    }
    for (threads, calls) in RUNS {
        let calls = if bench.plan.quick { calls / 10 } else { calls };
        let path = bench.testbed.dir().join("meeting");
        let job = BenchJob::Meeting(MeetingJob { path, threads, calls });
        let (mut versus, mut call_us, mut barrier_us) = (Versus::default(), Vec::new(), Vec::new());
        let micros = |seconds: f64| seconds * 1e6 / f64::from(u32::try_from(calls).unwrap_or(u32::MAX));
        for pair in 0..=bench.plan.pairs {
            bench.progress.step(
                &format!("meetings of {threads} threads, pair"),
                pair.saturating_sub(1),
                bench.plan.pairs,
            );
            let theirs =
                barrier.as_deref().map(|program| run_barrier(program, threads, calls)).transpose()?;
            let ours = Worker::start(&bench.testbed.registry_path(), &[])?.run_job(&job)?.seconds;
            // The first pair is not counted: programs are read from the disk.
            if pair == 0 {
                continue;
            }
            call_us.push(micros(ours));
            if let Some(theirs) = theirs {
                versus.pair(theirs, ours);
                barrier_us.push(micros(theirs));
            }
        }
        let suffix = if threads == 2 { String::new() } else { format!("_{threads}") };
        if !barrier_us.is_empty() {
            let note =
                format!("{threads} threads, {calls} calls; speed of an empty call by that of a barrier");
            bench.add(&format!("meeting_vs_barrier{suffix}"), versus.ratio(), Goal::AtLeast(0.6), note);
            bench.add(
                &format!("barrier_us{suffix}"),
                Figure::of(&barrier_us, "µs"),
                Goal::None,
                "OpenMP runtime",
            );
        }
        bench.add(&format!("meeting_us{suffix}"), Figure::of(&call_us, "µs"), Goal::None, "empty write_all");
    }
    Ok(())
}

/// Compiles the barrier; `None` if there is no compiler for it.
fn compile(dir: &Path) -> Result<Option<PathBuf>, BenchError> {
    let (source, program) = (dir.join("barrier.c"), dir.join("barrier"));
    std::fs::write(&source, BARRIER).map_err(BenchError::at("writing", &source))?;
    let mut command = Command::new("cc");
    let compiled = command.args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(&source).output();
    Ok(compiled.is_ok_and(|output| output.status.success()).then_some(program))
}

fn run_barrier(program: &Path, threads: u32, calls: u64) -> Result<f64, BenchError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let policy = if threads as usize <= processors { "active" } else { "passive" };
    let output = Command::new(program)
        .args([calls.to_string(), threads.to_string()])
        .env("OMP_WAIT_POLICY", policy)
        .env("OMP_DYNAMIC", "false")
        .output()
        .map_err(BenchError::at("running", program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().ok().filter(|_| output.status.success()).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        BenchError::Worker(format!("the barrier ended with {}: {}", output.status, error.trim()))
    })
}
