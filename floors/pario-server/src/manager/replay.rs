//! Replay: which records of the log files count after a crash.
//!
//! After a kill every record that `write` took is there. After a power cut those since the last sync may be there in any
//! selection, so that whole records can follow a torn one: the ledger's history ends before the first one that is missing,
//! and what follows never happened. But a record that was on stable storage must be whole: later records tell how far that
//! was, and damage before it is an error, never a silent loss.

use std::path::PathBuf;

use pario_core::{Code, Fault};

use super::batch::Batch;
use super::record::{FILE_HEAD_BYTES, FileHead, Item, Record, scan};

/// A log file, read whole.
#[derive(Debug)]
pub struct LogImage {
    /// Its number, from its name.
    pub number: u64,
    /// Its name, for messages.
    pub path: PathBuf,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// What a replay found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Last record that counts, or the `applied` it started from.
    pub last: u64,
    /// Highest sequence number met, also among records that do not count: none up to it may be used again.
    pub highest: u64,
    /// Whole records that do not count because one before them is missing.
    pub dropped: u64,
}

/// Calls `visit` with every record behind `applied` that counts, in order. `images` are in the order of their numbers.
pub fn replay(
    images: &[LogImage],
    applied: u64,
    mut visit: impl FnMut(u64, &Batch) -> Result<(), Fault>,
) -> Result<Replayed, Fault> {
    let mut state = Replayed { last: applied, highest: applied, dropped: 0 };
    let mut damage: Option<Damage<'_>> = None;
    for image in images {
        let Some(head) = head_of(image)? else { continue };
        for item in scan(&image.bytes, head.salt) {
            match item {
                Item::Damage { offset } => damage = Some(Damage { image, offset }),
                Item::Record(record) if record.sequence == state.last + 1 => {
                    let batch = Batch::try_from(record.body).map_err(|error| {
                        Fault::new(
                            Code::Corrupt,
                            format!("{}: record {}: {error}", image.path.display(), record.sequence),
                        )
                    })?;
                    visit(record.sequence, &batch)?;
                    state.last += 1;
                    damage = None;
                }
                Item::Record(record) if state.last < record.sequence => {
                    let place = damage.unwrap_or(Damage { image, offset: FILE_HEAD_BYTES });
                    check_never_durable(&record, state.last + 1, place)?;
                    state.dropped += 1;
                }
                Item::Record(_) => {}
            }
            if let Item::Record(record) = item {
                state.highest = state.highest.max(record.sequence);
            }
        }
    }
    Ok(state)
}

#[derive(Clone, Copy)]
struct Damage<'a> {
    image: &'a LogImage,
    offset: usize,
}

/// The head, or `None` for a file whose making was cut short: its head is synced before its first record is written.
fn head_of(image: &LogImage) -> Result<Option<FileHead>, Fault> {
    match FileHead::decode(&image.bytes) {
        Some(head) if head.number == image.number => Ok(Some(head)),
        None if image.bytes.len() <= FILE_HEAD_BYTES => Ok(None),
        _ => {
            let text =
                format!("{}: the head of this log is damaged, or of another version", image.path.display());
            Err(Fault::new(Code::Corrupt, text))
        }
    }
}

fn check_never_durable(found: &Record<'_>, missing: u64, place: Damage<'_>) -> Result<(), Fault> {
    if found.durable < missing {
        return Ok(());
    }
    let text = format!(
        "{}: record {missing} is damaged at byte {}, though it was on stable storage (record {} says so); restore this file",
        place.image.path.display(),
        place.offset,
        found.sequence,
    );
    Err(Fault::new(Code::Corrupt, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log file with records `(sequence, durable)`, and where each of them starts.
    fn image(number: u64, records: &[(u64, u64)]) -> (LogImage, Vec<usize>) {
        let head = FileHead { number, salt: 77 };
        let mut bytes = head.encode().to_vec();
        let mut starts = Vec::new();
        for (sequence, durable) in records {
            let mut batch = Batch::default();
            batch.put(b"key", &sequence.to_le_bytes());
            starts.push(bytes.len());
            Record { sequence: *sequence, durable: *durable, body: batch.as_bytes() }
                .encode(head.salt, &mut bytes);
        }
        (LogImage { number, path: PathBuf::from(format!("{number}.log")), bytes }, starts)
    }

    fn run(images: &[LogImage], applied: u64) -> Result<(Vec<u64>, Replayed), Fault> {
        let mut seen = Vec::new();
        let replayed = replay(images, applied, |sequence, _| {
            seen.push(sequence);
            Ok(())
        })?;
        Ok((seen, replayed))
    }

    #[test]
    fn goes_on_from_file_to_file_behind_what_was_applied() {
        let images = [image(1, &[(1, 0), (2, 0)]).0, image(2, &[(3, 0), (4, 3)]).0];
        let (seen, replayed) = run(&images, 1).unwrap();
        assert_eq!(seen, [2, 3, 4]);
        assert_eq!(replayed, Replayed { last: 4, highest: 4, dropped: 0 });
    }

    #[test]
    fn ends_before_a_record_that_was_never_durable() {
        let (mut image, starts) = image(1, &[(1, 0), (2, 1), (3, 1)]);
        image.bytes[starts[1] + 9] ^= 1;
        let (seen, replayed) = run(&[image], 0).unwrap();
        assert_eq!(seen, [1]);
        assert_eq!(replayed, Replayed { last: 1, highest: 3, dropped: 1 });
    }

    #[test]
    fn damage_to_a_durable_record_names_the_file() {
        let (mut damaged, starts) = image(1, &[(1, 0), (2, 1)]);
        damaged.bytes[starts[0] + 33] ^= 1;
        let fault = run(&[damaged], 0).unwrap_err();
        assert_eq!(fault.code, Code::Corrupt);
        assert!(fault.text.contains("1.log: record 1 is damaged at byte 32"), "{fault}");

        let (mut damaged, starts) = image(1, &[(1, 0), (2, 0)]);
        damaged.bytes.truncate(starts[1] + 8);
        let fault = run(&[damaged, image(2, &[(3, 2)]).0], 0).unwrap_err();
        assert!(fault.text.contains("1.log: record 2"), "{fault}");
    }

    #[test]
    fn damage_to_what_redb_has_does_no_harm() {
        let (mut image, starts) = image(1, &[(1, 0), (2, 1)]);
        image.bytes[starts[0] + 33] ^= 1;
        assert_eq!(run(&[image], 1).unwrap().0, [2]);
    }

    #[test]
    fn a_head_cut_short_is_no_log_and_a_damaged_one_is_an_error() {
        let mut young = image(1, &[]).0;
        young.bytes.truncate(20);
        assert_eq!(run(&[young], 5).unwrap().0, [0; 0]);
        let mut old = image(1, &[(1, 0)]).0;
        old.bytes[3] ^= 1;
        assert_eq!(run(&[old], 0).unwrap_err().code, Code::Corrupt);
        let mut renamed = image(1, &[(1, 0)]).0;
        renamed.number = 2;
        assert_eq!(run(&[renamed], 0).unwrap_err().code, Code::Corrupt);
    }
}
