//! [`LogContainer`]: a file with its bytes in the data logs of its writers.
//!
//! Never: reads an index for bytes that this handle wrote. Always: the newest change wins at every byte, between threads, processes and
//! openings; another process's changes are seen at open and at sync.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::entry::{FILE_BYTES_MAX, Order, WriterNumber};
use super::error::{LogError, at};
use super::index::LogIndex;
use super::load::{self, LoadScope, LoadedWriter, LogFinding};
use super::marker::{self, MarkerState, WriterFiles, data_path, index_path};
use super::read;
use super::summary::{LogSummary, WriterLengths};
use super::writer::{IndexFlush, LogWriter, WriterHandles, WriterLog, WriterState};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::real_disk::RealDisk;
use crate::sync::lock;

/// Data logs of other writers that are kept open.
const OPEN_LOGS_MAX: usize = 256;

/// How a container is used.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// When entries are in the index file.
    pub flush: IndexFlush,
    /// Whether other processes may write to it: their changes are then looked for at every sync.
    pub is_shared: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { disk: RealDisk::shared(), flush: IndexFlush::default(), is_shared: true }
    }
}

/// An open container. Threads share it, each with a [`LogWriter`] of its own.
#[derive(Debug)]
pub struct LogContainer {
    core: Arc<ContainerCore>,
}

/// What handles and writers share.
#[derive(Debug)]
pub(super) struct ContainerCore {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) flush: IndexFlush,
    pub(super) is_shared: bool,
    is_closed: AtomicBool,
    /// Whether names of files are not on stable storage yet.
    are_names_new: AtomicBool,
    writers: Mutex<Vec<Arc<WriterLog>>>,
    state: Mutex<ContainerState>,
    /// Open data logs.
    logs: Mutex<HashMap<WriterNumber, Arc<dyn DiskFile>>>,
}

/// The index, and what it was made of.
#[derive(Debug, Default)]
pub(super) struct ContainerState {
    pub(super) index: LogIndex,
    pub(super) newest: Order,
    /// Whether the indexes of `seen` still have to be read: `index` has only the changes of this handle.
    is_unread: bool,
    /// Writers of others, with the part of their files that `index` knows, or will.
    seen: Vec<WriterLengths>,
    /// Whether everything of `seen` is on stable storage.
    is_seen_durable: bool,
    /// Whether a summary says what `seen` says.
    has_summary: bool,
    findings: Vec<LogFinding>,
}

impl ContainerState {
    /// An order newer than all.
    pub(super) fn next_order(&mut self) -> Order {
        self.newest = Order(pario_sys::wall_ns().max(self.newest.0.saturating_add(1)));
        self.newest
    }

    fn loaded(writers: Vec<LoadedWriter>) -> ContainerState {
        let (index, newest) = load::build(&writers);
        let lengths = |writer: &LoadedWriter| WriterLengths {
            number: writer.number,
            index_bytes: writer.index_bytes,
            data_bytes: writer.data_bytes,
        };
        ContainerState {
            index,
            newest,
            is_unread: false,
            seen: writers.iter().map(lengths).collect(),
            is_seen_durable: writers.iter().all(LoadedWriter::is_durable),
            has_summary: false,
            findings: writers.into_iter().flat_map(|writer| writer.findings).collect(),
        }
    }
}

impl LogContainer {
    /// Makes a new container at `path`.
    ///
    /// # Errors
    /// The name exists, or the file system refuses.
    pub fn create(path: &Path) -> Result<LogContainer, LogError> {
        LogContainer::create_with(&LogOptions::default(), path)
    }

