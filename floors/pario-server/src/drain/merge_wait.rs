//! Merge wait: how much of the pending records a round drains: all, only records that complete each other, or nothing yet.
//!
//! Writers of an interleaved pattern commit pieces with holes for each other. Written in arrival order each piece costs a system call;
//! written when all have arrived, a whole block costs one. Records that leave holes are therefore kept until their neighbours have arrived,
//! while no caller waits for them, for at most [`MERGE_WAIT`] (2 s while a slower writer progresses). If some writers are faster than others,
//! the bytes below the offset that all have reached are drained, possibly a part of a record. While as many writers are active as there are
//! processors, draining would only slow them down: it begins when they pause or an outbox is half full, or immediately with a slow store.
//!
//! Never: waits for neighbours longer than [`MERGE_WAIT_ALONE`] where no second writer of the same object is seen or announced. Always:
//! drains within 16 ms if a caller waits, except for a collective sync or close with other ranks still writing; of the bytes below a cut
//! all committed ones are drained, of those above none.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use pario_core::{Nanos, ObjectId};

use super::interleave::Interleave;
use super::pending::{PendingRecord, is_dense};

/// Longest wait of a record with holes for its neighbours, while no caller waits and every outbox has free space: a writer that shares its
/// processor may be descheduled for long, and a range without its bytes costs a system call per piece.
const MERGE_WAIT: Duration = Duration::from_millis(250);
/// The same while slower writers still commit older records: with many processes on few processors one may be far in front.
const MERGE_WAIT_SLOWER: Duration = Duration::from_secs(2);
/// Wait for writers that were announced but never seen.
const MERGE_WAIT_UNSEEN: Duration = Duration::from_millis(50);
/// Longest delay that leaves the processors to busy writers.
const MERGE_WAIT_BUSY: Duration = Duration::from_millis(50);
/// Initial wait while an outbox is full; adapted by whether the last wait completed records.
const MERGE_WAIT_FULL: Duration = Duration::from_millis(32);
const MERGE_WAIT_FULL_MIN: Duration = Duration::from_millis(8);
const MERGE_WAIT_FULL_MAX: Duration = Duration::from_millis(32);
/// Longest wait while a caller waits for its records: the other members of its group are about to sync or close too.
const MERGE_WAIT_CALLER: Duration = Duration::from_millis(16);
/// Shortest wait that is worth it; also the value after a wait has completed records again.
const MERGE_WAIT_CALLER_MIN: Duration = Duration::from_millis(2);
/// Fewer bytes are written piece by piece instead of waiting.
const CALLER_BYTES_MIN: u64 = 64 << 10;
/// Wait for a possible second writer when only one is known.
const MERGE_WAIT_ALONE: Duration = Duration::from_millis(4);
/// Writers without a new record for this long have paused.
const PAUSE: Duration = Duration::from_millis(1);
/// A writer is expected again for this long after its last record.
pub(super) const MEMORY: Duration = Duration::from_millis(500);
/// Bytes of an object written per round with a slow store.
const STEP_BYTES: u64 = 4 << 20;
/// Objects with remembered writers.
pub(super) const OBJECTS_MAX: usize = 1024;

/// Conditions under which a round decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) now: Nanos,
    /// All records must be drained now.
    pub(super) urgent: bool,
    /// A caller waits for its own records, as in sync, close or a read.
    pub(super) waits: bool,
    /// Every waiting caller is inside a collective call, and waits for its group in any case.
    pub(super) in_collective: bool,
    /// An outbox is full and its writer waits.
    pub(super) full: bool,
    /// An outbox is half full.
    pub(super) half: bool,
    /// The store limits the drain rate: waiting for it needs time, and hardly a processor.
    pub(super) slow: bool,
}

/// The bytes that a round drains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cutoff {
    /// All records committed before this time.
    Committed(Nanos),
    /// All bytes below this offset of the only object.
    Below(u64),
}

impl Cutoff {
    /// All pending records.
    pub(super) const ALL: Cutoff = Cutoff::Committed(Nanos(u64::MAX));
    /// Nothing.
    pub(super) const NOTHING: Cutoff = Cutoff::Committed(Nanos(0));
}

