//! Bytes of a file that is read, and of one that is written, wherever they are.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Mutex;

use rustix::fs::SeekFrom;

use crate::error::{CliError, Outcome};
use crate::place::{Place, Tree};

/// A file that is read.
#[derive(Debug)]
pub(crate) enum Source {
    /// On this machine.
    Local {
        /// The file.
        file: fs::File,
        /// For messages.
        place: Place,
    },
    /// In a partition.
    Partition {
        /// The file.
        file: pario::File,
        /// For messages.
        place: Place,
    },
}

impl Source {
    /// Opens it.
    pub(crate) fn open(place: &Place) -> Outcome<Source> {
        match &place.tree {
            Tree::Local => {
                let file =
                    fs::File::open(&place.path).map_err(|error| CliError::local(&place.path, &error))?;
                Ok(Source::Local { file, place: place.clone() })
            }
            Tree::Partition(partition) => {
                let file = partition.open(&place.path).map_err(|error| CliError::remote(place, &error))?;
                Ok(Source::Partition { file, place: place.clone() })
            }
        }
    }

    /// Its length now.
    pub(crate) fn len(&self) -> Outcome<u64> {
        match self {
            Source::Local { file, place } => {
                file.metadata().map(|found| found.len()).map_err(|error| CliError::local(&place.path, &error))
            }
            Source::Partition { file, place } => file.len().map_err(|error| CliError::remote(place, &error)),
        }
    }

    /// Fills `target` from `offset` on; returns how many bytes there were before the end.
    pub(crate) fn read_at(&self, offset: u64, target: &mut [u8]) -> Outcome<usize> {
        match self {
            Source::Partition { file, place } => {
                file.read_at(offset, target).map_err(|error| CliError::remote(place, &error))
            }
            Source::Local { file, place } => {
                let mut done = 0;
                while done < target.len() {
                    match file.read_at(&mut target[done..], offset + done as u64) {
                        Ok(0) => break,
                        Ok(count) => done += count,
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(CliError::local(&place.path, &error)),
                    }
                }
                Ok(done)
            }
        }
    }

    /// Reads exactly `target.len()` bytes; fewer mean that somebody cut the file meanwhile.
    pub(crate) fn read_exact_at(&self, offset: u64, target: &mut [u8]) -> Outcome {
        let count = self.read_at(offset, target)?;
        if count == target.len() {
            return Ok(());
        }
        let place = match self {
            Source::Local { place, .. } | Source::Partition { place, .. } => place,
        };
        Err(CliError::failed(format!(
            "{place}: became shorter while it was read, at byte {}",
            offset + count as u64
        )))
    }

    /// The parts of a range that may hold data; the rest is holes. `None`: only the bytes can tell.
    pub(crate) fn data_in(&self, range: Range<u64>) -> Option<Vec<Range<u64>>> {
        let Source::Local { file, .. } = self else { return None };
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            // Only the returned place counts; that the descriptor's own position moves disturbs nobody.
            let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(start) if start < range.end => start,
                Ok(_) | Err(rustix::io::Errno::NXIO) => break,
                Err(_) => return Some(vec![range]),
            };
            let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(range.end).min(range.end);
            parts.push(start..end);
            at = end;
        }
        Some(parts)
    }
}

/// A file that is written, under a temporary name.
#[derive(Debug)]
pub(super) enum Target {
    /// On this machine.
    Local {
        /// The file.
        file: fs::File,
        /// For messages.
        place: Place,
    },
    /// In a partition.
    Partition {
        /// The file, until it is closed.
        file: Mutex<Option<std::sync::Arc<pario::File>>>,
        /// For messages.
        place: Place,
    },
}

/// Whether data must be on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Durability {
    /// It must.
    Stable,
    /// Closed is enough.
    Closed,
}

impl Target {
    /// Makes a new file called `temporary`; messages call it `place`, which it will be.
    pub(super) fn create(temporary: &Place, place: &Place) -> Outcome<Target> {
        let created = Target::create_new(temporary, place);
        created.map_err(|error| place.blame_parent(error.called(temporary, place)))
    }

    fn create_new(temporary: &Place, place: &Place) -> Outcome<Target> {
        match &temporary.tree {
            Tree::Local => {
                let file = fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&temporary.path)
                    .map_err(|error| CliError::local(&place.path, &error))?;
                Ok(Target::Local { file, place: place.clone() })
            }
            Tree::Partition(partition) => {
                let file = partition
                    .options()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&temporary.path)
                    .map_err(|error| CliError::remote(place, &error))?;
                Ok(Target::Partition {
                    file: Mutex::new(Some(std::sync::Arc::new(file))),
                    place: place.clone(),
                })
            }
        }
    }

    /// Writes all of `data` at `offset`.
    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Outcome {
        match self {
            Target::Local { file, place } => {
                file.write_all_at(data, offset).map_err(|error| CliError::local(&place.path, &error))
            }
            Target::Partition { file, place } => {
                let file = opened(file, place)?;
                file.write_at(offset, data).map_err(|error| CliError::remote(place, &error))
            }
        }
    }

    /// Lets go of a file that is given up; what its close would complain about has been told.
    pub(super) fn abandon(&self) {
        if let Target::Partition { file, .. } = self {
            let last = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            if let Some(Err(error)) = last.and_then(std::sync::Arc::into_inner).map(pario::File::close) {
                tracing::info!(%error, "closing a file that is given up");
            }
        }
    }

    /// Makes it `bytes` long, by a hole at the end if need be; puts it where it must be, and closes it.
    pub(super) fn finish(&self, bytes: u64, durability: Durability) -> Outcome {
        match self {
            Target::Local { file, place } => {
                let stable = || if durability == Durability::Stable { file.sync_all() } else { Ok(()) };
                file.set_len(bytes)
                    .and_then(|()| stable())
                    .map_err(|error| CliError::local(&place.path, &error))
            }
            Target::Partition { file: slot, place } => {
                let failed = |error: pario::Error| CliError::remote(place, &error);
                let file = opened(slot, place)?;
                if file.len().map_err(failed)? < bytes {
                    file.set_len(bytes).map_err(failed)?;
                }
                if durability == Durability::Stable {
                    file.sync().map_err(failed)?;
                }
                drop(file);
                let last = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                match last.and_then(std::sync::Arc::into_inner) {
                    Some(file) => file.close().map_err(failed),
                    None => Ok(()),
                }
            }
        }
    }
}

fn opened(
    slot: &Mutex<Option<std::sync::Arc<pario::File>>>,
    place: &Place,
) -> Outcome<std::sync::Arc<pario::File>> {
    let file = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    file.ok_or_else(|| CliError::failed(format!("{place}: written after it was closed")))
}