    /// The same, with options.
    pub fn create_with(options: &LogOptions, path: &Path) -> Result<LogContainer, LogError> {
        let disk = &*options.disk;
        match disk.make_dir(path) {
            Ok(()) => {}
            // A directory of which the creation was interrupted is completed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match marker::examine(disk, path) {
                Ok(MarkerState::Unfinished) => {}
                Ok(MarkerState::Present) | Err(LogError::Foreign { .. }) => {
                    return Err(LogError::Exists { path: path.to_owned() });
                }
                Err(error) => return Err(error),
            },
            Err(error) => return Err(at("making", path)(error)),
        }
        marker::mark(disk, path)?;
        let state = ContainerState { is_seen_durable: true, ..ContainerState::default() };
        Ok(LogContainer::of(options, path, state))
    }

    /// Opens the container at `path`. What was never finished is left out, and a line in the log says so.
    ///
    /// # Errors
    /// Missing, not a container, or one of a newer version.
    pub fn open(path: &Path) -> Result<LogContainer, LogError> {
        LogContainer::open_with(&LogOptions::default(), path)
    }

    /// The same, with options.
    pub fn open_with(options: &LogOptions, path: &Path) -> Result<LogContainer, LogError> {
        let disk = &*options.disk;
        if marker::examine(disk, path)? == MarkerState::Unfinished {
            // Nothing was ever written to it.
            return Err(LogError::Missing { path: path.to_owned() });
        }
        let seen = measure_all(disk, path)?;
        let summary = LogSummary::read(disk, path).filter(|summary| summary.is_valid(&seen, &disk.life()));
        let state = match summary {
            Some(summary) => ContainerState {
                index: LogIndex::of_length(summary.length),
                newest: summary.newest,
                is_unread: true,
                seen,
                is_seen_durable: summary.is_durable,
                has_summary: true,
                findings: Vec::new(),
            },
            None => {
                let state = ContainerState::loaded(load_all(disk, path, &seen, false)?);
                for finding in &state.findings {
                    tracing::warn!("{}: {finding}", path.display());
                }
                state
            }
        };
        Ok(LogContainer::of(options, path, state))
    }

    fn of(options: &LogOptions, path: &Path, state: ContainerState) -> LogContainer {
        let core = ContainerCore {
            disk: Arc::clone(&options.disk),
            dir: path.to_owned(),
            flush: options.flush,
            is_shared: options.is_shared,
            is_closed: AtomicBool::new(false),
            are_names_new: AtomicBool::new(true),
            writers: Mutex::default(),
            state: Mutex::new(state),
            logs: Mutex::default(),
        };
        LogContainer { core: Arc::new(core) }
    }

    /// A new writer. Its files are made with its first write.
    #[must_use]
    pub fn writer(&self) -> LogWriter {
        let log = Arc::new(WriterLog::default());
        lock(&self.core.writers).push(Arc::clone(&log));
        LogWriter { core: Arc::clone(&self.core), log }
    }

    /// Fills `target` from `offset` on up to the file's end; returns how many bytes there were. Holes are zeros.
    pub fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize, LogError> {
        let core = &*self.core;
        let mut state = core.state();
        core.read_indexes(&mut state)?;
        let left = state.index.length().saturating_sub(offset);
        let bytes = usize::try_from(left).map_or(target.len(), |left| left.min(target.len()));
        if bytes == 0 {
            return Ok(0);
        }
        let segments = state.index.lookup(offset..offset + bytes as u64);
        drop(state);
        read::fill(core, &segments, offset, &mut target[..bytes])?;
        Ok(bytes)
    }

    /// The parts of a range that were written, ascending; the rest is holes.
    pub fn data_in(&self, range: std::ops::Range<u64>) -> Result<Vec<std::ops::Range<u64>>, LogError> {
        let mut state = self.core.state();
        self.core.read_indexes(&mut state)?;
        let mut parts: Vec<std::ops::Range<u64>> = Vec::new();
        for segment in state.index.lookup(range) {
            match parts.last_mut() {
                Some(last) if last.end == segment.offset => last.end = segment.end(),
                Some(_) | None => parts.push(segment.offset..segment.end()),
            }
        }
        Ok(parts)
    }

    /// Length of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.core.state().index.length()
    }

    /// Whether the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was left out when the container was opened.
    #[must_use]
    pub fn findings(&self) -> Vec<LogFinding> {
        self.core.state().findings.clone()
    }

    /// Truncates the file, or extends it with zeros.
    pub fn set_len(&self, bytes: u64) -> Result<(), LogError> {
        self.core.check_open()?;
        if FILE_BYTES_MAX < bytes {
            return Err(LogError::TooLarge { path: self.core.dir.clone(), offset: bytes });
        }
        let first = lock(&self.core.writers).first().cloned();
        match first {
            Some(log) => log.cut(&self.core, bytes),
            None => self.writer().log.cut(&self.core, bytes),
        }
    }

    /// Flushes everything that was written by this handle, and what it found at open, to stable storage, and looks for what other processes wrote.
    pub fn sync(&self) -> Result<(), LogError> {
        let core = &*self.core;
        core.check_open()?;
        for log in core.writers() {
            log.sync(core)?;
        }
        core.sync_seen()?;
        if core.are_names_new.swap(false, Ordering::AcqRel)
            && let Err(error) = core.sync_names()
        {
            core.are_names_new.store(true, Ordering::Release);
            return Err(error);
        }
        if core.is_shared { core.refresh() } else { Ok(()) }
    }

    /// Writes all entries to the indexes, and a summary. Writers of this handle are closed with it.
    pub fn close(self) -> Result<(), LogError> {
        self.core.finish()
    }
}

