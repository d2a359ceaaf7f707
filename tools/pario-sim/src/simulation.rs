//! State of the coherence simulation, its possible events, and its invariants.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use pario::client::lock_table::{CachedLockOwner, TokenMessage};
use pario_core::{Nanos, SeededRandom};
use pario_net::message::{LockMode, LockShape, LockSpace, Phase};

use crate::bugs::{AnyBug, ClientBug};
use crate::client::{ClientOp, Errand, OpKind, SimClient};
use crate::coverage::Coverage;
use crate::history::{Did, RecordedAccess, sequential, visible};
use crate::manager::{ManagerNotice, ManagerReply, ManagerRequest, SimEffect, SimManager};
use crate::oracle::ByteOracle;
use crate::placement;
use crate::server::{BLOCK_CELLS, SimServer, SimStore, StoreFull, home};

pub(crate) const FILES: usize = 2;
pub(crate) const CELLS: usize = 6;
pub(crate) const SERVERS: usize = 2;
/// Bytes of a cell, for locks.
const CELL_BYTES: u64 = 10;
pub(crate) const FAULTY_STEPS: u64 = 500;
const STEPS_MAX: u64 = 60_000;
const TRACE_MAX: usize = 400;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Determines the run completely.
    pub seed: u64,
    /// A deliberate bug.
    pub bug: Option<AnyBug>,
}

/// A violated invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Seed of the run.
    pub seed: u64,
    /// Description.
    pub what: String,
    /// The last steps before it.
    pub trace: Vec<String>,
}

/// To a server of another node, and back.
#[derive(Clone, Debug)]
pub(crate) enum DataRequest {
    Write { file: usize, cells: Vec<usize>, tag: u64 },
    Read { file: usize, cells: Vec<usize>, tag: u64 },
    Sync { file: usize, tag: u64 },
    Flush { file: usize, tag: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct DataReply {
    /// Of the access that is answered.
    pub(crate) tag: u64,
    pub(crate) found: Result<Vec<(usize, u64)>, StoreFull>,
}

/// State of a server's part of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartState {
    /// Undrained.
    Open,
    /// Drained, dropped, or without data for the server.
    Over,
}

/// A record in an outbox.
#[derive(Clone, Debug)]
pub(crate) struct SimRecord {
    pub(crate) client: usize,
    pub(crate) file: usize,
    pub(crate) cells: Range<usize>,
    pub(crate) tag: u64,
    pub(crate) parts: [PartState; SERVERS],
    /// The file was granted to other clients without it.
    pub(crate) void: [bool; SERVERS],
    /// It was offered to a second server.
    pub(crate) again: [bool; SERVERS],
    /// Managers that its writer had lost.
    pub(crate) epoch: u64,
    /// Its memory was reused.
    pub(crate) overwritten: bool,
}

impl SimRecord {
    /// A server that may have the file's bytes has not drained it.
    fn is_waiting(&self) -> bool {
        (0..SERVERS).any(|server| self.parts[server] == PartState::Open && !self.void[server])
    }

