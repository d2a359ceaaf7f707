//! Jobs of a process of `pario bench team`, and the threads that carry them out.
//!
//! Always: threads start together; times run from the first open to the last close, with computing counted apart; a thread that fails
//! meets the others all the same, so that none waits for it.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use pario::Partition;
use serde::{Deserialize, Serialize};

use super::open::{OpenedFiles, TeamAccess};
use super::pattern::{TeamPattern, ThreadPart};
use super::side::TeamSide;
use crate::clock::BenchTimer;
use crate::error::BenchError;
use crate::job::{JobOutcome, JobState};
use crate::kernel::stencil::Stencil;

/// What is done with the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum TeamWork {
    /// Write new ones.
    Write,
    /// Read them.
    Read,
    /// Write new ones with every byte filled, and check every byte.
    Verify,
    /// Remove them.
    Remove,
    /// Make plain files of containers.
    Flatten,
}

/// A job of a process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct TeamJob {
    pub(crate) work: TeamWork,
    pub(crate) side: TeamSide,
    pub(crate) pattern: TeamPattern,
    pub(crate) threads: u32,
    /// Files, one after the other.
    pub(crate) files: u32,
    /// Plain files and containers begin with this path.
    pub(crate) path: PathBuf,
    pub(crate) partition: String,
    /// Settings of the team, as in `PARIO_TEAM`.
    pub(crate) settings: String,
    /// Whether files are synced before they are closed.
    pub(crate) sync: bool,
    /// Sweeps of computing before each call, by each thread.
    pub(crate) sweeps: u64,
    /// Whether only the second half of the calls is timed.
    pub(crate) steady: bool,
}

/// Times of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadTimes {
    compute: Duration,
    /// Inside calls.
    inside: Duration,
    /// The second half of the calls.
    steady: Duration,
}

/// What the threads of a job share.
struct TeamRun<'a> {
    job: &'a TeamTask<'a>,
    meeting: Barrier,
    opened: Mutex<Option<Result<OpenedFiles, String>>>,
}

/// A job with the mounted partition of its side.
pub(super) struct TeamTask<'a> {
    job: &'a TeamJob,
    pub(super) partition: Option<Partition>,
}

impl Deref for TeamTask<'_> {
    type Target = TeamJob;

    fn deref(&self) -> &TeamJob {
        self.job
    }
}

/// Runs a job.
pub(crate) fn run(state: &mut JobState, job: &TeamJob) -> Result<JobOutcome, BenchError> {
    let is_partition = job.side == TeamSide::Partition;
    let partition = is_partition.then(|| state.mount(&job.partition)).transpose()?;
    let job = &TeamTask { job, partition };
    match job.work {
        TeamWork::Write | TeamWork::Verify => {
            let outcome = in_threads(job, TeamAccess::Write)?;
            if job.work == TeamWork::Verify {
                (0..job.files).try_for_each(|file| super::open::check(job, file))?;
            }
            Ok(outcome)
        }
        TeamWork::Read => in_threads(job, TeamAccess::Read),
        TeamWork::Remove => {
            (0..job.files).try_for_each(|file| super::open::remove(job, file))?;
            Ok(JobOutcome::default())
        }
        TeamWork::Flatten => super::open::flatten(job),
    }
}

fn in_threads(job: &TeamTask<'_>, access: TeamAccess) -> Result<JobOutcome, BenchError> {
    let run = TeamRun { job, meeting: Barrier::new(job.threads as usize), opened: Mutex::new(None) };
    let results: Vec<Result<(Duration, ThreadTimes), BenchError>> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            (0..job.threads).map(|thread| scope.spawn(move || run.thread(thread, access))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic ends the process")).collect()
    });
    let times = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (total, first) = times[0];
    let sum = |from: usize| times[from.min(times.len())..].iter().map(|(_, thread)| thread.inside).sum();
    let inside: Duration = sum(0);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let behind: Duration = sum(INACTIVE_FROM);
    let seconds = if job.steady { first.steady } else { total };
    Ok(JobOutcome {
        seconds: seconds.as_secs_f64(),
        calls_seconds: total.saturating_sub(first.compute).as_secs_f64(),
        calls: job.pattern.calls() * u64::from(job.threads) * u64::from(job.files),
        counts: [("inside_ns".to_owned(), nanos(inside)), ("inactive_ns".to_owned(), nanos(behind))].into(),
    })
}

/// First thread that is not active where two are.
const INACTIVE_FROM: usize = 2;

