//! State guarded by the I/O queue's lock: the controller, the jobs of posted requests, applications, and counters.
//!
//! Always: a request that the controller holds has a job here until it is picked; a request that the controller refuses because its
//! application has too many waits here, in order, and is posted when one of them ends. The number of requests held here is bounded by the
//! requests that links let their clients have in flight. Of a session's writes to one file one at a time is posted: a write through a view
//! has no single range by which the controller could order its bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crossbeam_channel::Sender;
use pario_core::{Code, Fault, InodeId, SessionId};
use pario_sched::{
    ApplicationId, Controller, FileId, HostId, IoKind, IoRun, Options, Outcome, Pick, Request, RequestId,
    Vectored,
};

use super::applications::Applications;
use super::read::ReadJob;
use super::trace::TRACE_RECORDS_MAX;
use super::{IoRequest, SchedulerSpec, StoreTurn, THREADS};

/// Requests that are read in one call.
const PARTS_MAX: usize = 64;
/// A hole of this size between two requests is read and discarded: clients that share a file are seldom exactly in step.
const NEAR_BYTES: u64 = 128 << 10;
/// Requests that the controller holds, and those of one application.
const QUEUE_MAX: usize = 1 << 14;
const APPLICATION_QUEUE_MAX: usize = 1 << 12;
/// Files and applications with counters.
const FILES_MAX: usize = 1 << 12;
const APPLICATIONS_MAX: usize = 1 << 12;
/// A store with calls that take longer than this, beyond a nanosecond for each byte, gets one operation at a time; a faster one gets
/// several, since order matters little there.
const SLOW_US: u64 = 200;

/// Action at a request's turn.
pub(super) enum QueuedJob {
    Read(ReadJob),
    /// Passes a message's write to the drain thread.
    Write {
        release: Box<dyn FnOnce(StoreTurn) + Send>,
        bytes: u64,
        of: WriteOrderKey,
    },
    /// Wakes the drain thread with its request, or `None` if it need not wait any more.
    Drainer(Sender<Option<RequestId>>),
}

/// Scope of write order: session and file.
pub(super) type WriteOrderKey = (SessionId, InodeId);

/// Next action of a thread of the queue.
pub(super) enum Picked {
    /// Carry these out, as one operation.
    Run(Vec<(RequestId, QueuedJob)>),
    /// Ask again after this time, or when the state changes.
    Wait { us: u64 },
    /// The store has its maximum of operations.
    Full,
    /// No request waits.
    Nothing,
}

/// See the module.
pub(super) struct QueueState {
    pub(super) controller: Controller,
    pub(super) policy: String,
    pub(super) applications: Applications,
    pub(super) closed: bool,
    jobs: HashMap<RequestId, QueuedJob>,
    held_back: BTreeMap<ApplicationId, VecDeque<(Request, QueuedJob)>>,
    /// Writers with a posted write, and their later writes.
    writers: HashMap<WriteOrderKey, VecDeque<(Request, QueuedJob)>>,
    /// The request that the drain thread waits for.
    drainer: Option<RequestId>,
    writer: HostId,
    /// Average time of a call beyond the time for its bytes.
    pub(super) call_us: u64,
    pub(super) bypassed: u64,
    pub(super) decisions: u64,
    reported_overdue: Option<RequestId>,
}

impl QueueState {
    pub(super) fn new(spec: &SchedulerSpec) -> Result<QueueState, Fault> {
        let options = Options {
            queue_max: QUEUE_MAX,
            application_queue_max: APPLICATION_QUEUE_MAX,
            applications_max: APPLICATIONS_MAX,
            files_max: FILES_MAX,
            near_bytes: NEAR_BYTES,
            aggregate_parts_max: PARTS_MAX,
            trace_records_max: if spec.trace.is_some() { TRACE_RECORDS_MAX } else { 0 },
            ..Options::default()
        };
        let mut controller = Controller::new(&spec.policy, options)
            .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
        controller.set_vectored(HostId::FIRST, Vectored::Ranges { parts_max: PARTS_MAX });
        // The drain thread joins neighbours itself.
        let writer = controller.add_host(Vectored::Contiguous { parts_max: PARTS_MAX });
        Ok(QueueState {
            controller,
            policy: spec.policy.clone(),
            applications: Applications::new(spec.weights.clone()),
            closed: false,
            jobs: HashMap::new(),
            held_back: BTreeMap::new(),
            writers: HashMap::new(),
            drainer: None,
            writer,
            call_us: SLOW_US + 1,
            bypassed: 0,
            decisions: 0,
            reported_overdue: None,
        })
    }

