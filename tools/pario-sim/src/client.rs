//! A client process: its leases as the real one keeps them, its real table of locks, and what it is doing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pario::client::lock_table::{Table, Use};
use pario_net::message::{LockMode, Phase, Want};
use pario_server::coherence::Patience;

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
}

impl Kind {
    pub(crate) fn want(self) -> Want {
        match self {
            Kind::Read => Want::Read {},
            Kind::Write => Want::Write {},
        }
    }

    pub(crate) fn mode(self) -> LockMode {
        match self {
            Kind::Read => LockMode::Shared {},
            Kind::Write => LockMode::Exclusive {},
        }
    }
}

/// How far an access has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
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
}

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
        (Phase::Write {}, Kind::Write) | (Phase::Read {}, Kind::Read) => true,
        (Phase::Write {}, Kind::Read) | (Phase::Read {}, Kind::Write) => false,
    }
}
