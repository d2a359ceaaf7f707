//! The manager: the real machines, and what its shell does around them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Lease, LockMode, LockSpace, Phase, Want};
use pario_server::coherence::{
    Action, Ask, Barrier, BarrierAsk, Leases, LockAction, LockWish, Locks, Owner, Party, Patience, Refusal,
    Return, Shape, Ticket,
};

use crate::bugs::{AnyBug, ClientBug};
use crate::coverage::Coverage;

/// What a client asks.
#[derive(Clone, Debug)]
pub(crate) enum Ask4 {
    Acquire {
        file: usize,
        want: Want,
    },
    Return {
        file: usize,
        number: u64,
    },
    Lock {
        file: usize,
        ask: u64,
        space: LockSpace,
        lane: u64,
        mode: LockMode,
        bytes: Range<u64>,
        patience: Patience,
    },
    Unlock {
        file: usize,
        number: u64,
        keep: Option<Range<u64>>,
    },
    Busy {
        file: usize,
        number: u64,
        keep: Option<Range<u64>>,
    },
    Cancel {
        ask: u64,
    },
    Look {
        file: usize,
    },
    Stop {
        file: usize,
    },
    StopEnd {
        file: usize,
    },
    Close {
        file: usize,
    },
}

/// What it is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Granted {
        lease: Lease,
    },
    Locked {
        ask: u64,
        number: u64,
        bytes: Range<u64>,
    },
    Refused {
        ask: u64,
        why: &'static str,
    },
    Quiet {
        file: usize,
    },
    /// What a dead writer left of the file cannot be brought in now.
    Unsettled {
        file: usize,
    },
}

/// What it is told unasked.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Recall { file: usize, number: u64 },
    RecallLock { file: usize, number: u64, wanted: Range<u64> },
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    Acquire { client: usize },
    Lock { client: usize, ask: u64, wished: usize },
    Look { client: usize, file: usize },
    Stop { client: usize, file: usize },
}

/// What a wish for a lock was about.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wished {
    client: usize,
    file: usize,
    space: LockSpace,
    mode: LockMode,
    bytes: Range<u64>,
}

impl Wished {
    fn excludes(&self, other: &Wished) -> bool {
        let alone = self.mode == (LockMode::Exclusive {}) || other.mode == (LockMode::Exclusive {});
        let same = (self.file, self.space) == (other.file, other.space) && self.client != other.client;
        same && alone && meet(&self.bytes, &other.bytes)
    }
}

fn meet(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}

/// What is to be carried out by the world.
#[derive(Debug)]
pub(crate) enum Effect {
    Reply(usize, Reply),
    Notice(usize, Notice),
    Settle { file: usize, client: usize },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) leases: Leases,
    pub(crate) locks: Locks,
    life: u64,
    waits: BTreeMap<Ticket, Wait>,
    tickets: u64,
    /// The log: who may be writing what.
    writers: BTreeSet<(SessionId, usize)>,
    pub(crate) ghosts: BTreeSet<SessionId>,
    /// Stops in force.
    stops: BTreeMap<usize, (Ticket, usize)>,
    recalled: BTreeSet<(SessionId, u64)>,
    given: BTreeSet<(SessionId, u64)>,
    /// Wishes for locks, by number.
    wished: Vec<Wished>,
    /// Locks under which the dead may have written, until that is settled.
    left: Vec<(usize, usize, Range<u64>)>,
    pub(crate) effects: VecDeque<Effect>,
    bug: Option<AnyBug>,
}

pub(crate) fn session(client: usize) -> SessionId {
    SessionId(client as u64 + 1)
}

fn inode(file: usize) -> InodeId {
    InodeId(file as u64 + 10)
}

fn file_of(inode: InodeId) -> usize {
    usize::try_from(inode.0 - 10).expect("a file of this world")
}

fn client_of(session: SessionId) -> usize {
    usize::try_from(session.0 - 1).expect("a client of this world")
}

impl Manager {
    pub(crate) fn new(bug: Option<AnyBug>) -> Manager {
        let mut manager = Manager {
            leases: Leases::new(0),
            locks: Locks::new(0),
            life: 0,
            waits: BTreeMap::new(),
            tickets: 0,
            writers: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            stops: BTreeMap::new(),
            recalled: BTreeSet::new(),
            given: BTreeSet::new(),
            wished: Vec::new(),
            left: Vec::new(),
            effects: VecDeque::new(),
            bug,
        };
        manager.begin();
        manager
    }

    fn begin(&mut self) {
        self.leases = Leases::new((self.life + 1) << 32);
        self.locks = Locks::new((self.life + 1) << 32);
        if let Some(AnyBug::Machine(bug)) = self.bug {
            self.leases.sabotage(bug);
            self.locks.sabotage(bug);
        }
    }

