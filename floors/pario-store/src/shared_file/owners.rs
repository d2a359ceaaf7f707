//! What one server knows of whose the blocks of a file are, shared by threads: the table (`crate::ownership`), and who waits for it.
//!
//! Never: holds the table while somebody else is asked. Always: whoever waits for an answer looks again when something has changed, and
//! gives up when it must have come long ago.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::ServerIndex;

pub(super) use crate::ownership::{ASKED_MAX, Begun, Found, Parted};
use crate::ownership::{Hold, Look, Table, Visitor};
use crate::places::Grant;
use crate::sync::lock;

/// A home answers, or is given up, well within this.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// So long a server that takes blocks waits until nobody works on them; then it may write there as a visitor.
const PATIENCE: Duration = Duration::from_millis(20);
/// So long a write waits at a time until nobody works on a block.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Owners {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Owners {
    /// See [`Table::begin`]; [`Begun::Pending`]: an answer that must come did not.
    pub(super) fn begin(&self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> Begun {
        let first = blocks.start..blocks.start.saturating_add(1);
        let begin = |table: &mut Table| {
            Some(table.begin(blocks.clone(), &home)).filter(|begun| *begun != Begun::Pending)
        };
        self.wait(&first, begin).unwrap_or(Begun::Pending)
    }

    /// See [`Table::unknown`].
    pub(super) fn unknown(
        &self,
        blocks: Range<u64>,
        home: impl Fn(u64) -> ServerIndex,
    ) -> Option<(ServerIndex, Vec<u64>)> {
        self.with(|table| table.unknown(blocks, home))
    }

    /// See [`Table::answered`].
    pub(super) fn answered(&self, blocks: &[u64], grants: Option<&[Grant]>, own: ServerIndex) {
        self.with(|table| table.answered(blocks, grants, own));
    }

    /// Somebody comes for these blocks: see [`Table::visited`].
    pub(super) fn visited(&self, blocks: Range<u64>) -> Found {
        let mut visitor = Visitor::new(blocks.clone());
        self.wait(&blocks, |table| table.visited(&mut visitor)).unwrap_or(Found::Gone)
    }

    /// See [`Table::end`].
    pub(super) fn end(&self, blocks: Range<u64>) {
        self.with(|table| table.end(blocks));
    }

    /// See [`Table::forget`].
    pub(super) fn forget(&self, blocks: Range<u64>, server: ServerIndex) {
        self.with(|table| table.forget(blocks, server));
    }

    /// See [`Table::doubt`].
    pub(super) fn doubt(&self, blocks: Range<u64>) -> bool {
        self.with(|table| table.doubt(blocks))
    }

    /// See [`Table::leave`].
    pub(super) fn leave(
        &self,
        blocks: impl IntoIterator<Item = u64>,
        wanted: impl Fn(u64) -> bool,
    ) -> Vec<(u64, u64)> {
        self.with(|table| table.leave(blocks, wanted))
    }

    /// See [`Table::left`].
    pub(super) fn left(&self, blocks: &[(u64, u64)], told: bool) {
        self.with(|table| table.left(blocks, told));
    }

    /// See [`Table::claimed`].
    pub(super) fn claimed(&self, blocks: &[u64]) -> Vec<(u64, u64)> {
        self.with(|table| table.claimed(blocks))
    }

    /// See [`Table::has`].
    pub(super) fn has(&self, blocks: Range<u64>) -> bool {
        self.with(|table| table.has(blocks))
    }

    /// See [`Table::mine`].
    pub(super) fn mine(&self) -> Vec<u64> {
        self.with(|table| table.mine())
    }

    /// See [`Table::count`].
    pub(super) fn count(&self) -> usize {
        self.with(|table| table.count())
    }

    /// See [`Table::reach_for`].
    pub(super) fn reach_for(&self, blocks: Range<u64>, owner: ServerIndex) -> Option<(u64, u64)> {
        self.with(|table| table.reach_for(blocks, owner))
    }

    /// See [`Table::got`].
    pub(super) fn got(&self, blocks: &[(u64, u64)]) {
        self.with(|table| table.got(blocks));
    }

    /// See [`Table::filled`].
    pub(super) fn filled(&self, blocks: &[(u64, u64)]) {
        self.with(|table| table.filled(blocks));
    }

    /// See [`Table::missed`].
    pub(super) fn missed(&self, blocks: impl Iterator<Item = u64>) {
        self.with(|table| table.missed(blocks));
    }

    /// Another server takes these blocks; [`Parted::Used`]: somebody works on them for long. See [`Table::part`].
    pub(super) fn part(&self, blocks: Range<u64>, of: u64) -> Parted {
        let mut parted = Parted::Used;
        let used = |table: &mut Table| {
            parted = table.part(blocks.clone(), of);
            parted == Parted::Used
        };
        let table = lock(&self.table);
        let waited = self.changed.wait_timeout_while(table, PATIENCE, used);
        self.release(waited.unwrap_or_else(PoisonError::into_inner).0);
        parted
    }

    /// See [`Table::passed`].
    pub(super) fn passed(&self, blocks: &[(u64, u64)], to: ServerIndex, told: bool) {
        self.with(|table| table.passed(blocks, to, told));
    }

    /// See [`Table::owed`].
    pub(super) fn owed(&self, blocks: Range<u64>) -> Option<(u64, u64, ServerIndex)> {
        self.with(|table| table.owed(blocks))
    }

    /// See [`Table::stay`].
    pub(super) fn stay(&self, blocks: &[(u64, u64)]) {
        self.with(|table| table.stay(blocks));
    }

    /// See [`Table::theirs`].
    pub(super) fn theirs(&self, blocks: Range<u64>, runs_max: usize) -> Vec<(ServerIndex, Range<u64>)> {
        self.with(|table| table.theirs(blocks, runs_max))
    }

    /// The file is about to be synced: the sync's number. What is being taken since before that has its bytes when this returns. `None`:
    /// it lasts too long.
    pub(super) fn sync_begins(&self) -> Option<u64> {
        let mut table = lock(&self.table);
        let sync = table.sync_begins();
        let waited = self.changed.wait_timeout_while(table, ANSWER_MAX, |table| table.awaits(sync));
        let (table, time) = waited.unwrap_or_else(PoisonError::into_inner);
        self.release(table);
        (!time.timed_out()).then_some(sync)
    }

    /// See [`Table::sync_ends`].
    pub(super) fn sync_ends(&self, sync: u64) {
        self.with(|table| table.sync_ends(sync));
    }

    /// See [`Table::synced`].
    pub(super) fn synced(&self) -> u64 {
        self.with(|table| table.synced())
    }

    /// See [`Table::hold`]; [`Hold::Used`]: for long.
    pub(super) fn hold(&self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> Hold {
        let mut held = Hold::Used;
        let used = |table: &mut Table| {
            held = table.hold(blocks.clone(), &home);
            held == Hold::Used
        };
        let waited = self.changed.wait_timeout_while(lock(&self.table), HOLD_MAX, used);
        self.release(waited.unwrap_or_else(PoisonError::into_inner).0);
        held
    }

    /// Waits until something changes here, so long at most.
    pub(super) fn rest(&self, limit: Duration) {
        drop(self.changed.wait_timeout(lock(&self.table), limit).unwrap_or_else(PoisonError::into_inner));
    }

    /// See [`Table::let_go`].
    pub(super) fn let_go(&self, held: &[(u64, u64)]) {
        self.with(|table| table.let_go(held));
    }

    /// See [`Table::look`]; [`Look::Pending`]: an answer that must come did not.
    pub(super) fn look(&self, blocks: Range<u64>) -> Look {
        let look = |table: &mut Table| Some(table.look(blocks.clone())).filter(|look| *look != Look::Pending);
        self.wait(&blocks, look).unwrap_or(Look::Pending)
    }

    /// The same for somebody who does not wait; `None`: it would have to.
    pub(super) fn visited_now(&self, blocks: Range<u64>) -> Option<Found> {
        self.with(|table| table.visited(&mut Visitor::new(blocks)))
    }

    /// See [`Table::stamps`].
    pub(super) fn stamps(&self, blocks: Range<u64>) -> Option<u64> {
        self.with(|table| table.stamps(blocks))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = lock(&self.table);
        let result = act(&mut table);
        self.release(table);
        result
    }

    fn release(&self, mut table: MutexGuard<'_, Table>) {
        let stirred = table.take_stirred();
        drop(table);
        if stirred {
            self.changed.notify_all();
        }
    }

    /// Waits until `look` finds something. A home answers soon or never; whoever takes one of these blocks may wait for its owner, as any
    /// visitor may.
    fn wait<T>(&self, blocks: &Range<u64>, mut look: impl FnMut(&mut Table) -> Option<T>) -> Option<T> {
        let mut table = lock(&self.table);
        loop {
            let mut found = None;
            let nothing = |table: &mut Table| {
                found = look(table);
                found.is_none()
            };
            let waited = self.changed.wait_timeout_while(table, ANSWER_MAX, nothing);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
            if found.is_some() || !table.is_taking(blocks) {
                self.release(table);
                return found;
            }
        }
    }
}
