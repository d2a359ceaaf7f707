//! Home: what the manager does with a request: names, leases, lengths, and the objects that follow from them.
//!
//! Runs on the service thread. It decides and leaves [`Effect`]s; the service carries them out.
//!
//! Never: waits; touches an object itself (it asks the servers, itself among them). Always: a file's users are known; an
//! object is removed only when its name is gone and its last user too; nobody gets a file whose truncation is not finished or
//! whose dead writer is not settled.

mod length;
mod locks;
mod looks;
mod pointers;
mod settle;
mod status;
mod users;

use std::collections::HashMap;

use pario_core::{AttrChange, Clock, Code, Fault, FileAttr, Incarnation, InodeId, Nanos, SessionId};
use pario_net::greeting::Hello;
use pario_net::message::{At, NameReply, NameRequest, Notice, Phase, Reply, Request, Want};
use pario_sys::clock::{MonotonicClock, wall_ns};
use pario_sys::kill_point::{Point, reach};

use self::length::Cut;
use self::looks::Look;
use self::settle::Ghost;
use self::users::Users;
use crate::coherence::{Action, Ask, Leases, Locks, Party, Return, Ticket};
use crate::manager::{Names, Origin, Pending, Truncation, Writer};
use crate::peers::{Peers, Rounds, RoundsResult};
use crate::service::{LinkId, NamesSpec, ServerSpec};

/// After a restart, files without a name are kept so long for users that have not come back yet.
const RETURN_MS: u64 = 8_000;

/// Who asked, and where the answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Caller {
    pub(crate) link: LinkId,
    pub(crate) request: u64,
    pub(crate) session: SessionId,
}

impl Caller {
    fn origin(self) -> Origin {
        Origin { session: self.session, request: self.request }
    }
}

/// What the service is to do.
pub(crate) enum Effect {
    Reply {
        caller: Caller,
        reply: Reply,
    },
    Waiting {
        caller: Caller,
        on: String,
    },
    Recall {
        session: SessionId,
        notice: Notice,
    },
    /// What a session may want to know; one that does not listen misses it.
    Tell {
        session: SessionId,
        notice: Notice,
    },
    Peers {
        token: u64,
        rounds: Rounds,
    },
    Sync {
        caller: Caller,
    },
    /// An answer with a descriptor, for callers that share memory with us.
    Lend {
        caller: Caller,
        reply: Reply,
        descriptor: std::os::fd::OwnedFd,
    },
}

/// What goes on when a ticket of the lease machine is answered.
enum Wait {
    Acquire { caller: Caller, inode: InodeId },
    Look(u64),
    Cut(Cut),
}

/// What goes on when the peers have answered.
enum Job {
    Cut(Cut, Truncation),
    Remove(FileAttr),
    Settle { inode: InodeId, session: SessionId },
}

/// See the module.
pub(crate) struct Home {
    names: Names,
    leases: Leases,
    locks: Locks,
    /// Who waits for locks, by the machine's tickets, and the tickets by the callers' own numbers.
    lock_callers: HashMap<Ticket, locks::LockCaller>,
    lock_asks: HashMap<(SessionId, u64), Ticket>,
    pointers: pointers::Pointers,
    users: Users,
    peers: Option<Peers>,
    effects: Vec<Effect>,
    waits: HashMap<Ticket, Wait>,
    looks: HashMap<u64, Look>,
    jobs: HashMap<u64, Job>,
    /// Truncations that not all servers have carried out.
    unfinished: HashMap<InodeId, Truncation>,
    /// Dead writers whose files could not be settled yet, and why.
    unsettled: HashMap<(InodeId, SessionId), (Nanos, Fault)>,
    /// Files whose name and users are gone but whose objects could not be removed yet.
    unremoved: HashMap<InodeId, (Nanos, FileAttr)>,
    /// Who is answered when the objects of a file are gone.
    awaiting: HashMap<InodeId, length::Awaiting>,
    /// Until then nobody waits for that: a server was too slow.
    awaits_from: Nanos,
    /// Writers known from before a restart that have not shown up.
    ghosts: HashMap<SessionId, Ghost>,
    /// Who is connected.
    clients: HashMap<SessionId, Hello>,
    next: u64,
    noticed: Nanos,
    name: String,
}

