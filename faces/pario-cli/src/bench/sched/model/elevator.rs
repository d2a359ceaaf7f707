//! The elevator below the scheduler: a bounded queue in the order of the disk's bytes, swept in one direction, neighbours merged.
//!
//! Reads and writes have a queue each. While both wait they take turns, by time: half a second of reads, an eighth of writes, as
//! the anticipatory scheduler of Linux 2.6 has it.
//!
//! Never: holds more than `depth` reads and as many writes; what comes beyond waits outside, in order.

use std::collections::{BTreeMap, VecDeque};

use super::disk::{Command, Kind};
use super::{Nanos, OpId};

/// A piece of work for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Op {
    pub(crate) id: OpId,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// How an elevator goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ElevatorParams {
    /// Reads, and writes, that it looks at.
    pub(crate) depth: usize,
    /// Bytes of the largest command that it makes of neighbours.
    pub(crate) merge_max: u64,
    /// How long reads go before writes that wait.
    pub(crate) reads_ns: Nanos,
    /// How long writes go before reads that wait.
    pub(crate) writes_ns: Nanos,
}

impl ElevatorParams {
    /// Linux 2.6: `nr_requests`, the largest command of a disk with 28-bit addresses, the anticipatory scheduler's times.
    pub(crate) const PAPER: ElevatorParams =
        ElevatorParams { depth: 128, merge_max: 128 << 10, reads_ns: 500_000_000, writes_ns: 125_000_000 };
}

#[derive(Debug, Default)]
struct Queue {
    sorted: BTreeMap<u64, Op>,
    outside: VecDeque<Op>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Elevator {
    params: ElevatorParams,
    reads: Queue,
    writes: Queue,
    turn: Kind,
    turn_began: Nanos,
}

/// What the disk does next, and the work that it settles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dispatch {
    pub(crate) command: Command,
    pub(crate) ops: Vec<OpId>,
}

impl Elevator {
    pub(crate) fn new(params: ElevatorParams) -> Elevator {
        let (reads, writes) = (Queue::default(), Queue::default());
        Elevator { params, reads, writes, turn: Kind::Read, turn_began: 0 }
    }

    /// Takes work; no two pieces that wait share bytes.
    pub(crate) fn add(&mut self, kind: Kind, op: Op) {
        self.queue(kind).outside.push_back(op);
        self.let_in(kind);
    }

    /// Whether it would take another write at once.
    pub(crate) fn has_room_for_writes(&self) -> bool {
        self.writes.sorted.len() < self.params.depth
    }

    /// What the disk, whose head is at byte `at`, does next.
    pub(crate) fn next(&mut self, now: Nanos, at: u64) -> Option<Dispatch> {
        let kind = self.choose(now)?;
        Some(self.take(kind, at))
    }

    /// The next command of a kind that waits, with its neighbours.
    fn take(&mut self, kind: Kind, at: u64) -> Dispatch {
        let merge_max = self.params.merge_max;
        let sorted = &mut self.queue(kind).sorted;
        let first = sorted.range(at..).next().or_else(|| sorted.iter().next());
        let start = first.map(|(start, _)| *start).expect("something of this kind waits");
        let mut command = Command { kind, start, length: 0 };
        let mut ops = Vec::new();
        while let Some(op) = sorted.get(&(start + command.length)).copied() {
            if !ops.is_empty() && merge_max < command.length + op.length {
                break;
            }
            sorted.remove(&op.start);
            command.length += op.length;
            ops.push(op.id);
        }
        self.let_in(kind);
        Dispatch { command, ops }
    }

    /// Whose turn it is; `None` if nothing waits.
    fn choose(&mut self, now: Nanos) -> Option<Kind> {
        let waits = |queue: &Queue| !queue.sorted.is_empty();
        let kind = match (waits(&self.reads), waits(&self.writes)) {
            (false, false) => return None,
            (true, false) => Kind::Read,
            (false, true) => Kind::Write,
            (true, true) if now < self.turn_began + self.turn_ns() => self.turn,
            (true, true) if self.turn == Kind::Read => Kind::Write,
            (true, true) => Kind::Read,
        };
        if kind != self.turn {
            (self.turn, self.turn_began) = (kind, now);
        }
        Some(kind)
    }

    fn turn_ns(&self) -> Nanos {
        if self.turn == Kind::Read { self.params.reads_ns } else { self.params.writes_ns }
    }

    fn queue(&mut self, kind: Kind) -> &mut Queue {
        if kind == Kind::Read { &mut self.reads } else { &mut self.writes }
    }

    fn let_in(&mut self, kind: Kind) {
        let depth = self.params.depth;
        let queue = self.queue(kind);
        while queue.sorted.len() < depth {
            let Some(op) = queue.outside.pop_front() else { break };
            let displaced = queue.sorted.insert(op.start, op);
            assert!(displaced.is_none(), "two pieces of work start at the same byte");
        }
    }
}
