//! Announcing a direct write: see "Intent" in `docs/formats/outbox.md`.
//!
//! Always: an intent ends as done or void, for every outcome of the write; only its writer's death leaves it under way.

use pario_core::{Fault, ServerIndex};
use pario_sys::sync::{FenceSite, fence};

use super::RECORD_ALIGN;
use super::readers::{Concern, WaitCheck};
use super::record::{INTENT_BYTES, IntentState, RECORD_HEAD_BYTES, RecordKind};
use super::writer::{Outbox, RecordMeta, RingEntry};

/// A direct write that was announced. Dropped without [`Intent::done`] it is void.
#[derive(Debug)]
pub struct Intent<'a> {
    outbox: &'a Outbox,
    position: u64,
    state: IntentState,
}

impl Outbox {
    /// Announces that `bytes` bytes at the file offset of `meta`, all on `server`, are about to be written directly. `None`: the server
    /// is draining now; use a record.
    pub fn announce(
        &self,
        meta: RecordMeta,
        server: ServerIndex,
        bytes: u64,
        progress: WaitCheck<'_>,
    ) -> Result<Option<Intent<'_>>, Fault> {
        let mut data = [0u8; INTENT_BYTES as usize];
        data[..8].copy_from_slice(&bytes.to_le_bytes());
        // The record itself needs no wake-up.
        let concerns = [Concern { server, bytes: 0 }];
        let entry = RingEntry { kind: RecordKind::Intent, meta, bytes: data.len() };
        let end = self.append(entry, &concerns, &mut |write| write(0, &data), progress)?.end;
        let position =
            end - (RECORD_HEAD_BYTES as u64 + u64::from(INTENT_BYTES)).next_multiple_of(RECORD_ALIGN);
        let intent = Intent { outbox: self, position, state: IntentState::Void };
        // Pairs with the server's fence between beginning a round and looking at the tails.
        fence(FenceSite::Announced);
        let taking = self.cursor(server).is_none_or(|cursor| cursor.is_draining());
        Ok((!taking).then_some(intent))
    }
}

impl Outbox {
    /// Whether a server is in the middle of a round, so that a direct write announced now would be refused.
    #[must_use]
    pub fn is_draining(&self, server: ServerIndex) -> bool {
        self.cursor(server).is_some_and(|cursor| cursor.is_draining())
    }
}

impl Intent<'_> {
    /// The bytes are in the store.
    pub fn done(mut self) {
        self.state = IntentState::Done;
    }
}

impl Drop for Intent<'_> {
    fn drop(&mut self) {
        self.outbox.set_intent(self.position, self.state);
    }
}
