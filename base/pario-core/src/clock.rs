//! Time as an argument. The machine's clock is in `pario-sys`; the simulator passes [`Nanos`] of its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of a monotonic clock that all processes of a node share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// This time plus `milliseconds`.
    #[must_use]
    pub fn plus_ms(self, milliseconds: u64) -> Nanos {
        Nanos(self.0.saturating_add(milliseconds.saturating_mul(1_000_000)))
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Nanos;
}
