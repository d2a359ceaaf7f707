//! Wall-clock helpers: elapsed time, and interruptible sleep.

use std::time::Duration;

use rustix::time::{ClockId, Timespec};

/// Start of a time measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Duration);

impl Stopwatch {
    /// The current time.
    pub(crate) fn now() -> Stopwatch {
        Stopwatch(monotonic())
    }

    /// Time since then.
    pub(crate) fn elapsed(self) -> Duration {
        monotonic().saturating_sub(self.0)
    }
}

fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// Nanoseconds since 1970, the unit of file times.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Sleeps; a signal ends the sleep early.
pub(crate) fn sleep(time: Duration) {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &time);
}
