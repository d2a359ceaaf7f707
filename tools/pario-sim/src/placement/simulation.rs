//! State of the placement simulation, and the invariants checked at every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;

use pario_core::{Fault, SeededRandom, ServerIndex};
use pario_server::store::placement::OwnershipTable;

use super::net::SimNetwork;
use super::oracle::{PlacementOracle, cells_of};
use super::server::{AccessPath, PlacementServer, SimPlainFile};
use crate::bugs::{AnyBug, PlacementBug};
use crate::coverage::Coverage;

pub(super) const BLOCKS: usize = 4;
pub(super) const BLOCK_CELLS: usize = 2;
pub(super) const CELLS: usize = BLOCKS * BLOCK_CELLS;
pub(super) const CELL: usize = 8;
pub(super) const BLOCK_BYTES: usize = BLOCK_CELLS * CELL;
const TRACE_MAX: usize = 400;

/// Where blocks are cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PlacementKind {
    Home,
    FirstTouch,
    LastWriter,
}

/// Purpose of a task; servers have a number of threads for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Duty {
    Client,
    Remote,
    Handover,
    AtomicRead,
    Background,
    Refresh,
}

/// Wait condition of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// For its turn.
    Ready,
    /// For the answer to a request.
    Answer(u64),
    /// Until its server's table changes.
    TableChange,
    /// The same, with a timeout.
    Timeout,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PlacementTask {
    pub(super) server: usize,
    pub(super) duty: Duty,
    pub(super) waits: Waits,
}

pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Current access of a client.
#[derive(Clone, Debug)]
pub(super) struct PlacementOp {
    pub(super) tag: u64,
    pub(super) began: u64,
    pub(super) writes: bool,
    pub(super) cells: std::ops::Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct PlacementClient {
    pub(super) server: usize,
    /// Accesses left.
    pub(super) left: usize,
    pub(super) op: Option<PlacementOp>,
}

/// All servers flush their dirty blocks.
#[derive(Clone, Debug)]
pub(super) struct Sync {
    pub(super) began: u64,
    pub(super) waiting: BTreeSet<usize>,
    pub(super) failed: bool,
}

/// State of the simulation; see the module.
#[derive(Debug)]
pub(super) struct PlacementSim {
    pub(super) chance: SeededRandom,
    pub(super) seen: Coverage,
    pub(super) bug: Option<AnyBug>,
    pub(super) step: u64,
    pub(super) placement: PlacementKind,
    /// Accesses are atomic, where blocks follow their writers.
    pub(super) atomic: bool,
    pub(super) servers: Vec<PlacementServer>,
    pub(super) clients: Vec<PlacementClient>,
    pub(super) net: SimNetwork,
    pub(super) tasks: BTreeMap<u64, PlacementTask>,
    pub(super) task_numbers: u64,
    /// The task with an expired timeout.
    pub(super) timed_out: Option<u64>,
    pub(super) plain: SimPlainFile,
    pub(super) truth: PlacementOracle,
    pub(super) sync: Option<Sync>,
    pub(super) syncs_left: usize,
    /// Step after which no fault is injected.
    pub(super) healed: Option<u64>,
    /// Threads of a server for remote accesses, and for handovers.
    pub(super) threads: (usize, usize),
    /// A violation detected by a task.
    pub(super) violation: Option<String>,
    /// Whether steps are noted.
    pub(super) traces: bool,
    pub(super) trace: VecDeque<String>,
}

/// The home of a block.
pub(super) fn home(block: u64, servers: usize) -> usize {
    usize::try_from(block).unwrap_or(0) % servers
}

pub(super) fn index(server: usize) -> ServerIndex {
    ServerIndex(u16::try_from(server).unwrap_or(u16::MAX))
}

impl PlacementSim {
    pub(super) fn new(seed: u64, bug: Option<AnyBug>) -> PlacementSim {
        // A different sequence than the coherence simulation's.
        let mut chance = SeededRandom::new(seed ^ 0x0070_6c61_6365_7321);
        let servers = 2 + chance.index(3);
        let placement = match chance.index(8) {
            0 => PlacementKind::Home,
            1 | 2 => PlacementKind::FirstTouch,
            _ => PlacementKind::LastWriter,
        };
        let mut clients: Vec<PlacementClient> = Vec::new();
        for server in 0..servers {
            for _ in 0..=chance.index(2) {
                clients.push(PlacementClient { server, left: 3 + chance.index(7), op: None });
            }
        }
        let machine = match bug {
            Some(AnyBug::Ownership(bug)) => Some(bug),
            Some(AnyBug::Machine(_) | AnyBug::Around(_) | AnyBug::Placement(_)) | None => None,
        };
        PlacementSim {
            seen: Coverage::default(),
            bug,
            step: 0,
            placement,
            servers: (0..servers).map(|_| PlacementServer::new(machine)).collect(),
            // The final reader counts as one more.
            truth: PlacementOracle::new(clients.len() + 1),
            clients,
            net: SimNetwork::default(),
            tasks: BTreeMap::new(),
            task_numbers: 0,
            timed_out: None,
            plain: SimPlainFile::new(),
            sync: None,
            syncs_left: chance.index(4),
            healed: None,
            threads: (1 + chance.index(3), 1 + chance.index(2)),
            atomic: chance.once_in(2) && placement == PlacementKind::LastWriter,
            violation: None,
            traces: false,
            trace: VecDeque::new(),
            chance,
        }
    }

