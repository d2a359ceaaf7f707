//! The lock machine of all files: see the module above.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pario_core::{InodeId, Nanos, SessionId};

use super::super::sabotage::LeaseSabotage;
use super::file::{self, FileTokens, LockContext};
use super::{LockAction, LockLine, LockRequest, LockWait, Refusal, WaitLimit, WaitTicket};

/// Tokens and requests of one session; beyond, requests are refused.
pub(super) const LOCKS_PER_SESSION: usize = 1 << 17;

/// Wait for an unresponsive holder in a request that must not wait.
pub(super) const TRY_MS: u64 = 1000;

/// Tokens and requests of one session: in total, and per file.
#[derive(Debug, Default)]
pub(super) struct SessionUse {
    total: usize,
    files: BTreeMap<InodeId, usize>,
}

/// See the module.
#[derive(Debug)]
pub struct Locks {
    pub(super) files: BTreeMap<InodeId, FileTokens>,
    /// The file of each waiting request, and its timeout.
    pub(super) tickets: BTreeMap<WaitTicket, (InodeId, Option<Nanos>)>,
    pub(super) used: BTreeMap<SessionId, SessionUse>,
    pub(super) deadlines: BTreeSet<(Nanos, WaitTicket)>,
    pub(super) next_number: u64,
    pub(super) sabotage: LeaseSabotage,
}

/// Inputs. Each pushes its actions to `out`.
impl Locks {
    /// A machine without locks. Numbers of tokens start at `seed`, so that a number from before a restart is invalid.
    #[must_use]
    pub fn new(seed: u64) -> Locks {
        Locks {
            files: BTreeMap::new(),
            tickets: BTreeMap::new(),
            used: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_number: seed,
            sabotage: LeaseSabotage::default(),
        }
    }

    /// Enables a deliberate bug, for the simulator.
    pub fn sabotage(&mut self, bug: super::super::Bug) {
        self.sabotage = LeaseSabotage::new(Some(bug));
    }

    /// A session requests a lock.
    pub fn lock(&mut self, wish: LockRequest, now: Nanos, out: &mut Vec<LockAction>) {
        let (ticket, inode, session, club) =
            (wish.ticket, wish.inode, wish.owner.session, wish.owner.lock_group != 0);
        if LOCKS_PER_SESSION <= self.used.get(&session).map_or(0, |used| used.total) {
            out.push(LockAction::Refuse { ticket, why: Refusal::TooMany });
            return;
        }
        let deadline = match wish.wait_limit {
            WaitLimit::Wait => None,
            WaitLimit::Until(at) => Some(at),
            WaitLimit::Try => Some(now.plus_ms(TRY_MS)),
        };
        let before = self.tickets.insert(ticket, (inode, deadline));
        assert!(before.is_none(), "{ticket:?} waits already");
        self.deadlines.extend(deadline.map(|at| (at, ticket)));
        self.with(inode, out, |file, turn| file.request(wish, now, turn));
        // No request waits for a session without other tokens.
        if self.used.get(&session).is_some_and(|used| 1 < used.total) || club {
            self.break_cycle(ticket, out);
        }
    }

    /// A token was returned, or all of it except `keep`. A number that the session does not hold is ignored: the message is late or
    /// duplicated.
    pub fn returned(
        &mut self,
        (session, inode): (SessionId, InodeId),
        number: u64,
        keep: Option<Range<u64>>,
        out: &mut Vec<LockAction>,
    ) {
        self.with(inode, out, |file, turn| file.returned(session, number, keep, turn));
    }

    /// A recalled token is in use, or `keep` of it and the rest is free. Requests that must not wait are refused; a cycle that this closes
    /// is broken.
    pub fn busy(
        &mut self,
        (session, inode): (SessionId, InodeId),
        number: u64,
        keep: Option<Range<u64>>,
        out: &mut Vec<LockAction>,
    ) {
        let blocked = self.with(inode, out, |file, turn| file.busy(session, number, keep, turn));
        // A holder that waits for nothing closes no cycle.
        let waits = self
            .files
            .values()
            .flat_map(FileTokens::user_waits)
            .any(|(owner, ..)| owner.session == session || owner.lock_group != 0);
        for ticket in blocked.into_iter().filter(|_| waits) {
            self.break_cycle(ticket, out);
        }
    }

    /// Cancels a waiting request. A ticket that does not wait any more is ignored.
    pub fn cancel(&mut self, ticket: WaitTicket, out: &mut Vec<LockAction>) {
        self.refuse(ticket, |_| Refusal::Cancelled, out);
    }

    /// Refuses requests with an expired timeout.
    pub fn expire(&mut self, now: Nanos, out: &mut Vec<LockAction>) {
        while let Some(&(at, ticket)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            self.refuse(
                ticket,
                |wait| match wait.wait_limit {
                    WaitLimit::Try => Refusal::InUse(wait.holders),
                    WaitLimit::Wait | WaitLimit::Until(_) => Refusal::TimedOut(wait.holders),
                },
                out,
            );
        }
    }

