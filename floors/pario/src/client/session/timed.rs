//! Time spent in calls, counted; after an access the direct bytes may be reported to the manager.
//!
//! Never: reports during an access. Always: time is counted once.

use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::{Clock, Nanos};
use pario_sys::clock::MonotonicClock;

use crate::client::session::state::Session;

impl Session {
    /// Adds the time until it is dropped to a counter.
    pub(in crate::client) fn timed<'a>(&self, counter: &'a AtomicU64) -> Timed<'a> {
        Timed { access_of: None, counter, began: self.clock.now(), ended: None }
    }

    /// The same for a data access; the caller holds no lock of the session when it is dropped.
    pub(in crate::client) fn timed_access<'a>(&'a self, counter: &'a AtomicU64) -> Timed<'a> {
        Timed { access_of: Some(self), counter, began: self.clock.now(), ended: None }
    }
}

/// A running time measurement.
pub(in crate::client) struct Timed<'a> {
    /// Set for an access: direct bytes are reported when it ends.
    access_of: Option<&'a Session>,
    counter: &'a AtomicU64,
    began: Nanos,
    /// When the access ended, if known before the drop.
    ended: Option<Nanos>,
}

impl Timed<'_> {
    /// The access ended at a time that was read already, if at all: the clock is not read again.
    pub(in crate::client) fn end_at(mut self, ended: Option<Nanos>) {
        self.ended = ended;
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let now = self.ended.unwrap_or_else(|| MonotonicClock.now());
        self.counter.fetch_add(now.0.saturating_sub(self.began.0), Ordering::Relaxed);
        if let Some(mount) = self.access_of {
            mount.report_direct(now);
        }
    }
}
