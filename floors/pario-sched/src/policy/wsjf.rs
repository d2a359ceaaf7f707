//! `wsjf`: shortest job first, weighted by application and by waiting.
//!
//! A virtual request has one key for its lifetime: its arrival plus `bytes * wsjf_us_per_mib / (1 MiB * weight)`. The smallest key is
//! served. Among requests that arrived together the smallest (for its weight) is first; a large one is passed only by requests that
//! arrive within its handicap. The key does not change with time, so no request is re-sorted.
//!
//! Promises: a request of `b` bytes is never passed by a virtual request if its oldest part arrived more than the handicap of `max(b,
//! aggregate_bytes_max)` later.

use std::collections::HashMap;

use super::{Policy, PolicyChoice, Ranked, Virtual, serve};
use crate::options::Options;
use crate::request::ApplicationId;

/// Shortest first, with ageing and weights.
#[derive(Debug)]
pub(crate) struct Wsjf {
    us_per_mib: u64,
    weights: HashMap<ApplicationId, u32>,
    waiting: Ranked<(u64, u64)>,
}

impl Wsjf {
    pub(crate) fn new(options: &Options) -> Self {
        Self { us_per_mib: options.wsjf_us_per_mib, weights: HashMap::new(), waiting: Ranked::default() }
    }
}

impl Policy for Wsjf {
    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        let weight = self.weights.get(&new.application).copied().unwrap_or(1);
        let key = new.arrival_us.saturating_add(handicap_us(new.bytes, self.us_per_mib, weight));
        self.waiting.put(new.id, (key, new.oldest.sequence));
    }

    fn update(&mut self, changed: &Virtual, now_us: u64) {
        self.insert(changed, now_us);
    }

    fn remove(&mut self, gone: &Virtual) {
        self.waiting.take(gone.id);
    }

    fn pick(&mut self, _now_us: u64) -> PolicyChoice {
        serve(self.waiting.pop_first())
    }

    fn set_weight(&mut self, application: ApplicationId, weight: u32) {
        self.weights.insert(application, weight);
    }

    fn forget_application(&mut self, application: ApplicationId) {
        self.weights.remove(&application);
    }

    fn take_visited(&mut self) -> u64 {
        self.waiting.order.take_visited()
    }
}

fn handicap_us(bytes: u64, us_per_mib: u64, weight: u32) -> u64 {
    let scaled = u128::from(bytes) * u128::from(us_per_mib) / (u128::from(weight) << 20);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
