//! Examines a container, and drops what was never finished.
//!
//! Never: drops an entry that counts; repairs beside a writer. Always: a repaired file replaces the old one atomically.

use std::path::Path;

use super::LogContainer;
use super::container::{LogOptions, measure_all};
use super::entry::{EntryBody, LogEntry};
use super::error::{LogError, at};
use super::load::{self, FindingKind, LoadScope, LoadedWriter, LogFinding, bytes_match};
use super::marker::{
    self, INDEX_NEW, MARKER, MarkerState, SUMMARY, SUMMARY_NEW, WriterFiles, data_path, index_path,
};
use super::writer::is_locked;
use crate::disk::{Disk, OpenMode};
use crate::real_disk::RealDisk;

/// State of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogReport {
    /// Length of the file.
    pub length: u64,
    /// Writers with an index.
    pub writers: usize,
    /// Index entries that count.
    pub entries: u64,
    /// Bytes of all indexes.
    pub index_bytes: u64,
    /// Bytes of all data logs.
    pub data_bytes: u64,
    /// Whether the marker is missing or damaged, or the creation was interrupted.
    pub is_unmarked: bool,
    /// What does not count, and bytes without an entry.
    pub findings: Vec<LogFinding>,
}

impl LogReport {
    /// Whether nothing is wrong with it.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.is_unmarked && self.findings.is_empty()
    }
}

/// Whether `path` is a container of this machine, of any version and state.
#[must_use]
pub fn is_container(path: &Path) -> bool {
    // Most directories are none, and are not listed.
    if !path.join(MARKER).is_file() {
        return false;
    }
    match marker::examine(&RealDisk, path) {
        Ok(state) => state == MarkerState::Present,
        Err(LogError::Damaged { .. } | LogError::Newer { .. }) => true,
        Err(_) => false,
    }
}

/// Examines the container at `path`; with `is_deep` all bytes are compared with their checksums.
///
/// # Errors
/// Missing, foreign or newer, or the file system refuses.
pub fn check(path: &Path, is_deep: bool) -> Result<LogReport, LogError> {
    let disk = &RealDisk;
    let is_unmarked = match marker::examine(disk, path) {
        Ok(MarkerState::Present) => false,
        Ok(MarkerState::Unfinished) | Err(LogError::Damaged { .. }) => true,
        Err(error) => return Err(error),
    };
    let writers = load(disk, path)?;
    let (index, _) = load::build(&writers);
    let mut report = LogReport {
        length: index.length(),
        writers: writers.len(),
        entries: writers.iter().map(|writer| writer.entries.len() as u64).sum(),
        index_bytes: writers.iter().map(|writer| writer.index_bytes).sum(),
        data_bytes: writers.iter().map(|writer| writer.data_bytes).sum(),
        is_unmarked,
        findings: writers.iter().flat_map(|writer| writer.findings.clone()).collect(),
    };
    for number in WriterFiles::list(disk, path)?.unindexed {
        let bytes = disk.length(&data_path(path, number)).map_err(at("examining", path))?.unwrap_or(0);
        report.data_bytes += bytes;
        report.findings.push(LogFinding { writer: number.0, kind: FindingKind::Unindexed { bytes } });
    }
    if is_deep {
        for writer in &writers {
            report.findings.extend(damage(disk, path, writer)?);
        }
    }
    Ok(report)
}

fn load(disk: &dyn Disk, path: &Path) -> Result<Vec<LoadedWriter>, LogError> {
    let scope = LoadScope { disk, dir: path, is_verified: false };
    let lengths = measure_all(disk, path)?;
    lengths.iter().map(|writer| load::load_writer(scope, writer.number, writer.index_bytes)).collect()
}

