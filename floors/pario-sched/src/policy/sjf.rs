//! `sjf`: the smallest virtual request first; equal ones by arrival.
//!
//! Promises nothing for a large request: a stream of smaller ones passes it without bound. It serves as a reference for comparison.

use super::{Policy, PolicyChoice, Ranked, Virtual, serve};

/// The smallest first.
#[derive(Debug, Default)]
pub(crate) struct Sjf {
    waiting: Ranked<(u64, u64)>,
}

impl Policy for Sjf {
    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        self.waiting.put(new.id, (new.bytes, new.oldest.sequence));
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

    fn take_visited(&mut self) -> u64 {
        self.waiting.order.take_visited()
    }
}
