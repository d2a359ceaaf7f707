//! The course of one run: what may happen next, until nothing is left to do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};

use super::hand::Hand;
use super::net::{Ask, Body, Packet};
use super::world::{BLOCK_CELLS, BLOCKS, CELLS, Duty, Job, Op, Sync, Task, Waits, World};
use crate::coverage::Coverage;
use crate::world::{Options, Violation};

const FAULTY_STEPS: u64 = 300;
const STEPS_MAX: u64 = 30_000;
/// How seldom something goes wrong.
const CALM: usize = 12;
/// How seldom slow messages get on.
const SLOW: usize = 30;

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// A task goes on.
    Run(u64),
    /// It has waited long enough.
    Impatient(u64),
    /// A message arrives.
    Deliver(usize),
    /// A client begins an access.
    Begin(usize),
    /// A server writes its oldest dirty block down.
    Stage(usize),
    /// A server throws clean blocks out.
    Shrink(usize),
    HandBack(usize),
    Sync,
}

/// What is done when all clients are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Life,
    /// All servers read everything.
    Look,
    Close,
    LookAgain,
}

struct Play {
    world: Rc<RefCell<World>>,
    jobs: BTreeMap<u64, Job>,
    phase: Phase,
}

/// Runs one seed; a run that fails once more, with its steps.
pub(crate) fn run(options: Options) -> Result<Coverage, Box<Violation>> {
    run_once(options, false).or_else(|_| run_once(options, true))
}

fn run_once(options: Options, traces: bool) -> Result<Coverage, Box<Violation>> {
    let world = Rc::new(RefCell::new(World::new(options.seed, options.bug)));
    world.borrow_mut().begins(traces);
    let mut play = Play { world: Rc::clone(&world), jobs: BTreeMap::new(), phase: Phase::Life };
    let result = play.play();
    play.jobs.clear();
    let mut world = world.borrow_mut();
    match result {
        Ok(()) => Ok(std::mem::take(&mut world.seen)),
        Err(what) => {
            let trace = std::mem::take(&mut world.trace).into();
            Err(Box::new(Violation { seed: options.seed, what: format!("placement: {what}"), trace }))
        }
    }
}

impl Play {
    fn play(&mut self) -> Result<(), String> {
        loop {
            self.fate()?;
            let events = self.events();
            if events.is_empty() {
                if self.is_over()? {
                    return Ok(());
                }
                continue;
            }
            let chosen = self.world.borrow_mut().chance.below(events.len());
            self.happen(events[chosen]);
            self.world.borrow().check()?;
        }
    }

    /// The next step, and what goes wrong in it.
    fn fate(&mut self) -> Result<(), String> {
        let mut world = self.world.borrow_mut();
        world.step += 1;
        if STEPS_MAX < world.step {
            return Err("there is no end to it".to_owned());
        }
        if world.healed.is_none() && world.chance.once_in(CALM) {
            let killed = world.fault();
            if killed.is_some() {
                let tasks = &world.tasks;
                self.jobs.retain(|number, _| tasks.contains_key(number));
            }
        }
        if FAULTY_STEPS <= world.step {
            world.heal();
        }
        Ok(())
    }

