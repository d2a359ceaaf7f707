//! A client process: its leases as in the real client, the real lock table, and its current operation.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pario::client::lock_table::{CachedLockTable, LockUse};
use pario_net::message::{LockMode, Phase, Want};
use pario_server::coherence::WaitLimit;

use crate::server::CursorSnapshot;
use crate::simulation::SERVERS;

/// Kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpKind {
    Read,
    Write,
    /// Puts writes on stable storage.
    Sync,
    /// Puts writes into the store, as at close.
    Flush,
}

impl OpKind {
    pub(crate) fn want(self) -> Want {
        match self {
            OpKind::Read => Want::Read {},
            OpKind::Write | OpKind::Sync | OpKind::Flush => Want::Write {},
        }
    }

    pub(crate) fn mode(self) -> LockMode {
        match self {
            OpKind::Read => LockMode::Shared {},
            OpKind::Write | OpKind::Sync | OpKind::Flush => LockMode::Exclusive {},
        }
    }

    /// Whether it transfers no bytes of its own.
    pub(crate) fn flushes(self) -> bool {
        matches!(self, OpKind::Sync | OpKind::Flush)
    }
}

/// Progress of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpStage {
    /// Waits until servers have drained all records of the file.
    Drain,
    /// Needs a lease, and checks for one.
    Start,
    /// It waits for one.
    Lease,
    /// It waits for a lock.
    Lock,
    /// It may begin.
    Access,
    /// Waits for servers of other nodes.
    Remote,
    /// Waits until its record is drained.
    Drained,
    /// It reads, server by server.
    Reading,
    /// Complete but not returned.
    Done,
}

/// An access in progress.
#[derive(Clone, Debug)]
pub(crate) struct ClientOp {
    pub(crate) kind: OpKind,
    pub(crate) file: usize,
    pub(crate) cells: Range<usize>,
    pub(crate) tag: u64,
    pub(crate) began: u64,
    pub(crate) stage: OpStage,
    pub(crate) phase: Option<Phase>,
    pub(crate) ask: u64,
    pub(crate) lock: Option<LockUse>,
    pub(crate) found: BTreeMap<usize, u64>,
    /// Servers that have not answered, or were not read.
    pub(crate) waiting: BTreeSet<usize>,
    pub(crate) record: Option<usize>,
    /// A part of it may be in a store.
    pub(crate) touched: bool,
    /// A server could not do its part.
    pub(crate) refused: bool,
    /// It must not return before it is drained.
    pub(crate) through: bool,
    /// Servers with bytes to be flushed, each with its number of lost incarnations as known.
    pub(crate) noted: UnsyncedServers,
}

/// Per server with unsynced bytes: the number of incarnations lost when they were written.
pub(crate) type UnsyncedServers = [Option<u64>; SERVERS];

/// A lock of the program's.
#[derive(Clone, Debug)]
pub(crate) struct UserLock {
    pub(crate) file: usize,
    pub(crate) cells: Range<usize>,
    pub(crate) mode: LockMode,
    pub(crate) which: LockUse,
}

/// Current operation of a client.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    Access(ClientOp),
    WantLock {
        file: usize,
        cells: Range<usize>,
        mode: LockMode,
        ask: u64,
        patience: WaitLimit,
        cancelled: bool,
    },
    Looking {
        file: usize,
    },
    Stopping {
        file: usize,
        in_force: bool,
    },
}

/// State of a file at a client.
#[derive(Debug, Default)]
pub(crate) struct ClientFile {
    pub(crate) held: Option<(u64, Phase)>,
    /// An access is in progress under the lease.
    pub(crate) in_use: bool,
    pub(crate) recalled: u64,
    pub(crate) returned: u64,
    pub(crate) acquiring: bool,
    pub(crate) closed: bool,
    pub(crate) table: CachedLockTable,
    /// Faults not yet reported to the program.
    pub(crate) faults: u32,
    pub(crate) unsynced: UnsyncedServers,
    /// Servers for which it put a record into the outbox.
    pub(crate) recorded: [bool; SERVERS],
    /// Errors queried, by server.
    pub(crate) queried_errors: [CursorSnapshot; SERVERS],
    /// All writes are in the store, or the program has their error; it may be closed.
    pub(crate) flushed: bool,
}

impl ClientFile {
    /// The manager that granted this state is lost.
    pub(crate) fn forget(&mut self, leases_too: bool) {
        if leases_too {
            self.held = None;
        }
        self.in_use = false;
        (self.recalled, self.returned) = (0, 0);
        self.acquiring = false;
        self.table.clear();
    }

    pub(crate) fn must_return(&self) -> Option<u64> {
        self.held.map(|(number, _)| number).filter(|number| *number <= self.recalled && !self.in_use)
    }
}

/// State of a client; see the module.
#[derive(Debug)]
pub(crate) struct SimClient {
    pub(crate) node: usize,
    pub(crate) alive: bool,
    pub(crate) stopped: bool,
    pub(crate) files: Vec<ClientFile>,
    pub(crate) errand: Option<Errand>,
    pub(crate) locks: Vec<UserLock>,
    /// Errands that are left.
    pub(crate) left: usize,
    pub(crate) asks: u64,
    pub(crate) links: [SimLink; SERVERS],
    /// Managers that were lost.
    pub(crate) epoch: u64,
    /// The same at the last recovery: the manager has recovered older writes.
    pub(crate) recovered_epoch: u64,
    /// The manager was lost; servers must drain before the new manager is contacted.
    pub(crate) recovering: bool,
}

/// A client's knowledge of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimLink {
    /// Connected, as known to the client.
    pub(crate) up: bool,
    /// The server has the outbox, as known to the client.
    pub(crate) attached: bool,
    /// Incarnation of the last connection.
    pub(crate) life: u64,
    /// Number of replacements of a server with volatile data.
    pub(crate) losses: u64,
    /// Records were overwritten while it was away.
    pub(crate) overwritten: bool,
    pub(crate) cursor: CursorSnapshot,
}

impl SimClient {
    pub(crate) fn new(node: usize, files: usize, left: usize) -> SimClient {
        SimClient {
            node,
            alive: true,
            stopped: false,
            files: (0..files).map(|_| ClientFile::default()).collect(),
            errand: None,
            locks: Vec::new(),
            left,
            asks: 0,
            links: [SimLink {
                up: true,
                attached: node == 0,
                life: 1,
                losses: 0,
                overwritten: false,
                cursor: CursorSnapshot { life: 1, errors: 0 },
            }; SERVERS],
            epoch: 0,
            recovered_epoch: 0,
            recovering: false,
        }
    }

    /// All operations are done and all files closed.
    pub(crate) fn is_finished(&self) -> bool {
        !self.alive || (self.left == 0 && self.errand.is_none() && self.files.iter().all(|file| file.closed))
    }
}

pub(crate) fn allows(phase: Phase, kind: OpKind) -> bool {
    match (phase, kind) {
        (Phase::Exclusive {} | Phase::Mixed {}, _) => true,
        (Phase::Write {}, OpKind::Write | OpKind::Sync | OpKind::Flush) | (Phase::Read {}, OpKind::Read) => {
            true
        }
        (Phase::Write {}, OpKind::Read) | (Phase::Read {}, OpKind::Write | OpKind::Sync | OpKind::Flush) => {
            false
        }
    }
}
