//! The few POSIX calls that users of MPI-IO make on the same paths: libraries look at files before they open them together.
//!
//! Never: knows descriptors' numbers or C's structures. Always: an error is the number that POSIX has for it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pario::core::FileAttr;
use pario::{File, Partition};

use crate::mounts::{is_mounted, partition_of};
use crate::path::{Target, target_of};
use crate::problem::Class;

/// What a call returns: a value, or the number of its error.
pub type Posix<T> = std::result::Result<T, i32>;

/// `ENOENT`, `EIO`, `EINVAL`, `EXDEV`.
const NO_ENTRY: i32 = 2;
const INPUT_OUTPUT: i32 = 5;
const INVALID: i32 = 22;
const OTHER_DEVICE: i32 = 18;

/// A place in a partition.
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

/// An open file with a position.
#[derive(Debug)]
pub struct PosixFile {
    file: File,
    append: bool,
    position: Mutex<u64>,
}

/// From where a position is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The start.
    Start,
    /// Where it is.
    Here,
    /// The end.
    End,
}

/// The place that a path leads to; `None`: it is not Pario's.
pub fn posix_path(name: &str) -> Posix<Option<PosixPath>> {
    // PnetCDF strips what is in front of a colon before it looks at a file.
    let stripped = name.strip_prefix("//").and_then(|rest| rest.split('/').next()).is_some_and(is_mounted);
    let whole = if stripped { format!("pario:{name}") } else { name.to_owned() };
    match target_of(&whole) {
        Ok(Target::Theirs | Target::Plain { .. }) => Ok(None),
        Ok(Target::Ours { partition, path }) => {
            let partition = partition_of(&partition).map_err(|problem| {
                if problem.class == Class::NoSuchFile { NO_ENTRY } else { INPUT_OUTPUT }
            })?;
            Ok(Some(PosixPath { partition, path }))
        }
        Err(_) => Err(INVALID),
    }
}

fn number(error: &pario::Error) -> i32 {
    error.errno()
}

impl PosixPath {
    /// `open`
    pub fn open(&self, mode: PosixMode) -> Posix<PosixFile> {
        let options = self.partition.options().read(mode.read).write(mode.write).create(mode.create);
        let options = options.create_new(mode.create && mode.exclusive).truncate(mode.truncate);
        let file = options.mode(mode.permissions).open(&self.path).map_err(|error| number(&error))?;
        Ok(PosixFile { file, append: mode.append, position: Mutex::new(0) })
    }

    /// `stat`, or `lstat`
    pub fn stat(&self, follow: bool) -> Posix<FileAttr> {
        let found = match follow {
            true => self.partition.metadata(&self.path),
            false => self.partition.symlink_metadata(&self.path),
        };
        found.map_err(|error| number(&error))
    }

    /// `unlink`
    pub fn unlink(&self) -> Posix<()> {
        self.partition.remove_file(&self.path).map_err(|error| number(&error))
    }

    /// `mkdir`
    pub fn mkdir(&self) -> Posix<()> {
        self.partition.create_dir(&self.path).map_err(|error| number(&error))
    }

    /// `rmdir`
    pub fn rmdir(&self) -> Posix<()> {
        self.partition.remove_dir(&self.path).map_err(|error| number(&error))
    }

    /// `truncate`
    pub fn truncate(&self, bytes: i64) -> Posix<()> {
        let file = self.open(PosixMode { write: true, ..PosixMode::default() })?;
        file.truncate(bytes)?;
        file.close()
    }

    /// `rename`; both must be in one partition.
    pub fn rename(&self, to: &PosixPath) -> Posix<()> {
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
    fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `read`
    pub fn read(&self, target: &mut [u8]) -> Posix<usize> {
        let mut position = self.position();
        let count = self.file.read_at(*position, target).map_err(|error| number(&error))?;
        *position += count as u64;
        Ok(count)
    }

    /// `write`
    pub fn write(&self, source: &[u8]) -> Posix<usize> {
        let mut position = self.position();
        if self.append {
            *position = self.file.len().map_err(|error| number(&error))?;
        }
        self.file.write_at(*position, source).map_err(|error| number(&error))?;
        *position += source.len() as u64;
        Ok(source.len())
    }

    /// `pread`
    pub fn read_at(&self, offset: i64, target: &mut [u8]) -> Posix<usize> {
        let offset = u64::try_from(offset).map_err(|_| INVALID)?;
        self.file.read_at(offset, target).map_err(|error| number(&error))
    }

    /// `pwrite`
    pub fn write_at(&self, offset: i64, source: &[u8]) -> Posix<usize> {
        let offset = u64::try_from(offset).map_err(|_| INVALID)?;
        self.file.write_at(offset, source).map_err(|error| number(&error))?;
        Ok(source.len())
    }

    /// `lseek`
    pub fn seek(&self, offset: i64, whence: Whence) -> Posix<i64> {
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
        self.file.attr().map_err(|error| number(&error))
    }

    /// `ftruncate`
    pub fn truncate(&self, bytes: i64) -> Posix<()> {
        let bytes = u64::try_from(bytes).map_err(|_| INVALID)?;
        self.file.set_len(bytes).map_err(|error| number(&error))
    }

    /// `fsync`
    pub fn sync(&self) -> Posix<()> {
        self.file.sync().map_err(|error| number(&error))
    }

    /// `close`
    pub fn close(self) -> Posix<()> {
        self.file.close().map_err(|error| number(&error))
    }
}
