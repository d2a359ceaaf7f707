//! The summary of a container, written when it is closed: its length without its indexes. Format: docs/formats/log.md.
//!
//! Never: needed; without it, or beside an index of another length, the indexes are read. Always: replaced whole.

use std::path::Path;

use super::entry::{Order, WriterNumber};
use super::marker::{SUMMARY, SUMMARY_NEW, data_path, index_path};
use crate::disk::{Disk, OpenMode};
use crate::marks::Life;

const MAGIC: &[u8; 8] = b"PARIOSUM";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
const WRITER_BYTES: usize = 24;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogSummary {
    pub(crate) length: u64,
    pub(crate) newest: Order,
    /// The machine's life in which it was written.
    pub(crate) life: Life,
    /// Whether all bytes were on stable storage.
    pub(crate) is_durable: bool,
    pub(crate) writers: Vec<WriterLengths>,
}

/// Lengths of the files of one writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriterLengths {
    pub(crate) number: WriterNumber,
    pub(crate) index_bytes: u64,
    pub(crate) data_bytes: u64,
}

impl WriterLengths {
    pub(crate) fn measure(
        disk: &dyn Disk,
        dir: &Path,
        number: WriterNumber,
    ) -> std::io::Result<WriterLengths> {
        let index_bytes = disk.length(&index_path(dir, number))?.unwrap_or(0);
        let data_bytes = disk.length(&data_path(dir, number))?.unwrap_or(0);
        Ok(WriterLengths { number, index_bytes, data_bytes })
    }
}

impl LogSummary {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.newest.0.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.life);
        bytes[48] = u8::from(self.is_durable);
        for writer in &self.writers {
            bytes.extend(u64::from(writer.number.0).to_le_bytes());
            bytes.extend(writer.index_bytes.to_le_bytes());
            bytes.extend(writer.data_bytes.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<LogSummary> {
        let word =
            |at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
        let half =
            |at: usize| -> Option<u32> { Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
        let is_whole = HEAD_BYTES <= bytes.len()
            && bytes[..8] == *MAGIC
            && half(8)? == VERSION
            && half(12)? == crc32c::crc32c(&bytes[16..]);
        if !is_whole {
            return None;
        }
        let writer = |start: usize| {
            let number = WriterNumber(u32::try_from(word(start)?).ok()?);
            Some(WriterLengths { number, index_bytes: word(start + 8)?, data_bytes: word(start + 16)? })
        };
        let writers = (HEAD_BYTES..bytes.len()).step_by(WRITER_BYTES).map(writer).collect::<Option<_>>()?;
        Some(LogSummary {
            length: word(16)?,
            newest: Order(word(24)?),
            life: bytes[32..48].try_into().ok()?,
            is_durable: bytes[48] != 0,
            writers,
        })
    }

    /// The summary of a container; `None` if there is none, or it is damaged.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Option<LogSummary> {
        let file = disk.open(&dir.join(SUMMARY), OpenMode::Read).ok()?;
        let mut bytes = vec![0; usize::try_from(file.length().ok()?).ok()?];
        let count = file.read_at(&mut bytes, 0).ok()?;
        LogSummary::decode(&bytes[..count])
    }

    /// Replaces the summary of a container.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
        let new = dir.join(SUMMARY_NEW);
        let file = disk.open(&new, OpenMode::Create)?;
        let bytes = self.encode();
        file.set_len(bytes.len() as u64)?;
        file.write_at(&bytes, 0)?;
        disk.rename(&new, &dir.join(SUMMARY))
    }

    /// Whether it tells the truth about a container with these files now.
    pub(crate) fn is_valid(&self, now: &[WriterLengths], life: &Life) -> bool {
        self.writers == now && (self.is_durable || self.life == *life)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real_disk::RealDisk;

    #[test]
    fn it_leads_back_and_counts_only_beside_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LogSummary::read(&RealDisk, dir.path()), None);
        let writers: Vec<_> = (1..4)
            .map(|number| WriterLengths {
                number: WriterNumber(number),
                index_bytes: 128,
                data_bytes: 1 << 33,
            })
            .collect();
        let mut summary = LogSummary {
            length: 77,
            newest: Order(9),
            life: [3; 16],
            is_durable: false,
            writers: writers.clone(),
        };
        summary.write(&RealDisk, dir.path()).unwrap();
        assert_eq!(LogSummary::read(&RealDisk, dir.path()), Some(summary.clone()));
        assert!(summary.is_valid(&writers, &[3; 16]));
        assert!(!summary.is_valid(&writers, &[4; 16]), "the machine failed since");
        assert!(!summary.is_valid(&writers[1..], &[3; 16]));
        summary.is_durable = true;
        assert!(summary.is_valid(&writers, &[4; 16]));
        let bytes = summary.encode();
        assert_eq!(bytes.len(), 64 + 3 * 24);
        for length in 0..bytes.len() {
            assert_eq!(LogSummary::decode(&bytes[..length]), None, "cut at {length}");
        }
    }
}
