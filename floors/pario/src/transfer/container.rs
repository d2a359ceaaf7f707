//! Containers of this machine as files of a [`LocalTree`](super::LocalTree): a copy reads their bytes, not their logs.
//!
//! Never: writes to a container. Always: a directory is a container only with a marker.

use std::ops::Range;
use std::path::{Path, PathBuf};

use pario_core::FileKind;
use pario_server::store::log::{self, LogContainer, LogError};

use super::tree::{FileStat, ReadFile};
use super::{TransferError, TransferResult};

/// Permission bits of a directory that a file has too.
const FILE_BITS: u32 = 0o666;

/// A container open for reading.
#[derive(Debug)]
pub(super) struct ContainerFile {
    container: LogContainer,
    path: PathBuf,
}

fn named<T>(path: &Path, done: Result<T, LogError>) -> TransferResult<T> {
    done.map_err(|error| TransferError::Local { path: path.to_owned(), error: error.into() })
}

impl ContainerFile {
    pub(super) fn open(path: &Path) -> TransferResult<ContainerFile> {
        Ok(ContainerFile { container: named(path, LogContainer::open(path))?, path: path.to_owned() })
    }
}

/// The attributes of a directory, or of the file that it stands for as a container.
pub(super) fn stat_as_file(path: &Path, stat: FileStat) -> TransferResult<FileStat> {
    if !stat.is_directory() || !log::is_container(path) {
        return Ok(stat);
    }
    let size = ContainerFile::open(path)?.container.len();
    Ok(FileStat { kind: Some(FileKind::File), size, mode: stat.mode & FILE_BITS, ..stat })
}

impl ReadFile for ContainerFile {
    fn length(&self) -> TransferResult<u64> {
        Ok(self.container.len())
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> TransferResult<usize> {
        named(&self.path, self.container.read_at(target, offset))
    }

    fn data_in(&self, range: Range<u64>) -> TransferResult<Vec<Range<u64>>> {
        named(&self.path, self.container.data_in(range))
    }
}