    pub(crate) fn is_over(&self) -> bool {
        self.parts.iter().all(|fate| *fate == PartState::Over)
    }
}

/// The queues between a client and the manager and servers.
#[derive(Debug, Default)]
pub(crate) struct ClientQueues {
    pub(crate) asks: VecDeque<ManagerRequest>,
    pub(crate) replies: VecDeque<ManagerReply>,
    pub(crate) notices: VecDeque<ManagerNotice>,
    pub(crate) data: [VecDeque<DataRequest>; SERVERS],
    pub(crate) answers: [VecDeque<DataReply>; SERVERS],
    /// The manager knows that the client is dead.
    pub(crate) death_noticed: bool,
}

/// State of the simulation; see the module.
#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) chance: SeededRandom,
    pub(crate) seen: Coverage,
    pub(crate) bug: Option<AnyBug>,
    pub(crate) now: Nanos,
    pub(crate) step: u64,
    pub(crate) manager: SimManager,
    pub(crate) clients: Vec<SimClient>,
    pub(crate) links: Vec<ClientQueues>,
    pub(crate) servers: Vec<SimServer>,
    /// The stores below the servers.
    pub(crate) below: SimStore,
    pub(crate) truth: ByteOracle,
    /// Capacity of an outbox in records.
    pub(crate) ring: usize,
    /// Faults are injected once in this many steps.
    fault_interval: u64,
    /// Step at which a server with unsynced data is killed.
    pub(crate) planned_kill: u64,
    /// Servers drain rarely.
    pub(crate) drains_rarely: bool,
    /// Servers may be killed in this run, stores may be full.
    pub(crate) servers_die: bool,
    pub(crate) stores_fill: bool,
    /// When a write was committed, by its tag.
    pub(crate) committed: BTreeMap<u64, u64>,
    /// Commit time of the contents of a cell, as seen by its server.
    pub(crate) stamps: Vec<[u64; CELLS]>,
    /// In the order of their commits.
    pub(crate) records: Vec<SimRecord>,
    pub(crate) recovering: Vec<(usize, usize)>,
    pub(crate) tags: u64,
    /// Every access must be atomic.
    pub(crate) atomic: bool,
    /// What every client did to every file.
    histories: Vec<Vec<Vec<RecordedAccess>>>,
    /// Writes that returned and were lost.
    weak: std::collections::BTreeSet<u64>,
    /// Accesses without a reported end.
    unended: Vec<(usize, RecordedAccess)>,
    /// Files of which only a part of an access may be in the stores.
    pub(crate) torn: [bool; FILES],
    trace: VecDeque<String>,
}

/// Possible events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SimEvent {
    Step(usize),
    ReturnLease(usize, usize),
    Greet(usize),
    Ask(usize),
    Reply(usize),
    Notice(usize),
    Data(usize, usize),
    Answer(usize, usize),
    Drain(usize),
    Stage(usize),
    HangUp(usize, usize),
    Offer(usize, usize),
    Recover(usize),
    RecoverWriter(usize),
    RecoverFails(usize),
    NoticeDeath(usize),
    Expire,
}

/// Runs one seed in each simulation; a deliberate bug where it can show.
pub fn run(options: RunOptions) -> Result<Coverage, Box<Violation>> {
    match options.bug {
        Some(AnyBug::Machine(_) | AnyBug::Around(_)) => run_coherence(options),
        Some(AnyBug::Ownership(_) | AnyBug::Placement(_)) => placement::run(options),
        None => {
            let mut seen = run_coherence(options)?;
            seen.add(&placement::run(options)?);
            Ok(seen)
        }
    }
}

fn run_coherence(options: RunOptions) -> Result<Coverage, Box<Violation>> {
    let mut world = Simulation::new(options);
    match world.run_steps() {
        Ok(()) => Ok(world.seen),
        Err(what) => Err(Box::new(Violation { seed: options.seed, what, trace: world.trace.into() })),
    }
}

impl Simulation {
    fn new(options: RunOptions) -> Simulation {
        let mut chance = SeededRandom::new(options.seed);
        let count = 2 + chance.index(3);
        let far = chance.index(3);
        let errands = 4 + chance.index(8);
        let atomic = chance.once_in(2);
        let caches = chance.once_in(2);
        let (ring, calm, patient) = (1 + chance.index(3), 20 << chance.index(3), chance.once_in(2));
        let (servers_die, stores_fill) = (chance.once_in(2), chance.once_in(2));
        let errands = errands + if patient { chance.index(10) } else { 0 };
        let clients: Vec<SimClient> =
            (0..count).map(|client| SimClient::new(usize::from(client < far), FILES, errands)).collect();
        let mut servers: Vec<SimServer> =
            (0..SERVERS).map(|number| SimServer::new(number, caches, options.bug)).collect();
        for server in &mut servers {
            server.outboxes = (0..count).filter(|client| clients[*client].node == 0).collect();
        }
        Simulation {
            chance,
            seen: Coverage::default(),
            bug: options.bug,
            now: Nanos(1),
            step: 0,
            manager: SimManager::new(options.bug),
            links: (0..count).map(|_| ClientQueues::default()).collect(),
            clients,
            servers,
            below: SimStore::new(),
            truth: ByteOracle::new(),
            ring,
            fault_interval: calm,
            planned_kill: 0,
            drains_rarely: patient,
            servers_die,
            stores_fill,
            committed: BTreeMap::new(),
            stamps: vec![[0; CELLS]; FILES],
            records: Vec::new(),
            recovering: Vec::new(),
            tags: 0,
            atomic,
            histories: vec![vec![Vec::new(); count]; FILES],
            weak: std::collections::BTreeSet::new(),
            unended: Vec::new(),
            torn: [false; FILES],
            trace: VecDeque::new(),
        }
    }

