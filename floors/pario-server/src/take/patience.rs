//! How much of what is there a round takes: everything, or only what fits together, or nothing yet.
//!
//! Writers of an interleaved pattern bring pieces that have holes for each other's. Written as they come they cost a system call
//! each; written when all are there, one for a whole block. So records that leave holes are left alone until their neighbours
//! have come, as long as nobody waits for them, and never for long. Some writers run ahead of others: then what lies below
//! the place that all have come to is taken, if need be a part of a record. And while as many writers are at it as there are
//! processors, a server that worked would only keep them from theirs: it begins when they pause or an outbox is half full, or at once
//! where its store is slow and needs all the time there is.
//!
//! Never: waits for long where no second writer of the same object is known. Always: takes soon what somebody waits for, unless that one
//! waits for its group in any case and others of it still come on; of the bytes below a cut all that was committed is taken, of those
//! above nothing.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use pario_core::{Nanos, ObjectId};

use super::due::{Due, is_dense};
use super::meetings::Meetings;

/// A record that leaves holes waits at most so long for its neighbours, while nobody waits and every outbox has room: a writer that
/// shares its processor with others may be away for long, and a stretch without its bytes costs a system call per piece.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same while those who are missing bring older ones all the time: in a crowd of processes on few processors one may be far ahead.
const PATIENCE_BEHIND: Duration = Duration::from_secs(2);
/// Writers that should be there and were never seen are hoped for so long.
const PATIENCE_UNSEEN: Duration = Duration::from_millis(50);
/// A server leaves the processors to busy writers for so long.
const PATIENCE_BUSY: Duration = Duration::from_millis(50);
/// The same while an outbox is full, at first: whether waiting was worth it decides about the next time.
const PATIENCE_FULL: Duration = Duration::from_millis(32);
const PATIENCE_FULL_MIN: Duration = Duration::from_millis(8);
const PATIENCE_FULL_MAX: Duration = Duration::from_millis(32);
/// The same while somebody waits for its records, at most: the other members of its group are about to sync or close too.
const PATIENCE_WAITED: Duration = Duration::from_millis(16);
/// Less is not worth it, and so much is tried again once records have fitted together.
const PATIENCE_WAITED_MIN: Duration = Duration::from_millis(2);
/// So little is written piece by piece sooner than it is waited for.
const WAITED_BYTES_MIN: u64 = 64 << 10;
/// So long a writer that leaves holes may turn out not to be the only one.
const PATIENCE_ALONE: Duration = Duration::from_millis(4);
/// Writers that have brought nothing for so long have paused.
const PAUSE: Duration = Duration::from_millis(1);
/// A writer is expected again for so long after its last record.
pub(super) const MEMORY: Duration = Duration::from_millis(500);
/// A slow store is given so much of an object at once.
const STEP_BYTES: u64 = 4 << 20;
/// Objects remembered.
pub(super) const OBJECTS_MAX: usize = 1024;

/// How things stand around the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    pub(super) now: Nanos,
    /// Everything must be taken now.
    pub(super) urgent: bool,
    /// Somebody waits for its own records to be taken, as for sync, close or a read.
    pub(super) waits: bool,
    /// Whoever does is in a call that all members of its group make, and waits for them in any case.
    pub(super) gathers: bool,
    /// An outbox is full and its writer waits.
    pub(super) full: bool,
    /// An outbox is half full.
    pub(super) half: bool,
    /// The store keeps the server waiting: it needs time, and hardly a processor.
    pub(super) slow: bool,
}

/// Which bytes a round takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Upto {
    /// Everything that was committed before.
    Committed(Nanos),
    /// Everything below this place of the object, of which all records are.
    Below(u64),
}

impl Upto {
    /// All that is there.
    pub(super) const ALL: Upto = Upto::Committed(Nanos(u64::MAX));
    /// None of it.
    pub(super) const NOTHING: Upto = Upto::Committed(Nanos(0));
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// A part of what is there.
    Take(Upto),
    /// Nothing, until something new comes or this moment has passed.
    Wait { until: Nanos },
    /// Nothing, and what comes changes nothing: until somebody waits, an outbox is half full or this moment has passed.
    Rest { until: Nanos },
}

