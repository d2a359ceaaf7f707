//! What one server knows of blocks that it takes from others, and others from it.
//!
//! Never: lets a server that takes a block wait for one that this server is taking itself, so that no two wait for each other. Always:
//! nobody gets at a block between the moment it becomes this server's by taking and the moment it has its new bytes.

use std::ops::Range;

use pario_core::ServerIndex;

use super::sabotage::Bug;
use super::table::{Stand, Table};
use crate::places::{NUMBERS, sum_of};

/// What a server finds that takes blocks.
#[derive(PartialEq, Eq, Debug)]
pub enum Parted {
    /// They leave, with the numbers of their ownerships; [`Table::passed`] or
    /// [`Table::stay`] must follow.
    Leaving(Vec<(u64, u64)>),
    /// Somebody works on them, or an answer is due: it may come again, for as long as it likes.
    Used,
    /// Not all are this server's, or not under the numbers that the other one knows.
    Gone,
    /// Nothing is known of some.
    Unknown,
}

impl Table {
    /// These blocks are another server's: it is about to be asked for them. `None` if they are not. [`Table::filled`] or
    /// [`Table::missed`] must follow for each. How often a sync of the file began so far, and the sum of the ownerships' numbers.
    pub fn reach_for(&mut self, blocks: Range<u64>, owner: ServerIndex) -> Option<(u64, u64)> {
        let number = |block: u64| match self.blocks.get(&block) {
            Some(Stand::Theirs { owner: known, number }) if *known == owner => Some(*number),
            Some(_) | None => None,
        };
        let numbers: Vec<u64> = blocks.clone().map(number).collect::<Option<_>>()?;
        let syncs = self.syncs;
        for block in blocks {
            self.set(block, Some(Stand::Taking { syncs }));
        }
        Some((syncs, sum_of(numbers.into_iter())))
    }

    /// They are this server's, and are overwritten now.
    pub fn got(&mut self, blocks: &[(u64, u64)]) {
        for (block, number) in blocks {
            if let Some(Stand::Taking { syncs }) = self.blocks.get(block).copied() {
                let stamp = self.next_stamp();
                let stand = match self.sabotage.has(Bug::UseUnfilled) {
                    true => Stand::Mine { number: *number, users: 0, stamp },
                    false => Stand::Filling { syncs },
                };
                self.set(*block, Some(stand));
            }
        }
        self.stirred = true;
    }

    /// They have their new bytes: block and number of the ownership.
    pub fn filled(&mut self, blocks: &[(u64, u64)]) {
        self.taken(blocks.iter().map(|(block, number)| (*block, Some(*number))));
    }

    /// They did not become this server's.
    pub fn missed(&mut self, blocks: impl Iterator<Item = u64>) {
        self.taken(blocks.map(|block| (block, None)));
    }

    fn taken(&mut self, blocks: impl Iterator<Item = (u64, Option<u64>)>) {
        for (block, number) in blocks {
            let stamp = self.next_stamp();
            self.set(block, number.map(|number| Stand::Mine { number, users: 0, stamp }));
        }
        self.stirred = true;
    }

    /// Another server takes these blocks, whose ownerships' numbers have that sum as far as it knows.
    pub fn part(&mut self, blocks: Range<u64>, of: u64) -> Parted {
        let stands = || blocks.clone().map(|block| self.blocks.get(&block).copied());
        let is_ours = |stand: Stand| match stand {
            Stand::Mine { .. } | Stand::Asked | Stand::Leaving | Stand::Filling { .. } => true,
            Stand::Theirs { .. } | Stand::Taking { .. } | Stand::Owed { .. } => false,
        };
        if stands().any(|stand| stand.is_none()) {
            return Parted::Unknown;
        }
        let gives_in_use = self.sabotage.has(Bug::GiveInUse);
        let is_used = |stand: Stand| {
            stand.is_pending() || (matches!(stand, Stand::Mine { users: 1.., .. }) && !gives_in_use)
        };
        if stands().flatten().all(is_ours) && stands().flatten().any(is_used) {
            return Parted::Used;
        }
        let number = |block| {
            let Stand::Mine { number, .. } = *self.blocks.get(&block)? else { return None };
            // The numbers up to the next that the home gives are used up some time.
            (number % NUMBERS < NUMBERS - 1).then_some((block, number))
        };
        let Some(leaving) = blocks.clone().map(number).collect::<Option<Vec<_>>>() else {
            return Parted::Gone;
        };
        // Some have moved since: who took them may have gone on long ago, and would not fill them.
        if sum_of(leaving.iter().map(|(_, number)| *number)) != of && !self.sabotage.has(Bug::GiveLate) {
            return Parted::Gone;
        }
        for (block, _) in &leaving {
            if !self.sabotage.has(Bug::GiveAndKeep) {
                self.set(*block, Some(Stand::Leaving));
            }
        }
        Parted::Leaving(leaving)
    }

    /// These were passed on, and whether their home knows.
    pub fn passed(&mut self, blocks: &[(u64, u64)], to: ServerIndex, told: bool) {
        self.bound();
        for (block, number) in blocks {
            let stand = match told {
                true => Some(Stand::Theirs { owner: to, number: number + 1 }),
                false if self.sabotage.has(Bug::ClaimUntold) => None,
                false => Some(Stand::Owed { number: *number, to }),
            };
            if !self.sabotage.has(Bug::GiveAndKeep) {
                self.set(*block, stand);
            }
        }
        self.stirred = true;
    }

    /// One of these blocks whose home could not be told yet whom it was passed on to: number and server. [`Table::passed`] must follow.
    pub fn owed(&mut self, mut blocks: Range<u64>) -> Option<(u64, u64, ServerIndex)> {
        blocks.find_map(|block| {
            let Some(Stand::Owed { number, to }) = self.blocks.get(&block).copied() else { return None };
            self.set(block, Some(Stand::Leaving));
            Some((block, number, to))
        })
    }

    /// They could not be given: they stay.
    pub fn stay(&mut self, blocks: &[(u64, u64)]) {
        self.filled(blocks);
    }

    /// Runs of blocks that are other servers', as far as is known, at most so many.
    #[must_use]
    pub fn theirs(&self, blocks: Range<u64>, runs_max: usize) -> Vec<(ServerIndex, Range<u64>)> {
        let mut runs: Vec<(ServerIndex, Range<u64>)> = Vec::new();
        for block in blocks {
            let Some(owner) = self.owner(block) else { continue };
            if let Some((_, run)) = runs.last_mut().filter(|(last, run)| *last == owner && run.end == block) {
                run.end += 1;
            } else if runs.len() < runs_max {
                runs.push((owner, block..block + 1));
            } else {
                break;
            }
        }
        runs
    }

    /// The file is about to be synced: its number. What is being taken since before that must have its bytes first
    /// ([`Table::awaits`]).
    pub fn sync_begins(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }

    /// Whether a sync must wait for blocks that are being taken since before it began.
    #[must_use]
    pub fn awaits(&self, sync: u64) -> bool {
        self.takes.range(..sync).next().is_some() && !self.sabotage.has(Bug::SyncPastTakes)
    }

    /// What was here when this sync began is on storage.
    pub fn sync_ends(&mut self, sync: u64) {
        self.synced = self.synced.max(sync);
    }

    /// Whether one of these blocks is being taken.
    #[must_use]
    pub fn is_taking(&self, blocks: &Range<u64>) -> bool {
        let is_taken =
            |block| matches!(self.blocks.get(&block), Some(Stand::Taking { .. } | Stand::Filling { .. }));
        blocks.clone().any(is_taken)
    }

    /// The last sync that is over.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced
    }
}
