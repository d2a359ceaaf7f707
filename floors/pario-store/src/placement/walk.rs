//! Route of an access through the owners of its blocks: pure decision of the next step.
//!
//! Never: sends. Always: progresses, or gives up after [`TRIES_MAX`] changes of owner.

use std::ops::Range;

use pario_core::ServerIndex;

use super::table::AccessStart;

/// Changes of owner of one run of blocks after which an access gives up.
const TRIES_MAX: u32 = 32;
/// Failed handovers of a run after which it is written at its owner by remote access.
const HANDOVERS_MAX: u32 = 3;

/// See the module.
#[derive(Clone, Debug)]
pub struct OwnerWalk {
    at: u64,
    end: u64,
    bytes: u64,
    /// Whole blocks are handed over to this server.
    hands_over: bool,
    /// Failed attempts since the last progress.
    tries: u32,
    last: ServerIndex,
}

/// Next step of an access.
#[derive(PartialEq, Eq, Debug)]
pub enum WalkStep {
    /// Access these bytes here: the blocks up to `end` are pinned, [`super::Table::end`] must follow.
    Here {
        /// Bytes.
        run: Range<u64>,
        /// One past the last block.
        end: u64,
    },
    /// Request a handover of these whole blocks.
    Handover {
        /// The owner.
        owner: ServerIndex,
        /// The blocks.
        blocks: Range<u64>,
        /// The home has just named the owner.
        told: bool,
    },
    /// Access these bytes at their owner.
    Remote {
        /// The owner.
        owner: ServerIndex,
        /// Bytes.
        run: Range<u64>,
        /// One past the last block.
        end: u64,
        /// The home has just named the owner.
        told: bool,
    },
    /// Claim blocks at a home; [`super::Table::answered`] must follow.
    Claim(ServerIndex, Vec<u64>),
    /// Report the handover of the first remaining block to its home; [`super::Table::passed`] must follow.
    Report {
        /// The ownership number.
        number: u64,
        /// The new owner.
        to: ServerIndex,
    },
    /// Wait for a home's answer; after a timeout it counts as lost.
    Wait,
}

impl OwnerWalk {
    /// Walks through a range of bytes, in blocks of `block_bytes`; `takes`: whole blocks are requested from their owners.
    #[must_use]
    pub fn new(range: &Range<u64>, bytes: u64, own: ServerIndex, takes: bool) -> OwnerWalk {
        OwnerWalk { at: range.start, end: range.end, bytes, hands_over: takes, tries: 0, last: own }
    }

    /// The remaining blocks.
    #[must_use]
    pub fn rest(&self) -> Option<Range<u64>> {
        (self.at < self.end).then(|| self.at / self.bytes..self.end.div_ceil(self.bytes))
    }

    /// The access has failed more than [`TRIES_MAX`] times.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        TRIES_MAX < self.tries
    }

    /// The last server that denied owning the next block.
    #[must_use]
    pub fn last(&self) -> ServerIndex {
        self.last
    }

    /// The next step, after [`super::Table::begin`] of [`OwnerWalk::rest`].
    pub fn step(&mut self, begun: AccessStart) -> WalkStep {
        let told = 0 < self.tries;
        match begun {
            AccessStart::Owned(end) => WalkStep::Here { run: self.until(end), end },
            AccessStart::Remote(owner, end) => match self.whole(end) {
                Some(blocks) => WalkStep::Handover { owner, blocks, told },
                None => {
                    // Whole blocks may follow a partial first block.
                    let end = if self.hands_over { self.part(end) } else { end };
                    WalkStep::Remote { owner, run: self.until(end), end, told }
                }
            },
            AccessStart::Claim(home, blocks) => {
                // Repeated answers of a home without progress count as attempts.
                self.tries += u32::from(told);
                WalkStep::Claim(home, blocks)
            }
            AccessStart::Report { number, to } => WalkStep::Report { number, to },
            AccessStart::Pending => WalkStep::Wait,
        }
    }

    /// All bytes before this block are done.
    pub fn advance(&mut self, block: u64) {
        (self.at, self.tries) = (self.until(block).end, 0);
    }

    /// A server answered that it is not the owner.
    pub fn retry(&mut self, last: ServerIndex) {
        (self.tries, self.last) = (self.tries + 1, last);
    }

    /// Bytes from the current offset to a block.
    fn until(&self, block: u64) -> Range<u64> {
        self.at..block.saturating_mul(self.bytes).min(self.end)
    }

    /// Whole blocks from the current offset up to `end`; `None` also after [`HANDOVERS_MAX`] failed handovers.
    fn whole(&self, end: u64) -> Option<Range<u64>> {
        let whole = self.at / self.bytes..end.min(self.end / self.bytes);
        let fits = self.hands_over && self.at.is_multiple_of(self.bytes) && !whole.is_empty();
        (fits && self.tries < HANDOVERS_MAX).then_some(whole)
    }

    /// The end of a partial first block, else `end`.
    fn part(&self, end: u64) -> u64 {
        if self.at.is_multiple_of(self.bytes) { end } else { end.min(self.at / self.bytes + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ServerIndex = ServerIndex(0);
    const OTHER: ServerIndex = ServerIndex(1);

    #[test]
    fn whole_blocks_are_taken_and_parts_visited() {
        let mut walk = OwnerWalk::new(&(5..45), 10, OWN, true);
        assert_eq!(walk.rest(), Some(0..5));
        let visit = |run, end| WalkStep::Remote { owner: OTHER, run, end, told: false };
        assert_eq!(walk.step(AccessStart::Remote(OTHER, 5)), visit(5..10, 1));
        walk.advance(1);
        assert_eq!(
            walk.step(AccessStart::Remote(OTHER, 5)),
            WalkStep::Handover { owner: OTHER, blocks: 1..4, told: false }
        );
        walk.advance(3);
        assert_eq!(walk.step(AccessStart::Owned(4)), WalkStep::Here { run: 30..40, end: 4 });
        walk.advance(4);
        assert_eq!(walk.step(AccessStart::Remote(OTHER, 5)), visit(40..45, 5));
        walk.advance(5);
        assert_eq!(walk.rest(), None);
    }

    #[test]
    fn what_is_taken_in_vain_is_visited_and_given_up_some_time() {
        let mut walk = OwnerWalk::new(&(0..10), 10, OWN, true);
        for told in [false, true, true] {
            assert_eq!(
                walk.step(AccessStart::Remote(OTHER, 1)),
                WalkStep::Handover { owner: OTHER, blocks: 0..1, told }
            );
            walk.retry(OTHER);
        }
        assert_eq!(
            walk.step(AccessStart::Remote(OTHER, 1)),
            WalkStep::Remote { owner: OTHER, run: 0..10, end: 1, told: true }
        );
        assert!(!walk.is_lost());
        (0..TRIES_MAX).for_each(|_| drop(walk.step(AccessStart::Claim(OTHER, vec![0]))));
        assert!(walk.is_lost());
        assert_eq!(walk.last(), OTHER);
    }
}
