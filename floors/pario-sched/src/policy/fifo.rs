//! `fifo`: in the order of arrival.
//!
//! Promises: at most as many virtual requests are served before a request as were waiting when it arrived.

use super::{Joins, Policy, PolicyChoice, Ranked, Virtual, serve};

/// In the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    waiting: Ranked<u64>,
}

impl Policy for Fifo {
    fn joins(&self) -> Joins {
        Joins::Never
    }

    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        self.waiting.put(new.id, new.oldest.sequence);
    }

    fn update(&mut self, changed: &Virtual, _now_us: u64) {
        self.waiting.put(changed.id, changed.oldest.sequence);
    }

    fn remove(&mut self, gone: &Virtual) {
        self.waiting.take(gone.id);
    }

    fn pick(&mut self, _now_us: u64) -> PolicyChoice {
        serve(self.waiting.pop_first())
    }

    fn take_visited(&mut self) -> u64 {
        self.waiting.order.take_visited()
    }
}
