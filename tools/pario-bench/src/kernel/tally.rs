//! Times and counts of one run of a rank, from open to close.

use std::collections::BTreeMap;
use std::time::Duration;

use pario::Partition;

use super::super::job::{JobOutcome, counts_of, counts_since};
use crate::clock::BenchTimer;

/// Times and counts of a run.
#[derive(Debug)]
pub(super) struct RankTally {
    began: BenchTimer,
    inside: Duration,
    /// Time computing; the caller adds to it.
    pub(super) compute: Duration,
    /// Calls made; the caller adds to them.
    pub(super) calls: u64,
    /// Bytes of offset lists since the view was set; set by the caller.
    pub(super) list_bytes: u64,
    before: BTreeMap<String, u64>,
    steps: u64,
    /// From this step on the state is steady: views are known, and all ranks share the first lease.
    steady_from: u64,
    /// Messages inside calls from then on.
    steady_messages: u64,
}

/// Calls of a step in progress.
#[derive(Debug)]
pub(super) struct StepTimer {
    began: BenchTimer,
    messages: u64,
}

impl RankTally {
    /// Starts the clock for `steps` steps; the second half is the steady state.
    pub(super) fn start(partition: &Partition, steps: u64) -> RankTally {
        let before = counts_of(partition);
        RankTally {
            began: BenchTimer::now(),
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

    /// Starts a step.
    pub(super) fn step(partition: &Partition) -> StepTimer {
        let messages = partition.counts().messages;
        StepTimer { began: BenchTimer::now(), messages }
    }

    /// Ends a step.
    pub(super) fn step_done(&mut self, step: &StepTimer, partition: &Partition) {
        self.inside += step.began.elapsed();
        if self.steady_from <= self.steps {
            self.steady_messages += partition.counts().messages - step.messages;
        }
        self.steps += 1;
    }

    /// The file is closed.
    pub(super) fn end(self, partition: &Partition) -> JobOutcome {
        let seconds = self.began.elapsed().as_secs_f64();
        let mut counts = counts_since(partition, &self.before);
        let own = [
            ("list_bytes", self.list_bytes),
            ("steady_messages", self.steady_messages),
            ("steady_steps", self.steps.saturating_sub(self.steady_from)),
            ("compute_ns", u64::try_from(self.compute.as_nanos()).unwrap_or(u64::MAX)),
        ];
        counts.extend(own.map(|(name, count)| (name.to_owned(), count)));
        JobOutcome { seconds, calls_seconds: self.inside.as_secs_f64(), calls: self.calls, counts }
    }
}
