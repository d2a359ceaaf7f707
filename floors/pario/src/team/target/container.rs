//! A log-structured container as a target: each thread that works appends to a data log of its own.

use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use pario_core::{Code, Fault};
use pario_sys::mutex::lock;
use pario_sys::piece::MemoryPiece;

use super::TeamTarget;
use crate::containers::{LogContainer, LogError, LogWriter};
use crate::team::error::{TeamCode, TeamError, TeamResult};
use crate::team::options::TeamOptions;
use crate::team::plan::CUT_BYTES;

#[derive(Debug)]
pub(super) struct ContainerTarget {
    /// `None` after the close.
    container: RwLock<Option<LogContainer>>,
    /// Writers that no thread uses at the moment: at most as many as threads have ever worked at the same time.
    writers: Mutex<Vec<LogWriter>>,
    path: PathBuf,
}

impl ContainerTarget {
    pub(super) fn open(path: &Path, options: &TeamOptions) -> TeamResult<ContainerTarget> {
        let opened = match (options.create && options.write, options.create_new && options.write) {
            (_, true) => LogContainer::create(path),
            (true, _) => match LogContainer::create(path) {
                Err(LogError::Exists { .. }) => LogContainer::open(path),
                made => made,
            },
            (false, false) => LogContainer::open(path),
        };
        let container = opened.map_err(|error| failed(path, &error))?;
        if options.truncate && options.write {
            container.set_len(0).map_err(|error| failed(path, &error))?;
        }
        let (container, writers) = (RwLock::new(Some(container)), Mutex::default());
        Ok(ContainerTarget { container, writers, path: path.to_owned() })
    }

    /// `call` on the open container.
    fn with<T>(&self, call: impl FnOnce(&LogContainer) -> Result<T, LogError>) -> TeamResult<T> {
        let container = self.container.read().unwrap_or_else(PoisonError::into_inner);
        match &*container {
            Some(container) => call(container).map_err(|error| failed(&self.path, &error)),
            None => Err(TeamError::new(TeamCode::Closed, format!("{}: closed", self.path.display()))),
        }
    }
}

fn failed(path: &Path, error: &LogError) -> TeamError {
    let code = match &error {
        LogError::Disk { source, .. } => {
            return TeamError::from_io(source, format!("container {}", path.display()));
        }
        LogError::Missing { .. } => Code::NotFound,
        LogError::Exists { .. } => Code::Exists,
        LogError::Foreign { .. } => Code::IsDirectory,
        LogError::TooLarge { .. } => Code::TooLarge,
        LogError::Busy { .. } => Code::Busy,
        LogError::Closed { .. } => Code::Closed,
        LogError::Newer { .. } | LogError::NoExchange { .. } => Code::Unsupported,
        LogError::Damaged { .. } | LogError::Short { .. } => Code::Corrupt,
    };
    Fault::new(code, error.to_string()).into()
}

impl TeamTarget for ContainerTarget {
    fn write(&self, offset: u64, pieces: &mut [IoSlice<'_>]) -> TeamResult<()> {
        self.with(|container| {
            let spare = lock(&self.writers).pop();
            let writer = spare.unwrap_or_else(|| container.writer());
            let pieces: Vec<MemoryPiece<'_>> =
                pieces.iter().map(|piece| MemoryPiece::from(&**piece)).collect();
            let written = writer.write_vectored_at(&pieces, offset);
            lock(&self.writers).push(writer);
            written
        })
    }

    fn read(&self, offset: u64, pieces: &mut [IoSliceMut<'_>]) -> TeamResult<u64> {
        self.with(|container| {
            let mut done = 0;
            for piece in pieces {
                let count = container.read_at(piece, offset + done)?;
                done += count as u64;
                if count < piece.len() {
                    break;
                }
            }
            Ok(done)
        })
    }

    fn len(&self) -> TeamResult<u64> {
        self.with(|container| Ok(container.len()))
    }

    fn sync(&self) -> TeamResult<()> {
        self.with(LogContainer::sync)
    }

    fn close(&self) -> TeamResult<()> {
        let container = self.container.write().unwrap_or_else(PoisonError::into_inner).take();
        lock(&self.writers).clear();
        container.map_or(Ok(()), |container| container.close().map_err(|error| failed(&self.path, &error)))
    }

    fn cut_bytes(&self) -> u64 {
        CUT_BYTES
    }

    fn own_bytes_max(&self) -> u64 {
        0
    }

    fn system_calls(&self) -> u64 {
        // Logs and indexes are written by the container; its calls are not counted.
        0
    }
}
