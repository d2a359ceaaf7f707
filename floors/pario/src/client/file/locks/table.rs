//! The locks of this process on one file: tokens granted by the manager, and the locks held under them. Pure: events in, messages to send
//! out.
//!
//! Never: uses a token for a new lock once it was recalled; returns a token in use. Always: a granted token is used at least once before
//! it is returned.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use pario_net::message::{LockMode, LockShape, LockSpace};

/// Unused tokens that one owner keeps; the oldest are returned.
const KEPT_MAX: usize = 64;
/// Recalls of tokens that have not arrived yet.
const EARLY_MAX: usize = 4096;

/// Owner of locks: locks of one owner do not exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CachedLockOwner {
    /// The lock space.
    pub space: LockSpace,
    /// Owner slot of the session.
    pub owner_slot: u64,
    /// Lock group; 0: none.
    pub lock_group: u64,
}

/// A lock under a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockUse {
    /// Its owner.
    pub holder: CachedLockOwner,
    number: u64,
    id: u64,
}

/// A message to the manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenMessage {
    /// The token is returned, or all of it but a range.
    Return {
        /// Which token.
        number: u64,
        /// The part that stays.
        keep: Option<Range<u64>>,
    },
    /// It is in use; the unused part is returned, where it is known.
    Busy {
        /// Which token.
        number: u64,
        /// The part in use, where it is known.
        keep: Option<Range<u64>>,
    },
}

#[derive(Debug)]
struct CachedToken {
    number: u64,
    mode: LockMode,
    shape: LockShape,
    uses: Vec<(u64, Range<u64>)>,
    /// Smallest range of all its uses.
    used: Range<u64>,
    /// Bytes that another holder waits for.
    wanted: Option<Range<u64>>,
}

/// Tokens of one holder.
#[derive(Debug)]
struct OwnerTokens {
    holder: CachedLockOwner,
    tokens: Vec<CachedToken>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct CachedLockTable {
    slots: Vec<OwnerTokens>,
    /// Index of a holder's tokens.
    indices: HashMap<CachedLockOwner, usize>,
    /// The index used last: mostly the next one too.
    recent: usize,
    /// Holder of each token.
    holders: HashMap<u64, CachedLockOwner>,
    early: BTreeMap<u64, Range<u64>>,
    uses: u64,
}

/// The smallest range around a shape, as far as it is known here.
fn hull(shape: &LockShape) -> Range<u64> {
    match *shape {
        LockShape::Bytes { start, end } => start..end,
        LockShape::Stream { .. } => 0..u64::MAX,
    }
}

fn meet(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}

fn join(one: &Range<u64>, two: &Range<u64>) -> Range<u64> {
    if one.is_empty() { two.clone() } else { one.start.min(two.start)..one.end.max(two.end) }
}

impl CachedToken {
    fn covers(&self, mode: LockMode, shape: &LockShape) -> bool {
        let enough = self.mode == (LockMode::Exclusive {}) || mode == (LockMode::Shared {});
        let inside = match (self.shape, *shape) {
            (LockShape::Bytes { start, end }, LockShape::Bytes { start: from, end: to }) => {
                start <= from && to <= end
            }
            (
                LockShape::Stream { view, displacement: moved, offset, bytes },
                LockShape::Stream { view: other, displacement: to, offset: from, bytes: length },
            ) => (view, moved) == (other, to) && offset <= from && from + length <= offset + bytes,
            // The whole file covers every shape.
            (LockShape::Bytes { start, end }, LockShape::Stream { .. }) => start == 0 && end == u64::MAX,
            (LockShape::Stream { .. }, LockShape::Bytes { .. }) => false,
        };
        enough && inside
    }

    /// Whether a lock may be taken under this token. Where programs hold locks for long, others must not wait for more than is held: not
    /// for an exclusive lock where a shared one is held, even if it is the rest of an exclusive one, nor for the bytes between two locks.
    fn serves(&self, holder: CachedLockOwner, mode: LockMode, shape: &LockShape) -> bool {
        if !self.covers(mode, shape) {
            return false;
        }
        let bytes = hull(shape);
        let nested = self.uses.iter().any(|(_, used)| used.start <= bytes.start && bytes.end <= used.end);
        if holder.space == (LockSpace::Access {}) {
            return nested || self.wanted.is_none();
        }
        let free = self.wanted.is_none() && (self.uses.is_empty() || meet(&self.in_use(), &bytes));
        self.mode == mode && (nested || free)
    }

