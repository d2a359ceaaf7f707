//! Overwrites: bytes that a restarted server wrote to its store before all outboxes were attached again.
//!
//! The clients of a killed server reconnect one by one, with records that it had not drained. Bytes drained meanwhile may be newer. A
//! restarted server therefore remembers the commit time of the bytes it writes, and of a late record it drains only the bytes that no newer
//! write covers. Its own successor inherits this knowledge: see `restart_log.rs`.
//!
//! Never: waits; does file I/O; remembers more than [`MARKS_MAX`] ranges. Always: a byte of a late record is drained, or a newer one is in
//! the store, or the error is reported to its writer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use pario_core::{Nanos, ObjectId, SessionId};

/// Ranges that are remembered; beyond that, neighbouring ranges are joined.
const MARKS_MAX: usize = 32 << 10;
/// Ranges left after joining. If joining cannot reach it, the whole table is dropped.
const MARKS_KEPT: usize = MARKS_MAX / 4 * 3;
/// Ranges of one round that keep their own commit time; beyond that, neighbouring ranges committed since this restart are joined.
const MARKS_EXACT: usize = 4 << 10;
/// Sessions that are remembered.
const SESSIONS_MAX: usize = 16 << 10;

/// Bytes of an object that were written to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WrittenRange {
    pub(super) object: ObjectId,
    pub(super) bytes: Range<u64>,
    pub(super) written: CommitSpan,
}

/// When contiguous bytes were committed: the earliest and the latest time, which differ after ranges were joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CommitSpan {
    pub(super) oldest: Nanos,
    pub(super) newest: Nanos,
    /// The bytes were in the store by then.
    pub(super) stored_at: Nanos,
}

impl CommitSpan {
    fn with(self, other: CommitSpan) -> CommitSpan {
        CommitSpan {
            oldest: self.oldest.min(other.oldest),
            newest: self.newest.max(other.newest),
            stored_at: self.stored_at.max(other.stored_at),
        }
    }

    /// Commit and write times of bytes after other bytes were written over them.
    fn under(self, other: CommitSpan) -> CommitSpan {
        if self.newest <= other.oldest {
            other
        } else if other.newest <= self.oldest {
            self
        } else {
            self.with(other)
        }
    }
}

/// Ranges that a round writes, in the order of the writes.
#[derive(Debug)]
pub(super) struct WrittenRanges {
    born: Nanos,
    list: Vec<WrittenRange>,
    /// The first `sure` marks are in the store.
    sure: usize,
    /// Marks were dropped.
    too_many: bool,
}

impl WrittenRanges {
    /// For a server started at `born`: ranges committed later are joined more coarsely.
    pub(super) fn new(born: Nanos) -> WrittenRanges {
        WrittenRanges { born, list: Vec::new(), sure: 0, too_many: false }
    }

    /// Called before bytes are written to the store.
    #[inline]
    pub(super) fn add(&mut self, object: ObjectId, bytes: Range<u64>, committed: Nanos) {
        let written = CommitSpan { oldest: committed, newest: committed, stored_at: committed };
        let is_crowded = MARKS_EXACT <= self.list.len();
        let last = self.list[self.sure..].last_mut();
        if let Some(last) = last.filter(|last| (last.object, last.bytes.end) == (object, bytes.start))
            && (last.written == written || is_crowded && self.born <= last.written.oldest.min(committed))
        {
            last.bytes.end = bytes.end;
            last.written = last.written.with(written);
        } else if self.list.len() < MARKS_MAX {
            self.list.push(WrittenRange { object, bytes, written });
        } else {
            self.too_many = true;
        }
    }

    /// The store accepted the bytes.
    pub(super) fn stored(&mut self) {
        self.sure = self.list.len();
    }

    /// The store rejected the bytes.
    pub(super) fn failed(&mut self) {
        self.list.truncate(self.sure);
    }

