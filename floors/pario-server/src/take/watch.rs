//! Where a round's time went: whether the server worked, or waited for its store.
//!
//! Never: costs more than a look at a small file of the kernel's before a round and after it. Always: time that a thread waited for a
//! processor is not taken for waiting for the store; where the kernel does not tell, no store is slow.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use pario_core::Nanos;

/// Shorter rounds say nothing.
const ROUND_MIN: Duration = Duration::from_millis(1);
/// What the kernel tells about a thread: three numbers.
const TEXT_BYTES_MAX: usize = 80;

/// What a thread had done by a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    at: Nanos,
    /// Time on a processor and in the queue for one.
    busy: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watch {
    told: Option<File>,
    store_is_slow: bool,
}

impl Watch {
    /// Watches the thread that calls it.
    pub(super) fn of_this_thread() -> Watch {
        Watch { told: File::open("/proc/thread-self/schedstat").ok(), store_is_slow: false }
    }

    /// How far the thread has come.
    pub(super) fn look(&self, now: Nanos) -> Option<Moment> {
        let mut text = [0; TEXT_BYTES_MAX];
        let bytes = self.told.as_ref()?.read_at(&mut text, 0).ok()?;
        Some(Moment { at: now, busy: busy(std::str::from_utf8(&text[..bytes]).ok()?)? })
    }

    /// A round that wrote something lasted from one moment to another.
    pub(super) fn note(&mut self, began: Option<Moment>, ended: Option<Moment>) {
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

    fn moment(at_ms: u64, busy_ms: u64) -> Option<Moment> {
        Some(Moment { at: Nanos(at_ms * 1_000_000), busy: Duration::from_millis(busy_ms) })
    }

    #[test]
    fn a_store_is_slow_when_it_is_waited_for_longer_than_worked() {
        let mut watch = Watch::default();
        watch.note(moment(10, 3), moment(20, 7));
        assert!(watch.store_is_slow(), "4 of 10 ms were work");
        watch.note(moment(20, 7), moment(30, 13));
        assert!(!watch.store_is_slow(), "6 of 10 ms were work");
    }

    #[test]
    fn short_rounds_and_a_silent_kernel_change_nothing() {
        let mut watch = Watch::default();
        watch.note(moment(10, 3), moment(20, 3));
        let short = Some(Moment { at: Nanos(20_500_000), busy: Duration::from_millis(4) });
        watch.note(moment(20, 3), short);
        watch.note(None, moment(30, 4));
        assert!(watch.store_is_slow());
        assert_eq!(watch.look(Nanos(0)), None, "nothing is watched");
    }

    #[test]
    fn the_kernel_tells_of_a_thread_what_it_did() {
        assert_eq!(busy("1500 500 7\n"), Some(Duration::from_nanos(2000)));
        assert_eq!((busy(""), busy("12"), busy("a b c")), (None, None, None));
        let watch = Watch::of_this_thread();
        let first = watch.look(Nanos(1)).expect("this kernel tells");
        let worked = (0..200_000u64).map(std::hint::black_box).fold(0, u64::wrapping_add);
        assert_ne!(worked, 1);
        assert!(first.busy <= watch.look(Nanos(2)).expect("this kernel tells").busy);
    }
}
