//! `post`, weights, and applications that leave.
//!
//! Always: an application may have at most as many unfinished requests as there are free slots. So a flooding application is refused
//! while others can still post, however many flood.

use super::{Controller, CounterSlots, FileQueues, RequestEntry, SchedulingState};
use crate::aggregate::{Left, QueueChange};
use crate::error::PostRefused;
use crate::request::{ApplicationId, Request, RequestId};
use crate::table::TableSlot;
use crate::trace::TraceEvent;

impl Controller {
    /// Accepts a request.
    ///
    /// A request of zero length is served like any other, alone. So is a request beyond the end of its file: the controller knows no
    /// sizes, and the host completes it with the bytes that existed.
    ///
    /// # Errors
    /// [`PostRefused`], with the reason and the limit.
    pub fn post(&mut self, request: Request) -> Result<RequestId, PostRefused> {
        let now_us = self.tick(request.arrival_us);
        self.admit(&request)?;
        let request =
            Request { deadline_us: request.deadline_us.map(|at| at.max(request.arrival_us)), ..request };
        let (id, places) = self.enter(request, now_us);
        let order = &mut self.files[places.file].order;
        let blocker = order.blocker(id, &request);
        order.insert(id, &request);
        self.trace.note_post(now_us, id.sequence, &request, blocker.is_some());
        self.count(places, |totals| {
            totals.posted += 1;
            totals.request_bytes.record(request.length);
        });
        match blocker.and_then(|blocker| self.entry_mut(blocker)) {
            Some(blocker) => {
                blocker.holds.push(id);
                self.count(places, |totals| totals.held += 1);
            }
            None => self.release(id),
        }
        Ok(id)
    }

    /// Number of requests that this application could post now.
    #[must_use]
    pub fn room(&self, application: ApplicationId) -> usize {
        let queued = self.queued(application);
        self.limit().saturating_sub(queued)
    }

    /// Sets the weight of an application; the default is 1, and 0 counts as 1. It is kept until the application is withdrawn.
    ///
    /// # Errors
    /// Too many applications have weights or requests.
    pub fn set_weight(&mut self, application: ApplicationId, weight: u32) -> Result<(), PostRefused> {
        self.make_room_for_application(application)?;
        let weight = weight.max(1);
        self.applications.pin(application, weight != 1).weight = weight;
        self.policy.set_weight(application, weight);
        Ok(())
    }

    /// An application leaves: removes its requests that are not running, and returns them. Running ones still have to be completed; with
    /// the last of them the application is forgotten, unless it has posted again.
    pub fn withdraw(&mut self, application: ApplicationId) -> Vec<(RequestId, Request)> {
        let own = self.entries.iter().flatten().filter(|entry| entry.request.application == application);
        let mut gone: Vec<(RequestId, Request)> = own
            .filter(|entry| !matches!(entry.state, SchedulingState::Running { .. }))
            .map(|entry| (entry.id, entry.request))
            .collect();
        gone.sort_unstable_by_key(|(id, _)| *id);
        let Some(place) = self.applications.find(application) else { return gone };
        self.applications[place].withdrawn = true;
        for (id, request) in &gone {
            self.take_back(*id, request);
        }
        self.forget_if_gone(application, place);
        gone
    }

    fn admit(&mut self, request: &Request) -> Result<(), PostRefused> {
        if self.hosts.len() <= request.host.0 as usize {
            return Err(PostRefused::UnknownHost(request.host));
        }
        if request.offset.checked_add(request.length).is_none() {
            return Err(PostRefused::Range { offset: request.offset, length: request.length });
        }
        let application = request.application;
        let queued = self.queued(application);
        let limit = self.limit();
        if limit <= queued {
            self.total.refused += 1;
            if let Some(known) = self.applications.find(application) {
                self.applications[known].totals.refused += 1;
            }
            let full = self.options.queue_max <= self.unfinished();
            return Err(if full {
                PostRefused::Full { limit: self.options.queue_max }
            } else {
                PostRefused::ApplicationFull { application, queued, limit }
            });
        }
        self.make_room_for_application(application)?;
        let idle =
            self.files.room(request.file).map_err(|limit| PostRefused::TooMany { what: "files", limit })?;
        if let Some(idle) = idle {
            self.policy.forget_file(idle);
            let gone = self.files.remove(idle).unwrap_or_default();
            self.forgotten_files.merge(&gone.totals);
        }
        Ok(())
    }

    fn queued(&self, application: ApplicationId) -> usize {
        self.applications.find(application).map_or(0, |known| self.applications[known].unfinished)
    }

    /// The present limit of unfinished requests per application.
    fn limit(&self) -> usize {
        let free = self.options.queue_max.saturating_sub(self.unfinished());
        free.min(self.options.application_queue_max)
    }

