//! A call: its rounds one after the other, each to several peers concurrently.
//!
//! Never: waits; the thread with the last reply of a round starts the next round. Always: the outcome is delivered once, when every request
//! that was sent is answered, also if a worker panicked.

use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{Reply, Request};
use pario_sys::kill_point::{Point, reach};

use super::queue::PeerQueue;
use super::{CallRound, CallRounds, RoundsResult};

type CallDone = Box<dyn FnOnce(RoundsResult) + Send>;

/// See the module.
pub(super) struct PeerCall {
    peers: Arc<[Arc<PeerQueue>]>,
    progress: Mutex<CallProgress>,
}

struct CallProgress {
    later: std::vec::IntoIter<CallRound>,
    replies: Vec<Option<Reply>>,
    unanswered: usize,
    fault: Option<Fault>,
    /// Taken when the outcome is known.
    done: Option<CallDone>,
}

impl PeerCall {
    pub(super) fn begin(peers: Arc<[Arc<PeerQueue>]>, rounds: CallRounds, done: CallDone) {
        let progress = CallProgress {
            later: rounds.into_iter(),
            replies: Vec::new(),
            unanswered: 0,
            fault: None,
            done: Some(done),
        };
        Arc::new(PeerCall { peers, progress: Mutex::new(progress) }).advance();
    }

    /// Starts the next round; with none left, or after a fault, the call ends.
    fn advance(self: Arc<PeerCall>) {
        let (round, outcome, is_second) = {
            let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            // Only a recovery has a second round.
            let is_second = !progress.replies.is_empty() && 0 < progress.later.len();
            match progress.next_round() {
                Some(round) => (round, None, is_second),
                None => {
                    (CallRound::new(), progress.done.take().map(|done| (done, progress.outcome())), false)
                }
            }
        };
        if let Some((done, outcome)) = outcome {
            return done(outcome);
        }
        if is_second {
            reach(Point::SettleDrained);
        }
        for (place, (server, request)) in round.into_iter().enumerate() {
            let task = PeerTask { call: Some(Arc::clone(&self)), index: place, server, request };
            match self.peers.get(server.at()) {
                Some(peer) => peer.put(task),
                None => task.answer(Err(Fault::new(Code::Invalid, format!("there is no server {server}")))),
            }
        }
    }

    fn answered(self: Arc<PeerCall>, place: usize, result: Result<Reply, Fault>) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(reply) => progress.replies[place] = Some(reply),
            Err(fault) => {
                progress.fault.get_or_insert(fault);
            }
        }
        progress.unanswered -= 1;
        let is_last = progress.unanswered == 0;
        drop(progress);
        if is_last {
            self.advance();
        }
    }
}

impl CallProgress {
    fn next_round(&mut self) -> Option<CallRound> {
        if self.fault.is_some() {
            return None;
        }
        let round = self.later.next()?;
        self.replies = round.iter().map(|_| None).collect();
        self.unanswered = round.len();
        // A round without requests is complete immediately.
        if round.is_empty() { self.next_round() } else { Some(round) }
    }

    fn outcome(&mut self) -> RoundsResult {
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(std::mem::take(&mut self.replies).into_iter().flatten().collect()),
        }
    }
}

/// One request of a call, on its way to a peer.
pub(super) struct PeerTask {
    /// Taken when it is answered.
    call: Option<Arc<PeerCall>>,
    index: usize,
    server: ServerIndex,
    pub(super) request: Request,
}

impl PeerTask {
    pub(super) fn answer(mut self, result: Result<Reply, Fault>) {
        if let Some(call) = self.call.take() {
            call.answered(self.index, result);
        }
    }
}

impl Drop for PeerTask {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            let text = format!("request to server {} not sent: the manager is shutting down", self.server);
            call.answered(self.index, Err(Fault::new(Code::ShuttingDown, text)));
        }
    }
}
