//! `deadline`: sweeps files by offset, and turns to a request whose deadline has passed.
//!
//! A request without a deadline of its own gets one from the options, by kind; one that lies before its arrival counts as
//! its arrival.
//!
//! Promises: after its deadline has passed, a request is passed at most by the virtual requests that were waiting at that time.

use super::{Choice, Policy, Ranked, Virtual, VirtualId};
use crate::options::Options;
use crate::request::{FileId, Kind};

type Place = (FileId, u64);

/// By offset, unless somebody is late.
#[derive(Debug)]
pub(crate) struct Deadline {
    read_us: u64,
    write_us: u64,
    /// Where the sweep is.
    at: Place,
    places: Ranked<Place>,
    deadlines: Ranked<(u64, u64)>,
}

impl Deadline {
    pub(crate) fn new(options: &Options) -> Self {
        let at = (FileId(0), 0);
        let (places, deadlines) = (Ranked::default(), Ranked::default());
        Self { read_us: options.deadline_read_us, write_us: options.deadline_write_us, at, places, deadlines }
    }
}

impl Policy for Deadline {
    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        let patience_us = match new.kind {
            Kind::Read => self.read_us,
            Kind::Write => self.write_us,
        };
        let usual = new.undated_us.map(|arrival_us| arrival_us.saturating_add(patience_us));
        let deadline_us = new.deadline_us.into_iter().chain(usual).min().unwrap_or(u64::MAX);
        self.deadlines.put(new.id, (deadline_us, new.oldest.sequence));
        self.places.put(new.id, (new.file, new.start));
    }

    fn update(&mut self, changed: &Virtual, now_us: u64) {
        self.insert(changed, now_us);
    }

    fn remove(&mut self, gone: &Virtual) {
        self.places.take(gone.id);
        self.deadlines.take(gone.id);
    }

    fn pick(&mut self, now_us: u64) -> Choice {
        let late =
            self.deadlines.first().filter(|((deadline_us, _), _)| *deadline_us <= now_us).map(|(_, id)| id);
        let sweep =
            || self.places.order.first_from(&(self.at, VirtualId(0))).or_else(|| self.places.order.first());
        let Some(id) = late.or_else(|| sweep().map(|(_, id)| id)) else { return Choice::Nothing };
        self.deadlines.take(id);
        if let Some(place) = self.places.take(id) {
            self.at = place;
        }
        Choice::Serve(id)
    }

    fn take_visited(&mut self) -> u64 {
        self.places.order.take_visited() + self.deadlines.order.take_visited()
    }
}
