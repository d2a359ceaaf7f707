//! The controller: holds every request from `post` to `complete`, and asks the policy which is next.
//!
//! Never: loses a request, tells one twice, or lets a request overtake an earlier one to the same bytes when one of them writes.
//! Always: an unfinished request is held (see `order`), waiting in a virtual request, ready (its virtual request was picked), or
//! running; the policy knows exactly those that wait.

mod complete;
mod post;
mod serve;
mod watch;

use std::collections::{BTreeSet, VecDeque};

use crate::aggregate::{Bundles, Queue};
use crate::error::SetupError;
use crate::options::{Aggregation, Options};
use crate::order::Order;
use crate::policy::{Joins, Policy, VirtualId, by_name};
use crate::request::{ApplicationId, FileId, HostId, Kind, Request, RequestId, Vectored};
use crate::statistics::Totals;
use crate::table::{Place, Table};
use crate::trace::Trace;

pub use complete::Completion;
pub use watch::Overdue;

/// Where a request is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Waiting(VirtualId),
    Ready,
    Running { since_us: u64, run: usize },
}

#[derive(Debug)]
struct Entry {
    id: RequestId,
    request: Request,
    state: State,
    file: Place,
    application: Place,
    /// Requests that are held back by this one.
    holds: Vec<RequestId>,
}

impl Entry {
    /// Where its counts are.
    fn places(&self) -> (Place, Place) {
        (self.file, self.application)
    }
}

#[derive(Debug, Default)]
struct File {
    order: Order,
    reads: Queue,
    writes: Queue,
    totals: Totals,
}

impl File {
    fn queue(&mut self, kind: Kind) -> &mut Queue {
        match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        }
    }
}

#[derive(Debug)]
struct Application {
    weight: u32,
    unfinished: usize,
    /// Since when it has unfinished requests, if it has.
    busy_since_us: u64,
    busy_us: u64,
    /// It is gone; forgotten when its last request ends.
    gone: bool,
    totals: Totals,
}

impl Default for Application {
    fn default() -> Self {
        Self {
            weight: 1,
            unfinished: 0,
            busy_since_us: 0,
            busy_us: 0,
            gone: false,
            totals: Totals::default(),
        }
    }
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    left: usize,
    file: FileId,
    kind: Kind,
    end: u64,
    bytes: u64,
    since_us: u64,
    follows: bool,
    short: bool,
}

/// Decides what runs when; see the crate's head.
#[derive(Debug)]
pub struct Controller {
    options: Options,
    policy: Box<dyn Policy>,
    bundles: Bundles,
    hosts: Vec<Vectored>,
    /// The latest time seen.
    now_us: u64,
    entries: Vec<Option<Entry>>,
    entries_free: Vec<u32>,
    sequence: u64,
    files: Table<FileId, File>,
    applications: Table<ApplicationId, Application>,
    ready: VecDeque<RequestId>,
    runs: Vec<Option<Running>>,
    runs_free: Vec<usize>,
    runs_told: u64,
    running: BTreeSet<(u64, RequestId)>,
    /// Where the last run ended.
    told_last: Option<(FileId, Kind, u64)>,
    total: Totals,
    forgotten_files: Totals,
    forgotten_applications: Totals,
    trace: Trace,
    visited: u64,
}

impl Controller {
    /// A controller with a policy by name and one host, [`HostId::FIRST`], that has no vectored operations.
    ///
    /// # Errors
    /// An unknown policy (with the list of those there are), an option that cannot work.
    pub fn new(policy: &str, options: Options) -> Result<Self, SetupError> {
        options.check()?;
        let policy = by_name(policy, &options)?;
        Self::with_policy(policy, options)
    }

    /// A controller with a policy of your own.
    ///
    /// # Errors
    /// An option that cannot work.
    pub fn with_policy(policy: Box<dyn Policy>, options: Options) -> Result<Self, SetupError> {
        options.check()?;
        let joins = match (options.aggregation, policy.joins()) {
            (Aggregation::Off, _) => Joins::Never,
            (Aggregation::On, Joins::Never) => Joins::File,
            (Aggregation::On | Aggregation::ByPolicy, joins) => joins,
        };
        Ok(Self {
            bundles: Bundles::new(&options, joins),
            hosts: vec![Vectored::Never],
            now_us: 0,
            entries: Vec::new(),
            entries_free: Vec::new(),
            sequence: 0,
            files: Table::new(options.files_max),
            applications: Table::new(options.applications_max),
            ready: VecDeque::new(),
            runs: Vec::new(),
            runs_free: Vec::new(),
            runs_told: 0,
            running: BTreeSet::new(),
            told_last: None,
            total: Totals::default(),
            forgotten_files: Totals::default(),
            forgotten_applications: Totals::default(),
            trace: Trace::new(options.trace_records_max),
            visited: 0,
            policy,
            options,
        })
    }

    /// One more host that shares this controller; its runs carry its id.
    pub fn add_host(&mut self, vectored: Vectored) -> HostId {
        self.hosts.push(vectored);
        HostId(u32::try_from(self.hosts.len() - 1).unwrap_or(u32::MAX))
    }

    /// Says which vectored operations a host has.
    pub fn set_vectored(&mut self, host: HostId, vectored: Vectored) {
        if let Some(slot) = self.hosts.get_mut(host.0 as usize) {
            *slot = vectored;
        }
    }

    /// Unfinished requests: held, waiting, ready and running.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.entries.len() - self.entries_free.len()
    }

    /// Moves the clock; it never goes back.
    fn tick(&mut self, now_us: u64) -> u64 {
        self.now_us = self.now_us.max(now_us);
        self.now_us
    }

    fn entry(&self, id: RequestId) -> Option<&Entry> {
        self.entries.get(id.slot as usize)?.as_ref().filter(|entry| entry.id == id)
    }

    fn entry_mut(&mut self, id: RequestId) -> Option<&mut Entry> {
        self.entries.get_mut(id.slot as usize)?.as_mut().filter(|entry| entry.id == id)
    }

    /// Counts for a request's file, its application and all.
    fn count(&mut self, (file, application): (Place, Place), change: impl Fn(&mut Totals)) {
        change(&mut self.total);
        change(&mut self.files[file].totals);
        change(&mut self.applications[application].totals);
    }
}