/// Decision of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DrainDecision {
    /// Drain this part.
    Drain(Cutoff),
    /// Nothing, until a new record arrives or this time has passed.
    Wait { until: Nanos },
    /// Nothing, and new records do not matter: until a caller waits, an outbox is half full or this time has passed.
    Rest { until: Nanos },
}

/// Merge-wait state: recent writers per object, when an outbox became full, current timeouts.
#[derive(Debug)]
pub(super) struct MergeWait {
    writers: HashMap<ObjectId, Writers>,
    interleave: Interleave,
    full_since: Option<Nanos>,
    full_wait: Duration,
    waited_since: Option<Nanos>,
    waited_wait: Duration,
    /// Outboxes with a client inside a collective call: they commit nothing more before it ends.
    in_collective: Vec<usize>,
    /// Processors of this machine.
    processors: usize,
}

/// Writers that leave holes in an object.
#[derive(Debug)]
struct Writers {
    since: Nanos,
    /// Number of writers, as announced by them.
    expected: usize,
    last: HashMap<usize, WriterProgress>,
    late: LateRanges,
    /// The longest wait expired although the missing writers progressed: they were writing other data.
    wasted: bool,
}

/// Last record seen from a writer.
#[derive(Clone, Copy, Debug)]
struct WriterProgress {
    at: Nanos,
    /// Commit time of its newest record, and the end of that record.
    committed: Nanos,
    end: u64,
    /// When it last reached a new offset.
    progressed_at: Nanos,
}

impl WriterProgress {
    fn see(&mut self, due: &PendingRecord, now: Nanos) {
        self.at = now;
        if self.committed < due.newest {
            if self.end != due.span.end {
                (self.end, self.progressed_at) = (due.span.end, due.newest);
            }
            self.committed = due.newest;
        }
    }
}

impl Writers {
    fn are_several(&self, now: Nanos) -> bool {
        1 < self.last.len() || self.lack_some(now)
    }

    /// Announced writers have not been seen yet, and the wait for them has not expired.
    fn lack_some(&self, now: Nanos) -> bool {
        self.last.len() < self.expected && now.since(self.since) < MERGE_WAIT_UNSEEN
    }

    /// Last progress of a slower writer, if within `MERGE_WAIT`.
    fn slower_progress(&self, due: &PendingRecord, now: Nanos, gathering: &[usize]) -> Option<Nanos> {
        let is_behind = |(place, seen): &(&usize, &WriterProgress)| {
            seen.end < due.span.end
                && now < until(seen.progressed_at, MERGE_WAIT)
                && !gathering.contains(place)
        };
        self.last.iter().filter(is_behind).map(|(_, seen)| seen.progressed_at).max()
    }
}

/// Ranges drained with holes, and the writers that may still commit records for them: such records complete nothing pending, and are not
/// kept.
#[derive(Debug, Default)]
struct LateRanges {
    below: u64,
    outboxes: HashSet<usize>,
    until: Nanos,
}

impl LateRanges {
    /// The part of a record that is not late.
    fn leaves(&self, due: &PendingRecord) -> Option<PendingRecord> {
        if self.below <= due.span.start || !self.outboxes.contains(&due.outbox) {
            return Some(due.clone());
        }
        let span = self.below..due.span.end.max(self.below);
        let bytes = due.bytes - due.bytes_below(self.below);
        (!span.is_empty()).then(|| PendingRecord { span, bytes, ..due.clone() })
    }

    /// A writer with records only beyond the range has nothing left to fill in.
    fn forget(&mut self, due: &[PendingRecord], object: ObjectId, now: Nanos) {
        if self.until <= now {
            self.outboxes.clear();
        }
        let below = self.below;
        self.outboxes.retain(|place| {
            let mut mine = due.iter().filter(|due| due.outbox == *place && due.object == object).peekable();
            mine.peek().is_none() || mine.any(|due| due.span.start < below)
        });
    }
}

impl MergeWait {
    pub(super) fn new(processors: usize) -> Self {
        let writers = HashMap::new();
        MergeWait {
            writers,
            interleave: Interleave::default(),
            full_since: None,
            full_wait: MERGE_WAIT_FULL,
            waited_since: None,
            waited_wait: MERGE_WAIT_CALLER,
            in_collective: Vec::new(),
            processors,
        }
    }

