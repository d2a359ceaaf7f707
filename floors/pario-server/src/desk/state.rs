//! What the desk's lock guards: the controller, the jobs of what was posted, applications, and what is counted beside.
//!
//! Always: a request that the controller holds has a job here until it is picked; a request that the controller refuses because its
//! application has too many waits here, in order, and is posted when one of them is over. How many wait here is bounded by what
//! links let their clients have in flight. Of a session's writes to one file one at a time is posted: what a view spreads has no one
//! range by which the controller could keep the order of its bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crossbeam_channel::Sender;
use pario_core::{Code, Fault, InodeId, SessionId};
use pario_sched::{
    ApplicationId, Controller, FileId, HostId, Kind, Options, Outcome, Pick, Request, RequestId, Run,
    Vectored,
};

use super::applications::Applications;
use super::read::ReadJob;
use super::trace::TRACE_RECORDS_MAX;
use super::{SchedulerSpec, THREADS, Turn, Wish};

/// Requests that are read in one call.
const PARTS_MAX: usize = 64;
/// A hole of this size between two requests is read over rather than around: clients that a file is dealt to are seldom quite in step.
const NEAR_BYTES: u64 = 128 << 10;
/// Requests that the controller holds, and those of one application.
const QUEUE_MAX: usize = 1 << 14;
const APPLICATION_QUEUE_MAX: usize = 1 << 12;
/// Files and applications that it keeps count of.
const FILES_MAX: usize = 1 << 12;
const APPLICATIONS_MAX: usize = 1 << 12;
/// A store whose calls take longer than this, beyond a nanosecond for each byte, does one thing at a time; a faster one
/// several, since what matters there is not the order.
const SLOW_US: u64 = 200;

/// What is done when it is a request's turn.
pub(super) enum Job {
    Read(ReadJob),
    /// A message's write goes on to the taker.
    Write {
        release: Box<dyn FnOnce(Turn) + Send>,
        bytes: u64,
        of: Writer,
    },
    /// The taker waits; it is told its request, or none if it need not wait any more.
    Taker(Sender<Option<RequestId>>),
}

/// Whose writes keep their order.
pub(super) type Writer = (SessionId, InodeId);

/// What a thread of the desk does next.
pub(super) enum Picked {
    /// Carry these out, as one.
    Run(Vec<(RequestId, Job)>),
    /// Ask again after so long, or when something happens.
    Wait { us: u64 },
    /// Enough is under way.
    Full,
    /// Nothing waits.
    Nothing,
}

/// See the module.
pub(super) struct State {
    pub(super) controller: Controller,
    pub(super) policy: String,
    pub(super) applications: Applications,
    pub(super) closed: bool,
    jobs: HashMap<RequestId, Job>,
    held_back: BTreeMap<ApplicationId, VecDeque<(Request, Job)>>,
    /// Writers of which a write is posted, and what they sent after it.
    writers: HashMap<Writer, VecDeque<(Request, Job)>>,
    /// What the taker waits for.
    taker: Option<RequestId>,
    writer: HostId,
    /// What a call takes beyond its bytes, on average.
    pub(super) call_us: u64,
    pub(super) bypassed: u64,
    pub(super) decisions: u64,
    told_overdue: Option<RequestId>,
}

impl State {
    pub(super) fn new(spec: &SchedulerSpec) -> Result<State, Fault> {
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
        // The taker joins neighbours itself.
        let writer = controller.add_host(Vectored::Contiguous { parts_max: PARTS_MAX });
        Ok(State {
            controller,
            policy: spec.policy.clone(),
            applications: Applications::new(spec.weights.clone()),
            closed: false,
            jobs: HashMap::new(),
            held_back: BTreeMap::new(),
            writers: HashMap::new(),
            taker: None,
            writer,
            call_us: SLOW_US + 1,
            bypassed: 0,
            decisions: 0,
            told_overdue: None,
        })
    }

    pub(super) fn joined(&mut self, session: SessionId, name: &str, weight: u32) {
        let (application, weight) = self.applications.join(session, name, weight);
        if let Err(refused) = self.controller.set_weight(application, weight) {
            tracing::warn!(%refused, "application '{name}' has weight 1");
        }
    }