/// Ends the process if its thread panics: the others would wait for it.
struct PanicGuard;

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl TeamRun<'_> {
    fn thread(&self, thread: u32, access: TeamAccess) -> Result<(Duration, ThreadTimes), BenchError> {
        let _guard = PanicGuard;
        let job = self.job;
        let part = job.pattern.part(thread, job.threads);
        let mut buffer = Vec::new();
        if let Ok(part) = &part {
            // One thread that writes for all has a buffer for all.
            let bytes = usize::try_from(job.pattern.step_bytes(job.threads)).unwrap_or(usize::MAX);
            buffer = vec![0xA5; if job.side == TeamSide::Serial { bytes } else { part.bytes() }];
            part.fill_first(job, thread, &mut buffer);
        }
        let mut stencil = Stencil::new();
        let mut times = ThreadTimes::default();
        let mut failed = None;
        self.meeting.wait();
        let began = BenchTimer::now();
        for file in 0..job.files {
            if thread == 0 {
                let opened = OpenedFiles::open(job, file, access).map_err(|error| error.to_string());
                *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
            }
            self.meeting.wait();
            let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let worked = match (&part, opened) {
                (Ok(part), Some(Ok(files))) => {
                    let mut worker = ThreadWork { job, thread, part, files: &files, access };
                    worker.calls(&mut buffer, &mut stencil, &mut times)
                }
                (Err(error), _) => Err(BenchError::Worker(error.to_string())),
                (_, Some(Err(error))) => Err(BenchError::Worker(error)),
                (_, None) => Err(BenchError::Worker("no file was opened".to_owned())),
            };
            self.meeting.wait();
            failed = failed.or(worked.err());
            if thread == 0 {
                let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
                let closed =
                    opened.map_or(Ok(()), |opened| opened.map_or(Ok(()), |files| files.close(job, file)));
                failed = failed.or(closed.err());
            }
        }
        let total = began.elapsed();
        failed.map_or(Ok((total, times)), Err)
    }
}

impl ThreadPart {
    /// The bytes of the first call; of all threads if one writes for all.
    fn fill_first(&self, job: &TeamJob, thread: u32, buffer: &mut [u8]) {
        if job.side == TeamSide::Serial && thread == 0 {
            crate::kernel::data::fill_run(buffer, 0);
        } else if job.side != TeamSide::Serial {
            self.fill(buffer, 0);
        }
    }
}

/// The calls of one thread on one file.
struct ThreadWork<'a> {
    job: &'a TeamTask<'a>,
    thread: u32,
    part: &'a ThreadPart,
    files: &'a OpenedFiles,
    access: TeamAccess,
}

impl ThreadWork<'_> {
    fn calls(
        &mut self,
        buffer: &mut [u8],
        stencil: &mut Stencil,
        times: &mut ThreadTimes,
    ) -> Result<(), BenchError> {
        let calls = self.job.pattern.calls();
        // A clock is read in each call only where its time is wanted: it costs as much as a small call.
        let is_timed = 0 < self.job.sweeps || self.job.steady;
        let mut half = None;
        let mut result = Ok(());
        for call in 0..calls {
            if 0 < self.job.sweeps {
                let began = BenchTimer::now();
                stencil.sweep(self.job.sweeps);
                times.compute += began.elapsed();
            }
            if call == calls / 2 && self.job.steady {
                half = Some(BenchTimer::now());
            }
            let began = is_timed.then(BenchTimer::now);
            let done = self.call(call, buffer);
            times.inside += began.map_or(Duration::ZERO, BenchTimer::elapsed);
            result = result.and(done);
            // Threads in order would wait for one that gives up; the others of a team have the same result.
            if result.is_err() && self.job.side.is_team() {
                break;
            }
        }
        times.steady = half.map_or(Duration::ZERO, BenchTimer::elapsed);
        result
    }

    fn call(&mut self, call: u64, buffer: &mut [u8]) -> Result<(), BenchError> {
        let is_serial = self.job.side == TeamSide::Serial;
        if is_serial && self.thread != 0 {
            return Ok(());
        }
        match self.access {
            TeamAccess::Write => {
                if self.job.work == TeamWork::Verify {
                    if is_serial {
                        crate::kernel::data::fill_run(buffer, self.part.ahead(call));
                    } else {
                        self.part.fill(buffer, call);
                    }
                } else if !matches!(self.job.pattern, TeamPattern::Common { .. }) {
                    self.part.stamp(buffer, call);
                }
                self.files.write(self.job, (self.thread, call), self.part, buffer)
            }
            TeamAccess::Read => {
                self.files.read(self.job, (self.thread, call), self.part, buffer)?;
                let is_common = matches!(self.job.pattern, TeamPattern::Common { .. });
                if is_common || self.part.is_stamped(buffer, call) {
                    return Ok(());
                }
                let (side, thread) = (self.job.side.word(), self.thread);
                let text = format!("{side}: thread {thread} read in call {call} what was not written there");
                Err(BenchError::Wrong(text))
            }
        }
    }
}
