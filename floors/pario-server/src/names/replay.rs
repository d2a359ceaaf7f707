//! Replay: which records of the log files count after a crash.
//!
//! After a kill every record that `write` accepted is present. After a power cut those since the last sync may be present in any selection,
//! so that complete records can follow a torn one. A missing record is first searched in the second copy. If it is missing there too, there
//! are two cases. Damage: a later record states that the missing one was on stable storage, or the log is of the current boot, which saw no
//! power cut; then the following records count and the loss is reported. Else a power cut: the history ends before the missing record, and
//! the following records are dropped.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use pario_core::{Code, Fault};

use super::batch::Batch;
use super::record::{FileHead, Item, RECORDS_AT, scan};

/// A log file, read entirely.
#[derive(Debug)]
pub struct LogImage {
    /// Its number, from its name.
    pub number: u64,
    /// Its path, for messages.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Result of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Last record that counts, or the `applied` it started from.
    pub last: u64,
    /// Highest sequence number found, also among dropped records: none up to it may be reused.
    pub highest: u64,
    /// Complete records that do not count because an earlier one is missing.
    pub dropped: u64,
    /// Missing records that were written, while later ones count.
    pub lost: u64,
}

/// Records after `applied`, from all sources.
#[derive(Debug)]
pub struct ReplayRecords<'a> {
    applied: u64,
    found: BTreeMap<u64, ReplayItem<'a>>,
    /// Highest sequence number found.
    highest: u64,
    /// Every record up to this one was on stable storage once.
    durable: u64,
    /// Damaged ranges.
    pub damaged: u64,
    /// Of these, the last file's tail, with no record after it: an interrupted write, or damage.
    pub torn_tail: bool,
}

#[derive(Debug)]
struct ReplayItem<'a> {
    body: &'a [u8],
    /// All earlier records were written before it: the machine was not rebooted since, or it is of the copy, which is written in order.
    in_order: bool,
}

impl<'a> ReplayRecords<'a> {
    /// The records of the log files. `boot` is the current boot, as in [`super::record::boot`]; 0: unknown. `images` are in the order of
    /// their numbers.
    #[must_use]
    pub fn of(images: &'a [LogImage], applied: u64, boot: u32) -> ReplayRecords<'a> {
        let mut records = ReplayRecords {
            applied,
            found: BTreeMap::new(),
            highest: applied,
            durable: 0,
            damaged: 0,
            torn_tail: false,
        };
        for image in images {
            records.torn_tail = false;
            let Some(start) =
                FileHead::decode(&image.bytes).filter(|start| start.head.number == image.number)
            else {
                // A file with an interrupted creation has no record: its head is synced before the first one is written.
                records.damaged += u64::from(RECORDS_AT < image.bytes.len());
                continue;
            };
            let this_boot = boot != 0 && start.head.boot == boot;
            for item in scan(&image.bytes, start.head.salt, start.records_at) {
                records.torn_tail = matches!(item, Item::Damage { .. });
                match item {
                    Item::Damage { .. } => records.damaged += 1,
                    Item::Record(record) => {
                        records.highest = records.highest.max(record.sequence);
                        records.durable = records.durable.max(record.durable);
                        records.add(record.sequence, record.body, this_boot);
                    }
                }
            }
        }
        records
    }

    /// Adds records of the second copy; those of the log take precedence.
    pub fn add_copied(&mut self, changes: &'a BTreeMap<u64, &'a [u8]>) {
        for (sequence, body) in changes {
            self.highest = self.highest.max(*sequence);
            self.add(*sequence, body, true);
        }
    }

    fn add(&mut self, sequence: u64, body: &'a [u8], in_order: bool) {
        if self.applied < sequence {
            self.found.entry(sequence).or_insert(ReplayItem { body, in_order });
        }
    }

    /// Whether a record between others is missing.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        self.holes().next().is_some()
    }

    fn holes(&self) -> impl Iterator<Item = Range<u64>> {
        let mut next = self.applied + 1;
        self.found.keys().filter_map(move |sequence| {
            let hole = next..*sequence;
            next = sequence + 1;
            (!hole.is_empty()).then_some(hole)
        })
    }

    /// Calls `visit` with every record that counts, in order.
    pub fn play(&self, mut visit: impl FnMut(u64, &Batch) -> Result<(), Fault>) -> Result<Replayed, Fault> {
        let mut state = Replayed { last: self.applied, highest: self.highest, dropped: 0, lost: 0 };
        for (sequence, found) in &self.found {
            let missing = state.last + 1..*sequence;
            if !missing.is_empty() && !self.is_damage(&missing) {
                state.dropped = self.found.range(sequence..).count() as u64;
                return Ok(state);
            }
            state.lost += missing.end - missing.start;
            let batch = Batch::try_from(found.body)
                .map_err(|error| Fault::new(Code::Corrupt, format!("names: record {sequence}: {error}")))?;
            visit(*sequence, &batch)?;
            state.last = *sequence;
        }
        Ok(state)
    }