/// Who has written to what of late, since when an outbox is full, and how long that is borne.
#[derive(Debug)]
pub(super) struct Patience {
    writers: HashMap<ObjectId, Writers>,
    meetings: Meetings,
    full_since: Option<Nanos>,
    full_wait: Duration,
    waited_since: Option<Nanos>,
    waited_wait: Duration,
    /// Outboxes whose clients are in a call that all members of their group make: they bring nothing more before it is over.
    gathering: Vec<usize>,
    /// Processors of this machine.
    processors: usize,
}

/// Who leaves holes in an object.
#[derive(Debug)]
struct Writers {
    since: Nanos,
    /// How many there should be, as far as they know.
    expected: usize,
    last: HashMap<usize, Seen>,
    late: Late,
    /// Some were waited for as long as can be, since they came on, and what they brought was something else.
    wasted: bool,
}

/// What was seen of a writer last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Nanos,
    /// When its newest record was committed, and where that ends.
    committed: Nanos,
    end: u64,
    /// When it last came to another place.
    came: Nanos,
}

impl Seen {
    fn see(&mut self, due: &Due, now: Nanos) {
        self.at = now;
        if self.committed < due.newest {
            if self.end != due.span.end {
                (self.end, self.came) = (due.span.end, due.newest);
            }
            self.committed = due.newest;
        }
    }
}

impl Writers {
    fn are_several(&self, now: Nanos) -> bool {
        1 < self.last.len() || self.lack_some(now)
    }

    /// Some that should be there have not been seen yet, and there is hope.
    fn lack_some(&self, now: Nanos) -> bool {
        self.last.len() < self.expected && now.since(self.since) < PATIENCE_UNSEEN
    }

    /// When somebody who has not come as far as a record last came on, if that is not long ago.
    fn behind(&self, due: &Due, now: Nanos, gathering: &[usize]) -> Option<Nanos> {
        let is_behind = |(place, seen): &(&usize, &Seen)| {
            seen.end < due.span.end && now < until(seen.came, PATIENCE) && !gathering.contains(place)
        };
        self.last.iter().filter(is_behind).map(|(_, seen)| seen.came).max()
    }
}

/// What was taken with holes, and who may still bring records for these: they fit to nothing that is there, and are not kept.
#[derive(Debug, Default)]
struct Late {
    below: u64,
    places: HashSet<usize>,
    until: Nanos,
}

impl Late {
    /// The part of a record that is not late.
    fn leaves(&self, due: &Due) -> Option<Due> {
        if self.below <= due.span.start || !self.places.contains(&due.place) {
            return Some(due.clone());
        }
        let span = self.below..due.span.end.max(self.below);
        let bytes = due.bytes - due.bytes_below(self.below);
        (!span.is_empty()).then(|| Due { span, bytes, ..due.clone() })
    }

    /// Whoever brings only what lies beyond has nothing left to bring.
    fn forget(&mut self, due: &[Due], object: ObjectId, now: Nanos) {
        if self.until <= now {
            self.places.clear();
        }
        let below = self.below;
        self.places.retain(|place| {
            let mut mine = due.iter().filter(|due| due.place == *place && due.object == object).peekable();
            mine.peek().is_none() || mine.any(|due| due.span.start < below)
        });
    }
}

impl Patience {
    pub(super) fn new(processors: usize) -> Self {
        let writers = HashMap::new();
        Patience {
            writers,
            meetings: Meetings::default(),
            full_since: None,
            full_wait: PATIENCE_FULL,
            waited_since: None,
            waited_wait: PATIENCE_WAITED,
            gathering: Vec::new(),
            processors,
        }
    }

    /// Decides about records in the order of their commits.
    pub(super) fn choose(&mut self, due: &[Due], mood: Mood) -> Choice {
        self.remember(due, mood.now);
        self.full_since = if mood.full { Some(self.full_since.unwrap_or(mood.now)) } else { None };
        let Some(oldest) = due.iter().map(|due| due.committed).min() else { return Choice::Take(Upto::ALL) };
        self.waited_since = if mood.waits { Some(self.waited_since.unwrap_or(mood.now)) } else { None };
        if mood.urgent || (mood.waits && !self.may_keep_waiting(due, mood)) {
            self.note_late(due, Upto::ALL, mood.now);
            return Choice::Take(Upto::ALL);
        }
        if let Some(until) = self.pause_of_writers(due, oldest, mood) {
            return Choice::Rest { until };
        }
        let choice = match self.what_fits(due, oldest, mood) {
            Choice::Take(upto) if mood.slow => Choice::Take(a_step_of(upto, due)),
            choice @ (Choice::Take(_) | Choice::Wait { .. } | Choice::Rest { .. }) => choice,
        };
        if let Choice::Take(upto) = choice {
            self.note_late(due, upto, mood.now);
        }
        choice
    }

