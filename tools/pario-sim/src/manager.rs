//! The manager: the real lease and lock machines, and a simulated shell.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Lease, LockMode, LockSpace, Phase, Want};
use pario_server::coherence::{
    Barrier, BarrierRequest, LeaseAction, LeaseGroup, LeaseRequest, Leases, LockAction, LockRequest,
    LockedBytes, Locks, Refusal, Return, TokenOwner, WaitLimit, WaitTicket,
};

use crate::bugs::{AnyBug, ClientBug};
use crate::coverage::Coverage;

/// Requests of a client.
#[derive(Clone, Debug)]
pub(crate) enum ManagerRequest {
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
        owner_slot: u64,
        mode: LockMode,
        bytes: Range<u64>,
        wait_limit: WaitLimit,
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

/// Replies to a client.
#[derive(Clone, Debug)]
pub(crate) enum ManagerReply {
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
    /// A dead writer's records cannot be recovered now.
    Unrecovered {
        file: usize,
    },
}

/// Unsolicited messages to a client.
#[derive(Clone, Debug)]
pub(crate) enum ManagerNotice {
    Recall { file: usize, number: u64 },
    RecallLock { file: usize, number: u64, wanted: Range<u64> },
}

#[derive(Clone, Copy, Debug)]
enum ManagerWait {
    Acquire { client: usize },
    Lock { client: usize, ask: u64, wished: usize },
    Look { client: usize, file: usize },
    Stop { client: usize, file: usize },
}

/// Arguments of a lock request.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LockArguments {
    client: usize,
    file: usize,
    space: LockSpace,
    mode: LockMode,
    bytes: Range<u64>,
}

impl LockArguments {
    fn excludes(&self, other: &LockArguments) -> bool {
        let alone = self.mode == (LockMode::Exclusive {}) || other.mode == (LockMode::Exclusive {});
        let same = (self.file, self.space) == (other.file, other.space) && self.client != other.client;
        same && alone && ranges_overlap(&self.bytes, &other.bytes)
    }
}

fn ranges_overlap(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}

/// Effects to be executed by the simulation.
#[derive(Debug)]
pub(crate) enum SimEffect {
    Reply(usize, ManagerReply),
    Notice(usize, ManagerNotice),
    RecoverWriter { file: usize, client: usize },
}

/// State of the manager; see the module.
#[derive(Debug)]
pub(crate) struct SimManager {
    pub(crate) leases: Leases,
    pub(crate) locks: Locks,
    life: u64,
    waits: BTreeMap<WaitTicket, ManagerWait>,
    tickets: u64,
    /// The log: possible writers of each file.
    writers: BTreeSet<(SessionId, usize)>,
    pub(crate) ghosts: BTreeSet<SessionId>,
    /// Stops in force.
    stops: BTreeMap<usize, (WaitTicket, usize)>,
    recalled: BTreeSet<(SessionId, u64)>,
    given: BTreeSet<(SessionId, u64)>,
    /// Lock requests, by number.
    lock_requests: Vec<LockArguments>,
    /// Locks under which dead clients may have written, until they are recovered.
    left: Vec<(usize, usize, Range<u64>)>,
    pub(crate) effects: VecDeque<SimEffect>,
    bug: Option<AnyBug>,
}

pub(crate) fn session(client: usize) -> SessionId {
    SessionId(client as u64 + 1)
}

fn inode(file: usize) -> InodeId {
    InodeId(file as u64 + 10)
}

fn file_of(inode: InodeId) -> usize {
    usize::try_from(inode.0 - 10).expect("a file of this simulation")
}

fn client_of(session: SessionId) -> usize {
    usize::try_from(session.0 - 1).expect("a client of this simulation")
}

