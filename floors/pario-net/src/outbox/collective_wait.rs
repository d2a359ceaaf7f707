//! A thread in a collective call: servers see that it waits together with its group.
//!
//! Always: the announcement ends with the value that stands for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Fault, ServerIndex};

use super::outbox_at;
use super::readers::WaitCheck;
use super::writer::Outbox;

/// A thread is in a collective call; see [`Outbox::begin_collective_wait`].
#[derive(Debug)]
pub struct CollectiveWait(Arc<Outbox>);

impl CollectiveWait {
    pub(super) fn begin(outbox: Arc<Outbox>) -> CollectiveWait {
        outbox.memory().raise(outbox_at::IN_COLLECTIVE, Ordering::Relaxed);
        CollectiveWait(outbox)
    }

    /// Waits until `server` has drained all records up to `position`, as part of the call.
    pub fn wait_drained(
        &self,
        server: ServerIndex,
        position: u64,
        progress: WaitCheck<'_>,
    ) -> Result<(), Fault> {
        let memory = self.0.memory();
        memory.raise(outbox_at::WAITING_IN_COLLECTIVE, Ordering::Relaxed);
        let waited = self.0.wait_drained(server, position, progress);
        memory.lower(outbox_at::WAITING_IN_COLLECTIVE);
        waited
    }
}

impl Drop for CollectiveWait {
    fn drop(&mut self) {
        self.0.memory().lower(outbox_at::IN_COLLECTIVE);
    }
}
