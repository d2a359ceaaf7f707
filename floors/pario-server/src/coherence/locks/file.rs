//! The locks of one file.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{LockMode, LockSpace};

use super::spans::Spans;
use super::{LockAction, LockLine, LockState, LockWait, LockWish, Owner, Patience, Refusal, Shape};
use crate::coherence::Ticket;
use crate::coherence::sabotage::{Bug, Sabotage};

/// A sequence of locks side by side is granted so far ahead at most.
const AHEAD_MAX: u64 = 1 << 30;

/// A reader beside other readers gets all of so many bytes, from a multiple of them on, that no writer has or wants.
const SHARED_BYTES: u64 = 64 << 10;

/// Where more tokens are out nobody gets more than was wished for: finding out what is free would cost more than it saves.
const NEIGHBOURS_MAX: usize = 256;

/// Owners whose ways are remembered; beyond, all begin anew.
const STREAKS_MAX: usize = 1024;

/// What an input of the machine may use.
pub(super) struct Turn<'a> {
    pub(super) inode: InodeId,
    pub(super) next_number: &'a mut u64,
    pub(super) out: &'a mut Vec<LockAction>,
    /// Sessions of new wishes; a granted wish becomes a token and stays one.
    pub(super) came: Vec<SessionId>,
    /// Sessions of tokens and wishes that ended.
    pub(super) went: Vec<SessionId>,
    /// Wishes that do not wait any more.
    pub(super) answered: Vec<Ticket>,
    pub(super) sabotage: Sabotage,
}

#[derive(Debug)]
struct Token {
    owner: Owner,
    space: LockSpace,
    mode: LockMode,
    shape: Shape,
    state: LockState,
}

#[derive(Debug)]
struct Waiting {
    wish: LockWish,
    since: Nanos,
}

/// How an owner went on, to see that it goes forward.
#[derive(Clone, Copy, Debug)]
struct Streak {
    end: u64,
    ahead: u64,
}

/// What a wish that is refused is told of.
pub(super) struct Given {
    pub(super) patience: Patience,
    pub(super) holders: Vec<Owner>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    tokens: BTreeMap<u64, Token>,
    spans: Spans,
    queue: VecDeque<Waiting>,
    streaks: BTreeMap<(Owner, LockSpace), Streak>,
}

fn excludes(one: (Owner, LockSpace, LockMode), two: (Owner, LockSpace, LockMode)) -> bool {
    let alone = one.2 == (LockMode::Exclusive {}) || two.2 == (LockMode::Exclusive {});
    one.1 == two.1 && alone && !one.0.is_one_with(two.0)
}

/// Inputs.
impl FileLocks {
    pub(super) fn wish(&mut self, wish: LockWish, now: Nanos, turn: &mut Turn<'_>) {
        turn.came.push(wish.owner.session);
        if turn.sabotage.has(Bug::LockOvertake) {
            self.queue.push_front(Waiting { wish, since: now });
        } else {
            self.queue.push_back(Waiting { wish, since: now });
        }
        self.pump(turn);
    }

    pub(super) fn returned(
        &mut self,
        session: SessionId,
        number: u64,
        keep: Option<Range<u64>>,
        turn: &mut Turn<'_>,
    ) {
        let Some(token) = self.tokens.get_mut(&number) else { return };
        if token.owner.session != session || token.state == LockState::Dead {
            return;
        }
        let keep = token.part(keep);
        self.spans.remove(number, &token.shape.hull());
        match keep.filter(|_| !turn.sabotage.has(Bug::LockForgetKept)) {
            Some(keep) => {
                self.spans.insert(number, &keep);
                token.shape = Shape::Bytes(keep);
                token.state = LockState::Held;
            }
            None => self.drop_token(number, turn),
        }
        self.pump(turn);
    }

