//! The manager's calls to its peers (and to itself): cut, remove, drain, measure.
//!
//! ```text
//!  submit ─► call: round after round ─┬─► queue of server 0 ─► its workers ─► its link
//!                                     └─► queue of server n ─► its workers ─► its link
//! ```
//! Never: runs on the service thread; lets a peer that is stopped or dead delay a call that does not need it. Always: a peer
//! that is gone fails its calls within seconds and says which it was; once it failed, further calls fail at once for a while;
//! queues and workers are bounded, and end with the server.

mod call;
mod link;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use pario_core::{Fault, ServerIndex};
use pario_net::greeting::{Hello, Secret};
use pario_net::message::{Reply, Request};
use pario_net::stream::Stream;

use self::call::Call;
use self::link::{Link, Way};
use self::queue::Peer;
pub(crate) use self::queue::TASKS_MAX;

/// How a server's peers are reached: by address, or inside one process.
pub trait Connect: Send + Sync {
    /// A fresh stream to a server of the partition.
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault>;
}

/// Requests that go out together.
pub(crate) type Round = Vec<(ServerIndex, Request)>;
/// Requests in rounds: the next round starts when all of the one before are answered.
pub(crate) type Rounds = Vec<Round>;
/// The answers of the last round, in order, or the first fault.
pub(crate) type RoundsResult = Result<Vec<Reply>, Fault>;

/// See the module.
pub(crate) struct Peers {
    peers: Arc<[Arc<Peer>]>,
}

impl Peers {
    pub(crate) fn new(connect: Arc<dyn Connect>, hello: Hello, secret: Secret, servers: usize) -> Peers {
        let way = Arc::new(Way { connect, hello, secret });
        let indexes = (0..servers).filter_map(|at| u16::try_from(at).ok()).map(ServerIndex);
        let peers = indexes.map(|server| Arc::new(Peer::new(Link::new(server, Arc::clone(&way))))).collect();
        Peers { peers }
    }

    /// Carries out the rounds on the workers of the servers that they need, and hands the outcome to `done`.
    pub(crate) fn submit(&self, rounds: Rounds, done: impl FnOnce(RoundsResult) + Send + 'static) {
        Call::begin(Arc::clone(&self.peers), rounds, Box::new(done));
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for peer in &*self.peers {
            peer.end();
        }
    }
}