impl Home {
    pub(crate) fn open(
        names: &NamesSpec,
        spec: &ServerSpec,
        incarnation: Incarnation,
    ) -> Result<Home, Fault> {
        let names = Names::open(std::sync::Arc::clone(&names.disk), &names.dir, names.defaults)?;
        let mut home = Home {
            // The low bits count, so that numbers of one life never meet those of another.
            leases: Leases::new(incarnation.0 & 0x7fff_ffff_0000_0000),
            locks: Locks::new(incarnation.0 & 0x7fff_ffff_0000_0000),
            lock_callers: HashMap::new(),
            lock_asks: HashMap::new(),
            pointers: pointers::Pointers::default(),
            names,
            users: Users::default(),
            peers: None,
            effects: Vec::new(),
            waits: HashMap::new(),
            looks: HashMap::new(),
            jobs: HashMap::new(),
            unfinished: HashMap::new(),
            unsettled: HashMap::new(),
            unremoved: HashMap::new(),
            awaiting: HashMap::new(),
            awaits_from: Nanos(0),
            ghosts: HashMap::new(),
            clients: HashMap::new(),
            next: 1,
            noticed: Nanos(0),
            name: spec.name.clone(),
        };
        home.own_root()?;
        home.restore()?;
        Ok(home)
    }

    /// A root that was just made belongs to whoever runs the partition.
    fn own_root(&mut self) -> Result<(), Fault> {
        if self.names.attr(InodeId::ROOT)?.changed_ns != 0 {
            return Ok(());
        }
        let now = wall_ns();
        let change = AttrChange {
            uid: Some(rustix::process::geteuid().as_raw()),
            gid: Some(rustix::process::getegid().as_raw()),
            accessed_ns: Some(now),
            modified_ns: Some(now),
            mode: None,
        };
        let request = NameRequest::SetAttr { at: At::inode(InodeId::ROOT), follow: false, change };
        self.names.request(Origin { session: SessionId(0), request: 0 }, &request, now).map(drop)
    }

