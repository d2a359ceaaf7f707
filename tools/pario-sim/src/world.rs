//! The world: everybody in it, what may happen next, and what must hold.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use pario::client::lock_table::{Holder, Say};
use pario_core::Nanos;
use pario_net::message::{LockMode, LockShape, LockSpace, Phase};

use crate::bugs::{AnyBug, ClientBug};
use crate::chance::Chance;
use crate::client::{Client, Errand, Kind, Op};
use crate::coverage::Coverage;
use crate::history::{Access, Did, sequential, visible};
use crate::manager::{Ask4, Effect, Manager, Notice, Reply};
use crate::places;
use crate::server::{BLOCK_CELLS, Below, Refused, Server, home};
use crate::truth::Truth;

pub(crate) const FILES: usize = 2;
pub(crate) const CELLS: usize = 6;
pub(crate) const SERVERS: usize = 2;
/// Bytes of a cell, for locks.
const CELL_BYTES: u64 = 10;
pub(crate) const FAULTY_STEPS: u64 = 500;
const STEPS_MAX: u64 = 60_000;
const TRACE_MAX: usize = 400;

/// What to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// A deliberate bug.
    pub bug: Option<AnyBug>,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Violation {
    /// In which run.
    pub seed: u64,
    /// What.
    pub what: String,
    /// The last steps before.
    pub trace: Vec<String>,
}

/// To a server of another node, and back.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Write { file: usize, cells: Vec<usize>, tag: u64 },
    Read { file: usize, cells: Vec<usize>, tag: u64 },
    Sync { file: usize, tag: u64 },
    Flush { file: usize, tag: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct DataReply {
    /// Of the access that is answered.
    pub(crate) tag: u64,
    pub(crate) found: Result<Vec<(usize, u64)>, Refused>,
}

/// What became of a server's part of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It waits to be taken.
    Open,
    /// It is taken, or given up, or never was.
    Over,
}

/// A record in an outbox.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) client: usize,
    pub(crate) file: usize,
    pub(crate) cells: Range<usize>,
    pub(crate) tag: u64,
    pub(crate) fate: [Fate; SERVERS],
    /// The file went to others without it.
    pub(crate) void: [bool; SERVERS],
    /// It was offered to a second server.
    pub(crate) again: [bool; SERVERS],
    /// Managers that its writer had lost.
    pub(crate) epoch: u64,
    /// Its memory is used for something else.
    pub(crate) overwritten: bool,
}

impl Record {
    /// A server that may have the file's bytes has not taken it.
    fn is_waiting(&self) -> bool {
        (0..SERVERS).any(|server| self.fate[server] == Fate::Open && !self.void[server])
    }

    pub(crate) fn is_over(&self) -> bool {
        self.fate.iter().all(|fate| *fate == Fate::Over)
    }
}

