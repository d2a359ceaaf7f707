//! Reports to the manager the bytes of direct accesses (through lent descriptors): `pario status` shows their sum.
//!
//! Never: connects for it; fails a caller; waits for the reply, except 1 in 64; sends more than once per second while files are open.
//! Always: a byte is reported at most once, and the rest when files are closed or the session ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pario_core::{Nanos, ServerIndex};
use pario_net::message::Request;

use crate::client::session::state::Session;

/// Minimum age of the last report before the next one.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// From this many bytes on the report at close is immediate.
const REPORT_BYTES: u64 = 4 << 20;

/// The values already reported.
#[derive(Debug, Default)]
pub(in crate::client) struct DirectReport {
    reported_ns: AtomicU64,
    written: AtomicU64,
    read: AtomicU64,
}

impl Session {
    /// Bytes written and read directly so far.
    fn direct_bytes(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let read = load(&counters.direct_read_bytes) + load(&counters.mapped_read_bytes);
        (load(&counters.direct_write_bytes), read)
    }

    fn unreported_direct_bytes(&self) -> u64 {
        let (written, read) = self.direct_bytes();
        let told = &self.direct_report;
        (written + read)
            .saturating_sub(told.written.load(Ordering::Relaxed) + told.read.load(Ordering::Relaxed))
    }

    /// After an access: reports new bytes if the last report is old.
    pub(in crate::client) fn report_direct(&self, now: Nanos) {
        let told = &self.direct_report.reported_ns;
        let last = told.load(Ordering::Relaxed);
        if now.since(Nanos(last)) < REPORT_EVERY || self.unreported_direct_bytes() == 0 {
            return;
        }
        // One of the concurrent threads reports; the first access of a session starts the interval.
        if told.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() && last != 0 {
            self.send_direct_report();
        }
    }

    /// When a file is closed: reports new bytes if they are many.
    pub(in crate::client) fn report_direct_at_close(&self) {
        if REPORT_BYTES <= self.unreported_direct_bytes() {
            self.send_direct_report();
        }
    }

    /// Reports new bytes.
    pub(in crate::client) fn send_direct_report(&self) {
        let manager = ServerIndex::MANAGER;
        if self.serves_plain_files() || self.live_connection(manager).is_none_or(|link| link.has_ended()) {
            return;
        }
        let (written, read) = self.direct_bytes();
        let told = &self.direct_report;
        let written = written.saturating_sub(told.written.fetch_max(written, Ordering::Relaxed));
        let read = read.saturating_sub(told.read.fetch_max(read, Ordering::Relaxed));
        if written + read != 0
            && let Err(fault) = self.send_unawaited(manager, &Request::CountDirect { written, read })
        {
            tracing::debug!(%fault, "the byte count of direct accesses could not be reported to the manager");
        }
    }
}