    /// Who is in a call that all members of its group make.
    pub(super) fn see_gathering(&mut self, places: Vec<usize>) {
        self.gathering = places;
    }

    /// The outboxes have other places now.
    pub(super) fn forget_places(&mut self) {
        self.writers.clear();
        self.meetings.forget();
        self.gathering.clear();
    }

    fn remember(&mut self, due: &[Due], now: Nanos) {
        self.meetings.see(due, now);
        if OBJECTS_MAX < self.writers.len() {
            self.writers.clear();
        }
        for due in due.iter().filter(|due| due.leaves_holes()) {
            let fresh = || Writers {
                since: now,
                expected: 0,
                last: HashMap::new(),
                late: Late::default(),
                wasted: false,
            };
            let writers = self.writers.entry(due.object).or_insert_with(fresh);
            let (committed, end) = (due.newest, due.span.end);
            let first = Seen { at: now, committed, end, came: committed };
            writers.last.entry(due.place).or_insert(first).see(due, now);
            writers.expected = writers.expected.max(due.companions);
        }
        // A single record says little of a writer, but of one that is known it says where it is.
        for due in due.iter().filter(|due| !due.leaves_holes()) {
            let known =
                self.writers.get_mut(&due.object).and_then(|writers| writers.last.get_mut(&due.place));
            if let Some(seen) = known {
                seen.see(due, now);
            }
        }
        self.writers.retain(|object, writers| {
            writers.last.retain(|_, seen| now.since(seen.at) < MEMORY);
            writers.late.forget(due, *object, now);
            !writers.last.is_empty()
        });
    }

    /// Whether members of a group that have not come yet may keep one that waits for its records waiting.
    fn may_keep_waiting(&mut self, due: &[Due], Mood { now, gathers, .. }: Mood) -> bool {
        let is_group = due.iter().any(|due| 1 < due.companions);
        if gathers && is_group {
            let members =
                due.iter().filter(|due| self.gathering.contains(&due.place)).map(|due| due.companions);
            if members.max().is_some_and(|members| members <= self.gathering.len()) {
                // Nobody is missing who could bring more.
                return false;
            }
            // Whoever is behind any of them is behind the last.
            let last = due.iter().max_by_key(|due| (due.span.end, due.committed)).filter(|_| can_be_cut(due));
            if last.and_then(|last| self.until_behind(last, now)).is_some_and(|until| now < until) {
                return true;
            }
        }
        let is_much = WAITED_BYTES_MIN <= due.iter().map(|due| due.bytes).sum();
        let worth = is_much && PATIENCE_WAITED_MIN <= self.waited_wait;
        let over = self.waited_since.is_some_and(|since| until(since, self.waited_wait) <= now);
        if is_group && worth && over {
            self.waited_wait /= 2;
            self.waited_since = None;
        }
        is_group && worth && !over
    }

    /// When writers that need all processors will have paused; `None` if there are processors to spare, or it must not be waited for.
    fn pause_of_writers(&self, due: &[Due], oldest: Nanos, mood: Mood) -> Option<Nanos> {
        let places: HashSet<usize> = due.iter().map(|due| due.place).collect();
        let newest = due.iter().map(|due| due.newest).max()?;
        let until = until(newest, PAUSE).min(until(oldest, PATIENCE_BUSY));
        let waits =
            self.processors <= places.len() && !mood.half && !mood.full && !mood.waits && mood.now < until;
        (waits && !mood.slow).then_some(until)
    }

