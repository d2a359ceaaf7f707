//! A client process: its leases as the real one keeps them, its real table of locks, and what it is doing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pario::client::lock_table::{Table, Use};
use pario_net::message::{LockMode, Phase, Want};
use pario_server::coherence::Patience;

use crate::server::Cursor;
use crate::world::SERVERS;

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    /// What was written is put on stable storage.
    Sync,
    /// What was written is put below the servers, as at close.
    Flush,
}

impl Kind {
    pub(crate) fn want(self) -> Want {
        match self {
            Kind::Read => Want::Read {},
            Kind::Write | Kind::Sync | Kind::Flush => Want::Write {},
        }
    }

    pub(crate) fn mode(self) -> LockMode {
        match self {
            Kind::Read => LockMode::Shared {},
            Kind::Write | Kind::Sync | Kind::Flush => LockMode::Exclusive {},
        }
    }

    /// It moves no bytes of its own.
    pub(crate) fn puts_down(self) -> bool {
        matches!(self, Kind::Sync | Kind::Flush)
    }
}

/// How far an access has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It waits until servers have taken all records of the file.
    Drain,
    /// It needs a lease, and looks whether there is one.
    Start,
    /// It waits for one.
    Lease,
    /// It waits for a lock.
    Lock,
    /// It may begin.
    Access,
    /// It waits for servers of other nodes.
    Far,
    /// It waits until its record is taken.
    Taken,
    /// It reads, server by server.
    Reading,
    /// All is done but to say so.
    Done,
}

/// An access under way.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) file: usize,
    pub(crate) cells: Range<usize>,
    pub(crate) tag: u64,
    pub(crate) began: u64,
    pub(crate) stage: Stage,
    pub(crate) phase: Option<Phase>,
    pub(crate) ask: u64,
    pub(crate) lock: Option<Use>,
    pub(crate) found: BTreeMap<usize, u64>,
    /// Servers that have not answered, or were not read.
    pub(crate) waiting: BTreeSet<usize>,
    pub(crate) record: Option<usize>,
    /// Something of it may be in a store.
    pub(crate) touched: bool,
    /// A server could not do its part.
    pub(crate) refused: bool,
    /// It may not return before it is taken.
    pub(crate) through: bool,
    /// Servers with bytes that are to be put down, and how many lives they were known to have lost.
    pub(crate) noted: Unsynced,
}

/// Per server that has bytes which are not synced: the lives it had lost when they were written.
pub(crate) type Unsynced = [Option<u64>; SERVERS];

/// A lock of the program's.
#[derive(Clone, Debug)]
pub(crate) struct UserLock {
    pub(crate) file: usize,
    pub(crate) cells: Range<usize>,
    pub(crate) mode: LockMode,
    pub(crate) which: Use,
}

/// What a client is at.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    Access(Op),
    WantLock {
        file: usize,
        cells: Range<usize>,
        mode: LockMode,
        ask: u64,
        patience: Patience,
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

/// A file as a client has it.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub(crate) held: Option<(u64, Phase)>,
    /// An access goes on under the lease.
    pub(crate) in_use: bool,
    pub(crate) recalled: u64,
    pub(crate) returned: u64,
    pub(crate) acquiring: bool,
    pub(crate) closed: bool,
    pub(crate) table: Table,
    /// Faults that the program has not heard of.
    pub(crate) faults: u32,
    pub(crate) unsynced: Unsynced,
    /// Servers for which it put a record into the outbox.
    pub(crate) recorded: [bool; SERVERS],
    /// Errors that were asked for, by server.
    pub(crate) heard: [Cursor; SERVERS],
    /// What was written is below, or the program knows why not; it may be closed.
    pub(crate) put_down: bool,
}

impl FileState {
    /// The manager it had all this from is gone.
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) node: usize,
    pub(crate) alive: bool,
    pub(crate) stopped: bool,
    pub(crate) files: Vec<FileState>,
    pub(crate) errand: Option<Errand>,
    pub(crate) locks: Vec<UserLock>,
    /// Errands that are left.
    pub(crate) left: usize,
    pub(crate) asks: u64,
    pub(crate) links: [Link; SERVERS],
    /// Managers that were lost.
    pub(crate) epoch: u64,
    /// The same when a manager last heard of us after one was lost: it settled what was older.
    pub(crate) heard_epoch: u64,
    /// The manager was lost, and must not hear of us before servers have what they are to take.
    pub(crate) recovering: bool,
}

/// What a client knows of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// There is a connection, as far as the client knows.
    pub(crate) up: bool,
    /// The server has the outbox, as far as the client knows.
    pub(crate) attached: bool,
    /// Of the server that it was last connected with.
    pub(crate) life: u64,
    /// How often a server that keeps bytes in memory was replaced.
    pub(crate) losses: u64,
    /// Records were overwritten while it was away.
    pub(crate) overwritten: bool,
    pub(crate) cursor: Cursor,
}

impl Client {
    pub(crate) fn new(node: usize, files: usize, left: usize) -> Client {
        Client {
            node,
            alive: true,
            stopped: false,
            files: (0..files).map(|_| FileState::default()).collect(),
            errand: None,
            locks: Vec::new(),
            left,
            asks: 0,
            links: [Link {
                up: true,
                attached: node == 0,
                life: 1,
                losses: 0,
                overwritten: false,
                cursor: Cursor { life: 1, errors: 0 },
            }; SERVERS],
            epoch: 0,
            heard_epoch: 0,
            recovering: false,
        }
    }

    /// Everything is done and given back.
    pub(crate) fn is_finished(&self) -> bool {
        !self.alive || (self.left == 0 && self.errand.is_none() && self.files.iter().all(|file| file.closed))
    }
}

pub(crate) fn allows(phase: Phase, kind: Kind) -> bool {
    match (phase, kind) {
        (Phase::Exclusive {} | Phase::Mixed {}, _) => true,
        (Phase::Write {}, Kind::Write | Kind::Sync | Kind::Flush) | (Phase::Read {}, Kind::Read) => true,
        (Phase::Write {}, Kind::Read) | (Phase::Read {}, Kind::Write | Kind::Sync | Kind::Flush) => false,
    }
}
