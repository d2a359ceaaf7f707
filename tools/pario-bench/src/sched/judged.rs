//! The judged policies: those of `pario-sched`, and `none`, which forwards requests in order of arrival.
//!
//! The controller gets the parameters of this disk: the cost of a seek, and the size of requests. Requests are only ordered
//! (virtual aggregation), as in the paper; with [`VECTORED`] after its name a policy also merges them (real aggregation).
//!
//! Always: requests refused by the controller (its queues are bounded) wait outside, in order, as a server would hold them back.

use std::collections::VecDeque;

use pario_sched::{
    ApplicationId, Controller, FileId, HostId, IoKind as SchedKind, Options, Outcome, Pick, Request,
    RequestId, SetupError, SwitchCost, Vectored,
};

use super::model::{Discipline, DiskDirection, Next, Params, Posted, RequestIndex, VirtualNanos};

/// Order of arrival, as a server without a scheduler.
pub(crate) const FIFO: &str = "fifo";

/// Suffix of a policy: the server merges adjacent requests into one operation.
pub(crate) const VECTORED: &str = "+vectored";

/// Requests merged into one operation.
const PARTS_MAX: usize = 256;

/// Options of a server with this disk.
fn options() -> Options {
    let mut options = Options::default();
    let disk = Params::PAPER.disk;
    let switch_ns = disk.command_ns + disk.seek_average_ns + disk.rotation_ns / 2;
    options.quantum.switch = SwitchCost::Fixed { us: switch_ns / US };
    options.quantum.window_bytes = Params::PAPER.request_max;
    options
}

/// Nanoseconds of a microsecond, the unit of the controller.
const US: VirtualNanos = 1000;

/// A policy of `pario-sched` as a discipline.
#[derive(Debug)]
pub(crate) struct Judged {
    controller: Controller,
    /// Requests in flight, by number.
    known: Vec<Option<(RequestId, u64)>>,
    refused: VecDeque<Posted>,
    refused_ever: u64,
    orders_service: bool,
}

/// No scheduler.
#[derive(Debug, Default)]
pub(crate) struct Unscheduled(VecDeque<RequestIndex>);

impl Judged {
    /// By the name of a policy, with or without [`VECTORED`].
    pub(crate) fn new(name: &str) -> Result<Judged, SetupError> {
        Judged::with(name, options())
    }

    /// With a queue of `queue_max` requests.
    #[cfg(test)]
    pub(crate) fn with_queue(name: &str, queue_max: usize) -> Result<Judged, SetupError> {
        Judged::with(name, Options { queue_max, ..options() })
    }

    fn with(name: &str, options: Options) -> Result<Judged, SetupError> {
        let policy = name.strip_suffix(VECTORED).unwrap_or(name);
        let mut controller = Controller::new(policy, options)?;
        if policy != name {
            controller.set_vectored(HostId::FIRST, Vectored::Contiguous { parts_max: PARTS_MAX });
        }
        Ok(Judged {
            controller,
            known: Vec::new(),
            refused: VecDeque::new(),
            refused_ever: 0,
            orders_service: policy != FIFO,
        })
    }

    /// Whether the controller ever refused a request.
    #[cfg(test)]
    pub(crate) fn was_full(&self) -> bool {
        0 < self.refused_ever
    }

    /// Posts a request; returns whether it was accepted.
    fn try_post(&mut self, posted: Posted, now: VirtualNanos) -> bool {
        let file = FileId(posted.file.0 as u64);
        let application = ApplicationId(u64::from(posted.app));
        let mut request = Request::read(file, application, posted.start, posted.length, now / US);
        request.kind = if posted.kind == DiskDirection::Read { SchedKind::Read } else { SchedKind::Write };
        request.tag = u64::from(posted.index.0);
        let Ok(id) = self.controller.post(request) else { return false };
        let at = posted.index.0 as usize;
        self.known.resize(self.known.len().max(at + 1), None);
        self.known[at] = Some((id, posted.length));
        true
    }
}

impl Discipline for Judged {
    fn orders_service(&self) -> bool {
        self.orders_service
    }

    fn post(&mut self, request: Posted, now: VirtualNanos) {
        if !self.refused.is_empty() || !self.try_post(request, now) {
            self.refused.push_back(request);
            self.refused_ever += 1;
        }
    }

    fn next(&mut self, now: VirtualNanos) -> Next {
        match self.controller.next(now / US) {
            Pick::Serve(run) => {
                let index = |tag: u64| RequestIndex(u32::try_from(tag).expect("a tag is a number of ours"));
                Next::Serve(run.parts.iter().map(|part| index(part.tag)).collect())
            }
            Pick::Wait { until_us } => Next::Wait(until_us * US),
            Pick::Idle => Next::Idle,
        }
    }

    fn complete(&mut self, index: RequestIndex, now: VirtualNanos) {
        let known = self.known[index.0 as usize].take();
        let (id, bytes) = known.expect("what is complete was posted");
        self.controller.complete(id, now / US, Outcome::Done { bytes }).expect("what is complete was served");
        while let Some(request) = self.refused.pop_front() {
            if !self.try_post(request, now) {
                self.refused.push_front(request);
                break;
            }
        }
    }
}

impl Discipline for Unscheduled {
    fn orders_service(&self) -> bool {
        false
    }

    fn post(&mut self, request: Posted, _now: VirtualNanos) {
        self.0.push_back(request.index);
    }

    fn next(&mut self, _now: VirtualNanos) -> Next {
        self.0.pop_front().map_or(Next::Idle, |index| Next::Serve(vec![index]))
    }

    fn complete(&mut self, _index: RequestIndex, _now: VirtualNanos) {}
}
