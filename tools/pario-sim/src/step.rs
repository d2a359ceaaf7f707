//! Execution of one event.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::Nanos;
use pario_net::message::{LockMode, Phase};
use pario_server::coherence::WaitLimit;

use crate::bugs::ClientBug;
use crate::client::{ClientOp, Errand, OpKind, OpStage, UserLock, allows};
use crate::manager::ManagerRequest;
use crate::server::{BLOCK_CELLS, by_server, home};
use crate::simulation::{
    ACCESS, CELLS, DataRequest, FILES, PartState, SERVERS, SimEvent, SimRecord, Simulation, USER, bytes_of,
    servers_of, shape_of,
};
use crate::sync::NextAction;

/// What happens.
impl Simulation {
    pub(crate) fn happen(&mut self, event: SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Step(client) => self.step_client(client),
            SimEvent::ReturnLease(client, file) => {
                if !self.has(ClientBug::AbandonNothing) && !self.has(ClientBug::ReturnUndrained) {
                    for server in self.left_by(client, file) {
                        self.drop_records(client, server, Some(file))?;
                    }
                }
                let state = &mut self.clients[client].files[file];
                let Some(number) = state.must_return() else { return Ok(()) };
                state.held = None;
                state.returned = state.returned.max(number);
                self.links[client].asks.push_back(ManagerRequest::Return { file, number });
                Ok(())
            }
            SimEvent::Greet(client) => {
                // Any request shows that it is there.
                self.links[client].asks.push_back(ManagerRequest::Cancel { ask: 0 });
                let Some(ask) = self.links[client].asks.pop_front() else { return Ok(()) };
                self.manager.receive(client, ask, self.now, &mut self.seen)
            }
            SimEvent::Ask(client) => {
                let Some(ask) = self.links[client].asks.pop_front() else { return Ok(()) };
                self.note(|| format!("manager receives from {client}: {ask:?}"));
                self.manager.receive(client, ask, self.now, &mut self.seen)
            }
            SimEvent::Reply(client) => self.receive_reply(client),
            SimEvent::Notice(client) => {
                self.receive_notice(client);
                Ok(())
            }
            SimEvent::Data(client, server) => self.serve(client, server),
            SimEvent::Answer(client, server) => {
                self.receive_answer(client, server);
                Ok(())
            }
            SimEvent::Drain(server) => {
                self.drain_one_of(server)?;
                self.shake(server)
            }
            SimEvent::Stage(server) => {
                self.stage(server);
                Ok(())
            }
            SimEvent::HangUp(client, server) => {
                self.hang_up(client, server);
                Ok(())
            }
            SimEvent::Offer(client, server) => self.offer(client, server),
            SimEvent::Recover(client) => self.recover(client),
            SimEvent::RecoverWriter(at) => self.recover_writer(at),
            SimEvent::RecoverFails(at) => {
                let (file, _) = self.recovering[at];
                self.manager.unrecovered(file, self.now, &mut self.seen)
            }
            SimEvent::NoticeDeath(client) => {
                self.links[client].death_noticed = true;
                self.note(|| format!("manager sees that {client} is dead"));
                self.manager.client_died(client, self.now, &mut self.seen)
            }
            SimEvent::Expire => self.manager.expire(self.now, &mut self.seen),
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
                    self.links[number].asks.push_back(ManagerRequest::Cancel { ask });
                    self.clients[number].errand =
                        Some(Errand::WantLock { file, cells, mode, ask, patience, cancelled: true });
                } else {
                    self.clients[number].errand =
                        Some(Errand::WantLock { file, cells, mode, ask, patience, cancelled: false });
                }
                Ok(())
            }
            Some(Errand::Stopping { file, .. }) => {
                self.links[number].asks.push_back(ManagerRequest::StopEnd { file });
                Ok(())
            }
            Some(errand @ Errand::Looking { .. }) => {
                self.clients[number].errand = Some(errand);
                Ok(())
            }
        }
    }

    fn begin(&mut self, number: usize) {
        let file = self.chance.index(FILES);
        let cells = self.choose_cells(number);
        let client = &mut self.clients[number];
        client.asks += 1;
        let ask = client.asks;
        match self.chance.index(20) {
            0..=3 if client.locks.len() < 2 => self.want_lock(number, (file, cells), ask),
            0..=6 if !client.locks.is_empty() => {
                let at = self.chance.index(client.locks.len());
                let lock = self.clients[number].locks.swap_remove(at);
                self.unlock(number, &lock);
            }
            9..=10 => self.begin_sync(number, file, OpKind::Sync),
            11 => self.begin_sync(number, file, OpKind::Flush),
            7 => {
                self.links[number].asks.push_back(ManagerRequest::Look { file });
                self.clients[number].errand = Some(Errand::Looking { file });
            }
            8 if self.clients[number].files[file].held.is_none() => {
                self.links[number].asks.push_back(ManagerRequest::Stop { file });
                self.clients[number].errand = Some(Errand::Stopping { file, in_force: false });
            }
            _ => {
                self.tags += 1;
                let reads = self.chance.once_in(if self.drains_rarely { 4 } else { 2 });
                let kind = if reads { OpKind::Read } else { OpKind::Write };
                let op = ClientOp {
                    kind,
                    file,
                    cells,
                    tag: self.tags,
                    began: self.step,
                    stage: OpStage::Start,
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

    /// A random range; while a server is dead sometimes one without its blocks.
    fn choose_cells(&mut self, number: usize) -> std::ops::Range<usize> {
        let start = self.chance.index(CELLS);
        let cells = start..start + 1 + self.chance.index(CELLS - start);
        let gone = |server: &usize| !self.clients[number].links[*server].up;
        if servers_of(&cells).iter().any(gone) && self.chance.once_in(2) {
            let there = |cell: &usize| !gone(&home(*cell));
            return (0..CELLS).find(there).map_or(cells, |cell| cell..cell + BLOCK_CELLS);
        }
        cells
    }

    fn want_lock(&mut self, number: usize, (file, cells): (usize, std::ops::Range<usize>), ask: u64) {
        let mode = if self.chance.once_in(3) { LockMode::Shared {} } else { LockMode::Exclusive {} };
        let patience = match self.chance.index(4) {
            0 => WaitLimit::Try,
            1 => WaitLimit::Until(Nanos(self.now.0 + self.chance.next_u64() % 50_000_000)),
            _ => WaitLimit::Wait,
        };
        let table = &mut self.clients[number].files[file].table;
        if let Some(which) = table.begin(USER, mode, &shape_of(&cells)) {
            self.seen.visit("lock found here");
            self.clients[number].locks.push(UserLock { file, cells, mode, which });
            return;
        }
        let bytes = bytes_of(&cells);
        let (space, lane) = (USER.space, USER.owner_slot);
        self.links[number].asks.push_back(ManagerRequest::Lock {
            file,
            ask,
            space,
            owner_slot: lane,
            mode,
            bytes,
            wait_limit: patience,
        });
        self.clients[number].errand =
            Some(Errand::WantLock { file, cells, mode, ask, patience, cancelled: false });
    }

    fn unlock(&mut self, number: usize, lock: &UserLock) {
        if let Some(Some(say)) = self.clients[number].files[lock.file].table.end(lock.which) {
            self.report(number, lock.file, say);
        }
    }

    fn close(&mut self, number: usize) -> Result<(), String> {
        let waiting = |file: &usize| {
            let state = &self.clients[number].files[*file];
            !state.closed && !state.flushed
        };
        if let Some(file) = (0..FILES).find(waiting) {
            self.begin_sync(number, file, OpKind::Flush);
            return Ok(());
        }
        while let Some(lock) = self.clients[number].locks.pop() {
            self.unlock(number, &lock);
        }
        for file in 0..FILES {
            if self.clients[number].files[file].closed || !self.may_close(number, file) {
                continue;
            }
            // Undrained records must not overwrite later writes of other clients.
            for server in self.left_by(number, file) {
                self.drop_records(number, server, Some(file))?;
            }
            let state = &mut self.clients[number].files[file];
            if let Some((held, _)) = state.held.take() {
                state.returned = state.returned.max(held);
                self.links[number].asks.push_back(ManagerRequest::Return { file, number: held });
            }
            state.table.clear();
            state.closed = true;
            self.links[number].asks.push_back(ManagerRequest::Close { file });
        }
        Ok(())
    }

    /// One step of an access.
    fn advance(&mut self, number: usize, mut op: ClientOp) -> Result<(), String> {
        let flow = match op.stage {
            OpStage::Drain => self.drained_for(number, &mut op),
            OpStage::Start => {
                self.find_lease(number, &mut op)?;
                NextAction::On
            }
            OpStage::Access => self.do_access(number, &mut op)?,
            OpStage::Reading => self.read_one(number, &mut op),
            OpStage::Drained => {
                op.stage = OpStage::Done;
                let taken = op.record.is_none_or(|record| self.records[record].is_over());
                let lost = !taken && self.is_hopeless(number, op.file);
                if lost { NextAction::Failed } else { self.through(number, &op) }
            }
            OpStage::Remote if op.refused && !op.kind.flushes() => NextAction::Failed,
            OpStage::Remote => {
                op.stage = OpStage::Done;
                NextAction::On
            }
            OpStage::Done if op.kind.flushes() => {
                self.clients[number].files[op.file].in_use = false;
                return self.finish_sync(number, op);
            }
            OpStage::Done => {
                self.clients[number].files[op.file].in_use = false;
                let ended = self.ended(number, &op);
                if let Some(lock) = op.lock {
                    let said = self.clients[number].files[op.file].table.end(lock);
                    if let Some(Some(say)) = said {
                        self.report(number, op.file, say);
                    }
                }
                return ended;
            }
            OpStage::Lease | OpStage::Lock => NextAction::On,
        };
        match flow {
            NextAction::On => self.clients[number].errand = Some(Errand::Access(op)),
            NextAction::Failed => self.fail(number, op),
        }
        Ok(())
    }

    fn find_lease(&mut self, number: usize, op: &mut ClientOp) -> Result<(), String> {
        let recalled_is_fine = self.has(ClientBug::UseRecalled);
        // Another thread may request a lease although there is one.
        let asks_anyway = self.chance.once_in(12);
        let state = &mut self.clients[number].files[op.file];
        let usable = state.held.filter(|(held, _)| state.recalled < *held || recalled_is_fine);
        let usable = usable.filter(|(_, phase)| allows(*phase, op.kind) && !asks_anyway);
        if let Some((_, phase)) = usable {
            let again = state.held.is_some_and(|(held, _)| held <= state.recalled);
            if again {
                return Err(format!("client {number} continues with a recalled lease"));
            }
            state.in_use = true;
            op.phase = Some(phase);
            op.stage = OpStage::Access;
            return Ok(());
        }
        state.acquiring = true;
        self.links[number].asks.push_back(ManagerRequest::Acquire { file: op.file, want: op.kind.want() });
        op.stage = OpStage::Lease;
        Ok(())
    }

    fn needs_lock(&self, op: &ClientOp) -> bool {
        let many = 1 < servers_of(&op.cells).len();
        let several = match (op.phase, op.kind) {
            (_, OpKind::Sync | OpKind::Flush) => false,
            _ if self.atomic => true,
            (Some(Phase::Write {}), OpKind::Write) => many,
            (Some(Phase::Mixed {}), _) => true,
            _ => false,
        };
        several && op.lock.is_none() && !self.has(ClientBug::NoLock)
    }

    fn do_access(&mut self, number: usize, op: &mut ClientOp) -> Result<NextAction, String> {
        if op.kind.flushes() {
            return Ok(self.request_flush(number, op));
        }
        if self.needs_lock(op) {
            self.find_lock(number, op);
            return Ok(NextAction::On);
        }
        if op.lock.is_some() {
            self.seen.visit("access under a lock");
        }
        let far = self.clients[number].node != 0;
        if op.kind == OpKind::Read && !far {
            op.waiting = servers_of(&op.cells).into_iter().collect();
            op.stage = OpStage::Reading;
            return Ok(NextAction::On);
        }
        for server in servers_of(&op.cells) {
            let link = self.clients[number].links[server];
            let gone = !self.servers[server].alive && (!link.up || (!far && !link.attached));
            if gone {
                self.seen.visit("access without its server");
                return Ok(NextAction::Failed);
            }
            if !far && !link.attached {
                self.offer(number, server)?;
            }
            self.connect(number, server);
        }
        if op.kind == OpKind::Write {
            self.note_unsynced(number, op);
        }
        if far {
            self.send(number, op);
        } else if self.may_go_direct(number, op) {
            return Ok(self.write_directly(op));
        } else {
            self.commit(number, op);
        }
        Ok(NextAction::On)
    }

    fn find_lock(&mut self, number: usize, op: &mut ClientOp) {
        let state = &mut self.clients[number].files[op.file];
        // A client that waits for a lock delays no lease.
        state.in_use = false;
        let (mode, shape) = (op.kind.mode(), shape_of(&op.cells));
        if let Some(lock) = state.table.begin(ACCESS, mode, &shape) {
            op.lock = Some(lock);
            op.stage = OpStage::Start;
            self.seen.visit("lock found here");
            return;
        }
        let (file, ask, bytes, patience) = (op.file, op.ask, bytes_of(&op.cells), WaitLimit::Wait);
        let (space, lane) = (ACCESS.space, ACCESS.owner_slot);
        self.links[number].asks.push_back(ManagerRequest::Lock {
            file,
            ask,
            space,
            owner_slot: lane,
            mode,
            bytes,
            wait_limit: patience,
        });
        op.stage = OpStage::Lock;
    }

    /// From here on a part of it may be in a store.
    fn note_unsynced(&mut self, number: usize, op: &mut ClientOp) {
        op.touched = true;
        self.truth.begins(number, op.file, op.tag);
        let client = &mut self.clients[number];
        for server in servers_of(&op.cells) {
            let losses = client.links[server].losses;
            client.files[op.file].unsynced[server].get_or_insert(losses);
        }
    }

    fn send(&mut self, number: usize, op: &mut ClientOp) {
        let mut parts = by_server(&op.cells);
        if self.has(ClientBug::AskNearest) && op.kind == OpKind::Read {
            parts = std::iter::once((0, op.cells.clone().collect())).collect();
            self.connect(number, 0);
        }
        op.waiting = parts.keys().copied().collect();
        let (file, tag) = (op.file, op.tag);
        for (server, cells) in parts {
            let data = match op.kind {
                OpKind::Read => DataRequest::Read { file, cells, tag },
                OpKind::Write | OpKind::Sync | OpKind::Flush => DataRequest::Write { file, cells, tag },
            };
            self.links[number].data[server].push_back(data);
        }
        op.stage = OpStage::Remote;
    }

    /// Under an exclusive lease, into objects that are lent, and never past records of the same process.
    fn may_go_direct(&mut self, number: usize, op: &ClientOp) -> bool {
        let lent = servers_of(&op.cells).iter().all(|s| self.servers[*s].runs() && !self.servers[*s].caches);
        let pending = self.records.iter().any(|record| {
            let meets = record.cells.start < op.cells.end && op.cells.start < record.cells.end;
            (record.client, record.file) == (number, op.file) && meets && !record.is_over()
        });
        let alone = op.phase == Some(Phase::Exclusive {});
        alone && lent && (!pending || self.has(ClientBug::DirectPastOwn)) && self.chance.once_in(2)
    }

    fn write_directly(&mut self, op: &mut ClientOp) -> NextAction {
        self.seen.visit("write directly");
        self.committed.insert(op.tag, self.step);
        op.stage = OpStage::Done;
        for (server, cells) in by_server(&op.cells) {
            for cell in cells {
                if self.apply(server, (op.file, cell), op.tag).is_err() {
                    self.seen.visit("direct write refused");
                    return NextAction::Failed;
                }
            }
        }
        NextAction::On
    }

    fn commit(&mut self, number: usize, op: &mut ClientOp) {
        self.overwrite_oldest(number);
        let mut fate = [PartState::Over; SERVERS];
        let servers = servers_of(&op.cells);
        for server in &servers {
            fate[*server] = PartState::Open;
            self.clients[number].files[op.file].recorded[*server] = true;
        }
        let (file, cells, tag) = (op.file, op.cells.clone(), op.tag);
        let epoch = self.clients[number].epoch;
        let (void, again) = ([false; SERVERS], [false; SERVERS]);
        self.records.push(SimRecord {
            client: number,
            file,
            cells,
            tag,
            parts: fate,
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
        op.stage = if waits { OpStage::Drained } else { OpStage::Done };
    }

    /// Lent objects are read without their server; blocks cached at a server are requested from it.
    fn read_one(&mut self, number: usize, op: &mut ClientOp) -> NextAction {
        if self.is_hopeless(number, op.file) && !self.drained(number, op.file) {
            return NextAction::Failed;
        }
        if let Some(server) = op.waiting.pop_first() {
            let asked = if self.has(ClientBug::AskNearest) { 0 } else { server };
            for cell in by_server(&op.cells).remove(&server).unwrap_or_default() {
                let of = &mut self.servers[asked];
                if !of.alive && of.caches {
                    return NextAction::Failed;
                }
                let Ok(found) = of.read(&mut self.below, op.file, cell) else { return NextAction::Failed };
                op.found.insert(cell, found);
            }
        }
        if op.waiting.is_empty() {
            op.stage = OpStage::Done;
        }
        NextAction::On
    }

    /// After the loss of a manager: servers drain their records, or these are dropped, before the new manager is contacted.
    fn recover(&mut self, number: usize) -> Result<(), String> {
        for server in 0..SERVERS {
            let pending = self
                .records
                .iter()
                .any(|record| record.client == number && record.parts[server] == PartState::Open);
            if self.clients[number].links[server].attached || !pending {
                continue;
            }
            if self.servers[server].alive {
                self.offer(number, server)?;
            } else {
                self.drop_records(number, server, None)?;
            }
        }
        self.seen.visit("client recovered");
        let client = &mut self.clients[number];
        client.recovering = false;
        client.recovered_epoch = client.epoch;
        Ok(())
    }
}
