//! What one server knows of whose the blocks of a file are.
//!
//! ```text
//!  (nothing) ─► asked ─► mine ─► leaving ─► (nothing), or theirs if it was passed on
//!                 └────► theirs ─────────► (nothing)
//!                          └─► taking ─► filling ─► mine
//! ```
//! Never: lets a block go that somebody works on; lets a server that takes a block wait for one that this server is taking itself, so that
//! no two wait for each other. Always: `mine` is what the home says too, or is about to hear; `theirs` may be outdated, and then the owner
//! says so; nobody gets at a block between the moment it becomes this server's by taking and the moment it has its new bytes.

mod taking;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pario_core::ServerIndex;

pub(super) use self::taking::Parted;
use crate::places::Grant;
use crate::sync::lock;

/// A home answers, or is given up, well within this.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Blocks that are asked for at once.
pub(super) const ASKED_MAX: usize = 4096;
/// Owners remembered that are other servers; all are forgotten when there are more.
const REMEMBERED_MAX: usize = 1 << 16;

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    /// Its home is being asked.
    Asked,
    /// It is this server's, and so many accesses are under way.
    Mine { number: u64, users: u32 },
    /// It was, and its home is being told.
    Leaving,
    /// It was passed on, and its home could not be told: it must be before anybody here asks for the block.
    Owed { number: u64, to: ServerIndex },
    /// Its owner is asked to pass it on, since all of it is to be overwritten here. How often the file had been synced by then.
    Taking { syncs: u64 },
    /// It was passed on to this server, and is being overwritten.
    Filling { syncs: u64 },
    /// It was another one's when it was last heard of.
    Theirs(ServerIndex),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Owners {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    blocks: HashMap<u64, Stand>,
    /// How many of them are other servers'.
    theirs: usize,
    /// How often a sync of the file began here.
    syncs: u64,
    /// The last of them that is over.
    synced: u64,
    /// Blocks that are being taken, by the number of syncs before.
    takes: BTreeMap<u64, usize>,
}

/// Where an access goes on.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Begun {
    /// Here, up to this block; [`Owners::end`] must follow.
    Mine(u64),
    /// At another server, up to this block.
    Theirs(ServerIndex, u64),
    /// These blocks of one home must be asked for first; [`Owners::answered`] must follow.
    Ask(ServerIndex, Vec<u64>),
    /// Its home must be told first whom it was passed on to; [`Owners::passed`] must follow.
    Tell { number: u64, to: ServerIndex },
    /// Somebody else has just asked.
    Again,
    /// An answer that must come did not.
    Stuck,
}

/// What a visitor finds.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// All is this server's; [`Owners::end`] must follow.
    Mine,
    /// It left just now, or is known to be another one's.
    Gone,
    /// Nothing is known of some.
    Unknown,
}

impl Stand {
    /// It will change soon without anybody's doing.
    fn is_pending(self) -> bool {
        match self {
            Stand::Asked | Stand::Leaving | Stand::Taking { .. } | Stand::Filling { .. } => true,
            Stand::Mine { .. } | Stand::Theirs(_) | Stand::Owed { .. } => false,
        }
    }
}