/// The queues between a client and everybody else.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) asks: VecDeque<Ask4>,
    pub(crate) replies: VecDeque<Reply>,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) data: [VecDeque<Data>; SERVERS],
    pub(crate) answers: [VecDeque<DataReply>; SERVERS],
    /// The manager knows that the client is dead.
    pub(crate) mourned: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) seen: Coverage,
    pub(crate) bug: Option<AnyBug>,
    pub(crate) now: Nanos,
    pub(crate) step: u64,
    pub(crate) manager: Manager,
    pub(crate) clients: Vec<Client>,
    pub(crate) links: Vec<Links>,
    pub(crate) servers: Vec<Server>,
    /// What the servers stand on.
    pub(crate) below: Below,
    pub(crate) truth: Truth,
    /// Records that an outbox has room for.
    pub(crate) ring: usize,
    /// How seldom something goes wrong.
    calm: usize,
    /// When a server is killed that has something to lose.
    pub(crate) doom: u64,
    /// Servers take records only now and then.
    pub(crate) patient: bool,
    /// Servers may be killed in this run, stores may be full.
    pub(crate) servers_die: bool,
    pub(crate) stores_fill: bool,
    /// When a write was committed, by its tag.
    pub(crate) committed: BTreeMap<u64, u64>,
    /// When what lies in a cell was committed, as its server saw it.
    pub(crate) stamps: Vec<[u64; CELLS]>,
    /// In the order of their commits.
    pub(crate) records: Vec<Record>,
    pub(crate) settling: Vec<(usize, usize)>,
    pub(crate) tags: u64,
    /// Every access is to happen at once for everybody.
    pub(crate) atomic: bool,
    /// What every client did to every file.
    histories: Vec<Vec<Vec<Access>>>,
    /// Writes that returned and were lost.
    weak: std::collections::BTreeSet<u64>,
    /// Accesses that were never told to have ended.
    unended: Vec<(usize, Access)>,
    /// Files of which only a part of an access may be in the stores.
    pub(crate) torn: [bool; FILES],
    trace: VecDeque<String>,
}

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Step(usize),
    GiveBack(usize, usize),
    Greet(usize),
    Ask(usize),
    Reply(usize),
    Notice(usize),
    Data(usize, usize),
    Answer(usize, usize),
    Take(usize),
    Stage(usize),
    HangUp(usize, usize),
    Offer(usize, usize),
    Recover(usize),
    Settle(usize),
    SettleFails(usize),
    Mourn(usize),
    Expire,
}

/// Runs one seed in each world; a deliberate bug where it can show.
pub fn run(options: Options) -> Result<Coverage, Box<Violation>> {
    match options.bug {
        Some(AnyBug::Machine(_) | AnyBug::Around(_)) => run_coherence(options),
        Some(AnyBug::Ownership(_) | AnyBug::Place(_)) => places::run(options),
        None => {
            let mut seen = run_coherence(options)?;
            seen.add(&places::run(options)?);
            Ok(seen)
        }
    }
}

fn run_coherence(options: Options) -> Result<Coverage, Box<Violation>> {
    let mut world = World::new(options);
    match world.play() {
        Ok(()) => Ok(world.seen),
        Err(what) => Err(Box::new(Violation { seed: options.seed, what, trace: world.trace.into() })),
    }
}

