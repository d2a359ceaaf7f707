//! What the direct store knows of one object beside its blocks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::ObjectId;

use crate::error::StoreError;
use crate::sync::{Gate, lock};

/// No failure to wait out.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct DirectObject {
    pub(super) id: ObjectId,
    pub(super) gate: Gate,
    /// One past the last byte written, on the disk or still in the cache. Only grows; a cut makes another object.
    length: AtomicU64,
    error: Mutex<Option<StoreError>>,
    /// The store's count of cuts and removals when staging found no room: until it moves, trying again is no use.
    no_room_at: AtomicU64,
}

impl DirectObject {
    pub(super) fn new(id: ObjectId, length: u64) -> DirectObject {
        DirectObject {
            id,
            gate: Gate::default(),
            length: AtomicU64::new(length),
            error: Mutex::default(),
            no_room_at: AtomicU64::new(NEVER),
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    pub(super) fn grow(&self, length: u64) {
        self.length.fetch_max(length, Ordering::AcqRel);
    }

    /// Keeps an error of the background for whoever comes next; the first one, if several.
    pub(super) fn keep_error(&self, error: StoreError, freed: u64) {
        if error.is_full() {
            self.no_room_at.store(freed, Ordering::Release);
        }
        lock(&self.error).get_or_insert(error);
    }

    /// Hands out the kept error, once; staging may try again.
    pub(super) fn take_error(&self) -> Result<(), StoreError> {
        self.no_room_at.store(NEVER, Ordering::Release);
        lock(&self.error).take().map_or(Ok(()), Err)
    }

    pub(super) fn has_error(&self) -> bool {
        lock(&self.error).is_some()
    }

    /// Passes a kept error on to the object that this one became.
    pub(super) fn inherit_error(&self, from: &DirectObject) {
        *lock(&self.error) = lock(&from.error).take();
    }

    /// Whether staging found no room and nothing was freed since.
    pub(super) fn waits_for_room(&self, freed: u64) -> bool {
        self.no_room_at.load(Ordering::Acquire) == freed
    }
}
