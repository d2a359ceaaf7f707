//! The course of one run: possible events, until none is left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};

use super::net::{Body, NetPacket, PeerRequest};
use super::simulation::{
    BLOCK_CELLS, BLOCKS, CELLS, Duty, PlacementOp, PlacementSim, PlacementTask, Sync, TaskFuture, Waits,
};
use super::task::TaskHandle;
use crate::coverage::Coverage;
use crate::simulation::{RunOptions, Violation};

const FAULTY_STEPS: u64 = 300;
const STEPS_MAX: u64 = 30_000;
/// Faults are injected once in this many steps.
const FAULT_INTERVAL: u64 = 12;
/// How seldom slow messages get on.
const SLOW: u64 = 30;

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlacementEvent {
    /// A task continues.
    Run(u64),
    /// Its timeout expired.
    Impatient(u64),
    /// A message arrives.
    Deliver(usize),
    /// A client begins an access.
    Begin(usize),
    /// A server writes back its oldest dirty block.
    Stage(usize),
    /// A server evicts clean blocks.
    Shrink(usize),
    ReturnBlocks(usize),
    Sync,
}

/// Phases after all clients are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunPhase {
    Life,
    /// All servers read the full file.
    ReadAll,
    Close,
    ReadAllAgain,
}

struct PlacementRun {
    state: Rc<RefCell<PlacementSim>>,
    jobs: BTreeMap<u64, TaskFuture>,
    phase: RunPhase,
}

/// Runs one seed; a run that fails once more, with its steps.
pub(crate) fn run(options: RunOptions) -> Result<Coverage, Box<Violation>> {
    run_once(options, false).or_else(|_| run_once(options, true))
}

