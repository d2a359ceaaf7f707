//! What a server that replaced another has put into its store ahead of outboxes that are not back yet.
//!
//! The clients of a killed server come back one by one, with records that it had not taken. Whatever was taken meanwhile may be newer.
//! So a successor remembers when the bytes were committed that it puts down, and of a record that comes late it takes those only over
//! which nothing newer lies. Its own successor gets to know that too: see `lives.rs`.
//!
//! Never: waits for anybody; touches a file; remembers more than [`MARKS_MAX`] places. Always: a byte of a late record is taken, or
//! a newer one lies there, or its writer is told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use pario_core::{Nanos, ObjectId, SessionId};

/// Places that are remembered; where there are more, neighbours are remembered as one.
const MARKS_MAX: usize = 32 << 10;
/// As many are left then. Where that cannot be, nothing is remembered any more.
const MARKS_KEPT: usize = MARKS_MAX / 4 * 3;
/// So many of a round are remembered each with its own time; behind them neighbours of this life are remembered as one.
const MARKS_EXACT: usize = 4 << 10;
/// Sessions that are remembered.
const SESSIONS_MAX: usize = 16 << 10;

/// Bytes of an object that were put down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) object: ObjectId,
    pub(super) bytes: Range<u64>,
    pub(super) written: Written,
}

/// When bytes that lie together were committed: all of them then, or, where several are remembered as one, not before and not after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Written {
    pub(super) oldest: Nanos,
    pub(super) newest: Nanos,
    /// They were in the store by then.
    pub(super) put: Nanos,
}

impl Written {
    fn with(self, other: Written) -> Written {
        Written {
            oldest: self.oldest.min(other.oldest),
            newest: self.newest.max(other.newest),
            put: self.put.max(other.put),
        }
    }

    /// What is known of bytes that were these and got others.
    fn under(self, other: Written) -> Written {
        if self.newest <= other.oldest {
            other
        } else if other.newest <= self.oldest {
            self
        } else {
            self.with(other)
        }
    }
}

/// What a round puts down, in the order in which it does.
#[derive(Debug)]
pub(super) struct Marks {
    born: Nanos,
    list: Vec<Mark>,
    /// So many of them are in the store.
    sure: usize,
    /// There were more.
    too_many: bool,
}

impl Marks {
    /// Of a server that began at that time: what was committed later is remembered in longer stretches.
    pub(super) fn new(born: Nanos) -> Marks {
        Marks { born, list: Vec::new(), sure: 0, too_many: false }
    }

    /// Bytes are about to be put down.
    #[inline]
    pub(super) fn add(&mut self, object: ObjectId, bytes: Range<u64>, committed: Nanos) {
        let written = Written { oldest: committed, newest: committed, put: committed };
        let is_crowded = MARKS_EXACT <= self.list.len();
        let last = self.list[self.sure..].last_mut();
        if let Some(last) = last.filter(|last| (last.object, last.bytes.end) == (object, bytes.start))
            && (last.written == written || is_crowded && self.born <= last.written.oldest.min(committed))
        {
            last.bytes.end = bytes.end;
            last.written = last.written.with(written);
        } else if self.list.len() < MARKS_MAX {
            self.list.push(Mark { object, bytes, written });
        } else {
            self.too_many = true;
        }
    }

    /// They are there.
    pub(super) fn put(&mut self) {
        self.sure = self.list.len();
    }

    /// They are not.
    pub(super) fn failed(&mut self) {
        self.list.truncate(self.sure);
    }

