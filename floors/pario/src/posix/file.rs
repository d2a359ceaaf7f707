//! Paths and open file descriptions with the meaning of POSIX.
//!
//! Never: handles descriptor numbers or C structures. Always: an error is the POSIX error number.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pario_core::{FileAttr, FileKind};

use super::locks::DescriptionLocks;
use super::served::ServedCalls;
use crate::client::File;
use crate::error::Error;
use crate::handle::Partition;

/// Result of a call: a value, or an error number.
pub type Posix<T> = std::result::Result<T, i32>;

/// `EINVAL`, `EXDEV`.
const INVALID: i32 = 22;
const OTHER_DEVICE: i32 = 18;

/// A path in a partition.
#[derive(Debug)]
pub struct PosixPath {
    partition: Partition,
    path: PathBuf,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "POSIX's flags are independent")]
pub struct PosixMode {
    /// Reading is allowed.
    pub read: bool,
    /// Writing is allowed.
    pub write: bool,
    /// `O_CREAT`
    pub create: bool,
    /// `O_EXCL`
    pub exclusive: bool,
    /// `O_TRUNC`
    pub truncate: bool,
    /// `O_APPEND`
    pub append: bool,
    /// Permission bits.
    pub permissions: u32,
}

/// An open file with a position: POSIX's open file description. Duplicated descriptors share it.
#[derive(Debug)]
pub struct PosixFile {
    pub(super) file: File,
    name: String,
    pub(super) mode: PosixMode,
    append: AtomicBool,
    position: Mutex<u64>,
    pub(super) locks: DescriptionLocks,
    served: ServedCalls,
}

/// Origin of a seek.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The start.
    Start,
    /// The current position.
    Here,
    /// The end.
    End,
}

pub(super) fn number(error: &Error) -> i32 {
    error.errno()
}

/// Counts of calls on paths, which belong to no open file.
fn path_calls() -> &'static ServedCalls {
    static CALLS: OnceLock<ServedCalls> = OnceLock::new();
    // A wrong value is reported by the first open.
    CALLS.get_or_init(|| ServedCalls::by_environment().unwrap_or_default())
}

/// The program ends: reports the calls on paths.
pub fn report_paths() {
    path_calls().report_posix("paths");
}

impl PosixPath {
    /// A path in a partition.
    #[must_use]
    pub fn new(partition: Partition, path: PathBuf) -> PosixPath {
        PosixPath { partition, path }
    }

    /// `open`
    pub fn open(&self, mode: PosixMode) -> Posix<PosixFile> {
        let options = self.partition.options().read(mode.read).write(mode.write).create(mode.create);
        let options = options.create_new(mode.create && mode.exclusive).truncate(mode.truncate);
        let file = options.mode(mode.permissions).open(&self.path).map_err(|error| number(&error))?;
        let served = ServedCalls::by_environment().map_err(|error| number(&error))?;
        let opened = PosixFile {
            locks: DescriptionLocks::of(self.partition.name(), file.inode()),
            file,
            name: self.name(),
            mode,
            append: AtomicBool::new(mode.append),
            position: Mutex::new(0),
            served,
        };
        opened.served.note("open");
        Ok(opened)
    }

    /// Name, for messages.
    pub fn name(&self) -> String {
        format!("pario://{}/{}", self.partition.name(), self.path.display())
    }

    /// `stat`, or `lstat`
    pub fn stat(&self, follow: bool) -> Posix<FileAttr> {
        path_calls().note("stat");
        let found = match follow {
            true => self.partition.metadata(&self.path),
            false => self.partition.symlink_metadata(&self.path),
        };
        found.map_err(|error| number(&error))
    }

    /// `unlink`
    pub fn unlink(&self) -> Posix<()> {
        path_calls().note("unlink");
        self.partition.remove_file(&self.path).map_err(|error| number(&error))
    }

    /// `mkdir`
    pub fn mkdir(&self) -> Posix<()> {
        path_calls().note("mkdir");
        self.partition.create_dir(&self.path).map_err(|error| number(&error))
    }

    /// `rmdir`
    pub fn rmdir(&self) -> Posix<()> {
        path_calls().note("rmdir");
        self.partition.remove_dir(&self.path).map_err(|error| number(&error))
    }

