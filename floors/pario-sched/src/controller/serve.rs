//! `next`: what to run now.
//!
//! Always: a virtual request that was picked is told to the end, in offset order, before the policy is asked again.

use super::{Controller, Running, State};
use crate::policy::{Choice, VirtualId};
use crate::request::{HostId, Part, Pick, Request, RequestId, Run, Vectored};
use crate::trace::Event;

impl Controller {
    /// What to run now. May be asked again at once: runs may be under way in any number.
    pub fn next(&mut self, now_us: u64) -> Pick {
        let now_us = self.tick(now_us);
        loop {
            if let Some(run) = self.tell(now_us) {
                return Pick::Serve(run);
            }
            match self.policy.pick(now_us) {
                Choice::Serve(id) => self.unpack(id),
                Choice::Wait { until_us } => return Pick::Wait { until_us: until_us.max(now_us + 1) },
                Choice::Nothing => return Pick::Idle,
            }
        }
    }

    /// Makes the parts of a virtual request ready.
    fn unpack(&mut self, id: VirtualId) {
        let of = self.bundles.of(id);
        let Some(file) = self.files.get_mut(of.file) else { return };
        let (_, parts) = self.bundles.take(file.queue(of.kind), id);
        self.visited += file.queue(of.kind).take_visited();
        let mut totals = vec![&mut self.total, &mut file.totals];
        totals.extend(self.applications.get_mut(of.application).map(|application| &mut application.totals));
        totals.into_iter().for_each(|totals| totals.virtual_requests += 1);
        for (part, _) in parts {
            self.set_state(part, State::Ready);
            self.ready.push_back(part);
        }
    }

    /// One operation of what is ready.
    fn tell(&mut self, now_us: u64) -> Option<Run> {
        let (id, first) = loop {
            let id = self.ready.pop_front()?;
            // Some may have been taken back meanwhile.
            if let Some(entry) = self.entry(id) {
                break (id, entry.request);
            }
        };
        let mut members = vec![(id, first)];
        let able = self.hosts.get(first.host.0 as usize).copied().unwrap_or_default();
        while let Some((next, request)) =
            self.ready.front().and_then(|next| Some((*next, self.entry(*next)?.request)))
        {
            let (_, last) = members[members.len() - 1];
            if !can_join(able, first.host, members.len(), (&last, &request)) {
                break;
            }
            self.ready.pop_front();
            members.push((next, request));
        }
        Some(self.run(&members, now_us))
    }

    fn run(&mut self, members: &[(RequestId, Request)], now_us: u64) -> Run {
        let (_, first) = members[0];
        let end = members.iter().map(|(_, request)| request.end()).max().unwrap_or(first.offset);
        let near = |at: u64| at.abs_diff(first.offset) <= self.options.near_bytes;
        let follows = self
            .told_last
            .is_some_and(|(file, kind, at)| (file, kind) == (first.file, first.kind) && near(at));
        self.told_last = Some((first.file, first.kind, end));
        let bytes = members.iter().map(|(_, request)| request.length).sum();
        let slot = self.runs_free.pop().unwrap_or_else(|| {
            self.runs.push(None);
            self.runs.len() - 1
        });
        let (left, file, kind) = (members.len(), first.file, first.kind);
        self.runs[slot] =
            Some(Running { left, file, kind, end, bytes, since_us: now_us, follows, short: false });
        self.count(&first, |totals| totals.runs += 1);
        let mut parts = Vec::with_capacity(members.len());
        for (id, request) in members {
            self.set_state(*id, State::Running { since_us: now_us, run: slot });
            self.running.insert((now_us, *id));
            self.trace.note(now_us, id.sequence, Event::Pick { run: self.runs_told });
            let waited_us = now_us.saturating_sub(request.arrival_us);
            self.count(request, |totals| {
                totals.served += 1;
                totals.wait_us.record(waited_us);
            });
            let Request { application, offset, length, tag, .. } = *request;
            parts.push(Part { id: *id, application, offset, length, tag });
        }
        self.runs_told += 1;
        Run { host: first.host, file, kind, parts }
    }
}

/// Whether one more request can go into an operation of this host.
fn can_join(able: Vectored, host: HostId, members: usize, (last, next): (&Request, &Request)) -> bool {
    let fits = match able {
        Vectored::Never => false,
        Vectored::Contiguous { parts_max } => members < parts_max && last.end() == next.offset,
        Vectored::Ranges { parts_max } => members < parts_max,
    };
    fits && next.host == host && next.file == last.file && next.kind == last.kind
}
