//! The checksum table of one object, read and written under its lock.
//!
//! Never: reads or writes the object's bytes. Always: before bytes below the durable length change, the table says so on stable storage;
//! a table of another life is brought up to date before its first entry is used.

use std::io;

use super::loans;
use super::table::{GranuleSum, HEAD_BYTES, SUM_BYTES, TableHead, decode_sums, encode_sums, place_of};
use crate::disk::DiskFile;
use crate::marks::Life;

/// Entries written in one call.
const AT_ONCE: u64 = 8192;

/// Known state of a table; empty before the first use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct SumTable {
    pub(super) head: Option<TableHead>,
    /// Number of granules with an entry, including entries of unwritten granules.
    pub(super) entries: u64,
    /// Changes of the object so far.
    pub(super) changes: u64,
    /// Whether borrowers may write bytes and entries.
    pub(super) lent: bool,
}

/// Contents of the object for which a table is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Covers {
    /// There is no object: the table belongs to a removed one.
    Nothing,
    /// So many granules.
    Granules(u64),
}

impl SumTable {
    /// Opens a table for the present object; creates a missing one.
    pub(super) fn open(&mut self, file: &dyn DiskFile, covers: Covers, life: Life) -> io::Result<()> {
        let length = file.length()?;
        let found = match covers {
            Covers::Granules(_) if HEAD_BYTES <= length => read_head(file)?,
            Covers::Granules(_) | Covers::Nothing => None,
        };
        self.entries = length.saturating_sub(HEAD_BYTES) / SUM_BYTES;
        let head = match (found, covers) {
            (Some(head), _) if head.life == life => head,
            (Some(head), _) => {
                let trusted = head.trusted_granules();
                self.doubt(file, trusted..self.entries)?;
                // A head that trusts entries must not reach the disk before them.
                file.sync_data()?;
                let head = TableHead {
                    life,
                    overwritten: false,
                    durable: if trusted == 0 { 0 } else { head.durable },
                };
                write_head(file, &head)?;
                head
            }
            (None, covers) => {
                let head = TableHead::new(life);
                file.set_len(0)?;
                self.entries = 0;
                if let Covers::Granules(granules) = covers {
                    self.doubt(file, 0..granules)?;
                }
                write_head(file, &head)?;
                head
            }
        };
        self.head = Some(head);
        self.lent = loans::is_lent(file)?;
        Ok(())
    }

    /// Reads a table again that borrowers may write.
    pub(super) fn refresh(&mut self, file: &dyn DiskFile) -> io::Result<()> {
        if self.lent {
            self.lent = loans::is_lent(file)?;
            self.entries = file.length()?.saturating_sub(HEAD_BYTES) / SUM_BYTES;
        }
        Ok(())
    }

    /// Sets entries of granules to unknown.
    fn doubt(&mut self, file: &dyn DiskFile, granules: std::ops::Range<u64>) -> io::Result<()> {
        let mut at = granules.start;
        while at < granules.end {
            let count = AT_ONCE.min(granules.end - at);
            self.write(file, at, &vec![GranuleSum::Unknown; usize::try_from(count).expect("few")])?;
            at += count;
        }
        Ok(())
    }

    pub(super) fn read(
        &self,
        file: &dyn DiskFile,
        granules: &std::ops::Range<u64>,
    ) -> io::Result<Vec<GranuleSum>> {
        let count = usize::try_from(granules.end - granules.start).expect("of one access");
        if self.entries <= granules.start {
            return Ok(vec![GranuleSum::None; count]);
        }
        let mut bytes = vec![0; count * 8];
        let read = file.read_at(&mut bytes, place_of(granules.start))?;
        let known = usize::try_from(self.entries - granules.start).unwrap_or(usize::MAX).saturating_mul(8);
        Ok(decode_sums(&bytes[..read.min(known)], count))
    }

    pub(super) fn write(&mut self, file: &dyn DiskFile, first: u64, sums: &[GranuleSum]) -> io::Result<()> {
        file.write_at(&encode_sums(sums), place_of(first))?;
        self.entries = self.entries.max(first + sums.len() as u64);
        Ok(())
    }

    /// Granules from `first` on are about to change.
    pub(super) fn begin_change(&mut self, file: &dyn DiskFile, first: u64) -> io::Result<()> {
        self.changes += 1;
        let Some(head) = self.head.as_mut().filter(|head| first < head.trusted_granules()) else {
            return Ok(());
        };
        head.overwritten = true;
        write_head(file, head)?;
        file.sync_data()
    }

    /// Drops entries from `count` on.
    pub(super) fn cut(&mut self, file: &dyn DiskFile, count: u64) -> io::Result<()> {
        if count < self.entries {
            file.set_len(place_of(count))?;
            self.entries = count;
        }
        Ok(())
    }

    /// The object's first `bytes` bytes, which are all, are on stable storage. Returns whether the table must be synced.
    pub(super) fn seal(&mut self, file: &dyn DiskFile, bytes: u64) -> io::Result<bool> {
        let Some(head) = self.head.as_mut() else { return Ok(false) };
        if head.durable == bytes && !head.overwritten {
            return Ok(false);
        }
        if head.overwritten {
            // Old entries of overwritten granules must be replaced on disk before the head trusts them.
            file.sync_data()?;
        }
        head.durable = bytes;
        head.overwritten = false;
        write_head(file, head)?;
        Ok(true)
    }
}

/// Number of valid entries in a table without an object.
pub(super) fn entries_of_lost(file: &dyn DiskFile, life: &Life) -> io::Result<u64> {
    let entries = file.length()?.saturating_sub(HEAD_BYTES) / SUM_BYTES;
    Ok(match read_head(file)? {
        Some(head) if head.life == *life => entries,
        Some(head) => entries.min(head.trusted_granules()),
        None => 0,
    })
}

fn read_head(file: &dyn DiskFile) -> io::Result<Option<TableHead>> {
    let mut bytes = [0; 64];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(if read == bytes.len() { TableHead::decode(&bytes) } else { None })
}

fn write_head(file: &dyn DiskFile, head: &TableHead) -> io::Result<()> {
    file.write_at(&head.encode(), 0)
}
