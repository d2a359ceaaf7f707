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
    /// Bytes of offset lists since the view was set; the caller says.
    pub(super) list_bytes: u64,
    before: BTreeMap<String, u64>,
    steps: u64,
    /// From this step on nothing is new: views are known, and the lease of whoever came first is shared by all.
    steady_from: u64,
    /// Sent inside calls from then on.
    steady_messages: u64,
}

/// A step's calls under way.
#[derive(Debug)]
pub(super) struct Step {
    began: Began,
    messages: u64,
}

impl Tally {
    /// The clock runs, for so many steps; the second half of them is what is steady.
    pub(super) fn start(partition: &Partition, steps: u64) -> Tally {
        let before = counts_of(partition);
        Tally {
            began: Began::now(),
            inside: Duration::ZERO,
            compute: Duration::ZERO,
            calls: 0,
            list_bytes: 0,
            before,
            steps: 0,
            steady_from: steps.div_ceil(2),
            steady_messages: 0,
        }
    }

    /// A step's calls begin.
    pub(super) fn step(partition: &Partition) -> Step {
        let messages = partition.counts().messages;
        Step { began: Began::now(), messages }
    }

    /// They are over.
    pub(super) fn step_done(&mut self, step: &Step, partition: &Partition) {
        self.inside += step.began.elapsed();
        if self.steady_from <= self.steps {
            self.steady_messages += partition.counts().messages - step.messages;
        }
        self.steps += 1;
    }

    /// The file is closed.
    pub(super) fn end(self, partition: &Partition) -> Outcome {
        let seconds = self.began.elapsed().as_secs_f64();
        let mut counts = counts_since(partition, &self.before);
        let own = [
            ("list_bytes", self.list_bytes),
            ("steady_messages", self.steady_messages),
            ("steady_steps", self.steps.saturating_sub(self.steady_from)),
            ("compute_ns", u64::try_from(self.compute.as_nanos()).unwrap_or(u64::MAX)),
        ];
        counts.extend(own.map(|(name, count)| (name.to_owned(), count)));
        Outcome { seconds, calls_seconds: self.inside.as_secs_f64(), calls: self.calls, counts }
    }
}