    /// The session's death is proven. Its requests are dropped and its tokens are free, except for those under which it may have written:
    /// they count until [`Locks::recovered`].
    pub fn session_died(&mut self, session: SessionId, out: &mut Vec<LockAction>) {
        let inodes: Vec<InodeId> = self.files_of(session).collect();
        for inode in inodes {
            self.with(inode, out, |file, turn| file.session_died(session, turn));
        }
    }

    /// The session's records of the file are in the stores.
    pub fn recovered(&mut self, inode: InodeId, session: SessionId, out: &mut Vec<LockAction>) {
        self.with(inode, out, |file, turn| file.recovered(session, turn));
    }

    /// The session has closed the file: it has no access in progress, and its locks end.
    pub fn left(&mut self, inode: InodeId, session: SessionId, out: &mut Vec<LockAction>) {
        if self.files.contains_key(&inode) {
            self.with(inode, out, |file, turn| file.session_died(session, turn));
            self.recovered(inode, session, out);
        }
    }

    /// The file is removed permanently and has no users. Returns the tickets that waited, which are not answered.
    pub fn forget(&mut self, inode: InodeId) -> Vec<WaitTicket> {
        let Some(file) = self.files.remove(&inode) else { return Vec::new() };
        for session in file.sessions() {
            remove_use(&mut self.used, session, inode, usize::MAX);
        }
        let dropped: Vec<WaitTicket> = file.tickets().collect();
        for ticket in &dropped {
            self.answered(*ticket);
        }
        dropped
    }
}

/// Queries.
impl Locks {
    /// When [`Locks::expire`] must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A token that blocks such a request.
    #[must_use]
    pub fn find(&self, wish: &LockRequest) -> Option<LockLine> {
        self.files.get(&wish.inode)?.find(wish)
    }

    /// All tokens, file by file.
    pub fn held(&self) -> impl Iterator<Item = LockLine> {
        self.files.iter().flat_map(|(&inode, file)| file.lines(inode))
    }

    /// All waiting requests, file by file, in order of arrival.
    pub fn waiting(&self, now: Nanos) -> impl Iterator<Item = LockWait> {
        self.files.iter().flat_map(move |(&inode, file)| file.waits(inode, now))
    }

    /// Files on which a session has tokens or requests, or had some that are not recovered.
    pub fn files_of(&self, session: SessionId) -> impl Iterator<Item = InodeId> {
        self.used.get(&session).into_iter().flat_map(|used| used.files.keys().copied())
    }

    /// Requests that wait for tokens of dead holders.
    #[must_use]
    pub fn blocked_by_dead(&self, inode: InodeId) -> Vec<WaitTicket> {
        self.files.get(&inode).map(FileTokens::blocked_by_dead).unwrap_or_default()
    }

    /// No token is held and no request waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty() && self.tickets.is_empty() && self.used.is_empty() && self.deadlines.is_empty()
    }
}

impl Locks {
    pub(super) fn refuse(
        &mut self,
        ticket: WaitTicket,
        why: impl FnOnce(file::RefusalReason) -> Refusal,
        out: &mut Vec<LockAction>,
    ) {
        let Some(&(inode, _)) = self.tickets.get(&ticket) else { return };
        self.with(inode, out, |file, turn| file.refuse(ticket, why, turn));
    }

    /// Runs `act` on the file, then drops the requests that it answered, and the file if it has no users left.
    fn with<T: Default>(
        &mut self,
        inode: InodeId,
        out: &mut Vec<LockAction>,
        act: impl FnOnce(&mut FileTokens, &mut LockContext<'_>) -> T,
    ) -> T {
        let file = self.files.entry(inode).or_default();
        let mut turn = LockContext {
            inode,
            next_number: &mut self.next_number,
            out,
            added: Vec::new(),
            ended: Vec::new(),
            answered: Vec::new(),
            sabotage: self.sabotage,
        };
        let result = act(file, &mut turn);
        let (came, went, answered) = (turn.added, turn.ended, turn.answered);
        if file.is_idle() {
            self.files.remove(&inode);
        }
        for session in came {
            let used = self.used.entry(session).or_default();
            used.total += 1;
            *used.files.entry(inode).or_default() += 1;
        }
        for session in went {
            remove_use(&mut self.used, session, inode, 1);
        }
        for ticket in answered {
            self.answered(ticket);
        }
        result
    }

    fn answered(&mut self, ticket: WaitTicket) {
        if let Some((_, Some(deadline))) = self.tickets.remove(&ticket) {
            self.deadlines.remove(&(deadline, ticket));
        }
    }
}

fn remove_use(used: &mut BTreeMap<SessionId, SessionUse>, session: SessionId, inode: InodeId, count: usize) {
    let Some(mine) = used.get_mut(&session) else { return };
    if let Some(left) = mine.files.get_mut(&inode) {
        let gone = count.min(*left);
        *left -= gone;
        mine.total -= gone;
        if *left == 0 {
            mine.files.remove(&inode);
        }
    }
    if mine.files.is_empty() {
        used.remove(&session);
    }
}
