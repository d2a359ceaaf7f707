//! The homes of a group as one member sees them: their places, its connections to them, its own store.
//!
//! Never: keeps a broken connection. Always: a fault names rank, host and directory of its home; a forked child uses nothing of its parent.

use std::sync::{Arc, Mutex};

use pario_core::{Code, Fault, ObjectId, PartitionId, ServerIndex, SessionId};
use pario_net::connection::Connection;
use pario_net::frame::PROTOCOL;
use pario_net::greeting::{ConnectionPurpose, Hello, nonce};
use pario_net::message::{Reply, Request};
use pario_server::store::Store;
use pario_sys::mutex::lock;
use pario_sys::process::{fork_generation, host_name, start_ticks};

use super::home_call::{HomeAnswer, HomeCall, decode, encode};
use super::home_store::HomeStore;
use super::workers::Workers;
use crate::client::{Application, Endpoint};
use crate::fleet::{FleetServer, FleetServers};

/// Requests under way to all homes at most.
const UNDER_WAY_MAX: usize = 4096;

/// A home.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) rank: usize,
    pub(super) host: String,
    pub(super) dir: String,
    /// It runs on this node.
    pub(super) is_near: bool,
}

impl Home {
    /// Place for messages.
    fn place(&self) -> String {
        match self.dir.is_empty() {
            true => format!("rank {}, {}", self.rank, self.host),
            false => format!("rank {}, {}:{}", self.rank, self.host, self.dir),
        }
    }
}

/// See the module.
pub(super) struct Homes {
    pub(super) rank: usize,
    fork: u64,
    list: Vec<Home>,
    links: Vec<Mutex<Option<Arc<Connection>>>>,
    id: PartitionId,
    endpoint: Endpoint,
    session: SessionId,
    application: Application,
    own: Option<FleetServer<HomeStore>>,
    /// The store of the own server, with its limits.
    own_store: Option<Arc<dyn Store>>,
    pub(super) is_limited: bool,
    pub(super) workers: Workers,
}

impl std::fmt::Debug for Homes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Homes").field("rank", &self.rank).field("list", &self.list).finish_non_exhaustive()
    }
}

impl Homes {
    pub(super) fn new(
        rank: usize,
        list: Vec<Home>,
        servers: FleetServers<HomeStore>,
        application: Application,
        (own_store, is_limited): (Option<Arc<dyn Store>>, bool),
    ) -> Homes {
        Homes {
            rank,
            fork: fork_generation(),
            links: list.iter().map(|_| Mutex::default()).collect(),
            list,
            id: servers.id,
            endpoint: servers.endpoint,
            session: SessionId(pario_net::greeting::random_number()),
            application,
            own: servers.own,
            own_store,
            is_limited,
            workers: Workers::default(),
        }
    }

    /// Ranks of the homes, in order.
    pub(super) fn ranks(&self) -> Vec<usize> {
        self.list.iter().map(|home| home.rank).collect()
    }

    /// The number of a rank among the homes.
    pub(super) fn number_of(&self, rank: usize) -> Result<usize, Fault> {
        self.list.iter().position(|home| home.rank == rank).ok_or_else(|| {
            Fault::new(Code::Invalid, format!("rank {rank} is not a home: homes are {:?}", self.ranks()))
        })
    }

    pub(super) fn home(&self, number: usize) -> &Home {
        &self.list[number]
    }

    /// Refuses the use in a forked child.
    pub(super) fn check_process(&self) -> Result<(), Fault> {
        if self.fork == fork_generation() {
            return Ok(());
        }
        Err(Fault::new(Code::Closed, "distant files belong to the process that opened them, not to its fork"))
    }

    /// The store of this member.
    pub(super) fn own(&self) -> Option<&Arc<HomeStore>> {
        self.own.as_ref().map(|own| &own.store)
    }

    pub(super) fn own_store(&self) -> Option<&Arc<dyn Store>> {
        self.own_store.as_ref()
    }