impl Drop for LogContainer {
    /// Without [`LogContainer::close`] errors are only logged.
    fn drop(&mut self) {
        if let Err(error) = self.core.finish() {
            tracing::error!("closing: {error}");
        }
    }
}

/// Lengths of the files of all writers.
pub(super) fn measure_all(disk: &dyn Disk, dir: &Path) -> Result<Vec<WriterLengths>, LogError> {
    let measure = |number: &WriterNumber| {
        WriterLengths::measure(disk, dir, *number).map_err(at("examining", &data_path(dir, *number)))
    };
    WriterFiles::list(disk, dir)?.indexed.iter().map(measure).collect()
}

fn load_all(
    disk: &dyn Disk,
    dir: &Path,
    seen: &[WriterLengths],
    is_verified: bool,
) -> Result<Vec<LoadedWriter>, LogError> {
    let scope = LoadScope { disk, dir, is_verified };
    seen.iter().map(|writer| load::load_writer(scope, writer.number, writer.index_bytes)).collect()
}

impl ContainerCore {
    pub(super) fn state(&self) -> MutexGuard<'_, ContainerState> {
        lock(&self.state)
    }

    fn writers(&self) -> Vec<Arc<WriterLog>> {
        lock(&self.writers).clone()
    }

    pub(super) fn check_open(&self) -> Result<(), LogError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(LogError::Closed { path: self.dir.clone() });
        }
        Ok(())
    }

    /// A writer of this handle has made its files.
    pub(super) fn note_new_log(&self, handles: &WriterHandles) {
        self.are_names_new.store(true, Ordering::Release);
        lock(&self.logs).insert(handles.number, Arc::clone(&handles.data));
    }

    /// The data log of a writer.
    pub(super) fn log(&self, writer: WriterNumber) -> Result<Arc<dyn DiskFile>, LogError> {
        if let Some(log) = lock(&self.logs).get(&writer) {
            return Ok(Arc::clone(log));
        }
        let path = data_path(&self.dir, writer);
        let log = self.disk.open(&path, OpenMode::Read).map_err(at("opening", &path))?;
        let mut logs = lock(&self.logs);
        if OPEN_LOGS_MAX <= logs.len() {
            logs.clear();
        }
        logs.insert(writer, Arc::clone(&log));
        Ok(log)
    }

    /// Reads the indexes that were there when the container was opened, if that was not necessary yet.
    fn read_indexes(&self, state: &mut ContainerState) -> Result<(), LogError> {
        if state.is_unread {
            let loaded = load_all(&*self.disk, &self.dir, &state.seen, true)?;
            let (base, _) = load::build(&loaded);
            state.index = std::mem::take(&mut state.index).laid_over(base);
            state.is_unread = false;
        }
        Ok(())
    }

    /// Flushes the files of writers that ended without a sync.
    fn sync_seen(&self) -> Result<(), LogError> {
        let state = self.state();
        if state.is_seen_durable {
            return Ok(());
        }
        let seen = state.seen.clone();
        drop(state);
        for writer in &seen {
            for path in [data_path(&self.dir, writer.number), index_path(&self.dir, writer.number)] {
                match self.disk.open(&path, OpenMode::Read) {
                    Ok(file) => file.sync_data().map_err(at("syncing", &path))?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(at("opening", &path)(error)),
                }
            }
        }
        let mut state = self.state();
        state.is_seen_durable |= state.seen == seen;
        Ok(())
    }

    fn sync_names(&self) -> Result<(), LogError> {
        marker::sync_marker(&*self.disk, &self.dir)?;
        self.disk.sync_dir(&self.dir).map_err(at("syncing", &self.dir))?;
        match self.dir.parent() {
            Some(parent) if parent.as_os_str().is_empty() => self.disk.sync_dir(Path::new(".")),
            Some(parent) => self.disk.sync_dir(parent),
            None => Ok(()),
        }
        .map_err(at("syncing the directory of", &self.dir))
    }

    /// Reads all indexes again, if another process has written.
    fn refresh(&self) -> Result<(), LogError> {
        let writers = self.writers();
        // No write of this handle ends meanwhile.
        let mut locked: Vec<_> = writers.iter().map(|log| log.lock()).collect();
        let mut others = measure_all(&*self.disk, &self.dir)?;
        let own: Vec<WriterNumber> =
            locked.iter().filter_map(|log| log.opened()).map(|handles| handles.number).collect();
        others.retain(|writer| !own.contains(&writer.number));
        let mut state = self.state();
        let indexes = |lengths: &[WriterLengths]| -> Vec<_> {
            lengths.iter().map(|writer| (writer.number, writer.index_bytes)).collect()
        };
        if indexes(&others) == indexes(&state.seen) {
            return Ok(());
        }
        locked.iter_mut().try_for_each(|log| log.flush(self))?;
        let own = own.iter().map(|number| WriterLengths::measure(&*self.disk, &self.dir, *number));
        let own = own.collect::<io::Result<Vec<_>>>().map_err(at("examining", &self.dir))?;
        let mut all = [others, own.clone()].concat();
        all.sort_unstable_by_key(|writer| writer.number);
        let mut fresh = ContainerState::loaded(load_all(&*self.disk, &self.dir, &all, false)?);
        fresh.newest = fresh.newest.max(state.newest);
        fresh.seen.retain(|seen| own.iter().all(|own| own.number != seen.number));
        *state = fresh;
        Ok(())
    }

    /// Writes what is pending, then the summary; once.
    fn finish(&self) -> Result<(), LogError> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let writers = self.writers();
        let mut locked: Vec<_> = writers.iter().map(|log| log.lock()).collect();
        let mut first_error = Ok(());
        for log in &mut locked {
            first_error = first_error.and(log.flush(self));
        }
        first_error?;
        if let Err(error) = self.summarize(&locked) {
            tracing::debug!(%error, "{} has no summary; the next open reads its indexes", self.dir.display());
        }
        Ok(())
    }

    fn summarize(&self, writers: &[MutexGuard<'_, WriterState>]) -> io::Result<()> {
        let own: Vec<_> =
            writers.iter().filter_map(|log| log.opened().map(|handles| handles.number)).collect();
        let state = self.state();
        if own.is_empty() && state.has_summary {
            return Ok(());
        }
        let mut lengths = state.seen.clone();
        for number in own {
            lengths.push(WriterLengths::measure(&*self.disk, &self.dir, number)?);
        }
        lengths.sort_unstable_by_key(|writer| writer.number);
        let is_durable = state.is_seen_durable && writers.iter().all(|log| log.is_synced());
        let life = self.disk.life();
        let (length, newest) = (state.index.length(), state.newest);
        LogSummary { length, newest, life, is_durable, writers: lengths }.write(&*self.disk, &self.dir)
    }
}
