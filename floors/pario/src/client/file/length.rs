//! A file's length as this process knows it, and the end of its writes that the manager does not know yet.
//!
//! Never: shorter than this process's own writes of the current generation. Always: an end that grew during a report stays unreported.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use pario_sys::mutex::lock;

/// See the module.
#[derive(Debug)]
pub(in crate::client) struct FileLength {
    known: AtomicU64,
    /// Largest end of a write that the manager does not know; 0 if there is none.
    unreported_end: AtomicU64,
    /// Held during a report: the manager takes each report as a modification of the file, so an end must not be reported twice.
    reporting: Mutex<()>,
}

impl FileLength {
    pub(super) fn new(known: u64) -> FileLength {
        FileLength {
            known: AtomicU64::new(known),
            unreported_end: AtomicU64::new(0),
            reporting: Mutex::default(),
        }
    }

    /// The length as far as this process knows.
    pub(in crate::client) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// The length was set, or measured.
    pub(in crate::client) fn set(&self, bytes: u64) {
        self.known.store(bytes, Ordering::Release);
    }

    /// The file is at least this long. Returns the length known before.
    pub(in crate::client) fn grow(&self, bytes: u64) -> u64 {
        self.known.fetch_max(bytes, Ordering::AcqRel)
    }

    /// A write ended at `end`.
    pub(in crate::client) fn note_write_end(&self, end: u64) {
        self.unreported_end.fetch_max(end, Ordering::AcqRel);
        self.known.fetch_max(end, Ordering::AcqRel);
    }

    /// Largest end of a write that the manager does not know; 0 if there is none.
    pub(in crate::client) fn unreported_end(&self) -> u64 {
        self.unreported_end.load(Ordering::Acquire)
    }

    /// The file was truncated: earlier writes do not determine its length.
    pub(super) fn forget_writes(&self) {
        self.unreported_end.store(0, Ordering::Release);
    }

    /// One report at a time; from [`FileLength::end_to_report`] to [`FileLength::end_reported`].
    pub(in crate::client) fn begin_report(&self) -> MutexGuard<'_, ()> {
        lock(&self.reporting)
    }

    /// The length to report to the manager. The caller calls [`FileLength::end_reported`] after the report.
    pub(in crate::client) fn end_to_report(&self) -> Option<u64> {
        Some(self.unreported_end()).filter(|end| *end != 0)
    }

    /// The manager knows `end`; a write that went further meanwhile is still unreported.
    pub(in crate::client) fn end_reported(&self, end: Option<u64>) {
        if let Some(end) = end {
            // Fails if the end has grown: then the new end is unreported.
            let _ = self.unreported_end.compare_exchange(end, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_grew_during_its_report_stays_unreported() {
        let length = FileLength::new(5);
        length.note_write_end(10);
        let told = length.end_to_report();
        assert_eq!((told, length.known()), (Some(10), 10));
        length.note_write_end(12);
        length.end_reported(told);
        assert_eq!(length.end_to_report(), Some(12));
        length.end_reported(Some(12));
        assert_eq!((length.end_to_report(), length.known()), (None, 12));
    }
}
