//! The benchmarks of `pario tune`: saturation size and number of threads of a directory's file system.
//!
//! First one thread writes with calls of 8 KiB, doubled up to the largest size that fits; then 1, 2, 4 … threads write with calls of the
//! saturation size, into one file, into a file each, and into a container. Every measurement ends with a sync; the best of its passes counts.
//!
//! ```text
//!  MeasurePlan ─► run: points, each a file that is written and removed ─► Measurements ─► choose (pure) ─► TeamSettings ─► keep: team.toml
//! ```
//! Never: leaves a file behind, also when it is stopped; takes more than half of the free space. Always: a point that has no room ends its
//! series with a note.

mod choose;
mod keep;
mod point;
mod room;
mod run;

use std::io;
use std::path::{Path, PathBuf};

pub use choose::choose;
pub use keep::{keep, kept_path};
pub use run::run;

/// Smallest call that is measured.
const CALL_BYTES_MIN: u64 = 8 << 10;
/// Bytes of a measurement with smaller calls.
const POINT_BYTES: u64 = 64 << 20;

/// What is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeasurePlan {
    /// A directory on the file system.
    pub directory: PathBuf,
    /// Largest call, and largest file; less if the file system or the memory has no room for it.
    pub bytes_max: u64,
    /// Largest number of threads.
    pub threads_max: u32,
    /// Repetitions of each measurement; the fastest counts.
    pub passes: u32,
}

/// Follows the measurements, and may end them.
pub trait MeasureObserver: Sync {
    /// `bytes` more are going to be written.
    fn planned(&self, bytes: u64);

    /// `bytes` of them have been written.
    fn written(&self, bytes: u64);

    /// Whether the measurements must end.
    fn is_stopped(&self) -> bool;
}

/// Files that several threads write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileLayout {
    /// One plain file.
    OneFile,
    /// A plain file for each thread.
    SeparateFiles,
    /// One container.
    Container,
}

impl FileLayout {
    /// In the order of the table.
    pub const ALL: [FileLayout; 3] = [FileLayout::OneFile, FileLayout::SeparateFiles, FileLayout::Container];

    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            FileLayout::OneFile => "one file",
            FileLayout::SeparateFiles => "separate files",
            FileLayout::Container => "container",
        }
    }
}

/// The speed of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizePoint {
    /// Bytes of each call.
    pub call_bytes: u64,
    /// Bytes per second.
    pub bytes_s: u64,
}

/// The speed of several threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadPoint {
    /// How many.
    pub threads: u32,
    /// What they write.
    pub layout: FileLayout,
    /// Bytes per second of all together.
    pub bytes_s: u64,
}

/// What was measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measurements {
    /// One thread, by size of the calls.
    pub sizes: Vec<SizePoint>,
    /// Several threads with calls of the saturation size.
    pub threads: Vec<ThreadPoint>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The observer ended it.
    #[error("stopped")]
    Stopped,
    /// The file system failed.
    #[error("{}: {source}", path.display())]
    Local {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The settings file is wrong.
    #[error("{0}")]
    Settings(String),
}

impl MeasureError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> MeasureError + '_ {
        move |source| MeasureError::Local { path: path.to_owned(), source }
    }

    /// Whether the file system is full, or the quota is used up.
    fn is_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, MeasureError::Local { source, .. } if full.contains(&source.kind()))
    }
}