    pub(super) fn joined(&mut self, session: SessionId, name: &str, weight: u32) {
        let (application, weight) = self.applications.join(session, name, weight);
        if let Err(refused) = self.controller.set_weight(application, weight) {
            tracing::warn!(%refused, "application '{name}' has weight 1");
        }
    }

    /// Returns the cancelled jobs.
    pub(super) fn left(&mut self, session: SessionId) -> Vec<QueuedJob> {
        let Some(gone) = self.applications.leave(session) else { return Vec::new() };
        let mut jobs: Vec<QueuedJob> =
            self.held_back.remove(&gone).into_iter().flatten().map(|(_, job)| job).collect();
        let taken_back = self.controller.withdraw(gone);
        jobs.extend(taken_back.iter().filter_map(|(id, _)| self.jobs.remove(id)));
        self.drainer.take_if(|taker| taken_back.iter().any(|(id, _)| id == taker));
        let writers = jobs.iter().filter_map(|job| match job {
            QueuedJob::Write { of, .. } => Some(*of),
            QueuedJob::Read(_) | QueuedJob::Drainer(_) => None,
        });
        for writer in writers.collect::<Vec<_>>() {
            jobs.extend(self.writers.remove(&writer).into_iter().flatten().map(|(_, job)| job));
        }
        jobs
    }

    /// Requests that wait, here or in the controller.
    pub(super) fn waiting(&self) -> usize {
        let held_back = self.held_back.values().chain(self.writers.values()).map(VecDeque::len);
        self.jobs.len() + held_back.sum::<usize>()
    }

    /// Releases the waiting drain thread. Its request stays posted and ends when it is picked.
    pub(super) fn release_drainer(&mut self) {
        if let Some(QueuedJob::Drainer(grant)) = self.drainer.take().and_then(|id| self.jobs.remove(&id)) {
            // A drain thread that has ended needs no wake-up.
            let _ = grant.send(None);
        }
    }

    pub(super) fn count_bypass(&mut self, wish: &IoRequest) {
        self.bypassed += 1;
        self.applications.count_bypass(wish.session);
    }

    pub(super) fn post(&mut self, wish: &IoRequest, kind: IoKind, job: QueuedJob, now_us: u64) {
        let application = self.applications.of(wish.session);
        let (offset, length) = (wish.bytes.start, wish.bytes.end - wish.bytes.start);
        let mut request = Request::read(FileId(wish.object.inode.0), application, offset, length, now_us);
        if kind == IoKind::Write {
            (request.kind, request.host) = (kind, self.writer);
        }
        if let QueuedJob::Write { of, .. } = &job {
            if let Some(behind) = self.writers.get_mut(of) {
                behind.push_back((request, job));
                return;
            }
            self.writers.insert(*of, VecDeque::new());
        }
        self.put(request, job);
    }

    /// Posts a request, or holds it back behind others of its application.
    fn put(&mut self, request: Request, job: QueuedJob) {
        match (self.held_back.get_mut(&request.application), job) {
            (Some(others), job @ (QueuedJob::Read(_) | QueuedJob::Write { .. })) => {
                others.push_back((request, job))
            }
            (_, job) => {
                self.try_post(request, job);
            }
        }
    }

