//! Elapsed time, and interruptible sleep.

use std::time::Duration;

use pario::MonotonicClock;
use pario::core::{Clock, Nanos};
use rustix::thread::clock_nanosleep_relative;
use rustix::time::{ClockId, Timespec};

/// Start of a time measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchTimer(Nanos);

impl BenchTimer {
    /// The current time.
    pub(crate) fn now() -> BenchTimer {
        BenchTimer(MonotonicClock.now())
    }

    /// Time since then.
    pub(crate) fn elapsed(self) -> Duration {
        MonotonicClock.now().since(self.0)
    }
}

/// Sleeps; a signal ends the sleep early.
pub(crate) fn sleep(time: Duration) {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) };
    let _ = clock_nanosleep_relative(ClockId::Monotonic, &time);
}
