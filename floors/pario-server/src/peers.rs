//! The manager's calls to its peers (and to itself): cut, remove, drain, measure.
//!
//! Never: runs on the service thread. Always: a peer that is gone fails its call within seconds and says which it was; once it
//! failed, further calls fail at once for a while.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Fault, Nanos, ServerIndex};
use pario_net::connection::Connection;
use pario_net::greeting::{Hello, Secret};
use pario_net::message::{Reply, Request};
use pario_net::stream::Stream;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{Point, reach};

use crate::pool::Pool;

/// How long a failed peer is not asked again.
const REST: Duration = Duration::from_millis(500);
/// Calls under way at a time.
const WORKERS: usize = 8;

/// How a server's peers are reached: by address, or inside one process.
pub trait Connect: Send + Sync {
    /// A fresh stream to a server of the partition.
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault>;
}

/// Requests in rounds: those of one round go out together, the next round starts when all are answered.
pub(crate) type Rounds = Vec<Vec<(ServerIndex, Request)>>;
/// The answers of the last round, in order, or the first fault.
pub(crate) type RoundsResult = Result<Vec<Reply>, Fault>;

/// See the module.
#[derive(Clone)]
pub(crate) struct Peers {
    shared: Arc<Shared>,
    pool: Pool,
}

struct Shared {
    connect: Arc<dyn Connect>,
    hello: Hello,
    secret: Secret,
    links: Vec<Slot>,
    clock: MonotonicClock,
}

#[derive(Default)]
struct Slot {
    link: Mutex<Link>,
    tried: Condvar,
}

#[derive(Default)]
struct Link {
    connection: Option<Arc<Connection>>,
    failed: Option<(Nanos, Fault)>,
    /// A thread is connecting.
    trying: bool,
}

impl Peers {
    pub(crate) fn new(
        connect: Arc<dyn Connect>,
        hello: Hello,
        secret: Secret,
        servers: usize,
    ) -> std::io::Result<Peers> {
        let links = (0..servers).map(|_| Slot::default()).collect();
        let shared = Arc::new(Shared { connect, hello, secret, links, clock: MonotonicClock });
        Ok(Peers { shared, pool: Pool::start("pario-peers", WORKERS)? })
    }

    /// Carries out the rounds on a worker and hands the outcome to `done`.
    pub(crate) fn submit(&self, rounds: Rounds, done: impl FnOnce(RoundsResult) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.pool.run(move || done(shared.carry_out(&rounds)));
    }
}

impl Shared {
    fn carry_out(&self, rounds: &Rounds) -> RoundsResult {
        let mut replies = Vec::new();
        for (number, round) in rounds.iter().enumerate() {
            // Only a settling has a second round.
            if number == 1 {
                reach(Point::SettleDrained);
            }
            replies = self.round(round)?;
        }
        Ok(replies)
    }

    fn round(&self, round: &[(ServerIndex, Request)]) -> RoundsResult {
        let mut started = Vec::with_capacity(round.len());
        let mut first_fault = None;
        for (server, request) in round {
            match self.start(*server, request) {
                Ok(pair) => started.push(pair),
                Err(fault) => {
                    first_fault = Some(fault);
                    break;
                }
            }
        }
        let mut replies = Vec::with_capacity(round.len());
        for (connection, ticket) in started {
            match connection.wait(ticket, None) {
                Ok(answer) => replies.push(answer.reply),
                Err(fault) => first_fault = first_fault.or(Some(fault)),
            }
        }
        first_fault.map_or(Ok(replies), Err)
    }

    fn start(
        &self,
        server: ServerIndex,
        request: &Request,
    ) -> Result<(Arc<Connection>, pario_net::connection::Ticket), Fault> {
        let connection = self.connection(server)?;
        let ticket = connection.start(request, &[], &[])?;
        Ok((connection, ticket))
    }

    /// The connection to a peer. While one thread tries a peer that failed before, the others fail at once: a peer that is stopped
    /// must not take all of them.
    fn connection(&self, server: ServerIndex) -> Result<Arc<Connection>, Fault> {
        let slot = &self.links[server.at()];
        let mut link = slot.link.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = link.connection.as_ref().filter(|connection| !connection.is_dead()) {
                return Ok(Arc::clone(connection));
            }
            let now = self.clock.now();
            if let Some((at, fault)) = &link.failed
                && (link.trying || now.since(*at) < REST)
            {
                return Err(fault.clone());
            }
            if !link.trying {
                break;
            }
            link = slot.tried.wait(link).unwrap_or_else(PoisonError::into_inner);
        }
        link.trying = true;
        drop(link);
        let opened = self.open(server);
        let mut link = slot.link.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = opened.as_ref().err().map(|fault| (self.clock.now(), fault.clone()));
        *link = Link { connection: opened.as_ref().ok().cloned(), failed, trying: false };
        slot.tried.notify_all();
        opened
    }

    fn open(&self, server: ServerIndex) -> Result<Arc<Connection>, Fault> {
        let stream = self.connect.connect(server)?;
        let hello = Hello { server, nonce: pario_net::greeting::nonce(), ..self.hello.clone() };
        Connection::greet(stream, "peer".into(), &hello, &self.secret).map(Arc::new)
    }
}