    fn make_room_for_application(&mut self, application: ApplicationId) -> Result<(), PostRefused> {
        let idle = self.applications.room(application);
        if let Some(idle) = idle.map_err(|limit| PostRefused::TooMany { what: "applications", limit })? {
            self.forget(idle);
        }
        Ok(())
    }

    fn enter(&mut self, request: Request, now_us: u64) -> (RequestId, CounterSlots) {
        let slot = self.entries_free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("the queue limit is below 2^32")
        });
        let id = RequestId { sequence: self.sequence, slot };
        self.sequence += 1;
        let (file, application) =
            (self.files.enter(request.file), self.applications.enter(request.application));
        let entry =
            RequestEntry { id, request, state: SchedulingState::Held, file, application, holds: Vec::new() };
        self.entries[slot as usize] = Some(entry);
        let known = &mut self.applications[application];
        if known.unfinished == 0 {
            known.busy_since_us = now_us;
        }
        known.unfinished += 1;
        known.withdrawn = false;
        (id, CounterSlots { file, application })
    }

    /// No earlier request blocks this one: gives it to the policy.
    pub(super) fn release(&mut self, id: RequestId) {
        let now_us = self.now_us;
        let Some((request, file)) = self.entry(id).map(|entry| (entry.request, entry.file)) else { return };
        let change = self.bundles.insert(self.files[file].queue(request.kind), id, &request);
        let of = match change {
            QueueChange::New(new) => {
                self.policy.insert(&new, now_us);
                new.id
            }
            QueueChange::Grown(grown) => {
                self.policy.update(&grown, now_us);
                grown.id
            }
            QueueChange::Merged { into, gone } => {
                self.policy.merge(&into, &gone, now_us);
                for part in self.bundles.parts(into.id).collect::<Vec<_>>() {
                    self.set_state(part, SchedulingState::Waiting(into.id));
                }
                into.id
            }
        };
        self.set_state(id, SchedulingState::Waiting(of));
        // Only the cost of decisions is counted.
        self.files[file].queue(request.kind).take_visited();
    }

    pub(super) fn set_state(&mut self, id: RequestId, state: SchedulingState) {
        if let Some(entry) = self.entry_mut(id) {
            entry.state = state;
        }
    }

    fn take_back(&mut self, id: RequestId, request: &Request) {
        let Some((state, places)) = self.entry(id).map(|entry| (entry.state, entry.slots())) else { return };
        if let SchedulingState::Waiting(of) = state {
            let entries = &self.entries;
            let look_up = |id: RequestId| entries.get(id.slot as usize)?.as_ref().map(|entry| &entry.request);
            match self.bundles.withdraw(self.files[places.file].queue(request.kind), of, id, look_up) {
                Left::Shrunk(of) => self.policy.update(&of, self.now_us),
                Left::Gone(of) => self.policy.remove(&of),
            }
        }
        self.trace.note(self.now_us, id.sequence, TraceEvent::Withdraw);
        self.count(places, |totals| totals.withdrawn += 1);
        self.leave(id);
    }

    /// Removes a request: frees its slot and the requests that it blocked.
    pub(super) fn leave(&mut self, id: RequestId) {
        let Some(entry) = self.entries.get_mut(id.slot as usize).and_then(Option::take) else { return };
        self.entries_free.push(id.slot);
        self.files[entry.file].order.remove(id, &entry.request);
        for held in entry.holds {
            self.recheck_blockers(held);
        }
        if self.files.leave(entry.file) {
            let file = &mut self.files[entry.file];
            assert!(
                file.order.is_empty() && file.reads.is_empty() && file.writes.is_empty(),
                "a request was lost"
            );
            *file = FileQueues { totals: std::mem::take(&mut file.totals), ..FileQueues::default() };
        }
        self.applications.leave(entry.application);
        let now_us = self.now_us;
        let application = &mut self.applications[entry.application];
        application.unfinished -= 1;
        if application.unfinished == 0 {
            application.busy_us += now_us.saturating_sub(application.busy_since_us);
        }
    }

    /// A blocker of this request has finished; another one may remain.
    fn recheck_blockers(&mut self, held: RequestId) {
        let Some(entry) = self.entry(held) else { return };
        let blocker = self.files[entry.file].order.blocker(held, &entry.request);
        match blocker.and_then(|blocker| self.entry_mut(blocker)) {
            Some(blocker) => blocker.holds.push(held),
            None => self.release(held),
        }
    }

    /// Forgets an application that was withdrawn and has no requests left.
    pub(super) fn forget_if_gone(&mut self, application: ApplicationId, place: TableSlot) {
        if self.applications[place].withdrawn && self.applications.is_idle(place) {
            self.forget(application);
        }
    }

    fn forget(&mut self, application: ApplicationId) {
        self.policy.forget_application(application);
        if let Some(gone) = self.applications.remove(application) {
            self.forgotten_applications.merge(&gone.totals);
        }
    }
}
