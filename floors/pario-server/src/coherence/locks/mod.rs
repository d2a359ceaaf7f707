//! The lock machine: range locks of all files of a partition, queued fairly, cached by their holders until somebody else wants them.
//!
//! What a client gets is a *token*: within it it locks and unlocks as often as it likes and sends nothing. Another's wish makes the machine
//! recall the tokens in its way; a client gives back what it does not use, says *busy* for what it does, and gives that back when it
//! unlocks.
//!
//! Never: takes a token by time; lets a wish overtake an older one that it conflicts with; recalls a token twice for nothing.
//! Always: wishes of one owner do not conflict; a wish is answered once, unless it is its session that goes; a circle of waiting
//! user locks ends with an error for the youngest wish in it.

mod circle;
mod file;
mod shape;
mod spans;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{LockMode, LockSpace};

use self::file::{FileLocks, Turn};
pub use self::shape::Shape;
use super::Ticket;
use super::sabotage::Sabotage;

/// Tokens and wishes that one session may have in all; beyond, it is refused.
pub(super) const LOCKS_PER_SESSION: usize = 1 << 17;

/// How long a holder that does not answer is waited for by those who would rather not wait.
pub(super) const TRY_MS: u64 = 1000;

/// Whose a lock is. Owners that are one never exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// The session that asked.
    pub session: SessionId,
    /// Who inside it: a handle, a call under way; chosen by the client.
    pub lane: u64,
    /// A group or an application for which the session asked; 0: for nobody but the lane.
    pub club: u64,
}

impl Owner {
    /// Whether locks of the two exclude each other.
    #[must_use]
    pub fn is_one_with(self, other: Owner) -> bool {
        match self.club {
            0 => self == other,
            club => club == other.club,
        }
    }
}

/// A wish for a lock.
#[derive(Clone, Debug)]
pub struct LockWish {
    /// Whose.
    pub owner: Owner,
    /// On which file.
    pub inode: InodeId,
    /// Locks of different spaces know nothing of each other.
    pub space: LockSpace,
    /// Beside others, or alone.
    pub mode: LockMode,
    /// Which bytes.
    pub shape: Shape,
    /// How long.
    pub patience: Patience,
    /// Where the answer goes.
    pub ticket: Ticket,
}

/// How long a wish waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Not for a lock that is in use.
    Try,
    /// As long as it takes.
    Wait,
    /// Until then.
    Until(Nanos),
}

/// What the shell has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockAction {
    /// Answer a wish. `bytes` may be more than was wished for.
    Grant {
        /// Which wish.
        ticket: Ticket,
        /// Its session.
        session: SessionId,
        /// The token's number.
        number: u64,
        /// The bytes it covers, between these two; all of them, unless a shape was wished for.
        bytes: Range<u64>,
    },
    /// Ask a holder for a token.
    Recall {
        /// The holder.
        session: SessionId,
        /// The file.
        inode: InodeId,
        /// Which token.
        number: u64,
        /// Between which bytes it is in the way.
        wanted: Range<u64>,
    },
    /// Answer a wish that is not fulfilled.
    Refuse {
        /// Which wish.
        ticket: Ticket,
        /// Why.
        why: Refusal,
    },
}

/// Why a wish is not fulfilled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It did not want to wait, and these have it.
    InUse(Vec<Owner>),
    /// Its time is over, and these have it.
    TimedOut(Vec<Owner>),
    /// It would wait for itself: each of these waits for the next, the last for the first.
    Circle(Vec<Owner>),
    /// It was taken back.
    Cancelled,
    /// The session has too many.
    TooMany,
}

/// A token, for `status` and for whoever asks what is in the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockLine {
    /// The file.
    pub inode: InodeId,
    /// Whose.
    pub owner: Owner,
    /// In which space.
    pub space: LockSpace,
    /// How.
    pub mode: LockMode,
    /// Between which bytes.
    pub bytes: Range<u64>,
    /// What is known of it.
    pub state: LockState,
}

/// What is known of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// Its holder has it, in use or not.
    Held,
    /// It was asked for and no answer came yet.
    Recalled,
    /// It was asked for, and is in use.
    InUse,
    /// Its holder is dead, and what it wrote is being brought in.
    Dead,
}