impl SimManager {
    pub(crate) fn new(bug: Option<AnyBug>) -> SimManager {
        let mut manager = SimManager {
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
            lock_requests: Vec::new(),
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

    /// It was killed and restarted: only its log is left.
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

    fn ticket(&mut self, wait: ManagerWait) -> WaitTicket {
        self.tickets += 1;
        let ticket = WaitTicket(self.tickets);
        self.waits.insert(ticket, wait);
        ticket
    }

    /// A client's request.
    pub(crate) fn receive(
        &mut self,
        client: usize,
        ask: ManagerRequest,
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
            ManagerRequest::Acquire { file, want } => {
                let ticket = self.ticket(ManagerWait::Acquire { client });
                let ask =
                    LeaseRequest { session: who, inode: inode(file), want, group: LeaseGroup(0), ticket };
                self.leases.acquire(ask, now, &mut actions);
                let granted = |action: &LeaseAction| matches!(action, LeaseAction::Grant { ticket: t, .. } if *t == ticket);
                if !actions.iter().any(granted) {
                    seen.visit("lease waited for");
                }
            }
            ManagerRequest::Return { file, number } => {
                seen.visit("lease returned");
                self.leases.returned(Return { session: who, inode: inode(file), number }, now, &mut actions);
                if !self.leases.holds_write(who, inode(file)) {
                    self.writers.remove(&(who, file));
                }
            }
            ManagerRequest::Lock { file, ask, space, owner_slot, mode, bytes, wait_limit } => {
                self.lock_requests.push(LockArguments { client, file, space, mode, bytes: bytes.clone() });
                let ticket =
                    self.ticket(ManagerWait::Lock { client, ask, wished: self.lock_requests.len() - 1 });
                let owner = TokenOwner { session: who, slot: owner_slot, lock_group: 0 };
                let (inode, shape) = (inode(file), LockedBytes::Bytes(bytes));
                let wish = LockRequest { owner, inode, space, mode, shape, wait_limit, ticket };
                self.locks.lock(wish, now, &mut lock_actions);
            }
            ManagerRequest::Unlock { file, number, keep } => {
                seen.visit(if keep.is_some() { "lock kept in part" } else { "lock returned" });
                self.locks.returned((who, inode(file)), number, keep, &mut lock_actions);
            }
            ManagerRequest::Busy { file, number, keep } => {
                seen.visit("lock in use");
                self.locks.busy((who, inode(file)), number, keep, &mut lock_actions);
            }
            ManagerRequest::Cancel { ask } => {
                let mine = |wait: &ManagerWait| matches!(wait, ManagerWait::Lock { client: c, ask: a, .. } if (*c, *a) == (client, ask));
                let ticket = self.waits.iter().find(|(_, wait)| mine(wait)).map(|(ticket, _)| *ticket);
                if let Some(ticket) = ticket {
                    self.locks.cancel(ticket, &mut lock_actions);
                }
            }
            ManagerRequest::Look { file } => {
                let ticket = self.ticket(ManagerWait::Look { client, file });
                let ask =
                    BarrierRequest { inode: inode(file), ticket, kind: Barrier::Look, requester: Some(who) };
                self.leases.barrier(ask, now, &mut actions);
            }
            ManagerRequest::Stop { file } => {
                let ticket = self.ticket(ManagerWait::Stop { client, file });
                let ask =
                    BarrierRequest { inode: inode(file), ticket, kind: Barrier::Stop, requester: Some(who) };
                self.leases.barrier(ask, now, &mut actions);
            }
            ManagerRequest::StopEnd { file } => {
                if let Some((ticket, _)) = self.stops.remove(&file) {
                    seen.visit("stop ended");
                    self.leases.barrier_end(inode(file), ticket, now, &mut actions);
                }
            }
            ManagerRequest::Close { file } => self.locks.left(inode(file), who, &mut lock_actions),
        }
        self.carry_out(actions, seen)?;
        self.carry_out_locks(lock_actions, seen)
    }

    /// A timeout expires.
    pub(crate) fn expire(&mut self, now: Nanos, seen: &mut Coverage) -> Result<(), String> {
        let mut actions = Vec::new();
        self.locks.expire(now, &mut actions);
        self.carry_out_locks(actions, seen)
    }

    /// A client's connection has ended.
    pub(crate) fn client_died(
        &mut self,
        client: usize,
        now: Nanos,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let who = session(client);
        if self.ghosts.remove(&who) {
            seen.visit("ghost buried");
        }
        let (mut actions, mut lock_actions) = (Vec::new(), Vec::new());
        self.waits.retain(|_, wait| match wait {
            ManagerWait::Acquire { client: c } | ManagerWait::Lock { client: c, .. } => *c != client,
            ManagerWait::Look { .. } | ManagerWait::Stop { .. } => true,
        });
        let barriers: Vec<(WaitTicket, ManagerWait)> =
            self.waits.iter().map(|(ticket, wait)| (*ticket, *wait)).collect();
        for (ticket, wait) in barriers {
            if matches!(wait, ManagerWait::Look { client: c, .. } | ManagerWait::Stop { client: c, .. } if c == client)
            {
                self.waits.remove(&ticket);
                self.leases.cancel(ticket, now, &mut actions);
            }
        }
        // The manager executes a stop to its end, also without a waiting client.
        let over: Vec<(usize, WaitTicket)> = self
            .stops
            .iter()
            .filter(|(_, (_, asker))| *asker == client)
            .map(|(file, (ticket, _))| (*file, *ticket))
            .collect();
        for (file, ticket) in over {
            self.stops.remove(&file);
            self.leases.barrier_end(inode(file), ticket, now, &mut actions);
        }
        self.leases.session_died(who, now, &mut actions);
        let wrote = self.locks.held().filter(|line| {
            let access = line.space == (LockSpace::Access {}) && line.mode == (LockMode::Exclusive {});
            access && line.owner.session == who && self.leases.holders(line.inode).contains(&who)
        });
        let wrote: Vec<_> = wrote.map(|line| (file_of(line.inode), client, line.bytes)).collect();
        self.left.extend(wrote);
        self.locks.session_died(who, &mut lock_actions);
        let files: Vec<InodeId> = self.locks.files_of(who).collect();
        for file in files {
            if !self.leases.holders(file).contains(&who) {
                seen.visit("lock of the dead freed");
                self.locks.recovered(file, who, &mut lock_actions);
            }
        }
        self.carry_out(actions, seen)?;
        self.carry_out_locks(lock_actions, seen)
    }

    /// What a dead or reclaimed client left of a file is in the stores.
    pub(crate) fn recovered(
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
        self.leases.recovered(inode(file), who, now, &mut actions);
        self.locks.recovered(inode(file), who, &mut lock_actions);
        self.carry_out(actions, seen)?;
        self.carry_out_locks(lock_actions, seen)
    }

    /// A server with undrained records of a dead client is dead: clients that wait for the file are refused instead of waiting for its
    /// return.
    pub(crate) fn unrecovered(&mut self, file: usize, now: Nanos, seen: &mut Coverage) -> Result<(), String> {
        let waiting: Vec<WaitTicket> = self
            .leases
            .waiting(now)
            .filter(|line| line.inode == inode(file))
            .map(|line| line.ticket)
            .collect();
        for ticket in waiting {
            let client = match self.waits.remove(&ticket) {
                Some(
                    ManagerWait::Acquire { client }
                    | ManagerWait::Look { client, .. }
                    | ManagerWait::Stop { client, .. },
                ) => client,
                Some(ManagerWait::Lock { .. }) | None => continue,
            };
            seen.visit("waiter told that a file cannot be settled");
            self.effects.push_back(SimEffect::Reply(client, ManagerReply::Unrecovered { file }));
            let mut actions = Vec::new();
            self.leases.cancel(ticket, now, &mut actions);
            self.carry_out(actions, seen)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, actions: Vec<LeaseAction>, seen: &mut Coverage) -> Result<(), String> {
        for action in actions {
            match action {
                LeaseAction::Grant { ticket, session, lease } => {
                    self.granted(ticket, session, lease, seen)?
                }
                LeaseAction::Recall { session, inode, number } => {
                    seen.visit("lease recalled");
                    if !self.recalled.insert((session, number)) {
                        return Err(format!("lease {number} of {session} is recalled twice"));
                    }
                    let notice = ManagerNotice::Recall { file: file_of(inode), number };
                    self.effects.push_back(SimEffect::Notice(client_of(session), notice));
                }
                LeaseAction::Recover { inode, session } => {
                    let (file, client) = (file_of(inode), client_of(session));
                    self.effects.push_back(SimEffect::RecoverWriter { file, client });
                }
                LeaseAction::Quiet { ticket } => match self.waits.remove(&ticket) {
                    Some(ManagerWait::Look { client, file }) => {
                        seen.visit("look quiet");
                        self.effects.push_back(SimEffect::Reply(client, ManagerReply::Quiet { file }));
                    }
                    Some(ManagerWait::Stop { client, file }) => {
                        seen.visit("stop quiet");
                        self.stops.insert(file, (ticket, client));
                        self.effects.push_back(SimEffect::Reply(client, ManagerReply::Quiet { file }));
                    }
                    Some(ManagerWait::Acquire { .. } | ManagerWait::Lock { .. }) | None => {
                        return Err(format!("{ticket:?} is quiet, and is no barrier"));
                    }
                },
            }
        }
        Ok(())
    }

    fn granted(
        &mut self,
        ticket: WaitTicket,
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
        // A held lease may be granted again.
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
            Some(ManagerWait::Acquire { client }) if session(client) == who => {
                if lease.phase != (Phase::Read {}) {
                    self.writers.insert((who, file));
                }
                self.effects.push_back(SimEffect::Reply(client, ManagerReply::Granted { lease }));
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
                    let Some(ManagerWait::Lock { client, ask, wished }) = self.waits.remove(&ticket) else {
                        return Err(format!("{ticket:?} gets a lock it did not wait for"));
                    };
                    self.check_lock(ticket, wished)?;
                    self.effects
                        .push_back(SimEffect::Reply(client, ManagerReply::Locked { ask, number, bytes }));
                }
                LockAction::Recall { session, inode, number, wanted } => {
                    seen.visit("lock recalled");
                    let notice = ManagerNotice::RecallLock { file: file_of(inode), number, wanted };
                    self.effects.push_back(SimEffect::Notice(client_of(session), notice));
                }
                LockAction::Refuse { ticket, why } => {
                    let why = match why {
                        Refusal::InUse(_) => "lock refused in use",
                        Refusal::TimedOut(_) => "lock refused in time",
                        Refusal::Deadlock(_) => "lock refused in a circle",
                        Refusal::Cancelled => "lock cancelled",
                        Refusal::TooMany => "lock refused for their number",
                    };
                    seen.visit(why);
                    if let Some(ManagerWait::Lock { client, ask, .. }) = self.waits.remove(&ticket) {
                        self.effects.push_back(SimEffect::Reply(client, ManagerReply::Refused { ask, why }));
                    }
                }
            }
        }
        Ok(())
    }
}

