//! Times and counts of one run of a rank, from open to close.

use std::collections::BTreeMap;
use std::time::Duration;

use pario::Partition;

use super::super::job::{Outcome, counts_of, counts_since};
use crate::clock::Began;

/// Times and counts of a run.
#[derive(Debug)]
pub(super) struct Tally {
    began: Began,
    inside: Duration,
    /// Time computing; the caller adds to it.
    pub(super) compute: Duration,
    /// Calls made; the caller adds to them.
    pub(super) calls: u64,
    before: BTreeMap<String, u64>,
    steps: u64,
    /// Messages when the first step was done: from then on nothing is new.
    messages_first: u64,
    messages_last: u64,
}

impl Tally {
    /// The clock runs.
    pub(super) fn start(partition: &Partition) -> Tally {
        let before = counts_of(partition);
        Tally {
            began: Began::now(),
            inside: Duration::ZERO,
            compute: Duration::ZERO,
            calls: 0,
            before,
            steps: 0,
            messages_first: 0,
            messages_last: 0,
        }
    }

    /// A step's calls are over, which began then.
    pub(super) fn step_done(&mut self, began: Began, partition: &Partition) {
        self.inside += began.elapsed();
        self.messages_last = partition.counts().messages;
        if self.steps == 0 {
            self.messages_first = self.messages_last;
        }
        self.steps += 1;
    }

    /// The file is closed.
    pub(super) fn end(self, partition: &Partition) -> Outcome {
        let seconds = self.began.elapsed().as_secs_f64();
        let mut counts = counts_since(partition, &self.before);
        counts.insert("steady_messages".to_owned(), self.messages_last - self.messages_first);
        counts.insert("steady_steps".to_owned(), self.steps.saturating_sub(1));
        counts.insert("compute_ns".to_owned(), u64::try_from(self.compute.as_nanos()).unwrap_or(u64::MAX));
        Outcome { seconds, calls_seconds: self.inside.as_secs_f64(), calls: self.calls, counts }
    }
}