    /// Decides about records in commit order.
    pub(super) fn choose(&mut self, due: &[PendingRecord], mood: Conditions) -> DrainDecision {
        self.remember(due, mood.now);
        self.full_since = if mood.full { Some(self.full_since.unwrap_or(mood.now)) } else { None };
        let Some(oldest) = due.iter().map(|due| due.committed).min() else {
            return DrainDecision::Drain(Cutoff::ALL);
        };
        self.waited_since = if mood.waits { Some(self.waited_since.unwrap_or(mood.now)) } else { None };
        if mood.urgent || (mood.waits && !self.may_delay_caller(due, mood)) {
            self.note_late(due, Cutoff::ALL, mood.now);
            return DrainDecision::Drain(Cutoff::ALL);
        }
        if let Some(until) = self.pause_of_writers(due, oldest, mood) {
            return DrainDecision::Rest { until };
        }
        let choice = match self.choose_complete(due, oldest, mood) {
            DrainDecision::Drain(upto) if mood.slow => DrainDecision::Drain(one_step(upto, due)),
            choice @ (DrainDecision::Drain(_) | DrainDecision::Wait { .. } | DrainDecision::Rest { .. }) => {
                choice
            }
        };
        if let DrainDecision::Drain(upto) = choice {
            self.note_late(due, upto, mood.now);
        }
        choice
    }

    /// Notes the outboxes with a client inside a collective call.
    pub(super) fn set_in_collective(&mut self, places: Vec<usize>) {
        self.in_collective = places;
    }

    /// The indexes of outboxes have changed.
    pub(super) fn forget_outboxes(&mut self) {
        self.writers.clear();
        self.interleave.forget();
        self.in_collective.clear();
    }

