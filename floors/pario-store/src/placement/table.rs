//! One server's table of the owners of a file's blocks.
//!
//! ```text
//!  (unknown) ─► claiming ─► owned ─► leaving ─► (unknown), or remote after a handover
//!                  └─────► remote ───────────► (unknown)
//!                             └─► requested ─► filling ─► owned ─► filling (held by a write, see `atomic.rs`)
//! ```
//! Never: waits; releases a block in use; lets a requester wait for a block that this server itself is requesting (no two servers wait
//! for each other). Always: `owned` is recorded at the home, or a report is on its way; `remote` may be outdated, and then that server
//! denies it; a block is inaccessible from its handover to this server until its new bytes are written.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use pario_core::{Sabotage, ServerIndex};

use super::sabotage::Bug;
use crate::peers::Grant;

/// Blocks claimed in one request.
pub const CLAIMED_MAX: usize = 4096;
/// Remembered owners of remote blocks; all are forgotten when there are more.
pub(crate) const REMEMBERED_MAX: usize = 1 << 16;

/// State of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockOwnership {
    /// A claim is under way at its home.
    Claiming,
    /// Owned here, with `users` accesses in progress. The version changes each time that the block was held or arrived: see `atomic.rs`.
    Owned { number: u64, users: u32, stamp: u64 },
    /// Was owned here; the report to its home is under way.
    Leaving,
    /// Was handed over, unreported: the home must know before this server claims the block again.
    Unreported { number: u64, to: ServerIndex },
    /// A handover was requested, since the whole block is overwritten here. `syncs`: syncs of the file begun by then.
    Requested { syncs: u64 },
    /// Was handed over to this server, and is being overwritten.
    Filling { syncs: u64 },
    /// Owned by another server under that number when last known.
    Remote { owner: ServerIndex, number: u64 },
}

/// See the module.
#[derive(Debug, Default)]
pub struct OwnershipTable {
    pub(super) blocks: HashMap<u64, BlockOwnership>,
    /// Blocks in state `Remote`.
    remote_count: usize,
    /// Syncs of the file begun here.
    pub(super) syncs: u64,
    /// The last completed sync.
    pub(super) synced: u64,
    /// Ownerships that were given back without confirmation by their home.
    unconfirmed: HashMap<u64, u64>,
    /// Handovers in progress, by the number of syncs before.
    pub(super) handovers: BTreeMap<u64, usize>,
    /// Versions assigned so far.
    pub(super) versions_given: u64,
    /// A change that waiting accesses must see.
    pub(super) changed: bool,
    pub(super) sabotage: Sabotage<Bug>,
}

/// A remote request for blocks, possibly repeated.
#[derive(Clone, Debug)]
pub struct RemoteRequest {
    blocks: Range<u64>,
    /// Some blocks were leaving at an earlier attempt.
    left: bool,
}

impl RemoteRequest {
    /// For these blocks.
    #[must_use]
    pub fn new(blocks: Range<u64>) -> RemoteRequest {
        RemoteRequest { blocks, left: false }
    }
}

/// Where an access starts.
#[derive(PartialEq, Eq, Debug)]
pub enum AccessStart {
    /// Here, up to this block; [`OwnershipTable::end`] must follow.
    Owned(u64),
    /// At another server, up to this block.
    Remote(ServerIndex, u64),
    /// These blocks of one home must be claimed first; [`OwnershipTable::answered`] must follow.
    Claim(ServerIndex, Vec<u64>),
    /// A handover must first be reported to the block's home; [`OwnershipTable::passed`] must follow.
    Report {
        /// The ownership number.
        number: u64,
        /// The new owner.
        to: ServerIndex,
    },
    /// The answer to another access's claim is outstanding.
    Pending,
}

/// State of the blocks of a remote request.
#[derive(PartialEq, Eq, Debug)]
pub enum RemoteLookup {
    /// All are owned here; [`OwnershipTable::end`] must follow.
    Owned,
    /// Some have just left, or belong to another server.
    NotOwner,
    /// The owner of some is unknown here.
    Unknown,
}

