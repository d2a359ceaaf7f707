//! State of one object in the direct store, beside its blocks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::ObjectId;

use crate::error::StoreError;
use crate::sync::{ObjectGate, lock};

/// No write-back failure.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct DirectObject {
    pub(super) id: ObjectId,
    pub(super) gate: ObjectGate,
    /// One past the last byte written, on the disk or still in the cache. Only grows; a truncation makes a new object.
    length: AtomicU64,
    error: Mutex<Option<StoreError>>,
    /// The store's count of truncations and removals when a write-back found no space: a retry is useless until it changes.
    no_room_at: AtomicU64,
}

impl DirectObject {
    pub(super) fn new(id: ObjectId, length: u64) -> DirectObject {
        DirectObject {
            id,
            gate: ObjectGate::default(),
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

    /// Keeps a background error for the next caller; the first one, if several.
    pub(super) fn keep_error(&self, error: StoreError, freed: u64) {
        if error.is_full() {
            self.no_room_at.store(freed, Ordering::Release);
        }
        lock(&self.error).get_or_insert(error);
    }

    /// Returns the kept error, once; the write-back may retry.
    pub(super) fn take_error(&self) -> Result<(), StoreError> {
        self.no_room_at.store(NEVER, Ordering::Release);
        lock(&self.error).take().map_or(Ok(()), Err)
    }

    pub(super) fn has_error(&self) -> bool {
        lock(&self.error).is_some()
    }

    /// Moves a kept error to the object that replaces this one.
    pub(super) fn inherit_error(&self, from: &DirectObject) {
        *lock(&self.error) = lock(&from.error).take();
    }

    /// Whether the write-back found no space and none was freed since.
    pub(super) fn waits_for_room(&self, freed: u64) -> bool {
        self.no_room_at.load(Ordering::Acquire) == freed
    }
}
