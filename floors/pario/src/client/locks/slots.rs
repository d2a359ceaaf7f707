//! What a mount has room for: how many wishes for locks may wait at the manager, and how much of a write reaches a server at once.

use std::sync::PoisonError;

use pario_core::limits::IN_FLIGHT_MAX;
use pario_core::{Fault, ServerIndex};

use super::super::mount::Mount;

/// Wishes for locks that wait at the manager at a time; more wait here.
const LOCKS_WAITING_MAX: usize = IN_FLIGHT_MAX / 2;

impl Mount {
    /// Bytes of one block that a server is given at once, in one record, one message or one system call.
    pub(in super::super) fn at_once_bytes(&self, server: ServerIndex) -> Result<usize, Fault> {
        let connection = self.connection(server)?;
        if !connection.shares_memory() {
            return self.transfer_bytes(server);
        }
        // Which plain files a cooperative cache lends is known only when it was asked.
        match connection.welcome().lends_writing && !self.serves_plain_files() {
            true => Ok(usize::MAX),
            false => Ok(self.outbox()?.record_bytes_max()),
        }
    }

    /// Room for one more wish for a lock that waits at the manager: the connection must have room for everything else.
    pub(in super::super) fn lock_slot(&self) -> LockSlot<'_> {
        let mut taken = self.lock_slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        while LOCKS_WAITING_MAX <= *taken {
            taken = self.lock_slots.1.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        LockSlot(self)
    }
}

/// See [`Mount::lock_slot`].
pub(in super::super) struct LockSlot<'a>(&'a Mount);

impl Drop for LockSlot<'_> {
    fn drop(&mut self) {
        *self.0.lock_slots.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.lock_slots.1.notify_one();
    }
}
