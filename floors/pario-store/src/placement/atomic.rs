//! Multi-block atomic access: writes that become visible as a whole, and reads that verify that their blocks did not change meanwhile.
//!
//! ```text
//!  write ─► holds its blocks in ascending order (owned ─► filling; remote ─► requested ─► filling) ─► bytes ─► releases all together
//!  read  ─► versions ─► bytes ─► are the versions unchanged?
//! ```
//! Never: waits; lets a holder of a block wait for a lower block (no two wait for each other). Always: a block that was held, or that
//! arrived by handover or grant, has a new version, larger than all earlier ones in this table.

use std::ops::Range;

use pario_core::ServerIndex;

use super::sabotage::Bug;
use super::table::{BlockOwnership, OwnershipTable};
use crate::peers::number_sum;

/// Next action of an atomic write that holds all lower blocks.
#[derive(PartialEq, Eq, Debug)]
pub enum HoldStep {
    /// It holds these, with their ownership numbers; [`OwnershipTable::release`] must follow.
    Held(Vec<(u64, u64)>),
    /// The next block is in use, or a home's answer is outstanding: retry.
    Busy,
    /// These belong to another server: request a handover.
    Remote(ServerIndex, Range<u64>),
    /// Blocks of one home must be claimed; [`OwnershipTable::answered`] must follow.
    Claim(ServerIndex, Vec<u64>),
    /// The handover of the next block must first be reported to its home; [`OwnershipTable::passed`] must follow.
    Report {
        /// The ownership number.
        number: u64,
        /// The new owner.
        to: ServerIndex,
    },
}

/// State of the blocks of an atomic read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AtomicLookup {
    /// Local blocks with their versions, pinned ([`OwnershipTable::end`] must follow for each), and runs of blocks of other servers.
    Seen(Vec<(u64, u64)>, Vec<(ServerIndex, Range<u64>)>),
    /// A block is changing: retry.
    Pending,
    /// The owner of a block is unknown here or not yet recorded at its home.
    Unknown,
}

