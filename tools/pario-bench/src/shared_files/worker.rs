//! One process of `pario bench shared-files`: takes records in random order, reads, unpacks, changes, packs and writes them back.
//!
//! Always: every byte is verified, while records are taken and at the end.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use pario::distant::{Distant, DistantOptions, FilePlace, SharedFile, SharedFileOptions};
use pario::{Group, Partition};
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::JobOutcome;
use crate::clock::BenchTimer;

/// Distance of records.
pub(crate) const SLOT: u64 = 64 << 10;
/// Smallest record.
const RECORD_MIN: u64 = 15 << 10;
/// One more than the largest record.
const RECORD_END: u64 = 45 << 10;
/// The usual request.
const USUAL: u64 = 30 << 10;

/// Where the records are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RecordSide {
    /// A shared file over all processes.
    Shared,
    /// One plain file of the node.
    Plain,
    /// A file of a partition.
    Partition,
}

/// A job of a worker; all processes do the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RecordJob {
    pub(crate) side: RecordSide,
    pub(crate) dir: PathBuf,
    pub(crate) partition: String,
    pub(crate) records: u64,
    pub(crate) seed: u64,
}

/// The file of a side.
enum RecordFile {
    Shared(SharedFile),
    Plain(File),
    Partition(pario::File),
}

impl RecordFile {
    fn read(&self, at: u64, target: &mut [u8]) -> Result<(), BenchError> {
        match self {
            RecordFile::Shared(file) => Ok(file.read_at(at, target)?),
            RecordFile::Plain(file) => {
                file.read_exact_at(target, at).map_err(BenchError::when("reading a record"))
            }
            RecordFile::Partition(file) => match file.read_at(at, target)? {
                count if count == target.len() => Ok(()),
                count => Err(BenchError::Wrong(format!("{count} bytes of a record of {}", target.len()))),
            },
        }
    }