    /// The part that can stay when `wanted` is returned: the side with `needed`.
    fn rest(&self, needed: &Range<u64>, wanted: &Range<u64>) -> Option<Range<u64>> {
        let LockShape::Bytes { start, end } = self.shape else { return None };
        if needed.is_empty() || meet(needed, wanted) {
            return None;
        }
        Some(if needed.end <= wanted.start { start..wanted.start } else { wanted.end..end })
    }

    fn in_use(&self) -> Range<u64> {
        self.uses.iter().fold(0..0, |all, (_, bytes)| join(&all, bytes))
    }
}

impl CachedLockTable {
    /// Locks under a cached token, if there is one.
    pub fn begin(&mut self, holder: CachedLockOwner, mode: LockMode, shape: &LockShape) -> Option<LockUse> {
        let place = self.index_of(&holder)?;
        self.recent = place;
        let token =
            self.slots[place].tokens.iter_mut().rev().find(|token| token.serves(holder, mode, shape))?;
        self.uses += 1;
        let bytes = hull(shape);
        token.used = join(&token.used, &bytes);
        token.uses.push((self.uses, bytes));
        Some(LockUse { holder, number: token.number, id: self.uses })
    }

    /// A token was granted, and is used for the requested lock.
    pub fn granted(
        &mut self,
        holder: CachedLockOwner,
        (number, mode, shape): (u64, LockMode, LockShape),
        wished: &LockShape,
        says: &mut Vec<TokenMessage>,
    ) -> LockUse {
        self.uses += 1;
        let bytes = hull(wished);
        let wanted = self.early.remove(&number);
        let early = wanted.is_some();
        let mut token =
            CachedToken { number, mode, shape, uses: vec![(self.uses, bytes.clone())], used: bytes, wanted };
        if early {
            says.push(token.busy());
        }
        self.holders.insert(number, holder);
        let place = self.index_of(&holder).unwrap_or_else(|| {
            self.slots.push(OwnerTokens { holder, tokens: Vec::new() });
            self.indices.insert(holder, self.slots.len() - 1);
            self.slots.len() - 1
        });
        let tokens = &mut self.slots[place].tokens;
        tokens.push(token);
        if KEPT_MAX < tokens.len()
            && let Some(at) = tokens.iter().position(|token| token.uses.is_empty())
        {
            let old = tokens.remove(at);
            self.holders.remove(&old.number);
            says.push(TokenMessage::Return { number: old.number, keep: None });
        }
        LockUse { holder, number, id: self.uses }
    }

    /// Another holder wants bytes of a token.
    pub fn recalled(&mut self, number: u64, wanted: Range<u64>) -> Option<TokenMessage> {
        let Some(holder) = self.holders.get(&number).copied() else {
            self.early.insert(number, wanted);
            if EARLY_MAX < self.early.len() {
                self.early.pop_first();
            }
            return None;
        };
        let token = self.token(holder, number)?;
        let needed = if token.uses.is_empty() { token.used.clone() } else { token.in_use() };
        if let Some(rest) = token.rest(&needed, &wanted) {
            return Some(token.keep(rest, needed));
        }
        if token.uses.is_empty() {
            self.remove(holder, number);
            return Some(TokenMessage::Return { number, keep: None });
        }
        token.wanted = Some(wanted);
        Some(token.busy())
    }

    /// A lock has ended. `None` inside: no message; `None`: the lock was lost before.
    pub fn end(&mut self, which: LockUse) -> Option<Option<TokenMessage>> {
        let token = self.token(which.holder, which.number)?;
        let at = token.uses.iter().position(|(id, _)| *id == which.id)?;
        token.uses.swap_remove(at);
        let Some(wanted) = token.wanted.clone() else { return Some(None) };
        if token.uses.is_empty() {
            self.remove(which.holder, which.number);
            return Some(Some(TokenMessage::Return { number: which.number, keep: None }));
        }
        let needed = token.in_use();
        let Some(rest) = token.rest(&needed, &wanted) else { return Some(None) };
        Some(Some(token.keep(rest, needed)))
    }

    /// Whether a token is in the table.
    #[must_use]
    pub fn knows(&self, number: u64) -> bool {
        self.holders.contains_key(&number)
    }

    /// Whether a lock is still held.
    pub fn is_held(&self, which: LockUse) -> bool {
        let Some(place) = self.index_of(&which.holder) else { return false };
        let mut mine = self.slots[place].tokens.iter().filter(|token| token.number == which.number);
        mine.any(|token| token.uses.iter().any(|(id, _)| *id == which.id))
    }

