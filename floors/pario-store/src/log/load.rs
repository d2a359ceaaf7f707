//! Reads the indexes of a container and decides which entries count.
//!
//! Never: changes a file. Always: an entry counts whole or not at all; what does not count is a finding.
//!
//! An entry counts if its bytes are in the data log. That is certain if they were synced, or if the machine runs since they were
//! written (data is written before its entry); else the bytes are compared with their checksum.

use std::fmt;
use std::path::Path;

use super::entry::{DataEntry, ENTRY_BYTES, EntryBody, LogEntry, Order, WriterNumber};
use super::error::{LogError, at};
use super::index::LogIndex;
use super::marker::{data_path, index_path};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::marks::Life;

/// Bytes that are compared with a checksum at a time.
const COMPARE_BYTES: usize = 1 << 20;

/// What is wrong with the files of one writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFinding {
    /// Number of the writer; names its files.
    pub writer: u32,
    /// What it is.
    pub kind: FindingKind,
}

/// Kinds of findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingKind {
    /// Entries that were torn or never written.
    Torn {
        /// Their number.
        entries: u64,
    },
    /// Entries of bytes that the data log does not have.
    Short {
        /// Their number.
        entries: u64,
        /// Length of the data log.
        log_bytes: u64,
    },
    /// Entries of bytes that were not on stable storage when the machine failed.
    Lost {
        /// Their number.
        entries: u64,
    },
    /// Entries of a second writer with the same number.
    TwoWriters {
        /// Their number.
        entries: u64,
    },
    /// Entries with bytes that do not match their checksum.
    Damaged {
        /// Their number.
        entries: u64,
    },
    /// The data log has bytes that no entry counts: of writes that were never finished.
    Unindexed {
        /// Bytes behind the last entry.
        bytes: u64,
    },
}

impl fmt::Display for LogFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer {:08x}: ", self.writer)?;
        match self.kind {
            FindingKind::Torn { entries } => write!(f, "{entries} torn index entries were dropped"),
            FindingKind::Short { entries, log_bytes } => {
                write!(f, "{entries} index entries were dropped: the data log ends at byte {log_bytes}")
            }
            FindingKind::Lost { entries } => {
                write!(f, "{entries} unsynced writes were lost when the machine failed")
            }
            FindingKind::TwoWriters { entries } => {
                write!(
                    f,
                    "two writers had this number; {entries} entries of the second were compared with their bytes"
                )
            }
            FindingKind::Damaged { entries } => {
                write!(f, "the bytes of {entries} entries do not match their checksum")
            }
            FindingKind::Unindexed { bytes } => {
                write!(f, "{bytes} bytes of unfinished writes are in the data log")
            }
        }
    }
}

/// What is known about a container before its indexes are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadScope<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) dir: &'a Path,
    /// The machine's life in which all bytes were compared, or all were synced: none needs to be compared now.
    pub(crate) is_verified: bool,
}

/// The counting entries of one index.
#[derive(Debug)]
pub(crate) struct LoadedWriter {
    pub(crate) number: WriterNumber,
    pub(crate) index_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) entries: Vec<LogEntry>,
    /// Newest order that is on stable storage.
    pub(crate) synced: Order,
    pub(crate) findings: Vec<LogFinding>,
}

impl LoadedWriter {
    /// Whether every entry is known to be on stable storage.
    pub(crate) fn is_durable(&self) -> bool {
        self.entries.iter().all(|entry| entry.order <= self.synced)
    }
}

/// Reads at most `index_bytes` of the index of a writer.
pub(crate) fn load_writer(
    scope: LoadScope<'_>,
    number: WriterNumber,
    index_bytes: u64,
) -> Result<LoadedWriter, LogError> {
    let (path, data_path) = (index_path(scope.dir, number), data_path(scope.dir, number));
    let index = scope.disk.open(&path, OpenMode::Read).map_err(at("opening", &path))?;
    let bytes = index_bytes.min(index.length().map_err(at("examining", &path))?);
    let mut text = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let count = index.read_at(&mut text, 0).map_err(at("reading", &path))?;
    text.truncate(count);
    let data = match scope.disk.open(&data_path, OpenMode::Read) {
        Ok(data) => Some(data),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(at("opening", &data_path)(error)),
    };
    let data_bytes = match &data {
        Some(data) => data.length().map_err(at("examining", &data_path))?,
        None => 0,
    };
    let mut sieve = EntrySieve::new(&text, scope);
    let mut entries = Vec::new();
    for entry in sieve.decoded() {
        if sieve.counts(&entry, data.as_deref(), data_bytes).map_err(at("reading", &data_path))? {
            entries.push(entry);
        }
    }
    let (index_bytes, synced) = (count as u64, sieve.synced);
    let findings = sieve.findings(number, &entries, data_bytes);
    Ok(LoadedWriter { number, index_bytes, data_bytes, entries, synced, findings })
}

/// Decides entry by entry.
#[derive(Debug)]
struct EntrySieve<'a> {
    text: &'a [u8],
    /// Whether bytes that were not synced may be missing.
    is_doubted: bool,
    nonce: Option<u32>,
    synced: Order,
    torn: u64,
    short: u64,
    lost: u64,
    second: u64,
}

