//! Order of the records in the ring: space is reserved in order, filled by several threads at the same time, and committed in the order
//! in which it was reserved.
//!
//! Never: the tail passes a record that is being copied; space is reused while it is being copied into. Always: commit times ascend with
//! positions; a finished commit returns when its record and all before it are committed: a later write of any process then has a later
//! commit time and the server sees both. The space of a record that is given up becomes a pad.

use std::collections::VecDeque;
use std::sync::PoisonError;

use pario_core::{Clock, Nanos};
use pario_sys::clock::MonotonicClock;
use pario_sys::sync::{Condvar, FenceSite, Mutex, MutexGuard, is_strong, lock};

use super::memory::OutboxMemory;

/// Space of one record, with the pad before it where the ring ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordSpace {
    /// Where the pad begins, or the record.
    pub(super) start: u64,
    /// Where the record begins.
    pub(super) record: u64,
    /// Position after the record.
    pub(super) end: u64,
}

/// Reserved space that is not committed.
#[derive(Debug)]
struct OpenSpace {
    space: RecordSpace,
    is_finished: bool,
}

/// The ring as seen by its writer.
#[derive(Debug, Default)]
pub(super) struct RingState {
    /// Position after the last committed record.
    tail: u64,
    /// Position after the last reserved record.
    reserved: u64,
    /// Where the records begin that are still there, oldest first; those that are not committed included.
    starts: VecDeque<u64>,
    /// Reserved space from the tail on: at most one for each thread.
    open: VecDeque<OpenSpace>,
    /// Commit time of the last committed record.
    committed_at: Nanos,
    /// Threads that wait for a commit.
    waiting: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    state: Mutex<RingState>,
    /// The tail has moved.
    committed: Condvar,
    clock: MonotonicClock,
}

impl Ring {
    pub(super) fn new() -> Ring {
        Ring { state: Mutex::new(RingState::default()), committed: Condvar::new(), clock: MonotonicClock }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RingState> {
        lock(&self.state)
    }

    /// The same, when no thread copies into memory before `lowest` any more.
    pub(super) fn lock_copied(&self, lowest: u64) -> MutexGuard<'_, RingState> {
        let mut state = self.lock();
        while !state.is_copied(lowest) {
            state = self.wait(state);
        }
        state
    }

    /// The record is in its space: commits it and all after it that are finished, once all before it are.
    pub(super) fn finish(&self, memory: &OutboxMemory, space: &RecordSpace) -> MutexGuard<'_, RingState> {
        let mut state = self.lock();
        state.open.iter_mut().filter(|one| one.space == *space).for_each(|one| one.is_finished = true);
        if state.commit_finished(memory, &self.clock) && 0 < state.waiting && is_strong(FenceSite::Committed)
        {
            self.committed.notify_all();
        }
        state
    }

    /// The same; returns when the record is committed, with a time not before its commit time.
    pub(super) fn commit(&self, memory: &OutboxMemory, space: &RecordSpace) -> Nanos {
        let mut state = self.finish(memory, space);
        while state.tail < space.end && is_strong(FenceSite::Returned) {
            state = self.wait(state);
        }
        state.committed_at
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, RingState>) -> MutexGuard<'a, RingState> {
        state.waiting += 1;
        let mut state = self.committed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }
}

impl RingState {
    /// Position after the last committed record.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// The oldest record that is still there.
    pub(super) fn floor(&self) -> u64 {
        self.starts.front().copied().unwrap_or(self.tail)
    }

    /// Whether no thread copies into memory before `lowest`.
    pub(super) fn is_copied(&self, lowest: u64) -> bool {
        !is_strong(FenceSite::Copied) || self.open.front().is_none_or(|first| lowest <= first.space.start)
    }

    /// Where a record of `need` bytes would be: a record never wraps.
    pub(super) fn next_space(&self, need: u64, capacity: u64) -> RecordSpace {
        let start = self.reserved;
        let room_to_end = capacity - start % capacity;
        let record = if room_to_end < need { start + room_to_end } else { start };
        RecordSpace { start, record, end: record + need }
    }

    /// Drops records before `lowest`, and publishes that before their memory is overwritten: a server that they did not concern, or a
    /// dead one, must not read there any more.
    pub(super) fn drop_before(&mut self, memory: &OutboxMemory, lowest: u64) {
        while self.starts.front().is_some_and(|start| *start < lowest) {
            self.starts.pop_front();
        }
        memory.set_floor(self.floor());
    }

    /// Reserves the next space.
    pub(super) fn reserve(&mut self, space: RecordSpace) {
        assert_eq!(space.start, self.reserved, "space is reserved in order");
        if space.start < space.record {
            self.starts.push_back(space.start);
        }
        self.starts.push_back(space.record);
        self.open.push_back(OpenSpace { space, is_finished: false });
        self.reserved = space.end;
    }

    /// Commits the first records as far as they are finished; whether there were any. Their commit times are of now, not of their
    /// reservation: a server that reads the clock and then the tails misses as little as possible.
    fn commit_finished(&mut self, memory: &OutboxMemory, clock: &MonotonicClock) -> bool {
        let before = self.tail;
        let is_next = |one: &&OpenSpace| one.is_finished || !is_strong(FenceSite::InOrder);
        while let Some(space) = self.open.front().filter(is_next).map(|one| one.space) {
            self.open.pop_front();
            let now = clock.now();
            if space.start < space.record {
                memory.set_commit_time(space.start, now);
            }
            memory.set_commit_time(space.record, now);
            self.committed_at = now;
            self.tail = space.end;
        }
        if before < self.tail {
            memory.set_tail(self.tail);
        }
        before < self.tail
    }
}
