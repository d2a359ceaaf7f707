//! What one server knows of whose the blocks of a file are.
//!
//! ```text
//!  (nothing) ─► asked ─► mine ─► leaving ─► (nothing), or theirs if it was passed on
//!                 └────► theirs ─────────► (nothing)
//!                          └─► taking ─► filling ─► mine ─► filling (held by a write, see `moment.rs`)
//! ```
//! Never: waits; lets a block go that somebody works on; lets a server that takes a block wait for one that this server is taking itself, so that
//! no two wait for each other. Always: `mine` is what the home says too, or is about to hear; `theirs` may be outdated, and then the owner
//! says so; nobody gets at a block between the moment it becomes this server's by taking and the moment it has its new bytes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use pario_core::ServerIndex;

use super::sabotage::{Bug, Sabotage};
use crate::places::Grant;

/// Blocks that are asked for at once.
pub const ASKED_MAX: usize = 4096;
/// Owners remembered that are other servers; all are forgotten when there are more.
pub(crate) const REMEMBERED_MAX: usize = 1 << 16;

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    /// Its home is being asked.
    Asked,
    /// It is this server's, and so many accesses are under way. The stamp is another one each time that it was
    /// held, or came: see `moment.rs`.
    Mine { number: u64, users: u32, stamp: u64 },
    /// It was, and its home is being told.
    Leaving,
    /// It was passed on, and its home could not be told: it must be before anybody here asks for the block.
    Owed { number: u64, to: ServerIndex },
    /// Its owner is asked to pass it on, since all of it is to be overwritten here. How often the file had been synced by then.
    Taking { syncs: u64 },
    /// It was passed on to this server, and is being overwritten.
    Filling { syncs: u64 },
    /// It was another one's when it was last heard of, under that number.
    Theirs { owner: ServerIndex, number: u64 },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Table {
    pub(super) blocks: HashMap<u64, Stand>,
    /// How many of them are other servers'.
    theirs: usize,
    /// How often a sync of the file began here.
    pub(super) syncs: u64,
    /// The last of them that is known to be over.
    pub(super) synced: u64,
    /// Ownerships that were given back while nobody said that their home knows.
    over: HashMap<u64, u64>,
    /// Blocks that are being taken, by the number of syncs before.
    pub(super) takes: BTreeMap<u64, usize>,
    /// Stamps so far.
    pub(super) stamps_given: u64,
    /// Something has changed that others may wait for.
    pub(super) stirred: bool,
    pub(super) sabotage: Sabotage,
}

/// Somebody who comes for blocks, and may have to come again.
#[derive(Clone, Debug)]
pub struct Visitor {
    blocks: Range<u64>,
    /// Some were seen leaving.
    left: bool,
}

impl Visitor {
    /// For these blocks.
    #[must_use]
    pub fn new(blocks: Range<u64>) -> Visitor {
        Visitor { blocks, left: false }
    }
}

/// Where an access goes on.
#[derive(PartialEq, Eq, Debug)]
pub enum Begun {
    /// Here, up to this block; [`Table::end`] must follow.
    Mine(u64),
    /// At another server, up to this block.
    Theirs(ServerIndex, u64),
    /// These blocks of one home must be asked for first; [`Table::answered`] must follow.
    Ask(ServerIndex, Vec<u64>),
    /// Its home must be told first whom it was passed on to; [`Table::passed`] must follow.
    Tell {
        /// The number of the ownership.
        number: u64,
        /// Whose it is.
        to: ServerIndex,
    },
    /// An answer is due that somebody else has asked for.
    Pending,
}

/// What a visitor finds.
#[derive(PartialEq, Eq, Debug)]
pub enum Found {
    /// All is this server's; [`Table::end`] must follow.
    Mine,
    /// It left just now, or is known to be another one's.
    Gone,
    /// Nothing is known of some.
    Unknown,
}

impl Stand {
    /// It will change soon without anybody's doing.
    pub(super) fn is_pending(self) -> bool {
        match self {
            Stand::Asked | Stand::Leaving | Stand::Taking { .. } | Stand::Filling { .. } => true,
            Stand::Mine { .. } | Stand::Theirs { .. } | Stand::Owed { .. } => false,
        }
    }
}

impl Table {
    /// With a deliberate bug.
    #[must_use]
    pub fn sabotaged(bug: Option<Bug>) -> Table {
        Table { sabotage: Sabotage(bug), ..Table::default() }
    }

