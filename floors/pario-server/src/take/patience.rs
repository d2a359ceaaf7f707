//! How much of what is there a round takes: everything, or only what fits together, or nothing yet.
//!
//! Writers of an interleaved pattern bring pieces that have holes for each other's. Written as they come they cost a system call
//! each; written when all are there, one for a whole block. So records that leave holes are left alone until their neighbours
//! have come, as long as nobody waits for them and no outbox is full, and never for long.
//!
//! Never: reorders anything: what is taken is all that was committed before some moment. Always: waits only where a second writer
//! of the same object is known.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use pario_core::{Nanos, ObjectId};

/// A record that leaves holes waits at most so long for its neighbours.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same while an outbox is full.
const PATIENCE_FULL: Duration = Duration::from_millis(4);
/// A writer is expected again for so long after its last record.
const MEMORY: Duration = Duration::from_millis(500);
/// Objects remembered.
const OBJECTS_MAX: usize = 1024;

/// One record, as far as this decision goes.
#[derive(Clone, Debug)]
pub(super) struct Due {
    /// The outbox that it is in.
    pub(super) place: usize,
    pub(super) committed: Nanos,
    pub(super) object: ObjectId,
    /// From its first to its last byte in the file.
    pub(super) span: Range<u64>,
    pub(super) bytes: u64,
}

impl Due {
    fn leaves_holes(&self) -> bool {
        !is_dense(self.bytes, &self.span)
    }
}

/// How things stand around the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    pub(super) now: Nanos,
    /// Somebody waits for a record to be taken.
    pub(super) urgent: bool,
    /// An outbox is full and its writer waits.
    pub(super) full: bool,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// Everything that was committed before.
    Take { before: Nanos },
    /// Nothing, until something new comes or this moment has passed.
    Wait { until: Nanos },
}

/// Who has written to what of late, and since when an outbox is full.
#[derive(Debug, Default)]
pub(super) struct Patience {
    writers: HashMap<ObjectId, HashMap<usize, Nanos>>,
    full_since: Option<Nanos>,
}

impl Patience {
    /// Decides about records in the order of their commits.
    pub(super) fn choose(&mut self, due: &[Due], mood: Mood) -> Choice {
        self.remember(due, mood.now);
        self.full_since = if mood.full { Some(self.full_since.unwrap_or(mood.now)) } else { None };
        let everything = Choice::Take { before: Nanos(u64::MAX) };
        let Some(oldest) = due.iter().map(|due| due.committed).min() else { return everything };
        if mood.urgent {
            return everything;
        }
        let Some(before) = self.ready_before(due) else { return everything };
        if oldest < before {
            return Choice::Take { before };
        }
        let patient = until(oldest, PATIENCE);
        let limit = self.full_since.map_or(patient, |since| until(since, PATIENCE_FULL).min(patient));
        if mood.now < limit { Choice::Wait { until: limit } } else { everything }
    }

    /// The outboxes have other places now.
    pub(super) fn forget_places(&mut self) {
        self.writers.clear();
    }

    fn remember(&mut self, due: &[Due], now: Nanos) {
        if OBJECTS_MAX < self.writers.len() {
            self.writers.clear();
        }
        for due in due.iter().filter(|due| due.leaves_holes()) {
            self.writers.entry(due.object).or_default().insert(due.place, now);
        }
        self.writers.retain(|_, places| {
            places.retain(|_, last| now.since(*last) < MEMORY);
            !places.is_empty()
        });
    }

    /// The moment before which everything fits together; `None` if all does.
    fn ready_before(&self, due: &[Due]) -> Option<Nanos> {
        let mut objects: Vec<ObjectId> =
            due.iter().filter(|due| due.leaves_holes()).map(|due| due.object).collect();
        objects.sort_unstable();
        objects.dedup();
        let shared =
            objects.into_iter().filter(|o| self.writers.get(o).is_some_and(|places| 1 < places.len()));
        shared.filter_map(|object| dense_before(due, object)).min()
    }
}

/// The commit time of an object's first record that is not part of its largest dense beginning; `None` if all are.
fn dense_before(due: &[Due], object: ObjectId) -> Option<Nanos> {
    let mine: Vec<&Due> = due.iter().filter(|due| due.object == object).collect();
    let (mut span, mut bytes, mut dense) = (mine.first()?.span.clone(), 0, 0);
    for (number, due) in mine.iter().enumerate() {
        span = span.start.min(due.span.start)..span.end.max(due.span.end);
        bytes += due.bytes;
        if is_dense(bytes, &span) {
            dense = number + 1;
        }
    }
    mine.get(dense).map(|due| due.committed)
}

/// Nine tenths are there.
fn is_dense(bytes: u64, span: &Range<u64>) -> bool {
    u128::from(span.end - span.start) * 9 <= u128::from(bytes) * 10
}

fn until(from: Nanos, wait: Duration) -> Nanos {
    Nanos(from.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId};

    use super::*;

    const MS: u64 = 1_000_000;

    fn due(place: usize, committed_ms: u64, span: Range<u64>, bytes: u64) -> Due {
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        Due { place, committed: Nanos(committed_ms * MS), object, span, bytes }
    }

    fn mood(now_ms: u64) -> Mood {
        Mood { now: Nanos(now_ms * MS), urgent: false, full: false }
    }

    fn take(before_ms: u64) -> Choice {
        Choice::Take { before: Nanos(before_ms * MS) }
    }

    const ALL: Choice = Choice::Take { before: Nanos(u64::MAX) };

    #[test]
    fn a_lone_writer_is_never_kept_waiting() {
        let mut patience = Patience::default();
        assert_eq!(patience.choose(&[due(0, 1, 0..4000, 1000)], mood(2)), ALL);
    }

    #[test]
    fn the_beginning_that_fits_together_is_taken() {
        let mut patience = Patience::default();
        let dumps = [
            due(0, 1, 0..4000, 1000),
            due(1, 2, 0..4000, 1000),
            due(2, 3, 0..4000, 1000),
            due(3, 4, 0..4000, 1000),
            due(0, 5, 4000..8000, 1000),
        ];
        assert_eq!(patience.choose(&dumps, mood(6)), take(5));
        // The fifth has lost its neighbours for now, and they are known to come.
        assert_eq!(patience.choose(&dumps[4..], mood(7)), Choice::Wait { until: Nanos(55 * MS) });
        assert_eq!(patience.choose(&dumps[4..], mood(55)), ALL);
    }

    #[test]
    fn urgency_ends_patience_at_once_and_a_full_outbox_soon() {
        let mut patience = Patience::default();
        let two = [due(0, 10, 0..4000, 1000), due(1, 11, 0..4000, 1000)];
        assert_eq!(patience.choose(&two, mood(12)), Choice::Wait { until: Nanos(60 * MS) });
        let full = Mood { full: true, ..mood(13) };
        assert_eq!(patience.choose(&two, full), Choice::Wait { until: Nanos(17 * MS) });
        assert_eq!(patience.choose(&two, Mood { full: true, ..mood(17) }), ALL);
        assert_eq!(patience.choose(&two, Mood { urgent: true, ..mood(14) }), ALL);
    }

    #[test]
    fn writers_that_went_away_are_not_waited_for() {
        let mut patience = Patience::default();
        patience.choose(&[due(0, 1, 0..4000, 1000), due(1, 2, 0..4000, 1000)], mood(3));
        assert_eq!(patience.choose(&[due(0, 600, 0..4000, 1000)], mood(601)), ALL);
    }
}
