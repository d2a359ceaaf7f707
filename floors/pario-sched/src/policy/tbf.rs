//! `tbf`: a token bucket for each application.
//!
//! A bucket gains `tbf_bytes_per_second * weight` and holds at most `tbf_burst_bytes`. A virtual request is served when the bucket covers
//! it, or is full; it may leave a debt. Of several covered requests, the one that was covered first is served first. It limits and does
//! not share: without tokens it waits, even if the store is idle.
//!
//! Promises: a request is served when its bucket has gained the bytes of its application's earlier requests and its own bytes, plus the
//! debt of the requests served before.

use super::flows::{FlowHead, Flows};
use super::{Joins, Policy, PolicyChoice, Virtual};
use crate::options::Options;
use crate::request::ApplicationId;

/// A token bucket for each application.
#[derive(Debug)]
pub(crate) struct Tbf {
    bucket: Bucket,
    /// The state is the time at which the bucket will be full, in nanoseconds.
    flows: Flows<u64, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    bytes_per_second: u64,
    burst_bytes: u64,
}

impl Tbf {
    pub(crate) fn new(options: &Options) -> Self {
        let Options { tbf_bytes_per_second: bytes_per_second, tbf_burst_bytes: burst_bytes, .. } = *options;
        Self { bucket: Bucket { bytes_per_second, burst_bytes }, flows: Flows::default() }
    }
}

impl Bucket {
    /// Time in which a bucket gains so many bytes.
    fn gain_ns(self, bytes: u64, weight: u32) -> u64 {
        let rate = u128::from(self.bytes_per_second) * u128::from(weight);
        u64::try_from((u128::from(bytes) * 1_000_000_000).div_ceil(rate)).unwrap_or(u64::MAX)
    }

    /// Time at which the first virtual request of an application is covered.
    fn ready_ns(self, head: FlowHead<u64>) -> u64 {
        let spare_bytes = self.burst_bytes - head.bytes.min(self.burst_bytes);
        head.state.saturating_sub(self.gain_ns(spare_bytes, head.weight))
    }
}

impl Policy for Tbf {
    fn joins(&self) -> Joins {
        Joins::Application
    }

    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        let bucket = self.bucket;
        self.flows.put(new, |full_ns| full_ns, |head| bucket.ready_ns(head));
    }

    fn update(&mut self, changed: &Virtual, now_us: u64) {
        self.insert(changed, now_us);
    }

    fn remove(&mut self, gone: &Virtual) {
        let bucket = self.bucket;
        self.flows.take(gone.id, |head| bucket.ready_ns(head));
    }

    fn pick(&mut self, now_us: u64) -> PolicyChoice {
        let Some((ready_ns, application, id)) = self.flows.first() else { return PolicyChoice::Nothing };
        let now_ns = now_us.saturating_mul(1_000);
        if now_ns < ready_ns {
            return PolicyChoice::Wait { until_us: ready_ns.div_ceil(1_000) };
        }
        let bucket = self.bucket;
        let bytes = self.flows.take(id, |head| bucket.ready_ns(head)).unwrap_or(0);
        let pay = |full_ns: u64, weight| full_ns.max(now_ns).saturating_add(bucket.gain_ns(bytes, weight));
        self.flows.change(application, pay, |head| bucket.ready_ns(head));
        PolicyChoice::Serve(id)
    }

    fn set_weight(&mut self, application: ApplicationId, weight: u32) {
        let bucket = self.bucket;
        self.flows.set_weight(application, weight, |head| bucket.ready_ns(head));
    }

    fn forget_application(&mut self, application: ApplicationId) {
        self.flows.forget(application);
    }

    fn take_visited(&mut self) -> u64 {
        self.flows.take_visited()
    }
}
