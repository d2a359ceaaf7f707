//! Several blocks at one moment: a write that others see as a whole, and a read that finds out whether what it found was there together.
//!
//! ```text
//!  write ─► holds its blocks, the lowest first (mine ─► filling; theirs ─► taking ─► filling) ─► bytes ─► lets all go at once
//!  read  ─► stamps ─► bytes ─► are the stamps the same?
//! ```
//! Never: waits; lets somebody hold a block who may wait for a lower one, so that no two wait for each other. Always: a block that was held, or
//! that became this server's, has a stamp that no other had before in this table, and later ones are larger.

use std::ops::Range;

use pario_core::ServerIndex;

use super::sabotage::Bug;
use super::table::{Stand, Table};
use crate::places::sum_of;

/// What a write does next that holds all blocks below.
#[derive(PartialEq, Eq, Debug)]
pub enum Hold {
    /// It holds these, with the numbers of their ownerships; [`Table::let_go`] must follow.
    Mine(Vec<(u64, u64)>),
    /// Somebody works on the next one, or an answer is due: it may come again.
    Used,
    /// These are another server's, and must be taken.
    Theirs(ServerIndex, Range<u64>),
    /// Blocks of one home must be asked for; [`Table::answered`] must follow.
    Ask(ServerIndex, Vec<u64>),
    /// The next one's home must be told first whom it was passed on to; [`Table::passed`] must follow.
    Tell {
        /// The number of the ownership.
        number: u64,
        /// Whose it is.
        to: ServerIndex,
    },
}

/// What a read at one moment finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// Blocks of this server's with their stamps: somebody works on them, [`Table::end`] must follow for each. And runs of others'.
    Seen(Vec<(u64, u64)>, Vec<(ServerIndex, Range<u64>)>),
    /// One will change soon: it may come again.
    Pending,
    /// Nothing is known of one, or its home does not know yet whose it is.
    Unknown,
}

impl Table {
    /// Holds the first of these blocks, and those behind it that can be held too.
    pub fn hold(&mut self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> Hold {
        match self.blocks.get(&blocks.start).copied() {
            Some(Stand::Mine { users, .. }) if users == 0 || self.sabotage.has(Bug::HoldInUse) => {
                Hold::Mine(self.hold_mine(blocks))
            }
            Some(
                Stand::Mine { .. }
                | Stand::Asked
                | Stand::Leaving
                | Stand::Taking { .. }
                | Stand::Filling { .. },
            ) => Hold::Used,
            Some(Stand::Theirs { owner, .. }) => {
                let is_theirs = |block: &u64| self.owner(*block) == Some(owner);
                let end = blocks.clone().take_while(is_theirs).last().map_or(blocks.start, |last| last + 1);
                Hold::Theirs(owner, blocks.start..end)
            }
            Some(Stand::Owed { number, to }) => {
                self.set(blocks.start, Some(Stand::Leaving));
                Hold::Tell { number, to }
            }
            None => self.unknown(blocks, home).map_or(Hold::Used, |(home, asked)| Hold::Ask(home, asked)),
        }
    }

    fn hold_mine(&mut self, blocks: Range<u64>) -> Vec<(u64, u64)> {
        let free = |block: u64| match self.blocks.get(&block) {
            Some(Stand::Mine { number, users, .. }) if *users == 0 || self.sabotage.has(Bug::HoldInUse) => {
                Some((block, *number))
            }
            Some(_) | None => None,
        };
        let held: Vec<(u64, u64)> = blocks.map_while(free).collect();
        let syncs = self.syncs;
        for (block, _) in &held {
            self.set(*block, Some(Stand::Filling { syncs }));
        }
        held
    }

    /// All of these have their new bytes.
    pub fn let_go(&mut self, held: &[(u64, u64)]) {
        self.filled(held);
    }

    /// What is known of blocks that are to be read as they are at one moment.
    pub fn look(&mut self, blocks: Range<u64>) -> Look {
        let mut seen = Vec::new();
        for block in blocks.clone() {
            match self.blocks.get(&block) {
                Some(Stand::Mine { stamp, .. }) => seen.push((block, *stamp)),
                Some(Stand::Theirs { .. }) => {}
                Some(Stand::Asked | Stand::Leaving | Stand::Taking { .. } | Stand::Filling { .. }) => {
                    return Look::Pending;
                }
                Some(Stand::Owed { .. }) | None => return Look::Unknown,
            }
        }
        seen.iter().for_each(|(block, _)| self.pin(*block..*block + 1));
        Look::Seen(seen, self.theirs(blocks, usize::MAX))
    }

    /// The sum of the stamps of blocks; `None` if one is not this server's, or is being written.
    #[must_use]
    pub fn stamps(&self, mut blocks: Range<u64>) -> Option<u64> {
        let stamp = |block| match self.blocks.get(&block) {
            Some(Stand::Mine { stamp, .. }) => Some(*stamp),
            Some(_) | None => None,
        };
        let stamps: Option<Vec<u64>> = blocks.by_ref().map(stamp).collect();
        stamps.map(|stamps| sum_of(stamps.into_iter()))
    }

    pub(super) fn next_stamp(&mut self) -> u64 {
        self.stamps_given += 1;
        self.stamps_given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Grant;

    const OWN: ServerIndex = ServerIndex(0);
    const OTHER: ServerIndex = ServerIndex(1);

    fn home(_: u64) -> ServerIndex {
        OWN
    }

    /// Two blocks of this server's, two of another's.
    fn table() -> Table {
        let mut table = Table::default();
        let grant = |owner| Grant { owner, number: 1 << 20 };
        let grants = [grant(OWN), grant(OWN), grant(OTHER), grant(OTHER)];
        table.answered(&[0, 1, 2, 3], Some(&grants), OWN);
        table
    }

    #[test]
    fn a_write_holds_its_blocks_from_the_lowest_on() {
        let mut table = table();
        let mine = vec![(0, 1 << 20), (1, 1 << 20)];
        assert_eq!(table.hold(0..5, home), Hold::Mine(mine.clone()));
        assert_eq!(table.hold(1..5, home), Hold::Used);
        assert_eq!(table.look(0..1), Look::Pending);
        assert_eq!(table.hold(2..5, home), Hold::Theirs(OTHER, 2..4));
        assert_eq!(table.hold(4..5, home), Hold::Ask(OWN, vec![4]));
        assert_eq!(table.hold(4..5, home), Hold::Used);
        table.let_go(&mine);
        assert_eq!(table.hold(1..2, home), Hold::Mine(vec![(1, 1 << 20)]));
    }

    #[test]
    fn what_is_written_has_another_stamp_and_what_is_read_is_not_held() {
        let mut table = table();
        let Look::Seen(seen, theirs) = table.look(1..3) else { panic!("nobody works on them") };
        assert_eq!((seen.len(), theirs), (1, vec![(OTHER, 2..3)]));
        let before = table.stamps(1..2);
        assert!(before.is_some());
        assert_eq!(table.hold(1..2, home), Hold::Used);
        assert_eq!(table.hold(0..2, home), Hold::Mine(vec![(0, 1 << 20)]));
        table.let_go(&[(0, 1 << 20)]);
        table.end(1..2);
        assert_eq!(table.stamps(1..2), before);
        assert_eq!(table.hold(1..2, home), Hold::Mine(vec![(1, 1 << 20)]));
        assert_eq!(table.stamps(1..2), None);
        table.let_go(&[(1, 1 << 20)]);
        assert!(before < table.stamps(1..2));
        assert_eq!(table.stamps(1..3), None);
        assert!(table.busy().is_none());
    }
}