    /// A run begins, and whether its steps are noted.
    pub(super) fn begins(&mut self, traces: bool) {
        self.traces = traces;
        self.seen.visit(match self.placement {
            PlacementKind::Home => "placed at home",
            PlacementKind::FirstTouch => "placed by first touch",
            PlacementKind::LastWriter => "placed by last writer",
        });
    }

    pub(super) fn has(&self, bug: PlacementBug) -> bool {
        self.bug == Some(AnyBug::Placement(bug))
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if !self.traces {
            return;
        }
        let line = format!("{:5} {}", self.step, text());
        self.trace.push_back(line);
        if TRACE_MAX < self.trace.len() {
            self.trace.pop_front();
        }
    }

    pub(super) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Accesses a server's table and wakes the tasks that wait for changes.
    pub(super) fn table<T>(&mut self, server: usize, act: impl FnOnce(&mut OwnershipTable) -> T) -> T {
        let words =
            |table: &OwnershipTable| std::array::from_fn::<_, BLOCKS, _>(|block| table.word(block as u64));
        let table = &mut self.servers[server].table;
        let before = words(table);
        let result = act(table);
        let (after, stirred) = (words(table), table.take_changed());
        for block in (0..BLOCKS).filter(|block| before[*block] != after[*block]) {
            let change = (before[block], after[block]);
            self.note(|| format!("server {server}, block {block}: {} is {}", change.0, change.1));
            match WORDS.iter().find(|(from, to, _)| (*from, *to) == change) {
                Some((_, _, word)) => self.seen.visit(word),
                None => self.violate(format!("block {block} was {} and is {}", change.0, change.1)),
            }
        }
        if stirred {
            for task in self.tasks.values_mut().filter(|task| task.server == server) {
                if matches!(task.waits, Waits::TableChange | Waits::Timeout) {
                    task.waits = Waits::Ready;
                }
            }
        }
        result
    }

    /// A write is carried out at a server.
    pub(super) fn write_at(
        &mut self,
        server: usize,
        cells: std::ops::Range<usize>,
        tag: u64,
    ) -> Result<(), Fault> {
        let through = self.servers[server].write(&mut self.plain, cells.clone(), tag)?;
        self.went(through);
        self.note(|| format!("server {server}: write {tag} to {cells:?}"));
        cells.for_each(|cell| self.truth.apply(cell, tag));
        Ok(())
    }

    /// A read is carried out at a server.
    pub(super) fn read_at(
        &mut self,
        server: usize,
        cells: std::ops::Range<usize>,
    ) -> Result<Vec<u64>, Fault> {
        let (found, through) = self.servers[server].read(&mut self.plain, cells.clone())?;
        self.went(through);
        self.note(|| format!("server {server}: read {found:?} of {cells:?}"));
        Ok(found)
    }