    /// Returns the wishes that this one blocks.
    pub(super) fn busy(
        &mut self,
        session: SessionId,
        number: u64,
        keep: Option<Range<u64>>,
        turn: &mut Turn<'_>,
    ) -> Vec<Ticket> {
        let Some(token) = self.tokens.get_mut(&number) else { return Vec::new() };
        if token.owner.session != session || token.state != LockState::Recalled {
            return Vec::new();
        }
        token.state = LockState::InUse;
        if let Some(keep) = token.part(keep) {
            self.spans.remove(number, &token.shape.hull());
            self.spans.insert(number, &keep);
            token.shape = Shape::Bytes(keep);
        }
        self.pump(turn);
        let blocked: Vec<(Ticket, Patience)> = self
            .queue
            .iter()
            .filter(|waiting| self.blocking(&waiting.wish).contains(&number))
            .map(|waiting| (waiting.wish.ticket, waiting.wish.patience))
            .collect();
        for (ticket, patience) in &blocked {
            if *patience == Patience::Try {
                self.refuse(*ticket, |given| Refusal::InUse(given.holders), turn);
            }
        }
        blocked.into_iter().map(|(ticket, _)| ticket).collect()
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, why: impl FnOnce(Given) -> Refusal, turn: &mut Turn<'_>) {
        let Some(at) = self.queue.iter().position(|waiting| waiting.wish.ticket == ticket) else { return };
        let given = Given { patience: self.queue[at].wish.patience, holders: self.holders_before(at) };
        let Some(waiting) = self.queue.remove(at) else { return };
        turn.went.push(waiting.wish.owner.session);
        turn.answered.push(ticket);
        turn.out.push(LockAction::Refuse { ticket, why: why(given) });
        self.pump(turn);
    }

    pub(super) fn gone(&mut self, session: SessionId, turn: &mut Turn<'_>) {
        let (gone, queue): (VecDeque<Waiting>, VecDeque<Waiting>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|waiting| waiting.wish.owner.session == session);
        self.queue = queue;
        turn.went.extend(gone.iter().map(|waiting| waiting.wish.owner.session));
        turn.answered.extend(gone.iter().map(|waiting| waiting.wish.ticket));
        self.streaks.retain(|(owner, _), _| owner.session != session);
        let mine: Vec<u64> = self
            .tokens
            .iter()
            .filter(|(_, token)| token.owner.session == session)
            .map(|(number, _)| *number)
            .collect();
        for number in mine {
            let Some(token) = self.tokens.get_mut(&number) else { continue };
            let wrote = token.space == (LockSpace::Access {}) && token.mode == (LockMode::Exclusive {});
            if wrote && !turn.sabotage.has(Bug::LockFreeUnsettled) {
                token.state = LockState::Dead;
                continue;
            }
            let hull = token.shape.hull();
            if turn.sabotage.has(Bug::LockKeepDead) {
                continue;
            }
            self.spans.remove(number, &hull);
            self.drop_token(number, turn);
        }
        self.pump(turn);
    }

    pub(super) fn settled(&mut self, session: SessionId, turn: &mut Turn<'_>) {
        let dead: Vec<u64> = self
            .tokens
            .iter()
            .filter(|(_, token)| token.owner.session == session && token.state == LockState::Dead)
            .map(|(number, _)| *number)
            .collect();
        for number in dead {
            let Some(token) = self.tokens.get(&number) else { continue };
            self.spans.remove(number, &token.shape.hull());
            self.drop_token(number, turn);
        }
        self.pump(turn);
    }
}

/// Questions.
impl FileLocks {
    pub(super) fn is_idle(&self) -> bool {
        self.tokens.is_empty() && self.queue.is_empty()
    }

    pub(super) fn sessions(&self) -> Vec<SessionId> {
        let held = self.tokens.values().map(|token| token.owner.session);
        held.chain(self.queue.iter().map(|waiting| waiting.wish.owner.session)).collect()
    }