    fn over(mut self, now: Nanos) -> Option<Vec<Mark>> {
        self.failed();
        self.list.iter_mut().for_each(|mark| mark.written.put = now);
        (!self.too_many).then_some(self.list)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    end: u64,
    written: Written,
}

/// Disjoint stretches of one object, by their beginnings.
type Stretches = BTreeMap<u64, Entry>;

/// What of a late record may be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// These bytes.
    Take(Vec<Range<u64>>),
    /// That cannot be told any more.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ahead {
    born: Nanos,
    objects: HashMap<ObjectId, Stretches>,
    marks: usize,
    /// Nothing is remembered any more.
    blind: bool,
    /// That was so at some time: of sessions that are not in `since` nothing can be told.
    unsure: bool,
    /// From when on it was seen what came before the records of a session.
    since: HashMap<SessionId, Nanos>,
    /// When sessions came in this life.
    here: HashMap<SessionId, Nanos>,
    /// Lives before had taken over as well, and may have ended in the middle of a round: all knew of the direct writes of these
    /// sessions, and what it put down last over those of others is not remembered.
    before: Option<HashSet<SessionId>>,
}

/// What is to be written down about a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// These.
    Marks(Vec<Mark>),
    /// That nothing is remembered any more.
    Blind,
    /// Nothing.
    None,
}

impl Ahead {
    /// Of a server that begins at that time.
    pub(super) fn new(born: Nanos) -> Ahead {
        Ahead {
            born,
            objects: HashMap::new(),
            marks: 0,
            blind: false,
            unsure: false,
            since: HashMap::new(),
            here: HashMap::new(),
            before: None,
        }
    }

    /// The same, but an earlier life could not remember; `since` says of which sessions that does not matter.
    pub(super) fn unsure(born: Nanos, since: HashMap<SessionId, Nanos>) -> Ahead {
        Ahead { unsure: true, since, ..Ahead::new(born) }
    }

    /// Behind a life that had taken over itself, and to which these sessions came.
    pub(super) fn behind(mut self, before: HashSet<SessionId>) -> Ahead {
        self.before = Some(before);
        self
    }

    /// The sessions of which all lives before knew that had taken over; `None`: there was none.
    pub(super) fn before(&self) -> Option<&HashSet<SessionId>> {
        self.before.as_ref()
    }

    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    pub(super) fn since(&self) -> impl Iterator<Item = (SessionId, Nanos)> {
        self.since.iter().map(|(session, at)| (*session, *at))
    }

    /// Sessions that came in this life.
    pub(super) fn here(&self) -> impl Iterator<Item = (SessionId, Nanos)> {
        self.here.iter().map(|(session, at)| (*session, *at))
    }

