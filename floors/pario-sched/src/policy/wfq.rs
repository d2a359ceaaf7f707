//! `wfq`: weighted fair queueing by application (start-time fair queueing).
//!
//! Each application has a start tag that grows by `bytes / weight` of its service; the smallest tag is served next. An application
//! without waiting requests starts again at the tag now being served, so that idle time earns no credit.
//!
//! Promises: while a request waits behind `q` bytes of its own application (weight `w`), another application (weight `f`) is
//! served at most `f * (q + m) / w + m` bytes, where `m` is the largest virtual request.

use super::flows::{FlowHead, Flows};
use super::{Joins, Policy, PolicyChoice, Virtual};
use crate::request::ApplicationId;

/// Bytes are scaled by this before they are divided by a weight.
const SCALE_BITS: u32 = 20;

/// Weighted fair queueing.
#[derive(Debug, Default)]
pub(crate) struct Wfq {
    flows: Flows<u128, u128>,
    /// Start tag of the last pick.
    now: u128,
}

impl Policy for Wfq {
    fn joins(&self) -> Joins {
        Joins::Application
    }

    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        let now = self.now;
        self.flows.put(new, |tag| tag.max(now), tag);
    }

    fn update(&mut self, changed: &Virtual, now_us: u64) {
        self.insert(changed, now_us);
    }

    fn remove(&mut self, gone: &Virtual) {
        self.flows.take(gone.id, tag);
    }

    fn pick(&mut self, _now_us: u64) -> PolicyChoice {
        let Some((start, application, id)) = self.flows.first() else { return PolicyChoice::Nothing };
        self.now = start;
        let bytes = self.flows.take(id, tag).unwrap_or(0);
        self.flows.change(application, |tag, weight| tag + cost(bytes, weight), tag);
        PolicyChoice::Serve(id)
    }

    fn set_weight(&mut self, application: ApplicationId, weight: u32) {
        self.flows.set_weight(application, weight, tag);
    }

    fn forget_application(&mut self, application: ApplicationId) {
        self.flows.forget(application);
    }

    fn take_visited(&mut self) -> u64 {
        self.flows.take_visited()
    }
}

fn tag(head: FlowHead<u128>) -> u128 {
    head.state
}

/// Increase of the application's tag by a virtual request; an empty one is not free.
fn cost(bytes: u64, weight: u32) -> u128 {
    (u128::from(bytes.max(1)) << SCALE_BITS) / u128::from(weight)
}
