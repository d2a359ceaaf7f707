//! Counts of callbacks and bytes, printed at exit with `PARIO_STATS=1`: the proof that Pario served.

use std::sync::atomic::{AtomicU64, Ordering};

/// Callbacks and bytes that are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServedCount {
    /// Files created or opened.
    Files,
    /// Callbacks of groups.
    Groups,
    /// Callbacks of datasets, transfers excluded.
    Datasets,
    /// Transfers of elements from the program.
    Writes,
    /// Transfers of elements to the program.
    Reads,
    /// Bytes from the program.
    BytesWritten,
    /// Bytes to the program.
    BytesRead,
    /// Callbacks of attributes.
    Attributes,
    /// Callbacks of links.
    Links,
    /// Callbacks of objects and committed types.
    Objects,
    /// Variable-length values.
    Blobs,
    /// Calls of older functions that HDF5 refuses to connectors.
    Compatibility,
}

const NAMES: [&str; 12] = [
    "files",
    "groups",
    "datasets",
    "writes",
    "reads",
    "bytes_written",
    "bytes_read",
    "attributes",
    "links",
    "objects",
    "blobs",
    "compatibility",
];
static COUNTS: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];

/// Adds to a count.
pub(crate) fn add(count: ServedCount, value: u64) {
    COUNTS[count as usize].fetch_add(value, Ordering::Relaxed);
}

/// Whether counts are printed at exit.
pub(crate) fn wanted() -> bool {
    std::env::var("PARIO_STATS").is_ok_and(|value| value == "1")
}

/// Prints the counts to standard error, one line.
pub(crate) fn print() {
    let counts = NAMES.iter().zip(&COUNTS);
    let shown: Vec<String> =
        counts.map(|(name, count)| format!("{name}={}", count.load(Ordering::Relaxed))).collect();
    eprintln!("pario hdf5: {}", shown.join(" "));
}