    pub(crate) fn has(&self, bug: ClientBug) -> bool {
        self.bug == Some(AnyBug::Around(bug))
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        let line = format!("{:5} {}", self.step, text());
        self.trace.push_back(line);
        if TRACE_MAX < self.trace.len() {
            self.trace.pop_front();
        }
    }

    fn run_steps(&mut self) -> Result<(), String> {
        loop {
            self.step += 1;
            if STEPS_MAX < self.step {
                return Err("there is no end to it".to_owned());
            }
            self.pass_time();
            let faulty = self.step < FAULTY_STEPS;
            if faulty && self.chance.once_in(self.fault_interval) {
                self.fault()?;
            } else if self.step == self.planned_kill && faulty {
                self.execute_planned_kill()?;
            } else if self.step == FAULTY_STEPS {
                self.heal()?;
            }
            let events = self.events();
            if events.is_empty() {
                if !faulty && self.clients.iter().all(SimClient::is_finished) {
                    return self.end();
                }
                match self.manager.locks.deadline() {
                    Some(at) => self.now = Nanos(self.now.0.max(at.0)),
                    None if faulty => self.heal()?,
                    None => return Err(self.stuck()),
                }
                continue;
            }
            let event = events[self.chance.index(events.len())];
            self.happen(event)?;
            self.carry_out()?;
            self.check()?;
        }
    }

    fn pass_time(&mut self) {
        let short = self.chance.next_u64() % 1_000_000;
        let long = if self.chance.once_in(200) { self.chance.next_u64() % 1_500_000_000 } else { 0 };
        self.now = Nanos(self.now.0 + short + long);
    }

    fn carry_out(&mut self) -> Result<(), String> {
        while let Some(effect) = self.manager.effects.pop_front() {
            match effect {
                SimEffect::Reply(client, reply) => {
                    if let ManagerReply::Quiet { file } = &reply {
                        self.check_quiet(*file, client)?;
                    }
                    self.links[client].replies.push_back(reply);
                }
                SimEffect::Notice(client, notice) => self.links[client].notices.push_back(notice),
                SimEffect::RecoverWriter { file, client } => self.recovering.push((file, client)),
            }
        }
        Ok(())
    }

    pub(crate) fn report(&mut self, client: usize, file: usize, say: TokenMessage) {
        let ask = match say {
            TokenMessage::Return { number, keep } => ManagerRequest::Unlock { file, number, keep },
            TokenMessage::Busy { number, keep } => ManagerRequest::Busy { file, number, keep },
        };
        self.links[client].asks.push_back(ask);
    }

    pub(crate) fn ended(&mut self, client: usize, op: &ClientOp) -> Result<(), String> {
        if op.through && op.record.is_some_and(|record| !self.records[record].is_over()) {
            return Err(format!("write {} of client {client} returns before it is drained", op.tag));
        }
        let did = match op.kind {
            OpKind::Write | OpKind::Sync | OpKind::Flush => Did::Wrote(op.tag),
            OpKind::Read => {
                Did::Read(op.cells.clone().map(|cell| op.found.get(&cell).copied().unwrap_or(0)).collect())
            }
        };
        let ended = if self.weak.contains(&op.tag) { u64::MAX } else { self.step };
        let (began, cells) = (op.began, op.cells.clone().collect());
        let access = RecordedAccess { began, ended, cells, did };
        self.note(|| format!("client {client}, file {}: {access:?}", op.file));
        self.histories[op.file][client].push(access);
        let mut all: Vec<Vec<RecordedAccess>> = self.histories[op.file].clone();
        all.extend(self.unended_of(op.file));
        // Writes in progress may be visible as well.
        for other in &self.clients {
            if let Some(Errand::Access(under_way)) = &other.errand
                && under_way.file == op.file
                && under_way.kind == OpKind::Write
                && under_way.touched
            {
                all.push(vec![unended(under_way)]);
            }
        }
        if op.kind == OpKind::Read { visible(&all) } else { Ok(()) }
    }

