//! The world: everybody in it, what may happen next, and what must hold.

use std::collections::VecDeque;
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
}

#[derive(Clone, Debug)]
pub(crate) struct DataReply {
    /// Of the access that is answered.
    pub(crate) tag: u64,
    pub(crate) found: Vec<(usize, u64)>,
}

/// A record in an outbox.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) client: usize,
    pub(crate) file: usize,
    pub(crate) cells: Range<usize>,
    pub(crate) tag: u64,
    pub(crate) taken: [bool; SERVERS],
}

impl Record {
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.iter().all(|taken| *taken)
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
    pub(crate) servers_stopped: [bool; SERVERS],
    /// What the stores hold.
    pub(crate) cells: Vec<[u64; CELLS]>,
    /// In the order of their commits.
    pub(crate) records: Vec<Record>,
    pub(crate) settling: Vec<(usize, usize)>,
    pub(crate) tags: u64,
    /// Every access is to happen at once for everybody.
    pub(crate) atomic: bool,
    /// What every client did to every file.
    histories: Vec<Vec<Vec<Access>>>,
    /// Accesses that were never told to have ended.
    unended: Vec<(usize, Access)>,
    /// Files of which only a part of an access may be in the stores.
    torn: [bool; FILES],
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
    Settle(usize),
    Mourn(usize),
    Expire,
}

/// Runs one seed.
pub fn run(options: Options) -> Result<Coverage, Box<Violation>> {
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
        let clients: Vec<Client> =
            (0..count).map(|client| Client::new(usize::from(client < far), FILES, errands)).collect();
        World {
            chance,
            seen: Coverage::default(),
            bug: options.bug,
            now: Nanos(1),
            step: 0,
            manager: Manager::new(options.bug),
            links: (0..count).map(|_| Links::default()).collect(),
            clients,
            servers_stopped: [false; SERVERS],
            cells: vec![[0; CELLS]; FILES],
            records: Vec::new(),
            settling: Vec::new(),
            tags: 0,
            atomic,
            histories: vec![vec![Vec::new(); count]; FILES],
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
            if faulty && self.chance.once_in(60) {
                self.fault()?;
            } else if self.step == FAULTY_STEPS {
                self.heal();
            }
            let events = self.events();
            if events.is_empty() {
                if !faulty && self.clients.iter().all(Client::is_finished) {
                    return self.end();
                }
                match self.manager.locks.deadline() {
                    Some(at) => self.now = Nanos(self.now.0.max(at.0)),
                    None if faulty => self.heal(),
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
        let did = match op.kind {
            Kind::Write => Did::Wrote(op.tag),
            Kind::Read => {
                Did::Read(op.cells.clone().map(|cell| op.found.get(&cell).copied().unwrap_or(0)).collect())
            }
        };
        let (began, ended, cells) = (op.began, self.step, op.cells.clone().collect());
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

    fn unended_of(&self, file: usize) -> Vec<Vec<Access>> {
        self.unended.iter().filter(|(of, _)| *of == file).map(|(_, access)| vec![access.clone()]).collect()
    }

    /// An access ends without a word: its process died, or its manager.
    pub(crate) fn abandoned(&mut self, client: usize, op: &Op) {
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
        self.check_locks()
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
            record.file == file && by_other && !record.is_taken()
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
        if let Some(record) = self.records.iter().find(|record| !record.is_taken()) {
            return Err(format!("a record of client {} was never taken", record.client));
        }
        for file in 0..FILES {
            let mut all = self.histories[file].clone();
            all.extend(self.unended_of(file));
            let last = Access {
                began: self.step,
                ended: self.step + 1,
                cells: (0..CELLS).collect(),
                did: Did::Read(self.cells[file].to_vec()),
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
    (0..SERVERS).filter(|server| cells.clone().any(|cell| cell % SERVERS == *server)).collect()
}
