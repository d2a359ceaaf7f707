//! Observing and stopping a transfer.

use super::TreePath;

/// Receives the progress of a transfer, and may stop it. Called by several threads.
pub trait Observer: Sync {
    /// This many more bytes are to be moved.
    fn found(&self, _bytes: u64) {}

    /// This many bytes were moved.
    fn moved(&self, _bytes: u64) {}

    /// A file, directory or symbolic link was copied.
    fn copied(&self, _from: &TreePath, _to: &TreePath) {}

    /// A file or symbolic link was skipped by the options.
    fn skipped(&self, _to: &TreePath) {}

    /// The copy is complete; from now on all bytes are read back, and counted again from zero.
    fn verifying(&self) {}

    /// Whether to stop: the transfer ends within a piece, and removes temporary files.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Observes nothing, stops nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