    fn has(&self, bug: ClientBug) -> bool {
        self.bug == Some(AnyBug::Around(bug))
    }

    /// It was killed and is back: what it knows is in its log.
    pub(crate) fn restart(&mut self) {
        self.life += 1;
        self.begin();
        self.waits.clear();
        self.stops.clear();
        self.recalled.clear();
        self.left.clear();
        self.effects.clear();
        self.ghosts.clear();
        if self.has(ClientBug::ForgetWriters) {
            self.writers.clear();
        }
        for (session, file) in &self.writers {
            self.leases.restore(*session, inode(*file));
            self.ghosts.insert(*session);
        }
    }

    fn ticket(&mut self, wait: Wait) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waits.insert(ticket, wait);
        ticket
    }

    /// A client's request.
    pub(crate) fn hear(
        &mut self,
        client: usize,
        ask: Ask4,
        now: Nanos,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let who = session(client);
        let (mut actions, mut lock_actions) = (Vec::new(), Vec::new());
        if self.ghosts.remove(&who) {
            seen.visit("ghost reclaimed");
            self.leases.reclaimed(who, now, &mut actions);
        }
        match ask {
            Ask4::Acquire { file, want } => {
                let ticket = self.ticket(Wait::Acquire { client });
                let ask = Ask { session: who, inode: inode(file), want, party: Party(0), ticket };
                self.leases.acquire(ask, now, &mut actions);
                if actions
                    .iter()
                    .all(|action| !matches!(action, Action::Grant { ticket: t, .. } if *t == ticket))
                {
                    seen.visit("lease waited for");
                }
            }
            Ask4::Return { file, number } => {
                seen.visit("lease returned");
                self.leases.returned(Return { session: who, inode: inode(file), number }, now, &mut actions);
                if !self.leases.holds_write(who, inode(file)) {
                    self.writers.remove(&(who, file));
                }
            }
            Ask4::Lock { file, ask, space, lane, mode, bytes, patience } => {
                self.wished.push(Wished { client, file, space, mode, bytes: bytes.clone() });
                let ticket = self.ticket(Wait::Lock { client, ask, wished: self.wished.len() - 1 });
                let owner = Owner { session: who, lane, club: 0 };
                let (inode, shape) = (inode(file), Shape::Bytes(bytes));
                let wish = LockWish { owner, inode, space, mode, shape, patience, ticket };
                self.locks.lock(wish, now, &mut lock_actions);
            }
            Ask4::Unlock { file, number, keep } => {
                seen.visit(if keep.is_some() { "lock kept in part" } else { "lock returned" });
                self.locks.returned((who, inode(file)), number, keep, &mut lock_actions);
            }
            Ask4::Busy { file, number, keep } => {
                seen.visit("lock in use");
                self.locks.busy((who, inode(file)), number, keep, &mut lock_actions);
            }
            Ask4::Cancel { ask } => {
                let mine = |wait: &Wait| matches!(wait, Wait::Lock { client: c, ask: a, .. } if (*c, *a) == (client, ask));
                let ticket = self.waits.iter().find(|(_, wait)| mine(wait)).map(|(ticket, _)| *ticket);
                if let Some(ticket) = ticket {
                    self.locks.cancel(ticket, &mut lock_actions);
                }
            }
            Ask4::Look { file } => {
                let ticket = self.ticket(Wait::Look { client, file });
                let ask = BarrierAsk { inode: inode(file), ticket, kind: Barrier::Look, asker: Some(who) };
                self.leases.barrier(ask, now, &mut actions);
            }
            Ask4::Stop { file } => {
                let ticket = self.ticket(Wait::Stop { client, file });
                let ask = BarrierAsk { inode: inode(file), ticket, kind: Barrier::Stop, asker: Some(who) };
                self.leases.barrier(ask, now, &mut actions);
            }
            Ask4::StopEnd { file } => {
                if let Some((ticket, _)) = self.stops.remove(&file) {
                    seen.visit("stop ended");
                    self.leases.barrier_end(inode(file), ticket, now, &mut actions);
                }
            }
            Ask4::Close { file } => self.locks.left(inode(file), who, &mut lock_actions),
        }
        self.carry_out(actions, seen)?;
        self.carry_out_locks(lock_actions, seen)
    }

    /// The clock says so.
    pub(crate) fn expire(&mut self, now: Nanos, seen: &mut Coverage) -> Result<(), String> {
        let mut actions = Vec::new();
        self.locks.expire(now, &mut actions);
        self.carry_out_locks(actions, seen)
    }

    /// A client's connection has ended.
    pub(crate) fn gone(&mut self, client: usize, now: Nanos, seen: &mut Coverage) -> Result<(), String> {
        let who = session(client);
        if self.ghosts.remove(&who) {
            seen.visit("ghost buried");
        }
        let (mut actions, mut lock_actions) = (Vec::new(), Vec::new());
        self.waits.retain(|_, wait| match wait {
            Wait::Acquire { client: c } | Wait::Lock { client: c, .. } => *c != client,
            Wait::Look { .. } | Wait::Stop { .. } => true,
        });
        let barriers: Vec<(Ticket, Wait)> =
            self.waits.iter().map(|(ticket, wait)| (*ticket, *wait)).collect();
        for (ticket, wait) in barriers {
            if matches!(wait, Wait::Look { client: c, .. } | Wait::Stop { client: c, .. } if c == client) {
                self.waits.remove(&ticket);
                self.leases.cancel(ticket, now, &mut actions);
            }
        }
        // The work of a stop is the manager's, and ends also if nobody waits for it.
        let over: Vec<(usize, Ticket)> = self
            .stops
            .iter()
            .filter(|(_, (_, asker))| *asker == client)
            .map(|(file, (ticket, _))| (*file, *ticket))
            .collect();
        for (file, ticket) in over {
            self.stops.remove(&file);
            self.leases.barrier_end(inode(file), ticket, now, &mut actions);
        }
        self.leases.gone(who, now, &mut actions);
        let wrote = self.locks.held().filter(|line| {
            let access = line.space == (LockSpace::Access {}) && line.mode == (LockMode::Exclusive {});
            access && line.owner.session == who && self.leases.holders(line.inode).contains(&who)
        });
        let wrote: Vec<_> = wrote.map(|line| (file_of(line.inode), client, line.bytes)).collect();
        self.left.extend(wrote);
        self.locks.gone(who, &mut lock_actions);
        let files: Vec<InodeId> = self.locks.files_of(who).collect();
        for file in files {
            if !self.leases.holders(file).contains(&who) {
                seen.visit("lock of the dead freed");
                self.locks.settled(file, who, &mut lock_actions);
            }
        }
        self.carry_out(actions, seen)?;
        self.carry_out_locks(lock_actions, seen)
    }

    /// What a dead or reclaimed client left of a file is in the stores.
    pub(crate) fn settled(
        &mut self,
        file: usize,
        client: usize,
        now: Nanos,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        seen.visit("settled");
        let who = session(client);
        self.writers.remove(&(who, file));
        self.left.retain(|(of, dead, _)| (*of, *dead) != (file, client));
        let (mut actions, mut lock_actions) = (Vec::new(), Vec::new());
        self.leases.settled(inode(file), who, now, &mut actions);
        self.locks.settled(inode(file), who, &mut lock_actions);
        self.carry_out(actions, seen)?;
        self.carry_out_locks(lock_actions, seen)
    }

    /// A server that must take what a dead client left is gone: whoever waits for the file is told, and does not wait for its return.
    pub(crate) fn unsettled(&mut self, file: usize, now: Nanos, seen: &mut Coverage) -> Result<(), String> {
        let waiting: Vec<Ticket> = self
            .leases
            .waiting(now)
            .filter(|line| line.inode == inode(file))
            .map(|line| line.ticket)
            .collect();
        for ticket in waiting {
            let client = match self.waits.remove(&ticket) {
                Some(Wait::Acquire { client } | Wait::Look { client, .. } | Wait::Stop { client, .. }) => {
                    client
                }
                Some(Wait::Lock { .. }) | None => continue,
            };
            seen.visit("waiter told that a file cannot be settled");
            self.effects.push_back(Effect::Reply(client, Reply::Unsettled { file }));
            let mut actions = Vec::new();
            self.leases.cancel(ticket, now, &mut actions);
            self.carry_out(actions, seen)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, actions: Vec<Action>, seen: &mut Coverage) -> Result<(), String> {
        for action in actions {
            match action {
                Action::Grant { ticket, session, lease } => self.granted(ticket, session, lease, seen)?,
                Action::Recall { session, inode, number } => {
                    seen.visit("lease recalled");
                    if !self.recalled.insert((session, number)) {
                        return Err(format!("lease {number} of {session} is recalled twice"));
                    }
                    let notice = Notice::Recall { file: file_of(inode), number };
                    self.effects.push_back(Effect::Notice(client_of(session), notice));
                }
                Action::Settle { inode, session } => {
                    let (file, client) = (file_of(inode), client_of(session));
                    self.effects.push_back(Effect::Settle { file, client });
                }
                Action::Quiet { ticket } => match self.waits.remove(&ticket) {
                    Some(Wait::Look { client, file }) => {
                        seen.visit("look quiet");
                        self.effects.push_back(Effect::Reply(client, Reply::Quiet { file }));
                    }
                    Some(Wait::Stop { client, file }) => {
                        seen.visit("stop quiet");
                        self.stops.insert(file, (ticket, client));
                        self.effects.push_back(Effect::Reply(client, Reply::Quiet { file }));
                    }
                    Some(Wait::Acquire { .. } | Wait::Lock { .. }) | None => {
                        return Err(format!("{ticket:?} is quiet, and is no barrier"));
                    }
                },
            }
        }
        Ok(())
    }

    fn granted(
        &mut self,
        ticket: Ticket,
        who: SessionId,
        lease: Lease,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let file = file_of(lease.inode);
        if self.recalled.contains(&(who, lease.number)) {
            return Err(format!("lease {} of {who} is granted while it is recalled", lease.number));
        }
        if let Some(stop) = self.stops.get(&file) {
            return Err(format!("a lease of file {file} is granted during stop {stop:?}"));
        }
        let older = self.leases.waiting(Nanos(0)).find(|line| {
            let lease = matches!(line.waiter, pario_server::coherence::Waiter::Session(_));
            lease && line.inode == lease_inode(file) && line.ticket < ticket
        });
        // Who has it may be told so again.
        let again = !self.given.insert((who, lease.number));
        if let Some(older) = older.filter(|_| !again) {
            return Err(format!("{ticket:?} is granted a lease past {:?}", older.ticket));
        }
        seen.visit(match lease.phase {
            Phase::Exclusive {} => "grant exclusive",
            Phase::Write {} => "grant write",
            Phase::Read {} => "grant read",
            Phase::Mixed {} => "grant mixed",
        });
        match self.waits.remove(&ticket) {
            Some(Wait::Acquire { client }) if session(client) == who => {
                if lease.phase != (Phase::Read {}) {
                    self.writers.insert((who, file));
                }
                self.effects.push_back(Effect::Reply(client, Reply::Granted { lease }));
                Ok(())
            }
            other => Err(format!("{ticket:?} gets a lease, and is {other:?}")),
        }
    }

    fn carry_out_locks(&mut self, actions: Vec<LockAction>, seen: &mut Coverage) -> Result<(), String> {
        for action in actions {
            match action {
                LockAction::Grant { ticket, number, bytes, .. } => {
                    seen.visit(if bytes == (0..u64::MAX) {
                        "lock granted whole"
                    } else {
                        "lock granted exactly"
                    });
                    let Some(Wait::Lock { client, ask, wished }) = self.waits.remove(&ticket) else {
                        return Err(format!("{ticket:?} gets a lock it did not wait for"));
                    };
                    self.check_lock(ticket, wished)?;
                    self.effects.push_back(Effect::Reply(client, Reply::Locked { ask, number, bytes }));
                }
                LockAction::Recall { session, inode, number, wanted } => {
                    seen.visit("lock recalled");
                    let notice = Notice::RecallLock { file: file_of(inode), number, wanted };
                    self.effects.push_back(Effect::Notice(client_of(session), notice));
                }
                LockAction::Refuse { ticket, why } => {
                    let why = match why {
                        Refusal::InUse(_) => "lock refused in use",
                        Refusal::TimedOut(_) => "lock refused in time",
                        Refusal::Circle(_) => "lock refused in a circle",
                        Refusal::Cancelled => "lock cancelled",
                        Refusal::TooMany => "lock refused for their number",
                    };
                    seen.visit(why);
                    if let Some(Wait::Lock { client, ask, .. }) = self.waits.remove(&ticket) {
                        self.effects.push_back(Effect::Reply(client, Reply::Refused { ask, why }));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Manager {
    /// A lock is granted: nobody was passed over, and nothing of the dead is under way there.
    fn check_lock(&self, ticket: Ticket, wished: usize) -> Result<(), String> {
        let mine = &self.wished[wished];
        for (older, wait) in self.waits.range(..ticket) {
            if let Wait::Lock { wished, .. } = wait
                && self.wished[*wished].excludes(mine)
            {
                return Err(format!("{ticket:?} is granted a lock past {older:?}"));
            }
        }
        let left = self.left.iter().find(|(file, _, bytes)| {
            mine.space == (LockSpace::Access {}) && *file == mine.file && meet(bytes, &mine.bytes)
        });
        match left {
            Some((file, dead, _)) => {
                Err(format!("a lock of file {file} is granted before {dead}, dead, is settled"))
            }
            None => Ok(()),
        }
    }
}

fn lease_inode(file: usize) -> InodeId {
    inode(file)
}
