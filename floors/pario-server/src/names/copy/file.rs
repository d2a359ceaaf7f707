//! Bytes of a names file: a snapshot of all rows, then changes. Layout: `docs/formats/names.md`, "Names file".
//!
//! It is the second copy, and the output of `pario doctor NAME --names export`. Never: does disk I/O. Always: damage costs only the record
//! that it hits, and missing records are counted.

use std::collections::BTreeMap;

use pario_core::{Code, Fault, PartitionId};

use crate::names::batch::Batch;
use crate::names::log;
use crate::names::record::{FILE_HEAD_BYTES, FileHead, Item, LogRecord, RECORDS_AT, scan};

/// First bytes of every names file.
pub const MAGIC: [u8; 8] = *b"PARIONAM";
/// Version of the format.
pub const VERSION: u32 = 1;

/// Type of a record: partition and last batch; written twice.
const ABOUT: u8 = 0;
/// Rows of the snapshot.
const ROWS: u8 = 1;
/// Number of rows of the snapshot; written twice.
const END: u8 = 2;
/// A batch.
const CHANGE: u8 = 3;

/// Encodes a names file, in order.
#[derive(Debug)]
pub struct Encoder {
    salt: u32,
    parts: u64,
    rows: u64,
    body: Vec<u8>,
}

impl Encoder {
    /// Begins a file: its head, its partition, and the last batch `applied`.
    pub fn begin(number: u64, partition: PartitionId, applied: u64, target: &mut Vec<u8>) -> Encoder {
        let head = FileHead { number, salt: log::random(), boot: 0 }.encode_once(&MAGIC, VERSION);
        let salt = FileHead::decode_twice(&head, &MAGIC, VERSION).expect("was just made").salt;
        target.extend_from_slice(&head);
        target.extend_from_slice(&head);
        let mut encoder = Encoder { salt, parts: 0, rows: 0, body: Vec::new() };
        for _ in 0..2 {
            encoder.put(applied, ABOUT, &partition.0, target);
        }
        encoder
    }

    /// Adds rows of the snapshot.
    pub fn rows(&mut self, batch: &Batch, target: &mut Vec<u8>) {
        self.parts += 1;
        self.rows += batch.rows().count() as u64;
        self.put(self.parts, ROWS, batch.as_bytes(), target);
    }

    /// Ends the snapshot.
    pub fn end(&mut self, target: &mut Vec<u8>) {
        let rows = self.rows.to_le_bytes();
        for _ in 0..2 {
            self.put(self.parts, END, &rows, target);
        }
    }

    /// Adds a change after the snapshot.
    pub fn change(&mut self, sequence: u64, body: &[u8], target: &mut Vec<u8>) {
        self.put(sequence, CHANGE, body, target);
    }

    fn put(&mut self, sequence: u64, kind: u8, body: &[u8], target: &mut Vec<u8>) {
        self.body.clear();
        self.body.push(kind);
        self.body.extend_from_slice(body);
        LogRecord { sequence, durable: 0, body: &self.body }.encode(self.salt, target);
    }
}

/// Contents of a names file.
#[derive(Debug)]
pub struct NamesImage<'a> {
    /// The partition; `None` if that record is damaged.
    pub partition: Option<PartitionId>,
    /// Last batch of the snapshot.
    pub applied: u64,
    /// Rows of the snapshot, as batches.
    parts: BTreeMap<u64, &'a [u8]>,
    /// Number of rows found.
    pub found_rows: u64,
    /// Number of rows expected; `None` if the snapshot is incomplete.
    pub expected_rows: Option<u64>,
    /// Changes after it, by sequence number.
    pub changes: BTreeMap<u64, &'a [u8]>,
    /// Damaged ranges.
    pub damaged: u64,
}

