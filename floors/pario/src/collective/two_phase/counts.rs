//! Counters of two-phase.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work of one process for two-phase accesses of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TwoPhaseCounts {
    /// Collective calls.
    pub calls: u64,
    /// Iterations of all calls.
    pub rounds: u64,
    /// Bytes of offset lists sent to aggregators.
    pub list_bytes: u64,
    /// Bytes of data sent to aggregators, or received from them.
    pub data_bytes: u64,
    /// Messages to ranks of other nodes.
    pub messages: u64,
    /// Reads and writes of the file by this process as an aggregator.
    pub accesses: u64,
    /// Bytes of these reads and writes.
    pub access_bytes: u64,
}

/// The live counters.
#[derive(Debug, Default)]
pub(super) struct TwoPhaseCounters {
    calls: AtomicU64,
    rounds: AtomicU64,
    list_bytes: AtomicU64,
    data_bytes: AtomicU64,
    messages: AtomicU64,
    accesses: AtomicU64,
    access_bytes: AtomicU64,
}

impl TwoPhaseCounters {
    pub(super) fn call(&self, rounds: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.rounds.fetch_add(rounds, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, list_bytes: usize, data_bytes: usize) {
        self.list_bytes.fetch_add(list_bytes as u64, Ordering::Relaxed);
        self.data_bytes.fetch_add(data_bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn access(&self, bytes: usize) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        self.access_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> TwoPhaseCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TwoPhaseCounts {
            calls: get(&self.calls),
            rounds: get(&self.rounds),
            list_bytes: get(&self.list_bytes),
            data_bytes: get(&self.data_bytes),
            messages: get(&self.messages),
            accesses: get(&self.accesses),
            access_bytes: get(&self.access_bytes),
        }
    }
}