/// A wish that waits, for `status` and for notices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockWait {
    /// The file.
    pub inode: InodeId,
    /// Whose.
    pub owner: Owner,
    /// Its ticket.
    pub ticket: Ticket,
    /// How.
    pub mode: LockMode,
    /// Between which bytes.
    pub bytes: Range<u64>,
    /// For how long by now.
    pub waited: Duration,
    /// For whom.
    pub holders: Vec<Owner>,
}

/// Tokens and wishes of one session: how many, and on which files how many.
#[derive(Debug, Default)]
struct Used {
    total: usize,
    files: BTreeMap<InodeId, usize>,
}

/// See the module.
#[derive(Debug)]
pub struct Locks {
    files: BTreeMap<InodeId, FileLocks>,
    /// Where a wish waits, and until when.
    tickets: BTreeMap<Ticket, (InodeId, Option<Nanos>)>,
    used: BTreeMap<SessionId, Used>,
    deadlines: BTreeSet<(Nanos, Ticket)>,
    next_number: u64,
    sabotage: Sabotage,
}

/// Inputs. Each pushes what is to be done to `out`.
impl Locks {
    /// A machine without locks. Numbers of tokens start at `seed`, so that one from before a restart means nothing.
    #[must_use]
    pub fn new(seed: u64) -> Locks {
        Locks {
            files: BTreeMap::new(),
            tickets: BTreeMap::new(),
            used: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_number: seed,
            sabotage: Sabotage::default(),
        }
    }

    /// Switches a deliberate bug on, for the simulator.
    pub fn sabotage(&mut self, bug: super::Bug) {
        self.sabotage.bug = Some(bug);
    }

    /// Somebody wants a lock.
    pub fn lock(&mut self, wish: LockWish, now: Nanos, out: &mut Vec<LockAction>) {
        let (ticket, inode, session, club) =
            (wish.ticket, wish.inode, wish.owner.session, wish.owner.club != 0);
        if LOCKS_PER_SESSION <= self.used.get(&session).map_or(0, |used| used.total) {
            out.push(LockAction::Refuse { ticket, why: Refusal::TooMany });
            return;
        }
        let deadline = match wish.patience {
            Patience::Wait => None,
            Patience::Until(at) => Some(at),
            Patience::Try => Some(now.plus_ms(TRY_MS)),
        };
        let before = self.tickets.insert(ticket, (inode, deadline));
        assert!(before.is_none(), "{ticket:?} waits already");
        self.deadlines.extend(deadline.map(|at| (at, ticket)));
        self.with(inode, out, |file, turn| file.wish(wish, now, turn));
        // Who has nothing else is waited for by nobody.
        if self.used.get(&session).is_some_and(|used| 1 < used.total) || club {
            self.break_circle(ticket, out);
        }
    }

    /// A token came back, or all of it but `keep`. A number that the session does not hold is ignored: it is late or doubled.
    pub fn returned(
        &mut self,
        (session, inode): (SessionId, InodeId),
        number: u64,
        keep: Option<Range<u64>>,
        out: &mut Vec<LockAction>,
    ) {
        self.with(inode, out, |file, turn| file.returned(session, number, keep, turn));
    }

    /// A token that was recalled is in use, or `keep` of it and the rest is free. Whoever would not wait is told; a circle that this
    /// closes is broken.
    pub fn busy(
        &mut self,
        (session, inode): (SessionId, InodeId),
        number: u64,
        keep: Option<Range<u64>>,
        out: &mut Vec<LockAction>,
    ) {
        let blocked = self.with(inode, out, |file, turn| file.busy(session, number, keep, turn));
        // A holder that waits for nothing closes no circle.
        let waits = self
            .files
            .values()
            .flat_map(FileLocks::user_waits)
            .any(|(owner, ..)| owner.session == session || owner.club != 0);
        for ticket in blocked.into_iter().filter(|_| waits) {
            self.break_circle(ticket, out);
        }
    }

    /// Whoever waits under the ticket has changed its mind. One that does not wait any more is ignored.
    pub fn cancel(&mut self, ticket: Ticket, out: &mut Vec<LockAction>) {
        self.refuse(ticket, |_| Refusal::Cancelled, out);
    }

    /// Ends wishes whose time is over.
    pub fn expire(&mut self, now: Nanos, out: &mut Vec<LockAction>) {
        while let Some(&(at, ticket)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            self.refuse(
                ticket,
                |wait| match wait.patience {
                    Patience::Try => Refusal::InUse(wait.holders),
                    Patience::Wait | Patience::Until(_) => Refusal::TimedOut(wait.holders),
                },
                out,
            );
        }
    }

