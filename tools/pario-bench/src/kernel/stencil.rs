//! Computing between dumps: a five-point stencil that keeps its core busy and its data in the core's cache.
//!
//! Always: every sweep costs the same. The edges are warm, so that the plane warms up; with cold edges it would cool down to
//! denormal numbers, which are many times slower.

use crate::clock::BenchTimer;
use std::time::Duration;

/// Numbers along each edge: two planes of 32 KiB.
const EDGE: usize = 64;
/// Sweeps between two clock reads.
const CLOCK_INTERVAL: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stencil {
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Stencil {
    pub(crate) fn new() -> Stencil {
        let is_edge = |at: usize| {
            let inside = 1..EDGE - 1;
            !(inside.contains(&(at / EDGE)) && inside.contains(&(at % EDGE)))
        };
        let now: Vec<f64> = (0..EDGE * EDGE).map(|at| if is_edge(at) { 1.0 } else { 0.0 }).collect();
        Stencil { next: now.clone(), now }
    }

    /// Sweeps over the plane.
    pub(crate) fn sweep(&mut self, sweeps: u64) {
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

    /// Sweeps for `time`; returns the sweeps per second.
    pub(crate) fn sweeps_per_s(&mut self, time: Duration) -> f64 {
        let began = BenchTimer::now();
        let mut looks = 0u32;
        while began.elapsed() < time {
            self.sweep(CLOCK_INTERVAL);
            looks += 1;
        }
        f64::from(looks) * 16.0 / began.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_spread_the_warmth_of_the_edges_and_make_none() {
        let mut stencil = Stencil::new();
        stencil.sweep(10);
        let inside: Vec<f64> = stencil.now.iter().copied().filter(|value| *value < 1.0).collect();
        assert_eq!(inside.len(), (EDGE - 2) * (EDGE - 2));
        assert!(inside.iter().any(|value| 0.5 < *value) && inside.contains(&0.0));
    }

    #[test]
    fn numbers_stay_normal_however_long_it_computes() {
        let mut stencil = Stencil::new();
        for sweeps in [1, 30, 1_000, 20_000] {
            stencil.sweep(sweeps);
            let odd = stencil.now.iter().find(|value| !(**value == 0.0 || value.is_normal()));
            assert_eq!(odd, None, "after {sweeps} more sweeps");
        }
        assert!(stencil.now.iter().all(|value| 0.9 < *value), "the plane is as warm as its edges in the end");
    }
}
