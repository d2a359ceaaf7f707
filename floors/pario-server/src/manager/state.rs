//! The manager's state, and how it is restored from the names.

use std::collections::{HashMap, VecDeque};

use pario_core::{AttrChange, Clock, Fault, FileAttr, Incarnation, InodeId, Nanos, SessionId};
use pario_net::greeting::Hello;
use pario_net::message::{At, NameRequest, Reply};
use pario_sys::clock::{MonotonicClock, wall_ns};

use super::length::TruncateJob;
use super::looks::QuietWait;
use super::recover_writer::Ghost;
use super::users::Users;
use super::{ManagerEffect, RequestCaller, locks, pointers};
use crate::coherence::{Leases, Locks, WaitTicket};
use crate::names::{LedgerSpec, Names, PendingObjectChange, Recovery, RequestOrigin, Truncation};
use crate::peers::ManagerPeers;
use crate::service::NamesSpec;

/// After a restart, unlinked files are kept this long for users that have not reconnected yet.
const RETURN_MS: u64 = 8_000;

/// Continuation when a ticket of the lease machine is answered.
pub(super) enum LeaseContinuation {
    Acquire { caller: RequestCaller, inode: InodeId },
    Look(u64),
    Truncate(TruncateJob),
}

/// Continuation when the peers have answered.
pub(super) enum PeerContinuation {
    Truncate(TruncateJob, Truncation),
    Remove(FileAttr),
    RecoverWriter { inode: InodeId, session: SessionId },
}

/// See the module.
pub(crate) struct Manager {
    pub(super) names: Names,
    pub(super) leases: Leases,
    pub(super) locks: Locks,
    /// Callers that wait for locks, by the machine's tickets, and the tickets by the callers' own numbers.
    pub(super) lock_callers: HashMap<WaitTicket, locks::LockCaller>,
    pub(super) lock_requests: HashMap<(SessionId, u64), WaitTicket>,
    pub(super) pointers: pointers::SharedPointers,
    pub(super) users: Users,
    pub(super) peers: Option<ManagerPeers>,
    pub(super) effects: Vec<ManagerEffect>,
    pub(super) waits: HashMap<WaitTicket, LeaseContinuation>,
    pub(super) looks: HashMap<u64, QuietWait>,
    pub(super) jobs: HashMap<u64, PeerContinuation>,
    /// Truncations that not all servers have carried out.
    pub(super) unfinished: HashMap<InodeId, Truncation>,
    /// Dead writers with files that could not be recovered yet, and the cause.
    pub(super) unrecovered: HashMap<(InodeId, SessionId), (Nanos, Fault)>,
    /// Files without name and users, with objects that could not be removed yet.
    pub(super) unremoved: HashMap<InodeId, (Nanos, FileAttr)>,
    /// Writers known from before a restart that have not reconnected.
    pub(super) ghosts: HashMap<SessionId, Ghost>,
    /// Connected clients.
    pub(super) clients: HashMap<SessionId, Hello>,
    /// Ended sessions, and their end times; the replies kept for them are dropped after a while.
    pub(super) over: VecDeque<(Nanos, SessionId)>,
    pub(super) next: u64,
    pub(super) noticed: Nanos,
    pub(super) name: String,
}

impl Manager {
    pub(crate) fn open(
        names: &NamesSpec,
        name: &str,
        incarnation: Incarnation,
        how: LedgerSpec,
    ) -> Result<Manager, Fault> {
        let names = Names::open_as(std::sync::Arc::clone(&names.disk), &names.dir, names.defaults, how)?;
        let mut home = Manager {
            // The low bits count, so that numbers of one manager process never equal those of another.
            leases: Leases::new(incarnation.0 & 0x7fff_ffff_0000_0000),
            locks: Locks::new(incarnation.0 & 0x7fff_ffff_0000_0000),
            lock_callers: HashMap::new(),
            lock_requests: HashMap::new(),
            pointers: pointers::SharedPointers::default(),
            names,
            users: Users::default(),
            peers: None,
            effects: Vec::new(),
            waits: HashMap::new(),
            looks: HashMap::new(),
            jobs: HashMap::new(),
            unfinished: HashMap::new(),
            unrecovered: HashMap::new(),
            unremoved: HashMap::new(),
            ghosts: HashMap::new(),
            clients: HashMap::new(),
            over: VecDeque::new(),
            next: 1,
            noticed: Nanos(0),
            name: name.to_owned(),
        };
        home.own_root()?;
        home.restore()?;
        Ok(home)
    }

    /// A newly created root belongs to the user that runs the partition.
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
        self.names.request(RequestOrigin { session: SessionId(0), request: 0 }, &request, now).map(drop)
    }

    /// Restores the state of the former manager process: ghosts, unfinished truncations and removals.
    fn restore(&mut self) -> Result<(), Fault> {
        for (inode, writer) in self.names.writers()? {
            self.leases.restore(writer.session, inode);
            self.ghosts.insert(writer.session, Ghost::new(writer));
        }
        let now = MonotonicClock.now();
        self.over = self.names.sessions().map(|session| (now, session)).collect();
        for pending in self.names.pending()? {
            match pending {
                PendingObjectChange::Truncate(truncation) => {
                    self.unfinished.insert(truncation.inode, truncation);
                }
                PendingObjectChange::Remove(attr) => {
                    // Clients that still have it open get time to reconnect.
                    let from = MonotonicClock.now().plus_ms(RETURN_MS);
                    self.unremoved.insert(attr.inode, (from, attr));
                }
            }
        }
        Ok(())
    }

    /// How the names were recovered when they were opened.
    pub(crate) fn recovery(&self) -> &Recovery {
        self.names.recovery()
    }

    /// A server was restarted: requests that failed because of it are retried with the next request.
    pub(crate) fn peer_restarted(&self, server: pario_core::ServerIndex) {
        if let Some(peers) = &self.peers {
            peers.restarted(server);
        }
    }

    pub(crate) fn set_peers(&mut self, peers: ManagerPeers) {
        self.peers = Some(peers);
    }

    pub(crate) fn peers(&self) -> Option<&ManagerPeers> {
        self.peers.as_ref()
    }

    pub(crate) fn take_effects(&mut self) -> Vec<ManagerEffect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn sync(&self, done: Box<dyn FnOnce(Result<(), Fault>) + Send>) {
        self.names.sync(done);
    }

    pub(crate) fn shut_down(self) -> Result<(), Fault> {
        self.names.shut_down()
    }

    pub(super) fn reply(&mut self, caller: RequestCaller, reply: Reply) {
        self.effects.push(ManagerEffect::Reply { caller, reply });
    }

    pub(super) fn ticket(&mut self, wait: LeaseContinuation) -> WaitTicket {
        let ticket = WaitTicket(self.number());
        self.waits.insert(ticket, wait);
        ticket
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Name of this host.
pub(crate) fn host_name() -> String {
    pario_sys::process::host_name()
}
