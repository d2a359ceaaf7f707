//! Store-speed detector: whether a round's time was spent on work or on waiting for the store.
//!
//! Never: costs more than one read of a small kernel file before and after a round. Always: time that the thread waited for a processor
//! does not count as waiting for the store; where the kernel gives no numbers, no store is slow.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use pario_core::Nanos;

/// Shorter rounds are ignored.
const ROUND_MIN: Duration = Duration::from_millis(1);
/// Size limit of `schedstat`: three numbers.
const TEXT_BYTES_MAX: usize = 80;

/// Processor time of a thread at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ThreadTimes {
    at: Nanos,
    /// Time on a processor and in the queue for one.
    busy: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StoreSpeed {
    schedstat: Option<File>,
    store_is_slow: bool,
}

impl StoreSpeed {
    /// For the calling thread.
    pub(super) fn of_this_thread() -> StoreSpeed {
        StoreSpeed { schedstat: File::open("/proc/thread-self/schedstat").ok(), store_is_slow: false }
    }

    /// Current times of the thread.
    pub(super) fn sample(&self, now: Nanos) -> Option<ThreadTimes> {
        let mut text = [0; TEXT_BYTES_MAX];
        let bytes = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        Some(ThreadTimes { at: now, busy: busy(std::str::from_utf8(&text[..bytes]).ok()?)? })
    }

    /// A round that wrote data lasted from `began` to `ended`.
    pub(super) fn note(&mut self, began: Option<ThreadTimes>, ended: Option<ThreadTimes>) {
        let Some((began, ended)) = began.zip(ended) else { return };
        let took = ended.at.since(began.at);
        if ROUND_MIN <= took {
            let waited = took.saturating_sub(ended.busy.saturating_sub(began.busy));
            self.store_is_slow = took < 2 * waited;
        }
    }

    /// Whether the last round spent more time on waiting for the store than on work.
    pub(super) fn store_is_slow(&self) -> bool {
        self.store_is_slow
    }
}

/// The first two numbers are nanoseconds on a processor and in the queue for one.
fn busy(text: &str) -> Option<Duration> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, queued) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Duration::from_nanos(ran.checked_add(queued)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at_ms: u64, busy_ms: u64) -> Option<ThreadTimes> {
        Some(ThreadTimes { at: Nanos(at_ms * 1_000_000), busy: Duration::from_millis(busy_ms) })
    }

    #[test]
    fn a_store_is_slow_when_it_is_waited_for_longer_than_worked() {
        let mut watch = StoreSpeed::default();
        watch.note(moment(10, 3), moment(20, 7));
        assert!(watch.store_is_slow(), "4 of 10 ms were work");
        watch.note(moment(20, 7), moment(30, 13));
        assert!(!watch.store_is_slow(), "6 of 10 ms were work");
    }

    #[test]
    fn short_rounds_and_a_silent_kernel_change_nothing() {
        let mut watch = StoreSpeed::default();
        watch.note(moment(10, 3), moment(20, 3));
        let short = Some(ThreadTimes { at: Nanos(20_500_000), busy: Duration::from_millis(4) });
        watch.note(moment(20, 3), short);
        watch.note(None, moment(30, 4));
        assert!(watch.store_is_slow());
        assert_eq!(watch.sample(Nanos(0)), None, "nothing is watched");
    }

    #[test]
    fn the_kernel_tells_of_a_thread_what_it_did() {
        assert_eq!(busy("1500 500 7\n"), Some(Duration::from_nanos(2000)));
        assert_eq!((busy(""), busy("12"), busy("a b c")), (None, None, None));
        let watch = StoreSpeed::of_this_thread();
        let first = watch.sample(Nanos(1)).expect("this kernel tells");
        let worked = (0..200_000u64).map(std::hint::black_box).fold(0, u64::wrapping_add);
        assert_ne!(worked, 1);
        assert!(first.busy <= watch.sample(Nanos(2)).expect("this kernel tells").busy);
    }
}
