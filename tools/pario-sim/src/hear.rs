//! What clients and servers are told, and what they make of it.

use pario_net::message::{LockShape, Phase};

use crate::bugs::ClientBug;
use crate::client::{Errand, Stage, UserLock, allows};
use crate::manager::{Notice, Reply};
use crate::server::Refused;
use crate::world::{ACCESS, Data, DataReply, USER, World, bytes_of, shape_of};

/// What is heard.
impl World {
    pub(crate) fn hear_reply(&mut self, number: usize) -> Result<(), String> {
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
            Reply::Unsettled { file } => {
                match self.clients[number].errand.take() {
                    Some(Errand::Access(op)) if op.stage == Stage::Lease && op.file == file => {
                        self.clients[number].files[file].acquiring = false;
                        self.fail(number, op);
                    }
                    Some(Errand::Looking { .. } | Errand::Stopping { .. }) => {}
                    other => {
                        self.clients[number].errand = other;
                        return Err(format!("client {number} is told that file {file} cannot be settled"));
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

    pub(crate) fn hear_notice(&mut self, number: usize) {
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

    pub(crate) fn serve(&mut self, client: usize, server: usize) -> Result<(), String> {
        let Some(data) = self.links[client].data[server].pop_front() else { return Ok(()) };
        self.note(|| format!("server {server} hears {client}: {data:?}"));
        let below = &mut self.below;
        let of = &mut self.servers[server];
        let (tag, found) = match data {
            Data::Write { file, cells, tag } => {
                return self.serve_write((client, server), (file, cells, tag));
            }
            Data::Read { file, cells, tag } => {
                self.seen.visit("read by message");
                let found: Result<Vec<(usize, u64)>, Refused> =
                    cells.into_iter().map(|cell| Ok((cell, of.read(below, file, cell)?))).collect();
                (tag, found)
            }
            Data::Sync { file, tag } => (tag, of.sync(below, file).map(|()| Vec::new())),
            Data::Flush { file, tag } => (tag, of.flush(below, file).map(|()| Vec::new())),
        };
        self.links[client].answers[server].push_back(DataReply { tag, found });
        Ok(())
    }

    fn serve_write(
        &mut self,
        (client, server): (usize, usize),
        (file, cells, tag): (usize, Vec<usize>, u64),
    ) -> Result<(), String> {
        self.seen.visit("write by message");
        // What the node has committed before is taken before.
        while let Some(at) =
            self.records.iter().position(|record| record.file == file && self.is_due(server, record))
            && !self.has(ClientBug::MessageOvertakes)
        {
            self.take_one(server, at)?;
        }
        self.committed.insert(tag, self.step);
        let mut found = Ok(Vec::new());
        for cell in cells {
            if self.put_ahead(server, (file, cell), tag).is_err() {
                self.seen.visit("message refused");
                found = Err(Refused);
            }
        }
        if found.is_err() {
            // Whoever sent it hears so, if it is still there.
            self.lose(file, tag, "its server was full")?;
        }
        self.links[client].answers[server].push_back(DataReply { tag, found });
        Ok(())
    }

    pub(crate) fn hear_answer(&mut self, client: usize, server: usize) {
        let Some(answer) = self.links[client].answers[server].pop_front() else { return };
        let Some(Errand::Access(op)) = &mut self.clients[client].errand else { return };
        // One that was given up may be answered late.
        if op.stage != Stage::Far || op.tag != answer.tag {
            return;
        }
        op.waiting.remove(&server);
        match answer.found {
            Ok(found) => op.found.extend(found),
            Err(Refused) => op.refused = true,
        }
    }
}
