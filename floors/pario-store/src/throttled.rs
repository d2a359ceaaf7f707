//! A store that is slow on purpose, around a fast one: so many bytes and so many calls a second.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pario_core::{Clock, Generation, InodeId, LocalOffset, Nanos, ObjectId, Space};
use pario_sys::file_map::Scattered;
use pario_sys::{MonotonicClock, Piece};

use crate::error::StoreError;
use crate::files::{scattered_bytes, total_bytes};
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::lock;

/// What a [`Throttled`] store gets through; `None` is without limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// Bytes read and written in a second.
    pub bytes_per_second: Option<u64>,
    /// Calls that touch an object in a second.
    pub calls_per_second: Option<u64>,
}

/// Behind by less than this, nobody waits: a rest is never much shorter than asked for, and many small calls would each rest too long.
/// What is not waited for stays due, so that the pace holds.
const SLACK: Duration = Duration::from_millis(1);
/// Whoever comes back so soon after its rest was over came late only because the processors were busy, as if the store had gone on with
/// what lay in its queue.
const LATE_NS: u64 = 10_000_000;

/// A store that takes its time: like one disk, it does one thing after the other.
pub struct Throttled {
    store: Box<dyn Store>,
    pace: Pace,
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
    /// The store at that pace. It lends nothing, since loans would know no pace.
    #[must_use]
    pub fn new(store: Box<dyn Store>, pace: Pace) -> Throttled {
        Throttled::with_clock(store, pace, Arc::new(MonotonicClock))
    }

    /// The same by another clock, which must move on its own or by another thread.
    #[must_use]
    pub fn with_clock(store: Box<dyn Store>, pace: Pace, clock: Arc<dyn Clock>) -> Throttled {
        Throttled { store, pace, clock, busy_until: Mutex::default() }
    }

    /// Waits for as long as a call with so many bytes takes, after those before it.
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

impl Pace {
    fn cost_ns(&self, bytes: u64) -> u64 {
        let share = |amount: u64, per_second: Option<u64>| match per_second {
            Some(per_second) => u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1)),
            None => 0,
        };
        let cost = share(bytes, self.bytes_per_second) + share(1, self.calls_per_second);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

impl Store for Throttled {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[Piece<'_>]) -> Result<(), StoreError> {
        self.spend(total_bytes(pieces));
        self.store.write(object, at, pieces)
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        self.spend(scattered_bytes(pieces));
        self.store.write_scattered(object, pieces)
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let bytes = self.store.read(object, at, target)?;
        self.spend(bytes as u64);
        Ok(bytes)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.spend(0);
        self.store.length(object)
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        self.spend(0);
        self.store.truncate(inode, from, to, bytes)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        self.spend(0);
        self.store.remove(object)
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.spend(0);
        self.store.flush(object)
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.spend(0);
        self.store.sync(object)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.spend(0);
        self.store.sync_all()
    }

    fn lend(&self, _object: ObjectId, _access: LendAccess) -> Result<Lent, StoreError> {
        Ok(Lent::NotLent)
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        self.store.list(after, limit)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.store.space()
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::conformance;
    use crate::memory::MemoryStore;

    /// Time that passes a little whenever somebody looks.
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
        let pace = Pace { bytes_per_second: Some(20 << 30), calls_per_second: Some(1_000_000) };
        conformance::all(&|| Box::new(Throttled::new(Box::new(MemoryStore::new(64 << 20)), pace)));
    }

    #[test]
    fn small_calls_rest_together() {
        // A call costs 0.1 ms of a clock that moves by 0.01 ms a look.
        let pace = Pace { bytes_per_second: Some(10_000_000), calls_per_second: None };
        let clock = SteppingClock::new(10_000);
        let store = MemoryStore::new(1 << 20);
        let store = Throttled::with_clock(Box::new(store), pace, Arc::clone(&clock) as Arc<dyn Clock>);
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        let write = || store.write(object, LocalOffset(0), &[Piece::from(&[1; 1000][..])]).unwrap();
        (0..9).for_each(|_| write());
        assert_eq!(clock.looks(), 18, "nobody rests until a millisecond is due");
        (9..200).for_each(|_| write());
        assert!((1900..2000).contains(&clock.looks()), "the pace holds: {} looks", clock.looks());
    }

    #[test]
    fn bytes_and_calls_take_their_time() {
        let pace = Pace { bytes_per_second: Some(1_000_000), calls_per_second: Some(100) };
        let clock = SteppingClock::new(1_000_000);
        let store = MemoryStore::new(1 << 20);
        let store = Throttled::with_clock(Box::new(store), pace, Arc::clone(&clock) as Arc<dyn Clock>);
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        for _ in 0..3 {
            store.write(object, LocalOffset(0), &[Piece::from(&[1; 5000][..])]).unwrap();
        }
        // Three calls of 10 ms for the call and 5 ms for its bytes, the last of which may go ahead a little.
        let took = Duration::from_millis(clock.looks());
        assert!((Duration::from_millis(44)..Duration::from_millis(60)).contains(&took), "{took:?}");
        assert!(matches!(store.lend(object, LendAccess::Read).unwrap(), Lent::NotLent));
    }
}
