//! Observing and stopping an examination or a repair.

use crate::transfer::{TransferError, TransferResult};

/// Receives the progress of an examination, and may stop it.
pub trait Watch {
    /// An inode or object was examined.
    fn examined(&self) {}

    /// This many stored bytes were compared with their checksums.
    fn compared(&self, _bytes: u64) {}

    /// A step of a repair failed; the others continue.
    fn failed(&self, _error: TransferError) {}

    /// Whether to stop.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Observes nothing, stops nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// Fails if the caller stopped it.
pub(super) fn check_stopped(watch: &dyn Watch) -> TransferResult {
    if watch.is_stopped() { Err(TransferError::Stopped) } else { Ok(()) }
}