    pub(super) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.queue.iter().map(|waiting| waiting.wish.ticket)
    }

    pub(super) fn find(&self, wish: &LockWish) -> Option<LockLine> {
        let number = *self.blocking(wish).first()?;
        self.tokens.get(&number).map(|token| token.line(wish.inode))
    }

    pub(super) fn lines(&self, inode: InodeId) -> impl Iterator<Item = LockLine> {
        self.tokens.values().map(move |token| token.line(inode))
    }

    pub(super) fn waits(&self, inode: InodeId, now: Nanos) -> impl Iterator<Item = LockWait> {
        self.queue.iter().enumerate().map(move |(at, waiting)| LockWait {
            inode,
            owner: waiting.wish.owner,
            ticket: waiting.wish.ticket,
            mode: waiting.wish.mode,
            bytes: waiting.wish.shape.hull(),
            waited: now.since(waiting.since),
            holders: self.holders_before(at),
        })
    }

    /// Wishes that a dead holder's token is in the way of.
    pub(super) fn behind_the_dead(&self) -> Vec<Ticket> {
        let dead = |number: &u64| self.tokens.get(number).is_some_and(|token| token.state == LockState::Dead);
        let behind = self.queue.iter().filter(|waiting| self.blocking(&waiting.wish).iter().any(dead));
        behind.map(|waiting| waiting.wish.ticket).collect()
    }

    /// User locks that wait: whose, under which ticket, and for whom in earnest.
    pub(super) fn user_waits(&self) -> impl Iterator<Item = (Owner, Ticket, Vec<Owner>)> {
        let users =
            self.queue.iter().enumerate().filter(|(_, waiting)| waiting.wish.space != (LockSpace::Access {}));
        users.map(|(at, waiting)| (waiting.wish.owner, waiting.wish.ticket, self.earnest_holders(at)))
    }

    /// Tokens in the way of a wish.
    fn blocking(&self, wish: &LockWish) -> Vec<u64> {
        let excluded = |number: &u64| {
            self.tokens.get(number).is_some_and(|token| {
                excludes((token.owner, token.space, token.mode), (wish.owner, wish.space, wish.mode))
                    && token.shape.meets(&wish.shape)
            })
        };
        self.spans.meeting(&wish.shape.hull()).into_iter().filter(excluded).collect()
    }

    /// Older wishes in the way of the one at `at`.
    fn older(&self, at: usize) -> impl Iterator<Item = &LockWish> {
        let wish = &self.queue[at].wish;
        self.queue.iter().take(at).map(|waiting| &waiting.wish).filter(move |older| {
            excludes((older.owner, older.space, older.mode), (wish.owner, wish.space, wish.mode))
                && older.shape.meets(&wish.shape)
        })
    }

    fn holders_before(&self, at: usize) -> Vec<Owner> {
        let tokens = self.blocking(&self.queue[at].wish);
        let held = tokens.iter().filter_map(|number| self.tokens.get(number)).map(|token| token.owner);
        let mut holders: Vec<Owner> = held.chain(self.older(at).map(|older| older.owner)).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// The same, but for tokens that may come back at any moment.
    fn earnest_holders(&self, at: usize) -> Vec<Owner> {
        let tokens = self.blocking(&self.queue[at].wish);
        let used = tokens
            .iter()
            .filter_map(|number| self.tokens.get(number))
            .filter(|token| token.state == LockState::InUse)
            .map(|token| token.owner);
        used.chain(self.older(at).map(|older| older.owner)).collect()
    }
}

/// Acts.
impl FileLocks {
    fn drop_token(&mut self, number: u64, turn: &mut Turn<'_>) {
        if let Some(token) = self.tokens.remove(&number) {
            turn.went.push(token.owner.session);
        }
    }

    /// Grants what can be granted, in order of arrival, and recalls what is in the way of the rest.
    fn pump(&mut self, turn: &mut Turn<'_>) {
        let mut at = 0;
        while at < self.queue.len() {
            let blocking = self.blocking(&self.queue[at].wish);
            let overtakes = !turn.sabotage.has(Bug::LockIgnoreQueue) && self.older(at).next().is_some();
            let shares = turn.sabotage.has(Bug::LockShareExclusive);
            if (blocking.is_empty() || shares) && !overtakes {
                if let Some(waiting) = self.queue.remove(at) {
                    self.grant(waiting.wish, turn);
                }
                continue;
            }
            let wanted = self.queue[at].wish.shape.hull();
            let mut in_use = false;
            for number in blocking {
                let Some(token) = self.tokens.get_mut(&number) else { continue };
                in_use |= matches!(token.state, LockState::InUse);
                if token.state == LockState::Held && !turn.sabotage.has(Bug::LockForgetRecall) {
                    token.state = LockState::Recalled;
                    let (session, inode) = (token.owner.session, turn.inode);
                    turn.out.push(LockAction::Recall { session, inode, number, wanted: wanted.clone() });
                }
            }
            if self.queue[at].wish.patience == Patience::Try && (in_use || overtakes) {
                let given = self.holders_before(at);
                if let Some(waiting) = self.queue.remove(at) {
                    turn.went.push(waiting.wish.owner.session);
                    turn.answered.push(waiting.wish.ticket);
                    turn.out
                        .push(LockAction::Refuse { ticket: waiting.wish.ticket, why: Refusal::InUse(given) });
                }
                continue;
            }
            at += 1;
        }
    }

