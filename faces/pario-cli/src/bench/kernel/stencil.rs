//! Computing between dumps: a five-point stencil that keeps its core busy and its data in the core's own cache.

use crate::clock::Began;
use std::time::Duration;

/// Numbers along each edge: two planes of 32 KiB.
const EDGE: usize = 64;
/// Sweeps between two looks at the clock.
const LOOK: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Stencil {
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Stencil {
    pub(super) fn new() -> Stencil {
        let mut now = vec![0.0; EDGE * EDGE];
        now[EDGE * EDGE / 2 + EDGE / 2] = 1.0;
        Stencil { next: now.clone(), now }
    }

    /// Sweeps over the plane.
    pub(super) fn sweep(&mut self, sweeps: u64) {
        for _ in 0..sweeps {
            for row in 1..EDGE - 1 {
                let at = row * EDGE;
                let (up, here, down) =
                    (&self.now[at - EDGE..at], &self.now[at..at + EDGE], &self.now[at + EDGE..at + 2 * EDGE]);
                let out = &mut self.next[at..at + EDGE];
                for x in 1..EDGE - 1 {
                    out[x] = 0.2 * (here[x] + here[x - 1] + here[x + 1] + up[x] + down[x]);
                }
            }
            std::mem::swap(&mut self.now, &mut self.next);
        }
    }

    /// Sweeps for a while; returns how many a second there were.
    pub(super) fn sweeps_per_s(&mut self, time: Duration) -> f64 {
        let began = Began::now();
        let mut looks = 0u32;
        while began.elapsed() < time {
            self.sweep(LOOK);
            looks += 1;
        }
        f64::from(looks) * 16.0 / began.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_spread_what_is_there_and_lose_nothing_inside() {
        let mut stencil = Stencil::new();
        stencil.sweep(10);
        let sum: f64 = stencil.now.iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert!(5 < stencil.now.iter().filter(|value| **value != 0.0).count());
    }
}
