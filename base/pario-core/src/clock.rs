//! Time as an argument. The machine's clock is in `pario-sys`; tests and the simulator turn a [`ManualClock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of a monotonic clock that all processes of a node share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// This moment and `milliseconds` more.
    #[must_use]
    pub fn plus_ms(self, milliseconds: u64) -> Nanos {
        Nanos(self.0.saturating_add(milliseconds.saturating_mul(1_000_000)))
    }

    /// Time since `earlier`, zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Nanos;
}

/// A clock that moves when told to.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::SeqCst))
    }
}
