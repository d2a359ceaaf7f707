//! What happens, one event at a time.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::Nanos;
use pario_net::message::{LockMode, LockShape, Phase};
use pario_server::coherence::Patience;

use crate::bugs::ClientBug;
use crate::client::{Errand, Kind, Op, Stage, UserLock, allows};
use crate::manager::{Ask4, Notice, Reply};
use crate::world::{
    ACCESS, CELLS, Data, DataReply, Event, FILES, Record, SERVERS, USER, World, bytes_of, servers_of,
    shape_of,
};

/// What happens.
impl World {
    pub(crate) fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Step(client) => self.step_client(client),
            Event::GiveBack(client, file) => {
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
            Event::Data(client, server) => {
                self.serve(client, server);
                Ok(())
            }
            Event::Answer(client, server) => {
                self.hear_answer(client, server);
                Ok(())
            }
            Event::Take(server) => {
                self.take(server);
                Ok(())
            }
            Event::Settle(at) => self.settle(at),
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
            None if self.clients[number].left == 0 => {
                self.close(number);
                Ok(())
            }
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
        let start = self.chance.below(CELLS);
        let cells = start..start + 1 + self.chance.below(CELLS - start);
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
                let kind = if self.chance.once_in(2) { Kind::Read } else { Kind::Write };
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
                };
                self.clients[number].errand = Some(Errand::Access(op));
            }
        }
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

    fn close(&mut self, number: usize) {
        while let Some(lock) = self.clients[number].locks.pop() {
            self.unlock(number, &lock);
        }
        for file in 0..FILES {
            if self.clients[number].files[file].closed || !self.may_close(number, file) {
                continue;
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
    }

    /// One step of an access.
    fn advance(&mut self, number: usize, mut op: Op) -> Result<(), String> {
        match op.stage {
            Stage::Start => self.find_lease(number, &mut op)?,
            Stage::Access => self.do_access(number, &mut op),
            Stage::Reading => self.read_one(&mut op),
            Stage::Taken | Stage::Far => op.stage = Stage::Done,
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
            Stage::Lease | Stage::Lock => {}
        }
        self.clients[number].errand = Some(Errand::Access(op));
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
            _ if self.atomic => true,
            (Some(Phase::Write {}), Kind::Write) => many,
            (Some(Phase::Mixed {}), _) => true,
            _ => false,
        };
        several && op.lock.is_none() && !self.has(ClientBug::NoLock)
    }

    fn do_access(&mut self, number: usize, op: &mut Op) {
        if self.needs_lock(op) {
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
            return;
        }
        if op.lock.is_some() {
            self.seen.visit("access under a lock");
        }
        let servers = servers_of(&op.cells);
        let far = self.clients[number].node != 0;
        op.touched = true;
        op.waiting = servers.iter().copied().collect();
        match (op.kind, far) {
            (Kind::Write, false) => {
                let mut taken = [true; SERVERS];
                servers.iter().for_each(|server| taken[*server] = false);
                let (file, cells, tag) = (op.file, op.cells.clone(), op.tag);
                self.records.push(Record { client: number, file, cells, tag, taken });
                op.record = Some(self.records.len() - 1);
                op.stage = if op.phase == Some(Phase::Mixed {}) { Stage::Taken } else { Stage::Done };
            }
            (Kind::Read, false) => op.stage = Stage::Reading,
            (kind, true) => {
                for server in servers {
                    let cells: Vec<usize> =
                        op.cells.clone().filter(|cell| cell % SERVERS == server).collect();
                    let data = match kind {
                        Kind::Write => Data::Write { file: op.file, cells, tag: op.tag },
                        Kind::Read => Data::Read { file: op.file, cells, tag: op.tag },
                    };
                    self.links[number].data[server].push_back(data);
                }
                op.stage = Stage::Far;
            }
        }
    }

    fn read_one(&mut self, op: &mut Op) {
        if let Some(server) = op.waiting.pop_first() {
            for cell in op.cells.clone().filter(|cell| cell % SERVERS == server) {
                op.found.insert(cell, self.cells[op.file][cell]);
            }
        }
        if op.waiting.is_empty() {
            op.stage = Stage::Done;
        }
    }

    fn hear_reply(&mut self, number: usize) -> Result<(), String> {
        let Some(reply) = self.links[number].replies.pop_front() else { return Ok(()) };
        self.note(|| format!("client {number} hears {reply:?}"));
        match reply {
            Reply::Granted { lease } => self.hear_grant(number, lease.number, lease.phase),
            Reply::Locked { ask, number: token, bytes } => self.hear_lock(number, ask, token, bytes),
            Reply::Refused { ask, why } => {
                match self.clients[number].errand.take() {
                    Some(Errand::WantLock { ask: mine, .. }) if mine == ask => {}
                    other => {
                        self.clients[number].errand = other;
                        return Err(format!("client {number}: {why}, and nobody wished for it"));
                    }
                }
                Ok(())
            }
            Reply::Quiet { file } => {
                match self.clients[number].errand.take() {
                    Some(Errand::Looking { file: looked }) if looked == file => {}
                    Some(Errand::Stopping { file: stopped, .. }) if stopped == file => {
                        self.clients[number].errand = Some(Errand::Stopping { file, in_force: true });
                    }
                    other => {
                        self.clients[number].errand = other;
                        return Err(format!("client {number} is told that file {file} is quiet"));
                    }
                }
                Ok(())
            }
        }
    }

    fn hear_grant(&mut self, number: usize, lease: u64, phase: Phase) -> Result<(), String> {
        let Some(Errand::Access(op)) = &mut self.clients[number].errand else {
            return Err(format!("client {number} is granted a lease and does not access anything"));
        };
        let (mut op, file) = (op.clone(), op.file);
        let state = &mut self.clients[number].files[file];
        state.acquiring = false;
        if lease <= state.returned {
            // One that crossed with our giving it back is void.
            op.stage = Stage::Start;
        } else {
            if lease <= state.recalled {
                self.seen.visit("lease recalled before its grant");
            }
            state.held = Some((lease, phase));
            if allows(phase, op.kind) {
                state.in_use = true;
                op.phase = Some(phase);
                op.stage = Stage::Access;
            } else {
                op.stage = Stage::Start;
            }
        }
        self.clients[number].errand = Some(Errand::Access(op));
        Ok(())
    }

    fn hear_lock(
        &mut self,
        number: usize,
        ask: u64,
        token: u64,
        bytes: std::ops::Range<u64>,
    ) -> Result<(), String> {
        let mut says = Vec::new();
        let shape = LockShape::Bytes { start: bytes.start, end: bytes.end };
        let whole = bytes == (0..u64::MAX);
        let (file, wished) = match self.clients[number].errand.take() {
            Some(Errand::Access(mut op)) if op.stage == Stage::Lock && op.ask == ask => {
                let (file, wished) = (op.file, bytes_of(&op.cells));
                let (mode, cells) = (op.kind.mode(), shape_of(&op.cells));
                let table = &mut self.clients[number].files[file].table;
                op.lock = Some(table.granted(ACCESS, (token, mode, shape), &cells, &mut says));
                op.stage = Stage::Start;
                self.clients[number].errand = Some(Errand::Access(op));
                (file, wished)
            }
            Some(Errand::WantLock { file, cells, mode, ask: mine, .. }) if mine == ask => {
                let table = &mut self.clients[number].files[file].table;
                let which = table.granted(USER, (token, mode, shape), &shape_of(&cells), &mut says);
                let wished = bytes_of(&cells);
                self.clients[number].locks.push(UserLock { file, cells, mode, which });
                (file, wished)
            }
            other => {
                self.clients[number].errand = other;
                return Err(format!("client {number} is given a lock that it does not wait for"));
            }
        };
        if !whole && bytes != wished {
            self.seen.visit("lock granted ahead");
        }
        for say in says {
            self.seen.visit("lock recalled before its grant");
            self.say(number, file, say);
        }
        Ok(())
    }

    fn hear_notice(&mut self, number: usize) {
        let Some(notice) = self.links[number].notices.pop_front() else { return };
        self.note(|| format!("client {number} is told {notice:?}"));
        match notice {
            Notice::Recall { file, number: lease } => {
                let state = &mut self.clients[number].files[file];
                state.recalled = state.recalled.max(lease);
                if state.in_use {
                    self.seen.visit("lease recalled in use");
                }
            }
            Notice::RecallLock { file, number: token, wanted } => {
                let forgets = self.has(ClientBug::ForgetEarlyRecall);
                let table = &mut self.clients[number].files[file].table;
                if forgets && !table.knows(token) {
                    return;
                }
                if let Some(say) = table.recalled(token, wanted) {
                    self.say(number, file, say);
                }
            }
        }
    }

    fn serve(&mut self, client: usize, server: usize) {
        let Some(data) = self.links[client].data[server].pop_front() else { return };
        let answer = match data {
            Data::Write { file, cells, tag } => {
                self.seen.visit("write by message");
                // What the node has committed before is taken before.
                while let Some(at) =
                    self.records.iter().position(|record| record.file == file && !record.taken[server])
                    && !self.has(ClientBug::MessageOvertakes)
                {
                    self.take_one(server, at);
                }
                cells.iter().for_each(|cell| self.cells[file][*cell] = tag);
                DataReply { tag, found: Vec::new() }
            }
            Data::Read { file, cells, tag } => {
                self.seen.visit("read by message");
                DataReply {
                    tag,
                    found: cells.into_iter().map(|cell| (cell, self.cells[file][cell])).collect(),
                }
            }
        };
        self.links[client].answers[server].push_back(answer);
    }

    fn hear_answer(&mut self, client: usize, server: usize) {
        let Some(answer) = self.links[client].answers[server].pop_front() else { return };
        let Some(Errand::Access(op)) = &mut self.clients[client].errand else { return };
        // One that was given up may be answered late.
        if op.stage != Stage::Far || op.tag != answer.tag {
            return;
        }
        op.waiting.remove(&server);
        op.found.extend(answer.found);
    }

    fn take(&mut self, server: usize) {
        let open = |record: &Record| !record.taken[server];
        let newest = self.has(ClientBug::TakeNewest);
        let at =
            if newest { self.records.iter().rposition(open) } else { self.records.iter().position(open) };
        let Some(at) = at else { return };
        self.take_one(server, at);
    }

    fn take_one(&mut self, server: usize, at: usize) {
        let record = &mut self.records[at];
        record.taken[server] = true;
        let (file, tag, client) = (record.file, record.tag, record.client);
        for cell in record.cells.clone().filter(|cell| cell % SERVERS == server) {
            self.cells[file][cell] = tag;
        }
        self.seen.visit(if self.clients[client].alive { "record taken" } else { "record of the dead taken" });
        self.note(|| format!("server {server} takes {tag} of client {client}, file {file}"));
    }

    /// What a client left is brought in, before its file goes on.
    fn settle(&mut self, at: usize) -> Result<(), String> {
        let (file, client) = self.settling.swap_remove(at);
        if !self.has(ClientBug::SettleNothing) {
            for server in 0..SERVERS {
                let mine =
                    |record: &Record| record.client == client && record.file == file && !record.taken[server];
                while let Some(last) = self.records.iter().rposition(mine) {
                    let first = self.records.iter().position(|record| !record.taken[server]).unwrap_or(last);
                    self.take_one(server, first);
                }
            }
        }
        self.manager.settled(file, client, self.now, &mut self.seen)
    }
}
