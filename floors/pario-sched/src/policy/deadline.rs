//! `deadline`: sweeps files by offset, and serves first the requests with expired deadlines.
//!
//! A request without a deadline gets one from the options, by kind; a deadline before its arrival counts as its arrival.
//!
//! Promises: after its deadline, a request is passed at most by the virtual requests that were waiting at that time.

use super::{Policy, PolicyChoice, Virtual, VirtualId};
use crate::index::Index;
use crate::options::Options;
use crate::request::{FileId, IoKind};

/// Position in the sweep: file and first byte.
type SweepPosition = (FileId, u64);
/// Deadline; equal ones by arrival.
type DeadlineKey = (u64, u64);

/// By offset, unless a deadline has expired.
#[derive(Debug)]
pub(crate) struct DeadlinePolicy {
    read_us: u64,
    write_us: u64,
    /// Position of the sweep.
    at: SweepPosition,
    places: Index<(SweepPosition, VirtualId), ()>,
    deadlines: Index<(DeadlineKey, VirtualId), ()>,
    /// Both keys of each waiting request.
    keys: Vec<Option<(SweepPosition, DeadlineKey)>>,
}

impl DeadlinePolicy {
    pub(crate) fn new(options: &Options) -> Self {
        let (read_us, write_us, at) = (options.deadline_read_us, options.deadline_write_us, (FileId(0), 0));
        Self {
            read_us,
            write_us,
            at,
            places: Index::default(),
            deadlines: Index::default(),
            keys: Vec::new(),
        }
    }

    fn take(&mut self, id: VirtualId) -> Option<SweepPosition> {
        let (place, due) = self.keys.get_mut(id.index())?.take()?;
        self.places.remove(&(place, id));
        self.deadlines.remove(&(due, id));
        Some(place)
    }
}

impl Policy for DeadlinePolicy {
    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        let patience_us = match new.kind {
            IoKind::Read => self.read_us,
            IoKind::Write => self.write_us,
        };
        let usual = new.undated_us.map(|arrival_us| arrival_us.saturating_add(patience_us));
        let deadline_us = new.deadline_us.into_iter().chain(usual).min().unwrap_or(u64::MAX);
        let (place, due) = ((new.file, new.start), (deadline_us, new.oldest.sequence));
        if self.keys.len() <= new.id.index() {
            self.keys.resize(new.id.index() + 1, None);
        }
        self.keys[new.id.index()] = Some((place, due));
        self.places.insert((place, new.id), ());
        self.deadlines.insert((due, new.id), ());
    }

    fn update(&mut self, changed: &Virtual, now_us: u64) {
        self.take(changed.id);
        self.insert(changed, now_us);
    }

    fn remove(&mut self, gone: &Virtual) {
        self.take(gone.id);
    }

    fn pick(&mut self, now_us: u64) -> PolicyChoice {
        let late =
            self.deadlines.first().filter(|((deadline_us, _), _)| *deadline_us <= now_us).map(|(_, id)| id);
        let sweep = || self.places.first_from(&(self.at, VirtualId(0))).or_else(|| self.places.first());
        let Some(id) = late.or_else(|| sweep().map(|(_, id)| id)) else { return PolicyChoice::Nothing };
        self.at = self.take(id).unwrap_or(self.at);
        PolicyChoice::Serve(id)
    }

    fn take_visited(&mut self) -> u64 {
        self.places.take_visited() + self.deadlines.take_visited()
    }
}
