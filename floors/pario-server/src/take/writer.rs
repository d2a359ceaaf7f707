//! Puts the pieces of a round together and writes them to the store.
//!
//! Small pieces are copied together first, and go to the store in one call even where there are holes between them; larger ones go to
//! the store from where they lie. What lies together is written by calls that end at multiples of a power of two in
//! the object: the kernel keeps what one call brings in as few and large pages as its place allows, and both writing and mapping them costs
//! by the page.
//!
//! Never: writes from memory that its client has in use again. Always: what fails is kept for whoever wrote it, and the rest goes on.

use std::collections::HashMap;
use std::sync::Arc;

use pario_core::{Code, Fault, LocalOffset, ObjectId, ServerIndex};
use pario_store::Store;
use pario_sys::kill_point::{Point, reach};

use super::ahead::{Ahead, Marks};
use super::batch::{Slice, Source, Stamp};
use super::cut::{Cut, sub_cut};
use super::run::Run;
use super::store_fault;
use crate::desk::{Desk, Turn, Wish};
use crate::stats::ServerStats;

/// What a round is written to, and how its pieces are looked after.
pub(super) struct Ground<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) desk: Option<&'a Arc<Desk>>,
    pub(super) stats: &'a ServerStats,
    pub(super) outboxes: Option<&'a super::outboxes::Outboxes>,
    /// Who wants to know what is put down.
    pub(super) ahead: Option<&'a Ahead>,
}

/// What failed, by source. For outboxes with the object, since errors are kept per file.
#[derive(Default)]
pub(super) struct Errors {
    /// Not an error: pieces overlapped.
    pub(super) overlap: bool,
    messages: HashMap<usize, Fault>,
    pub(super) outboxes: Vec<(usize, ObjectId, Fault)>,
    /// Not an error either: what was put down, where somebody wants to know.
    pub(super) marks: Option<Marks>,
}

impl Errors {
    pub(super) fn of_message(&self, number: usize) -> Option<&Fault> {
        self.messages.get(&number)
    }

    /// Notes what a slice met.
    fn note(&mut self, slice: &Slice<'_>, fault: &Fault) {
        match slice.stamp.source {
            Source::Message(number) => {
                self.messages.entry(number).or_insert_with(|| fault.clone());
            }
            Source::Outbox(place) => self.keep((place, slice.object), fault),
        }
    }

    /// Keeps the first fault of an outbox's file.
    pub(super) fn keep(&mut self, of: (usize, ObjectId), fault: &Fault) {
        if !self.outboxes.iter().any(|(place, object, _)| (*place, *object) == of) {
            self.outboxes.push((of.0, of.1, fault.clone()));
        }
    }
}

/// Puts pieces together and writes them.
pub(super) struct Writer<'a, 'g> {
    index: ServerIndex,
    ground: &'g Ground<'g>,
    pub(super) errors: Errors,
    pub(super) run: Run<'a>,
    /// The number of the run, and in which one each slice of the group was last.
    runs: u64,
    last_in: Vec<u64>,
}

impl<'a, 'g> Writer<'a, 'g> {
    pub(super) fn new(index: ServerIndex, ground: &'g Ground<'g>) -> Self {
        let errors = Errors { marks: ground.ahead.and_then(Ahead::wanted), ..Errors::default() };
        Writer { index, ground, errors, run: Run::default(), runs: 1, last_in: Vec::new() }
    }

    /// What follows are so many slices of one object, in runs that end at multiples of `stride`.
    pub(super) fn begin(&mut self, slices: usize, stride: u64) {
        self.run.clear();
        self.run.stride = stride;
        if let Some(marks) = &mut self.errors.marks {
            marks.failed();
        }
        self.last_in.clear();
        self.last_in.resize(slices, 0);
    }

    /// A piece of a slice comes next.
    #[inline]
    pub(super) fn push(&mut self, group: &[Slice<'a>], number: usize, cut: &Cut) {
        let mut cut = *cut;
        if let Some(at) = self.run.ends_inside(cut.local, cut.bytes) {
            self.push_part(group, number, &sub_cut(&cut, &(cut.local..at)));
            cut = sub_cut(&cut, &(at..cut.end()));
        }
        self.push_part(group, number, &cut);
    }

    #[inline]
    fn push_part(&mut self, group: &[Slice<'a>], number: usize, cut: &Cut) {
        let Some(data) = group[number].data else { return };
        if !self.run.takes(cut.local, cut.bytes as usize) {
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

    /// Writes what has come together.
    pub(super) fn flush(&mut self, group: &[Slice<'a>]) {
        if self.run.is_empty() {
            return;
        }
        let slices = self.run.slices.iter().map(|number| &group[*number]);
        let _turn = self.turn(group);
        reach(Point::DrainUnwritten);
        // As close to the system call as can be: a server that was stopped meanwhile must not write what is no longer there.
        let held = slices.clone().all(|slice| is_held(&slice.stamp, self.ground));
        if held {
            reach(Point::DrainChecked);
        }
        let written = if held { self.write(group) } else { Err(stopped_too_long(self.index)) };
        reach(Point::DrainWritten);
        if let Some(marks) = &mut self.errors.marks {
            if written.is_ok() { marks.put() } else { marks.failed() }
        }
        match written {
            Ok(()) => self.ground.stats.staged(self.run.pieces, self.run.bytes),
            Err(fault) => slices.for_each(|slice| self.errors.note(slice, &fault)),
        }
        self.run.clear();
        self.runs += 1;
    }

    /// Waits for the turn of the first writer. What came as a message has had its turn.
    fn turn(&self, group: &[Slice<'a>]) -> Option<Turn> {
        let slice = &group[*self.run.slices.first()?];
        let (Source::Outbox(place), Some(outboxes)) = (slice.stamp.source, self.ground.outboxes) else {
            return None;
        };
        let wish = Wish {
            session: outboxes.session(place)?,
            object: slice.object,
            bytes: self.run.start..self.run.end,
        };
        self.ground.desk.map(|desk| desk.turn(&wish))
    }

    fn write(&self, group: &[Slice<'a>]) -> Result<(), Fault> {
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

fn is_held(stamp: &Stamp, ground: &Ground<'_>) -> bool {
    match (stamp.source, ground.outboxes) {
        (Source::Outbox(place), Some(outboxes)) => outboxes.still_holds(place, stamp.position),
        (Source::Message(_), _) | (Source::Outbox(_), None) => true,
    }
}

fn stopped_too_long(index: ServerIndex) -> Fault {
    let text =
        format!("server {index} was stopped for so long that records were given up before it took them");
    Fault::new(Code::Lost, text)
}
