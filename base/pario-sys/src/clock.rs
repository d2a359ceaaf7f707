//! The machine's clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pario_core::{Clock, Nanos};
use rustix::time::{ClockId, Timespec};

/// `CLOCK_MONOTONIC`: the same for all processes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock starts at zero");
        let nanos = u64::try_from(now.tv_nsec).expect("nanoseconds are positive");
        Nanos(seconds * 1_000_000_000 + nanos)
    }
}

/// Nanoseconds since 1970, for the times of files; not for measuring.
#[must_use]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration as system calls take it; what does not fit is as good as for ever.
#[cfg_attr(loom, expect(dead_code, reason = "nothing waits for a time in a model"))]
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        let first = MonotonicClock.now();
        assert!(first <= MonotonicClock.now());
        assert_ne!(first, Nanos(0));
    }

    #[test]
    fn wall_is_this_century() {
        assert!(1_700_000_000_000_000_000 < wall_ns());
    }
}
