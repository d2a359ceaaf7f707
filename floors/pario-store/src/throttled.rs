//! A deliberately slow store around a fast one: limits bytes and calls per second.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pario_core::{Clock, Nanos};
use pario_sys::MonotonicClock;

use crate::error::StoreError;
use crate::layer::{Operation, StoreCall, StoreLayer};
use crate::store::{LendAccess, Store};
use crate::sync::lock;

/// Rates of a [`Throttled`] store; `None` is unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreRate {
    /// Bytes read and written per second.
    pub bytes_per_second: Option<u64>,
    /// Calls that touch an object, per second.
    pub calls_per_second: Option<u64>,
}

/// A delay below this is not slept: sleeps are rarely shorter than requested, and many small calls would each sleep too long. It
/// accumulates, so that the rate holds.
const SLACK: Duration = Duration::from_millis(1);
/// A caller that returns within this time after its sleep was only delayed by busy processors: the store is treated as if it had
/// continued its queue.
const LATE_NS: u64 = 10_000_000;

/// A store with the rate of one disk, which serves one call after the other.
pub struct Throttled {
    store: Box<dyn Store>,
    pace: StoreRate,
    clock: Arc<dyn Clock>,
    busy_until: Mutex<Nanos>,
}

impl std::fmt::Debug for Throttled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Throttled")
            .field("store", &self.store)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl Throttled {
    /// The store at that rate. It lends nothing, since loans would bypass the limit.
    #[must_use]
    pub fn new(store: Box<dyn Store>, pace: StoreRate) -> Throttled {
        Throttled::with_clock(store, pace, Arc::new(MonotonicClock))
    }

    /// The same by another clock, which must advance on its own or by another thread.
    #[must_use]
    pub fn with_clock(store: Box<dyn Store>, pace: StoreRate, clock: Arc<dyn Clock>) -> Throttled {
        Throttled { store, pace, clock, busy_until: Mutex::default() }
    }

    /// Sleeps for the duration of a call with so many bytes, after the calls before it.
    fn spend(&self, bytes: u64) {
        let cost = self.pace.cost_ns(bytes);
        if cost == 0 {
            return;
        }
        let end = {
            let mut busy_until = lock(&self.busy_until);
            let now = self.clock.now().0.saturating_sub(LATE_NS);
            let start = Nanos(now).max(*busy_until);
            *busy_until = Nanos(start.0.saturating_add(cost));
            *busy_until
        };
        loop {
            let left = end.since(self.clock.now());
            if left < SLACK {
                return;
            }
            std::thread::park_timeout(left.min(Duration::from_millis(10)));
        }
    }
}

impl StoreRate {
    fn cost_ns(&self, bytes: u64) -> u64 {
        let share = |amount: u64, per_second: Option<u64>| match per_second {
            Some(per_second) => u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1)),
            None => 0,
        };
        let cost = share(bytes, self.bytes_per_second) + share(1, self.calls_per_second);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

impl StoreLayer for Throttled {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    fn before(&self, call: &StoreCall) -> Result<(), StoreError> {
        match call.operation {
            // A read is charged after it, with the bytes that there were.
            Operation::Read | Operation::Lend | Operation::List | Operation::Space => {}
            Operation::Write
            | Operation::Length
            | Operation::Truncate
            | Operation::Remove
            | Operation::Flush
            | Operation::Sync
            | Operation::SyncAll => self.spend(call.bytes),
        }
        Ok(())
    }

    fn after_read(&self, bytes: u64) {
        self.spend(bytes);
    }

    fn lends(&self, _access: LendAccess) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use pario_core::{Generation, InodeId, LocalOffset, ObjectId};
    use pario_sys::MemoryPiece;

    use super::*;
    use crate::conformance;
    use crate::memory::MemoryStore;
    use crate::store::Lent;

    /// A clock that advances a little at each reading.
    struct SteppingClock {
        now_ns: AtomicU64,
        step_ns: u64,
    }

    impl SteppingClock {
        fn new(step_ns: u64) -> Arc<SteppingClock> {
            Arc::new(SteppingClock { now_ns: AtomicU64::new(0), step_ns })
        }

        fn looks(&self) -> u64 {
            self.now_ns.load(Ordering::SeqCst) / self.step_ns
        }
    }

    impl Clock for SteppingClock {
        fn now(&self) -> Nanos {
            Nanos(self.now_ns.fetch_add(self.step_ns, Ordering::SeqCst))
        }
    }

    #[test]
    fn conforms_at_any_pace() {
        let pace = StoreRate { bytes_per_second: Some(20 << 30), calls_per_second: Some(1_000_000) };
        conformance::all(&|| Box::new(Throttled::new(Box::new(MemoryStore::new(64 << 20)), pace)));
    }

    #[test]
    fn small_calls_rest_together() {
        // A call costs 0.1 ms of a clock that advances by 0.01 ms per reading.
        let pace = StoreRate { bytes_per_second: Some(10_000_000), calls_per_second: None };
        let clock = SteppingClock::new(10_000);
        let store = MemoryStore::new(1 << 20);
        let store = Throttled::with_clock(Box::new(store), pace, Arc::clone(&clock) as Arc<dyn Clock>);
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        let write = || store.write(object, LocalOffset(0), &[MemoryPiece::from(&[1; 1000][..])]).unwrap();
        (0..9).for_each(|_| write());
        assert_eq!(clock.looks(), 18, "no call sleeps until 1 ms has accumulated");
        (9..200).for_each(|_| write());
        assert!((1900..2000).contains(&clock.looks()), "the pace holds: {} looks", clock.looks());
    }

    #[test]
    fn bytes_and_calls_take_their_time() {
        let pace = StoreRate { bytes_per_second: Some(1_000_000), calls_per_second: Some(100) };
        let clock = SteppingClock::new(1_000_000);
        let store = MemoryStore::new(1 << 20);
        let store = Throttled::with_clock(Box::new(store), pace, Arc::clone(&clock) as Arc<dyn Clock>);
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        for _ in 0..3 {
            store.write(object, LocalOffset(0), &[MemoryPiece::from(&[1; 5000][..])]).unwrap();
        }
        // Three calls of 10 ms for the call and 5 ms for its bytes; the last of them may end early by the slack.
        let took = Duration::from_millis(clock.looks());
        assert!((Duration::from_millis(44)..Duration::from_millis(60)).contains(&took), "{took:?}");
        assert!(matches!(store.lend(object, LendAccess::Read).unwrap(), Lent::NotLent));
    }
}
