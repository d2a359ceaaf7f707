//! The manager's calls to its peers (and to itself): truncate, remove, drain, measure.
//!
//! ```text
//!  submit ─► call: round after round ─┬─► queue of server 0 ─► its workers ─► its link
//!                                     └─► queue of server n ─► its workers ─► its link
//! ```
//! Never: runs on the service thread; lets a stopped or dead peer delay a call that does not need it. Always: calls to a dead peer fail
//! within seconds and name it; after a failure further calls fail immediately for a while; queues and workers are bounded, and end with the
//! server.

mod call;
mod link;
mod queue;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use pario_core::{Fault, ServerIndex};
use pario_net::greeting::{Hello, Secret};
use pario_net::message::{Reply, Request};
use pario_net::protect::Protect;
use pario_net::stream::Stream;

use self::call::PeerCall;
use self::link::{PeerConfig, PeerLink};
use self::queue::PeerQueue;
pub(crate) use self::queue::TASKS_MAX;

/// Connections to a server's peers: by address, or inside one process.
pub trait Connect: Send + Sync {
    /// A fresh stream to a server of the partition.
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault>;

    /// A server was restarted at another TCP address. No effect where servers are not connected by address.
    fn moved(&self, server: ServerIndex, tcp: SocketAddr) {
        let _ = (server, tcp);
    }
}

/// Requests that are sent together.
pub(crate) type CallRound = Vec<(ServerIndex, Request)>;
/// Requests in rounds: the next round starts when all of the previous one are answered.
pub(crate) type CallRounds = Vec<CallRound>;
/// The replies of the last round, in order, or the first fault.
pub(crate) type RoundsResult = Result<Vec<Reply>, Fault>;

/// See the module.
pub(crate) struct ManagerPeers {
    peers: Arc<[Arc<PeerQueue>]>,
}

impl ManagerPeers {
    pub(crate) fn new(
        connect: Arc<dyn Connect>,
        hello: Hello,
        (secret, protect): (Secret, Protect),
        servers: usize,
    ) -> ManagerPeers {
        let way = Arc::new(PeerConfig { connect, hello, secret, protect });
        let indexes = (0..servers).filter_map(|at| u16::try_from(at).ok()).map(ServerIndex);
        let peers =
            indexes.map(|server| Arc::new(PeerQueue::new(PeerLink::new(server, Arc::clone(&way))))).collect();
        ManagerPeers { peers }
    }

    /// A server was restarted.
    pub(crate) fn restarted(&self, server: ServerIndex) {
        if let Some(peer) = self.peers.get(server.at()) {
            peer.restarted();
        }
    }

    /// Carries out the rounds on the workers of the servers involved, and passes the outcome to `done`.
    pub(crate) fn submit(&self, rounds: CallRounds, done: impl FnOnce(RoundsResult) + Send + 'static) {
        PeerCall::begin(Arc::clone(&self.peers), rounds, Box::new(done));
    }
}

impl Drop for ManagerPeers {
    fn drop(&mut self) {
        for peer in &*self.peers {
            peer.end();
        }
    }
}