    fn went(&mut self, through: AccessPath) {
        self.seen.visit(match through {
            AccessPath::Cache => "block cached",
            AccessPath::Uncached => "blocks passed by",
        });
    }

    /// The bytes of a block that were only in a cache are lost.
    pub(super) fn lose(&mut self, block: u64, why: &'static str) {
        match self.truth.reverts(block, &mut self.plain, self.step) {
            Ok(true) => {
                self.note(|| format!("block {block}: {why}"));
                self.seen.visit(why);
            }
            Ok(false) => {}
            Err(what) => self.violate(format!("{why}: {what}")),
        }
    }

    /// A server does not wait for a block any more.
    pub(super) fn misses(&mut self, server: usize, block: u64) {
        match self.truth.missed(block, server) {
            Ok(true) => self.lose(block, "bytes lost with a write that failed"),
            Ok(false) => {}
            Err(what) => self.violate(what),
        }
    }

    /// What must hold at every step.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(what) = &self.violation {
            return Err(what.clone());
        }
        for block in 0..BLOCKS as u64 {
            let alive = || self.servers.iter().enumerate().filter(|(_, server)| server.alive);
            let mut keepers = alive().filter(|(_, server)| server.keeps(block));
            if let (Some((one, server)), other) = (keepers.next(), keepers.next()) {
                if let Some((other, _)) = other {
                    return Err(format!("block {block} has two copies, at servers {one} and {other}"));
                }
                let word = server.table.word(block);
                let may = match self.placement {
                    PlacementKind::Home => one == home(block, self.servers.len()),
                    PlacementKind::FirstTouch | PlacementKind::LastWriter => {
                        matches!(word, "mine" | "in use" | "leaving" | "filling")
                    }
                };
                if !may {
                    return Err(format!("server {one} keeps block {block}, which is {word} there"));
                }
            }
            let owns =
                |server: &PlacementServer| matches!(server.table.word(block), "mine" | "in use" | "filling");
            let mut owners = alive().filter(|(_, server)| owns(server));
            if let (Some((one, _)), Some((other, _))) = (owners.next(), owners.next()) {
                return Err(format!("block {block} has two owners, servers {one} and {other}"));
            }
        }
        Ok(())
    }

    /// A server is killed: its memory and the messages in flight to it are lost.
    pub(super) fn kill_server(&mut self, server: usize) {
        let dirty: Vec<u64> =
            (0..BLOCKS as u64).filter(|block| self.servers[server].is_dirty(*block)).collect();
        self.servers[server].evict_all(0..BLOCKS as u64);
        for block in dirty.into_iter().chain(self.truth.lost_in_flight(server)) {
            self.lose(block, "bytes lost with their owner");
        }
    }

    /// A line for each cell, for people.
    pub(super) fn describe(&self) -> String {
        let one = |block: u64| {
            let cells: Vec<u64> = cells_of(block).map(|cell| self.truth.last(cell)).collect();
            let words: Vec<&str> = self.servers.iter().map(|server| server.table.word(block)).collect();
            format!("block {block} {cells:?} {words:?}")
        };
        (0..BLOCKS as u64).map(one).collect::<Vec<_>>().join("; ")
    }
}

/// Possible transitions of a server's state of a block, and their names.
pub(crate) const WORDS: &[(&str, &str, &str)] = &[
    ("unknown", "asked", "block asked for"),
    ("asked", "mine", "block granted"),
    ("asked", "theirs", "block another's"),
    ("asked", "unknown", "block's home silent"),
    ("mine", "in use", "block in use"),
    ("in use", "mine", "block out of use"),
    ("mine", "leaving", "block leaving"),
    ("leaving", "unknown", "block given back"),
    ("leaving", "theirs", "block passed on"),
    ("leaving", "owed", "block passed on untold"),
    ("leaving", "mine", "block not given after all"),
    ("owed", "leaving", "block told of later"),
    ("theirs", "unknown", "block gone on"),
    ("theirs", "taking", "block reached for"),
    ("taking", "filling", "block taken"),
    ("taking", "unknown", "block missed"),
    ("filling", "mine", "block filled"),
    ("mine", "filling", "block held"),
];
