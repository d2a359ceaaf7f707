//! The locks of one file: tokens, waiting requests, and widening of grants.
//!
//! Never: grants a request past an older conflicting one, unless that waits for the same owner. Always: granted tokens of different owners
//! do not conflict.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{LockMode, LockSpace};

use super::spans::TokenIndex;
use super::{
    LockAction, LockLine, LockRequest, LockState, LockWait, LockedBytes, Refusal, TokenOwner, WaitLimit,
};
use crate::coherence::WaitTicket;
use crate::coherence::sabotage::{Bug, LeaseSabotage};

/// Limit of a grant beyond the request, for an owner that locks consecutive ranges.
const WIDEN_BYTES_MAX: u64 = 1 << 30;

/// A reader beside other readers is granted the aligned range of this size that contains its request, without bytes that a writer holds or
/// requests.
const SHARED_BYTES: u64 = 64 << 10;

/// With more tokens than this, grants are not widened: finding the free range would cost more than it saves.
const NEIGHBOURS_MAX: usize = 256;

/// Owners with a remembered access sequence; beyond, all start over.
const STREAKS_MAX: usize = 1024;

/// Context of one input.
pub(super) struct LockContext<'a> {
    pub(super) inode: InodeId,
    pub(super) next_number: &'a mut u64,
    pub(super) out: &'a mut Vec<LockAction>,
    /// Sessions of new requests; a granted request becomes a token and stays one.
    pub(super) added: Vec<SessionId>,
    /// Sessions of tokens and requests that ended.
    pub(super) ended: Vec<SessionId>,
    /// Requests that do not wait any more.
    pub(super) answered: Vec<WaitTicket>,
    pub(super) sabotage: LeaseSabotage,
}

#[derive(Debug)]
struct LockToken {
    owner: TokenOwner,
    space: LockSpace,
    mode: LockMode,
    shape: LockedBytes,
    state: LockState,
}

#[derive(Debug)]
struct WaitingLock {
    request: LockRequest,
    since: Nanos,
}

/// Consecutive locks of an owner, to detect forward access.
#[derive(Clone, Copy, Debug)]
struct Streak {
    end: u64,
    widen_bytes: u64,
}

/// Reason of a refusal, as reported to the requester.
pub(super) struct RefusalReason {
    pub(super) wait_limit: WaitLimit,
    pub(super) holders: Vec<TokenOwner>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FileTokens {
    tokens: BTreeMap<u64, LockToken>,
    spans: TokenIndex,
    queue: VecDeque<WaitingLock>,
    streaks: BTreeMap<(TokenOwner, LockSpace), Streak>,
}

fn excludes(one: (TokenOwner, LockSpace, LockMode), two: (TokenOwner, LockSpace, LockMode)) -> bool {
    let alone = one.2 == (LockMode::Exclusive {}) || two.2 == (LockMode::Exclusive {});
    one.1 == two.1 && alone && !one.0.is_one_with(two.0)
}

/// Whether locks of a space are held around accesses, and not by programs: their holder's writes count when they end.
fn is_around_access(space: LockSpace) -> bool {
    match space {
        LockSpace::Access {} | LockSpace::Append {} => true,
        LockSpace::Range {} | LockSpace::Whole {} => false,
    }
}

/// Inputs.
impl FileTokens {
    pub(super) fn request(&mut self, wish: LockRequest, now: Nanos, turn: &mut LockContext<'_>) {
        turn.added.push(wish.owner.session);
        if turn.sabotage.has(Bug::LockOvertake) {
            self.queue.push_front(WaitingLock { request: wish, since: now });
        } else {
            self.queue.push_back(WaitingLock { request: wish, since: now });
        }
        self.pump(turn);
    }