fn run_once(options: RunOptions, traces: bool) -> Result<Coverage, Box<Violation>> {
    let world = Rc::new(RefCell::new(PlacementSim::new(options.seed, options.bug)));
    world.borrow_mut().begins(traces);
    let mut play = PlacementRun { state: Rc::clone(&world), jobs: BTreeMap::new(), phase: RunPhase::Life };
    let result = play.run_steps();
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

impl PlacementRun {
    fn run_steps(&mut self) -> Result<(), String> {
        loop {
            self.next_step()?;
            let events = self.events();
            if events.is_empty() {
                if self.is_over()? {
                    return Ok(());
                }
                continue;
            }
            let chosen = self.state.borrow_mut().chance.index(events.len());
            self.happen(events[chosen]);
            self.state.borrow().check()?;
        }
    }

    /// The next step, with its faults.
    fn next_step(&mut self) -> Result<(), String> {
        let mut world = self.state.borrow_mut();
        world.step += 1;
        if STEPS_MAX < world.step {
            return Err("there is no end to it".to_owned());
        }
        if world.healed.is_none() && world.chance.once_in(FAULT_INTERVAL) {
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

    fn events(&self) -> Vec<PlacementEvent> {
        let mut world = self.state.borrow_mut();
        let (mut events, mut slow) = (Vec::new(), Vec::new());
        for (number, task) in world.tasks.iter().filter(|(_, task)| world.servers[task.server].runs()) {
            match task.waits {
                Waits::Ready => events.push(PlacementEvent::Run(*number)),
                Waits::Timeout => events.push(PlacementEvent::Impatient(*number)),
                Waits::Answer(_) | Waits::TableChange => {}
            }
        }
        for (place, packet) in world.net.packets.iter().enumerate() {
            if world.servers[packet.to].runs() && world.has_thread(packet.to, &packet.body) {
                let list = if packet.slow { &mut slow } else { &mut events };
                list.push(PlacementEvent::Deliver(place));
            }
        }
        for (place, client) in world.clients.iter().enumerate() {
            if client.op.is_none() && 0 < client.left && world.servers[client.server].runs() {
                events.push(PlacementEvent::Begin(place));
            }
        }
        let chores = !events.is_empty() && world.chance.once_in(4);
        for (place, server) in world.servers.iter().enumerate().filter(|(_, server)| server.runs()) {
            let busy = world.tasks.values().any(|task| (task.server, task.duty) == (place, Duty::Background));
            if !server.evicted.is_empty() && !busy {
                events.push(PlacementEvent::ReturnBlocks(place));
            }
            if chores && server.has_dirty() {
                events.push(PlacementEvent::Stage(place));
            }
            if chores && 0 < server.ledger.bytes() {
                events.push(PlacementEvent::Shrink(place));
            }
        }
        if chores && world.sync.is_none() && 0 < world.syncs_left && self.phase == RunPhase::Life {
            events.push(PlacementEvent::Sync);
        }
        if events.is_empty() || world.chance.once_in(SLOW) {
            events.append(&mut slow);
        }
        events
    }

    fn happen(&mut self, event: PlacementEvent) {
        match event {
            PlacementEvent::Run(number) => self.poll(number),
            PlacementEvent::Impatient(number) => {
                self.state.borrow_mut().timed_out = Some(number);
                self.poll(number);
                self.state.borrow_mut().timed_out = None;
            }
            PlacementEvent::Deliver(place) => self.deliver(place),
            PlacementEvent::Begin(client) => {
                let writes = {
                    let mut world = self.state.borrow_mut();
                    let one_in = if world.atomic { 2 } else { 3 };
                    !world.chance.once_in(one_in)
                };
                let cells = self.state.borrow_mut().some_cells(writes);
                self.state.borrow_mut().clients[client].left -= 1;
                self.begin(client, writes, cells);
            }
            PlacementEvent::Stage(server) => {
                let mut world = self.state.borrow_mut();
                let PlacementSim { servers, plain, .. } = &mut *world;
                // What the plain file refuses stays.
                let _ = servers[server].write_back_oldest(plain);
            }
            PlacementEvent::Shrink(server) => {
                let mut world = self.state.borrow_mut();
                let blocks = world.chance.index(2) as u64;
                world.servers[server].shrink(blocks);
                world.seen.visit("block thrown out");
            }
            PlacementEvent::ReturnBlocks(server) => {
                let mut gone = std::mem::take(&mut self.state.borrow_mut().servers[server].evicted);
                gone.sort_unstable();
                gone.dedup();
                self.spawn(server, Duty::Background, |hand| Box::pin(hand.return_blocks(gone)));
            }
            PlacementEvent::Sync => {
                let servers = {
                    let mut world = self.state.borrow_mut();
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
            let mut world = self.state.borrow_mut();
            let (tag, began) = (world.truth.tag(), world.step);
            let op = PlacementOp { tag, began, writes, cells };
            world.clients[client].op = Some(op.clone());
            (world.clients[client].server, op)
        };
        self.spawn(server, Duty::Client, |hand| Box::pin(hand.access(client, op)));
    }

    fn spawn(&mut self, server: usize, duty: Duty, job: impl FnOnce(TaskHandle) -> TaskFuture) {
        let number = {
            let mut world = self.state.borrow_mut();
            world.task_numbers += 1;
            let number = world.task_numbers;
            world.tasks.insert(number, PlacementTask { server, duty, waits: Waits::Ready });
            number
        };
        self.jobs.insert(number, job(TaskHandle::new(&self.state, server, number)));
    }

    fn poll(&mut self, number: u64) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if job.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.jobs.remove(&number);
            self.state.borrow_mut().tasks.remove(&number);
        }
    }

    fn deliver(&mut self, place: usize) {
        let mut world = self.state.borrow_mut();
        let packet = world.net.packets.swap_remove(place);
        let (number, from, to) = (packet.number, packet.from, packet.to);
        match packet.body.clone() {
            Body::Reply(reply) => world.receive(number, Ok(reply)),
            Body::Request(ask) if ask.repeats() => {
                if !world.is_waited_for(number) {
                    world.seen.visit("message late");
                }
                if world.healed.is_none() && world.chance.once_in(8) {
                    world.seen.visit("message doubled");
                    let slow = world.chance.once_in(2);
                    world.net.packets.push(NetPacket { slow, ..packet });
                }
                let reply = world.at_home(to, ask);
                world.reply((to, from), number, reply);
            }
            Body::Request(PeerRequest::ReadAtomic(cells, told)) => {
                drop(world);
                self.spawn(to, Duty::AtomicRead, |hand| {
                    Box::pin(hand.serve_atomic_read(from, number, (cells, told)))
                });
            }
            Body::Request(PeerRequest::Handover(take, tag)) => {
                drop(world);
                self.spawn(to, Duty::Handover, |hand| Box::pin(hand.serve_handover(number, (take, tag))));
            }
            Body::Request(ask) => {
                drop(world);
                self.spawn(to, Duty::Remote, |hand| Box::pin(hand.serve_remote_access(from, number, ask)));
            }
        }
    }

    /// No event is possible: whether the run is complete and correct.
    fn is_over(&mut self) -> Result<bool, String> {
        let mut world = self.state.borrow_mut();
        if world.healed.is_none() {
            world.heal();
            return Ok(false);
        }
        if !world.tasks.is_empty() || world.sync.is_some() || !world.net.packets.is_empty() {
            return Err(format!("no task can continue: {:?}; {}", world.tasks, world.describe()));
        }
        for (place, server) in world.servers.iter().enumerate().filter(|(_, server)| server.alive) {
            if let Some(block) = server.table.busy() {
                let word = server.table.word(block);
                return Err(format!("no task is left, and block {block} is {word} at server {place}"));
            }
        }
        let alive: Vec<usize> = (0..world.servers.len()).filter(|s| world.servers[*s].alive).collect();
        drop(world);
        self.phase = match self.phase {
            RunPhase::Life => RunPhase::ReadAll,
            RunPhase::ReadAll => RunPhase::Close,
            RunPhase::Close => RunPhase::ReadAllAgain,
            RunPhase::ReadAllAgain => {
                let world = self.state.borrow();
                return world.truth.judge(&world.plain).map(|()| true);
            }
        };
        for server in alive {
            if self.phase == RunPhase::Close {
                self.spawn(server, Duty::Background, |hand| Box::pin(hand.close()));
                continue;
            }
            let client = self.state.borrow().clients.iter().position(|client| client.server == server);
            for block in 0..BLOCKS {
                let cells = block * BLOCK_CELLS..(block + 1) * BLOCK_CELLS;
                client.into_iter().for_each(|client| self.begin(client, false, cells.clone()));
            }
        }
        Ok(false)
    }
}

impl PlacementSim {
    /// Whether a thread is free for a message.
    fn has_thread(&self, server: usize, body: &Body) -> bool {
        let (duty, threads) = match body {
            Body::Request(PeerRequest::Handover(..)) => (Duty::Handover, self.threads.1),
            Body::Request(PeerRequest::Read(..) | PeerRequest::Write(..)) => (Duty::Remote, self.threads.0),
            Body::Request(PeerRequest::ReadAtomic(..)) => (Duty::AtomicRead, self.threads.1),
            Body::Request(
                PeerRequest::Claim(_)
                | PeerRequest::GiveBack(_)
                | PeerRequest::ReportHandover(_)
                | PeerRequest::Unchanged(..),
            )
            | Body::Reply(_) => {
                return true;
            }
        };
        self.tasks.values().filter(|task| (task.server, task.duty) == (server, duty)).count() < threads
    }

    /// What an access touches: whole blocks often.
    fn some_cells(&mut self, writes: bool) -> std::ops::Range<usize> {
        // Only whole blocks are written atomically.
        let whole = writes && self.atomic;
        if self.chance.once_in(3) && !whole {
            let first = self.chance.index(CELLS);
            return first..(first + 1 + self.chance.index(4)).min(CELLS);
        }
        // An atomic read tests more with more owners.
        let more = usize::from(self.atomic && !writes);
        let first = self.chance.index(BLOCKS - more);
        let end = (first + 1 + more + self.chance.index(2 + more)).min(BLOCKS);
        first * BLOCK_CELLS..end * BLOCK_CELLS
    }

    /// Whether a task has waited long enough.
    pub(super) fn is_impatient(&self, task: u64) -> bool {
        self.timed_out == Some(task)
    }
}
