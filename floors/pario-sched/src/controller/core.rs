//! The controller itself: its tables, its hosts and its clock.
//!
//! Never: lets its clock go back.

use std::collections::{BTreeSet, VecDeque};

use super::state::{ApplicationEntry, CounterSlots, FileQueues, RequestEntry, RunningIo};
use crate::aggregate::Bundles;
use crate::error::SetupError;
use crate::options::{Aggregation, Options};
use crate::policy::{Joins, Policy, by_name};
use crate::request::{ApplicationId, FileId, HostId, IoKind, RequestId, Vectored};
use crate::statistics::Totals;
use crate::table::IdleTable;
use crate::trace::Trace;

/// Decides which request runs when; see the crate's head.
#[derive(Debug)]
pub struct Controller {
    pub(super) options: Options,
    pub(super) policy: Box<dyn Policy>,
    pub(super) bundles: Bundles,
    pub(super) hosts: Vec<Vectored>,
    /// The latest time seen.
    pub(super) now_us: u64,
    pub(super) entries: Vec<Option<RequestEntry>>,
    pub(super) entries_free: Vec<u32>,
    pub(super) sequence: u64,
    pub(super) files: IdleTable<FileId, FileQueues>,
    pub(super) applications: IdleTable<ApplicationId, ApplicationEntry>,
    pub(super) ready: VecDeque<RequestId>,
    pub(super) runs: Vec<Option<RunningIo>>,
    pub(super) runs_free: Vec<usize>,
    pub(super) runs_told: u64,
    pub(super) running: BTreeSet<(u64, RequestId)>,
    /// End of the last issued run.
    pub(super) last_issued: Option<(FileId, IoKind, u64)>,
    pub(super) total: Totals,
    pub(super) forgotten_files: Totals,
    pub(super) forgotten_applications: Totals,
    pub(super) trace: Trace,
    pub(super) visited: u64,
}

impl Controller {
    /// A controller with a policy by name and one host, [`HostId::FIRST`], that has no vectored operations.
    ///
    /// # Errors
    /// An unknown policy (with the list of existing ones), or an invalid option.
    pub fn new(policy: &str, options: Options) -> Result<Self, SetupError> {
        options.check()?;
        let policy = by_name(policy, &options)?;
        Self::with_policy(policy, options)
    }

    /// A controller with a policy of your own.
    ///
    /// # Errors
    /// An invalid option.
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
            files: IdleTable::new(options.files_max),
            applications: IdleTable::new(options.applications_max),
            ready: VecDeque::new(),
            runs: Vec::new(),
            runs_free: Vec::new(),
            runs_told: 0,
            running: BTreeSet::new(),
            last_issued: None,
            total: Totals::default(),
            forgotten_files: Totals::default(),
            forgotten_applications: Totals::default(),
            trace: Trace::new(options.trace_records_max),
            visited: 0,
            policy,
            options,
        })
    }

    /// Adds a host that shares this controller; its runs carry its id.
    pub fn add_host(&mut self, vectored: Vectored) -> HostId {
        self.hosts.push(vectored);
        HostId(u32::try_from(self.hosts.len() - 1).unwrap_or(u32::MAX))
    }

    /// Sets the vectored operations of a host.
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

    /// Advances the clock; it never goes back.
    pub(super) fn tick(&mut self, now_us: u64) -> u64 {
        self.now_us = self.now_us.max(now_us);
        self.now_us
    }

    pub(super) fn entry(&self, id: RequestId) -> Option<&RequestEntry> {
        self.entries.get(id.slot as usize)?.as_ref().filter(|entry| entry.id == id)
    }

    pub(super) fn entry_mut(&mut self, id: RequestId) -> Option<&mut RequestEntry> {
        self.entries.get_mut(id.slot as usize)?.as_mut().filter(|entry| entry.id == id)
    }

    /// Counts for a request's file, its application and the total.
    pub(super) fn count(&mut self, slots: CounterSlots, change: impl Fn(&mut Totals)) {
        change(&mut self.total);
        change(&mut self.files[slots.file].totals);
        change(&mut self.applications[slots.application].totals);
    }
}