    /// The jobs that are taken back.
    pub(super) fn left(&mut self, session: SessionId) -> Vec<Job> {
        let Some(gone) = self.applications.leave(session) else { return Vec::new() };
        let mut jobs: Vec<Job> =
            self.held_back.remove(&gone).into_iter().flatten().map(|(_, job)| job).collect();
        let taken_back = self.controller.withdraw(gone);
        jobs.extend(taken_back.iter().filter_map(|(id, _)| self.jobs.remove(id)));
        self.taker.take_if(|taker| taken_back.iter().any(|(id, _)| id == taker));
        let writers = jobs.iter().filter_map(|job| match job {
            Job::Write { of, .. } => Some(*of),
            Job::Read(_) | Job::Taker(_) => None,
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

    /// The taker waits no longer. Its request stays posted and ends when it is picked.
    pub(super) fn let_taker_go(&mut self) {
        if let Some(Job::Taker(grant)) = self.taker.take().and_then(|id| self.jobs.remove(&id)) {
            // A taker that has ended needs no word.
            let _ = grant.send(None);
        }
    }

    pub(super) fn count_bypass(&mut self, wish: &Wish) {
        self.bypassed += 1;
        self.applications.count_bypass(wish.session);
    }

    pub(super) fn post(&mut self, wish: &Wish, kind: Kind, job: Job, now_us: u64) {
        let application = self.applications.of(wish.session);
        let (offset, length) = (wish.bytes.start, wish.bytes.end - wish.bytes.start);
        let mut request = Request::read(FileId(wish.object.inode.0), application, offset, length, now_us);
        if kind == Kind::Write {
            (request.kind, request.host) = (kind, self.writer);
        }
        if let Job::Write { of, .. } = &job {
            if let Some(behind) = self.writers.get_mut(of) {
                behind.push_back((request, job));
                return;
            }
            self.writers.insert(*of, VecDeque::new());
        }
        self.put(request, job);
    }

    /// Posts it, or holds it back behind others of its application.
    fn put(&mut self, request: Request, job: Job) {
        match (self.held_back.get_mut(&request.application), job) {
            (Some(others), job @ (Job::Read(_) | Job::Write { .. })) => others.push_back((request, job)),
            (_, job) => {
                self.try_post(request, job);
            }
        }
    }

    /// Whether it was taken.
    fn try_post(&mut self, request: Request, job: Job) -> bool {
        match (self.controller.post(request), job) {
            (Ok(id), job) => {
                if matches!(job, Job::Taker(_)) {
                    self.taker = Some(id);
                }
                self.jobs.insert(id, job);
                true
            }
            // There is one taker, and others depend on it.
            (Err(_), Job::Taker(grant)) => grant.send(None).is_ok(),
            (Err(_), job @ (Job::Read(_) | Job::Write { .. })) => {
                self.held_back.entry(request.application).or_default().push_front((request, job));
                false
            }
        }
    }

    /// Posts what was refused before, as far as there is room now.
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

    /// How many operations may be at the store at once.
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
            // What waits is held back by what is under way.
            Pick::Idle => Picked::Full,
        }
    }

    fn jobs_of(&mut self, run: &Run, now_us: u64) -> Picked {
        let mut jobs = Vec::with_capacity(run.parts.len());
        for part in &run.parts {
            match self.jobs.remove(&part.id) {
                Some(job) => jobs.push((part.id, job)),
                // The taker was let go before.
                None => self.complete(part.id, Outcome::Done { bytes: part.length }, now_us),
            }
        }
        self.taker.take_if(|taker| jobs.iter().any(|(id, _)| id == taker));
        if jobs.is_empty() { Picked::Wait { us: 0 } } else { Picked::Run(jobs) }
    }

    /// A writer's write is with the taker: the next one may wait for its turn.
    pub(super) fn write_next(&mut self, of: Writer) {
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
                tracing::error!(%error, "the scheduler was told of a request that it does not know")
            }
        }
    }

    /// Says once of a request that it should have ended long ago.
    pub(super) fn tell_overdue(&mut self, now_us: u64) {
        let Some(late) = self.controller.overdue(now_us, 1).pop() else { return };
        if self.told_overdue != Some(late.id) {
            self.told_overdue = Some(late.id);
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
