//! Handover in one server's ownership table: blocks requested from other servers, and blocks requested by them.
//!
//! Never: a requester waits for a block that this server itself is requesting (no two servers wait for each other). Always: a block is
//! inaccessible from its handover to this server until its new bytes are written.

use std::ops::Range;

use pario_core::ServerIndex;

use super::sabotage::Bug;
use super::table::{BlockOwnership, OwnershipTable};
use crate::peers::{NUMBERS_PER_GRANT, number_sum};

/// State of blocks that another server requests.
#[derive(PartialEq, Eq, Debug)]
pub enum HandoverState {
    /// They are leaving, with their ownership numbers; [`OwnershipTable::handed_over`] or [`OwnershipTable::keep`] must follow.
    Leaving(Vec<(u64, u64)>),
    /// In use, or a home's answer is outstanding: the requester may retry.
    Busy,
    /// This server does not own all of them under the numbers known to the requester.
    NotOwner,
    /// Ownership of some is unknown.
    Unknown,
}

impl OwnershipTable {
    /// Marks blocks of another server as being requested; `None` if they are not that server's. [`OwnershipTable::filled`] or [`OwnershipTable::not_received`]
    /// must follow for each. Returns the number of syncs begun so far and the sum of the ownership numbers.
    pub fn begin_handover(&mut self, blocks: Range<u64>, owner: ServerIndex) -> Option<(u64, u64)> {
        let number = |block: u64| match self.blocks.get(&block) {
            Some(BlockOwnership::Remote { owner: known, number }) if *known == owner => Some(*number),
            Some(_) | None => None,
        };
        let numbers: Vec<u64> = blocks.clone().map(number).collect::<Option<_>>()?;
        let syncs = self.syncs;
        for block in blocks {
            self.set(block, Some(BlockOwnership::Requested { syncs }));
        }
        Some((syncs, number_sum(numbers.into_iter())))
    }

    /// The blocks were handed over to this server and are being overwritten.
    pub fn received(&mut self, blocks: &[(u64, u64)]) {
        for (block, number) in blocks {
            if let Some(BlockOwnership::Requested { syncs }) = self.blocks.get(block).copied() {
                let stamp = self.next_version();
                let stand = match self.sabotage.has(Bug::UseUnfilled) {
                    true => BlockOwnership::Owned { number: *number, users: 0, stamp },
                    false => BlockOwnership::Filling { syncs },
                };
                self.set(*block, Some(stand));
            }
        }
        self.changed = true;
    }

    /// The blocks have their new bytes: block and ownership number.
    pub fn filled(&mut self, blocks: &[(u64, u64)]) {
        self.end_handover(blocks.iter().map(|(block, number)| (*block, Some(*number))));
    }

    /// The handover of these blocks failed.
    pub fn not_received(&mut self, blocks: impl Iterator<Item = u64>) {
        self.end_handover(blocks.map(|block| (block, None)));
    }

    fn end_handover(&mut self, blocks: impl Iterator<Item = (u64, Option<u64>)>) {
        for (block, number) in blocks {
            let stamp = self.next_version();
            self.set(block, number.map(|number| BlockOwnership::Owned { number, users: 0, stamp }));
        }
        self.changed = true;
    }