/// Compares all bytes of a writer with their checksums.
fn damage(disk: &dyn Disk, dir: &Path, writer: &LoadedWriter) -> Result<Option<LogFinding>, LogError> {
    let path = data_path(dir, writer.number);
    let mut entries = 0;
    for entry in &writer.entries {
        if let EntryBody::Data(data) = entry.body {
            let log = disk.open(&path, OpenMode::Read).map_err(at("opening", &path))?;
            entries += u64::from(!bytes_match(&*log, &data).map_err(at("reading", &path))?);
        }
    }
    let kind = FindingKind::Damaged { entries };
    Ok((0 < entries).then_some(LogFinding { writer: writer.number.0, kind }))
}

/// Drops what was never finished: torn entries, entries without bytes, bytes without entries, a missing marker. Returns what is left.
///
/// # Errors
/// As [`check`]; also a living writer.
pub fn repair(path: &Path) -> Result<LogReport, LogError> {
    let disk = &RealDisk;
    if matches!(marker::examine(disk, path), Ok(MarkerState::Unfinished)) {
        marker::remove_container(disk, path)?;
        return Ok(LogReport::default());
    }
    let before = check(path, false)?;
    let files = WriterFiles::list(disk, path)?;
    if files.indexed.iter().any(|number| is_locked(disk, path, *number)) {
        return Err(LogError::Busy { path: path.to_owned() });
    }
    if before.is_unmarked {
        marker::mark(disk, path)?;
    }
    for writer in load(disk, path)?.iter().filter(|writer| !writer.findings.is_empty()) {
        repair_writer(disk, path, writer)?;
    }
    let leftovers = files.unindexed.iter().map(|number| data_path(path, *number));
    let leftovers = leftovers.chain([SUMMARY, SUMMARY_NEW, INDEX_NEW].map(|name| path.join(name)));
    for leftover in leftovers {
        if disk.exists(&leftover).map_err(at("examining", &leftover))? {
            disk.remove(&leftover).map_err(at("removing", &leftover))?;
        }
    }
    disk.sync_dir(path).map_err(at("syncing", path))?;
    LogContainer::open_with(&LogOptions::default(), path)?.close()?;
    check(path, false)
}

/// Writes the index anew, with the entries that count, and cuts the log behind their bytes.
fn repair_writer(disk: &dyn Disk, dir: &Path, writer: &LoadedWriter) -> Result<(), LogError> {
    let (new, path, data) =
        (dir.join(INDEX_NEW), index_path(dir, writer.number), data_path(dir, writer.number));
    let log = disk.open(&data, OpenMode::Create).map_err(at("opening", &data))?;
    let ends = writer.entries.iter().map(|entry| match entry.body {
        EntryBody::Data(found) => found.log_end(),
        EntryBody::Head { .. } | EntryBody::Cut { .. } | EntryBody::Synced => 0,
    });
    log.set_len(ends.max().unwrap_or(0)).and_then(|()| log.sync_data()).map_err(at("truncating", &data))?;
    let nonce = writer.entries.first().map_or(0, |entry| entry.nonce);
    let newest = writer.entries.iter().map(|entry| entry.order).max().unwrap_or_default();
    let head = EntryBody::Head { writer: writer.number, life: disk.life() };
    let one = |body| LogEntry { order: newest, nonce, body };
    let kept = writer.entries.iter().map(|entry| LogEntry { nonce, ..*entry });
    let all = std::iter::once(one(head)).chain(kept).chain([one(EntryBody::Synced)]);
    let bytes: Vec<u8> = all.flat_map(|entry| entry.encode()).collect();
    let write = || {
        let index = disk.open(&new, OpenMode::Create)?;
        index.set_len(0)?;
        index.write_at(&bytes, 0)?;
        index.sync_data()?;
        disk.rename(&new, &path)
    };
    write().map_err(at("repairing", &path))
}

/// Removes the container at `path`.
///
/// # Errors
/// Not a container, or the file system refuses.
pub fn remove(path: &Path) -> Result<(), LogError> {
    marker::examine(&RealDisk, path)?;
    marker::remove_container(&RealDisk, path)
}