    fn over(mut self, now: Nanos) -> Option<Vec<WrittenRange>> {
        self.failed();
        self.list.iter_mut().for_each(|mark| mark.written.stored_at = now);
        (!self.too_many).then_some(self.list)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OverwriteEntry {
    end: u64,
    written: CommitSpan,
}

/// Disjoint ranges of one object, by their start.
type RangeMap = BTreeMap<u64, OverwriteEntry>;

/// Bytes of a late record that may be drained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LateVerdict {
    /// Only these ranges.
    Drain(Vec<Range<u64>>),
    /// The commit order can no longer be determined.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Overwrites {
    born: Nanos,
    objects: HashMap<ObjectId, RangeMap>,
    marks: usize,
    /// The table was dropped.
    is_dropped: bool,
    /// The table was dropped at some time: nothing is known about sessions that are not in `since`.
    is_incomplete: bool,
    /// Per session: from when on every write that preceded its records was observed.
    since: HashMap<SessionId, Nanos>,
    /// Attach times of sessions since this restart.
    here: HashMap<SessionId, Nanos>,
    /// Earlier restarts also replaced a server, and may have been killed during a round. All of them knew the direct writes of these
    /// sessions; the last writes over direct writes of other sessions are not remembered.
    before: Option<HashSet<SessionId>>,
}

/// Entries that a round adds to the restart log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LogUpdate {
    /// These ranges.
    Marks(Vec<WrittenRange>),
    /// The table was dropped.
    Dropped,
    /// No entry.
    None,
}

impl Overwrites {
    /// For a server started at `born`.
    pub(super) fn new(born: Nanos) -> Overwrites {
        Overwrites {
            born,
            objects: HashMap::new(),
            marks: 0,
            is_dropped: false,
            is_incomplete: false,
            since: HashMap::new(),
            here: HashMap::new(),
            before: None,
        }
    }

    /// The same after an earlier restart dropped its table; `since` lists the sessions that this does not affect.
    pub(super) fn incomplete(born: Nanos, since: HashMap<SessionId, Nanos>) -> Overwrites {
        Overwrites { is_incomplete: true, since, ..Overwrites::new(born) }
    }

    /// After a restart that itself replaced a server, and to which these sessions attached.
    pub(super) fn after_restart(mut self, before: HashSet<SessionId>) -> Overwrites {
        self.before = Some(before);
        self
    }

    /// Sessions known to every earlier restart that replaced a server; `None`: there was no such restart.
    pub(super) fn before(&self) -> Option<&HashSet<SessionId>> {
        self.before.as_ref()
    }

    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    pub(super) fn since(&self) -> impl Iterator<Item = (SessionId, Nanos)> {
        self.since.iter().map(|(session, at)| (*session, *at))
    }

    /// Sessions attached since this restart.
    pub(super) fn here(&self) -> impl Iterator<Item = (SessionId, Nanos)> {
        self.here.iter().map(|(session, at)| (*session, *at))
    }

    /// All remembered ranges.
    pub(super) fn marks(&self) -> impl Iterator<Item = WrittenRange> {
        self.objects.iter().flat_map(|(object, stretches)| {
            let mark = |(start, entry): (&u64, &OverwriteEntry)| WrittenRange {
                object: *object,
                bytes: *start..entry.end,
                written: entry.written,
            };
            stretches.iter().map(mark)
        })
    }

    /// An empty list of marks for the next round; `None` if nothing is remembered.
    pub(super) fn new_ranges(&self) -> Option<WrittenRanges> {
        (!self.is_dropped).then(|| WrittenRanges::new(self.born))
    }

    /// An outbox was attached. False if the restart log needs no entry.
    pub(super) fn attached(&mut self, session: SessionId, now: Nanos) -> bool {
        if self.here.len() == SESSIONS_MAX && !self.here.contains_key(&session) {
            return false;
        }
        self.here.insert(session, now);
        if self.is_dropped {
            self.since.insert(session, now);
        }
        true
    }

    /// A round has ended.
    pub(super) fn note(&mut self, marks: WrittenRanges, now: Nanos) -> LogUpdate {
        if self.is_dropped {
            return LogUpdate::None;
        }
        let Some(list) = marks.over(now) else {
            self.drop_table();
            return LogUpdate::Dropped;
        };
        list.iter().for_each(|mark| self.insert(mark));
        self.join_neighbours();
        match (self.is_dropped, list.is_empty()) {
            (true, _) => LogUpdate::Dropped,
            (false, true) => LogUpdate::None,
            (false, false) => LogUpdate::Marks(list),
        }
    }

    /// Drops the table: from now on late records are refused and the loss is reported to their writers.
    pub(super) fn drop_table(&mut self) {
        (self.is_dropped, self.is_incomplete, self.marks) = (true, true, 0);
        self.objects = HashMap::new();
        self.since = self.here.clone();
    }