    /// The manager that granted them is lost, or the file is closed: all tokens are void.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.indices.clear();
        self.recent = 0;
        self.holders.clear();
        self.early.clear();
    }

    /// An owner slot is not used any more: its kept tokens are returned.
    pub fn leave(&mut self, lane: u64, says: &mut Vec<TokenMessage>) {
        let mine: Vec<CachedLockOwner> =
            self.indices.keys().filter(|holder| holder.owner_slot == lane).copied().collect();
        for holder in mine {
            self.leave_holder(holder, says);
        }
    }

    /// Returns the tokens kept for a holder.
    pub fn leave_holder(&mut self, holder: CachedLockOwner, says: &mut Vec<TokenMessage>) {
        let Some(place) = self.index_of(&holder) else { return };
        let unused = self.slots[place].tokens.iter().filter(|token| token.uses.is_empty());
        for number in unused.map(|token| token.number).collect::<Vec<u64>>() {
            says.push(TokenMessage::Return { number, keep: None });
            self.remove(holder, number);
        }
    }

    fn index_of(&self, holder: &CachedLockOwner) -> Option<usize> {
        match self.slots.get(self.recent) {
            Some(slot) if slot.holder == *holder => Some(self.recent),
            Some(_) | None => self.indices.get(holder).copied(),
        }
    }

    fn token(&mut self, holder: CachedLockOwner, number: u64) -> Option<&mut CachedToken> {
        let place = self.index_of(&holder)?;
        self.slots[place].tokens.iter_mut().find(|token| token.number == number)
    }

    fn remove(&mut self, holder: CachedLockOwner, number: u64) {
        self.holders.remove(&number);
        let Some(place) = self.index_of(&holder) else { return };
        let tokens = &mut self.slots[place].tokens;
        tokens.retain(|token| token.number != number);
        if !tokens.is_empty() {
            return;
        }
        self.indices.remove(&holder);
        self.slots.swap_remove(place);
        if let Some(moved) = self.slots.get(place) {
            self.indices.insert(moved.holder, place);
        }
    }
}

impl CachedToken {
    fn busy(&mut self) -> TokenMessage {
        let keep = matches!(self.shape, LockShape::Bytes { .. }).then(|| self.in_use());
        if let Some(Range { start, end }) = keep.clone() {
            self.shape = LockShape::Bytes { start, end };
        }
        TokenMessage::Busy { number: self.number, keep }
    }

