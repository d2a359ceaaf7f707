//! The link to one peer: a connection that all its workers share, made when first needed.
//!
//! Never: asks a peer again within `REST` of its failure; lets more than one worker try a peer that failed. Always: says which
//! server it was.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Code, Fault, Nanos, ServerIndex};
use pario_net::connection::Connection;
use pario_net::greeting::{Hello, Secret};
use pario_net::message::{Reply, Request};
use pario_sys::clock::MonotonicClock;

use super::Connect;

/// How long a failed peer is not asked again.
const REST: Duration = Duration::from_millis(500);

/// How peers are reached and greeted.
pub(super) struct Way {
    pub(super) connect: Arc<dyn Connect>,
    pub(super) hello: Hello,
    pub(super) secret: Secret,
}

/// See the module.
pub(super) struct Link {
    server: ServerIndex,
    way: Arc<Way>,
    state: Mutex<State>,
    tried: Condvar,
    clock: MonotonicClock,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failed: Option<(Nanos, Fault)>,
    /// A worker is connecting.
    trying: bool,
    closed: bool,
}

impl Link {
    pub(super) fn new(server: ServerIndex, way: Arc<Way>) -> Link {
        Link { server, way, state: Mutex::default(), tried: Condvar::new(), clock: MonotonicClock }
    }

    pub(super) fn server(&self) -> ServerIndex {
        self.server
    }

    /// Asks and waits for the answer.
    pub(super) fn call(&self, request: &Request) -> Result<Reply, Fault> {
        self.connection()?.call(request).map(|answer| answer.reply)
    }

    /// Ends the connection: whoever waits for an answer wakes up.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        if let Some(connection) = state.connection.take() {
            connection.close();
        }
        drop(state);
        self.tried.notify_all();
    }

    /// The connection. While one worker tries a peer that failed before, the others fail at once: those that wait in the queue
    /// are told in time.
    fn connection(&self) -> Result<Arc<Connection>, Fault> {
        let mut state = self.state();
        loop {
            if state.closed {
                return Err(Fault::new(Code::ShuttingDown, format!("server {} was not asked", self.server)));
            }
            self.look_at(&mut state);
            if let Some(connection) = &state.connection {
                return Ok(Arc::clone(connection));
            }
            if let Some((at, fault)) = &state.failed
                && (state.trying || self.clock.now().since(*at) < REST)
            {
                return Err(fault.clone());
            }
            if !state.trying {
                break;
            }
            state = self.tried.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.trying = true;
        drop(state);
        self.try_open()
    }

    /// Drops a connection that has ended. A peer that only fell silent would keep a new greeting waiting just as long, so it
    /// counts as tried; one that hung up may be back already.
    fn look_at(&self, state: &mut State) {
        let Some(connection) = state.connection.take_if(|connection| connection.is_dead()) else { return };
        state.failed = connection.silence().map(|fault| (self.clock.now(), fault));
    }

    fn try_open(&self) -> Result<Arc<Connection>, Fault> {
        let opened = self.open();
        let mut state = self.state();
        state.trying = false;
        state.failed = opened.as_ref().err().map(|fault| (self.clock.now(), fault.clone()));
        if !state.closed {
            state.connection = opened.as_ref().ok().cloned();
        }
        drop(state);
        self.tried.notify_all();
        opened
    }

    fn open(&self) -> Result<Arc<Connection>, Fault> {
        let way = &self.way;
        let stream = way.connect.connect(self.server)?;
        let nonce = pario_net::greeting::nonce();
        let hello = Hello { server: self.server, nonce, ..way.hello.clone() };
        Connection::greet(stream, "peer".into(), &hello, &way.secret).map(Arc::new)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
