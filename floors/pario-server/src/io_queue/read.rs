//! Reads of one run: one call of the store for all of them where they are of one object, else one each.
//!
//! Always: every request gets the bytes that a separate read would have returned; an error of the joint call makes each request read
//! alone; a panic of the store is an error.

use std::ops::Range;

use pario_core::{LocalOffset, ObjectId};
use pario_net::buffers;
use pario_sched::{Outcome, RequestId};
use pario_store::{Store, StoreError};

use crate::pool::guarded;

/// Called with the bytes read.
pub(crate) type ReadDone = Box<dyn FnOnce(Result<Vec<u8>, StoreError>) + Send>;

/// A read that waits, or runs.
pub(super) struct ReadJob {
    pub(super) object: ObjectId,
    pub(super) bytes: Range<u64>,
    pub(super) done: ReadDone,
}

impl ReadJob {
    fn length(&self) -> usize {
        usize::try_from(self.bytes.end - self.bytes.start).expect("at most a frame's data")
    }

    /// Reads this range only.
    pub(super) fn read_alone(self, store: &dyn Store) -> Outcome {
        let mut data = buffers::take(self.length());
        let result = read(store, (self.object, self.bytes.start), &mut data).map(|count| {
            data.truncate(count);
            data
        });
        let outcome = match &result {
            Ok(data) => Outcome::Done { bytes: data.len() as u64 },
            Err(_) => Outcome::Failed,
        };
        (self.done)(result);
        outcome
    }

    /// Copies its part of the bytes read from `start` on.
    fn copy_from(self, start: u64, bytes: &[u8]) -> Outcome {
        let from = usize::try_from(self.bytes.start - start).unwrap_or(usize::MAX).min(bytes.len());
        let to = (from + self.length()).min(bytes.len());
        let mut data = buffers::take(to - from);
        data.copy_from_slice(&bytes[from..to]);
        (self.done)(Ok(data));
        Outcome::Done { bytes: (to - from) as u64 }
    }
}

/// Largest joint read, holes included.
const JOINT_BYTES_MAX: u64 = 2 << 20;

/// Carries out reads that were chosen together, in the order of their offsets; returns the outcome of each.
pub(super) fn read_run(store: &dyn Store, jobs: Vec<(RequestId, ReadJob)>) -> Vec<(RequestId, Outcome)> {
    let mut ended = Vec::with_capacity(jobs.len());
    let mut together: Vec<(RequestId, ReadJob)> = Vec::with_capacity(jobs.len());
    for (id, job) in jobs {
        if together.first().is_some_and(|(_, first)| JOINT_BYTES_MAX < job.bytes.end - first.bytes.start) {
            ended.extend(read_joint(store, std::mem::take(&mut together)));
        }
        together.push((id, job));
    }
    ended.extend(read_joint(store, together));
    ended
}

/// Reads by the store, whose panic ends neither the desk's thread nor the caller's wait.
fn read(store: &dyn Store, (object, from): (ObjectId, u64), data: &mut [u8]) -> Result<usize, StoreError> {
    guarded(|| store.read(object, LocalOffset(from), data))
        .unwrap_or_else(|fault| Err(StoreError::Below(fault)))
}

fn read_joint(store: &dyn Store, jobs: Vec<(RequestId, ReadJob)>) -> Vec<(RequestId, Outcome)> {
    let alone = |jobs: Vec<(RequestId, ReadJob)>| {
        jobs.into_iter().map(|(id, job)| (id, job.read_alone(store))).collect()
    };
    let Some((_, first)) = jobs.first() else { return Vec::new() };
    let object = first.object;
    // A file that was just truncated may still be read under its older generation.
    if jobs.len() == 1 || jobs.iter().any(|(_, job)| job.object != object) {
        return alone(jobs);
    }
    let start = jobs.iter().map(|(_, job)| job.bytes.start).min().unwrap_or(0);
    let end = jobs.iter().map(|(_, job)| job.bytes.end).max().unwrap_or(start);
    let mut bytes = buffers::take(usize::try_from(end - start).expect("a run is bounded"));
    let Ok(count) = read(store, (object, start), &mut bytes) else { return alone(jobs) };
    let ended = jobs.into_iter().map(|(id, job)| (id, job.copy_from(start, &bytes[..count]))).collect();
    buffers::give_back(bytes);
    ended
}
