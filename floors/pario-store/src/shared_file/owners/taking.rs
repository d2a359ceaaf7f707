//! What one server knows of blocks that it takes from others, and others from it.
//!
//! Never: lets a server that takes a block wait for one that this server is taking itself, so that no two wait for each other. Always:
//! nobody gets at a block between the moment it becomes this server's by taking and the moment it has its new bytes.

use std::ops::Range;
use std::sync::PoisonError;
use std::time::Duration;

use pario_core::ServerIndex;

use super::{ANSWER_MAX, Owners, Stand, Table};
use crate::places::NUMBERS;
use crate::sync::lock;

/// So long a server that takes blocks waits until nobody works on them; then it may write there as a visitor.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a server finds that takes blocks.
#[derive(PartialEq, Eq, Debug)]
pub(in super::super) enum Parted {
    /// They leave, with the numbers of their ownerships; [`Owners::passed`] or
    /// [`Owners::stay`] must follow.
    Leaving(Vec<(u64, u64)>),
    /// Not all are this server's, or somebody works on them for long.
    Gone,
    /// Nothing is known of some.
    Unknown,
}

impl Owners {
    /// These blocks are another server's: it is about to be asked for them. False if they are not. [`Owners::filled`] or
    /// [`Owners::missed`] must follow for each. How often a sync of the file began so far.
    pub(in super::super) fn reach_for(&self, blocks: Range<u64>, owner: ServerIndex) -> Option<u64> {
        let mut table = lock(&self.table);
        if !blocks.clone().all(|block| table.blocks.get(&block) == Some(&Stand::Theirs(owner))) {
            return None;
        }
        let syncs = table.syncs;
        for block in blocks {
            table.set(block, Some(Stand::Taking { syncs }));
        }
        Some(syncs)
    }

    /// They are this server's, and are overwritten now.
    pub(in super::super) fn got(&self, blocks: &[(u64, u64)]) {
        let mut table = lock(&self.table);
        for (block, _) in blocks {
            if let Some(Stand::Taking { syncs }) = table.blocks.get(block).copied() {
                table.set(*block, Some(Stand::Filling { syncs }));
            }
        }
        drop(table);
        self.changed.notify_all();
    }

    /// They have their new bytes: block and number of the ownership.
    pub(in super::super) fn filled(&self, blocks: &[(u64, u64)]) {
        self.taken(blocks.iter().map(|(block, number)| (*block, Some(*number))));
    }

    /// They did not become this server's.
    pub(in super::super) fn missed(&self, blocks: impl Iterator<Item = u64>) {
        self.taken(blocks.map(|block| (block, None)));
    }

    fn taken(&self, blocks: impl Iterator<Item = (u64, Option<u64>)>) {
        let mut table = lock(&self.table);
        for (block, number) in blocks {
            table.set(block, number.map(|number| Stand::Mine { number, users: 0 }));
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Another server takes these blocks.
    pub(in super::super) fn part(&self, blocks: Range<u64>) -> Parted {
        let stand = |table: &Table, block: u64| table.blocks.get(&block).copied();
        let ours = |table: &Table| {
            let is_ours = |stand: Stand| match stand {
                Stand::Mine { .. } | Stand::Asked | Stand::Leaving | Stand::Filling { .. } => true,
                Stand::Theirs(_) | Stand::Taking { .. } | Stand::Owed { .. } => false,
            };
            blocks.clone().all(|block| stand(table, block).is_some_and(is_ours))
        };
        let used = |table: &Table| {
            let is_used =
                |stand: Stand| stand.is_pending() || matches!(stand, Stand::Mine { users: 1.., .. });
            blocks.clone().any(|block| stand(table, block).is_some_and(is_used))
        };
        let table = lock(&self.table);
        let waited = self.changed.wait_timeout_while(table, PATIENCE, |table| ours(table) && used(table));
        let (mut table, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if blocks.clone().any(|block| stand(&table, block).is_none()) {
            return Parted::Unknown;
        }
        let number = |block| {
            let Stand::Mine { number, users: 0 } = stand(&table, block)? else { return None };
            // The numbers up to the next that the home gives are used up some time.
            (number % NUMBERS < NUMBERS - 1).then_some((block, number))
        };
        let Some(leaving) = blocks.map(number).collect::<Option<Vec<_>>>() else { return Parted::Gone };
        for (block, _) in &leaving {
            table.set(*block, Some(Stand::Leaving));
        }
        Parted::Leaving(leaving)
    }

    /// These were passed on, and whether their home knows.
    pub(in super::super) fn passed(&self, blocks: &[(u64, u64)], to: ServerIndex, told: bool) {
        let mut table = lock(&self.table);
        table.bound();
        for (block, number) in blocks {
            let stand = if told { Stand::Theirs(to) } else { Stand::Owed { number: *number, to } };
            table.set(*block, Some(stand));
        }
        drop(table);
        self.changed.notify_all();
    }

    /// One of these blocks whose home could not be told yet whom it was passed on to: number and server. [`Owners::passed`] must follow.
    pub(in super::super) fn owed(&self, mut blocks: Range<u64>) -> Option<(u64, u64, ServerIndex)> {
        let mut table = lock(&self.table);
        blocks.find_map(|block| {
            let Some(Stand::Owed { number, to }) = table.blocks.get(&block).copied() else { return None };
            table.set(block, Some(Stand::Leaving));
            Some((block, number, to))
        })
    }

    /// They could not be given: they stay.
    pub(in super::super) fn stay(&self, blocks: &[(u64, u64)]) {
        self.filled(blocks);
    }

    /// Runs of blocks that are other servers', as far as is known, at most so many.
    pub(in super::super) fn theirs(
        &self,
        blocks: Range<u64>,
        runs_max: usize,
    ) -> Vec<(ServerIndex, Range<u64>)> {
        let table = lock(&self.table);
        let mut runs: Vec<(ServerIndex, Range<u64>)> = Vec::new();
        for block in blocks {
            let Some(Stand::Theirs(owner)) = table.blocks.get(&block) else { continue };
            if let Some((_, run)) = runs.last_mut().filter(|(last, run)| last == owner && run.end == block) {
                run.end += 1;
            } else if runs.len() < runs_max {
                runs.push((*owner, block..block + 1));
            } else {
                break;
            }
        }
        runs
    }

    /// The file is about to be synced; what is being taken since before that has its bytes when this returns. False: it lasts too long.
    pub(in super::super) fn sync_begins(&self) -> bool {
        let mut table = lock(&self.table);
        table.syncs += 1;
        let syncs = table.syncs;
        let older = |table: &mut Table| table.takes.range(..syncs).next().is_some();
        let waited = self.changed.wait_timeout_while(table, ANSWER_MAX, older);
        let (_table, time) = waited.unwrap_or_else(PoisonError::into_inner);
        !time.timed_out()
    }

    /// What was here when the last sync began is on storage.
    pub(in super::super) fn sync_ends(&self) {
        let mut table = lock(&self.table);
        table.synced = table.syncs;
    }

    /// How many syncs are over.
    pub(in super::super) fn synced(&self) -> u64 {
        lock(&self.table).synced
    }
}