    /// Whether the controller accepted it.
    fn try_post(&mut self, request: Request, job: QueuedJob) -> bool {
        match (self.controller.post(request), job) {
            (Ok(id), job) => {
                if matches!(job, QueuedJob::Drainer(_)) {
                    self.drainer = Some(id);
                }
                self.jobs.insert(id, job);
                true
            }
            // There is one drain thread, and others depend on it.
            (Err(_), QueuedJob::Drainer(grant)) => grant.send(None).is_ok(),
            (Err(_), job @ (QueuedJob::Read(_) | QueuedJob::Write { .. })) => {
                self.held_back.entry(request.application).or_default().push_front((request, job));
                false
            }
        }
    }

    /// Posts requests that were refused before, as far as there is room now.
    pub(super) fn post_held_back(&mut self) {
        let applications: Vec<ApplicationId> = self.held_back.keys().copied().collect();
        for application in applications {
            while 0 < self.controller.room(application)
                && let Some((request, job)) =
                    self.held_back.get_mut(&application).and_then(VecDeque::pop_front)
            {
                if !self.try_post(request, job) {
                    break;
                }
            }
            if self.held_back.get(&application).is_some_and(VecDeque::is_empty) {
                self.held_back.remove(&application);
            }
        }
    }

    /// Number of concurrent operations at the store.
    pub(super) fn slots(&self) -> usize {
        if SLOW_US < self.call_us { 1 } else { THREADS }
    }

    pub(super) fn pick(&mut self, under_way: usize, now_us: u64) -> Picked {
        if self.waiting() == 0 {
            return Picked::Nothing;
        }
        if self.slots() <= under_way {
            return Picked::Full;
        }
        self.decisions += 1;
        match self.controller.next(now_us) {
            Pick::Serve(run) => self.jobs_of(&run, now_us),
            Pick::Wait { until_us } => Picked::Wait { us: until_us.saturating_sub(now_us) },
            // Waiting requests are blocked by operations in progress.
            Pick::Idle => Picked::Full,
        }
    }

    fn jobs_of(&mut self, run: &IoRun, now_us: u64) -> Picked {
        let mut jobs = Vec::with_capacity(run.parts.len());
        for part in &run.parts {
            match self.jobs.remove(&part.id) {
                Some(job) => jobs.push((part.id, job)),
                // The drain thread was released before.
                None => self.complete(part.id, Outcome::Done { bytes: part.length }, now_us),
            }
        }
        self.drainer.take_if(|taker| jobs.iter().any(|(id, _)| id == taker));
        if jobs.is_empty() { Picked::Wait { us: 0 } } else { Picked::Run(jobs) }
    }

    /// A writer's write was passed to the drain thread: its next write may be posted.
    pub(super) fn write_next(&mut self, of: WriteOrderKey) {
        let Some(behind) = self.writers.get_mut(&of) else { return };
        match behind.pop_front() {
            Some((request, job)) => self.put(request, job),
            None => {
                self.writers.remove(&of);
            }
        }
    }

    pub(super) fn complete(&mut self, id: RequestId, outcome: Outcome, now_us: u64) {
        match self.controller.complete(id, now_us, outcome) {
            Ok(completion) => {
                let bytes = match outcome {
                    Outcome::Done { bytes } => bytes,
                    Outcome::Failed => 0,
                };
                let call_us = completion.service_us.saturating_sub(bytes / 1000);
                self.call_us = self.call_us - self.call_us / 16 + call_us / 16;
            }
            Err(error) => {
                tracing::error!(%error, "a completed request is unknown to the scheduler")
            }
        }
    }

    /// Logs once per request that it is overdue.
    pub(super) fn report_overdue(&mut self, now_us: u64) {
        let Some(late) = self.controller.overdue(now_us, 1).pop() else { return };
        if self.reported_overdue != Some(late.id) {
            self.reported_overdue = Some(late.id);
            let request = late.request;
            tracing::warn!(
                "the store has not answered for {} s: {} bytes at {} of inode {} for {}",
                now_us.saturating_sub(late.since_us) / 1_000_000,
                request.length,
                request.offset,
                request.file.0,
                self.applications.name(request.application)
            );
        }
    }
}
