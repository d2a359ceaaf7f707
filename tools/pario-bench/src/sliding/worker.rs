//! One process of `pario bench sliding`: each window is read, checked, changed and written.
//!
//! Always: the clock runs from open to close; an inconsistent page ends the run.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use pario::core::Code;
use pario::file_lock::{LockKind, lock_range};
use pario::{CacheOptions, Group, GroupFile};
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::JobOutcome;
use super::pattern::{PageStamp, SeenStamps, SlidingPattern, WINDOW_PAGES};
use super::side::SlidingSide;
use crate::clock::BenchTimer;

/// A job of a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SlidingJob {
    pub(super) side: SlidingSide,
    pub(super) pattern: SlidingPattern,
    pub(super) path: PathBuf,
    /// Memory of the cache on each node.
    pub(super) cache_bytes: u64,
    /// Open and close only, to test for support.
    pub(super) only_open: bool,
}

/// Name of an unsupported side in an outcome.
pub(super) const UNSUPPORTED: &str = "unsupported";

/// Runs the job.
pub(crate) fn run(job: &SlidingJob) -> Result<JobOutcome, BenchError> {
    let group = pario::group::from_env()?;
    let group =
        group.ok_or_else(|| BenchError::Worker("a process was not invited to its group".to_owned()))?;
    let mut window = vec![0; usize::try_from(job.pattern.window_bytes()).unwrap_or(usize::MAX)];
    // Touched before the clock starts, as by a computation.
    PageStamp::First(0).fill(&mut window);
    group.barrier()?;
    let began = BenchTimer::now();
    let target = match WindowFile::open(&group, job) {
        Err(BenchError::Pario(error)) if error.code() == Code::Unsupported && job.only_open => {
            return Ok(JobOutcome { counts: [(UNSUPPORTED.to_owned(), 1)].into(), ..JobOutcome::default() });
        }
        opened => opened?,
    };
    if !job.only_open {
        slide(&target, job, group.rank() as u64, &mut window)?;
    }
    let counts = target.counts();
    target.close()?;
    // While a file is open on any rank, its underlying file must stay open.
    group.barrier()?;
    let seconds = began.elapsed().as_secs_f64();
    group.leave();
    Ok(JobOutcome { seconds, calls: 2 * job.pattern.turns(), counts, ..JobOutcome::default() })
}

fn slide(target: &WindowFile, job: &SlidingJob, rank: u64, window: &mut [u8]) -> Result<(), BenchError> {
    let pattern = job.pattern;
    let mut seen = SeenStamps::new(pattern, rank, job.side.whole());
    let page_bytes = usize::try_from(pattern.page_bytes).unwrap_or(usize::MAX);
    for turn in 0..pattern.turns() {
        let first = pattern.window(rank, turn);
        seen.forget_before(first / pattern.processes * pattern.processes);
        target.read(first * pattern.page_bytes, window)?;
        for (page, bytes) in (first..first + WINDOW_PAGES).zip(window.chunks_exact_mut(page_bytes)) {
            seen.check(turn, page, bytes).map_err(|why| {
                BenchError::Wrong(format!("{}: page {page}, read by rank {rank}: {why}", job.side.word()))
            })?;
            PageStamp::Written { rank, turn }.fill(bytes);
        }
        target.write(first * pattern.page_bytes, window)?;
    }
    Ok(())
}

/// Checks the final contents.
pub(super) fn check_end(pattern: &SlidingPattern, way: SlidingSide, file: &File) -> Result<(), BenchError> {
    let mut bytes = vec![0; usize::try_from(pattern.page_bytes).unwrap_or(usize::MAX)];
    for page in 0..pattern.pages() {
        file.read_exact_at(&mut bytes, page * pattern.page_bytes)
            .map_err(BenchError::when("reading what was left"))?;
        pattern
            .check_end(page, &bytes, way.whole())
            .map_err(|why| BenchError::Wrong(format!("{}: page {page}, at the end: {why}", way.word())))?;
    }
    Ok(())
}

/// An open file.
enum WindowFile {
    Cached(Box<GroupFile>),
    Plain(File, SlidingSide),
}

impl WindowFile {
    fn open(group: &Arc<dyn Group>, job: &SlidingJob) -> Result<WindowFile, BenchError> {
        let Some(placement) = job.side.placement() else {
            let file = File::options().read(true).write(true).open(&job.path);
            let file = file.map_err(BenchError::at("opening", &job.path))?;
            return Ok(WindowFile::Plain(file, job.side));
        };
        // As in the paper: pages of the cache are pages of the file, each with its own home.
        let page = Some(job.pattern.page_bytes);
        let options = CacheOptions {
            cache_bytes: job.cache_bytes,
            block_bytes: page,
            stripe_bytes: page,
            placement,
            ..CacheOptions::default()
        };
        Ok(WindowFile::Cached(Box::new(pario::open_cached(group, &job.path, &options)?)))
    }

    fn read(&self, offset: u64, window: &mut [u8]) -> Result<(), BenchError> {
        match self {
            WindowFile::Cached(file) => {
                let count = file.read_at(offset, window)?;
                if count == window.len() {
                    return Ok(());
                }
                Err(BenchError::Wrong(format!("{count} of {} bytes were at {offset}", window.len())))
            }
            WindowFile::Plain(file, way) => {
                let _held = hold(file, *way, LockKind::Read, (offset, window.len()))?;
                file.read_exact_at(window, offset).map_err(BenchError::when("reading a window"))
            }
        }
    }

    fn write(&self, offset: u64, window: &[u8]) -> Result<(), BenchError> {
        match self {
            WindowFile::Cached(file) => Ok(file.write_at(offset, window)?),
            WindowFile::Plain(file, way) => {
                let _held = hold(file, *way, LockKind::Write, (offset, window.len()))?;
                file.write_all_at(window, offset).map_err(BenchError::when("writing a window"))
            }
        }
    }

    /// Messages of this process, and counters of its cache; empty without one.
    fn counts(&self) -> BTreeMap<String, u64> {
        let WindowFile::Cached(file) = self else { return BTreeMap::new() };
        let sent = serde_json::to_value(file.counts()).expect("counts are plain data");
        let done = serde_json::to_value(file.cache_stats()).expect("counts are plain data");
        let numbers = |counts| {
            serde_json::from_value::<Option<BTreeMap<String, u64>>>(counts)
                .expect("counts are numbers by name")
        };
        let named = |prefix: &'static str, counts| {
            numbers(counts).into_iter().flatten().map(move |(name, count)| (format!("{prefix}{name}"), count))
        };
        named("", sent).chain(named("cache_", done)).collect()
    }

    fn close(self) -> Result<(), BenchError> {
        match self {
            WindowFile::Cached(file) => Ok(file.close()?),
            WindowFile::Plain(..) => Ok(()),
        }
    }
}

/// The lock around an access, if any.
fn hold(
    file: &File,
    way: SlidingSide,
    kind: LockKind,
    (offset, bytes): (u64, usize),
) -> Result<Option<pario::file_lock::RangeGuard<'_>>, BenchError> {
    if way != SlidingSide::RangeLocks {
        return Ok(None);
    }
    let held = lock_range(file.as_fd(), kind, offset..offset + bytes as u64);
    held.map(Some).map_err(BenchError::when("locking a window"))
}
