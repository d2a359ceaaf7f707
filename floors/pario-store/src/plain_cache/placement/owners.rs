//! The ownership table of a file (`crate::placement`), shared by threads, and the waiting for its changes.
//!
//! Never: holds the table while another server is asked. Always: a waiting access checks again when the table changes, and gives up after
//! [`ANSWER_MAX`].

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::ServerIndex;

pub(in crate::plain_cache) use crate::placement::{AccessStart, CLAIMED_MAX, HandoverState, RemoteLookup};
use crate::placement::{AtomicLookup, HoldStep, OwnershipTable, RemoteRequest};
use crate::sync::lock;

/// Longest wait for a home's answer; a home answers or is reported dead within it.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Longest wait of a handover request for accesses in progress; then the requester writes by remote access.
const HANDOVER_WAIT: Duration = Duration::from_millis(20);
/// Longest single wait of an atomic write for a block in use.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::plain_cache) struct Owners {
    table: Mutex<OwnershipTable>,
    changed: Condvar,
}

impl Owners {
    /// See [`OwnershipTable::begin`]; [`AccessStart::Pending`]: the answer did not arrive in time.
    pub(in crate::plain_cache) fn begin(
        &self,
        blocks: Range<u64>,
        home: impl Fn(u64) -> ServerIndex,
    ) -> AccessStart {
        let first = blocks.start..blocks.start.saturating_add(1);
        let begin = |table: &mut OwnershipTable| {
            Some(table.begin(blocks.clone(), &home)).filter(|begun| *begun != AccessStart::Pending)
        };
        self.wait(&first, begin).unwrap_or(AccessStart::Pending)
    }

    /// A remote request for these blocks: see [`OwnershipTable::look_up_remote`].
    pub(in crate::plain_cache) fn look_up_remote(&self, blocks: Range<u64>) -> RemoteLookup {
        let mut visitor = RemoteRequest::new(blocks.clone());
        self.wait(&blocks, |table| table.look_up_remote(&mut visitor)).unwrap_or(RemoteLookup::NotOwner)
    }

    /// Another server requests these blocks; [`HandoverState::Busy`]: still in use after the wait. See [`OwnershipTable::hand_over`].
    pub(in crate::plain_cache) fn hand_over(&self, blocks: Range<u64>, of: u64) -> HandoverState {
        let mut parted = HandoverState::Busy;
        let used = |table: &mut OwnershipTable| {
            parted = table.hand_over(blocks.clone(), of);
            parted == HandoverState::Busy
        };
        let table = lock(&self.table);
        let waited = self.changed.wait_timeout_while(table, HANDOVER_WAIT, used);
        self.release(waited.unwrap_or_else(PoisonError::into_inner).0);
        parted
    }

    /// A sync of the file begins; returns its number after all earlier handovers have their bytes. `None`: timed out.
    pub(in crate::plain_cache) fn begin_sync(&self) -> Option<u64> {
        let mut table = lock(&self.table);
        let sync = table.begin_sync();
        let waited = self.changed.wait_timeout_while(table, ANSWER_MAX, |table| table.awaits(sync));
        let (table, time) = waited.unwrap_or_else(PoisonError::into_inner);
        self.release(table);
        (!time.timed_out()).then_some(sync)
    }

    /// See [`OwnershipTable::hold`]; [`HoldStep::Busy`]: still in use after the wait.
    pub(in crate::plain_cache) fn hold(
        &self,
        blocks: Range<u64>,
        home: impl Fn(u64) -> ServerIndex,
    ) -> HoldStep {
        let mut held = HoldStep::Busy;
        let used = |table: &mut OwnershipTable| {
            held = table.hold(blocks.clone(), &home);
            held == HoldStep::Busy
        };
        let waited = self.changed.wait_timeout_while(lock(&self.table), HOLD_MAX, used);
        self.release(waited.unwrap_or_else(PoisonError::into_inner).0);
        held
    }

    /// Waits for a change of the table, at most `limit`.
    pub(in crate::plain_cache) fn wait_for_change(&self, limit: Duration) {
        drop(self.changed.wait_timeout(lock(&self.table), limit).unwrap_or_else(PoisonError::into_inner));
    }

    /// See [`OwnershipTable::look_up`]; [`AtomicLookup::Pending`]: the answer did not arrive in time.
    pub(in crate::plain_cache) fn look_up(&self, blocks: Range<u64>) -> AtomicLookup {
        let look = |table: &mut OwnershipTable| {
            Some(table.look_up(blocks.clone())).filter(|look| *look != AtomicLookup::Pending)
        };
        self.wait(&blocks, look).unwrap_or(AtomicLookup::Pending)
    }

    /// Acts on the table, and wakes waiting accesses if that changed it.
    pub(in crate::plain_cache) fn with<T>(&self, act: impl FnOnce(&mut OwnershipTable) -> T) -> T {
        let mut table = lock(&self.table);
        let result = act(&mut table);
        self.release(table);
        result
    }

    fn release(&self, mut table: MutexGuard<'_, OwnershipTable>) {
        let stirred = table.take_changed();
        drop(table);
        if stirred {
            self.changed.notify_all();
        }
    }

    /// Waits until `look` returns a value. A home's answer is awaited for [`ANSWER_MAX`]; a handover in progress may itself wait for its
    /// owner, as remote access may.
    fn wait<T>(
        &self,
        blocks: &Range<u64>,
        mut look: impl FnMut(&mut OwnershipTable) -> Option<T>,
    ) -> Option<T> {
        let mut table = lock(&self.table);
        loop {
            let mut found = None;
            let nothing = |table: &mut OwnershipTable| {
                found = look(table);
                found.is_none()
            };
            let waited = self.changed.wait_timeout_while(table, ANSWER_MAX, nothing);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
            if found.is_some() || !table.is_requesting(blocks) {
                self.release(table);
                return found;
            }
        }
    }
}