    pub(super) fn returned(
        &mut self,
        session: SessionId,
        number: u64,
        keep: Option<Range<u64>>,
        turn: &mut LockContext<'_>,
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
                token.shape = LockedBytes::Bytes(keep);
                token.state = LockState::Held;
            }
            None => self.drop_token(number, turn),
        }
        self.pump(turn);
    }

    /// Returns the requests that this token blocks.
    pub(super) fn busy(
        &mut self,
        session: SessionId,
        number: u64,
        keep: Option<Range<u64>>,
        turn: &mut LockContext<'_>,
    ) -> Vec<WaitTicket> {
        let Some(token) = self.tokens.get_mut(&number) else { return Vec::new() };
        if token.owner.session != session || token.state != LockState::Recalled {
            return Vec::new();
        }
        token.state = LockState::InUse;
        if let Some(keep) = token.part(keep) {
            self.spans.remove(number, &token.shape.hull());
            self.spans.insert(number, &keep);
            token.shape = LockedBytes::Bytes(keep);
        }
        self.pump(turn);
        let blocked: Vec<(WaitTicket, WaitLimit)> = self
            .queue
            .iter()
            .filter(|waiting| self.blocking(&waiting.request).contains(&number))
            .map(|waiting| (waiting.request.ticket, waiting.request.wait_limit))
            .collect();
        for (ticket, patience) in &blocked {
            if *patience == WaitLimit::Try {
                self.refuse(*ticket, |given| Refusal::InUse(given.holders), turn);
            }
        }
        blocked.into_iter().map(|(ticket, _)| ticket).collect()
    }

    pub(super) fn refuse(
        &mut self,
        ticket: WaitTicket,
        why: impl FnOnce(RefusalReason) -> Refusal,
        turn: &mut LockContext<'_>,
    ) {
        let Some(at) = self.queue.iter().position(|waiting| waiting.request.ticket == ticket) else { return };
        let given =
            RefusalReason { wait_limit: self.queue[at].request.wait_limit, holders: self.holders_before(at) };
        let Some(waiting) = self.queue.remove(at) else { return };
        turn.ended.push(waiting.request.owner.session);
        turn.answered.push(ticket);
        turn.out.push(LockAction::Refuse { ticket, why: why(given) });
        self.pump(turn);
    }

    pub(super) fn session_died(&mut self, session: SessionId, turn: &mut LockContext<'_>) {
        let (gone, queue): (VecDeque<WaitingLock>, VecDeque<WaitingLock>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|waiting| waiting.request.owner.session == session);
        self.queue = queue;
        turn.ended.extend(gone.iter().map(|waiting| waiting.request.owner.session));
        turn.answered.extend(gone.iter().map(|waiting| waiting.request.ticket));
        self.streaks.retain(|(owner, _), _| owner.session != session);
        let mine: Vec<u64> = self
            .tokens
            .iter()
            .filter(|(_, token)| token.owner.session == session)
            .map(|(number, _)| *number)
            .collect();
        for number in mine {
            let Some(token) = self.tokens.get_mut(&number) else { continue };
            let wrote = is_around_access(token.space) && token.mode == (LockMode::Exclusive {});
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

    pub(super) fn recovered(&mut self, session: SessionId, turn: &mut LockContext<'_>) {
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

/// Queries.
impl FileTokens {
    pub(super) fn is_idle(&self) -> bool {
        self.tokens.is_empty() && self.queue.is_empty()
    }

    pub(super) fn sessions(&self) -> Vec<SessionId> {
        let held = self.tokens.values().map(|token| token.owner.session);
        held.chain(self.queue.iter().map(|waiting| waiting.request.owner.session)).collect()
    }

    pub(super) fn tickets(&self) -> impl Iterator<Item = WaitTicket> {
        self.queue.iter().map(|waiting| waiting.request.ticket)
    }

    pub(super) fn find(&self, wish: &LockRequest) -> Option<LockLine> {
        let blocking = self.blocking(wish);
        // A recalled token may be unused, and on its way back.
        let in_use =
            |number: &&u64| self.tokens.get(number).is_some_and(|token| token.state == LockState::InUse);
        let number = blocking.iter().find(in_use).or(blocking.first())?;
        self.tokens.get(number).map(|token| token.line(wish.inode))
    }

    pub(super) fn lines(&self, inode: InodeId) -> impl Iterator<Item = LockLine> {
        self.tokens.values().map(move |token| token.line(inode))
    }

    pub(super) fn waits(&self, inode: InodeId, now: Nanos) -> impl Iterator<Item = LockWait> {
        self.queue.iter().enumerate().map(move |(at, waiting)| LockWait {
            inode,
            owner: waiting.request.owner,
            ticket: waiting.request.ticket,
            mode: waiting.request.mode,
            bytes: waiting.request.shape.hull(),
            waited: now.since(waiting.since),
            holders: self.holders_before(at),
        })
    }

    /// Requests that a dead holder's token blocks.
    pub(super) fn blocked_by_dead(&self) -> Vec<WaitTicket> {
        let dead = |number: &u64| self.tokens.get(number).is_some_and(|token| token.state == LockState::Dead);
        let behind = self.queue.iter().filter(|waiting| self.blocking(&waiting.request).iter().any(dead));
        behind.map(|waiting| waiting.request.ticket).collect()
    }

    /// Waiting user locks: owner, ticket, and the owners that hold conflicting locks in use.
    pub(super) fn user_waits(&self) -> impl Iterator<Item = (TokenOwner, WaitTicket, Vec<TokenOwner>)> {
        let users =
            self.queue.iter().enumerate().filter(|(_, waiting)| !is_around_access(waiting.request.space));
        users.map(|(at, waiting)| (waiting.request.owner, waiting.request.ticket, self.holders_in_use(at)))
    }

    /// Tokens that block a request.
    fn blocking(&self, wish: &LockRequest) -> Vec<u64> {
        let excluded = |number: &u64| {
            self.tokens.get(number).is_some_and(|token| {
                excludes((token.owner, token.space, token.mode), (wish.owner, wish.space, wish.mode))
                    && token.shape.overlaps(&wish.shape)
            })
        };
        self.spans.overlapping(&wish.shape.hull()).into_iter().filter(excluded).collect()
    }

    /// Older requests that block the one at `at`. A request that waits for the same owner does not: each would wait for the other.
    fn older(&self, at: usize) -> impl Iterator<Item = &LockRequest> {
        let wish = &self.queue[at].request;
        self.queue.iter().take(at).map(|waiting| &waiting.request).filter(move |older| {
            excludes((older.owner, older.space, older.mode), (wish.owner, wish.space, wish.mode))
                && older.shape.overlaps(&wish.shape)
                && !self.waits_for(older, wish.owner)
        })
    }

    fn waits_for(&self, wish: &LockRequest, owner: TokenOwner) -> bool {
        let owners = self.blocking(wish).into_iter().filter_map(|number| self.tokens.get(&number));
        owners.map(|token| token.owner).any(|other| other == owner)
    }

    fn holders_before(&self, at: usize) -> Vec<TokenOwner> {
        let tokens = self.blocking(&self.queue[at].request);
        let held = tokens.iter().filter_map(|number| self.tokens.get(number)).map(|token| token.owner);
        let mut holders: Vec<TokenOwner> = held.chain(self.older(at).map(|older| older.owner)).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// The same without tokens that may be returned at any time.
    fn holders_in_use(&self, at: usize) -> Vec<TokenOwner> {
        let tokens = self.blocking(&self.queue[at].request);
        let used = tokens
            .iter()
            .filter_map(|number| self.tokens.get(number))
            .filter(|token| token.state == LockState::InUse)
            .map(|token| token.owner);
        used.chain(self.older(at).map(|older| older.owner)).collect()
    }
}

/// State changes.
impl FileTokens {
    fn drop_token(&mut self, number: u64, turn: &mut LockContext<'_>) {
        if let Some(token) = self.tokens.remove(&number) {
            turn.ended.push(token.owner.session);
        }
    }

    /// Grants requests in order of arrival, and recalls the tokens that block the others.
    fn pump(&mut self, turn: &mut LockContext<'_>) {
        let mut at = 0;
        while at < self.queue.len() {
            let blocking = self.blocking(&self.queue[at].request);
            let overtakes = !turn.sabotage.has(Bug::LockIgnoreQueue) && self.older(at).next().is_some();
            let shares = turn.sabotage.has(Bug::LockShareExclusive);
            if (blocking.is_empty() || shares) && !overtakes {
                if let Some(waiting) = self.queue.remove(at) {
                    self.grant(waiting.request, turn);
                }
                continue;
            }
            let wanted = self.queue[at].request.shape.hull();
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
            if self.queue[at].request.wait_limit == WaitLimit::Try && (in_use || overtakes) {
                let given = self.holders_before(at);
                if let Some(waiting) = self.queue.remove(at) {
                    turn.ended.push(waiting.request.owner.session);
                    turn.answered.push(waiting.request.ticket);
                    turn.out.push(LockAction::Refuse {
                        ticket: waiting.request.ticket,
                        why: Refusal::InUse(given),
                    });
                }
                continue;
            }
            at += 1;
        }
    }

    fn grant(&mut self, wish: LockRequest, turn: &mut LockContext<'_>) {
        let number = *turn.next_number;
        *turn.next_number = number.wrapping_add(1);
        let shape = self.widened(&wish);
        let bytes = shape.hull();
        self.spans.insert(number, &bytes);
        let LockRequest { owner, space, mode, ticket, .. } = wish;
        self.tokens.insert(number, LockToken { owner, space, mode, shape, state: LockState::Held });
        turn.answered.push(ticket);
        turn.out.push(LockAction::Grant { ticket, session: owner.session, number, bytes });
    }

    /// More than was requested, where no other owner is known to want it: the whole file without other locks, the following range for an
    /// owner with forward access, and the surrounding range for a reader among readers. Such grants do not conflict.
    fn widened(&mut self, wish: &LockRequest) -> LockedBytes {
        let LockedBytes::Bytes(need) = &wish.shape else { return wish.shape.clone() };
        if NEIGHBOURS_MAX < self.tokens.len() + self.queue.len() {
            return LockedBytes::Bytes(need.clone());
        }
        let mut room = 0..u64::MAX;
        let mut alone = true;
        let mine = (wish.owner, wish.space, wish.mode);
        let held =
            self.tokens.values().map(|token| ((token.owner, token.space, token.mode), token.shape.hull()));
        let wished = self.queue.iter().map(|waiting| &waiting.request);
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
                // Locks that overlap, or are interleaved.
                return LockedBytes::Bytes(need.clone());
            }
        }
        if alone {
            return LockedBytes::Bytes(room);
        }
        let bytes = need.end - need.start;
        let key = (wish.owner, wish.space);
        let ahead = match self.streaks.get(&key) {
            Some(streak) if streak.end == need.start => {
                (streak.widen_bytes * 2).clamp(bytes, WIDEN_BYTES_MAX.max(bytes))
            }
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
        self.streaks.insert(key, Streak { end: wide.end, widen_bytes: ahead.max(bytes) });
        LockedBytes::Bytes(wide)
    }
}

impl LockToken {
    /// Only a part of a range can be kept, and only of the held bytes.
    fn part(&self, keep: Option<Range<u64>>) -> Option<Range<u64>> {
        let LockedBytes::Bytes(held) = &self.shape else { return None };
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