    fn write(&self, at: u64, source: &[u8]) -> Result<(), BenchError> {
        match self {
            RecordFile::Shared(file) => Ok(file.write_at(at, source)?),
            RecordFile::Plain(file) => {
                file.write_all_at(source, at).map_err(BenchError::when("writing a record"))
            }
            RecordFile::Partition(file) => Ok(file.write_at(at, source)?),
        }
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Bytes of a record in a version.
fn length(record: u64, version: u64, seed: u64) -> usize {
    let chance = mix(record.wrapping_mul(31) ^ version ^ seed);
    usize::try_from((RECORD_MIN + chance % (RECORD_END - RECORD_MIN)) / 8 * 8).unwrap_or(0)
}

fn pack(record: u64, version: u64, seed: u64, buffer: &mut Vec<u8>) {
    buffer.clear();
    let base = mix(record ^ version << 40 ^ seed);
    let words = length(record, version, seed) as u64 / 8;
    (0..words).for_each(|word| buffer.extend_from_slice(&base.wrapping_add(word).to_le_bytes()));
}

fn unpack(record: u64, version: u64, seed: u64, buffer: &[u8]) -> Result<(), BenchError> {
    let base = mix(record ^ version << 40 ^ seed);
    let (words, _) = buffer.as_chunks::<8>();
    let is_right =
        words.iter().zip(0u64..).all(|(bytes, word)| u64::from_le_bytes(*bytes) == base.wrapping_add(word));
    match is_right {
        true => Ok(()),
        false => Err(BenchError::Wrong(format!("record {record}, version {version}, has other bytes"))),
    }
}

/// The next ticket: processes append one byte each to a common file.
struct Tickets(File);

impl Tickets {
    fn open(job: &RecordJob) -> Result<Tickets, BenchError> {
        let path = job.dir.join("tickets");
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.map(Tickets).map_err(BenchError::at("opening", &path))
    }

    fn next(&mut self) -> Result<u64, BenchError> {
        let taken = self.0.write_all(b".").and_then(|()| self.0.stream_position());
        taken.map(|end| end - 1).map_err(BenchError::when("taking a record"))
    }
}

/// Runs the job.
pub(crate) fn run(job: &RecordJob) -> Result<JobOutcome, BenchError> {
    let group = pario::group::from_env()?
        .ok_or_else(|| BenchError::Worker("a worker of `bench shared-files` without a group".into()))?;
    let mut outcome = JobOutcome::default();
    let distant = match job.side {
        RecordSide::Shared => Some(Distant::join(&group, &DistantOptions::serving())?),
        RecordSide::Plain | RecordSide::Partition => None,
    };
    if let Some(distant) = &distant {
        let began = BenchTimer::now();
        create(distant, job)?.destroy(distant)?;
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        outcome.counts.insert("create_destroy_ns".into(), ns);
    }
    let file = open(&group, distant.as_ref(), job)?;
    work(&group, &file, job, &mut outcome)?;
    match (file, &distant) {
        (RecordFile::Shared(file), Some(distant)) => file.destroy(distant)?,
        (RecordFile::Partition(file), _) => file.close()?,
        (RecordFile::Shared(_) | RecordFile::Plain(_), _) => {}
    }
    if let Some(distant) = distant {
        distant.leave()?;
    }
    group.leave();
    Ok(outcome)
}

fn create(distant: &Distant, job: &RecordJob) -> Result<SharedFile, BenchError> {
    let options = SharedFileOptions::for_requests(USUAL).path(job.dir.join("shared"));
    Ok(distant.create(&options.place(FilePlace::Distant))?)
}

fn open(
    group: &Arc<dyn Group>,
    distant: Option<&Distant>,
    job: &RecordJob,
) -> Result<RecordFile, BenchError> {
    match (job.side, distant) {
        (RecordSide::Shared, Some(distant)) => create(distant, job).map(RecordFile::Shared),
        (RecordSide::Partition, _) => {
            let partition = Partition::mount(&job.partition)?;
            Ok(RecordFile::Partition(
                partition.options().read(true).write(true).create(true).open("records")?,
            ))
        }
        (RecordSide::Shared | RecordSide::Plain, _) => {
            let path = job.dir.join("plain");
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(BenchError::at("opening", &path))?;
            group.barrier()?;
            if group.rank() == 0 {
                std::fs::remove_file(&path).map_err(BenchError::at("removing", &path))?;
            }
            Ok(RecordFile::Plain(file))
        }
    }
}

fn work(
    group: &Arc<dyn Group>,
    file: &RecordFile,
    job: &RecordJob,
    outcome: &mut JobOutcome,
) -> Result<(), BenchError> {
    let own = || (group.rank() as u64..job.records).step_by(group.size());
    let mut buffer = Vec::new();
    for record in own() {
        pack(record, 0, job.seed, &mut buffer);
        file.write(record * SLOT, &buffer)?;
    }
    let mut tickets = Tickets::open(job)?;
    group.barrier()?;
    let began = BenchTimer::now();
    let (mut read, mut written) = (0, 0);
    loop {
        let ticket = tickets.next()?;
        if job.records <= ticket {
            break;
        }
        // Each record once, in an order that looks random: the factor has no divisor in common with the count.
        let record = (ticket * 7_919 + job.seed % job.records) % job.records;
        buffer.resize(length(record, 0, job.seed), 0);
        file.read(record * SLOT, &mut buffer)?;
        unpack(record, 0, job.seed, &buffer)?;
        read += buffer.len() as u64;
        pack(record, 1, job.seed, &mut buffer);
        file.write(record * SLOT, &buffer)?;
        written += buffer.len() as u64;
        outcome.calls += 1;
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.counts.insert("bytes".into(), read + written);
    group.barrier()?;
    for record in own() {
        buffer.resize(length(record, 1, job.seed), 0);
        file.read(record * SLOT, &mut buffer)?;
        unpack(record, 1, job.seed, &buffer)?;
    }
    group.barrier()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_change_their_size_and_are_verified() {
        let mut buffer = Vec::new();
        pack(3, 0, 9, &mut buffer);
        assert!((15 << 10..45 << 10).contains(&buffer.len()));
        unpack(3, 0, 9, &buffer).unwrap();
        unpack(3, 1, 9, &buffer).unwrap_err();
        assert_ne!(length(3, 0, 9), length(3, 1, 9));
        buffer[77] ^= 1;
        unpack(3, 0, 9, &buffer).unwrap_err();
    }
}
