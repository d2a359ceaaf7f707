//! A call: its rounds one after the other, each to several peers at once.
//!
//! Never: waits; whoever brings the last answer of a round starts the next. Always: the outcome is handed over once, when every
//! request that went out is answered, also if a worker died over one.

use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{Reply, Request};
use pario_sys::kill_point::{Point, reach};

use super::queue::Peer;
use super::{Round, Rounds, RoundsResult};

type Done = Box<dyn FnOnce(RoundsResult) + Send>;

/// See the module.
pub(super) struct Call {
    peers: Arc<[Arc<Peer>]>,
    progress: Mutex<Progress>,
}

struct Progress {
    later: std::vec::IntoIter<Round>,
    replies: Vec<Option<Reply>>,
    unanswered: usize,
    fault: Option<Fault>,
    /// Taken when the outcome is known.
    done: Option<Done>,
}

impl Call {
    pub(super) fn begin(peers: Arc<[Arc<Peer>]>, rounds: Rounds, done: Done) {
        let progress = Progress {
            later: rounds.into_iter(),
            replies: Vec::new(),
            unanswered: 0,
            fault: None,
            done: Some(done),
        };
        Arc::new(Call { peers, progress: Mutex::new(progress) }).go_on();
    }

    /// Starts the next round; with none left, or after a fault, the call is over.
    fn go_on(self: Arc<Call>) {
        let (round, outcome, is_second) = {
            let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            // Only a settling has a second round.
            let is_second = !progress.replies.is_empty() && 0 < progress.later.len();
            match progress.next_round() {
                Some(round) => (round, None, is_second),
                None => (Round::new(), progress.done.take().map(|done| (done, progress.outcome())), false),
            }
        };
        if let Some((done, outcome)) = outcome {
            return done(outcome);
        }
        if is_second {
            reach(Point::SettleDrained);
        }
        for (place, (server, request)) in round.into_iter().enumerate() {
            let task = Task { call: Some(Arc::clone(&self)), place, server, request };
            match self.peers.get(server.at()) {
                Some(peer) => peer.put(task),
                None => task.answer(Err(Fault::new(Code::Invalid, format!("there is no server {server}")))),
            }
        }
    }

    fn answered(self: Arc<Call>, place: usize, result: Result<Reply, Fault>) {
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
            self.go_on();
        }
    }
}

impl Progress {
    fn next_round(&mut self) -> Option<Round> {
        if self.fault.is_some() {
            return None;
        }
        let round = self.later.next()?;
        self.replies = round.iter().map(|_| None).collect();
        self.unanswered = round.len();
        // A round without requests is answered as it stands.
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
pub(super) struct Task {
    /// Taken when it is answered.
    call: Option<Arc<Call>>,
    place: usize,
    server: ServerIndex,
    pub(super) request: Request,
}

impl Task {
    pub(super) fn answer(mut self, result: Result<Reply, Fault>) {
        if let Some(call) = self.call.take() {
            call.answered(self.place, result);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            let text = format!("server {} was not asked: the manager ends", self.server);
            call.answered(self.place, Err(Fault::new(Code::ShuttingDown, text)));
        }
    }
}