    /// Bytes are in the store. Where ranges overlap, the newer bytes win.
    pub(super) fn insert(&mut self, mark: &WrittenRange) {
        let stretches = self.objects.entry(mark.object).or_default();
        self.marks -= stretches.len();
        let (start, end) = (mark.bytes.start, mark.bytes.end);
        let met = overlapping(stretches, &mark.bytes);
        let mut parts: Vec<(Range<u64>, CommitSpan)> = Vec::with_capacity(2 * met.len() + 1);
        let mut at = start;
        for (from, entry) in met {
            stretches.remove(&from);
            if from < start {
                parts.push((from..start, entry.written));
            }
            let (meets, parts_at) = (from.max(start), entry.end.min(end));
            if at < meets {
                parts.push((at..meets, mark.written));
            }
            parts.push((meets..parts_at, entry.written.under(mark.written)));
            at = parts_at;
            if end < entry.end {
                parts.push((end..entry.end, entry.written));
            }
        }
        if at < end {
            parts.push((at..end, mark.written));
        }
        parts.dedup_by(|next, before| {
            let same = before.0.end == next.0.start && before.1 == next.1;
            if same {
                before.0.end = next.0.end;
            }
            same
        });
        for (bytes, written) in parts {
            stretches.insert(bytes.start, OverwriteEntry { end: bytes.end, written });
        }
        self.marks += stretches.len();
    }

    /// Frees memory by joining neighbouring ranges: first those committed since this restart, which late records seldom are.
    fn join_neighbours(&mut self) {
        if self.marks <= MARKS_MAX {
            return;
        }
        let born = self.born;
        self.join(|a, b| born <= a.oldest && born <= b.oldest);
        if MARKS_KEPT < self.marks {
            self.join(|_, _| true);
        }
        if MARKS_KEPT < self.marks {
            self.drop_table();
        }
    }

    fn join(&mut self, alike: impl Fn(&CommitSpan, &CommitSpan) -> bool) {
        self.marks = 0;
        for stretches in self.objects.values_mut() {
            let mut joined: Vec<(u64, OverwriteEntry)> = Vec::new();
            for (start, entry) in std::mem::take(stretches) {
                match joined.last_mut() {
                    Some((_, last)) if last.end == start && alike(&last.written, &entry.written) => {
                        *last = OverwriteEntry { end: entry.end, written: last.written.with(entry.written) };
                    }
                    Some(_) | None => joined.push((start, entry)),
                }
            }
            *stretches = joined.into_iter().collect();
            self.marks += stretches.len();
        }
    }

    /// Bytes of a late record that may be drained.
    pub(super) fn drainable(
        &self,
        (session, committed): (SessionId, Nanos),
        object: ObjectId,
        bytes: Range<u64>,
    ) -> LateVerdict {
        if !self.knows(session, committed) {
            return LateVerdict::Unknown;
        }
        let (mut free, mut at) = (Vec::new(), bytes.start);
        for (from, entry) in self.met(object, &bytes) {
            if entry.written.newest <= committed {
                continue;
            }
            if entry.written.oldest <= committed {
                return LateVerdict::Unknown;
            }
            if at < from {
                free.push(at..from);
            }
            at = entry.end;
        }
        if at < bytes.end {
            free.push(at..bytes.end);
        }
        LateVerdict::Drain(free)
    }

    /// Whether older bytes may have been written over those of a direct write since it was made.
    pub(super) fn may_have_covered(
        &self,
        (session, committed): (SessionId, Nanos),
        object: ObjectId,
        bytes: &Range<u64>,
    ) -> bool {
        let covers = |(_, entry): &(u64, OverwriteEntry)| {
            entry.written.oldest < committed && committed <= entry.written.stored_at
        };
        let is_doubtful =
            committed < self.born && self.before.as_ref().is_some_and(|before| !before.contains(&session));
        is_doubtful || !self.knows(session, committed) || self.met(object, bytes).iter().any(covers)
    }

    fn knows(&self, session: SessionId, committed: Nanos) -> bool {
        !self.is_incomplete || self.since.get(&session).is_some_and(|since| *since <= committed)
    }

    fn met(&self, object: ObjectId, bytes: &Range<u64>) -> Vec<(u64, OverwriteEntry)> {
        self.objects.get(&object).map_or_else(Vec::new, |stretches| overlapping(stretches, bytes))
    }
}

/// The ranges that overlap `bytes`, in order.
fn overlapping(stretches: &RangeMap, bytes: &Range<u64>) -> Vec<(u64, OverwriteEntry)> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let before = stretches.range(..bytes.start).next_back().filter(|(_, entry)| bytes.start < entry.end);
    let first = before.map_or(bytes.start, |(from, _)| *from);
    stretches.range(first..bytes.end).map(|(from, entry)| (*from, *entry)).collect()
}

#[cfg(test)]
#[path = "overwrites_tests.rs"]
mod tests;
