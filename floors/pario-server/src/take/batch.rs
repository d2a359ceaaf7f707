//! One round's pieces: put in order, joined, written.
//!
//! Never: joins pieces that overlap. Always: overlapping pieces are written in the order in which they were committed.

use std::collections::HashMap;

use pario_core::{Code, Fault, LocalOffset, Nanos, ObjectId, ServerIndex};
use pario_store::Store;
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::Piece;

use super::{ByValue, store_fault};
use crate::stats::ServerStats;

/// Where a piece came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// The n-th write by message of this round.
    Message(usize),
    /// An outbox, by its place in the list.
    Outbox(usize),
}

/// When a piece was committed, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) committed: Nanos,
    pub(super) source: Source,
    /// Where the record stands in its outbox.
    pub(super) position: u64,
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    object: ObjectId,
    start: u64,
    committed: Nanos,
    order: usize,
    source: Source,
    position: u64,
    piece: Piece<'a>,
}

impl Entry<'_> {
    fn end(&self) -> u64 {
        self.start + self.piece.len() as u64
    }

    fn is_held(&self, ground: &Ground<'_>) -> bool {
        match (self.source, ground.outboxes) {
            (Source::Outbox(place), Some(outboxes)) => outboxes.still_holds(place, self.position),
            (Source::Message(_), _) | (Source::Outbox(_), None) => true,
        }
    }
}

/// What a round is written to, and how its pieces are looked after.
pub(super) struct Ground<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) stats: &'a ServerStats,
    pub(super) outboxes: Option<&'a super::outboxes::Outboxes>,
}

/// Pieces of one round.
pub(super) struct Batch<'a> {
    index: ServerIndex,
    entries: Vec<Entry<'a>>,
    messages: usize,
}

/// What failed, by source. For outboxes with the object, since errors are kept per file.
#[derive(Default)]
pub(super) struct Errors {
    messages: HashMap<usize, Fault>,
    pub(super) outboxes: Vec<(usize, ObjectId, Fault)>,
}

impl Errors {
    pub(super) fn of_message(&self, number: usize) -> Option<&Fault> {
        self.messages.get(&number)
    }
}

impl<'a> Batch<'a> {
    pub(super) fn new(index: ServerIndex) -> Self {
        Batch { index, entries: Vec::new(), messages: 0 }
    }

    pub(super) fn index(&self) -> ServerIndex {
        self.index
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn add_message(&mut self, write: &'a ByValue, arrived: Nanos) {
        let stamp = Stamp { committed: arrived, source: Source::Message(self.messages), position: 0 };
        self.messages += 1;
        self.add(write.object, write.at, stamp, Piece::from(write.data.as_slice()));
    }

    pub(super) fn add(&mut self, object: ObjectId, at: LocalOffset, stamp: Stamp, piece: Piece<'a>) {
        let order = self.entries.len();
        let Stamp { committed, source, position } = stamp;
        self.entries.push(Entry { object, start: at.0, committed, order, source, position, piece });
    }

    /// Writes everything; what fails is told, the rest goes on.
    pub(super) fn apply(&mut self, ground: &Ground<'_>) -> Errors {
        let mut errors = Errors::default();
        self.entries.sort_by_key(|entry| (entry.object, entry.start, entry.committed, entry.order));
        let (index, mut rest) = (self.index, self.entries.as_mut_slice());
        while let Some(first) = rest.first() {
            let object = first.object;
            let count = rest.iter().take_while(|entry| entry.object == object).count();
            let (group, others) = rest.split_at_mut(count);
            if overlaps(group) {
                group.sort_by_key(|entry| (entry.committed, entry.order));
            }
            for run in group.chunk_by(|a, b| a.end() == b.start) {
                write_run(index, ground, run, &mut errors);
            }
            rest = others;
        }
        errors
    }
}

/// Whether pieces in order of their start touch the same byte.
fn overlaps(group: &[Entry<'_>]) -> bool {
    let mut end = 0;
    group.iter().any(|entry| {
        let overlap = entry.start < end;
        end = end.max(entry.end());
        overlap
    })
}

fn write_run(index: ServerIndex, ground: &Ground<'_>, run: &[Entry<'_>], errors: &mut Errors) {
    let Some(first) = run.first() else { return };
    let pieces: Vec<Piece<'_>> = run.iter().map(|entry| entry.piece).collect();
    let bytes: usize = pieces.iter().map(Piece::len).sum();
    reach(Point::DrainUnwritten);
    // As close to the system call as can be: a server that was stopped meanwhile must not write what is no longer there.
    if !run.iter().all(|entry| entry.is_held(ground)) {
        let text =
            format!("server {index} was stopped for so long that records were given up before it took them");
        return note(run, &Fault::new(Code::Lost, text), errors);
    }
    reach(Point::DrainChecked);
    match ground.store.write(first.object, LocalOffset(first.start), &pieces) {
        Ok(()) => ground.stats.staged(run.len() as u64, bytes as u64),
        Err(error) => note(run, &store_fault(index, &error), errors),
    }
    reach(Point::DrainWritten);
}

/// Notes what a whole run met.
fn note(run: &[Entry<'_>], fault: &Fault, errors: &mut Errors) {
    for entry in run {
        match entry.source {
            Source::Message(number) => {
                errors.messages.entry(number).or_insert_with(|| fault.clone());
            }
            Source::Outbox(place) => {
                if !errors.outboxes.iter().any(|(p, o, _)| (*p, *o) == (place, entry.object)) {
                    errors.outboxes.push((place, entry.object, fault.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId};
    use pario_store::memory::MemoryStore;

    use super::*;

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), generation: Generation(0) }
    }

    fn stamp(committed: u64, outbox: usize) -> Stamp {
        Stamp { committed: Nanos(committed), source: Source::Outbox(outbox), position: 0 }
    }

    fn contents(store: &dyn Store, inode: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let count = store.read(object(inode), LocalOffset(0), &mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn later_commits_win_where_pieces_overlap() {
        let (store, stats) = (MemoryStore::new(1 << 20), ServerStats::default());
        let mut batch = Batch::new(ServerIndex(0));
        batch.add(object(1), LocalOffset(0), stamp(20, 0), Piece::from(&b"bbbb"[..]));
        batch.add(object(1), LocalOffset(2), stamp(10, 1), Piece::from(&b"aaaa"[..]));
        batch.add(object(2), LocalOffset(0), stamp(5, 1), Piece::from(&b"x"[..]));
        let errors = batch.apply(&Ground { store: &store, stats: &stats, outboxes: None });
        assert!(errors.outboxes.is_empty());
        assert_eq!(contents(&store, 1), b"bbbbaa");
        assert_eq!(contents(&store, 2), b"x");
    }

    #[test]
    fn neighbours_become_one_write() {
        let (store, stats) = (MemoryStore::new(1 << 20), ServerStats::default());
        let mut batch = Batch::new(ServerIndex(0));
        for (at, source) in [(4u64, 0), (0, 1), (8, 0)] {
            batch.add(object(1), LocalOffset(at), stamp(at, source), Piece::from(&b"abcd"[..]));
        }
        batch.apply(&Ground { store: &store, stats: &stats, outboxes: None });
        assert_eq!(contents(&store, 1), b"abcdabcdabcd");
        assert_eq!(stats.snapshot().staged_writes, 1);
        assert_eq!(stats.snapshot().staged_pieces, 3);
    }
}
