//! The hammer: a thread of a worker that writes to one file on one server without pause, whatever it is told.
//!
//! Always: it has written before [`begin`] returns, and writes until [`end`]; every write that is refused for want of room is counted,
//! any other failure ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pario::File;
use pario::core::Code;
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{Outcome, State};
use crate::clock::{Began, rest};

/// What it writes over and over; fits where there is room.
const FILE_BYTES: u64 = 16 << 20;
/// Calls before others begin.
const CALLS_FIRST: u64 = 50;
/// How refusals are called in an outcome.
pub(crate) const REFUSED: &str = "refused";

/// Where it hammers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct HammerJob {
    pub(crate) partition: String,
    pub(crate) server: u16,
    pub(crate) call_bytes: usize,
}

#[derive(Debug, Default)]
struct Tally {
    over: AtomicBool,
    calls: AtomicU64,
    refused: AtomicU64,
}

/// A hammer at work.
#[derive(Debug)]
pub(crate) struct Hammer {
    began: Began,
    tally: Arc<Tally>,
    thread: JoinHandle<pario::Result<()>>,
}

/// Starts it; returns when it is at it.
pub(crate) fn begin(state: &mut State, job: &HammerJob) -> Result<Outcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    let options = partition.options().write(true).create(true).stripe_count(1).first_server(job.server);
    let file = options.open("hammered")?;
    let (tally, data) = (Arc::new(Tally::default()), vec![7; job.call_bytes]);
    let shared = Arc::clone(&tally);
    let began = Began::now();
    let thread = std::thread::spawn(move || hammer(&file, &data, &shared));
    while tally.calls.load(Ordering::Relaxed) < CALLS_FIRST && !thread.is_finished() {
        rest(Duration::from_millis(1));
    }
    state.hammer = Some(Hammer { began, tally, thread });
    Ok(Outcome::default())
}

/// Ends it and tells what it did.
pub(crate) fn end(state: &mut State) -> Result<Outcome, BenchError> {
    let Some(Hammer { began, tally, thread }) = state.hammer.take() else {
        return Err(BenchError::Worker("nothing is being hammered".to_owned()));
    };
    if thread.is_finished() {
        return Err(ended_early(thread));
    }
    tally.over.store(true, Ordering::Relaxed);
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(BenchError::Worker("the hammer panicked".to_owned())),
    }
    let refused = tally.refused.load(Ordering::Relaxed);
    Ok(Outcome {
        seconds: began.elapsed().as_secs_f64(),
        calls: tally.calls.load(Ordering::Relaxed),
        counts: [(REFUSED.to_owned(), refused)].into(),
        ..Outcome::default()
    })
}

fn ended_early(thread: JoinHandle<pario::Result<()>>) -> BenchError {
    match thread.join() {
        Ok(Err(error)) => error.into(),
        Ok(Ok(())) | Err(_) => BenchError::Worker("the hammer ended by itself".to_owned()),
    }
}

fn hammer(file: &File, data: &[u8], tally: &Tally) -> pario::Result<()> {
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