    fn what_fits(&mut self, due: &[Due], oldest: Nanos, mood: Mood) -> Choice {
        if !self.has_holes(due, mood.now) {
            return Choice::Take(Upto::ALL);
        }
        if let Some(upto) = self.ready_below(due, mood.now).or_else(|| ready_before(due, oldest)) {
            if self.full_since.take().is_some() {
                self.full_wait = (self.full_wait * 2).min(PATIENCE_FULL_MAX);
            }
            let worth =
                if self.waited_since.take().is_some() { self.waited_wait * 2 } else { self.waited_wait };
            self.waited_wait = worth.clamp(PATIENCE_WAITED_MIN, PATIENCE_WAITED);
            return Choice::Take(upto);
        }
        let first = due.iter().find(|due| due.committed == oldest).filter(|_| can_be_cut(due));
        let behind = first.and_then(|first| self.until_behind(first, mood.now));
        let patient = until(oldest, self.bears(due, mood.now)).max(behind.unwrap_or(oldest));
        let full = self.full_since.map_or(patient, |since| until(since, self.full_wait));
        let waited = match self.waited_since {
            Some(since) if behind.is_none() || !mood.gathers => until(since, self.waited_wait),
            Some(_) | None => patient,
        };
        let limit = patient.min(full).min(waited);
        if mood.now < limit {
            return Choice::Wait { until: limit };
        }
        if self.full_since.take().is_some() {
            self.full_wait = (self.full_wait / 2).max(PATIENCE_FULL_MIN);
        }
        if behind.is_some_and(|_| until(oldest, PATIENCE_BEHIND) <= mood.now)
            && let Some(writers) = self.writers.get_mut(&due[0].object)
        {
            writers.wasted = true;
        }
        // What those who have come have in common, though it has holes.
        let common = progress(due).into_values().min().filter(|_| can_be_cut(due));
        Choice::Take(common.map_or(Upto::ALL, Upto::Below))
    }

    /// Whether there are records that neighbours can be hoped for.
    fn has_holes(&self, due: &[Due], now: Nanos) -> bool {
        let hopes = |writers: &Writers| writers.are_several(now) || now.since(writers.since) < PATIENCE_ALONE;
        due.iter().filter(|due| due.leaves_holes()).any(|due| {
            // Small records may as well be somebody's alone: they are kept only where others were seen to write between them.
            let meets = !due.is_joined || self.meetings.of(due.object);
            meets && self.writers.get(&due.object).is_some_and(hopes)
        })
    }

    /// How long records with holes are kept: long where their neighbours' writers are known, and are only late.
    fn bears(&self, due: &[Due], now: Nanos) -> Duration {
        let of = |object| match self.writers.get(object) {
            Some(writers) if 1 < writers.last.len() => PATIENCE,
            Some(writers) if writers.lack_some(now) => PATIENCE_UNSEEN,
            Some(_) | None => PATIENCE_ALONE,
        };
        due.iter().map(|due| of(&due.object)).max().unwrap_or(PATIENCE_ALONE)
    }

    /// How long a record may be kept for writers that have not come as far and bring older ones all the time.
    fn until_behind(&self, due: &Due, now: Nanos) -> Option<Nanos> {
        let writers = self.writers.get(&due.object).filter(|writers| !writers.wasted)?;
        let came = writers.behind(due, now, &self.gathering)?;
        Some(until(came, PATIENCE).min(until(due.committed, PATIENCE_BEHIND)))
    }

    /// The highest place that a writer has come to and below which everything fits together, but for what comes late.
    fn ready_below(&self, due: &[Due], now: Nanos) -> Option<Upto> {
        if !can_be_cut(due) {
            return None;
        }
        let writers = self.writers.get(&due.first()?.object)?;
        let in_time: Vec<Due> = due.iter().filter_map(|due| writers.late.leaves(due)).collect();
        let in_time: Vec<&Due> = in_time.iter().collect();
        let progress = progress(due);
        // Below that all are there who are expected: holes are meant to be.
        let all = !writers.lack_some(now) && writers.last.keys().all(|place| progress.contains_key(place));
        let common = progress.values().copied().min().filter(|_| all).unwrap_or(0);
        let mut places: Vec<u64> = progress.into_values().collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let fits = |below: &u64| {
            let covered = covered(&in_time, *below);
            let bytes = in_time.iter().map(|due| due.bytes_below(*below)).sum();
            0 < covered && (is_complete(bytes, covered) || (*below <= common && is_dense(bytes, covered)))
        };
        let below = places.into_iter().find(fits);
        let is_late =
            |due: &Due| writers.late.places.contains(&due.place) && due.span.start < writers.late.below;
        let late_below = due.iter().any(is_late).then_some(writers.late.below);
        below.max(late_below).map(Upto::Below)
    }

