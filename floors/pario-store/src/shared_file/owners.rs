//! What one server knows of whose the blocks of a file are.
//!
//! ```text
//!  (nothing) ─► asked ─► mine ─► leaving ─► (nothing)
//!                 └────► theirs ─────────► (nothing)
//! ```
//! Never: waits for more than the answer of a home, which waits for nobody; lets a block go that somebody works on. Always: `mine` is what
//! the home says too, or is about to hear; `theirs` may be outdated, and then the owner says so.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pario_core::ServerIndex;

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

impl Owners {
    /// Where an access to these blocks begins.
    pub(super) fn begin(&self, blocks: Range<u64>, home: impl Fn(u64) -> ServerIndex) -> Begun {
        let pending = |table: &mut Table| {
            matches!(table.blocks.get(&blocks.start), Some(Stand::Asked | Stand::Leaving))
        };
        let Some(mut table) = self.wait_while(pending) else { return Begun::Stuck };
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
            Some(Stand::Asked | Stand::Leaving) => Begun::Stuck,
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
        if REMEMBERED_MAX < table.theirs {
            table.blocks.retain(|_, stand| !matches!(stand, Stand::Theirs(_)));
            table.theirs = 0;
        }
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
        let pending = |table: &mut Table| {
            let stands = || blocks.clone().map(|block| table.blocks.get(&block));
            left |= stands().any(|stand| matches!(stand, Some(Stand::Leaving)));
            stands().any(|stand| matches!(stand, Some(Stand::Asked | Stand::Leaving)))
        };
        let Some(mut table) = self.wait_while(pending) else { return Found::Gone };
        let stands = || blocks.clone().map(|block| table.blocks.get(&block));
        if stands().all(|stand| matches!(stand, Some(Stand::Mine { .. }))) {
            table.pin(blocks);
            return Found::Mine;
        }
        let theirs = stands().any(|stand| matches!(stand, Some(Stand::Theirs(_))));
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

    fn wait_while(
        &self,
        pending: impl FnMut(&mut Table) -> bool,
    ) -> Option<std::sync::MutexGuard<'_, Table>> {
        let table = lock(&self.table);
        let waited = self.changed.wait_timeout_while(table, ANSWER_MAX, pending);
        let (table, time) = waited.unwrap_or_else(PoisonError::into_inner);
        (!time.timed_out()).then_some(table)
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
    }

    fn pin(&mut self, blocks: Range<u64>) {
        for block in blocks {
            if let Some(Stand::Mine { users, .. }) = self.blocks.get_mut(&block) {
                *users += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ServerIndex = ServerIndex(0);
    const OTHER: ServerIndex = ServerIndex(1);

    fn grants(owners: &[u16]) -> Vec<Grant> {
        let grant =
            |(number, owner): (usize, &u16)| Grant { owner: ServerIndex(*owner), number: number as u64 };
        owners.iter().enumerate().map(grant).collect()
    }

    /// Blocks 0 to 4: two of this server's, two of another's, one that nobody asked for.
    fn owners() -> Owners {
        let owners = Owners::default();
        let asked = owners.begin(0..4, |_| OWN);
        assert_eq!(asked, Begun::Ask(OWN, vec![0, 1, 2, 3]));
        owners.answered(&[0, 1, 2, 3], Some(&grants(&[0, 0, 1, 1])), OWN);
        owners
    }

    #[test]
    fn runs_end_where_the_owner_changes_and_homes_are_asked_apart() {
        let owners = owners();
        assert_eq!(owners.begin(0..5, |_| OWN), Begun::Mine(2));
        assert_eq!(owners.begin(2..5, |_| OWN), Begun::Theirs(OTHER, 4));
        let home = |block: u64| ServerIndex(u16::from(6 <= block));
        assert_eq!(owners.begin(4..9, home), Begun::Ask(OWN, vec![4, 5]));
        owners.answered(&[4, 5], None, OWN);
        assert_eq!(
            owners.begin(4..5, home),
            Begun::Ask(OWN, vec![4]),
            "an answer that failed leaves nothing"
        );
    }

    #[test]
    fn what_is_worked_on_or_wanted_stays() {
        let owners = owners();
        assert_eq!(owners.begin(0..1, |_| OWN), Begun::Mine(1));
        assert_eq!(owners.leave(0..4, |_| false), [(1, 1)]);
        owners.left(&[(1, 1)]);
        owners.end(0..1);
        assert_eq!(owners.leave(0..4, |block| block == 0), []);
        assert_eq!((owners.mine(), owners.count()), (vec![0], 1));
        assert_eq!(owners.leave(0..4, |_| false), [(0, 0)]);
        owners.left(&[(0, 0)]);
        assert_eq!((owners.mine(), owners.count()), (vec![], 0));
    }

    #[test]
    fn visitors_wait_for_answers_and_are_told_what_is_gone() {
        let owners = owners();
        assert_eq!(owners.visited(0..2), Found::Mine);
        assert_eq!(owners.visited(1..3), Found::Gone);
        assert_eq!(owners.visited(9..10), Found::Unknown);
        assert!(matches!(owners.begin(9..10, |_| OTHER), Begun::Ask(..)));
        std::thread::scope(|scope| {
            let visitor = scope.spawn(|| owners.visited(9..10));
            owners.answered(&[9], Some(&grants(&[0])), OWN);
            assert_eq!(visitor.join().unwrap(), Found::Mine);
        });
        owners.end(9..10);
        assert_eq!(owners.leave([9], |_| false).len(), 1);
        std::thread::scope(|scope| {
            let visitor = scope.spawn(|| owners.visited(9..10));
            owners.left(&[(9, 0)]);
            assert_ne!(visitor.join().unwrap(), Found::Mine);
        });
        owners.forget(2..3, OTHER);
        owners.forget(3..4, OWN);
        assert_eq!(owners.begin(3..4, |_| OWN), Begun::Theirs(OTHER, 4), "only what that server said");
        assert!(matches!(owners.begin(2..3, |_| OWN), Begun::Ask(..)));
    }

    #[test]
    fn what_is_remembered_of_others_is_bounded() {
        let owners = Owners::default();
        let all: Vec<u64> = (0..REMEMBERED_MAX as u64 + 2).collect();
        owners.answered(&all, Some(&grants(&vec![1; all.len()])), OWN);
        owners.answered(&[u64::MAX], Some(&grants(&[1])), OWN);
        assert_eq!(lock(&owners.table).blocks.len(), 1);
        assert_eq!(owners.count(), 0);
    }
}
