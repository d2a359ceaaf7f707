//! Interleave detector: whether members of a group write small records between each other's, or each to its own part of an object.
//!
//! Never: remembers longer than [`MEMORY`].

use std::collections::HashMap;

use pario_core::{Nanos, ObjectId};

use super::merge_wait::{MEMORY, OBJECTS_MAX};
use super::pending::PendingRecord;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Interleave(HashMap<ObjectId, InterleaveState>);

#[derive(Debug)]
struct InterleaveState {
    /// Time of the last record.
    at: Nanos,
    /// From the first to the last byte written by each outbox.
    ranges: HashMap<usize, (u64, u64)>,
    /// A writer wrote inside the range of another.
    is_interleaved: bool,
}

impl Interleave {
    /// Whether members of a group were seen to write between each other's records.
    pub(super) fn is_interleaved(&self, object: ObjectId) -> bool {
        self.0.get(&object).is_some_and(|meeting| meeting.is_interleaved)
    }

    /// Notes small records of groups.
    pub(super) fn note(&mut self, due: &[PendingRecord], now: Nanos) {
        if OBJECTS_MAX < self.0.len() {
            self.forget();
        }
        self.0.retain(|_, meeting| now.since(meeting.at) < MEMORY);
        let small = |due: &&PendingRecord| {
            1 < due.local_writers && !due.is_whole && (due.is_joined || !due.leaves_holes())
        };
        for due in due.iter().filter(small) {
            let fresh = || InterleaveState { at: now, ranges: HashMap::new(), is_interleaved: false };
            self.0.entry(due.object).or_insert_with(fresh).note(due, now);
        }
    }

    /// The indexes of outboxes have changed.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl InterleaveState {
    fn note(&mut self, due: &PendingRecord, now: Nanos) {
        self.at = now;
        let (start, end) = (due.span.start, due.span.end);
        let meets =
            |(place, reach): (&usize, &(u64, u64))| *place != due.outbox && reach.0 < end && start < reach.1;
        self.is_interleaved = self.is_interleaved || self.ranges.iter().any(meets);
        let mine = self.ranges.entry(due.outbox).or_insert((start, end));
        *mine = (mine.0.min(start), mine.1.max(end));
    }
}