    fn remember(&mut self, due: &[PendingRecord], now: Nanos) {
        self.interleave.note(due, now);
        if OBJECTS_MAX < self.writers.len() {
            self.writers.clear();
        }
        for due in due.iter().filter(|due| due.leaves_holes()) {
            let fresh = || Writers {
                since: now,
                expected: 0,
                last: HashMap::new(),
                late: LateRanges::default(),
                wasted: false,
            };
            let writers = self.writers.entry(due.object).or_insert_with(fresh);
            let (committed, end) = (due.newest, due.span.end);
            let first = WriterProgress { at: now, committed, end, progressed_at: committed };
            writers.last.entry(due.outbox).or_insert(first).see(due, now);
            writers.expected = writers.expected.max(due.local_writers);
        }
        // A single dense record says little about a new writer, but gives the position of a known one.
        for due in due.iter().filter(|due| !due.leaves_holes()) {
            let known =
                self.writers.get_mut(&due.object).and_then(|writers| writers.last.get_mut(&due.outbox));
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

    /// Whether a waiting caller may be delayed for members of its group that have not committed yet.
    fn may_delay_caller(
        &mut self,
        due: &[PendingRecord],
        Conditions { now, in_collective: gathers, .. }: Conditions,
    ) -> bool {
        let is_group = due.iter().any(|due| 1 < due.local_writers);
        if gathers && is_group {
            let members = due
                .iter()
                .filter(|due| self.in_collective.contains(&due.outbox))
                .map(|due| due.local_writers);
            if members.max().is_some_and(|members| members <= self.in_collective.len()) {
                // No missing writer could commit more.
                return false;
            }
            // A writer that is behind any of them is behind the last.
            let last = due.iter().max_by_key(|due| (due.span.end, due.committed)).filter(|_| can_be_cut(due));
            if last.and_then(|last| self.until_slower(last, now)).is_some_and(|until| now < until) {
                return true;
            }
        }
        let is_much = CALLER_BYTES_MIN <= due.iter().map(|due| due.bytes).sum();
        let worth = is_much && MERGE_WAIT_CALLER_MIN <= self.waited_wait;
        let over = self.waited_since.is_some_and(|since| until(since, self.waited_wait) <= now);
        if is_group && worth && over {
            self.waited_wait /= 2;
            self.waited_since = None;
        }
        is_group && worth && !over
    }

    /// When writers that need all processors will have paused; `None` if processors are free, or the pause must not be awaited.
    fn pause_of_writers(&self, due: &[PendingRecord], oldest: Nanos, mood: Conditions) -> Option<Nanos> {
        let places: HashSet<usize> = due.iter().map(|due| due.outbox).collect();
        let newest = due.iter().map(|due| due.newest).max()?;
        let until = until(newest, PAUSE).min(until(oldest, MERGE_WAIT_BUSY));
        let waits =
            self.processors <= places.len() && !mood.half && !mood.full && !mood.waits && mood.now < until;
        (waits && !mood.slow).then_some(until)
    }

    fn choose_complete(&mut self, due: &[PendingRecord], oldest: Nanos, mood: Conditions) -> DrainDecision {
        if !self.has_holes(due, mood.now) {
            return DrainDecision::Drain(Cutoff::ALL);
        }
        if let Some(upto) = self.ready_below(due, mood.now).or_else(|| ready_before(due, oldest)) {
            if self.full_since.take().is_some() {
                self.full_wait = (self.full_wait * 2).min(MERGE_WAIT_FULL_MAX);
            }
            let worth =
                if self.waited_since.take().is_some() { self.waited_wait * 2 } else { self.waited_wait };
            self.waited_wait = worth.clamp(MERGE_WAIT_CALLER_MIN, MERGE_WAIT_CALLER);
            return DrainDecision::Drain(upto);
        }
        let first = due.iter().find(|due| due.committed == oldest).filter(|_| can_be_cut(due));
        let behind = first.and_then(|first| self.until_slower(first, mood.now));
        let patient = until(oldest, self.wait_limit(due, mood.now)).max(behind.unwrap_or(oldest));
        let full = self.full_since.map_or(patient, |since| until(since, self.full_wait));
        let waited = match self.waited_since {
            Some(since) if behind.is_none() || !mood.in_collective => until(since, self.waited_wait),
            Some(_) | None => patient,
        };
        let limit = patient.min(full).min(waited);
        if mood.now < limit {
            return DrainDecision::Wait { until: limit };
        }
        if self.full_since.take().is_some() {
            self.full_wait = (self.full_wait / 2).max(MERGE_WAIT_FULL_MIN);
        }
        if behind.is_some_and(|_| until(oldest, MERGE_WAIT_SLOWER) <= mood.now)
            && let Some(writers) = self.writers.get_mut(&due[0].object)
        {
            writers.wasted = true;
        }
        // The common progress of the writers that have records, though it has holes.
        let common = progress(due).into_values().min().filter(|_| can_be_cut(due));
        DrainDecision::Drain(common.map_or(Cutoff::ALL, Cutoff::Below))
    }

    /// Whether there are records with neighbours that can be expected.
    fn has_holes(&self, due: &[PendingRecord], now: Nanos) -> bool {
        let hopes =
            |writers: &Writers| writers.are_several(now) || now.since(writers.since) < MERGE_WAIT_ALONE;
        due.iter().filter(|due| due.leaves_holes()).any(|due| {
            // Small records may belong to a single writer: they are kept only where other writers were seen between them.
            let meets = !due.is_joined || self.interleave.is_interleaved(due.object);
            meets && self.writers.get(&due.object).is_some_and(hopes)
        })
    }

    /// How long records with holes are kept: longer if the writers of their neighbours are known and only late.
    fn wait_limit(&self, due: &[PendingRecord], now: Nanos) -> Duration {
        let of = |object| match self.writers.get(object) {
            Some(writers) if 1 < writers.last.len() => MERGE_WAIT,
            Some(writers) if writers.lack_some(now) => MERGE_WAIT_UNSEEN,
            Some(_) | None => MERGE_WAIT_ALONE,
        };
        due.iter().map(|due| of(&due.object)).max().unwrap_or(MERGE_WAIT_ALONE)
    }

    /// How long a record may be kept for slower writers that still commit older records.
    fn until_slower(&self, due: &PendingRecord, now: Nanos) -> Option<Nanos> {
        let writers = self.writers.get(&due.object).filter(|writers| !writers.wasted)?;
        let came = writers.slower_progress(due, now, &self.in_collective)?;
        Some(until(came, MERGE_WAIT).min(until(due.committed, MERGE_WAIT_SLOWER)))
    }

    /// The highest offset reached by a writer below which all records complete each other, except for late ones.
    fn ready_below(&self, due: &[PendingRecord], now: Nanos) -> Option<Cutoff> {
        if !can_be_cut(due) {
            return None;
        }
        let writers = self.writers.get(&due.first()?.object)?;
        let in_time: Vec<PendingRecord> = due.iter().filter_map(|due| writers.late.leaves(due)).collect();
        let in_time: Vec<&PendingRecord> = in_time.iter().collect();
        let progress = progress(due);
        // Below that all expected writers have committed: remaining holes are part of the pattern.
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
        let is_late = |due: &PendingRecord| {
            writers.late.outboxes.contains(&due.outbox) && due.span.start < writers.late.below
        };
        let late_below = due.iter().any(is_late).then_some(writers.late.below);
        below.max(late_below).map(Cutoff::Below)
    }

    /// Notes the writers that may still commit records for holes in the drained range.
    fn note_late(&mut self, due: &[PendingRecord], upto: Cutoff, now: Nanos) {
        if !can_be_cut(due) {
            return;
        }
        let below = match upto {
            Cutoff::Below(below) => below,
            Cutoff::Committed(Nanos(u64::MAX)) => due.iter().map(|due| due.span.end).max().unwrap_or(0),
            Cutoff::Committed(_) => return,
        };
        let Some(writers) = due.first().and_then(|due| self.writers.get_mut(&due.object)) else { return };
        let all: Vec<&PendingRecord> = due.iter().collect();
        let bytes: u64 = due.iter().map(|due| due.bytes_below(below)).sum();
        let has_holes = bytes < covered(&all, below);
        let beyond = |place: &usize| due.iter().any(|due| due.outbox == *place && below < due.span.end);
        let places = writers.last.keys().copied().filter(|place| has_holes && !beyond(place)).collect();
        writers.late = LateRanges { below, outboxes: places, until: until(now, MERGE_WAIT) };
    }
}

/// Whether the records may be cut at an offset: all are of one object and divisible.
pub(super) fn can_be_cut(due: &[PendingRecord]) -> bool {
    due.iter().all(|one| one.object == due[0].object && !one.is_whole)
}

/// Limits a round to [`STEP_BYTES`] of an object, so that its outbox space is free before the rest is written.
fn one_step(upto: Cutoff, due: &[PendingRecord]) -> Cutoff {
    let start = due.iter().map(|due| due.span.start).min().unwrap_or(0);
    let end = due.iter().map(|due| due.span.end).max().unwrap_or(0);
    let step = start.saturating_add(STEP_BYTES);
    match upto {
        Cutoff::Below(below) => Cutoff::Below(below.min(step)),
        Cutoff::Committed(_) if upto == Cutoff::ALL && step < end && can_be_cut(due) => Cutoff::Below(step),
        Cutoff::Committed(_) => upto,
    }
}

/// Progress of each writer: the end of its last record.
fn progress(due: &[PendingRecord]) -> HashMap<usize, u64> {
    due.iter().map(|due| (due.outbox, due.span.end)).collect()
}

/// Bytes below an offset that lie between the first and the last byte of some record.
fn covered(due: &[&PendingRecord], below: u64) -> u64 {
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

/// The longest prefix, in commit order, in which all records complete each other.
fn ready_before(due: &[PendingRecord], oldest: Nanos) -> Option<Cutoff> {
    // Where records are divisible, missing bytes will follow; elsewhere a hole may be permanent.
    let fits = if can_be_cut(due) { is_complete } else { is_dense };
    let mut objects: HashMap<ObjectId, (CoveredSpans, u64)> = HashMap::new();
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
        None => Some(Cutoff::ALL),
        Some(first_left) => {
            (oldest < first_left.committed).then_some(Cutoff::Committed(first_left.committed))
        }
    }
}

/// A growing set of ranges, and the number of bytes they cover.
#[derive(Default)]
struct CoveredSpans {
    ranges: std::collections::BTreeMap<u64, u64>,
    bytes: u64,
}

impl CoveredSpans {
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

/// No byte is missing; for divided records the parts are estimated.
fn is_complete(bytes: u64, of: u64) -> bool {
    u128::from(of) * 199 <= u128::from(bytes) * 200
}

fn until(from: Nanos, wait: Duration) -> Nanos {
    Nanos(from.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
#[path = "merge_wait_tests.rs"]
mod tests;
