//! Messages between servers: requests, replies, and the tasks that wait for them.
//!
//! Always: a request is answered once, or its sender is notified of the failure; a late reply has no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pario_core::{Code, Fault};
use pario_server::store::{Claim, GiveBack, Grant, Handover, HandoverReply, HandoverReport};

use super::simulation::{PlacementSim, Waits};

/// Requests of a server to another.
#[derive(Clone, Debug)]
pub(super) enum PeerRequest {
    Claim(Claim),
    GiveBack(GiveBack),
    ReportHandover(HandoverReport),
    /// For which write.
    Handover(Handover, u64),
    /// Cells; whether the home named this owner just now.
    Read(Range<usize>, bool),
    Write(Range<usize>, u64, bool),
    /// An atomic read.
    ReadAtomic(Range<usize>, bool),
    /// Whether the sum of the blocks' versions is unchanged.
    Unchanged(Range<u64>, u64),
}

impl PeerRequest {
    /// Requests that may arrive twice: those to homes, and those without an effect.
    pub(super) fn repeats(&self) -> bool {
        matches!(
            self,
            PeerRequest::Claim(_)
                | PeerRequest::GiveBack(_)
                | PeerRequest::ReportHandover(_)
                | PeerRequest::Unchanged(..)
        )
    }
}

#[derive(Clone, Debug)]
pub(super) enum PeerReply {
    Grants(Vec<Grant>),
    Done,
    NotOwner,
    NotNow,
    Found(Vec<u64>),
    /// With the sum of the blocks' versions.
    AtomicData(Vec<u64>, u64),
    HandoverReply(HandoverReply),
    Failed(Fault),
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Request(PeerRequest),
    Reply(PeerReply),
}

/// A message in flight.
#[derive(Clone, Debug)]
pub(super) struct NetPacket {
    pub(super) number: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) body: Body,
    /// It is delayed.
    pub(super) slow: bool,
}

/// A task that waits for a reply.
#[derive(Clone, Copy, Debug)]
struct PendingReply {
    from: usize,
    to: usize,
    task: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SimNetwork {
    pub(super) packets: Vec<NetPacket>,
    pending: BTreeMap<u64, PendingReply>,
    answers: BTreeMap<u64, Result<PeerReply, Fault>>,
    numbers: u64,
    /// Disconnected pairs of servers.
    pub(super) disconnected: BTreeSet<(usize, usize)>,
}

/// A server cannot be reached.
pub(super) fn unreachable(server: usize) -> Fault {
    Fault::new(Code::Unreachable, format!("server {server} is unreachable"))
}

impl PlacementSim {
    /// Sends a request; its number.
    pub(super) fn send(&mut self, (from, to): (usize, usize), task: u64, ask: PeerRequest) -> u64 {
        self.net.numbers += 1;
        let number = self.net.numbers;
        self.note(|| format!("{from} to {to}: {number} {ask:?}"));
        if self.servers[to].alive && !self.net.disconnected.contains(&(from.min(to), from.max(to))) {
            self.net.pending.insert(number, PendingReply { from, to, task });
            self.net.packets.push(NetPacket { number, from, to, body: Body::Request(ask), slow: false });
        } else {
            self.net.answers.insert(number, Err(unreachable(to)));
        }
        number
    }

    /// The answer to a request, if it is there.
    pub(super) fn answer(&mut self, number: u64) -> Option<Result<PeerReply, Fault>> {
        self.net.answers.remove(&number)
    }

    /// Answers a request.
    pub(super) fn reply(&mut self, (from, to): (usize, usize), number: u64, reply: PeerReply) {
        self.note(|| format!("{from} to {to}: answer to {number}: {reply:?}"));
        if self.servers[to].alive {
            self.net.packets.push(NetPacket { number, from, to, body: Body::Reply(reply), slow: false });
        }
    }

    /// A reply has arrived, or never will.
    pub(super) fn receive(&mut self, number: u64, answer: Result<PeerReply, Fault>) {
        let Some(pending) = self.net.pending.remove(&number) else { return };
        self.net.answers.insert(number, answer);
        if let Some(task) = self.tasks.get_mut(&pending.task)
            && task.waits == Waits::Answer(number)
        {
            task.waits = Waits::Ready;
        }
    }

    /// The connection between two servers ends: a request may have been executed, or be in flight, and no reply arrives.
    pub(super) fn cut(&mut self, one: usize, other: usize) {
        let between = |from: usize, to: usize| (from, to) == (one, other) || (from, to) == (other, one);
        let cut: Vec<(u64, usize)> = self
            .net
            .pending
            .iter()
            .filter(|(_, pending)| between(pending.from, pending.to))
            .map(|(number, pending)| (*number, pending.to))
            .collect();
        self.net.packets = std::mem::take(&mut self.net.packets)
            .into_iter()
            .filter(|packet| {
                !between(packet.from, packet.to)
                    || (matches!(packet.body, Body::Request(_)) && self.chance.once_in(2))
            })
            .collect();
        for packet in self.net.packets.iter_mut().filter(|packet| between(packet.from, packet.to)) {
            packet.slow = self.chance.once_in(2);
        }
        if self.chance.once_in(2) {
            self.net.disconnected.insert((one.min(other), one.max(other)));
        }
        for (number, to) in cut {
            self.receive(number, Err(unreachable(to)));
        }
    }

    /// A server's death as seen by its peers: its last messages may still arrive.
    pub(super) fn hang_up(&mut self, server: usize) {
        self.net.pending.retain(|_, pending| pending.from != server);
        self.net.packets = std::mem::take(&mut self.net.packets)
            .into_iter()
            .filter(|packet| packet.to != server && (packet.from != server || self.chance.once_in(2)))
            .collect();
        let spoken = |number: u64| {
            let answers =
                |packet: &NetPacket| packet.number == number && matches!(packet.body, Body::Reply(_));
            self.net.packets.iter().any(answers)
        };
        let silent: Vec<u64> = self
            .net
            .pending
            .iter()
            .filter(|(number, pending)| pending.to == server && !spoken(**number))
            .map(|(number, _)| *number)
            .collect();
        for number in silent {
            self.receive(number, Err(unreachable(server)));
        }
    }

    /// Whether a request of a server to another has not been answered.
    pub(super) fn is_waited_for(&self, number: u64) -> bool {
        self.net.pending.contains_key(&number)
    }
}
