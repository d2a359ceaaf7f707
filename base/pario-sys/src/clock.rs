//! The machine's clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pario_core::{Clock, Nanos};
use rustix::time::{ClockId, Timespec};

/// `CLOCK_MONOTONIC`: the same for all processes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        #[cfg(debug_assertions)]
        READ.with(|count| count.set(count.get() + 1));
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock starts at zero");
        let nanos = u64::try_from(now.tv_nsec).expect("nanoseconds are positive");
        Nanos(seconds * 1_000_000_000 + nanos)
    }
}

#[cfg(debug_assertions)]
std::thread_local! {
    static READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How often this thread has read the monotonic clock, for tests of hot paths.
#[cfg(debug_assertions)]
#[must_use]
pub fn reads_of_this_thread() -> u64 {
    READ.with(std::cell::Cell::get)
}

/// The inode that the kernel gives to the time namespace in which the machine booted.
const FIRST_NAMESPACE: u64 = 0xefff_fffa;

/// The time namespace of this process, by its inode; `None` for the one in which the machine booted. Monotonic times, and the
/// start times of processes, can be compared only within one.
#[must_use]
pub fn time_namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/time").ok()?;
    let number = link.to_str()?.strip_prefix("time:[")?.strip_suffix(']')?.parse().ok()?;
    (number != FIRST_NAMESPACE).then_some(number)
}

/// Nanoseconds since 1970, for the times of files; not for measuring.
#[must_use]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration as `timespec`; one that does not fit becomes the maximum.
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