    /// `truncate`
    pub fn truncate(&self, bytes: i64) -> Posix<()> {
        path_calls().note("truncate");
        let file = self.open(PosixMode { write: true, ..PosixMode::default() })?;
        file.truncate(bytes)?;
        file.close()
    }

    /// `remove`: `unlink`, or `rmdir` of a directory
    pub fn remove(&self) -> Posix<()> {
        match self.stat(false)?.kind {
            FileKind::Directory => self.rmdir(),
            FileKind::File
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => self.unlink(),
        }
    }

    /// `rename`; both must be in one partition.
    pub fn rename(&self, to: &PosixPath) -> Posix<()> {
        path_calls().note("rename");
        if self.partition.name() != to.partition.name() {
            return Err(OTHER_DEVICE);
        }
        self.partition.rename(&self.path, &to.path).map_err(|error| number(&error))
    }

    /// The path in its partition.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl PosixFile {
    pub(super) fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts of served calls.
    pub fn served(&self) -> &ServedCalls {
        &self.served
    }

    /// Whether writes go to the end of the file.
    pub fn appends(&self) -> bool {
        self.append.load(Ordering::Relaxed)
    }

    /// `F_SETFL` of `O_APPEND`
    pub fn set_append(&self, append: bool) {
        self.append.store(append, Ordering::Relaxed);
    }

    /// The mode of the open.
    pub fn mode(&self) -> PosixMode {
        self.mode
    }

    /// `read`
    pub fn read(&self, target: &mut [u8]) -> Posix<usize> {
        self.served.note("read");
        let mut position = self.position();
        let count = self.file.read_at(*position, target).map_err(|error| number(&error))?;
        *position += count as u64;
        Ok(count)
    }

    /// `write`
    pub fn write(&self, source: &[u8]) -> Posix<usize> {
        self.served.note("write");
        let mut position = self.position();
        if self.appends() {
            *position = self.file.append(source).map_err(|error| number(&error))?;
        } else {
            self.file.write_at(*position, source).map_err(|error| number(&error))?;
        }
        *position += source.len() as u64;
        Ok(source.len())
    }

    /// `pread`
    pub fn read_at(&self, offset: i64, target: &mut [u8]) -> Posix<usize> {
        self.served.note("pread");
        let offset = u64::try_from(offset).map_err(|_| INVALID)?;
        self.file.read_at(offset, target).map_err(|error| number(&error))
    }

    /// `pwrite`
    pub fn write_at(&self, offset: i64, source: &[u8]) -> Posix<usize> {
        self.served.note("pwrite");
        let offset = u64::try_from(offset).map_err(|_| INVALID)?;
        self.file.write_at(offset, source).map_err(|error| number(&error))?;
        Ok(source.len())
    }

    /// `lseek`
    pub fn seek(&self, offset: i64, whence: Whence) -> Posix<i64> {
        self.served.note("lseek");
        let mut position = self.position();
        let base = match whence {
            Whence::Start => 0,
            Whence::Here => *position,
            Whence::End => self.file.len().map_err(|error| number(&error))?,
        };
        let target = i128::from(base) + i128::from(offset);
        let target = i64::try_from(target).ok().filter(|target| 0 <= *target).ok_or(INVALID)?;
        *position = target.unsigned_abs();
        Ok(target)
    }

    /// `fstat`
    pub fn stat(&self) -> Posix<FileAttr> {
        self.served.note("fstat");
        self.file.attr().map_err(|error| number(&error))
    }

    /// `ftruncate`
    pub fn truncate(&self, bytes: i64) -> Posix<()> {
        self.served.note("ftruncate");
        let bytes = u64::try_from(bytes).map_err(|_| INVALID)?;
        self.file.set_len(bytes).map_err(|error| number(&error))
    }

    /// `fsync`
    pub fn sync(&self) -> Posix<()> {
        self.served.note("fsync");
        self.file.sync().map_err(|error| number(&error))
    }

    /// A descriptor of the file is closed: the process's record locks on the file are released, as POSIX demands.
    pub fn closing(&self) {
        self.locks.process_closes();
    }

    /// Reports the served calls, for a file that is closed, or still open when the program ends.
    pub fn report(&self) {
        self.served.report_posix(&self.name);
    }

    /// `close` of its last descriptor
    pub fn close(self) -> Posix<()> {
        self.served.note("close");
        self.report();
        self.locks.drop_own();
        self.file.close().map_err(|error| number(&error))
    }
}
