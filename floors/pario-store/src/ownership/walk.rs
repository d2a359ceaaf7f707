//! How an access gets to the owners of the blocks that it touches: where it goes on next.
//!
//! Never: asks anybody. Always: gets on, or gives up after [`TRIES_MAX`] changes of owner.

use std::ops::Range;

use pario_core::ServerIndex;

use super::table::Begun;

/// How often whose a run of blocks is may change before an access that wants them gives up.
const TRIES_MAX: u32 = 32;
/// How often blocks that are overwritten are taken in vain before they are written at their owner.
const TAKES_MAX: u32 = 3;

/// See the module.
#[derive(Clone, Debug)]
pub struct Walk {
    at: u64,
    end: u64,
    bytes: u64,
    /// Whole blocks are taken over.
    takes: bool,
    /// How often nothing came of it since it got on last.
    tries: u32,
    last: ServerIndex,
}

/// What an access does next.
#[derive(PartialEq, Eq, Debug)]
pub enum Step {
    /// These bytes, here: the blocks up to `end` are pinned, [`super::Table::end`] must follow.
    Here {
        /// Bytes.
        run: Range<u64>,
        /// One past the last block.
        end: u64,
    },
    /// These whole blocks are taken over from their owner.
    Take {
        /// Whose they are.
        owner: ServerIndex,
        /// Which.
        blocks: Range<u64>,
        /// The home said so just now.
        told: bool,
    },
    /// These bytes, at their owner.
    Visit {
        /// Whose they are.
        owner: ServerIndex,
        /// Bytes.
        run: Range<u64>,
        /// One past the last block.
        end: u64,
        /// The home said so just now.
        told: bool,
    },
    /// A home is asked; [`super::Table::answered`] must follow.
    Ask(ServerIndex, Vec<u64>),
    /// The home of the first block left is told whom that was passed on to; [`super::Table::passed`] must follow.
    Tell {
        /// The number of the ownership.
        number: u64,
        /// Whose it is.
        to: ServerIndex,
    },
    /// An answer is due; where it has been waited for, it does not come.
    Wait,
}

impl Walk {
    /// Through a range of bytes, in blocks of so many; `takes`: whole ones are taken over.
    #[must_use]
    pub fn new(range: &Range<u64>, bytes: u64, own: ServerIndex, takes: bool) -> Walk {
        Walk { at: range.start, end: range.end, bytes, takes, tries: 0, last: own }
    }

    /// The blocks that are left.
    #[must_use]
    pub fn rest(&self) -> Option<Range<u64>> {
        (self.at < self.end).then(|| self.at / self.bytes..self.end.div_ceil(self.bytes))
    }

    /// It has gone round too often.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        TRIES_MAX < self.tries
    }

    /// Who was the last to say that the next block is not its own.
    #[must_use]
    pub fn last(&self) -> ServerIndex {
        self.last
    }

    /// What comes next, after [`super::Table::begin`] of [`Walk::rest`].
    pub fn step(&mut self, begun: Begun) -> Step {
        let told = 0 < self.tries;
        match begun {
            Begun::Mine(end) => Step::Here { run: self.until(end), end },
            Begun::Theirs(owner, end) => match self.whole(end) {
                Some(blocks) => Step::Take { owner, blocks, told },
                None => {
                    // What comes behind a part of a block may be whole ones.
                    let end = if self.takes { self.part(end) } else { end };
                    Step::Visit { owner, run: self.until(end), end, told }
                }
            },
            Begun::Ask(home, blocks) => {
                // Asking again and again without getting on is no progress either.
                self.tries += u32::from(told);
                Step::Ask(home, blocks)
            }
            Begun::Tell { number, to } => Step::Tell { number, to },
            Begun::Pending => Step::Wait,
        }
    }

    /// Everything up to a block is done.
    pub fn go_on(&mut self, block: u64) {
        (self.at, self.tries) = (self.until(block).end, 0);
    }

    /// A server said that it is not the owner.
    pub fn go_again(&mut self, last: ServerIndex) {
        (self.tries, self.last) = (self.tries + 1, last);
    }

    /// Bytes from here to a block.
    fn until(&self, block: u64) -> Range<u64> {
        self.at..block.saturating_mul(self.bytes).min(self.end)
    }

    /// Blocks from here on, up to one, that lie in the access as a whole; `None` also where taking them failed too often.
    fn whole(&self, end: u64) -> Option<Range<u64>> {
        let whole = self.at / self.bytes..end.min(self.end / self.bytes);
        let fits = self.takes && self.at.is_multiple_of(self.bytes) && !whole.is_empty();
        (fits && self.tries < TAKES_MAX).then_some(whole)
    }

    /// The end of the block that an access begins in the middle of; else `end`.
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
        let mut walk = Walk::new(&(5..45), 10, OWN, true);
        assert_eq!(walk.rest(), Some(0..5));
        let visit = |run, end| Step::Visit { owner: OTHER, run, end, told: false };
        assert_eq!(walk.step(Begun::Theirs(OTHER, 5)), visit(5..10, 1));
        walk.go_on(1);
        assert_eq!(
            walk.step(Begun::Theirs(OTHER, 5)),
            Step::Take { owner: OTHER, blocks: 1..4, told: false }
        );
        walk.go_on(3);
        assert_eq!(walk.step(Begun::Mine(4)), Step::Here { run: 30..40, end: 4 });
        walk.go_on(4);
        assert_eq!(walk.step(Begun::Theirs(OTHER, 5)), visit(40..45, 5));
        walk.go_on(5);
        assert_eq!(walk.rest(), None);
    }

    #[test]
    fn what_is_taken_in_vain_is_visited_and_given_up_some_time() {
        let mut walk = Walk::new(&(0..10), 10, OWN, true);
        for told in [false, true, true] {
            assert_eq!(walk.step(Begun::Theirs(OTHER, 1)), Step::Take { owner: OTHER, blocks: 0..1, told });
            walk.go_again(OTHER);
        }
        assert_eq!(
            walk.step(Begun::Theirs(OTHER, 1)),
            Step::Visit { owner: OTHER, run: 0..10, end: 1, told: true }
        );
        assert!(!walk.is_lost());
        (0..TRIES_MAX).for_each(|_| drop(walk.step(Begun::Ask(OTHER, vec![0]))));
        assert!(walk.is_lost());
        assert_eq!(walk.last(), OTHER);
    }
}