    /// Takes up what a former life left: ghosts, truncations and removals under way.
    fn restore(&mut self) -> Result<(), Fault> {
        for (inode, writer) in self.names.writers()? {
            self.leases.restore(writer.session, inode);
            self.ghosts.insert(writer.session, Ghost::new(writer));
        }
        for pending in self.names.pending()? {
            match pending {
                Pending::Truncate(truncation) => {
                    self.unfinished.insert(truncation.inode, truncation);
                }
                Pending::Remove(attr) => {
                    // Whoever still has it open gets time to say so.
                    let from = MonotonicClock.now().plus_ms(RETURN_MS);
                    self.unremoved.insert(attr.inode, (from, attr));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn set_peers(&mut self, peers: Peers) {
        self.peers = Some(peers);
    }

    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.peers.as_ref()
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn sync(&self, done: Box<dyn FnOnce(Result<(), Fault>) + Send>) {
        self.names.sync(done);
    }

    pub(crate) fn shut_down(self) -> Result<(), Fault> {
        self.names.shut_down()
    }

    /// A client's request.
    pub(crate) fn handle(&mut self, caller: Caller, request: Request, now: Nanos) {
        self.reclaim(caller.session, now);
        if let Err(fault) = self.try_handle(caller, request, now) {
            self.reply(caller, Reply::Failed { fault });
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn try_handle(&mut self, caller: Caller, request: Request, now: Nanos) -> Result<(), Fault> {
        match request {
            Request::Name { request } => self.name_request(caller, request, now),
            Request::Acquire { inode, want, party } => self.acquire(caller, (inode, want, Party(party)), now),
            Request::AcquireFree { inode, want, party } => {
                self.acquire_free(caller, (inode, want, Party(party)), now)
            }
            Request::Return { inode, number, end } => {
                self.grow(inode, end)?;
                reach(Point::ReturnNoted);
                self.give_back(caller.session, inode, number, now)?;
                self.reply(caller, Reply::Done {});
                Ok(())
            }
            Request::Use { inode } => {
                self.names.attr(inode)?;
                self.users.enter(caller.session, inode);
                self.reply(caller, Reply::Done {});
                Ok(())
            }
            Request::Extend { inode, end } => {
                self.grow(inode, Some(end))?;
                self.reply(caller, Reply::Done {});
                Ok(())
            }
            Request::Close { inode, end } => {
                let grown = self.grow(inode, end);
                self.close(caller.session, inode);
                self.reply(caller, Reply::Done {});
                grown
            }
            Request::Unlock { inode, number, keep } => {
                self.unlock(caller, (inode, number), keep.map(|(start, end)| start..end));
                Ok(())
            }
            Request::LockBusy { inode, number, keep } => {
                self.lock_busy(caller, (inode, number), keep.map(|(start, end)| start..end));
                Ok(())
            }
            Request::CancelLock { ask } => {
                self.cancel_lock(caller, ask);
                Ok(())
            }
            Request::SharePointer { pointer } => self.share_pointer(caller, pointer),
            Request::MovePointer { pointer, how } => self.move_pointer(caller, pointer, how),
            Request::SetLength { inode, bytes } => self.set_length(caller, inode, bytes, now),
            Request::SyncNames { inode, end } => {
                if let Some(inode) = inode {
                    self.grow(inode, end)?;
                }
                self.effects.push(Effect::Sync { caller });
                Ok(())
            }
            Request::ListInodes { after, limit } => {
                let (attrs, more) = self.names.inodes(after, limit.clamp(1, 4096) as usize)?;
                self.reply(caller, Reply::Inodes { attrs, more });
                Ok(())
            }
            other => Err(Fault::new(Code::Protocol, format!("{other:?} is not for the manager"))),
        }
    }

    fn name_request(&mut self, caller: Caller, request: NameRequest, now: Nanos) -> Result<(), Fault> {
        if matches!(request, NameRequest::Stat { .. } | NameRequest::List { .. }) {
            return self.look(caller, request, now);
        }
        let answer = self.names.request(caller.origin(), &request, wall_ns())?;
        if let Some(unlinked) = answer.unlinked {
            self.reply_unlinked(caller, (unlinked.attr, answer.reply), now);
            return Ok(());
        }
        if let (NameRequest::Open { how, .. }, NameReply::Attr { attr }) = (&request, &answer.reply) {
            self.users.enter(caller.session, attr.inode);
            if how.truncate && (answer.needs_truncate.is_some() || self.unfinished.contains_key(&attr.inode))
            {
                return self.cut(Cut::opening(caller, attr.inode), now);
            }
        }
        self.reply(caller, Reply::Name { reply: answer.reply });
        Ok(())
    }

    fn acquire(
        &mut self,
        caller: Caller,
        (inode, want, party): (InodeId, Want, Party),
        now: Nanos,
    ) -> Result<(), Fault> {
        self.names.attr(inode)?;
        self.users.enter(caller.session, inode);
        if self.unfinished.contains_key(&inode) {
            return self.cut(Cut::finishing(caller, inode, (want, party)), now);
        }
        self.retry_settling(inode);
        let ticket = self.ticket(Wait::Acquire { caller, inode });
        let mut actions = Vec::new();
        self.leases.acquire(Ask { session: caller.session, inode, want, party, ticket }, now, &mut actions);
        self.carry_out(actions, now);
        Ok(())
    }

    fn acquire_free(
        &mut self,
        caller: Caller,
        (inode, want, party): (InodeId, Want, Party),
        now: Nanos,
    ) -> Result<(), Fault> {
        self.names.attr(inode)?;
        let is_whole = !self.unfinished.contains_key(&inode);
        if is_whole && self.leases.is_free_for((caller.session, party), inode, want) {
            return self.acquire(caller, (inode, want, party), now);
        }
        self.reply(caller, Reply::NotNow {});
        Ok(())
    }

    fn give_back(
        &mut self,
        session: SessionId,
        inode: InodeId,
        number: u64,
        now: Nanos,
    ) -> Result<(), Fault> {
        let mut actions = Vec::new();
        self.leases.returned(Return { session, inode, number }, now, &mut actions);
        if !self.leases.holds_write(session, inode) {
            self.names.forget_writer(inode, session)?;
        }
        self.carry_out(actions, now);
        Ok(())
    }

    fn close(&mut self, session: SessionId, inode: InodeId) {
        self.users.leave(session, inode);
        self.leave_locks(session, inode);
        self.pointers.leave(session, inode, self.users.uses(inode));
        self.remove_if_unused(inode);
    }

    fn grow(&mut self, inode: InodeId, end: Option<u64>) -> Result<(), Fault> {
        match end {
            Some(end) => self.names.grow(inode, end, wall_ns()).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Does what the lease machine decided.
    fn carry_out(&mut self, actions: Vec<Action>, now: Nanos) {
        for action in actions {
            match action {
                Action::Grant { ticket, session, lease } => self.granted(ticket, session, lease),
                Action::Recall { session, inode, number } => {
                    self.effects.push(Effect::Recall { session, notice: Notice::Recall { inode, number } });
                }
                Action::Settle { inode, session } => self.settle(inode, session),
                Action::Quiet { ticket } => self.quiet(ticket, now),
            }
        }
    }

    fn granted(&mut self, ticket: Ticket, session: SessionId, lease: pario_net::message::Lease) {
        let Some(Wait::Acquire { caller, inode }) = self.waits.remove(&ticket) else { return };
        let noted = if lease.phase == (Phase::Read {}) { Ok(()) } else { self.note_writer(inode, session) };
        reach(Point::GrantNoted);
        let reply = match noted.and_then(|()| self.names.attr(inode)) {
            Ok(attr) => Reply::Granted { lease, attr },
            Err(fault) => Reply::Failed { fault },
        };
        self.reply(caller, reply);
    }

    fn note_writer(&mut self, inode: InodeId, session: SessionId) -> Result<(), Fault> {
        let Some(hello) = self.clients.get(&session) else { return Ok(()) };
        let writer =
            Writer { session, host: hello.host.clone(), pid: hello.pid, start_ticks: hello.start_ticks };
        self.names.note_writer(inode, &writer)
    }

    fn quiet(&mut self, ticket: Ticket, now: Nanos) {
        match self.waits.remove(&ticket) {
            Some(Wait::Look(number)) => self.looked(number),
            Some(Wait::Cut(cut)) => self.cut_now(cut, ticket, now),
            Some(Wait::Acquire { .. }) | None => {}
        }
    }

    /// The peers have answered.
    pub(crate) fn peers_done(&mut self, token: u64, result: RoundsResult, now: Nanos) {
        match self.jobs.remove(&token) {
            Some(Job::Cut(cut, truncation)) => self.cut_done(&cut, truncation, result, now),
            Some(Job::Remove(attr)) => self.removed(attr, result, now),
            Some(Job::Settle { inode, session }) => self.settle_done(inode, session, result, now),
            None => {}
        }
    }

    fn ask_peers(&mut self, job: Job, rounds: Rounds) {
        let token = self.number();
        self.jobs.insert(token, job);
        self.effects.push(Effect::Peers { token, rounds });
    }

    fn reply(&mut self, caller: Caller, reply: Reply) {
        self.effects.push(Effect::Reply { caller, reply });
    }

    fn ticket(&mut self, wait: Wait) -> Ticket {
        let ticket = Ticket(self.number());
        self.waits.insert(ticket, wait);
        ticket
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// What this host calls itself.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
