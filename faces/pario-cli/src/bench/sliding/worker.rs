//! What a process of `pario bench sliding` does: goes through its windows, each read, checked, changed and written.
//!
//! Always: the clock runs from open to close; a page that cannot be what was written ends the run.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use pario::core::Code;
use pario::file_lock::{LockKind, lock_range};
use pario::{Group, GroupFile, SharedOptions};
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::Outcome;
use super::pattern::{Pattern, Seen, Stamp, WINDOW_PAGES};
use super::way::Way;
use crate::clock::Began;

/// What a worker is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SlidingJob {
    pub(super) way: Way,
    pub(super) pattern: Pattern,
    pub(super) path: PathBuf,
    /// Memory of the cache on each node.
    pub(super) cache_bytes: u64,
    /// Open and close only, to see whether it can be done.
    pub(super) only_open: bool,
}

/// How an outcome says that something is not there.
pub(super) const UNSUPPORTED: &str = "unsupported";

/// Does it.
pub(crate) fn run(job: &SlidingJob) -> Result<Outcome, BenchError> {
    let group = pario::group::from_env()?;
    let group =
        group.ok_or_else(|| BenchError::Worker("a process was not invited to its group".to_owned()))?;
    let mut window = vec![0; usize::try_from(job.pattern.window_bytes()).unwrap_or(usize::MAX)];
    // Touched before the clock runs, as a computation's memory would be.
    Stamp::First(0).fill(&mut window);
    group.barrier()?;
    let began = Began::now();
    let target = match Target::open(&group, job) {
        Err(BenchError::Pario(error)) if error.code() == Code::Unsupported && job.only_open => {
            return Ok(Outcome { counts: [(UNSUPPORTED.to_owned(), 1)].into(), ..Outcome::default() });
        }
        opened => opened?,
    };
    if !job.only_open {
        slide(&target, job, group.rank() as u64, &mut window)?;
    }
    let counts = target.counts();
    target.close()?;
    // As long as a file is open anywhere it may not be closed down below.
    group.barrier()?;
    let seconds = began.elapsed().as_secs_f64();
    group.leave();
    Ok(Outcome { seconds, calls: 2 * job.pattern.turns(), counts, ..Outcome::default() })
}

fn slide(target: &Target, job: &SlidingJob, rank: u64, window: &mut [u8]) -> Result<(), BenchError> {
    let pattern = job.pattern;
    let mut seen = Seen::new(pattern, rank, job.way.whole());
    let page_bytes = usize::try_from(pattern.page_bytes).unwrap_or(usize::MAX);
    for turn in 0..pattern.turns() {
        let first = pattern.window(rank, turn);
        seen.forget_before(first / pattern.processes * pattern.processes);
        target.read(first * pattern.page_bytes, window)?;
        for (page, bytes) in (first..first + WINDOW_PAGES).zip(window.chunks_exact_mut(page_bytes)) {
            seen.check(turn, page, bytes).map_err(|why| {
                BenchError::Wrong(format!("{}: page {page}, read by rank {rank}: {why}", job.way.word()))
            })?;
            Stamp::Written { rank, turn }.fill(bytes);
        }
        target.write(first * pattern.page_bytes, window)?;
    }
    Ok(())
}

/// Checks what all processes together left.
pub(super) fn check_end(pattern: &Pattern, way: Way, file: &File) -> Result<(), BenchError> {
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
enum Target {
    Cached(Box<GroupFile>),
    Plain(File, Way),
}

impl Target {
    fn open(group: &Arc<dyn Group>, job: &SlidingJob) -> Result<Target, BenchError> {
        let Some(placement) = job.way.placement() else {
            let file = File::options().read(true).write(true).open(&job.path);
            let file = file.map_err(BenchError::at("opening", &job.path))?;
            return Ok(Target::Plain(file, job.way));
        };
        // As in the paper: pages of the cache are pages of the file, each with a home of its own.
        let page = Some(job.pattern.page_bytes);
        let options = SharedOptions {
            cache_bytes: job.cache_bytes,
            block_bytes: page,
            stripe_bytes: page,
            placement,
            ..SharedOptions::default()
        };
        Ok(Target::Cached(Box::new(pario::open_shared(group, &job.path, &options)?)))
    }

    fn read(&self, offset: u64, window: &mut [u8]) -> Result<(), BenchError> {
        match self {
            Target::Cached(file) => {
                let count = file.read_at(offset, window)?;
                if count == window.len() {
                    return Ok(());
                }
                Err(BenchError::Wrong(format!("{count} of {} bytes were at {offset}", window.len())))
            }
            Target::Plain(file, way) => {
                let _held = hold(file, *way, LockKind::Read, (offset, window.len()))?;
                file.read_exact_at(window, offset).map_err(BenchError::when("reading a window"))
            }
        }
    }

    fn write(&self, offset: u64, window: &[u8]) -> Result<(), BenchError> {
        match self {
            Target::Cached(file) => Ok(file.write_at(offset, window)?),
            Target::Plain(file, way) => {
                let _held = hold(file, *way, LockKind::Write, (offset, window.len()))?;
                file.write_all_at(window, offset).map_err(BenchError::when("writing a window"))
            }
        }
    }

    /// What this process sent, and what the cache in it did; nothing where there is none.
    fn counts(&self) -> BTreeMap<String, u64> {
        let Target::Cached(file) = self else { return BTreeMap::new() };
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
            Target::Cached(file) => Ok(file.close()?),
            Target::Plain(..) => Ok(()),
        }
    }
}

/// The lock around an access, where there is one.
fn hold(
    file: &File,
    way: Way,
    kind: LockKind,
    (offset, bytes): (u64, usize),
) -> Result<Option<pario::file_lock::RangeGuard<'_>>, BenchError> {
    if way != Way::RangeLocks {
        return Ok(None);
    }
    let held = lock_range(file.as_fd(), kind, offset..offset + bytes as u64);
    held.map(Some).map_err(BenchError::when("locking a window"))
}
