//! The ledger's log: files of records that are appended by one `write` each, and retired when redb has their contents.
//!
//! Never: syncs by itself; the ledger's threads do. Always: a file's head and name are on stable storage before its first record is
//! written; a partly written record is truncated before the next.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::Fault;
use pario_store::disk::{Disk, DiskFile, EntryKind, OpenMode};
use pario_sys::kill_point::{Point, reach};

use super::record::{FileHead, LogRecord, RECORDS_AT, boot};
use super::replay::LogImage;

const PREFIX: &str = "names.";
const SUFFIX: &str = ".log";
/// Space allocated for a new log: some 400 changes.
const ROOM_BYTES: u64 = 64 << 10;

/// The file that records are appended to.
#[derive(Debug)]
pub struct LedgerLog {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    head: FileHead,
    end: u64,
    /// Bytes of a partly written record may follow `end`.
    torn: bool,
    buffer: Vec<u8>,
}

/// A log file without a writer: it is only synced and removed.
#[derive(Clone, Debug)]
pub struct OldLog {
    /// For syncing.
    pub file: Arc<dyn DiskFile>,
    /// For removing.
    pub path: PathBuf,
    /// Its last record.
    pub last_sequence: u64,
}

impl LedgerLog {
    /// Creates the log file of a number, durably.
    pub fn create(disk: &dyn Disk, dir: &Path, number: u64) -> Result<LedgerLog, Fault> {
        let path = dir.join(format!("{PREFIX}{number:012}{SUFFIX}"));
        let head = FileHead { number, salt: random(), boot: boot() };
        let make = || {
            // A file of this number can only be left over from a failed creation: it never had a record.
            let file = disk.open(&path, OpenMode::Create)?;
            file.set_len(0)?;
            file.write_at(&head.encode(), 0)?;
            // A disk that fills up later leaves room for records that free space; a disk that cannot preallocate is used without.
            let _ = file.make_room(0, ROOM_BYTES);
            file.sync_data()?;
            disk.sync_dir(dir)?;
            Ok(file)
        };
        let file = make()
            .map_err(|error: io::Error| Fault::from_io(&error, format!("making {}", path.display())))?;
        Ok(LedgerLog { file, path, head, end: RECORDS_AT as u64, torn: false, buffer: Vec::new() })
    }

    /// Appends a record, twice, by one write. On an error the log is unchanged.
    pub fn append(&mut self, record: &LogRecord<'_>) -> Result<(), Fault> {
        self.buffer.clear();
        record.encode(self.head.salt, &mut self.buffer);
        self.buffer.extend_from_within(..);
        reach(Point::LogUnwritten);
        let written = self.cut_torn().and_then(|()| self.file.write_at(&self.buffer, self.end));
        if let Err(error) = written {
            self.torn = true;
            // If this fails too, it is retried before the next record.
            let _ = self.cut_torn();
            return Err(Fault::from_io(&error, format!("writing {}", self.path.display())));
        }
        reach(Point::LogWritten);
        self.end += self.buffer.len() as u64;
        Ok(())
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.head.number
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// The file, to sync or to retire it.
    #[must_use]
    pub fn retired(&self, last_sequence: u64) -> OldLog {
        OldLog { file: Arc::clone(&self.file), path: self.path.clone(), last_sequence }
    }

    fn cut_torn(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.end)?;
            self.torn = false;
        }
        Ok(())
    }
}

/// Reads every log file of a directory, in the order of their numbers.
pub fn read_all(disk: &dyn Disk, dir: &Path) -> Result<Vec<LogImage>, Fault> {
    let doing = |path: &Path| format!("reading {}", path.display());
    let entries = disk.list_dir(dir).map_err(|error| Fault::from_io(&error, doing(dir)))?;
    let mut images = Vec::new();
    for (name, kind) in entries {
        let Some(number) = number_of(&name.to_string_lossy()) else { continue };
        if kind == EntryKind::File {
            let path = dir.join(name);
            let bytes = read_file(disk, &path).map_err(|error| Fault::from_io(&error, doing(&path)))?;
            images.push(LogImage { number, path, bytes });
        }
    }
    images.sort_by_key(|image| image.number);
    Ok(images)
}

/// All bytes of a file.
pub fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// A number that no other process can guess, from the same source as the seeds of hash maps.
pub fn random() -> u32 {
    let bits = std::hash::RandomState::new().build_hasher().finish();
    #[expect(clippy::cast_possible_truncation, reason = "half of the random bits are enough")]
    let low = bits as u32;
    low
}