    /// Whether something has changed, since this was asked last, that others may wait for: they must look again.
    pub fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// Where an access to these blocks begins.
    pub fn begin(&mut self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> Begun {
        match self.blocks.get(&blocks.start).copied() {
            Some(Stand::Mine { .. }) => {
                let is_mine = |block: &u64| matches!(self.blocks.get(block), Some(Stand::Mine { .. }));
                let end = blocks.clone().take_while(is_mine).last().map_or(blocks.start, |last| last + 1);
                self.pin(blocks.start..end);
                Begun::Mine(end)
            }
            Some(Stand::Theirs { owner: server, .. }) => {
                let is_theirs = |block: &u64| self.owner(*block) == Some(server);
                let end = blocks.clone().take_while(is_theirs).last().map_or(blocks.start, |last| last + 1);
                Begun::Theirs(server, end)
            }
            Some(Stand::Owed { number, to }) => {
                self.set(blocks.start, Some(Stand::Leaving));
                Begun::Tell { number, to }
            }
            Some(Stand::Asked | Stand::Leaving | Stand::Taking { .. } | Stand::Filling { .. }) => {
                Begun::Pending
            }
            None => {
                self.unknown(blocks, home).map_or(Begun::Pending, |(home, asked)| Begun::Ask(home, asked))
            }
        }
    }

    /// Blocks of one home that nothing is known of; they count as asked for. [`Table::answered`] must follow.
    pub fn unknown(
        &mut self,
        blocks: Range<u64>,
        home: impl Fn(u64) -> ServerIndex,
    ) -> Option<(ServerIndex, Vec<u64>)> {
        let mut unknown = blocks.filter(|block| !self.blocks.contains_key(block));
        let first = unknown.next()?;
        let (at, rest) = (home(first), unknown.filter(|block| home(*block) == home(first)));
        let asked: Vec<u64> = std::iter::once(first).chain(rest).take(ASKED_MAX).collect();
        for block in &asked {
            self.set(*block, Some(Stand::Asked));
        }
        Some((at, asked))
    }

    /// A home has answered for blocks that were asked for; `None`: it did not.
    pub fn answered(&mut self, blocks: &[u64], grants: Option<&[Grant]>, own: ServerIndex) {
        self.bound();
        for (place, block) in blocks.iter().enumerate() {
            let grant = grants.and_then(|grants| grants.get(place));
            let stamp = self.next_stamp();
            let stand = grant.map(|grant| match grant.owner {
                owner if owner == own => Stand::Mine { number: grant.number, users: 0, stamp },
                owner => Stand::Theirs { owner, number: grant.number },
            });
            self.set(*block, stand);
            // A home that has not heard of the hand-over to us yet will, and must not take it for one that goes on.
            let over = self.over.get(block).copied().unwrap_or(0);
            if grant.is_some_and(|grant| grant.owner == own || over < grant.number) {
                self.over.remove(block);
            }
        }
        self.stirred |= !self.sabotage.has(Bug::WakeNobody);
    }

    /// Somebody comes for blocks; `None`: an answer is due, and it must come again. [`Table::end`] must follow where they are this
    /// server's.
    pub fn visited(&mut self, visitor: &mut Visitor) -> Option<Found> {
        let blocks = visitor.blocks.clone();
        let stands = || blocks.clone().map(|block| self.blocks.get(&block).copied());
        visitor.left |= stands().any(|stand| stand == Some(Stand::Leaving));
        if stands().flatten().any(Stand::is_pending) {
            return None;
        }
        if stands().all(|stand| matches!(stand, Some(Stand::Mine { .. }))) {
            self.pin(blocks);
            return Some(Found::Mine);
        }
        let theirs = stands().any(|stand| matches!(stand, Some(Stand::Theirs { .. } | Stand::Owed { .. })));
        Some(if visitor.left || theirs { Found::Gone } else { Found::Unknown })
    }

    /// An access to blocks of this server's is over.
    pub fn end(&mut self, blocks: Range<u64>) {
        for block in blocks {
            if let Some(Stand::Mine { users, .. }) = self.blocks.get_mut(&block) {
                *users = users.saturating_sub(1);
            }
        }
        self.stirred = true;
    }

    /// Another server said that these are not its own.
    pub fn forget(&mut self, blocks: Range<u64>, server: ServerIndex) {
        for block in blocks {
            if self.owner(block) == Some(server) {
                self.set(block, None);
            }
        }
    }

    /// A home has just sent somebody here for these blocks: it knows better than what is remembered of others. Whether that was so of any.
    pub fn doubt(&mut self, blocks: Range<u64>) -> bool {
        let mut any = false;
        for block in blocks {
            if matches!(self.blocks.get(&block), Some(Stand::Theirs { .. }))
                && !self.sabotage.has(Bug::DoubtNothing)
            {
                self.set(block, None);
                any = true;
            }
        }
        any
    }

    /// Those of these blocks that are this server's, that nobody works on, and that are not wanted: they leave.
    /// [`Table::left`] must follow.
    pub fn leave(
        &mut self,
        blocks: impl IntoIterator<Item = u64>,
        wanted: impl Fn(u64) -> bool,
    ) -> Vec<(u64, u64)> {
        let mut leaving = Vec::new();
        for block in blocks {
            if let Some(Stand::Mine { number, users, .. }) = self.blocks.get(&block).copied()
                && (users == 0 || self.sabotage.has(Bug::LeaveInUse))
                && !wanted(block)
            {
                self.set(block, Some(Stand::Leaving));
                leaving.push((block, number));
            }
        }
        leaving
    }

    /// These left. Where their home did not say that it heard of it, it knows better than this server: it is asked when they are wanted,
    /// and told then which ownership is over.
    pub fn left(&mut self, blocks: &[(u64, u64)], told: bool) {
        for (block, number) in blocks {
            self.set(*block, None);
            if !told {
                self.over.insert(*block, *number);
            }
        }
        self.stirred = true;
    }

    /// Whether all of these are this server's.
    #[must_use]
    pub fn has(&self, mut blocks: Range<u64>) -> bool {
        blocks.all(|block| matches!(self.blocks.get(&block), Some(Stand::Mine { .. })))
    }

    /// All blocks that are this server's, in order.
    #[must_use]
    pub fn mine(&self) -> Vec<u64> {
        let mine = self.blocks.iter().filter(|(_, stand)| matches!(stand, Stand::Mine { .. }));
        let mut mine: Vec<u64> = mine.map(|(block, _)| *block).collect();
        mine.sort_unstable();
        mine
    }

    /// How many that is, those that are asked for or leave among them, and those whose home may not know that they left.
    #[must_use]
    pub fn count(&self) -> usize {
        self.blocks.len() - self.theirs + self.over.len()
    }

    /// Blocks as they are claimed: each with the number of an ownership that is over, if its home may not know that; else 0.
    #[must_use]
    pub fn claimed(&self, blocks: &[u64]) -> Vec<(u64, u64)> {
        let over = |block: &u64| self.over.get(block).copied().unwrap_or(0);
        blocks.iter().map(|block| (*block, over(block))).collect()
    }

    /// Blocks of which something is known.
    #[must_use]
    pub fn known(&self) -> usize {
        self.blocks.len()
    }

    /// How often a sync of the file began.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// A block that nobody can get at before an answer has come, or that is worked on.
    #[must_use]
    pub fn busy(&self) -> Option<u64> {
        let is_busy = |stand: &Stand| stand.is_pending() || matches!(stand, Stand::Mine { users: 1.., .. });
        self.blocks.iter().find(|(_, stand)| is_busy(stand)).map(|(block, _)| *block)
    }

    /// What is known of a block, in a word.
    #[must_use]
    pub fn word(&self, block: u64) -> &'static str {
        match self.blocks.get(&block) {
            None => "unknown",
            Some(Stand::Asked) => "asked",
            Some(Stand::Mine { users: 0, .. }) => "mine",
            Some(Stand::Mine { .. }) => "in use",
            Some(Stand::Leaving) => "leaving",
            Some(Stand::Owed { .. }) => "owed",
            Some(Stand::Taking { .. }) => "taking",
            Some(Stand::Filling { .. }) => "filling",
            Some(Stand::Theirs { .. }) => "theirs",
        }
    }

