//! `next`: the run to start now.
//!
//! Always: a picked virtual request is issued completely, in offset order, before the policy is asked again.

use super::{Controller, RequestEntry, RunningIo, SchedulingState};
use crate::policy::{PolicyChoice, VirtualId};
use crate::request::{IoRun, Pick, Request, RequestId, RunPart, Vectored};
use crate::trace::TraceEvent;

impl Controller {
    /// The run to start now. May be called again immediately: any number of runs may be in progress.
    pub fn next(&mut self, now_us: u64) -> Pick {
        let now_us = self.tick(now_us);
        loop {
            if let Some(run) = self.issue(now_us) {
                return Pick::Serve(run);
            }
            match self.policy.pick(now_us) {
                PolicyChoice::Serve(id) => self.unpack(id),
                PolicyChoice::Wait { until_us } => return Pick::Wait { until_us: until_us.max(now_us + 1) },
                PolicyChoice::Nothing => return Pick::Idle,
            }
        }
    }

    /// Makes the parts of a virtual request ready.
    fn unpack(&mut self, id: VirtualId) {
        let of = self.bundles.of(id);
        let Some(places) = self.entry(of.oldest).map(RequestEntry::slots) else { return };
        let queue = self.files[places.file].queue(of.kind);
        let (_, parts) = self.bundles.take(queue, id);
        self.visited += queue.take_visited();
        self.count(places, |totals| totals.virtual_requests += 1);
        for part in parts.ids() {
            self.set_state(part, SchedulingState::Ready);
            self.ready.push_back(part);
        }
    }

    /// One operation from the ready parts.
    fn issue(&mut self, now_us: u64) -> Option<IoRun> {
        let (id, first) = loop {
            let id = self.ready.pop_front()?;
            // Some may have been withdrawn meanwhile.
            if let Some(entry) = self.entry(id) {
                break (id, entry.request);
            }
        };
        let mut run =
            IoRun { host: first.host, file: first.file, kind: first.kind, parts: vec![part(id, &first)] };
        let able = self.hosts.get(first.host.0 as usize).copied().unwrap_or_default();
        let mut last = first;
        while able != Vectored::Never
            && let Some((next, request)) =
                self.ready.front().and_then(|next| Some((*next, self.entry(*next)?.request)))
            && can_join(able, run.parts.len(), &last, &request)
        {
            self.ready.pop_front();
            run.parts.push(part(next, &request));
            last = request;
        }
        self.begin(&run, now_us);
        Some(run)
    }

    fn begin(&mut self, run: &IoRun, now_us: u64) {
        let end = run.parts.iter().map(|part| part.offset + part.length).max().unwrap_or(0);
        let near = |at: u64| at.abs_diff(run.offset()) <= self.options.near_bytes;
        let follows =
            self.last_issued.is_some_and(|(file, kind, at)| (file, kind) == (run.file, run.kind) && near(at));
        self.last_issued = Some((run.file, run.kind, end));
        let slot = self.runs_free.pop().unwrap_or_else(|| {
            self.runs.push(None);
            self.runs.len() - 1
        });
        let IoRun { file, kind, .. } = *run;
        let (left, bytes) = (run.parts.len(), run.bytes());
        self.runs[slot] = Some(RunningIo {
            parts_left: left,
            file,
            kind,
            end,
            bytes,
            since_us: now_us,
            follows,
            short: false,
        });
        for (at, part) in run.parts.iter().enumerate() {
            let Some(entry) = self.entry_mut(part.id) else { continue };
            entry.state = SchedulingState::Running { since_us: now_us, run: slot };
            let (places, waited_us) = (entry.slots(), now_us.saturating_sub(entry.request.arrival_us));
            self.running.insert((now_us, part.id));
            self.trace.note(now_us, part.id.sequence, TraceEvent::Pick { run: self.runs_told });
            self.count(places, |totals| {
                totals.runs += u64::from(at == 0);
                totals.served += 1;
                totals.wait_us.record(waited_us);
            });
        }
        self.runs_told += 1;
    }
}

fn part(id: RequestId, request: &Request) -> RunPart {
    let Request { application, offset, length, tag, .. } = *request;
    RunPart { id, application, offset, length, tag }
}

/// Whether one more request can go into an operation.
fn can_join(able: Vectored, members: usize, last: &Request, next: &Request) -> bool {
    let fits = match able {
        Vectored::Never => false,
        Vectored::Contiguous { parts_max } => members < parts_max && last.end() == next.offset,
        Vectored::Ranges { parts_max } => members < parts_max,
    };
    fits && (next.host, next.file, next.kind) == (last.host, last.file, last.kind)
}
