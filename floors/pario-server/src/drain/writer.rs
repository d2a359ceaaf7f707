//! Joins the pieces of a round and writes them to the store.
//!
//! Small pieces are copied together first, and are written in one call even with holes between them; larger ones are written from the
//! outbox or message. Contiguous bytes are written by calls that end at multiples of a power of two in the object: the page cache stores
//! one call in as few and large pages as its offset allows, and both writing and mapping cost time per page.
//!
//! Never: writes from memory that its client has reused. Always: a failure is kept for its writer, and the other pieces are still written.

use std::collections::HashMap;
use std::sync::Arc;

use pario_core::{Code, Fault, LocalOffset, ObjectId, ServerIndex};
use pario_store::Store;
use pario_sys::kill_point::{Point, reach};

use super::batch::{CommitStamp, RecordSlice, SliceSource};
use super::cut::{Cut, sub_cut};
use super::overwrites::{Overwrites, WrittenRanges};
use super::run::WriteRun;
use super::store_fault;
use crate::io_queue::{IoQueue, IoRequest, StoreTurn};
use crate::stats::ServerStats;

/// Target and context of a round's writes.
pub(super) struct RoundContext<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) io_queue: Option<&'a Arc<IoQueue>>,
    pub(super) stats: &'a ServerStats,
    pub(super) outboxes: Option<&'a super::outboxes::Outboxes>,
    /// Set if written ranges are recorded.
    pub(super) overwrites: Option<&'a Overwrites>,
}

/// Faults by source; for outboxes also by object, since errors are kept per file.
#[derive(Default)]
pub(super) struct Errors {
    /// Not an error: pieces overlapped.
    pub(super) overlap: bool,
    messages: HashMap<usize, Fault>,
    pub(super) outboxes: Vec<(usize, ObjectId, Fault)>,
    /// Not an error either: the ranges written, if recorded.
    pub(super) marks: Option<WrittenRanges>,
}

impl Errors {
    pub(super) fn of_message(&self, number: usize) -> Option<&Fault> {
        self.messages.get(&number)
    }

    /// Notes a fault of a slice.
    fn note(&mut self, slice: &RecordSlice<'_>, fault: &Fault) {
        match slice.stamp.source {
            SliceSource::Message(number) => {
                self.messages.entry(number).or_insert_with(|| fault.clone());
            }
            SliceSource::Outbox(place) => self.keep((place, slice.object), fault),
        }
    }

    /// Keeps the first fault of an outbox's file.
    pub(super) fn keep(&mut self, of: (usize, ObjectId), fault: &Fault) {
        if !self.outboxes.iter().any(|(place, object, _)| (*place, *object) == of) {
            self.outboxes.push((of.0, of.1, fault.clone()));
        }
    }
}

/// Joins pieces and writes them.
pub(super) struct RunWriter<'a, 'g> {
    index: ServerIndex,
    ground: &'g RoundContext<'g>,
    pub(super) errors: Errors,
    pub(super) run: WriteRun<'a>,
    /// The number of the run, and the last run of each slice of the group.
    runs: u64,
    last_in: Vec<u64>,
}

impl<'a, 'g> RunWriter<'a, 'g> {
    pub(super) fn new(index: ServerIndex, ground: &'g RoundContext<'g>) -> Self {
        let errors =
            Errors { marks: ground.overwrites.and_then(Overwrites::new_ranges), ..Errors::default() };
        RunWriter { index, ground, errors, run: WriteRun::default(), runs: 1, last_in: Vec::new() }
    }

    /// Begins `slices` slices of one object, in runs that end at multiples of `stride`.
    pub(super) fn begin(&mut self, slices: usize, stride: u64) {
        self.run.clear();
        self.run.stride = stride;
        if let Some(marks) = &mut self.errors.marks {
            marks.failed();
        }
        self.last_in.clear();
        self.last_in.resize(slices, 0);
    }

    /// Adds the next piece of a slice.
    #[inline]
    pub(super) fn push(&mut self, group: &[RecordSlice<'a>], number: usize, cut: &Cut) {
        let mut cut = *cut;
        if let Some(at) = self.run.ends_inside(cut.local, cut.bytes) {
            self.push_part(group, number, &sub_cut(&cut, &(cut.local..at)));
            cut = sub_cut(&cut, &(at..cut.end()));
        }
        self.push_part(group, number, &cut);
    }

    #[inline]
    fn push_part(&mut self, group: &[RecordSlice<'a>], number: usize, cut: &Cut) {
        let Some(data) = group[number].data else { return };
        if !self.run.accepts(cut.local, cut.bytes as usize) {
            self.flush(group);
        }
        self.run.push(cut.local, data.part(cut.data_at as usize, cut.bytes as usize));
        if let Some(marks) = &mut self.errors.marks {
            let slice = &group[number];
            marks.add(slice.object, cut.local..cut.end(), slice.stamp.committed);
        }
        if self.last_in[number] != self.runs {
            self.last_in[number] = self.runs;
            self.run.slices.push(number);
        }
    }

    /// Writes the current run.
    pub(super) fn flush(&mut self, group: &[RecordSlice<'a>]) {
        if self.run.is_empty() {
            return;
        }
        let slices = self.run.slices.iter().map(|number| &group[*number]);
        let _turn = self.turn(group);
        reach(Point::DrainUnwritten);
        // As close to the system call as possible: a server that was stopped meanwhile must not write from reused memory.
        let held = slices.clone().all(|slice| is_held(&slice.stamp, self.ground));
        if held {
            reach(Point::DrainChecked);
        }
        let written = if held { self.write(group) } else { Err(stopped_too_long(self.index)) };
        reach(Point::DrainWritten);
        if let Some(marks) = &mut self.errors.marks {
            if written.is_ok() { marks.stored() } else { marks.failed() }
        }
        match written {
            Ok(()) => self.ground.stats.staged(self.run.pieces, self.run.bytes),
            Err(fault) => slices.for_each(|slice| self.errors.note(slice, &fault)),
        }
        self.run.clear();
        self.runs += 1;
    }

    /// Waits for the I/O queue turn of the first writer. A message has had its turn.
    fn turn(&self, group: &[RecordSlice<'a>]) -> Option<StoreTurn> {
        let slice = &group[*self.run.slices.first()?];
        let (SliceSource::Outbox(place), Some(outboxes)) = (slice.stamp.source, self.ground.outboxes) else {
            return None;
        };
        let wish = IoRequest {
            session: outboxes.session(place)?,
            object: slice.object,
            bytes: self.run.start..self.run.end,
        };
        self.ground.io_queue.map(|desk| desk.turn(&wish))
    }

    fn write(&self, group: &[RecordSlice<'a>]) -> Result<(), Fault> {
        let object = group[self.run.slices[0]].object;
        let (store, run) = (self.ground.store, &self.run);
        let written = if run.holes.is_empty() {
            store.write(object, LocalOffset(run.start), &run.buffers())
        } else {
            store.write_scattered(object, &run.scattered())
        };
        written.map_err(|error| store_fault(self.index, &error))
    }
}

fn is_held(stamp: &CommitStamp, ground: &RoundContext<'_>) -> bool {
    match (stamp.source, ground.outboxes) {
        (SliceSource::Outbox(place), Some(outboxes)) => outboxes.still_holds(place, stamp.position),
        (SliceSource::Message(_), _) | (SliceSource::Outbox(_), None) => true,
    }
}

fn stopped_too_long(index: ServerIndex) -> Fault {
    let text = format!(
        "server {index} was stopped for so long that its client gave up records before they were drained"
    );
    Fault::new(Code::Lost, text)
}
