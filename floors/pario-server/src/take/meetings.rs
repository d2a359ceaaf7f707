//! Which members of groups write small records between each other's, and which have parts of an object to themselves.
//!
//! Never: remembers for longer than a writer is expected again.

use std::collections::HashMap;

use pario_core::{Nanos, ObjectId};

use super::due::Due;
use super::patience::{MEMORY, OBJECTS_MAX};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Meetings(HashMap<ObjectId, Meeting>);

#[derive(Debug)]
struct Meeting {
    /// When something was written last.
    at: Nanos,
    /// From the first to the last byte that each outbox brought.
    reach: HashMap<usize, (u64, u64)>,
    /// One wrote where another had been.
    is_one: bool,
}

impl Meetings {
    /// Whether members of a group were seen to write between each other's records.
    pub(super) fn of(&self, object: ObjectId) -> bool {
        self.0.get(&object).is_some_and(|meeting| meeting.is_one)
    }

    /// Sees small records of groups.
    pub(super) fn see(&mut self, due: &[Due], now: Nanos) {
        if OBJECTS_MAX < self.0.len() {
            self.forget();
        }
        self.0.retain(|_, meeting| now.since(meeting.at) < MEMORY);
        let small =
            |due: &&Due| 1 < due.companions && !due.is_whole && (due.is_joined || !due.leaves_holes());
        for due in due.iter().filter(small) {
            let fresh = || Meeting { at: now, reach: HashMap::new(), is_one: false };
            self.0.entry(due.object).or_insert_with(fresh).see(due, now);
        }
    }

    /// The outboxes have other places now.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Meeting {
    fn see(&mut self, due: &Due, now: Nanos) {
        self.at = now;
        let (start, end) = (due.span.start, due.span.end);
        let meets =
            |(place, reach): (&usize, &(u64, u64))| *place != due.place && reach.0 < end && start < reach.1;
        self.is_one = self.is_one || self.reach.iter().any(meets);
        let mine = self.reach.entry(due.place).or_insert((start, end));
        *mine = (mine.0.min(start), mine.1.max(end));
    }
}