impl BlockOwnership {
    /// The state changes without further action of this server.
    pub(super) fn is_pending(self) -> bool {
        match self {
            BlockOwnership::Claiming
            | BlockOwnership::Leaving
            | BlockOwnership::Requested { .. }
            | BlockOwnership::Filling { .. } => true,
            BlockOwnership::Owned { .. }
            | BlockOwnership::Remote { .. }
            | BlockOwnership::Unreported { .. } => false,
        }
    }
}

impl OwnershipTable {
    /// With a deliberate bug.
    #[must_use]
    pub fn sabotaged(bug: Option<Bug>) -> OwnershipTable {
        OwnershipTable { sabotage: Sabotage::new(bug), ..OwnershipTable::default() }
    }

    /// Whether the table changed since the last call: waiting accesses must check again.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Starts an access to these blocks.
    pub fn begin(&mut self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> AccessStart {
        match self.blocks.get(&blocks.start).copied() {
            Some(BlockOwnership::Owned { .. }) => {
                let is_mine =
                    |block: &u64| matches!(self.blocks.get(block), Some(BlockOwnership::Owned { .. }));
                let end = blocks.clone().take_while(is_mine).last().map_or(blocks.start, |last| last + 1);
                self.pin(blocks.start..end);
                AccessStart::Owned(end)
            }
            Some(BlockOwnership::Remote { owner: server, .. }) => {
                let is_theirs = |block: &u64| self.owner(*block) == Some(server);
                let end = blocks.clone().take_while(is_theirs).last().map_or(blocks.start, |last| last + 1);
                AccessStart::Remote(server, end)
            }
            Some(BlockOwnership::Unreported { number, to }) => {
                self.set(blocks.start, Some(BlockOwnership::Leaving));
                AccessStart::Report { number, to }
            }
            Some(
                BlockOwnership::Claiming
                | BlockOwnership::Leaving
                | BlockOwnership::Requested { .. }
                | BlockOwnership::Filling { .. },
            ) => AccessStart::Pending,
            None => self
                .unknown(blocks, home)
                .map_or(AccessStart::Pending, |(home, asked)| AccessStart::Claim(home, asked)),
        }
    }

    /// Blocks of one home with unknown owners; they are marked as claimed. [`OwnershipTable::answered`] must follow.
    pub fn unknown(
        &mut self,
        blocks: Range<u64>,
        home: impl Fn(u64) -> ServerIndex,
    ) -> Option<(ServerIndex, Vec<u64>)> {
        let mut unknown = blocks.filter(|block| !self.blocks.contains_key(block));
        let first = unknown.next()?;
        let (at, rest) = (home(first), unknown.filter(|block| home(*block) == home(first)));
        let asked: Vec<u64> = std::iter::once(first).chain(rest).take(CLAIMED_MAX).collect();
        for block in &asked {
            self.set(*block, Some(BlockOwnership::Claiming));
        }
        Some((at, asked))
    }

    /// A home has answered the claim of these blocks; `None`: it did not.
    pub fn answered(&mut self, blocks: &[u64], grants: Option<&[Grant]>, own: ServerIndex) {
        self.bound();
        for (place, block) in blocks.iter().enumerate() {
            let grant = grants.and_then(|grants| grants.get(place));
            let stamp = self.next_version();
            let stand = grant.map(|grant| match grant.owner {
                owner if owner == own => BlockOwnership::Owned { number: grant.number, users: 0, stamp },
                owner => BlockOwnership::Remote { owner, number: grant.number },
            });
            self.set(*block, stand);
            // A home that has not recorded the handover to this server yet must not count it as a later ownership.
            let over = self.unconfirmed.get(block).copied().unwrap_or(0);
            if grant.is_some_and(|grant| grant.owner == own || over < grant.number) {
                self.unconfirmed.remove(block);
            }
        }
        self.changed |= !self.sabotage.has(Bug::WakeNobody);
    }

    /// A remote request for blocks; `None`: a home's answer is outstanding, retry. [`OwnershipTable::end`] must follow if they are owned here.
    pub fn look_up_remote(&mut self, visitor: &mut RemoteRequest) -> Option<RemoteLookup> {
        let blocks = visitor.blocks.clone();
        let stands = || blocks.clone().map(|block| self.blocks.get(&block).copied());
        visitor.left |= stands().any(|stand| stand == Some(BlockOwnership::Leaving));
        if stands().flatten().any(BlockOwnership::is_pending) {
            return None;
        }
        if stands().all(|stand| matches!(stand, Some(BlockOwnership::Owned { .. }))) {
            self.pin(blocks);
            return Some(RemoteLookup::Owned);
        }
        let theirs = stands().any(|stand| {
            matches!(stand, Some(BlockOwnership::Remote { .. } | BlockOwnership::Unreported { .. }))
        });
        Some(if visitor.left || theirs { RemoteLookup::NotOwner } else { RemoteLookup::Unknown })
    }

    /// An access to blocks owned here ends.
    pub fn end(&mut self, blocks: Range<u64>) {
        for block in blocks {
            if let Some(BlockOwnership::Owned { users, .. }) = self.blocks.get_mut(&block) {
                *users = users.saturating_sub(1);
            }
        }
        self.changed = true;
    }

    /// Another server denied owning these.
    pub fn forget(&mut self, blocks: Range<u64>, server: ServerIndex) {
        for block in blocks {
            if self.owner(block) == Some(server) {
                self.set(block, None);
            }
        }
    }

    /// A home has just sent a request here for these blocks: its record overrides remembered owners. Returns whether any was overridden.
    pub fn forget_remote(&mut self, blocks: Range<u64>) -> bool {
        let mut any = false;
        for block in blocks {
            if matches!(self.blocks.get(&block), Some(BlockOwnership::Remote { .. }))
                && !self.sabotage.has(Bug::DoubtNothing)
            {
                self.set(block, None);
                any = true;
            }
        }
        any
    }

    /// Releases those of these blocks that are owned here, not in use and not wanted. [`OwnershipTable::left`] must follow.
    pub fn leave(
        &mut self,
        blocks: impl IntoIterator<Item = u64>,
        wanted: impl Fn(u64) -> bool,
    ) -> Vec<(u64, u64)> {
        let mut leaving = Vec::new();
        for block in blocks {
            if let Some(BlockOwnership::Owned { number, users, .. }) = self.blocks.get(&block).copied()
                && (users == 0 || self.sabotage.has(Bug::LeaveInUse))
                && !wanted(block)
            {
                self.set(block, Some(BlockOwnership::Leaving));
                leaving.push((block, number));
            }
        }
        leaving
    }

    /// These blocks left. Without confirmation by the home (`told` is false), the home's record counts: the next claim names the ended
    /// ownership.
    pub fn left(&mut self, blocks: &[(u64, u64)], told: bool) {
        for (block, number) in blocks {
            self.set(*block, None);
            if !told {
                self.unconfirmed.insert(*block, *number);
            }
        }
        self.changed = true;
    }

    /// Whether all of these are owned here.
    #[must_use]
    pub fn has(&self, mut blocks: Range<u64>) -> bool {
        blocks.all(|block| matches!(self.blocks.get(&block), Some(BlockOwnership::Owned { .. })))
    }

    /// All blocks owned here, in order.
    #[must_use]
    pub fn owned(&self) -> Vec<u64> {
        let mine = self.blocks.iter().filter(|(_, stand)| matches!(stand, BlockOwnership::Owned { .. }));
        let mut mine: Vec<u64> = mine.map(|(block, _)| *block).collect();
        mine.sort_unstable();
        mine
    }

    /// The number of owned blocks, including blocks being claimed, leaving, or with an unconfirmed give-back.
    #[must_use]
    pub fn count(&self) -> usize {
        self.blocks.len() - self.remote_count + self.unconfirmed.len()
    }

    /// Claims of these blocks: each with the number of an ended ownership that its home may not know; else 0.
    #[must_use]
    pub fn claimed(&self, blocks: &[u64]) -> Vec<(u64, u64)> {
        let over = |block: &u64| self.unconfirmed.get(block).copied().unwrap_or(0);
        blocks.iter().map(|block| (*block, over(block))).collect()
    }

    /// Blocks with a known state.
    #[must_use]
    pub fn known(&self) -> usize {
        self.blocks.len()
    }

    /// Syncs of the file begun.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// A block in use, or inaccessible until an answer arrives.
    #[must_use]
    pub fn busy(&self) -> Option<u64> {
        let is_busy = |stand: &BlockOwnership| {
            stand.is_pending() || matches!(stand, BlockOwnership::Owned { users: 1.., .. })
        };
        self.blocks.iter().find(|(_, stand)| is_busy(stand)).map(|(block, _)| *block)
    }

    /// The state of a block as a word.
    #[must_use]
    pub fn word(&self, block: u64) -> &'static str {
        match self.blocks.get(&block) {
            None => "unknown",
            Some(BlockOwnership::Claiming) => "asked",
            Some(BlockOwnership::Owned { users: 0, .. }) => "mine",
            Some(BlockOwnership::Owned { .. }) => "in use",
            Some(BlockOwnership::Leaving) => "leaving",
            Some(BlockOwnership::Unreported { .. }) => "owed",
            Some(BlockOwnership::Requested { .. }) => "taking",
            Some(BlockOwnership::Filling { .. }) => "filling",
            Some(BlockOwnership::Remote { .. }) => "theirs",
        }
    }