impl OwnershipTable {
    /// Holds the first of these blocks and as many of the following ones as possible.
    pub fn hold(&mut self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> HoldStep {
        match self.blocks.get(&blocks.start).copied() {
            Some(BlockOwnership::Owned { users, .. }) if users == 0 || self.sabotage.has(Bug::HoldInUse) => {
                HoldStep::Held(self.hold_owned(blocks))
            }
            Some(
                BlockOwnership::Owned { .. }
                | BlockOwnership::Claiming
                | BlockOwnership::Leaving
                | BlockOwnership::Requested { .. }
                | BlockOwnership::Filling { .. },
            ) => HoldStep::Busy,
            Some(BlockOwnership::Remote { owner, .. }) => {
                let is_theirs = |block: &u64| self.owner(*block) == Some(owner);
                let end = blocks.clone().take_while(is_theirs).last().map_or(blocks.start, |last| last + 1);
                HoldStep::Remote(owner, blocks.start..end)
            }
            Some(BlockOwnership::Unreported { number, to }) => {
                self.set(blocks.start, Some(BlockOwnership::Leaving));
                HoldStep::Report { number, to }
            }
            None => self
                .unknown(blocks, home)
                .map_or(HoldStep::Busy, |(home, asked)| HoldStep::Claim(home, asked)),
        }
    }

    fn hold_owned(&mut self, blocks: Range<u64>) -> Vec<(u64, u64)> {
        let free = |block: u64| match self.blocks.get(&block) {
            Some(BlockOwnership::Owned { number, users, .. })
                if *users == 0 || self.sabotage.has(Bug::HoldInUse) =>
            {
                Some((block, *number))
            }
            Some(_) | None => None,
        };
        let held: Vec<(u64, u64)> = blocks.map_while(free).collect();
        let syncs = self.syncs;
        for (block, _) in &held {
            self.set(*block, Some(BlockOwnership::Filling { syncs }));
        }
        held
    }

    /// All of these have their new bytes.
    pub fn release(&mut self, held: &[(u64, u64)]) {
        self.filled(held);
    }

    /// Owners and versions of blocks for an atomic read.
    pub fn look_up(&mut self, blocks: Range<u64>) -> AtomicLookup {
        let mut seen = Vec::new();
        for block in blocks.clone() {
            match self.blocks.get(&block) {
                Some(BlockOwnership::Owned { stamp, .. }) => seen.push((block, *stamp)),
                Some(BlockOwnership::Remote { .. }) => {}
                Some(
                    BlockOwnership::Claiming
                    | BlockOwnership::Leaving
                    | BlockOwnership::Requested { .. }
                    | BlockOwnership::Filling { .. },
                ) => {
                    return AtomicLookup::Pending;
                }
                Some(BlockOwnership::Unreported { .. }) | None => return AtomicLookup::Unknown,
            }
        }
        seen.iter().for_each(|(block, _)| self.pin(*block..*block + 1));
        AtomicLookup::Seen(seen, self.remote_runs(blocks, usize::MAX))
    }

    /// The sum of the blocks' versions; `None` if one is not owned here or is being written.
    #[must_use]
    pub fn version_sum(&self, mut blocks: Range<u64>) -> Option<u64> {
        let stamp = |block| match self.blocks.get(&block) {
            Some(BlockOwnership::Owned { stamp, .. }) => Some(*stamp),
            Some(_) | None => None,
        };
        let stamps: Option<Vec<u64>> = blocks.by_ref().map(stamp).collect();
        stamps.map(|stamps| number_sum(stamps.into_iter()))
    }

    pub(super) fn next_version(&mut self) -> u64 {
        self.versions_given += 1;
        self.versions_given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Grant;

    const OWN: ServerIndex = ServerIndex(0);
    const OTHER: ServerIndex = ServerIndex(1);

    fn home(_: u64) -> ServerIndex {
        OWN
    }

    /// Two blocks of this server, two of another.
    fn table() -> OwnershipTable {
        let mut table = OwnershipTable::default();
        let grant = |owner| Grant { owner, number: 1 << 20 };
        let grants = [grant(OWN), grant(OWN), grant(OTHER), grant(OTHER)];
        table.answered(&[0, 1, 2, 3], Some(&grants), OWN);
        table
    }

    #[test]
    fn a_write_holds_its_blocks_from_the_lowest_on() {
        let mut table = table();
        let mine = vec![(0, 1 << 20), (1, 1 << 20)];
        assert_eq!(table.hold(0..5, home), HoldStep::Held(mine.clone()));
        assert_eq!(table.hold(1..5, home), HoldStep::Busy);
        assert_eq!(table.look_up(0..1), AtomicLookup::Pending);
        assert_eq!(table.hold(2..5, home), HoldStep::Remote(OTHER, 2..4));
        assert_eq!(table.hold(4..5, home), HoldStep::Claim(OWN, vec![4]));
        assert_eq!(table.hold(4..5, home), HoldStep::Busy);
        table.release(&mine);
        assert_eq!(table.hold(1..2, home), HoldStep::Held(vec![(1, 1 << 20)]));
    }

    #[test]
    fn what_is_written_has_another_stamp_and_what_is_read_is_not_held() {
        let mut table = table();
        let AtomicLookup::Seen(seen, theirs) = table.look_up(1..3) else { panic!("no access uses them") };
        assert_eq!((seen.len(), theirs), (1, vec![(OTHER, 2..3)]));
        let before = table.version_sum(1..2);
        assert!(before.is_some());
        assert_eq!(table.hold(1..2, home), HoldStep::Busy);
        assert_eq!(table.hold(0..2, home), HoldStep::Held(vec![(0, 1 << 20)]));
        table.release(&[(0, 1 << 20)]);
        table.end(1..2);
        assert_eq!(table.version_sum(1..2), before);
        assert_eq!(table.hold(1..2, home), HoldStep::Held(vec![(1, 1 << 20)]));
        assert_eq!(table.version_sum(1..2), None);
        table.release(&[(1, 1 << 20)]);
        assert!(before < table.version_sum(1..2));
        assert_eq!(table.version_sum(1..3), None);
        assert!(table.busy().is_none());
    }
}
