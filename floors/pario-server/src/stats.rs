//! Counters of a server, for `pario status`.
//!
//! Never: locks on the data path except for the latency histogram. Always: counters only grow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use pario_core::Nanos;
use pario_net::message::Request;
use serde::Serialize;

/// Longest distinguished latency: a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one server.
        #[derive(Debug)]
        pub struct ServerStats {
            $($name: AtomicU64,)*
            latency_us: Mutex<Histogram<u64>>,
        }

        /// A snapshot of the counters.
        #[derive(Clone, Debug, Default, Serialize)]
        pub struct StatsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Latency of requests in microseconds: median.
            pub latency_us_p50: u64,
            /// Latency of requests in microseconds: 99 of 100 are faster.
            pub latency_us_p99: u64,
            /// Latency of requests in microseconds: slowest.
            pub latency_us_max: u64,
        }

        impl ServerStats {
            /// All counters now.
            #[must_use]
            pub fn snapshot(&self) -> StatsSnapshot {
                let latency = self.latency_us.lock().unwrap_or_else(PoisonError::into_inner);
                StatsSnapshot {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    latency_us_p50: latency.value_at_quantile(0.5),
                    latency_us_p99: latency.value_at_quantile(0.99),
                    latency_us_max: latency.max(),
                }
            }
        }

        impl Default for ServerStats {
            fn default() -> Self {
                let latency = Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).expect("constant bounds are valid");
                ServerStats { $($name: AtomicU64::new(0),)* latency_us: Mutex::new(latency) }
            }
        }
    };
}

counters! {
    /// Requests answered.
    requests,
    /// Requests that failed.
    failures,
    /// Bytes received in messages.
    received_bytes,
    /// Bytes sent in messages.
    sent_bytes,
    /// Vectored writes into the store.
    staged_writes,
    /// Pieces joined by them.
    staged_pieces,
    /// Bytes of them.
    staged_bytes,
    /// Descriptors lent.
    lent,
    /// Errors of writes after the client's call had returned.
    background_errors,
    /// Accepted connections.
    connections,
    /// Connections ended because the peer violated the protocol or did not know the secret.
    refused,
    /// Bytes forwarded between clients that are bound to this server and other servers.
    relayed_bytes,
    /// Bytes that clients report to have written through lent descriptors, of all servers; counted at the manager.
    direct_written_bytes,
    /// Bytes that clients report to have read through them.
    direct_read_bytes,
}

impl ServerStats {
    /// One vectored write.
    pub(crate) fn staged(&self, pieces: u64, bytes: u64) {
        self.staged_writes.fetch_add(1, Ordering::Relaxed);
        self.staged_pieces.fetch_add(pieces, Ordering::Relaxed);
        self.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_background_error(&self) {
        self.background_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_lent(&self) {
        self.lent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_relayed(&self, bytes: u64) {
        self.relayed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A client's accesses that bypassed the servers.
    pub(crate) fn count_direct(&self, request: &Request) {
        if let Request::CountDirect { written, read } = request {
            self.direct_written_bytes.fetch_add(*written, Ordering::Relaxed);
            self.direct_read_bytes.fetch_add(*read, Ordering::Relaxed);
        }
    }

    /// One request answered.
    pub(crate) fn answered(&self, took: (Nanos, Nanos), bytes: (u64, u64), failed: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes.0, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes.1, Ordering::Relaxed);
        let took_us = u64::try_from(took.1.since(took.0).as_micros()).unwrap_or(u64::MAX);
        self.latency_us.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(took_us);
    }
}