    /// A write that returned may be seen no more.
    pub(crate) fn weaken(&mut self, file: usize, tag: u64) {
        let all = self.histories[file].iter_mut().flatten();
        for access in all.filter(|access| access.did == Did::Wrote(tag)) {
            access.ended = u64::MAX;
        }
        self.weak.insert(tag);
    }

    /// A byte reverts to its previous value, and counts as written now.
    pub(crate) fn reverted(&mut self, file: usize, cell: usize) {
        self.tags += 1;
        let (from, to) = (self.below.store[file][cell], self.tags);
        self.stamps[file][cell] = 0;
        self.truth.rename((file, cell), from, to);
        if self.below.stable[file][cell] == from {
            self.below.stable[file][cell] = to;
        }
        self.below.store[file][cell] = to;
        let access =
            RecordedAccess { began: self.step, ended: u64::MAX, cells: vec![cell], did: Did::Wrote(to) };
        self.unended.push((file, access));
        self.torn[file] = true;
    }

    fn unended_of(&self, file: usize) -> Vec<Vec<RecordedAccess>> {
        self.unended.iter().filter(|(of, _)| *of == file).map(|(_, access)| vec![access.clone()]).collect()
    }

    /// An access ends without a word: its process died, or its manager.
    pub(crate) fn abandoned(&mut self, client: usize, op: &ClientOp) {
        if op.kind.flushes() {
            self.restore_unsynced(client, op);
            return;
        }
        self.truth.failed(op.tag);
        if op.kind == OpKind::Write && op.touched {
            self.unended.push((op.file, unended(op)));
            // Servers of other nodes may have received it or not, each independently.
            if self.clients[client].node != 0 {
                self.torn[op.file] = true;
            }
        }
    }
}

fn unended(op: &ClientOp) -> RecordedAccess {
    RecordedAccess {
        began: op.began,
        ended: u64::MAX,
        cells: op.cells.clone().collect(),
        did: Did::Wrote(op.tag),
    }
}

/// What must hold.
impl Simulation {
    fn check(&self) -> Result<(), String> {
        for file in 0..FILES {
            let mut users = self.clients.iter().enumerate().filter_map(|(client, of)| {
                let state = &of.files[file];
                (of.alive && state.in_use).then(|| (client, state.held.map(|(_, phase)| phase)))
            });
            let Some((first, phase)) = users.next() else { continue };
            for (other, beside) in users {
                if phase != beside || phase == Some(Phase::Exclusive {}) {
                    return Err(format!("file {file}: {first} in {phase:?} beside {other} in {beside:?}"));
                }
            }
        }
        self.check_copies()?;
        self.check_locks()
    }

    /// Every block is cached by its home server only.
    fn check_copies(&self) -> Result<(), String> {
        for file in 0..FILES {
            for cell in (0..CELLS).step_by(BLOCK_CELLS) {
                let foreign = self.servers.iter().find(|s| s.number != home(cell) && s.keeps(file, cell));
                if let Some(server) = foreign {
                    return Err(format!(
                        "server {} keeps the block of cell {cell}, file {file}, which is server {}'s",
                        server.number,
                        home(cell)
                    ));
                }
            }
        }
        Ok(())
    }

    /// No two conflicting locks are held concurrently.
    fn check_locks(&self) -> Result<(), String> {
        type Held = (usize, usize, u8, LockMode, Range<usize>);
        let mut held: Vec<Held> = Vec::new();
        for (number, client) in self.clients.iter().enumerate().filter(|(_, client)| client.alive) {
            for lock in &client.locks {
                if client.files[lock.file].table.is_held(lock.which) {
                    held.push((number, lock.file, 1, lock.mode, lock.cells.clone()));
                }
            }
            if let Some(Errand::Access(op)) = &client.errand
                && op.lock.is_some_and(|lock| client.files[op.file].table.is_held(lock))
            {
                held.push((number, op.file, 0, op.kind.mode(), op.cells.clone()));
            }
        }
        for (at, one) in held.iter().enumerate() {
            for two in &held[at + 1..] {
                let alone = one.3 == (LockMode::Exclusive {}) || two.3 == (LockMode::Exclusive {});
                let meet = one.4.start < two.4.end && two.4.start < one.4.end;
                if one.0 != two.0 && (one.1, one.2) == (two.1, two.2) && alone && meet {
                    return Err(format!("conflicting locks are held: {one:?} and {two:?}"));
                }
            }
        }
        Ok(())
    }

