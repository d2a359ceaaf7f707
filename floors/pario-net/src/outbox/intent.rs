//! Announcing a direct write: see "Intent" in `docs/formats/outbox.md`.
//!
//! Always: an intent ends as done or void, whatever happens to the write; only its writer's death leaves it under way.

use std::sync::atomic::Ordering;

use pario_core::{Fault, ServerIndex};
use pario_sys::sync::{Place, fence};

use super::record::{INTENT_BYTES, IntentState, RECORD_HEAD_BYTES, RecordKind};
use super::writer::{Concern, Entry, Outbox, Progress, RecordMeta};
use super::{RECORD_ALIGN, cursor_at};

/// A direct write that was announced. Dropped without [`Intent::done`] it is void.
#[derive(Debug)]
pub struct Intent<'a> {
    outbox: &'a Outbox,
    position: u64,
    state: IntentState,
}

impl Outbox {
    /// Announces that `bytes` bytes at the file offset of `meta`, all on `server`, are about to be written directly. `None`: the
    /// server is taking just now; use a record.
    pub fn announce(
        &self,
        meta: RecordMeta,
        server: ServerIndex,
        bytes: u64,
        progress: Progress<'_>,
    ) -> Result<Option<Intent<'_>>, Fault> {
        let mut data = [0u8; INTENT_BYTES as usize];
        data[..8].copy_from_slice(&bytes.to_le_bytes());
        // The record itself is nothing to be woken for.
        let concerns = [Concern { server, bytes: 0 }];
        let entry = Entry { kind: RecordKind::Intent, meta, bytes: data.len() };
        let end = self.put(entry, &concerns, &mut |write| write(0, &data), progress)?;
        let position =
            end - (RECORD_HEAD_BYTES as u64 + u64::from(INTENT_BYTES)).next_multiple_of(RECORD_ALIGN);
        let intent = Intent { outbox: self, position, state: IntentState::Void };
        // Pairs with the server's fence between beginning a round and looking at the tails.
        fence(Place::Announced);
        let taking = self.cursor(server).is_none_or(|cursor| cursor.is_taking());
        Ok((!taking).then_some(intent))
    }
}

impl Outbox {
    /// Whether a server is in the middle of a round, so that a direct write announced now would come to nothing.
    #[must_use]
    pub fn is_taking(&self, server: ServerIndex) -> bool {
        self.cursor(server).is_some_and(|cursor| cursor.is_taking())
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

impl super::writer::Cursor {
    /// Whether the server is in the middle of a round.
    pub(super) fn is_taking(&self) -> bool {
        self.page.load_u64(cursor_at::ROUND, Ordering::Acquire) % 2 == 1
    }
}
