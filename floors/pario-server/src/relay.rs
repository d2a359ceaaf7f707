//! Relaying: a connection to another server of the partition is forwarded to it, byte by byte.
//!
//! So a group of clients can be bound to one server, as compute nodes are to their I/O node: it serves every block, with the help of the
//! server that has the block. The client proves the partition's secret to the relay first, then to the target server; that second greeting,
//! checksums and protection are end to end, so the relay reads and alters nothing.
//!
//! Never: forwards a byte for an unauthenticated peer; more than [`RELAYS_MAX`] at a time, or [`RELAYS_PER_ROUTE_MAX`] of one session to one
//! server; forwards descriptors (memory is not shared through a relay). Always: the end of one side is the end of the other.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault, ServerIndex, SessionId};
use pario_net::frame::{self, DataCheck, FrameKind};
use pario_net::greeting::Relayed;
use pario_net::message::Reply;
use pario_net::protect::Protect;
use pario_net::stream::Stream;

use crate::peers::Connect;
use crate::stats::ServerStats;

/// Concurrent relayed connections.
const RELAYS_MAX: usize = 1024;
/// Of one session to one server: requests, notices, and one of each that it has closed and that has not ended yet.
const RELAYS_PER_ROUTE_MAX: usize = 4;
/// Bytes forwarded per read. All relays together hold at most 256 MiB.
const BUFFER_BYTES: usize = 128 << 10;
/// Stack of a relaying thread, which calls nothing deep.
const STACK_BYTES: usize = 128 << 10;
/// Poll interval of a silent side.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

const _: () = assert!(RELAYS_MAX * 2 * BUFFER_BYTES <= 256 << 20);

type RelayRoute = (SessionId, ServerIndex);

/// The relays of one server.
#[derive(Clone, Default)]
pub(crate) struct Relays {
    running: Arc<Mutex<HashMap<RelayRoute, usize>>>,
}

/// One connection to forward, of an authenticated client.
pub(crate) struct Passage {
    pub(crate) client: Stream,
    /// The target server.
    pub(crate) server: ServerIndex,
    pub(crate) connect: Arc<dyn Connect>,
    /// Which connections to other servers must be protected.
    pub(crate) protect: Protect,
    pub(crate) stats: Arc<ServerStats>,
}

/// Counts one relay while it exists.
pub(crate) struct Reserved {
    relays: Relays,
    route: RelayRoute,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut running = self.relays.running();
        if let Some(count) = running.get_mut(&self.route) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.route);
            }
        }
    }
}

impl Relays {
    fn running(&self) -> MutexGuard<'_, HashMap<RelayRoute, usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves one more relay.
    pub(crate) fn reserve(&self, session: SessionId, server: ServerIndex) -> Result<Reserved, Fault> {
        let mut running = self.running();
        if RELAYS_MAX <= running.values().sum() {
            return Err(Fault::new(Code::Busy, format!("{RELAYS_MAX} connections are relayed here already")));
        }
        let way = (session, server);
        let count = running.entry(way).or_default();
        if RELAYS_PER_ROUTE_MAX <= *count {
            let text = format!(
                "{RELAYS_PER_ROUTE_MAX} connections of this client to server {server} are relayed already"
            );
            return Err(Fault::new(Code::Busy, text));
        }
        *count += 1;
        drop(running);
        Ok(Reserved { relays: self.clone(), route: way })
    }
}

impl Passage {
    /// Forwards the connection, on threads of its own.
    pub(crate) fn start(self, reserved: Reserved) -> io::Result<()> {
        thread(move || {
            let _reserved = reserved;
            let server = self.server;
            if let Err(error) = self.run() {
                tracing::debug!(%error, %server, "a relayed connection ended");
            }
        })
        .map(drop)
    }

    fn run(self) -> io::Result<()> {
        let Passage { client, server, connect, protect, stats } = self;
        let peer = match connect.connect(server) {
            Ok(peer) => peer,
            Err(fault) => {
                let text = fault.to_string();
                let told = frame::seal(FrameKind::Reply, 0, &Reply::Failed { fault }, &[], DataCheck::None);
                client.send_all(&mut [io::IoSlice::new(&told)], &[])?;
                return Err(io::Error::other(text));
            }
        };
        let relayed = Relayed { protect: protect.wants(&peer) };
        let told = frame::seal(FrameKind::Relayed, 0, &relayed, &[], DataCheck::None);
        client.send_all(&mut [io::IoSlice::new(&told)], &[])?;
        let (client, peer) = (Arc::new(client), Arc::new(peer));
        let (from, to, theirs) = (Arc::clone(&peer), Arc::clone(&client), Arc::clone(&stats));
        let back = thread(move || {
            // Its error also ends the other direction: both sides are shut down.
            let _ = pass(&from, &to, &theirs);
        })
        .inspect_err(|_| client.shut())?;
        let result = pass(&client, &peer, &stats);
        let _ = back.join();
        result
    }
}

fn thread(body: impl FnOnce() + Send + 'static) -> io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("pario-relay".into()).stack_size(STACK_BYTES).spawn(body)
}

/// Forwards the bytes of one side until either side ends.
fn pass(from: &Stream, to: &Stream, stats: &ServerStats) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let result = loop {
        match pass_some(from, to, &mut buffer) {
            Ok(None) => {}
            Ok(Some(0)) => break Ok(()),
            Ok(Some(bytes)) => stats.count_relayed(bytes as u64),
            Err(error) => break Err(error),
        }
    };
    from.shut();
    to.shut();
    result
}

fn pass_some(from: &Stream, to: &Stream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    if !from.wait_readable(POLL_INTERVAL)? {
        return Ok(None);
    }
    // Descriptors are not forwarded, and are closed with the list.
    match from.receive(buffer, &mut Vec::new()) {
        Ok(count) => {
            to.send_all(&mut [io::IoSlice::new(&buffer[..count])], &[])?;
            Ok(Some(count))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