    /// Another server requests these blocks; `of` is the sum of their ownership numbers as known to it.
    pub fn hand_over(&mut self, blocks: Range<u64>, of: u64) -> HandoverState {
        let stands = || blocks.clone().map(|block| self.blocks.get(&block).copied());
        let is_ours = |stand: BlockOwnership| match stand {
            BlockOwnership::Owned { .. }
            | BlockOwnership::Claiming
            | BlockOwnership::Leaving
            | BlockOwnership::Filling { .. } => true,
            BlockOwnership::Remote { .. }
            | BlockOwnership::Requested { .. }
            | BlockOwnership::Unreported { .. } => false,
        };
        if stands().any(|stand| stand.is_none()) {
            return HandoverState::Unknown;
        }
        let gives_in_use = self.sabotage.has(Bug::GiveInUse);
        let is_used = |stand: BlockOwnership| {
            stand.is_pending() || (matches!(stand, BlockOwnership::Owned { users: 1.., .. }) && !gives_in_use)
        };
        if stands().flatten().all(is_ours) && stands().flatten().any(is_used) {
            return HandoverState::Busy;
        }
        let number = |block| {
            let BlockOwnership::Owned { number, .. } = *self.blocks.get(&block)? else { return None };
            // A handover takes the next number; the last one before the home's next grant must not be used.
            (number % NUMBERS_PER_GRANT < NUMBERS_PER_GRANT - 1).then_some((block, number))
        };
        let Some(leaving) = blocks.clone().map(number).collect::<Option<Vec<_>>>() else {
            return HandoverState::NotOwner;
        };
        // Some blocks moved since: a stale request, which would never fill them.
        if number_sum(leaving.iter().map(|(_, number)| *number)) != of && !self.sabotage.has(Bug::GiveLate) {
            return HandoverState::NotOwner;
        }
        for (block, _) in &leaving {
            if !self.sabotage.has(Bug::GiveAndKeep) {
                self.set(*block, Some(BlockOwnership::Leaving));
            }
        }
        HandoverState::Leaving(leaving)
    }

    /// The blocks were handed over to `to`; `told`: their home has confirmed it.
    pub fn handed_over(&mut self, blocks: &[(u64, u64)], to: ServerIndex, told: bool) {
        self.bound();
        for (block, number) in blocks {
            let stand = match told {
                true => Some(BlockOwnership::Remote { owner: to, number: number + 1 }),
                false if self.sabotage.has(Bug::ClaimUntold) => None,
                false => Some(BlockOwnership::Unreported { number: *number, to }),
            };
            if !self.sabotage.has(Bug::GiveAndKeep) {
                self.set(*block, stand);
            }
        }
        self.changed = true;
    }

    /// The first of these blocks with an unreported handover: block, number and new owner. [`OwnershipTable::handed_over`] must follow.
    pub fn unreported(&mut self, mut blocks: Range<u64>) -> Option<(u64, u64, ServerIndex)> {
        blocks.find_map(|block| {
            let Some(BlockOwnership::Unreported { number, to }) = self.blocks.get(&block).copied() else {
                return None;
            };
            self.set(block, Some(BlockOwnership::Leaving));
            Some((block, number, to))
        })
    }

    /// The handover was refused: the blocks stay here.
    pub fn keep(&mut self, blocks: &[(u64, u64)]) {
        self.filled(blocks);
    }

    /// Runs of blocks owned by other servers as far as known here, at most `runs_max`.
    #[must_use]
    pub fn remote_runs(&self, blocks: Range<u64>, runs_max: usize) -> Vec<(ServerIndex, Range<u64>)> {
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

    /// A sync of the file begins; returns its number. Handovers begun earlier must be filled first ([`OwnershipTable::awaits`]).
    pub fn begin_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }

    /// Whether a sync must wait for handovers begun before it.
    #[must_use]
    pub fn awaits(&self, sync: u64) -> bool {
        self.handovers.range(..sync).next().is_some() && !self.sabotage.has(Bug::SyncPastTakes)
    }

    /// All bytes written here before this sync are on storage.
    pub fn end_sync(&mut self, sync: u64) {
        self.synced = self.synced.max(sync);
    }

    /// Whether one of these blocks is being requested.
    #[must_use]
    pub fn is_requesting(&self, blocks: &Range<u64>) -> bool {
        let is_taken = |block| {
            matches!(
                self.blocks.get(&block),
                Some(BlockOwnership::Requested { .. } | BlockOwnership::Filling { .. })
            )
        };
        blocks.clone().any(is_taken)
    }

    /// The last completed sync.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced
    }
}
