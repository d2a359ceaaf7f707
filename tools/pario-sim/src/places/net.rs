//! Messages between servers: requests, answers, and who waits for them.
//!
//! Always: a request is answered once, or its sender hears that it failed; an answer that nobody waits for any more changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pario_core::{Code, Fault};
use pario_server::store::{Claim, GiveBack, Grant, Pass, Take, Taken};

use super::world::{Waits, World};

/// What a server wants of another.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Claim(Claim),
    GiveBack(GiveBack),
    Pass(Pass),
    /// For which write.
    Take(Take, u64),
    /// Cells; whether the home said so just now.
    Read(Range<usize>, bool),
    Write(Range<usize>, u64, bool),
    /// As it is at one moment.
    Look(Range<usize>, bool),
    /// Whether blocks have stamps of that sum still.
    Still(Range<u64>, u64),
}

impl Ask {
    /// What homes are told may come twice, as may what changes nothing.
    pub(super) fn repeats(&self) -> bool {
        matches!(self, Ask::Claim(_) | Ask::GiveBack(_) | Ask::Pass(_) | Ask::Still(..))
    }
}

#[derive(Clone, Debug)]
pub(super) enum Reply {
    Grants(Vec<Grant>),
    Done,
    NotMine,
    NotNow,
    Found(Vec<u64>),
    /// With the sum of the blocks' stamps.
    Moment(Vec<u64>, u64),
    Taken(Taken),
    Failed(Fault),
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Ask(Ask),
    Reply(Reply),
}

/// A message under way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) number: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) body: Body,
    /// It takes its time.
    pub(super) slow: bool,
}

/// Somebody waits for an answer.
#[derive(Clone, Copy, Debug)]
struct Pending {
    from: usize,
    to: usize,
    task: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Net {
    pub(super) packets: Vec<Packet>,
    pending: BTreeMap<u64, Pending>,
    answers: BTreeMap<u64, Result<Reply, Fault>>,
    numbers: u64,
    /// Servers that do not reach each other for a while.
    pub(super) apart: BTreeSet<(usize, usize)>,
}

/// A server cannot be reached.
pub(super) fn unreachable(server: usize) -> Fault {
    Fault::new(Code::Unreachable, format!("server {server} is gone"))
}

impl World {
    /// Sends a request; its number.
    pub(super) fn send(&mut self, (from, to): (usize, usize), task: u64, ask: Ask) -> u64 {
        self.net.numbers += 1;
        let number = self.net.numbers;
        self.note(|| format!("{from} to {to}: {number} {ask:?}"));
        if self.servers[to].alive && !self.net.apart.contains(&(from.min(to), from.max(to))) {
            self.net.pending.insert(number, Pending { from, to, task });
            self.net.packets.push(Packet { number, from, to, body: Body::Ask(ask), slow: false });
        } else {
            self.net.answers.insert(number, Err(unreachable(to)));
        }
        number
    }

    /// The answer to a request, if it is there.
    pub(super) fn answer(&mut self, number: u64) -> Option<Result<Reply, Fault>> {
        self.net.answers.remove(&number)
    }

    /// Answers a request.
    pub(super) fn reply(&mut self, (from, to): (usize, usize), number: u64, reply: Reply) {
        self.note(|| format!("{from} to {to}: answer to {number}: {reply:?}"));
        if self.servers[to].alive {
            self.net.packets.push(Packet { number, from, to, body: Body::Reply(reply), slow: false });
        }
    }

    /// An answer has come, or never will.
    pub(super) fn hear(&mut self, number: u64, answer: Result<Reply, Fault>) {
        let Some(pending) = self.net.pending.remove(&number) else { return };
        self.net.answers.insert(number, answer);
        if let Some(task) = self.tasks.get_mut(&pending.task)
            && task.waits == Waits::Answer(number)
        {
            task.waits = Waits::Ready;
        }
    }

    /// The connection between two servers ends: what was asked may have happened, or be on its way, and no answer comes.
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
                    || (matches!(packet.body, Body::Ask(_)) && self.chance.once_in(2))
            })
            .collect();
        for packet in self.net.packets.iter_mut().filter(|packet| between(packet.from, packet.to)) {
            packet.slow = self.chance.once_in(2);
        }
        if self.chance.once_in(2) {
            self.net.apart.insert((one.min(other), one.max(other)));
        }
        for (number, to) in cut {
            self.hear(number, Err(unreachable(to)));
        }
    }

    /// A server's death, as the others see it: what it said last may still come.
    pub(super) fn hang_up(&mut self, server: usize) {
        self.net.pending.retain(|_, pending| pending.from != server);
        self.net.packets = std::mem::take(&mut self.net.packets)
            .into_iter()
            .filter(|packet| packet.to != server && (packet.from != server || self.chance.once_in(2)))
            .collect();
        let spoken = |number: u64| {
            let answers = |packet: &Packet| packet.number == number && matches!(packet.body, Body::Reply(_));
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
            self.hear(number, Err(unreachable(server)));
        }
    }

    /// Whether a request of a server to another has not been answered.
    pub(super) fn is_waited_for(&self, number: u64) -> bool {
        self.net.pending.contains_key(&number)
    }
}