    fn events(&self) -> Vec<Event> {
        let mut world = self.world.borrow_mut();
        let (mut events, mut slow) = (Vec::new(), Vec::new());
        for (number, task) in world.tasks.iter().filter(|(_, task)| world.servers[task.server].runs()) {
            match task.waits {
                Waits::Ready => events.push(Event::Run(*number)),
                Waits::Patience => events.push(Event::Impatient(*number)),
                Waits::Answer(_) | Waits::Stir => {}
            }
        }
        for (place, packet) in world.net.packets.iter().enumerate() {
            if world.servers[packet.to].runs() && world.has_thread(packet.to, &packet.body) {
                let list = if packet.slow { &mut slow } else { &mut events };
                list.push(Event::Deliver(place));
            }
        }
        for (place, client) in world.clients.iter().enumerate() {
            if client.op.is_none() && 0 < client.left && world.servers[client.server].runs() {
                events.push(Event::Begin(place));
            }
        }
        let chores = !events.is_empty() && world.chance.once_in(4);
        for (place, server) in world.servers.iter().enumerate().filter(|(_, server)| server.runs()) {
            let busy = world.tasks.values().any(|task| (task.server, task.duty) == (place, Duty::Background));
            if !server.gone.is_empty() && !busy {
                events.push(Event::HandBack(place));
            }
            if chores && server.has_dirty() {
                events.push(Event::Stage(place));
            }
            if chores && 0 < server.ledger.bytes() {
                events.push(Event::Shrink(place));
            }
        }
        if chores && world.sync.is_none() && 0 < world.syncs_left && self.phase == Phase::Life {
            events.push(Event::Sync);
        }
        if events.is_empty() || world.chance.once_in(SLOW) {
            events.append(&mut slow);
        }
        events
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Run(number) => self.poll(number),
            Event::Impatient(number) => {
                self.world.borrow_mut().impatient = Some(number);
                self.poll(number);
                self.world.borrow_mut().impatient = None;
            }
            Event::Deliver(place) => self.deliver(place),
            Event::Begin(client) => {
                let writes = {
                    let mut world = self.world.borrow_mut();
                    let one_in = if world.moments { 2 } else { 3 };
                    !world.chance.once_in(one_in)
                };
                let cells = self.world.borrow_mut().some_cells(writes);
                self.world.borrow_mut().clients[client].left -= 1;
                self.begin(client, writes, cells);
            }
            Event::Stage(server) => {
                let mut world = self.world.borrow_mut();
                let World { servers, plain, .. } = &mut *world;
                // What the plain file refuses stays.
                let _ = servers[server].stage(plain);
            }
            Event::Shrink(server) => {
                let mut world = self.world.borrow_mut();
                let blocks = world.chance.below(2) as u64;
                world.servers[server].shrink(blocks);
                world.seen.visit("block thrown out");
            }
            Event::HandBack(server) => {
                let mut gone = std::mem::take(&mut self.world.borrow_mut().servers[server].gone);
                gone.sort_unstable();
                gone.dedup();
                self.spawn(server, Duty::Background, |hand| Box::pin(hand.hand_back(gone)));
            }
            Event::Sync => {
                let servers = {
                    let mut world = self.world.borrow_mut();
                    world.syncs_left -= 1;
                    let all: Vec<usize> =
                        (0..world.servers.len()).filter(|s| world.servers[*s].alive).collect();
                    let failed = all.len() < world.servers.len();
                    let waiting = all.iter().copied().collect();
                    world.sync = Some(Sync { began: world.step, waiting, failed });
                    all
                };
                for server in servers {
                    self.spawn(server, Duty::Refresh, |hand| Box::pin(hand.refresh()));
                }
            }
        }
    }

    fn begin(&mut self, client: usize, writes: bool, cells: std::ops::Range<usize>) {
        let (server, op) = {
            let mut world = self.world.borrow_mut();
            let (tag, began) = (world.truth.tag(), world.step);
            let op = Op { tag, began, writes, cells };
            world.clients[client].op = Some(op.clone());
            (world.clients[client].server, op)
        };
        self.spawn(server, Duty::Client, |hand| Box::pin(hand.access(client, op)));
    }

    fn spawn(&mut self, server: usize, duty: Duty, job: impl FnOnce(Hand) -> Job) {
        let number = {
            let mut world = self.world.borrow_mut();
            world.task_numbers += 1;
            let number = world.task_numbers;
            world.tasks.insert(number, Task { server, duty, waits: Waits::Ready });
            number
        };
        self.jobs.insert(number, job(Hand::new(&self.world, server, number)));
    }

    fn poll(&mut self, number: u64) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if job.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.jobs.remove(&number);
            self.world.borrow_mut().tasks.remove(&number);
        }
    }

    fn deliver(&mut self, place: usize) {
        let mut world = self.world.borrow_mut();
        let packet = world.net.packets.swap_remove(place);
        let (number, from, to) = (packet.number, packet.from, packet.to);
        match packet.body.clone() {
            Body::Reply(reply) => world.hear(number, Ok(reply)),
            Body::Ask(ask) if ask.repeats() => {
                if !world.is_waited_for(number) {
                    world.seen.visit("message late");
                }
                if world.healed.is_none() && world.chance.once_in(8) {
                    world.seen.visit("message doubled");
                    let slow = world.chance.once_in(2);
                    world.net.packets.push(Packet { slow, ..packet });
                }
                let reply = world.at_home(to, ask);
                world.reply((to, from), number, reply);
            }
            Body::Ask(Ask::Look(cells, told)) => {
                drop(world);
                self.spawn(to, Duty::Looking, |hand| Box::pin(hand.look_for(from, number, (cells, told))));
            }
            Body::Ask(Ask::Take(take, tag)) => {
                drop(world);
                self.spawn(to, Duty::Giving, |hand| Box::pin(hand.give(number, (take, tag))));
            }
            Body::Ask(ask) => {
                drop(world);
                self.spawn(to, Duty::Near, |hand| Box::pin(hand.visit(from, number, ask)));
            }
        }
    }

    /// Nothing can happen: whether all is over, and right.
    fn is_over(&mut self) -> Result<bool, String> {
        let mut world = self.world.borrow_mut();
        if world.healed.is_none() {
            world.heal();
            return Ok(false);
        }
        if !world.tasks.is_empty() || world.sync.is_some() || !world.net.packets.is_empty() {
            return Err(format!("nobody can go on: {:?}; {}", world.tasks, world.picture()));
        }
        for (place, server) in world.servers.iter().enumerate().filter(|(_, server)| server.alive) {
            if let Some(block) = server.table.busy() {
                let word = server.table.word(block);
                return Err(format!("all is quiet, and block {block} is {word} at server {place}"));
            }
        }
        let alive: Vec<usize> = (0..world.servers.len()).filter(|s| world.servers[*s].alive).collect();
        drop(world);
        self.phase = match self.phase {
            Phase::Life => Phase::Look,
            Phase::Look => Phase::Close,
            Phase::Close => Phase::LookAgain,
            Phase::LookAgain => {
                let world = self.world.borrow();
                return world.truth.judge(&world.plain).map(|()| true);
            }
        };
        for server in alive {
            if self.phase == Phase::Close {
                self.spawn(server, Duty::Background, |hand| Box::pin(hand.close()));
                continue;
            }
            let client = self.world.borrow().clients.iter().position(|client| client.server == server);
            for block in 0..BLOCKS {
                let cells = block * BLOCK_CELLS..(block + 1) * BLOCK_CELLS;
                client.into_iter().for_each(|client| self.begin(client, false, cells.clone()));
            }
        }
        Ok(false)
    }
}