    /// The remote owner of a block, as far as known.
    pub(super) fn owner(&self, block: u64) -> Option<ServerIndex> {
        match self.blocks.get(&block)? {
            BlockOwnership::Remote { owner, .. } => Some(*owner),
            BlockOwnership::Claiming
            | BlockOwnership::Owned { .. }
            | BlockOwnership::Leaving
            | BlockOwnership::Unreported { .. }
            | BlockOwnership::Requested { .. }
            | BlockOwnership::Filling { .. } => None,
        }
    }

    pub(super) fn set(&mut self, block: u64, stand: Option<BlockOwnership>) {
        let is_theirs =
            |stand: Option<BlockOwnership>| usize::from(matches!(stand, Some(BlockOwnership::Remote { .. })));
        let before = match stand {
            Some(stand) => self.blocks.insert(block, stand),
            None => self.blocks.remove(&block),
        };
        self.remote_count = self.remote_count + is_theirs(stand) - is_theirs(before);
        let takes = |stand: Option<BlockOwnership>| {
            let (BlockOwnership::Requested { syncs } | BlockOwnership::Filling { syncs }) = stand? else {
                return None;
            };
            Some(syncs)
        };
        if let Some(syncs) = takes(stand) {
            *self.handovers.entry(syncs).or_default() += 1;
        }
        if let Some(syncs) = takes(before)
            && let Some(count) = self.handovers.get_mut(&syncs)
        {
            *count -= 1;
            if *count == 0 {
                self.handovers.remove(&syncs);
            }
        }
    }

    /// Forgets all remote owners when there are more than [`REMEMBERED_MAX`].
    pub(super) fn bound(&mut self) {
        if REMEMBERED_MAX < self.remote_count {
            self.blocks.retain(|_, stand| !matches!(stand, BlockOwnership::Remote { .. }));
            self.remote_count = 0;
        }
    }

    pub(super) fn pin(&mut self, blocks: Range<u64>) {
        for block in blocks {
            if let Some(BlockOwnership::Owned { users, .. }) = self.blocks.get_mut(&block) {
                *users += 1;
            }
        }
    }
}
