//! One transfer of `bench io`: a file written or read in equal calls, open to close, as a plain file or through a partition.
//!
//! Always: both sides make the same calls on the same buffer; each call's data starts with its number, which the reader checks.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{JobOutcome, JobState, counts_of, counts_since};
use crate::clock::BenchTimer;

/// Location of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum TransferFile {
    /// A plain file: the baseline.
    Plain {
        /// Its path.
        path: PathBuf,
    },
    /// A file of a partition.
    Pario {
        /// The partition's name.
        partition: String,
        /// The file's path in it.
        path: String,
    },
}

/// One transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) location: TransferFile,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Bytes of each call; at most the buffer's, and a divisor of `bytes`.
    pub(crate) call_bytes: usize,
}

impl Transfer {
    fn calls(&self) -> u64 {
        self.bytes / self.call_bytes as u64
    }
}

/// Writes a fresh file.
pub(crate) fn write(state: &mut JobState, transfer: &Transfer) -> Result<JobOutcome, BenchError> {
    match &transfer.location {
        TransferFile::Plain { path } => {
            let buffer = &mut state.buffer[..transfer.call_bytes];
            let began = BenchTimer::now();
            let mut file = File::create_new(path).map_err(BenchError::at("creating", path))?;
            for call in 0..transfer.calls() {
                stamp(buffer, call);
                file.write_all(buffer).map_err(BenchError::at("writing", path))?;
            }
            drop(file);
            Ok(outcome(began, transfer.calls()))
        }
        TransferFile::Pario { partition, path } => {
            let partition = state.mount(partition)?;
            let before = counts_of(&partition);
            let buffer = &mut state.buffer[..transfer.call_bytes];
            let began = BenchTimer::now();
            let file = partition.options().write(true).create_new(true).open(path)?;
            for call in 0..transfer.calls() {
                stamp(buffer, call);
                file.write_at(call * buffer.len() as u64, buffer)?;
            }
            file.close()?;
            let outcome = outcome(began, transfer.calls());
            Ok(JobOutcome { counts: counts_since(&partition, &before), ..outcome })
        }
    }
}

/// Reads a file and checks its call numbers.
pub(crate) fn read(state: &mut JobState, transfer: &Transfer) -> Result<JobOutcome, BenchError> {
    match &transfer.location {
        TransferFile::Plain { path } => {
            let buffer = &mut state.buffer[..transfer.call_bytes];
            let began = BenchTimer::now();
            let mut file = File::open(path).map_err(BenchError::at("opening", path))?;
            for call in 0..transfer.calls() {
                file.read_exact(buffer).map_err(BenchError::at("reading", path))?;
                check(buffer, call)?;
            }
            drop(file);
            Ok(outcome(began, transfer.calls()))
        }
        TransferFile::Pario { partition, path } => {
            let partition = state.mount(partition)?;
            let before = counts_of(&partition);
            let buffer = &mut state.buffer[..transfer.call_bytes];
            let began = BenchTimer::now();
            let file = partition.open(path)?;
            for call in 0..transfer.calls() {
                file.read_exact_at(call * buffer.len() as u64, buffer)?;
                check(buffer, call)?;
            }
            file.close()?;
            let outcome = outcome(began, transfer.calls());
            Ok(JobOutcome { counts: counts_since(&partition, &before), ..outcome })
        }
    }
}

/// Removes the file.
pub(crate) fn remove(state: &mut JobState, transfer: &Transfer) -> Result<JobOutcome, BenchError> {
    match &transfer.location {
        TransferFile::Plain { path } => {
            std::fs::remove_file(path).map_err(BenchError::at("removing", path))?
        }
        TransferFile::Pario { partition, path } => state.mount(partition)?.remove_file(path)?,
    }
    Ok(JobOutcome::default())
}

fn outcome(began: BenchTimer, calls: u64) -> JobOutcome {
    JobOutcome { seconds: began.elapsed().as_secs_f64(), calls, ..JobOutcome::default() }
}

fn stamp(buffer: &mut [u8], call: u64) {
    buffer[..8].copy_from_slice(&call.to_le_bytes());
}

fn check(buffer: &[u8], call: u64) -> Result<(), BenchError> {
    if buffer[..8] == call.to_le_bytes() && buffer[buffer.len() - 1] == 0xA5 {
        return Ok(());
    }
    Err(BenchError::Wrong(format!("call {call} read what was not written there")))
}

#[cfg(test)]
mod tests {
    use super::super::super::job::BenchJob;
    use super::*;

    #[test]
    fn a_plain_transfer_is_written_read_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let transfer =
            Transfer { location: TransferFile::Plain { path: path.clone() }, bytes: 4096, call_bytes: 512 };
        let mut state = JobState::default();
        state.run(&BenchJob::Prepare { buffer_bytes: 512 }).unwrap();
        assert_eq!(write(&mut state, &transfer).unwrap().calls, 8);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        read(&mut state, &transfer).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[512] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(read(&mut state, &transfer).unwrap_err().to_string().starts_with("call 1 "));
        remove(&mut state, &transfer).unwrap();
        assert!(!path.exists());
    }
}
