//! A copy of files and trees: options, totals, and the state shared by its threads.
//!
//! Always: a failure of one file does not stop the others, unless a server is unreachable.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::{Observer, TransferError, TransferResult, TreePath, walk, workers};

/// Bytes moved by one worker at a time.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Permission bits of a copy without `preserve`: it belongs to the copying user, so setuid and setgid are dropped.
pub(super) const PLAIN_MODE_BITS: u32 = 0o1777;

/// Options of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyOptions {
    /// Trees, too; symbolic links in them are copied as links.
    pub recursive: bool,
    /// Owner, times, setuid and setgid bits, too.
    pub preserve: bool,
    /// Handling of existing targets.
    pub replace: Replace,
    /// Each file is on stable storage before it gets its name.
    pub durable: bool,
    /// Pieces in flight concurrently.
    pub jobs: usize,
}

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions {
            recursive: false,
            preserve: false,
            replace: Replace::Always,
            durable: false,
            jobs: default_jobs(),
        }
    }
}

/// When an existing file or link is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    /// Always.
    Always,
    /// If the source was modified later.
    Older,
    /// Never.
    Never,
}

/// Enough to keep several servers busy without overloading a small machine.
pub fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| (2 * cores.get()).clamp(4, 16))
}

/// A source and its target.
#[derive(Clone, Debug)]
pub struct CopyPair {
    /// The source.
    pub from: TreePath,
    /// The target path itself, not its directory.
    pub to: TreePath,
}

/// Totals of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Copied {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Files and links skipped by the options.
    pub skipped: u64,
    /// Length of the files.
    pub bytes: u64,
    /// Of these, bytes that were holes.
    pub hole_bytes: u64,
}

/// Result of a copy.
#[derive(Debug)]
pub struct CopyReport {
    /// The totals.
    pub copied: Copied,
    /// Failed files and directories, in order.
    pub failures: Vec<TransferError>,
}

/// Copies each pair; `Err` only if the observer stopped it.
pub fn copy(pairs: &[CopyPair], options: CopyOptions, observer: &dyn Observer) -> TransferResult<CopyReport> {
    let run = CopyRun::new(options, observer);
    workers::work(&run, |jobs| {
        for pair in pairs {
            walk::walk(&run, pair, jobs);
        }
    });
    walk::finish_directories(&run);
    run.check_stopped()?;
    let failures = run.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(CopyReport { copied: run.count.copied(), failures })
}

/// State of one copy, shared by its threads.
pub(super) struct CopyRun<'a> {
    pub(super) options: CopyOptions,
    pub(super) observer: &'a dyn Observer,
    pub(super) count: CopyCounters,
    failures: Mutex<Vec<TransferError>>,
    /// A server is unreachable: other files would also fail.
    gave_up: AtomicBool,
    /// Directories that get their attributes after all their entries are copied.
    pub(super) directories: Mutex<Vec<walk::MadeDirectory>>,
}

/// Counters behind [`Copied`].
#[derive(Debug, Default)]
pub(super) struct CopyCounters {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) links: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) hole_bytes: AtomicU64,
}

impl CopyCounters {
    fn copied(&self) -> Copied {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Copied {
            files: load(&self.files),
            directories: load(&self.directories),
            links: load(&self.links),
            skipped: load(&self.skipped),
            bytes: load(&self.bytes),
            hole_bytes: load(&self.hole_bytes),
        }
    }
}

impl fmt::Debug for CopyRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("options", &self.options)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl<'a> CopyRun<'a> {
    fn new(options: CopyOptions, observer: &'a dyn Observer) -> CopyRun<'a> {
        let (failures, directories) = (Mutex::default(), Mutex::default());
        let (count, gave_up) = (CopyCounters::default(), AtomicBool::new(false));
        CopyRun { options, observer, count, failures, gave_up, directories }
    }

    /// Records a failure; a stop is reported once, at the end, and an unreachable server once, immediately.
    pub(super) fn fail(&self, error: TransferError) {
        if matches!(error, TransferError::Stopped) {
            return;
        }
        if error.is_server_gone() && self.gave_up.swap(true, Ordering::AcqRel) {
            return;
        }
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    /// Fails if the observer stopped the copy.
    pub(super) fn check_stopped(&self) -> TransferResult {
        if self.observer.is_stopped() { Err(TransferError::Stopped) } else { Ok(()) }
    }

    /// Fails if the copy must end: it was stopped, or a server is unreachable.
    pub(super) fn check(&self) -> TransferResult {
        if self.gave_up.load(Ordering::Acquire) { Err(TransferError::Stopped) } else { self.check_stopped() }
    }

    pub(super) fn keep_directory(&self, directory: walk::MadeDirectory) {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).push(directory);
    }
}
