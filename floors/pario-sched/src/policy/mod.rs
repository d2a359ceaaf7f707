//! Policies: which virtual request is served next. The trait, the table of names, and what policies share.
//!
//! Never: a policy does I/O, reads a clock, knows about overlapping bytes (the controller holds those back before a policy
//! sees them), or looks at all requests to choose one. Always: what `pick` returned is out of the policy's index.
//!
//! To add one: write `policy/NAME.rs`, say `mod NAME;` here and put one line into [`TABLE`]. The conformance suite, the properties
//! and the benchmark run over the table.

mod deadline;
mod fifo;
mod flows;
mod mlf;
mod sjf;
mod tbf;
mod wfq;
mod wsjf;

use std::fmt;

use crate::error::SetupError;
use crate::index::Index;
use crate::options::Options;
use crate::request::{ApplicationId, FileId, Kind, RequestId};

type Make = fn(&Options) -> Box<dyn Policy>;

/// Every policy by name.
const TABLE: &[(&str, Make)] = &[
    ("fifo", |_| Box::new(fifo::Fifo::default())),
    ("mlf", |options| Box::new(mlf::Mlf::new(options))),
    ("wsjf", |options| Box::new(wsjf::Wsjf::new(options))),
    ("sjf", |_| Box::new(sjf::Sjf::default())),
    ("deadline", |options| Box::new(deadline::Deadline::new(options))),
    ("tbf", |options| Box::new(tbf::Tbf::new(options))),
    ("wfq", |_| Box::new(wfq::Wfq::default())),
];

/// The names of all policies.
#[must_use]
pub fn policy_names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).collect()
}

/// The policy of this name.
pub(crate) fn by_name(name: &str, options: &Options) -> Result<Box<dyn Policy>, SetupError> {
    match TABLE.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(make(options)),
        None => Err(SetupError::UnknownPolicy { name: name.to_owned(), known: policy_names() }),
    }
}

/// A virtual request; ids are small numbers and used again after it is served or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualId(pub(crate) u32);

impl VirtualId {
    /// For tables by id.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A virtual request: one request, or contiguous ones of one file and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Virtual {
    /// Its name.
    pub id: VirtualId,
    /// Of which file.
    pub file: FileId,
    /// Read or write.
    pub kind: Kind,
    /// Of its oldest request.
    pub application: ApplicationId,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Sum of its requests' lengths.
    pub bytes: u64,
    /// How many requests.
    pub parts: usize,
    /// Its oldest request.
    pub oldest: RequestId,
    /// Arrival of its oldest request.
    pub arrival_us: u64,
    /// Earliest deadline of its requests; none lies before its request's arrival.
    pub deadline_us: Option<u64>,
    /// Earliest arrival of its requests without deadline.
    pub undated_us: Option<u64>,
}

/// What a policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// This one now.
    Serve(VirtualId),
    /// Not yet.
    Wait {
        /// Ask again then.
        until_us: u64,
    },
    /// It holds nothing that could be served, now or by waiting.
    Nothing,
}

/// Which requests may form a virtual request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joins {
    /// None: each stays alone.
    Never,
    /// Those of one application.
    Application,
    /// All of one file.
    File,
}

/// A run that the host has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunDone {
    /// Of which file.
    pub file: FileId,
    /// Read or write.
    pub kind: Kind,
    /// One past its last byte.
    pub end: u64,
    /// How many bytes were asked for.
    pub bytes: u64,
    /// From `next` to the completion of its last part.
    pub service_us: u64,
    /// It began where the run that was told before it ended, in the same file.
    pub follows: bool,
    /// It met the end of the file.
    pub short: bool,
}

/// A scheduling policy. `now_us` never goes backwards.
pub trait Policy: fmt::Debug + Send {
    /// Which requests it wants to see as one.
    fn joins(&self) -> Joins {
        Joins::File
    }
    /// A new virtual request of one part.
    fn insert(&mut self, new: &Virtual, now_us: u64);
    /// One of its virtual requests has gained or lost a part.
    fn update(&mut self, changed: &Virtual, now_us: u64);
    /// One of its virtual requests has taken in another one.
    fn merge(&mut self, into: &Virtual, gone: &Virtual, now_us: u64) {
        self.remove(gone);
        self.update(into, now_us);
    }
    /// One of its virtual requests is gone without being picked.
    fn remove(&mut self, gone: &Virtual);
    /// What to serve now; takes it out.
    fn pick(&mut self, now_us: u64) -> Choice;
    /// A run has finished.
    fn finished(&mut self, _run: &RunDone, _now_us: u64) {}
    /// An application has another weight from now on.
    fn set_weight(&mut self, _application: ApplicationId, _weight: u32) {}
    /// Nobody uses this file; what was kept about it can go.
    fn forget_file(&mut self, _file: FileId) {}
    /// The application is gone and has no requests.
    fn forget_application(&mut self, _application: ApplicationId) {}
    /// Nodes of indexes looked at since the last call, for tests of cost.
    fn take_visited(&mut self) -> u64;
    /// What deliberate waiting has cost and won so far.
    fn waiting(&self) -> WaitingFigures {
        WaitingFigures::default()
    }
}

/// What deliberate waiting has cost and won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitingFigures {
    /// How often it was waited while others could have been served.
    pub waits: u64,
    /// How often the awaited request came in time.
    pub hits: u64,
    /// Time waited for requests that came in time.
    pub waited_hit_us: u64,
    /// Time waited for nothing.
    pub waited_miss_us: u64,
    /// What hits have won: for each, the cost of a switch less the wait, never below zero.
    pub won_us: u64,
}

/// Virtual requests ordered by a key that the policy computes.
#[derive(Debug)]
struct Ranked<K> {
    order: Index<(K, VirtualId), ()>,
    keys: Vec<Option<K>>,
}

impl<K> Default for Ranked<K> {
    fn default() -> Self {
        Self { order: Index::default(), keys: Vec::new() }
    }
}

impl<K: Ord + Copy> Ranked<K> {
    /// Puts it at this key, from wherever it was.
    fn put(&mut self, id: VirtualId, key: K) {
        if self.keys.len() <= id.index() {
            self.keys.resize(id.index() + 1, None);
        }
        let before = self.keys[id.index()].replace(key);
        if before != Some(key) {
            if let Some(before) = before {
                self.order.remove(&(before, id));
            }
            self.order.insert((key, id), ());
        }
    }

    fn take(&mut self, id: VirtualId) -> Option<K> {
        let key = self.keys.get_mut(id.index())?.take()?;
        self.order.remove(&(key, id));
        Some(key)
    }

    fn first(&self) -> Option<(K, VirtualId)> {
        self.order.first()
    }

    fn pop_first(&mut self) -> Option<VirtualId> {
        let (_, id) = self.first()?;
        self.take(id);
        Some(id)
    }
}

fn serve(picked: Option<VirtualId>) -> Choice {
    picked.map_or(Choice::Nothing, Choice::Serve)
}