    fn is_damage(&self, missing: &Range<u64>) -> bool {
        missing.start <= self.durable || self.found.range(missing.end..).any(|(_, found)| found.in_order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::record::LogRecord;

    /// A log file with records `(sequence, durable)`, and the offset of each.
    fn image(number: u64, records: &[(u64, u64)]) -> (LogImage, Vec<usize>) {
        let head = FileHead { number, salt: 77, boot: 5 };
        let mut bytes = head.encode().to_vec();
        let mut starts = Vec::new();
        for (sequence, durable) in records {
            let mut batch = Batch::default();
            batch.put(b"key", &sequence.to_le_bytes());
            starts.push(bytes.len());
            LogRecord { sequence: *sequence, durable: *durable, body: batch.as_bytes() }
                .encode(head.salt, &mut bytes);
        }
        (LogImage { number, path: PathBuf::from(format!("{number}.log")), bytes }, starts)
    }

    fn run(images: &[LogImage], applied: u64, boot: u32) -> (Vec<u64>, Replayed) {
        let mut seen = Vec::new();
        let replayed = ReplayRecords::of(images, applied, boot).play(|sequence, _| {
            seen.push(sequence);
            Ok(())
        });
        (seen, replayed.unwrap())
    }

    #[test]
    fn goes_on_from_file_to_file_behind_what_was_applied() {
        let images = [image(1, &[(1, 0), (2, 0)]).0, image(2, &[(3, 0), (4, 3)]).0];
        let (seen, replayed) = run(&images, 1, 0);
        assert_eq!(seen, [2, 3, 4]);
        assert_eq!(replayed, Replayed { last: 4, highest: 4, dropped: 0, lost: 0 });
    }

    #[test]
    fn after_a_power_cut_it_ends_before_a_record_that_was_never_durable() {
        let (mut image, starts) = image(1, &[(1, 0), (2, 1), (3, 1)]);
        image.bytes[starts[1] + 9] ^= 1;
        let (seen, replayed) = run(&[image], 0, 6);
        assert_eq!(seen, [1]);
        assert_eq!(replayed, Replayed { last: 1, highest: 3, dropped: 1, lost: 0 });
    }

    /// A former bug: a flipped bit in the log dropped every later change, though the machine had run all the time.
    #[test]
    fn without_a_power_cut_what_follows_a_damaged_record_counts() {
        let (mut image, starts) = image(1, &[(1, 0), (2, 1), (3, 1)]);
        image.bytes[starts[1] + 9] ^= 1;
        let (seen, replayed) = run(&[image], 0, 5);
        assert_eq!(seen, [1, 3]);
        assert_eq!(replayed, Replayed { last: 3, highest: 3, dropped: 0, lost: 1 });
    }

    #[test]
    fn damage_to_a_durable_record_costs_that_record_and_is_counted() {
        let (mut damaged, starts) = image(1, &[(1, 0), (2, 1)]);
        damaged.bytes[starts[0] + 33] ^= 1;
        assert_eq!(run(&[damaged], 0, 0), (vec![2], Replayed { last: 2, highest: 2, dropped: 0, lost: 1 }));

        let (mut damaged, starts) = image(1, &[(1, 0), (2, 0)]);
        damaged.bytes.truncate(starts[1] + 8);
        let (seen, replayed) = run(&[damaged, image(2, &[(3, 2)]).0], 0, 0);
        assert_eq!((seen, replayed.lost), (vec![1, 3], 1));
    }

    #[test]
    fn a_hole_is_filled_from_the_second_copy() {
        let (mut damaged, starts) = image(1, &[(1, 0), (2, 1), (3, 1)]);
        damaged.bytes[starts[1] + 33] ^= 1;
        let images = [damaged];
        let mut records = ReplayRecords::of(&images, 0, 0);
        assert!(records.has_holes() && records.damaged == 1 && !records.torn_tail);
        let mut batch = Batch::default();
        batch.put(b"key", b"copied");
        let copied = BTreeMap::from([(2, batch.as_bytes())]);
        records.add_copied(&copied);
        assert!(!records.has_holes());
        let mut seen = Vec::new();
        let replayed = records.play(|sequence, _| {
            seen.push(sequence);
            Ok(())
        });
        assert_eq!((seen, replayed.unwrap().lost), (vec![1, 2, 3], 0));
    }

    #[test]
    fn damage_to_what_redb_has_does_no_harm() {
        let (mut image, starts) = image(1, &[(1, 0), (2, 1)]);
        image.bytes[starts[0] + 33] ^= 1;
        assert_eq!(run(&[image], 1, 0).0, [2]);
    }

    #[test]
    fn a_head_cut_short_is_no_log_and_a_file_without_a_head_is_damage() {
        let mut young = image(1, &[]).0;
        young.bytes.truncate(20);
        let images = [young];
        let records = ReplayRecords::of(&images, 5, 0);
        assert_eq!((records.damaged, records.has_holes()), (0, false));
        let mut old = image(1, &[(1, 0)]).0;
        (old.bytes[3], old.bytes[35]) = (0, 0);
        let mut renamed = image(2, &[(2, 0)]).0;
        renamed.number = 7;
        let images = [old, renamed];
        assert_eq!(ReplayRecords::of(&images, 0, 0).damaged, 2);
    }
}