    /// Notes who may still bring records for holes in what is taken.
    fn note_late(&mut self, due: &[Due], upto: Upto, now: Nanos) {
        if !can_be_cut(due) {
            return;
        }
        let below = match upto {
            Upto::Below(below) => below,
            Upto::Committed(Nanos(u64::MAX)) => due.iter().map(|due| due.span.end).max().unwrap_or(0),
            Upto::Committed(_) => return,
        };
        let Some(writers) = due.first().and_then(|due| self.writers.get_mut(&due.object)) else { return };
        let all: Vec<&Due> = due.iter().collect();
        let bytes: u64 = due.iter().map(|due| due.bytes_below(below)).sum();
        let has_holes = bytes < covered(&all, below);
        let beyond = |place: &usize| due.iter().any(|due| due.place == *place && below < due.span.end);
        let places = writers.last.keys().copied().filter(|place| has_holes && !beyond(place)).collect();
        writers.late = Late { below, places, until: until(now, PATIENCE) };
    }
}

/// Whether a part of the records may be taken by place: all are of one object and can be divided.
pub(super) fn can_be_cut(due: &[Due]) -> bool {
    due.iter().all(|one| one.object == due[0].object && !one.is_whole)
}

/// No more of an object at once than a step, so that writers have the room of what is in the store before the rest is.
fn a_step_of(upto: Upto, due: &[Due]) -> Upto {
    let start = due.iter().map(|due| due.span.start).min().unwrap_or(0);
    let end = due.iter().map(|due| due.span.end).max().unwrap_or(0);
    let step = start.saturating_add(STEP_BYTES);
    match upto {
        Upto::Below(below) => Upto::Below(below.min(step)),
        Upto::Committed(_) if upto == Upto::ALL && step < end && can_be_cut(due) => Upto::Below(step),
        Upto::Committed(_) => upto,
    }
}

/// How far each writer has come: the end of its last record.
fn progress(due: &[Due]) -> HashMap<usize, u64> {
    due.iter().map(|due| (due.place, due.span.end)).collect()
}

/// Bytes below a place that lie between the first and the last byte of some record.
fn covered(due: &[&Due], below: u64) -> u64 {
    let mut spans: Vec<Range<u64>> = due
        .iter()
        .filter(|due| due.span.start < below)
        .map(|due| due.span.start..due.span.end.min(below))
        .collect();
    spans.sort_unstable_by_key(|span| span.start);
    let (mut bytes, mut end) = (0, 0);
    for span in spans {
        bytes += span.end.saturating_sub(span.start.max(end));
        end = end.max(span.end);
    }
    bytes
}

/// The longest beginning, in the order of commits, in which everything fits together.
fn ready_before(due: &[Due], oldest: Nanos) -> Option<Upto> {
    // Where records can be divided, what is missing will come; elsewhere it may as well be a hole.
    let fits = if can_be_cut(due) { is_complete } else { is_dense };
    let mut objects: HashMap<ObjectId, (Spans, u64)> = HashMap::new();
    let (mut loose, mut dense) = (0usize, 0);
    for (number, due) in due.iter().enumerate() {
        let (spans, bytes) = objects.entry(due.object).or_default();
        let was_dense = fits(*bytes, spans.bytes);
        spans.add(due.span.clone());
        *bytes += due.bytes;
        let now_dense = fits(*bytes, spans.bytes);
        loose = loose + usize::from(!now_dense) - usize::from(!was_dense);
        if loose == 0 {
            dense = number + 1;
        }
    }
    match due.get(dense) {
        None => Some(Upto::ALL),
        Some(first_left) => (oldest < first_left.committed).then_some(Upto::Committed(first_left.committed)),
    }
}

/// A growing set of ranges, and how much they cover.
#[derive(Default)]
struct Spans {
    ranges: std::collections::BTreeMap<u64, u64>,
    bytes: u64,
}

impl Spans {
    fn add(&mut self, span: Range<u64>) {
        let (mut start, mut end) = (span.start, span.end);
        let before = self.ranges.range(..=start).next_back().map(|(from, to)| (*from, *to));
        let first = before.filter(|(_, to)| start <= *to).map_or(start, |(from, _)| from);
        let touched: Vec<(u64, u64)> =
            self.ranges.range(first..=end).map(|(from, to)| (*from, *to)).collect();
        for (from, to) in touched {
            self.ranges.remove(&from);
            self.bytes -= to - from;
            (start, end) = (start.min(from), end.max(to));
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }
}

/// Nothing is missing; where records were divided, their parts are estimated.
fn is_complete(bytes: u64, of: u64) -> bool {
    u128::from(of) * 199 <= u128::from(bytes) * 200
}

fn until(from: Nanos, wait: Duration) -> Nanos {
    Nanos(from.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
#[path = "patience_tests.rs"]
mod tests;
