//! A background writer: a worker's thread that writes to one file on one server without pause and ignores refusals.
//!
//! Always: it has written before [`begin`] returns, and writes until [`end`]; every write refused for lack of space is counted,
//! any other failure ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pario::File;
use pario::core::Code;
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{JobOutcome, JobState};
use crate::clock::{BenchTimer, sleep};

/// File size; rewritten repeatedly.
const FILE_BYTES: u64 = 16 << 20;
/// Calls before `begin` returns.
const CALLS_FIRST: u64 = 50;
/// Name of refusals in an outcome.
pub(crate) const REFUSED: &str = "refused";

/// File and server of the writer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct BackgroundWriterJob {
    pub(crate) partition: String,
    pub(crate) server: u16,
    pub(crate) call_bytes: usize,
}

#[derive(Debug, Default)]
struct WriterCounts {
    over: AtomicBool,
    calls: AtomicU64,
    refused: AtomicU64,
}

/// A running background writer.
#[derive(Debug)]
pub(crate) struct BackgroundWriter {
    began: BenchTimer,
    tally: Arc<WriterCounts>,
    thread: JoinHandle<pario::Result<()>>,
}

/// Starts it; returns after its first calls.
pub(crate) fn begin(state: &mut JobState, job: &BackgroundWriterJob) -> Result<JobOutcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let options = partition.options().write(true).create(true).stripe_count(1).first_server(job.server);
    let file = options.open("hammered")?;
    let (tally, data) = (Arc::new(WriterCounts::default()), vec![7; job.call_bytes]);
    let shared = Arc::clone(&tally);
    let began = BenchTimer::now();
    let thread = std::thread::spawn(move || write_loop(&file, &data, &shared));
    while tally.calls.load(Ordering::Relaxed) < CALLS_FIRST && !thread.is_finished() {
        sleep(Duration::from_millis(1));
    }
    state.background_writer = Some(BackgroundWriter { began, tally, thread });
    Ok(JobOutcome::default())
}

/// Ends it and returns its counts.
pub(crate) fn end(state: &mut JobState) -> Result<JobOutcome, BenchError> {
    let Some(BackgroundWriter { began, tally, thread }) = state.background_writer.take() else {
        return Err(BenchError::Worker("no background writer runs".to_owned()));
    };
    if thread.is_finished() {
        return Err(ended_early(thread));
    }
    tally.over.store(true, Ordering::Relaxed);
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(BenchError::Worker("the background writer panicked".to_owned())),
    }
    let refused = tally.refused.load(Ordering::Relaxed);
    Ok(JobOutcome {
        seconds: began.elapsed().as_secs_f64(),
        calls: tally.calls.load(Ordering::Relaxed),
        counts: [(REFUSED.to_owned(), refused)].into(),
        ..JobOutcome::default()
    })
}

fn ended_early(thread: JoinHandle<pario::Result<()>>) -> BenchError {
    match thread.join() {
        Ok(Err(error)) => error.into(),
        Ok(Ok(())) | Err(_) => BenchError::Worker("the background writer ended early".to_owned()),
    }
}

fn write_loop(file: &File, data: &[u8], tally: &WriterCounts) -> pario::Result<()> {
    let places = FILE_BYTES / data.len() as u64;
    for call in 0.. {
        if tally.over.load(Ordering::Relaxed) {
            return Ok(());
        }
        match file.write_at(call % places * data.len() as u64, data) {
            Ok(()) => {}
            Err(error) if error.code() == Code::NoSpace => {
                tally.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
        tally.calls.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