    fn keep(&mut self, rest: Range<u64>, needed: Range<u64>) -> TokenMessage {
        self.shape = LockShape::Bytes { start: rest.start, end: rest.end };
        self.used = needed;
        self.wanted = None;
        TokenMessage::Return { number: self.number, keep: Some(rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: CachedLockOwner = CachedLockOwner { space: LockSpace::Range {}, owner_slot: 1, lock_group: 0 };
    const ALONE: LockMode = LockMode::Exclusive {};

    fn bytes(range: Range<u64>) -> LockShape {
        LockShape::Bytes { start: range.start, end: range.end }
    }

    fn with_whole_file() -> (CachedLockTable, LockUse) {
        let mut table = CachedLockTable::default();
        let mut says = Vec::new();
        assert_eq!(table.begin(ME, ALONE, &bytes(0..10)), None);
        let first = table.granted(ME, (7, ALONE, bytes(0..u64::MAX)), &bytes(0..10), &mut says);
        assert!(says.is_empty());
        (table, first)
    }

    #[test]
    fn a_token_serves_again_and_again_without_a_word() {
        let (mut table, first) = with_whole_file();
        assert_eq!(table.end(first), Some(None));
        for at in 0..100 {
            let again = table.begin(ME, ALONE, &bytes(at..at + 1)).unwrap();
            assert!(table.is_held(again));
            assert_eq!(table.end(again), Some(None));
            assert!(!table.is_held(again));
        }
        assert_eq!(table.begin(CachedLockOwner { owner_slot: 2, ..ME }, ALONE, &bytes(0..1)), None);
    }

    #[test]
    fn others_wait_for_no_more_than_is_held() {
        let (mut table, first) = with_whole_file();
        assert_eq!(table.begin(ME, ALONE, &bytes(1000..1001)), None, "the bytes between are free");
        for shared in [2..4, 20..30] {
            let begun = table.begin(ME, LockMode::Shared {}, &bytes(shared));
            assert_eq!(begun, None, "shared is less than alone, and may be all that stays");
        }
        assert_eq!(table.recalled(7, 5..6), Some(TokenMessage::Busy { number: 7, keep: Some(0..10) }));
        let inner = table.begin(ME, ALONE, &bytes(2..4)).expect("a lock inside a held one is granted");
        assert_eq!(table.end(first), Some(Some(TokenMessage::Return { number: 7, keep: Some(0..5) })));
        assert!(table.is_held(inner));
    }

    #[test]
    fn what_is_in_use_comes_back_when_it_is_not() {
        let (mut table, first) = with_whole_file();
        assert_eq!(table.recalled(7, 5..6), Some(TokenMessage::Busy { number: 7, keep: Some(0..10) }));
        assert_eq!(table.begin(ME, ALONE, &bytes(50..60)), None, "no new lock under it");
        assert_eq!(table.end(first), Some(Some(TokenMessage::Return { number: 7, keep: None })));
        assert_eq!(table.end(first), None);
    }

    #[test]
    fn what_is_not_wanted_is_kept() {
        let (mut table, first) = with_whole_file();
        assert_eq!(table.recalled(7, 50..60), Some(TokenMessage::Return { number: 7, keep: Some(0..50) }));
        assert!(table.is_held(first));
        assert_eq!(table.begin(ME, ALONE, &bytes(40..51)), None);
        let second = table.begin(ME, ALONE, &bytes(5..50)).unwrap();
        assert_eq!(table.end(first), Some(None));
        assert_eq!(table.end(second), Some(None));
        // Unused now, but used here before: the next request takes no more than needed.
        assert_eq!(table.recalled(7, 5..6), Some(TokenMessage::Return { number: 7, keep: None }));
    }

    #[test]
    fn a_recall_that_comes_before_its_token_counts() {
        let mut table = CachedLockTable::default();
        assert_eq!(table.recalled(7, 0..1), None);
        let mut says = Vec::new();
        let first = table.granted(ME, (7, ALONE, bytes(0..10)), &bytes(0..10), &mut says);
        assert_eq!(says, [TokenMessage::Busy { number: 7, keep: Some(0..10) }]);
        assert_eq!(table.end(first), Some(Some(TokenMessage::Return { number: 7, keep: None })));
    }

    #[test]
    fn tokens_that_nobody_uses_do_not_pile_up() {
        let mut table = CachedLockTable::default();
        let mut says = Vec::new();
        for number in 0..1000 {
            let wish = bytes(number * 10..number * 10 + 1);
            let one = table.granted(ME, (number, ALONE, wish), &wish, &mut says);
            assert_eq!(table.end(one), Some(None));
        }
        assert_eq!(says.len(), 1000 - KEPT_MAX);
    }

    #[test]
    fn shapes_are_covered_by_their_own_view_or_the_whole_file() {
        let (mut table, first) = with_whole_file();
        let stream =
            |view, moved, offset, bytes| LockShape::Stream { view, displacement: moved, offset, bytes };
        let shape = stream(3, 8, 100, 50);
        assert!(table.begin(ME, ALONE, &shape).is_some());
        table.end(first);
        let mut table = CachedLockTable::default();
        table.granted(ME, (9, ALONE, shape), &shape, &mut Vec::new());
        assert!(table.begin(ME, ALONE, &stream(3, 8, 110, 40)).is_some());
        assert!(table.begin(ME, ALONE, &stream(3, 8, 110, 41)).is_none());
        assert!(table.begin(ME, ALONE, &stream(4, 8, 110, 40)).is_none());
        assert!(table.begin(ME, ALONE, &stream(3, 9, 110, 40)).is_none(), "the same shape elsewhere");
    }

    #[test]
    fn a_lane_that_is_left_gives_back_what_it_does_not_use() {
        let (mut table, first) = with_whole_file();
        let other = CachedLockOwner { owner_slot: 2, ..ME };
        let second =
            table.granted(other, (8, LockMode::Shared {}, bytes(5..9)), &bytes(5..9), &mut Vec::new());
        let mut says = Vec::new();
        table.leave(1, &mut says);
        assert!(says.is_empty(), "it is in use");
        table.end(first);
        table.leave(1, &mut says);
        assert_eq!(says, [TokenMessage::Return { number: 7, keep: None }]);
        assert!(table.is_held(second), "the index of the other slot has changed");
        assert!(table.begin(other, LockMode::Shared {}, &bytes(5..9)).is_some());
    }

    #[test]
    fn a_lost_manager_takes_all_with_it() {
        let (mut table, first) = with_whole_file();
        table.clear();
        assert!(!table.is_held(first));
        assert_eq!(table.end(first), None);
    }
}
