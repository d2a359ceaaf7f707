//! Time as a benchmark takes it: the machine's own.

use std::time::{Duration, Instant};

/// Runs since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts.
    #[expect(clippy::disallowed_methods, reason = "the machine's time is what a benchmark measures")]
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// Waits a little between two looks at something that changes by itself.
pub(crate) fn pause(milliseconds: u32) {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds.min(999)) * 1_000_000 };
    // An empty poll is a pause.
    let _ = rustix::event::poll(&mut [], Some(&time));
}