impl SimManager {
    /// Whether a request waits for a client that held a lock there before it was just granted another.
    fn blocks_older(&self, client: usize, older: &LockArguments) -> bool {
        let mine = self.locks.held().filter(|line| {
            let alone = line.mode == (LockMode::Exclusive {}) || older.mode == (LockMode::Exclusive {});
            let same = (file_of(line.inode), line.space) == (older.file, older.space);
            same && alone
                && client_of(line.owner.session) == client
                && ranges_overlap(&line.bytes, &older.bytes)
        });
        1 < mine.count()
    }

    /// A lock is granted: no earlier request was overtaken, and no record of a dead client is in flight there.
    fn check_lock(&self, ticket: WaitTicket, wished: usize) -> Result<(), String> {
        let mine = &self.lock_requests[wished];
        for (older, wait) in self.waits.range(..ticket) {
            if let ManagerWait::Lock { wished, .. } = wait
                && self.lock_requests[*wished].excludes(mine)
                && !self.blocks_older(mine.client, &self.lock_requests[*wished])
            {
                return Err(format!("{ticket:?} is granted a lock past {older:?}"));
            }
        }
        let left = self.left.iter().find(|(file, _, bytes)| {
            mine.space == (LockSpace::Access {}) && *file == mine.file && ranges_overlap(bytes, &mine.bytes)
        });
        match left {
            Some((file, dead, _)) => {
                Err(format!("a lock of file {file} is granted before the dead client {dead} is recovered"))
            }
            None => Ok(()),
        }
    }
}

fn lease_inode(file: usize) -> InodeId {
    inode(file)
}