    /// A file reported as quiet has no record of other clients in flight.
    fn check_quiet(&self, file: usize, asker: usize) -> Result<(), String> {
        let behind = self.records.iter().find(|record| {
            let by_other = record.client != asker && self.clients[record.client].node == 0;
            record.file == file && by_other && record.is_waiting()
        });
        // A record committed after the file was quiet began after it, too.
        let held = |record: &SimRecord| {
            let client = &self.clients[record.client];
            // In the mixed phase a write that has not returned may be in progress; so may one of a client that just died.
            if client.alive {
                client.files[file].held.is_some()
            } else {
                !self.links[record.client].death_noticed
            }
        };
        match behind {
            Some(record) if !held(record) => {
                Err(format!("file {file} is quiet, but a record of {} is not drained", record.client))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn stuck(&self) -> String {
        let errands: Vec<String> = self
            .clients
            .iter()
            .enumerate()
            .filter(|(_, client)| !client.is_finished())
            .map(|(number, client)| format!("client {number} at {:?}", client.errand))
            .collect();
        format!("no client can continue: {}", errands.join("; "))
    }

    fn end(&mut self) -> Result<(), String> {
        if !self.manager.leases.is_idle() {
            return Err("leases are held or waited for when all is over".to_owned());
        }
        if !self.manager.locks.is_idle() {
            return Err("locks are held or waited for when all is over".to_owned());
        }
        if let Some(record) = self.records.iter().find(|record| !record.is_over()) {
            return Err(format!("a record of client {} was never drained", record.client));
        }
        self.flush_all()?;
        for file in 0..FILES {
            let mut all = self.histories[file].clone();
            all.extend(self.unended_of(file));
            let last = RecordedAccess {
                began: self.step,
                ended: self.step + 1,
                cells: (0..CELLS).collect(),
                did: Did::Read(self.below.store[file].to_vec()),
            };
            all.push(vec![last]);
            visible(&all).map_err(|what| format!("file {file}, at the end: {what}"))?;
            if self.atomic && !self.torn[file] {
                sequential(&all, CELLS).map_err(|what| format!("file {file}: {what}"))?;
            }
        }
        Ok(())
    }
}

impl Simulation {
    /// At the end the stores have all data of the servers, and the last write of each byte.
    fn flush_all(&mut self) -> Result<(), String> {
        for file in 0..FILES {
            for server in &mut self.servers {
                // The first call may report an earlier error.
                let _ = server.flush(&mut self.below, file);
                if server.flush(&mut self.below, file).is_err() {
                    return Err(format!("server {} cannot flush file {file} at the end", server.number));
                }
            }
            for cell in 0..CELLS {
                let (found, last) = (self.below.store[file][cell], self.truth.last(file, cell));
                if found != last {
                    return Err(format!("file {file}, cell {cell} ends as {found} instead of {last}"));
                }
            }
        }
        Ok(())
    }
}

/// The bytes of cells, for locks.
pub(crate) fn bytes_of(cells: &Range<usize>) -> Range<u64> {
    cells.start as u64 * CELL_BYTES..cells.end as u64 * CELL_BYTES
}

pub(crate) fn shape_of(cells: &Range<usize>) -> LockShape {
    let bytes = bytes_of(cells);
    LockShape::Bytes { start: bytes.start, end: bytes.end }
}

pub(crate) const ACCESS: CachedLockOwner =
    CachedLockOwner { space: LockSpace::Access {}, owner_slot: 0, lock_group: 0 };
pub(crate) const USER: CachedLockOwner =
    CachedLockOwner { space: LockSpace::Range {}, owner_slot: 0, lock_group: 0 };

/// Servers that cells lie on.
pub(crate) fn servers_of(cells: &Range<usize>) -> Vec<usize> {
    (0..SERVERS).filter(|server| cells.clone().any(|cell| home(cell) == *server)).collect()
}
