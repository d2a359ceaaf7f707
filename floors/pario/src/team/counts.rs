//! Counters of a handle: for tests, `PARIO_STATS` and benchmarks.
//!
//! Never: costs more than an addition. Always: a counter only grows.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! team_counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of the counters of a handle.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
        pub struct TeamCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct TeamCounters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl TeamCounters {
            pub(super) fn snapshot(&self) -> TeamCounts {
                TeamCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl TeamCounts {
            /// The difference to an earlier snapshot.
            #[must_use]
            pub fn since(&self, before: &TeamCounts) -> TeamCounts {
                TeamCounts { $($name: self.$name - before.$name,)* }
            }

            fn words(&self) -> Vec<String> {
                let all = [$((stringify!($name), self.$name),)*];
                all.iter().map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect()
            }
        }
    };
}

team_counts! {
    /// Collective calls.
    calls,
    /// Parts that members brought, empty ones included.
    parts,
    /// Work items.
    items,
    /// Parts that were joined with the part in front.
    joined,
    /// Parts that their members wrote themselves, without a meeting.
    own_parts,
    /// Bytes copied into the team's own buffer.
    copied_bytes,
    /// Read and write system calls on a plain file, or on lent objects of a partition. Not counted on a container: 0 there.
    system_calls,
    /// Waits of members that the spin did not end.
    waits,
    /// Nanoseconds of all waits, spinning included.
    wait_ns,
    /// Hints that said contiguous for parts that are not.
    false_hints,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Whether a variable is set to a true value.
fn is_enabled(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Prints the counters of a file that is closed, if `PARIO_STATS` is set.
pub(super) fn report(file: &str, counts: &TeamCounts) {
    if is_enabled("PARIO_STATS") {
        print_line(&format!("pario: team: {file}: {}", counts.words().join(", ")));
    }
}

/// Prints the chosen target and the reason, if `PARIO_EXPLAIN` is set.
pub(super) fn explain(file: &str, target: &str, why: &str) {
    if is_enabled("PARIO_EXPLAIN") {
        print_line(&format!("pario: team: {file}: {target}: {why}"));
    }
}

/// One whole line to the standard error.
pub(super) fn print_line(line: &str) {
    // An error here has no place where it could be reported.
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
