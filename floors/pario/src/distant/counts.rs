//! FileCounters of a distant or shared file in one process: for tests, `PARIO_STATS` and benchmarks.
//!
//! Always: a line of the report is in the form volume, time summed over calls, rate.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::{Clock, Nanos};
use pario_sys::MonotonicClock;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// FileCounters of one file in one process.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct DistantCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct FileCounters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl FileCounters {
            /// The values now.
            pub(super) fn values(&self) -> DistantCounts {
                DistantCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Parts of accesses to files of this process.
    own,
    /// Parts of accesses through lent descriptors.
    near,
    /// Parts of accesses by message.
    far,
    /// Messages for data.
    data_messages,
    /// Messages for descriptors.
    lend_messages,
    /// Other messages: length, cut, sync, opening, names.
    other_messages,
    /// Rounds in which all homes were asked for the length.
    measures,
    /// Read calls.
    reads,
    /// Bytes they returned.
    read_bytes,
    /// Write calls.
    writes,
    /// Bytes written.
    written_bytes,
    /// Calls that returned a request.
    started,
    /// Waits for a request that was not complete.
    waits,
    /// Nanoseconds inside calls and waits.
    ns,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Adds the time of a call to a counter when it ends.
pub(super) struct CallTime<'a> {
    counters: &'a FileCounters,
    began: Option<Nanos>,
}

impl<'a> CallTime<'a> {
    /// Only counted where it is reported: a call that the page cache serves takes less than a microsecond.
    pub(super) fn begin(counters: &'a FileCounters, counted: bool) -> CallTime<'a> {
        CallTime { counters, began: counted.then(|| MonotonicClock.now()) }
    }
}

impl Drop for CallTime<'_> {
    fn drop(&mut self) {
        if let Some(began) = self.began {
            add(
                &self.counters.ns,
                u64::try_from(MonotonicClock.now().since(began).as_nanos()).unwrap_or(u64::MAX),
            );
        }
    }
}

/// Whether a variable is set to a true value.
pub(super) fn is_enabled(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Prints the counters of a file that ends.
#[expect(clippy::cast_precision_loss, reason = "a report for people")]
pub(super) fn report(name: &str, rank: usize, counts: &DistantCounts) {
    let bytes = counts.read_bytes + counts.written_bytes;
    let seconds = counts.ns as f64 / 1e9;
    let rate = if 0.0 < seconds { bytes as f64 / 1e6 / seconds } else { 0.0 };
    print_line(&format!(
        "pario: distant: {name}: rank {rank}: {:.3} MB in {} reads and {} writes, {seconds:.3} s, {rate:.3} MB/s; own {}, near {}, far {}; messages {} for data, {} for descriptors, {} others; length asked {} times; {} started, {} waits",
        bytes as f64 / 1e6,
        counts.reads,
        counts.writes,
        counts.own,
        counts.near,
        counts.far,
        counts.data_messages,
        counts.lend_messages,
        counts.other_messages,
        counts.measures,
        counts.started,
        counts.waits,
    ));
}

/// One whole line to the standard error.
pub(super) fn print_line(line: &str) {
    // An error here has no place where it could be reported.
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