impl<'a> EntrySieve<'a> {
    fn new(text: &'a [u8], scope: LoadScope<'_>) -> EntrySieve<'a> {
        let mut sieve = EntrySieve {
            text,
            is_doubted: true,
            nonce: None,
            synced: Order(0),
            torn: 0,
            short: 0,
            lost: 0,
            second: 0,
        };
        let mut life: Option<Life> = None;
        let mut whole = 0;
        for entry in sieve.decoded() {
            whole += 1;
            let nonce = *sieve.nonce.get_or_insert(entry.nonce);
            sieve.second += u64::from(nonce != entry.nonce);
            match entry.body {
                EntryBody::Head { life: found, .. } => life = life.or(Some(found)),
                EntryBody::Synced if nonce == entry.nonce => sieve.synced = sieve.synced.max(entry.order),
                EntryBody::Synced | EntryBody::Data(_) | EntryBody::Cut { .. } => {}
            }
        }
        sieve.torn = text.len().div_ceil(ENTRY_BYTES) as u64 - whole;
        sieve.is_doubted = !scope.is_verified && life != Some(scope.disk.life());
        sieve
    }

    fn decoded(&self) -> impl Iterator<Item = LogEntry> + use<'a> {
        let text = self.text;
        text.chunks_exact(ENTRY_BYTES).filter_map(|bytes| LogEntry::decode(bytes.try_into().ok()?))
    }

    /// Whether an entry counts; counts those that do not.
    fn counts(
        &mut self,
        entry: &LogEntry,
        data: Option<&dyn DiskFile>,
        data_bytes: u64,
    ) -> std::io::Result<bool> {
        let found = match entry.body {
            EntryBody::Head { .. } | EntryBody::Synced => return Ok(false),
            EntryBody::Cut { .. } => return Ok(true),
            EntryBody::Data(found) => found,
        };
        let Some(data) = data.filter(|_| found.log_end() <= data_bytes) else {
            self.short += 1;
            return Ok(false);
        };
        // Two writers wrote over each other's bytes: nothing that either of them said is certain.
        let is_certain = self.second == 0 && (!self.is_doubted || entry.order <= self.synced);
        if is_certain || bytes_match(data, &found)? {
            return Ok(true);
        }
        self.lost += 1;
        Ok(false)
    }

    fn findings(&self, number: WriterNumber, counted: &[LogEntry], data_bytes: u64) -> Vec<LogFinding> {
        let end = counted.iter().filter_map(|entry| match entry.body {
            EntryBody::Data(data) => Some(data.log_end()),
            EntryBody::Head { .. } | EntryBody::Cut { .. } | EntryBody::Synced => None,
        });
        let kinds = [
            FindingKind::Torn { entries: self.torn },
            FindingKind::Short { entries: self.short, log_bytes: data_bytes },
            FindingKind::Lost { entries: self.lost },
            FindingKind::TwoWriters { entries: self.second },
            FindingKind::Unindexed { bytes: data_bytes.saturating_sub(end.max().unwrap_or(0)) },
        ];
        let is_there = |kind: &FindingKind| match kind {
            FindingKind::Torn { entries }
            | FindingKind::Short { entries, .. }
            | FindingKind::Lost { entries }
            | FindingKind::Damaged { entries }
            | FindingKind::TwoWriters { entries } => 0 < *entries,
            FindingKind::Unindexed { bytes } => 0 < *bytes,
        };
        let finding = |kind| LogFinding { writer: number.0, kind };
        kinds.into_iter().filter(is_there).map(finding).collect()
    }
}

/// Whether the bytes of an entry are those that were written.
pub(crate) fn bytes_match(data: &dyn DiskFile, entry: &DataEntry) -> std::io::Result<bool> {
    let mut buffer = vec![0; COMPARE_BYTES];
    let (mut sum, mut at) = (0, entry.place);
    while at < entry.log_end() {
        let bytes =
            usize::try_from(entry.log_end() - at).map_or(COMPARE_BYTES, |left| left.min(COMPARE_BYTES));
        if data.read_at(&mut buffer[..bytes], at)? < bytes {
            return Ok(false);
        }
        sum = crc32c::crc32c_append(sum, &buffer[..bytes]);
        at += bytes as u64;
    }
    Ok(sum == entry.sum)
}

/// The index of all counting entries, and their newest order.
pub(crate) fn build(writers: &[LoadedWriter]) -> (LogIndex, Order) {
    let entries = writers.iter().flat_map(|writer| writer.entries.iter().map(|entry| (writer.number, entry)));
    let mut sorted: Vec<(WriterNumber, &LogEntry)> = entries.collect();
    // Stable: entries of one writer with one order stay in the order of their index.
    sorted.sort_by_key(|(number, entry)| (entry.order, *number));
    let mut index = LogIndex::default();
    for (number, entry) in &sorted {
        match entry.body {
            EntryBody::Data(data) => index.insert_entry(data, entry.order, *number),
            EntryBody::Cut { bytes } => index.cut(bytes, entry.order),
            EntryBody::Head { .. } | EntryBody::Synced => {}
        }
    }
    (index, sorted.last().map_or(Order(0), |(_, entry)| entry.order))
}