impl<'a> NamesImage<'a> {
    /// Reads a names file.
    ///
    /// # Errors
    /// [`Code::Corrupt`] if it is none, or its last batch is unknown.
    pub fn parse(file: &'a [u8]) -> Result<NamesImage<'a>, Fault> {
        let corrupt = |what: &str| Fault::new(Code::Corrupt, format!("names file: {what}"));
        let head = FileHead::decode_twice(file, &MAGIC, VERSION)
            .ok_or_else(|| corrupt("its head is damaged, it is of another version, or no names file"))?;
        let mut image = NamesImage {
            partition: None,
            applied: 0,
            parts: BTreeMap::new(),
            found_rows: 0,
            expected_rows: None,
            changes: BTreeMap::new(),
            // One of the two heads.
            damaged: u64::from(file.get(..FILE_HEAD_BYTES) != file.get(FILE_HEAD_BYTES..RECORDS_AT)),
        };
        for item in scan(file, head.salt, RECORDS_AT) {
            match item {
                Item::Damage { .. } => image.damaged += 1,
                Item::Record(record) => image.take(&record),
            }
        }
        match image.partition {
            Some(_) => Ok(image),
            None => Err(corrupt("the records that name the partition are damaged")),
        }
    }

    fn take(&mut self, record: &LogRecord<'a>) {
        let Some((kind, body)) = record.body.split_first() else { return };
        match *kind {
            ABOUT => {
                self.partition = body.first_chunk().copied().map(PartitionId);
                self.applied = record.sequence;
            }
            ROWS => {
                let Ok(batch) = Batch::try_from(body) else { return self.damaged += 1 };
                if self.parts.insert(record.sequence, body).is_none() {
                    self.found_rows += batch.rows().count() as u64;
                }
            }
            END => self.expected_rows = body.first_chunk().copied().map(u64::from_le_bytes),
            CHANGE => {
                self.changes.insert(record.sequence, body);
            }
            _ => self.damaged += 1,
        }
    }

    /// Damaged rows of the snapshot; `None` if their number is unknown.
    #[must_use]
    pub fn lost_rows(&self) -> Option<u64> {
        self.expected_rows.map(|expected| expected.saturating_sub(self.found_rows))
    }

    /// The rows of the snapshot.
    pub fn snapshot(&self) -> impl Iterator<Item = Batch> + '_ {
        self.parts.values().map(|body| Batch::try_from(*body).expect("was looked at when it was read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(key: &[u8], value: &[u8]) -> Batch {
        let mut batch = Batch::default();
        batch.put(key, value);
        batch
    }

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::begin(3, PartitionId([7; 16]), 40, &mut bytes);
        for number in 0..5u8 {
            encoder.rows(&batch(&[number], &[number; 9]), &mut bytes);
        }
        encoder.end(&mut bytes);
        encoder.change(41, batch(b"a", b"later").as_bytes(), &mut bytes);
        bytes
    }

    #[test]
    fn comes_back_as_it_was() {
        let bytes = sample();
        assert_eq!(bytes[..12], *b"PARIONAM\x01\0\0\0");
        let image = NamesImage::parse(&bytes).unwrap();
        assert_eq!((image.partition, image.applied), (Some(PartitionId([7; 16])), 40));
        assert_eq!((image.found_rows, image.lost_rows(), image.damaged), (5, Some(0), 0));
        assert_eq!(image.snapshot().nth(4).unwrap(), batch(&[4], &[4; 9]));
        assert_eq!(image.changes[&41], batch(b"a", b"later").as_bytes());
    }

    #[test]
    fn a_flipped_byte_costs_at_most_one_record_and_is_counted() {
        let good = sample();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            let image = NamesImage::parse(&bad).unwrap_or_else(|fault| panic!("byte {at}: {fault}"));
            let lost = image.lost_rows().unwrap() + u64::from(image.changes.is_empty());
            assert!(lost <= 1, "byte {at}: {lost} lost");
            assert!(lost == 0 || 0 < image.damaged, "byte {at}");
        }
    }

    #[test]
    fn a_cut_file_is_not_whole() {
        let bytes = sample();
        let image = NamesImage::parse(&bytes[..320]).unwrap();
        assert_eq!(image.lost_rows(), None);
        assert!(NamesImage::parse(&bytes[..31]).is_err());
        assert!(NamesImage::parse(b"").is_err());
    }
}
