//! Copying files between this machine and partitions, in parallel, verified when wished.
//!
//! ```text
//!  walk ─► jobs ─► workers: open ─► pieces, several at once ─► close ─► rename
//! ```
//! Never: leaves a file that looks whole but is not: data goes under a temporary name, and the name is given last. Always:
//! holes stay holes; a failure of one file does not stop the others, unless it is a server that is gone.

mod crew;
mod data;
mod file;
mod holes;
mod plan;
mod progress;
mod stream;
mod verify;
mod walk;

pub(crate) use data::Source;
pub(crate) use plan::pair;
pub(crate) use progress::Progress;
pub(crate) use stream::{copy_stream, is_standard_name, is_standard_output, is_stream};
pub(crate) use verify::verify;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use crate::error::{CliError, Outcome};
use crate::place::Place;
use crate::signals::Stop;

/// Bytes that one worker moves at a time.
pub(crate) const PIECE_BYTES: u64 = 4 << 20;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOptions {
    /// Trees, too; symbolic links in them are copied as links.
    pub(crate) recursive: bool,
    /// Owner and times, too.
    pub(crate) preserve: bool,
    /// Each file is on stable storage before it gets its name.
    pub(crate) durable: bool,
    /// Pieces under way at the same time.
    pub(crate) jobs: usize,
}

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions { recursive: false, preserve: false, durable: false, jobs: default_jobs() }
    }
}

/// Enough to keep several servers busy, without drowning a small machine.
pub(crate) fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| (2 * cores.get()).clamp(4, 16))
}

/// One thing to copy, and where to.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// What.
    pub(crate) from: Place,
    /// Its new place itself, not the directory that it goes into.
    pub(crate) to: Place,
}

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Copied {
    /// Files.
    pub(crate) files: u64,
    /// Directories.
    pub(crate) directories: u64,
    /// Symbolic links.
    pub(crate) links: u64,
    /// Length of the files.
    pub(crate) bytes: u64,
    /// Of these, bytes that were holes.
    pub(crate) hole_bytes: u64,
}

/// Copies, and what went wrong in order of happening; `Err` only if a signal stopped it.
pub(crate) fn copy(
    pairs: &[Pair],
    options: CopyOptions,
    progress: &Progress,
    stop: &Stop,
) -> Outcome<(Copied, Vec<CliError>)> {
    let run = Run::new(options, progress, stop);
    crew::work(&run, |jobs| {
        for pair in pairs {
            walk::walk(&run, pair, jobs);
        }
    });
    walk::finish_directories(&run);
    stop.check()?;
    Ok((run.count.copied(), run.failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)))
}

/// State of one copy, shared by its threads.
#[derive(Debug)]
struct Run<'a> {
    options: CopyOptions,
    progress: &'a Progress,
    stop: &'a Stop,
    count: Count,
    failures: Mutex<Vec<CliError>>,
    /// A server is gone: other files would fail alike.
    gave_up: AtomicBool,
    /// Directories whose bits and times are set when everything in them is there.
    directories: Mutex<Vec<walk::Directory>>,
}

#[derive(Debug, Default)]
struct Count {
    files: AtomicU64,
    directories: AtomicU64,
    links: AtomicU64,
    bytes: AtomicU64,
    hole_bytes: AtomicU64,
}

impl Count {
    fn copied(&self) -> Copied {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Copied {
            files: load(&self.files),
            directories: load(&self.directories),
            links: load(&self.links),
            bytes: load(&self.bytes),
            hole_bytes: load(&self.hole_bytes),
        }
    }
}

impl<'a> Run<'a> {
    fn new(options: CopyOptions, progress: &'a Progress, stop: &'a Stop) -> Run<'a> {
        let (failures, directories) = (Mutex::default(), Mutex::default());
        let (count, gave_up) = (Count::default(), AtomicBool::new(false));
        Run { options, progress, stop, count, failures, gave_up, directories }
    }

    /// Keeps a failure; an interruption is told once, at the end, and a server that is gone once, at first.
    fn fail(&self, error: CliError) {
        if matches!(error, CliError::Interrupted { .. } | CliError::Told { .. }) {
            return;
        }
        if error.is_server_gone() && self.gave_up.swap(true, Ordering::AcqRel) {
            return;
        }
        self.failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(error);
    }

    /// Fails when the copy shall end: a signal came, or a server is gone, which has been told.
    fn check(&self) -> Outcome {
        self.stop.check()?;
        if self.gave_up.load(Ordering::Acquire) {
            return Err(CliError::Told { code: crate::error::EXIT_FAILED });
        }
        Ok(())
    }

    fn keep_directory(&self, directory: walk::Directory) {
        self.directories.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(directory);
    }
}
