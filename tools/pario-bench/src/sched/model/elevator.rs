//! The elevator below the scheduler: a bounded queue in disk order, swept in one direction, with adjacent operations merged.
//!
//! Reads and writes have a queue each. While both wait they alternate by time: 500 ms of reads, 125 ms of writes, as in the
//! anticipatory scheduler of Linux 2.6.
//!
//! Never: holds more than `depth` reads and as many writes; further ones wait outside, in order.

use std::collections::{BTreeMap, VecDeque};

use super::disk::{DiskCommand, DiskDirection};
use super::{OpId, VirtualNanos};

/// An operation of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DiskOp {
    pub(crate) id: OpId,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// Parameters of an elevator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ElevatorParams {
    /// Reads, and writes, in its queues.
    pub(crate) depth: usize,
    /// Bytes of the largest merged command.
    pub(crate) merge_max: u64,
    /// Time for reads while writes wait.
    pub(crate) reads_ns: VirtualNanos,
    /// Time for writes while reads wait.
    pub(crate) writes_ns: VirtualNanos,
}

impl ElevatorParams {
    /// Linux 2.6: `nr_requests`, the largest command of a disk with 28-bit addresses, the anticipatory scheduler's times.
    pub(crate) const PAPER: ElevatorParams =
        ElevatorParams { depth: 128, merge_max: 128 << 10, reads_ns: 500_000_000, writes_ns: 125_000_000 };
}

#[derive(Debug, Default)]
struct ElevatorQueue {
    sorted: BTreeMap<u64, DiskOp>,
    outside: VecDeque<DiskOp>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Elevator {
    params: ElevatorParams,
    reads: ElevatorQueue,
    writes: ElevatorQueue,
    turn: DiskDirection,
    turn_began: VirtualNanos,
}

/// The next command, and the operations that it completes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dispatch {
    pub(crate) command: DiskCommand,
    pub(crate) ops: Vec<OpId>,
}

impl Elevator {
    pub(crate) fn new(params: ElevatorParams) -> Elevator {
        let (reads, writes) = (ElevatorQueue::default(), ElevatorQueue::default());
        Elevator { params, reads, writes, turn: DiskDirection::Read, turn_began: 0 }
    }

    /// Adds an operation; no two queued operations overlap.
    pub(crate) fn add(&mut self, kind: DiskDirection, op: DiskOp) {
        self.queue(kind).outside.push_back(op);
        self.let_in(kind);
    }

    /// Whether another write fits into the queue.
    pub(crate) fn has_space_for_writes(&self) -> bool {
        self.writes.sorted.len() < self.params.depth
    }

    /// The next command of the disk, with its head at byte `at`.
    pub(crate) fn next(&mut self, now: VirtualNanos, at: u64) -> Option<Dispatch> {
        let kind = self.choose(now)?;
        Some(self.next_of(kind, at))
    }

    /// The next command of a kind, merged with adjacent operations.
    fn next_of(&mut self, kind: DiskDirection, at: u64) -> Dispatch {
        let merge_max = self.params.merge_max;
        let sorted = &mut self.queue(kind).sorted;
        let first = sorted.range(at..).next().or_else(|| sorted.iter().next());
        let start = first.map(|(start, _)| *start).expect("an operation of this kind waits");
        let mut command = DiskCommand { kind, start, length: 0 };
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

    /// The next kind; `None` if both queues are empty.
    fn choose(&mut self, now: VirtualNanos) -> Option<DiskDirection> {
        let waits = |queue: &ElevatorQueue| !queue.sorted.is_empty();
        let kind = match (waits(&self.reads), waits(&self.writes)) {
            (false, false) => return None,
            (true, false) => DiskDirection::Read,
            (false, true) => DiskDirection::Write,
            (true, true) if now < self.turn_began + self.turn_ns() => self.turn,
            (true, true) if self.turn == DiskDirection::Read => DiskDirection::Write,
            (true, true) => DiskDirection::Read,
        };
        if kind != self.turn {
            (self.turn, self.turn_began) = (kind, now);
        }
        Some(kind)
    }

    fn turn_ns(&self) -> VirtualNanos {
        if self.turn == DiskDirection::Read { self.params.reads_ns } else { self.params.writes_ns }
    }

    fn queue(&mut self, kind: DiskDirection) -> &mut ElevatorQueue {
        if kind == DiskDirection::Read { &mut self.reads } else { &mut self.writes }
    }

    fn let_in(&mut self, kind: DiskDirection) {
        let depth = self.params.depth;
        let queue = self.queue(kind);
        while queue.sorted.len() < depth {
            let Some(op) = queue.outside.pop_front() else { break };
            let displaced = queue.sorted.insert(op.start, op);
            assert!(displaced.is_none(), "two pieces of work start at the same byte");
        }
    }
}