    /// The other server whose a block is, as far as is known.
    pub(super) fn owner(&self, block: u64) -> Option<ServerIndex> {
        match self.blocks.get(&block)? {
            Stand::Theirs { owner, .. } => Some(*owner),
            Stand::Asked
            | Stand::Mine { .. }
            | Stand::Leaving
            | Stand::Owed { .. }
            | Stand::Taking { .. }
            | Stand::Filling { .. } => None,
        }
    }

    pub(super) fn set(&mut self, block: u64, stand: Option<Stand>) {
        let is_theirs = |stand: Option<Stand>| usize::from(matches!(stand, Some(Stand::Theirs { .. })));
        let before = match stand {
            Some(stand) => self.blocks.insert(block, stand),
            None => self.blocks.remove(&block),
        };
        self.theirs = self.theirs + is_theirs(stand) - is_theirs(before);
        let takes = |stand: Option<Stand>| {
            let (Stand::Taking { syncs } | Stand::Filling { syncs }) = stand? else { return None };
            Some(syncs)
        };
        if let Some(syncs) = takes(stand) {
            *self.takes.entry(syncs).or_default() += 1;
        }
        if let Some(syncs) = takes(before)
            && let Some(count) = self.takes.get_mut(&syncs)
        {
            *count -= 1;
            if *count == 0 {
                self.takes.remove(&syncs);
            }
        }
    }

    /// Forgets what others own when that is too much.
    pub(super) fn bound(&mut self) {
        if REMEMBERED_MAX < self.theirs {
            self.blocks.retain(|_, stand| !matches!(stand, Stand::Theirs { .. }));
            self.theirs = 0;
        }
    }

    pub(super) fn pin(&mut self, blocks: Range<u64>) {
        for block in blocks {
            if let Some(Stand::Mine { users, .. }) = self.blocks.get_mut(&block) {
                *users += 1;
            }
        }
    }
}