    /// The session's death is proven. Its wishes are dropped and its tokens are free, but for those under which it may have
    /// written: they count until [`Locks::settled`].
    pub fn gone(&mut self, session: SessionId, out: &mut Vec<LockAction>) {
        let inodes: Vec<InodeId> = self.files_of(session).collect();
        for inode in inodes {
            self.with(inode, out, |file, turn| file.gone(session, turn));
        }
    }

    /// What the session left behind on the file is in the stores.
    pub fn settled(&mut self, inode: InodeId, session: SessionId, out: &mut Vec<LockAction>) {
        self.with(inode, out, |file, turn| file.settled(session, turn));
    }

    /// The session has closed the file: nothing of it is under way, and its locks end.
    pub fn left(&mut self, inode: InodeId, session: SessionId, out: &mut Vec<LockAction>) {
        if self.files.contains_key(&inode) {
            self.with(inode, out, |file, turn| file.gone(session, turn));
            self.settled(inode, session, out);
        }
    }

    /// The file is removed for good and nobody uses it. Returns the tickets that waited, which are not answered.
    pub fn forget(&mut self, inode: InodeId) -> Vec<Ticket> {
        let Some(file) = self.files.remove(&inode) else { return Vec::new() };
        for session in file.sessions() {
            remove_use(&mut self.used, session, inode, usize::MAX);
        }
        let dropped: Vec<Ticket> = file.tickets().collect();
        for ticket in &dropped {
            self.answered(*ticket);
        }
        dropped
    }
}

/// Questions.
impl Locks {
    /// When [`Locks::expire`] is to be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A token that such a wish would have to wait for.
    #[must_use]
    pub fn find(&self, wish: &LockWish) -> Option<LockLine> {
        self.files.get(&wish.inode)?.find(wish)
    }

    /// Every token there is, file by file.
    pub fn held(&self) -> impl Iterator<Item = LockLine> {
        self.files.iter().flat_map(|(&inode, file)| file.lines(inode))
    }

    /// Everybody who waits, file by file, in order of arrival.
    pub fn waiting(&self, now: Nanos) -> impl Iterator<Item = LockWait> {
        self.files.iter().flat_map(move |(&inode, file)| file.waits(inode, now))
    }

    /// Files on which a session has tokens or wishes, or had some that are not settled.
    pub fn files_of(&self, session: SessionId) -> impl Iterator<Item = InodeId> {
        self.used.get(&session).into_iter().flat_map(|used| used.files.keys().copied())
    }

    /// Wishes that wait for what the dead have left.
    #[must_use]
    pub fn behind_the_dead(&self, inode: InodeId) -> Vec<Ticket> {
        self.files.get(&inode).map(FileLocks::behind_the_dead).unwrap_or_default()
    }

    /// Nothing is held and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty() && self.tickets.is_empty() && self.used.is_empty() && self.deadlines.is_empty()
    }
}

impl Locks {
    fn refuse(
        &mut self,
        ticket: Ticket,
        why: impl FnOnce(file::Given) -> Refusal,
        out: &mut Vec<LockAction>,
    ) {
        let Some(&(inode, _)) = self.tickets.get(&ticket) else { return };
        self.with(inode, out, |file, turn| file.refuse(ticket, why, turn));
    }

    /// Lets the file act, then drops what it answered, and the file if nobody uses it any more.
    fn with<T: Default>(
        &mut self,
        inode: InodeId,
        out: &mut Vec<LockAction>,
        act: impl FnOnce(&mut FileLocks, &mut Turn<'_>) -> T,
    ) -> T {
        let file = self.files.entry(inode).or_default();
        let mut turn = Turn {
            inode,
            next_number: &mut self.next_number,
            out,
            came: Vec::new(),
            went: Vec::new(),
            answered: Vec::new(),
            sabotage: self.sabotage,
        };
        let result = act(file, &mut turn);
        let (came, went, answered) = (turn.came, turn.went, turn.answered);
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

    fn answered(&mut self, ticket: Ticket) {
        if let Some((_, Some(deadline))) = self.tickets.remove(&ticket) {
            self.deadlines.remove(&(deadline, ticket));
        }
    }
}

fn remove_use(used: &mut BTreeMap<SessionId, Used>, session: SessionId, inode: InodeId, count: usize) {
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
