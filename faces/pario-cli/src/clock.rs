//! Time for people who wait: how long something took, and a rest between two looks.

use std::time::Duration;

use rustix::time::{ClockId, Timespec};

/// A moment to measure from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began(Duration);

impl Began {
    /// Now.
    pub(crate) fn now() -> Began {
        Began(monotonic())
    }

    /// Time since.
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

/// Rests; a signal ends the rest early.
pub(crate) fn rest(time: Duration) {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &time);
}
