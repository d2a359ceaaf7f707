//! The link to one peer: a connection that all its workers share, made when first needed.
//!
//! Never: contacts a peer again within `REST` of its failure; lets more than one worker connect to a peer that failed. Always: a fault
//! names the server.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Code, Fault, Nanos, ServerIndex};
use pario_net::connection::Connection;
use pario_net::greeting::{Hello, Secret};
use pario_net::message::{Reply, Request};
use pario_net::protect::Protect;
use pario_sys::clock::MonotonicClock;

use super::Connect;

/// Pause after a peer failed.
const REST: Duration = Duration::from_millis(500);

/// How peers are connected and greeted.
pub(super) struct PeerConfig {
    pub(super) connect: Arc<dyn Connect>,
    pub(super) hello: Hello,
    pub(super) secret: Secret,
    pub(super) protect: Protect,
}

/// See the module.
pub(super) struct PeerLink {
    server: ServerIndex,
    config: Arc<PeerConfig>,
    state: Mutex<LinkState>,
    tried: Condvar,
    clock: MonotonicClock,
}

#[derive(Default)]
struct LinkState {
    connection: Option<Arc<Connection>>,
    failed: Option<(Nanos, Fault)>,
    /// A worker is connecting.
    trying: bool,
    closed: bool,
}

impl PeerLink {
    pub(super) fn new(server: ServerIndex, way: Arc<PeerConfig>) -> PeerLink {
        PeerLink {
            server,
            config: way,
            state: Mutex::default(),
            tried: Condvar::new(),
            clock: MonotonicClock,
        }
    }

    pub(super) fn server(&self) -> ServerIndex {
        self.server
    }

    /// Sends a request and waits for the reply.
    pub(super) fn call(&self, request: &Request) -> Result<Reply, Fault> {
        self.connection()?.call(request).map(|answer| answer.reply)
    }

    /// The peer was restarted: the pause ends.
    pub(super) fn restarted(&self) {
        self.state().failed = None;
    }

    /// Closes the connection: workers that wait for a reply wake up.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        if let Some(connection) = state.connection.take() {
            connection.close();
        }
        drop(state);
        self.tried.notify_all();
    }

    /// The connection. While one worker reconnects to a peer that failed before, the others fail immediately: queued calls then fail in
    /// time.
    fn connection(&self) -> Result<Arc<Connection>, Fault> {
        let mut state = self.state();
        loop {
            if state.closed {
                return Err(Fault::new(
                    Code::ShuttingDown,
                    format!("request to server {} not sent: its link is closed", self.server),
                ));
            }
            self.drop_ended(&mut state);
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

    /// Drops a connection that has ended. A silent peer would delay a new greeting just as long, so it counts as tried; a peer that closed
    /// the connection may be back already.
    fn drop_ended(&self, state: &mut LinkState) {
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
        let way = &self.config;
        let stream = way.connect.connect(self.server)?;
        let nonce = pario_net::greeting::nonce();
        let protect = way.protect.wants(&stream);
        let hello = Hello { server: self.server, nonce, protect, ..way.hello.clone() };
        Connection::greet(stream, "peer".into(), &hello, &way.secret).map(Arc::new)
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
