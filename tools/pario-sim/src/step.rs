//! What happens, one event at a time.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::Nanos;
use pario_net::message::{LockMode, Phase};
use pario_server::coherence::Patience;

use crate::bugs::ClientBug;
use crate::client::{Errand, Kind, Op, Stage, UserLock, allows};
use crate::keeping::Flow;
use crate::manager::Ask4;
use crate::server::{BLOCK_CELLS, by_server, home};
use crate::world::{
    ACCESS, CELLS, Data, Event, FILES, Fate, Record, SERVERS, USER, World, bytes_of, servers_of, shape_of,
};

/// What happens.
impl World {
    pub(crate) fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Step(client) => self.step_client(client),
            Event::GiveBack(client, file) => {
                if !self.has(ClientBug::AbandonNothing) && !self.has(ClientBug::ReturnUndrained) {
                    for server in self.left_by(client, file) {
                        self.give_up(client, server, Some(file))?;
                    }
                }
                let state = &mut self.clients[client].files[file];
                let Some(number) = state.must_return() else { return Ok(()) };
                state.held = None;
                state.returned = state.returned.max(number);
                self.links[client].asks.push_back(Ask4::Return { file, number });
                Ok(())
            }
            Event::Greet(client) => {
                // Any request shows that it is there.
                self.links[client].asks.push_back(Ask4::Cancel { ask: 0 });
                let Some(ask) = self.links[client].asks.pop_front() else { return Ok(()) };
                self.manager.hear(client, ask, self.now, &mut self.seen)
            }
            Event::Ask(client) => {
                let Some(ask) = self.links[client].asks.pop_front() else { return Ok(()) };
                self.note(|| format!("manager hears {client}: {ask:?}"));
                self.manager.hear(client, ask, self.now, &mut self.seen)
            }
            Event::Reply(client) => self.hear_reply(client),
            Event::Notice(client) => {
                self.hear_notice(client);
                Ok(())
            }
            Event::Data(client, server) => self.serve(client, server),
            Event::Answer(client, server) => {
                self.hear_answer(client, server);
                Ok(())
            }
            Event::Take(server) => {
                self.take(server)?;
                self.shake(server)
            }
            Event::Stage(server) => {
                self.stage(server);
                Ok(())
            }
            Event::HangUp(client, server) => {
                self.hang_up(client, server);
                Ok(())
            }
            Event::Offer(client, server) => self.offer(client, server),
            Event::Recover(client) => self.recover(client),
            Event::Settle(at) => self.settle(at),
            Event::SettleFails(at) => {
                let (file, _) = self.settling[at];
                self.manager.unsettled(file, self.now, &mut self.seen)
            }
            Event::Mourn(client) => {
                self.links[client].mourned = true;
                self.note(|| format!("manager sees that {client} is dead"));
                self.manager.gone(client, self.now, &mut self.seen)
            }
            Event::Expire => self.manager.expire(self.now, &mut self.seen),
        }
    }

    fn step_client(&mut self, number: usize) -> Result<(), String> {
        match self.clients[number].errand.take() {
            None if self.clients[number].left == 0 => self.close(number),
            None => {
                self.clients[number].left -= 1;
                self.begin(number);
                Ok(())
            }
            Some(Errand::Access(op)) => self.advance(number, op),
            Some(Errand::WantLock { file, cells, mode, ask, patience, .. }) => {
                if self.chance.once_in(400) {
                    self.links[number].asks.push_back(Ask4::Cancel { ask });
                    self.clients[number].errand =
                        Some(Errand::WantLock { file, cells, mode, ask, patience, cancelled: true });
                } else {
                    self.clients[number].errand =
                        Some(Errand::WantLock { file, cells, mode, ask, patience, cancelled: false });
                }
                Ok(())
            }
            Some(Errand::Stopping { file, .. }) => {
                self.links[number].asks.push_back(Ask4::StopEnd { file });
                Ok(())
            }
            Some(errand @ Errand::Looking { .. }) => {
                self.clients[number].errand = Some(errand);
                Ok(())
            }
        }
    }

    fn begin(&mut self, number: usize) {
        let file = self.chance.below(FILES);
        let cells = self.choose_cells(number);
        let client = &mut self.clients[number];
        client.asks += 1;
        let ask = client.asks;
        match self.chance.below(20) {
            0..=3 if client.locks.len() < 2 => self.want_lock(number, (file, cells), ask),
            0..=6 if !client.locks.is_empty() => {
                let at = self.chance.below(client.locks.len());
                let lock = self.clients[number].locks.swap_remove(at);
                self.unlock(number, &lock);
            }
            9..=10 => self.begin_keeping(number, file, Kind::Sync),
            11 => self.begin_keeping(number, file, Kind::Flush),
            7 => {
                self.links[number].asks.push_back(Ask4::Look { file });
                self.clients[number].errand = Some(Errand::Looking { file });
            }
            8 if self.clients[number].files[file].held.is_none() => {
                self.links[number].asks.push_back(Ask4::Stop { file });
                self.clients[number].errand = Some(Errand::Stopping { file, in_force: false });
            }
            _ => {
                self.tags += 1;
                let reads = self.chance.once_in(if self.patient { 4 } else { 2 });
                let kind = if reads { Kind::Read } else { Kind::Write };
                let op = Op {
                    kind,
                    file,
                    cells,
                    tag: self.tags,
                    began: self.step,
                    stage: Stage::Start,
                    phase: None,
                    ask,
                    lock: None,
                    found: BTreeMap::new(),
                    waiting: BTreeSet::new(),
                    record: None,
                    touched: false,
                    refused: false,
                    through: false,
                    noted: [None; SERVERS],
                };
                self.clients[number].errand = Some(Errand::Access(op));
            }
        }
    }

    /// Any range; while a server is gone now and then one that can do without it.
    fn choose_cells(&mut self, number: usize) -> std::ops::Range<usize> {
        let start = self.chance.below(CELLS);
        let cells = start..start + 1 + self.chance.below(CELLS - start);
        let gone = |server: &usize| !self.clients[number].links[*server].up;
        if servers_of(&cells).iter().any(gone) && self.chance.once_in(2) {
            let there = |cell: &usize| !gone(&home(*cell));
            return (0..CELLS).find(there).map_or(cells, |cell| cell..cell + BLOCK_CELLS);
        }
        cells
    }

    fn want_lock(&mut self, number: usize, (file, cells): (usize, std::ops::Range<usize>), ask: u64) {
        let mode = if self.chance.once_in(3) { LockMode::Shared {} } else { LockMode::Exclusive {} };
        let patience = match self.chance.below(4) {
            0 => Patience::Try,
            1 => Patience::Until(Nanos(self.now.0 + self.chance.next() % 50_000_000)),
            _ => Patience::Wait,
        };
        let table = &mut self.clients[number].files[file].table;
        if let Some(which) = table.begin(USER, mode, &shape_of(&cells)) {
            self.seen.visit("lock found here");
            self.clients[number].locks.push(UserLock { file, cells, mode, which });
            return;
        }
        let bytes = bytes_of(&cells);
        let (space, lane) = (USER.space, USER.lane);
        self.links[number].asks.push_back(Ask4::Lock { file, ask, space, lane, mode, bytes, patience });
        self.clients[number].errand =
            Some(Errand::WantLock { file, cells, mode, ask, patience, cancelled: false });
    }

    fn unlock(&mut self, number: usize, lock: &UserLock) {
        if let Some(Some(say)) = self.clients[number].files[lock.file].table.end(lock.which) {
            self.say(number, lock.file, say);
        }
    }

    fn close(&mut self, number: usize) -> Result<(), String> {
        let waiting = |file: &usize| {
            let state = &self.clients[number].files[*file];
            !state.closed && !state.put_down
        };
        if let Some(file) = (0..FILES).find(waiting) {
            self.begin_keeping(number, file, Kind::Flush);
            return Ok(());
        }
        while let Some(lock) = self.clients[number].locks.pop() {
            self.unlock(number, &lock);
        }
        for file in 0..FILES {
            if self.clients[number].files[file].closed || !self.may_close(number, file) {
                continue;
            }
            // What could not be taken must not come back over what others write.
            for server in self.left_by(number, file) {
                self.give_up(number, server, Some(file))?;
            }
            let state = &mut self.clients[number].files[file];
            if let Some((held, _)) = state.held.take() {
                state.returned = state.returned.max(held);
                self.links[number].asks.push_back(Ask4::Return { file, number: held });
            }
            state.table.clear();
            state.closed = true;
            self.links[number].asks.push_back(Ask4::Close { file });
        }
        Ok(())
    }

    /// One step of an access.
    fn advance(&mut self, number: usize, mut op: Op) -> Result<(), String> {
        let flow = match op.stage {
            Stage::Drain => self.drained_for(number, &mut op),
            Stage::Start => {
                self.find_lease(number, &mut op)?;
                Flow::On
            }
            Stage::Access => self.do_access(number, &mut op)?,
            Stage::Reading => self.read_one(number, &mut op),
            Stage::Taken => {
                op.stage = Stage::Done;
                let taken = op.record.is_none_or(|record| self.records[record].is_over());
                let lost = !taken && self.is_hopeless(number, op.file);
                if lost { Flow::Failed } else { self.through(number, &op) }
            }
            Stage::Far if op.refused && !op.kind.puts_down() => Flow::Failed,
            Stage::Far => {
                op.stage = Stage::Done;
                Flow::On
            }
            Stage::Done if op.kind.puts_down() => {
                self.clients[number].files[op.file].in_use = false;
                return self.kept(number, op);
            }
            Stage::Done => {
                self.clients[number].files[op.file].in_use = false;
                let ended = self.ended(number, &op);
                if let Some(lock) = op.lock {
                    let said = self.clients[number].files[op.file].table.end(lock);
                    if let Some(Some(say)) = said {
                        self.say(number, op.file, say);
                    }
                }
                return ended;
            }
            Stage::Lease | Stage::Lock => Flow::On,
        };
        match flow {
            Flow::On => self.clients[number].errand = Some(Errand::Access(op)),
            Flow::Failed => self.fail(number, op),
        }
        Ok(())
    }

    fn find_lease(&mut self, number: usize, op: &mut Op) -> Result<(), String> {
        let recalled_is_fine = self.has(ClientBug::UseRecalled);
        // Another thread may ask although there is one.
        let asks_anyway = self.chance.once_in(12);
        let state = &mut self.clients[number].files[op.file];
        let usable = state.held.filter(|(held, _)| state.recalled < *held || recalled_is_fine);
        let usable = usable.filter(|(_, phase)| allows(*phase, op.kind) && !asks_anyway);
        if let Some((_, phase)) = usable {
            let again = state.held.is_some_and(|(held, _)| held <= state.recalled);
            if again {
                return Err(format!("client {number} goes on with a lease that it was asked for"));
            }
            state.in_use = true;
            op.phase = Some(phase);
            op.stage = Stage::Access;
            return Ok(());
        }
        state.acquiring = true;
        self.links[number].asks.push_back(Ask4::Acquire { file: op.file, want: op.kind.want() });
        op.stage = Stage::Lease;
        Ok(())
    }

    fn needs_lock(&self, op: &Op) -> bool {
        let many = 1 < servers_of(&op.cells).len();
        let several = match (op.phase, op.kind) {
            (_, Kind::Sync | Kind::Flush) => false,
            _ if self.atomic => true,
            (Some(Phase::Write {}), Kind::Write) => many,
            (Some(Phase::Mixed {}), _) => true,
            _ => false,
        };
        several && op.lock.is_none() && !self.has(ClientBug::NoLock)
    }

    fn do_access(&mut self, number: usize, op: &mut Op) -> Result<Flow, String> {
        if op.kind.puts_down() {
            return Ok(self.put_down(number, op));
        }
        if self.needs_lock(op) {
            self.find_lock(number, op);
            return Ok(Flow::On);
        }
        if op.lock.is_some() {
            self.seen.visit("access under a lock");
        }
        let far = self.clients[number].node != 0;
        if op.kind == Kind::Read && !far {
            op.waiting = servers_of(&op.cells).into_iter().collect();
            op.stage = Stage::Reading;
            return Ok(Flow::On);
        }
        for server in servers_of(&op.cells) {
            let link = self.clients[number].links[server];
            let gone = !self.servers[server].alive && (!link.up || (!far && !link.attached));
            if gone {
                self.seen.visit("access without its server");
                return Ok(Flow::Failed);
            }
            if !far && !link.attached {
                self.offer(number, server)?;
            }
            self.connect(number, server);
        }
        if op.kind == Kind::Write {
            self.note_unsynced(number, op);
        }
        if far {
            self.send(number, op);
        } else if self.may_go_direct(number, op) {
            return Ok(self.write_directly(op));
        } else {
            self.commit(number, op);
        }
        Ok(Flow::On)
    }

    fn find_lock(&mut self, number: usize, op: &mut Op) {
        let state = &mut self.clients[number].files[op.file];
        // Whoever waits for a lock holds up no lease.
        state.in_use = false;
        let (mode, shape) = (op.kind.mode(), shape_of(&op.cells));
        if let Some(lock) = state.table.begin(ACCESS, mode, &shape) {
            op.lock = Some(lock);
            op.stage = Stage::Start;
            self.seen.visit("lock found here");
            return;
        }
        let (file, ask, bytes, patience) = (op.file, op.ask, bytes_of(&op.cells), Patience::Wait);
        let (space, lane) = (ACCESS.space, ACCESS.lane);
        self.links[number].asks.push_back(Ask4::Lock { file, ask, space, lane, mode, bytes, patience });
        op.stage = Stage::Lock;
    }

    /// From here on something of it may be in a store.
    fn note_unsynced(&mut self, number: usize, op: &mut Op) {
        op.touched = true;
        self.truth.begins(number, op.file, op.tag);
        let client = &mut self.clients[number];
        for server in servers_of(&op.cells) {
            let losses = client.links[server].losses;
            client.files[op.file].unsynced[server].get_or_insert(losses);
        }
    }

    fn send(&mut self, number: usize, op: &mut Op) {
        let mut parts = by_server(&op.cells);
        if self.has(ClientBug::AskNearest) && op.kind == Kind::Read {
            parts = std::iter::once((0, op.cells.clone().collect())).collect();
            self.connect(number, 0);
        }
        op.waiting = parts.keys().copied().collect();
        let (file, tag) = (op.file, op.tag);
        for (server, cells) in parts {
            let data = match op.kind {
                Kind::Read => Data::Read { file, cells, tag },
                Kind::Write | Kind::Sync | Kind::Flush => Data::Write { file, cells, tag },
            };
            self.links[number].data[server].push_back(data);
        }
        op.stage = Stage::Far;
    }

    /// Under an exclusive lease, into objects that are lent, and never past records of the same process.
    fn may_go_direct(&mut self, number: usize, op: &Op) -> bool {
        let lent = servers_of(&op.cells).iter().all(|s| self.servers[*s].runs() && !self.servers[*s].caches);
        let pending = self.records.iter().any(|record| {
            let meets = record.cells.start < op.cells.end && op.cells.start < record.cells.end;
            (record.client, record.file) == (number, op.file) && meets && !record.is_over()
        });
        let alone = op.phase == Some(Phase::Exclusive {});
        alone && lent && (!pending || self.has(ClientBug::DirectPastOwn)) && self.chance.once_in(2)
    }

    fn write_directly(&mut self, op: &mut Op) -> Flow {
        self.seen.visit("write directly");
        self.committed.insert(op.tag, self.step);
        op.stage = Stage::Done;
        for (server, cells) in by_server(&op.cells) {
            for cell in cells {
                if self.put(server, (op.file, cell), op.tag).is_err() {
                    self.seen.visit("direct write refused");
                    return Flow::Failed;
                }
            }
        }
        Flow::On
    }

    fn commit(&mut self, number: usize, op: &mut Op) {
        self.overwrite_oldest(number);
        let mut fate = [Fate::Over; SERVERS];
        let servers = servers_of(&op.cells);
        for server in &servers {
            fate[*server] = Fate::Open;
            self.clients[number].files[op.file].recorded[*server] = true;
        }
        let (file, cells, tag) = (op.file, op.cells.clone(), op.tag);
        let epoch = self.clients[number].epoch;
        let (void, again) = ([false; SERVERS], [false; SERVERS]);
        self.records.push(Record {
            client: number,
            file,
            cells,
            tag,
            fate,
            void,
            again,
            epoch,
            overwritten: false,
        });
        self.committed.insert(tag, self.step);
        op.record = Some(self.records.len() - 1);
        let granted = servers.iter().all(|server| self.servers[*server].grants);
        if !granted {
            self.seen.visit("write without a grant");
        }
        op.through = op.phase == Some(Phase::Mixed {}) || !granted;
        let waits = op.phase == Some(Phase::Mixed {}) || (!granted && !self.has(ClientBug::IgnoreGrant));
        op.stage = if waits { Stage::Taken } else { Stage::Done };
    }

    /// Objects that are lent are read without their server; blocks that a server keeps are asked for.
    fn read_one(&mut self, number: usize, op: &mut Op) -> Flow {
        if self.is_hopeless(number, op.file) && !self.drained(number, op.file) {
            return Flow::Failed;
        }
        if let Some(server) = op.waiting.pop_first() {
            let asked = if self.has(ClientBug::AskNearest) { 0 } else { server };
            for cell in by_server(&op.cells).remove(&server).unwrap_or_default() {
                let of = &mut self.servers[asked];
                if !of.alive && of.caches {
                    return Flow::Failed;
                }
                let Ok(found) = of.read(&mut self.below, op.file, cell) else { return Flow::Failed };
                op.found.insert(cell, found);
            }
        }
        if op.waiting.is_empty() {
            op.stage = Stage::Done;
        }
        Flow::On
    }

    /// After a manager was lost: servers have what they are to take, or it is given up, before the manager hears of us.
    fn recover(&mut self, number: usize) -> Result<(), String> {
        for server in 0..SERVERS {
            let pending = self
                .records
                .iter()
                .any(|record| record.client == number && record.fate[server] == Fate::Open);
            if self.clients[number].links[server].attached || !pending {
                continue;
            }
            if self.servers[server].alive {
                self.offer(number, server)?;
            } else {
                self.give_up(number, server, None)?;
            }
        }
        self.seen.visit("client recovered");
        let client = &mut self.clients[number];
        client.recovering = false;
        client.heard_epoch = client.epoch;
        Ok(())
    }
}