    fn grant(&mut self, wish: LockWish, turn: &mut Turn<'_>) {
        let number = *turn.next_number;
        *turn.next_number = number.wrapping_add(1);
        let shape = self.widened(&wish);
        let bytes = shape.hull();
        self.spans.insert(number, &bytes);
        let LockWish { owner, space, mode, ticket, .. } = wish;
        self.tokens.insert(number, Token { owner, space, mode, shape, state: LockState::Held });
        turn.answered.push(ticket);
        turn.out.push(LockAction::Grant { ticket, session: owner.session, number, bytes });
    }

    /// More than was wished for, where nobody else is known to want it: all of a file that nobody else locks, what comes next for an
    /// owner that goes forward, and what lies around for a reader among readers. These are not in each other's way.
    fn widened(&mut self, wish: &LockWish) -> Shape {
        let Shape::Bytes(need) = &wish.shape else { return wish.shape.clone() };
        if NEIGHBOURS_MAX < self.tokens.len() + self.queue.len() {
            return Shape::Bytes(need.clone());
        }
        let mut room = 0..u64::MAX;
        let mut alone = true;
        let mine = (wish.owner, wish.space, wish.mode);
        let held =
            self.tokens.values().map(|token| ((token.owner, token.space, token.mode), token.shape.hull()));
        let wished = self.queue.iter().map(|waiting| &waiting.wish);
        let wished = wished.map(|wish| ((wish.owner, wish.space, wish.mode), wish.shape.hull()));
        for (theirs, other) in held.chain(wished) {
            if theirs.1 != wish.space || theirs.0.is_one_with(wish.owner) {
                continue;
            }
            alone = false;
            if !excludes(theirs, mine) {
                continue;
            }
            if other.end <= need.start {
                room.start = room.start.max(other.end);
            } else if need.end <= other.start {
                room.end = room.end.min(other.start);
            } else {
                // Locks that share bytes, or are interlaced.
                return Shape::Bytes(need.clone());
            }
        }
        if alone {
            return Shape::Bytes(room);
        }
        let bytes = need.end - need.start;
        let key = (wish.owner, wish.space);
        let ahead = match self.streaks.get(&key) {
            Some(streak) if streak.end == need.start => (streak.ahead * 2).clamp(bytes, AHEAD_MAX.max(bytes)),
            Some(_) | None => 0,
        };
        let mut wide = need.start..need.end.saturating_add(ahead).min(room.end);
        if wish.mode == (LockMode::Shared {}) && wish.space == (LockSpace::Access {}) {
            let around = need.end.checked_next_multiple_of(SHARED_BYTES).unwrap_or(u64::MAX).min(room.end);
            wide.start = (need.start - need.start % SHARED_BYTES).max(room.start);
            wide.end = wide.end.max(around);
        }
        if STREAKS_MAX <= self.streaks.len() {
            self.streaks.clear();
        }
        self.streaks.insert(key, Streak { end: wide.end, ahead: ahead.max(bytes) });
        Shape::Bytes(wide)
    }
}

impl Token {
    /// Only a part of a range can be kept, and only of what was held.
    fn part(&self, keep: Option<Range<u64>>) -> Option<Range<u64>> {
        let Shape::Bytes(held) = &self.shape else { return None };
        let keep = keep.map(|keep| keep.start.max(held.start)..keep.end.min(held.end));
        keep.filter(|keep| keep.start < keep.end)
    }

    fn line(&self, inode: InodeId) -> LockLine {
        LockLine {
            inode,
            owner: self.owner,
            space: self.space,
            mode: self.mode,
            bytes: self.shape.hull(),
            state: self.state,
        }
    }
}