impl World {
    /// There is a thread for what a message wants.
    fn has_thread(&self, server: usize, body: &Body) -> bool {
        let (duty, threads) = match body {
            Body::Ask(Ask::Take(..)) => (Duty::Giving, self.threads.1),
            Body::Ask(Ask::Read(..) | Ask::Write(..)) => (Duty::Near, self.threads.0),
            Body::Ask(Ask::Look(..)) => (Duty::Looking, self.threads.1),
            Body::Ask(Ask::Claim(_) | Ask::GiveBack(_) | Ask::Pass(_) | Ask::Still(..)) | Body::Reply(_) => {
                return true;
            }
        };
        self.tasks.values().filter(|task| (task.server, task.duty) == (server, duty)).count() < threads
    }

    /// What an access touches: whole blocks often.
    fn some_cells(&mut self, writes: bool) -> std::ops::Range<usize> {
        // Only whole blocks are written at one moment.
        let whole = writes && self.moments;
        if self.chance.once_in(3) && !whole {
            let first = self.chance.below(CELLS);
            return first..(first + 1 + self.chance.below(4)).min(CELLS);
        }
        // What is read at one moment is worth the more, the more owners it has.
        let more = usize::from(self.moments && !writes);
        let first = self.chance.below(BLOCKS - more);
        let end = (first + 1 + more + self.chance.below(2 + more)).min(BLOCKS);
        first * BLOCK_CELLS..end * BLOCK_CELLS
    }

    /// Whether a task has waited long enough.
    pub(super) fn is_impatient(&self, task: u64) -> bool {
        self.impatient == Some(task)
    }
}
