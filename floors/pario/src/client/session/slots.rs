//! Limits of a session: lock requests waiting at the manager, and the bytes of a write that reach a server as one unit.

use std::sync::PoisonError;

use pario_core::limits::IN_FLIGHT_MAX;
use pario_core::{Fault, ServerIndex};

use crate::client::session::state::Session;

/// Lock requests waiting at the manager; further ones wait in this process.
const LOCKS_WAITING_MAX: usize = IN_FLIGHT_MAX / 2;

impl Session {
    /// Bytes of one block that a server receives as one unit: in one record, one message or one system call.
    pub(in crate::client) fn atomic_bytes(&self, server: ServerIndex) -> Result<usize, Fault> {
        let connection = self.connection(server)?;
        if !connection.shares_memory() {
            return self.transfer_bytes(server);
        }
        // Which plain files a file cache lends is known only after a request.
        match connection.welcome().lends_writing && !self.serves_plain_files() {
            true => Ok(usize::MAX),
            false => Ok(self.outbox()?.record_bytes_max()),
        }
    }

    /// A slot for one more lock request waiting at the manager: the connection needs free slots for all other requests.
    pub(in crate::client) fn lock_slot(&self) -> LockSlot<'_> {
        let mut taken = self.lock_slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        while LOCKS_WAITING_MAX <= *taken {
            taken = self.lock_slots.1.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        LockSlot(self)
    }
}

/// See [`Session::lock_slot`].
pub(in crate::client) struct LockSlot<'a>(&'a Session);

impl Drop for LockSlot<'_> {
    fn drop(&mut self) {
        *self.0.lock_slots.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.lock_slots.1.notify_one();
    }
}