    /// Rank and host of a home, and a directory of its own or this one.
    pub(super) fn place(&self, number: usize, dir: Option<&str>) -> String {
        let home = &self.list[number];
        match dir {
            Some(dir) => Home { dir: dir.to_owned(), ..home.clone() }.place(),
            None => home.place(),
        }
    }

    /// The fault with its place.
    pub(super) fn at(&self, number: usize, fault: Fault) -> Fault {
        fault.at(self.list[number].place())
    }

    /// The connection to a home.
    pub(super) fn link(&self, number: usize) -> Result<Arc<Connection>, Fault> {
        self.check_process()?;
        let mut link = lock(&self.links[number]);
        if let Some(connection) = link.as_ref().filter(|connection| !connection.is_dead()) {
            return Ok(Arc::clone(connection));
        }
        let made = self.connect(number).map_err(|fault| self.at(number, fault))?;
        Ok(Arc::clone(link.insert(Arc::new(made))))
    }

    fn connect(&self, number: usize) -> Result<Connection, Fault> {
        let server = ServerIndex(u16::try_from(number).unwrap_or(u16::MAX));
        let stream = self.endpoint.connect.connect(server)?;
        let pid = std::process::id();
        let hello = Hello {
            protocol: PROTOCOL,
            partition: self.id,
            server,
            session: self.session,
            purpose: ConnectionPurpose::Requests {},
            host: host_name(),
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            program: self.application.name.clone(),
            application: self.application.name.clone(),
            weight: self.application.weight,
            relay: false,
            protect: self.endpoint.protect.wants(&stream),
            nonce: nonce(),
        };
        Connection::greet(stream, "distant files".into(), &hello, &self.endpoint.secret)
    }

    /// Waits while too many requests are under way.
    pub(super) fn wait_for_room(&self, link: &Connection) -> Result<(), Fault> {
        loop {
            let open = self.links.iter().filter_map(|link| lock(link).clone());
            let total: usize = open.map(|link| link.unanswered()).sum();
            if total < UNDER_WAY_MAX {
                return Ok(());
            }
            // Its own connection may have none of them: another one is then read.
            let own = link.unanswered();
            if 0 < own {
                link.wait_for_room(own)?;
                continue;
            }
            let fullest = self.links.iter().filter_map(|link| lock(link).clone());
            match fullest.max_by_key(|link| link.unanswered()) {
                // A fault of another home is told to its own callers.
                Some(link) if 0 < link.unanswered() => _ = link.wait_for_room(link.unanswered()),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// An operation of a home: called in this process, else by message.
    pub(super) fn call(&self, number: usize, call: HomeCall) -> Result<HomeAnswer, Fault> {
        self.check_process()?;
        if self.list[number].rank == self.rank
            && let Some(own) = self.own()
        {
            return own.serve(call).map_err(|fault| self.at(number, fault));
        }
        let link = self.link(number)?;
        let bytes = encode(&call)?;
        let ticket = link.start(&Request::StoreCall {}, &[&bytes], &[]);
        let reply = ticket.and_then(|ticket| link.wait(ticket, None));
        let reply = reply.map_err(|fault| self.at(number, fault))?;
        decode(&reply.data).map_err(|fault| self.at(number, fault))
    }

    /// A request without data; waits for the answer.
    pub(super) fn ask(&self, number: usize, request: &Request) -> Result<Reply, Fault> {
        let link = self.link(number)?;
        link.call(request).map(|received| received.reply).map_err(|fault| self.at(number, fault))
    }

    /// Tells a home that a file has one user less, without waiting; nothing if there is no connection.
    pub(super) fn release(&self, number: usize, object: ObjectId) {
        if self.check_process().is_err() {
            return;
        }
        let call = HomeCall::Release { number: object.inode.0 };
        if self.list[number].rank == self.rank
            && let Some(own) = self.own()
        {
            let _ = own.serve(call);
            return;
        }
        let link = lock(&self.links[number]).clone().filter(|link| !link.is_dead());
        let Some((link, bytes)) = link.zip(encode(&call).ok()) else { return };
        if let Ok(ticket) = link.start(&Request::StoreCall {}, &[&bytes], &[]) {
            link.forget(ticket);
        }
    }
}