impl World {
    fn new(options: Options) -> World {
        let mut chance = Chance::new(options.seed);
        let count = 2 + chance.below(3);
        let far = chance.below(3);
        let errands = 4 + chance.below(8);
        let atomic = chance.once_in(2);
        let caches = chance.once_in(2);
        let (ring, calm, patient) = (1 + chance.below(3), 20 << chance.below(3), chance.once_in(2));
        let (servers_die, stores_fill) = (chance.once_in(2), chance.once_in(2));
        let errands = errands + if patient { chance.below(10) } else { 0 };
        let clients: Vec<Client> =
            (0..count).map(|client| Client::new(usize::from(client < far), FILES, errands)).collect();
        let mut servers: Vec<Server> =
            (0..SERVERS).map(|number| Server::new(number, caches, options.bug)).collect();
        for server in &mut servers {
            server.outboxes = (0..count).filter(|client| clients[*client].node == 0).collect();
        }
        World {
            chance,
            seen: Coverage::default(),
            bug: options.bug,
            now: Nanos(1),
            step: 0,
            manager: Manager::new(options.bug),
            links: (0..count).map(|_| Links::default()).collect(),
            clients,
            servers,
            below: Below::new(),
            truth: Truth::new(),
            ring,
            calm,
            doom: 0,
            patient,
            servers_die,
            stores_fill,
            committed: BTreeMap::new(),
            stamps: vec![[0; CELLS]; FILES],
            records: Vec::new(),
            settling: Vec::new(),
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

    fn play(&mut self) -> Result<(), String> {
        loop {
            self.step += 1;
            if STEPS_MAX < self.step {
                return Err("there is no end to it".to_owned());
            }
            self.pass_time();
            let faulty = self.step < FAULTY_STEPS;
            if faulty && self.chance.once_in(self.calm) {
                self.fault()?;
            } else if self.step == self.doom && faulty {
                self.meet_doom()?;
            } else if self.step == FAULTY_STEPS {
                self.heal()?;
            }
            let events = self.events();
            if events.is_empty() {
                if !faulty && self.clients.iter().all(Client::is_finished) {
                    return self.end();
                }
                match self.manager.locks.deadline() {
                    Some(at) => self.now = Nanos(self.now.0.max(at.0)),
                    None if faulty => self.heal()?,
                    None => return Err(self.stuck()),
                }
                continue;
            }
            let event = events[self.chance.below(events.len())];
            self.happen(event)?;
            self.carry_out()?;
            self.check()?;
        }
    }

    fn pass_time(&mut self) {
        let short = self.chance.next() % 1_000_000;
        let long = if self.chance.once_in(200) { self.chance.next() % 1_500_000_000 } else { 0 };
        self.now = Nanos(self.now.0 + short + long);
    }

    fn carry_out(&mut self) -> Result<(), String> {
        while let Some(effect) = self.manager.effects.pop_front() {
            match effect {
                Effect::Reply(client, reply) => {
                    if let Reply::Quiet { file } = &reply {
                        self.check_quiet(*file, client)?;
                    }
                    self.links[client].replies.push_back(reply);
                }
                Effect::Notice(client, notice) => self.links[client].notices.push_back(notice),
                Effect::Settle { file, client } => self.settling.push((file, client)),
            }
        }
        Ok(())
    }

    pub(crate) fn say(&mut self, client: usize, file: usize, say: Say) {
        let ask = match say {
            Say::Return { number, keep } => Ask4::Unlock { file, number, keep },
            Say::Busy { number, keep } => Ask4::Busy { file, number, keep },
        };
        self.links[client].asks.push_back(ask);
    }

    pub(crate) fn ended(&mut self, client: usize, op: &Op) -> Result<(), String> {
        if op.through && op.record.is_some_and(|record| !self.records[record].is_over()) {
            return Err(format!("write {} of client {client} returns before it is taken", op.tag));
        }
        let did = match op.kind {
            Kind::Write | Kind::Sync | Kind::Flush => Did::Wrote(op.tag),
            Kind::Read => {
                Did::Read(op.cells.clone().map(|cell| op.found.get(&cell).copied().unwrap_or(0)).collect())
            }
        };
        let ended = if self.weak.contains(&op.tag) { u64::MAX } else { self.step };
        let (began, cells) = (op.began, op.cells.clone().collect());
        let access = Access { began, ended, cells, did };
        self.note(|| format!("client {client}, file {}: {access:?}", op.file));
        self.histories[op.file][client].push(access);
        let mut all: Vec<Vec<Access>> = self.histories[op.file].clone();
        all.extend(self.unended_of(op.file));
        // Writes under way may be seen as well.
        for other in &self.clients {
            if let Some(Errand::Access(under_way)) = &other.errand
                && under_way.file == op.file
                && under_way.kind == Kind::Write
                && under_way.touched
            {
                all.push(vec![unended(under_way)]);
            }
        }
        if op.kind == Kind::Read { visible(&all) } else { Ok(()) }
    }

    /// A write that returned may be seen no more.
    pub(crate) fn weaken(&mut self, file: usize, tag: u64) {
        let all = self.histories[file].iter_mut().flatten();
        for access in all.filter(|access| access.did == Did::Wrote(tag)) {
            access.ended = u64::MAX;
        }
        self.weak.insert(tag);
    }

    /// A byte is what it was before, and counts as written now.
    pub(crate) fn reverted(&mut self, file: usize, cell: usize) {
        self.tags += 1;
        let (from, to) = (self.below.store[file][cell], self.tags);
        self.stamps[file][cell] = 0;
        self.truth.rename((file, cell), from, to);
        if self.below.stable[file][cell] == from {
            self.below.stable[file][cell] = to;
        }
        self.below.store[file][cell] = to;
        let access = Access { began: self.step, ended: u64::MAX, cells: vec![cell], did: Did::Wrote(to) };
        self.unended.push((file, access));
        self.torn[file] = true;
    }

    fn unended_of(&self, file: usize) -> Vec<Vec<Access>> {
        self.unended.iter().filter(|(of, _)| *of == file).map(|(_, access)| vec![access.clone()]).collect()
    }

    /// An access ends without a word: its process died, or its manager.
    pub(crate) fn abandoned(&mut self, client: usize, op: &Op) {
        if op.kind.puts_down() {
            self.put_back(client, op);
            return;
        }
        self.truth.failed(op.tag);
        if op.kind == Kind::Write && op.touched {
            self.unended.push((op.file, unended(op)));
            // Servers of other nodes may have been told, or not, each by itself.
            if self.clients[client].node != 0 {
                self.torn[op.file] = true;
            }
        }
    }
}

fn unended(op: &Op) -> Access {
    Access { began: op.began, ended: u64::MAX, cells: op.cells.clone().collect(), did: Did::Wrote(op.tag) }
}

/// What must hold.
impl World {
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

    /// Every block is kept by the server that it falls to, and by no other.
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

    /// No two locks that exclude each other are held at once.
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
                    return Err(format!(
                        "locks that exclude each other are held at once: {one:?} and {two:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A file that is quiet for somebody has nothing of others on its way.
    fn check_quiet(&self, file: usize, asker: usize) -> Result<(), String> {
        let behind = self.records.iter().find(|record| {
            let by_other = record.client != asker && self.clients[record.client].node == 0;
            record.file == file && by_other && record.is_waiting()
        });
        // One that came after the file was quiet began after it, too.
        let held = |record: &Record| {
            let client = &self.clients[record.client];
            // In the mixed phase a write that has not returned may be under way; so may one of somebody who just died.
            if client.alive { client.files[file].held.is_some() } else { !self.links[record.client].mourned }
        };
        match behind {
            Some(record) if !held(record) => {
                Err(format!("file {file} is quiet, but a record of {} is not taken", record.client))
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
        format!("nobody can go on: {}", errands.join("; "))
    }

    fn end(&mut self) -> Result<(), String> {
        if !self.manager.leases.is_idle() {
            return Err("leases are held or waited for when all is over".to_owned());
        }
        if !self.manager.locks.is_idle() {
            return Err("locks are held or waited for when all is over".to_owned());
        }
        if let Some(record) = self.records.iter().find(|record| !record.is_over()) {
            return Err(format!("a record of client {} was never taken", record.client));
        }
        self.put_everything_down()?;
        for file in 0..FILES {
            let mut all = self.histories[file].clone();
            all.extend(self.unended_of(file));
            let last = Access {
                began: self.step,
                ended: self.step + 1,
                cells: (0..CELLS).collect(),
                did: Did::Read(self.below.store[file].to_vec()),
            };
            all.push(vec![last]);
            visible(&all).map_err(|what| format!("file {file}, in the end: {what}"))?;
            if self.atomic && !self.torn[file] {
                sequential(&all, CELLS).map_err(|what| format!("file {file}: {what}"))?;
            }
        }
        Ok(())
    }
}

impl World {
    /// In the end all that servers have is what lies below, and what came last to each byte.
    fn put_everything_down(&mut self) -> Result<(), String> {
        for file in 0..FILES {
            for server in &mut self.servers {
                // The first may tell of an error that is over.
                let _ = server.flush(&mut self.below, file);
                if server.flush(&mut self.below, file).is_err() {
                    return Err(format!("server {} cannot put file {file} down in the end", server.number));
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

pub(crate) const ACCESS: Holder = Holder { space: LockSpace::Access {}, lane: 0, club: 0 };
pub(crate) const USER: Holder = Holder { space: LockSpace::Range {}, lane: 0, club: 0 };

/// Servers that cells lie on.
pub(crate) fn servers_of(cells: &Range<usize>) -> Vec<usize> {
    (0..SERVERS).filter(|server| cells.clone().any(|cell| home(cell) == *server)).collect()
}
