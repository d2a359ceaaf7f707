//! Relaying: a connection that is meant for another server of the partition is passed on to it, byte by byte.
//!
//! So a group of clients can be tied to one server, as compute nodes are to their I/O node: it answers for every block, with the help of
//! the server whose block it is. Greeting and checksums go from end to end; the relay sees no secret and believes nothing.
//!
//! Never: more than [`RELAYS_MAX`] at a time; passes descriptors on (memory is not shared through a relay). Always: the end of one side
//! is the end of the other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pario_core::{Code, Fault, ServerIndex};
use pario_net::stream::Stream;

use crate::peers::Connect;
use crate::stats::ServerStats;

/// Connections that are relayed at a time.
const RELAYS_MAX: usize = 1024;
/// Bytes passed on at once.
const BUFFER_BYTES: usize = 256 << 10;
/// How often a silent side is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The relays of one server.
#[derive(Clone, Default)]
pub(crate) struct Relays {
    running: Arc<AtomicUsize>,
}

/// One connection to be passed on.
pub(crate) struct Passage {
    pub(crate) client: Stream,
    /// What the client has said so far.
    pub(crate) said: Vec<u8>,
    /// Whom it is for.
    pub(crate) server: ServerIndex,
    pub(crate) connect: Arc<dyn Connect>,
    pub(crate) stats: Arc<ServerStats>,
}

/// Counts one relay for as long as it lives.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Relays {
    /// Whether one more is allowed.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.running.load(Ordering::Acquire) < RELAYS_MAX {
            return Ok(());
        }
        Err(Fault::new(Code::Busy, format!("{RELAYS_MAX} connections are relayed here already")))
    }

    /// Passes a connection on, on threads of its own.
    pub(crate) fn start(&self, passage: Passage) -> io::Result<()> {
        self.running.fetch_add(1, Ordering::AcqRel);
        let running = Running(Arc::clone(&self.running));
        std::thread::Builder::new().name("pario-relay".into()).spawn(move || {
            let _running = running;
            let server = passage.server;
            if let Err(error) = passage.run() {
                tracing::debug!(%error, %server, "a relayed connection ended");
            }
        })?;
        Ok(())
    }
}

impl Passage {
    fn run(self) -> io::Result<()> {
        let Passage { client, said, server, connect, stats } = self;
        let peer = connect.connect(server).map_err(|fault| io::Error::other(fault.to_string()))?;
        peer.send_all(&mut [io::IoSlice::new(&said)], &[])?;
        let (client, peer) = (Arc::new(client), Arc::new(peer));
        let (from, to, theirs) = (Arc::clone(&peer), Arc::clone(&client), Arc::clone(&stats));
        let back = std::thread::Builder::new()
            .name("pario-relay".into())
            .spawn(move || pass(&from, &to, &theirs))
            .inspect_err(|_| client.shut())?;
        let result = pass(&client, &peer, &stats);
        // The other direction ended with this one: both sides are shut.
        let _ = back.join();
        result
    }
}

/// Passes on what one side says until either side ends.
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
    if !from.wait_readable(LOOK)? {
        return Ok(None);
    }
    // Descriptors are not for us, and close with the list.
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