impl Owners {
    /// Where an access to these blocks begins.
    pub(super) fn begin(&self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> Begun {
        let Some(mut table) =
            self.wait_while(&(blocks.start..blocks.start.saturating_add(1)), Stand::is_pending)
        else {
            return Begun::Stuck;
        };
        match table.blocks.get(&blocks.start).copied() {
            Some(Stand::Mine { .. }) => {
                let is_mine = |block: &u64| matches!(table.blocks.get(block), Some(Stand::Mine { .. }));
                let end = blocks.clone().take_while(is_mine).last().map_or(blocks.start, |last| last + 1);
                table.pin(blocks.start..end);
                Begun::Mine(end)
            }
            Some(Stand::Theirs(server)) => {
                let is_theirs = |block: &u64| table.blocks.get(block) == Some(&Stand::Theirs(server));
                let end = blocks.clone().take_while(is_theirs).last().map_or(blocks.start, |last| last + 1);
                Begun::Theirs(server, end)
            }
            Some(Stand::Owed { number, to }) => {
                table.set(blocks.start, Some(Stand::Leaving));
                Begun::Tell { number, to }
            }
            Some(Stand::Asked | Stand::Leaving | Stand::Taking { .. } | Stand::Filling { .. }) => {
                Begun::Stuck
            }
            None => {
                drop(table);
                // Whoever was faster asks for it.
                self.unknown(blocks.clone(), home)
                    .map_or(Begun::Again, |(home, asked)| Begun::Ask(home, asked))
            }
        }
    }

    /// Blocks of one home that nothing is known of; they count as asked for. [`Owners::answered`] must follow.
    pub(super) fn unknown(
        &self,
        blocks: Range<u64>,
        home: impl Fn(u64) -> ServerIndex,
    ) -> Option<(ServerIndex, Vec<u64>)> {
        let mut table = lock(&self.table);
        let mut unknown = blocks.filter(|block| !table.blocks.contains_key(block));
        let first = unknown.next()?;
        let (at, rest) = (home(first), unknown.filter(|block| home(*block) == home(first)));
        let asked: Vec<u64> = std::iter::once(first).chain(rest).take(ASKED_MAX).collect();
        for block in &asked {
            table.set(*block, Some(Stand::Asked));
        }
        Some((at, asked))
    }

    /// A home has answered for blocks that were asked for; `None`: it did not.
    pub(super) fn answered(&self, blocks: &[u64], grants: Option<&[Grant]>, own: ServerIndex) {
        let mut table = lock(&self.table);
        table.bound();
        for (place, block) in blocks.iter().enumerate() {
            let stand = grants.and_then(|grants| grants.get(place)).map(|grant| match grant.owner {
                owner if owner == own => Stand::Mine { number: grant.number, users: 0 },
                owner => Stand::Theirs(owner),
            });
            table.set(*block, stand);
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Somebody comes for these blocks.
    pub(super) fn visited(&self, blocks: Range<u64>) -> Found {
        let mut left = false;
        let pending = |stand: Stand| {
            left |= stand == Stand::Leaving;
            stand.is_pending()
        };
        let Some(mut table) = self.wait_while(&blocks, pending) else { return Found::Gone };
        let stands = || blocks.clone().map(|block| table.blocks.get(&block));
        if stands().all(|stand| matches!(stand, Some(Stand::Mine { .. }))) {
            table.pin(blocks);
            return Found::Mine;
        }
        let theirs = stands().any(|stand| matches!(stand, Some(Stand::Theirs(_) | Stand::Owed { .. })));
        if left || theirs { Found::Gone } else { Found::Unknown }
    }

    /// An access to blocks of this server's is over.
    pub(super) fn end(&self, blocks: Range<u64>) {
        let mut table = lock(&self.table);
        for block in blocks {
            if let Some(Stand::Mine { users, .. }) = table.blocks.get_mut(&block) {
                *users = users.saturating_sub(1);
            }
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Another server said that these are not its own.
    pub(super) fn forget(&self, blocks: Range<u64>, server: ServerIndex) {
        let mut table = lock(&self.table);
        for block in blocks {
            if table.blocks.get(&block) == Some(&Stand::Theirs(server)) {
                table.set(block, None);
            }
        }
    }

    /// Those of these blocks that are this server's, that nobody works on, and that are not wanted: they leave.
    /// [`Owners::left`] must follow.
    pub(super) fn leave(
        &self,
        blocks: impl IntoIterator<Item = u64>,
        wanted: impl Fn(u64) -> bool,
    ) -> Vec<(u64, u64)> {
        let mut table = lock(&self.table);
        let mut leaving = Vec::new();
        for block in blocks {
            if let Some(Stand::Mine { number, users: 0 }) = table.blocks.get(&block).copied()
                && !wanted(block)
            {
                table.set(block, Some(Stand::Leaving));
                leaving.push((block, number));
            }
        }
        leaving
    }

    /// These left. Where their home did not say that it heard of it, it knows better than this server: it is asked when they are wanted.
    pub(super) fn left(&self, blocks: &[(u64, u64)]) {
        let mut table = lock(&self.table);
        for (block, _) in blocks {
            table.set(*block, None);
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Whether all of these are this server's.
    pub(super) fn has(&self, mut blocks: Range<u64>) -> bool {
        let table = lock(&self.table);
        blocks.all(|block| matches!(table.blocks.get(&block), Some(Stand::Mine { .. })))
    }

    /// All blocks that are this server's.
    pub(super) fn mine(&self) -> Vec<u64> {
        let table = lock(&self.table);
        let mine = table.blocks.iter().filter(|(_, stand)| matches!(stand, Stand::Mine { .. }));
        mine.map(|(block, _)| *block).collect()
    }

    /// How many that is, those that are asked for or leave among them.
    pub(super) fn count(&self) -> usize {
        let table = lock(&self.table);
        table.blocks.len() - table.theirs
    }

    /// Waits while one of these blocks is pending. A home answers soon or never; whoever takes a block may wait for its owner, as any
    /// visitor may.
    fn wait_while(
        &self,
        blocks: &Range<u64>,
        mut pending: impl FnMut(Stand) -> bool,
    ) -> Option<std::sync::MutexGuard<'_, Table>> {
        let mut table = lock(&self.table);
        loop {
            let mut some = |table: &mut Table| {
                let mut stands = blocks.clone().filter_map(|block| table.blocks.get(&block).copied());
                stands.any(&mut pending)
            };
            let waited = self.changed.wait_timeout_while(table, ANSWER_MAX, &mut some);
            let (after, time) = waited.unwrap_or_else(PoisonError::into_inner);
            if !time.timed_out() {
                return Some(after);
            }
            table = after;
            let is_taken = |block| {
                matches!(table.blocks.get(&block), Some(Stand::Taking { .. } | Stand::Filling { .. }))
            };
            if !blocks.clone().any(is_taken) {
                return None;
            }
        }
    }
}

impl Table {
    fn set(&mut self, block: u64, stand: Option<Stand>) {
        let is_theirs = |stand: Option<Stand>| usize::from(matches!(stand, Some(Stand::Theirs(_))));
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
    fn bound(&mut self) {
        if REMEMBERED_MAX < self.theirs {
            self.blocks.retain(|_, stand| !matches!(stand, Stand::Theirs(_)));
            self.theirs = 0;
        }
    }

    fn pin(&mut self, blocks: Range<u64>) {
        for block in blocks {
            if let Some(Stand::Mine { users, .. }) = self.blocks.get_mut(&block) {
                *users += 1;
            }
        }
    }
}