    /// Everything that is remembered.
    pub(super) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.objects.iter().flat_map(|(object, stretches)| {
            let mark = |(start, entry): (&u64, &Entry)| Mark {
                object: *object,
                bytes: *start..entry.end,
                written: entry.written,
            };
            stretches.iter().map(mark)
        })
    }

    /// What a round is to say of what it puts down.
    pub(super) fn wanted(&self) -> Option<Marks> {
        (!self.blind).then(|| Marks::new(self.born))
    }

    /// An outbox is there. False if it is not worth noting.
    pub(super) fn came(&mut self, session: SessionId, now: Nanos) -> bool {
        if self.here.len() == SESSIONS_MAX && !self.here.contains_key(&session) {
            return false;
        }
        self.here.insert(session, now);
        if self.blind {
            self.since.insert(session, now);
        }
        true
    }

    /// A round is over.
    pub(super) fn note(&mut self, marks: Marks, now: Nanos) -> News {
        if self.blind {
            return News::None;
        }
        let Some(list) = marks.over(now) else {
            self.go_blind();
            return News::Blind;
        };
        list.iter().for_each(|mark| self.insert(mark));
        self.squeeze();
        match (self.blind, list.is_empty()) {
            (true, _) => News::Blind,
            (false, true) => News::None,
            (false, false) => News::Marks(list),
        }
    }

    /// From now on nothing is remembered: who comes late with records is told that they are lost.
    pub(super) fn go_blind(&mut self) {
        (self.blind, self.unsure, self.marks) = (true, true, 0);
        self.objects = HashMap::new();
        self.since = self.here.clone();
    }

    /// Bytes are in the store. Where others were, the newer ones are.
    pub(super) fn insert(&mut self, mark: &Mark) {
        let stretches = self.objects.entry(mark.object).or_default();
        self.marks -= stretches.len();
        let (start, end) = (mark.bytes.start, mark.bytes.end);
        let met = overlapping(stretches, &mark.bytes);
        let mut parts: Vec<(Range<u64>, Written)> = Vec::with_capacity(2 * met.len() + 1);
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
            stretches.insert(bytes.start, Entry { end: bytes.end, written });
        }
        self.marks += stretches.len();
    }

    /// Makes room by remembering neighbours as one: first what was committed in this life, which late records hardly ever were.
    fn squeeze(&mut self) {
        if self.marks <= MARKS_MAX {
            return;
        }
        let born = self.born;
        self.join(|a, b| born <= a.oldest && born <= b.oldest);
        if MARKS_KEPT < self.marks {
            self.join(|_, _| true);
        }
        if MARKS_KEPT < self.marks {
            self.go_blind();
        }
    }

    fn join(&mut self, alike: impl Fn(&Written, &Written) -> bool) {
        self.marks = 0;
        for stretches in self.objects.values_mut() {
            let mut joined: Vec<(u64, Entry)> = Vec::new();
            for (start, entry) in std::mem::take(stretches) {
                match joined.last_mut() {
                    Some((_, last)) if last.end == start && alike(&last.written, &entry.written) => {
                        *last = Entry { end: entry.end, written: last.written.with(entry.written) };
                    }
                    Some(_) | None => joined.push((start, entry)),
                }
            }
            *stretches = joined.into_iter().collect();
            self.marks += stretches.len();
        }
    }

    /// Which bytes of a late record may be taken.
    pub(super) fn judge(
        &self,
        (session, committed): (SessionId, Nanos),
        object: ObjectId,
        bytes: Range<u64>,
    ) -> Verdict {
        if !self.knows(session, committed) {
            return Verdict::Unknown;
        }
        let (mut free, mut at) = (Vec::new(), bytes.start);
        for (from, entry) in self.met(object, &bytes) {
            if entry.written.newest <= committed {
                continue;
            }
            if entry.written.oldest <= committed {
                return Verdict::Unknown;
            }
            if at < from {
                free.push(at..from);
            }
            at = entry.end;
        }
        if at < bytes.end {
            free.push(at..bytes.end);
        }
        Verdict::Take(free)
    }

    /// Whether older bytes may have been put over those of a direct write since it was made.
    pub(super) fn may_have_covered(
        &self,
        (session, committed): (SessionId, Nanos),
        object: ObjectId,
        bytes: &Range<u64>,
    ) -> bool {
        let covers =
            |(_, entry): &(u64, Entry)| entry.written.oldest < committed && committed <= entry.written.put;
        let is_doubtful =
            committed < self.born && self.before.as_ref().is_some_and(|before| !before.contains(&session));
        is_doubtful || !self.knows(session, committed) || self.met(object, bytes).iter().any(covers)
    }

    fn knows(&self, session: SessionId, committed: Nanos) -> bool {
        !self.unsure || self.since.get(&session).is_some_and(|since| *since <= committed)
    }

    fn met(&self, object: ObjectId, bytes: &Range<u64>) -> Vec<(u64, Entry)> {
        self.objects.get(&object).map_or_else(Vec::new, |stretches| overlapping(stretches, bytes))
    }
}

/// The stretches that have a byte of a range, in order.
fn overlapping(stretches: &Stretches, bytes: &Range<u64>) -> Vec<(u64, Entry)> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let before = stretches.range(..bytes.start).next_back().filter(|(_, entry)| bytes.start < entry.end);
    let first = before.map_or(bytes.start, |(from, _)| *from);
    stretches.range(first..bytes.end).map(|(from, entry)| (*from, *entry)).collect()
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
