//! Messages received by clients and servers, and their effects.

use pario_net::message::{LockShape, Phase};

use crate::bugs::ClientBug;
use crate::client::{Errand, OpStage, UserLock, allows};
use crate::manager::{ManagerNotice, ManagerReply};
use crate::server::StoreFull;
use crate::simulation::{ACCESS, DataReply, DataRequest, Simulation, USER, bytes_of, shape_of};

/// Delivery of messages.
impl Simulation {
    pub(crate) fn receive_reply(&mut self, number: usize) -> Result<(), String> {
        let Some(reply) = self.links[number].replies.pop_front() else { return Ok(()) };
        self.note(|| format!("client {number} receives {reply:?}"));
        match reply {
            ManagerReply::Granted { lease } => self.receive_grant(number, lease.number, lease.phase),
            ManagerReply::Locked { ask, number: token, bytes } => {
                self.receive_lock(number, ask, token, bytes)
            }
            ManagerReply::Refused { ask, why } => {
                match self.clients[number].errand.take() {
                    Some(Errand::WantLock { ask: mine, .. }) if mine == ask => {}
                    other => {
                        self.clients[number].errand = other;
                        return Err(format!("client {number}: {why}, without a request"));
                    }
                }
                Ok(())
            }
            ManagerReply::Unrecovered { file } => {
                match self.clients[number].errand.take() {
                    Some(Errand::Access(op)) if op.stage == OpStage::Lease && op.file == file => {
                        self.clients[number].files[file].acquiring = false;
                        self.fail(number, op);
                    }
                    Some(Errand::Looking { .. } | Errand::Stopping { .. }) => {}
                    other => {
                        self.clients[number].errand = other;
                        return Err(format!(
                            "client {number} is refused file {file}: its dead writer cannot be recovered"
                        ));
                    }
                }
                Ok(())
            }
            ManagerReply::Quiet { file } => {
                match self.clients[number].errand.take() {
                    Some(Errand::Looking { file: looked }) if looked == file => {}
                    Some(Errand::Stopping { file: stopped, .. }) if stopped == file => {
                        self.clients[number].errand = Some(Errand::Stopping { file, in_force: true });
                    }
                    other => {
                        self.clients[number].errand = other;
                        return Err(format!("client {number} receives quiet for file {file}"));
                    }
                }
                Ok(())
            }
        }
    }

    fn receive_grant(&mut self, number: usize, lease: u64, phase: Phase) -> Result<(), String> {
        let Some(Errand::Access(op)) = &mut self.clients[number].errand else {
            return Err(format!("client {number} is granted a lease and does not access anything"));
        };
        let (mut op, file) = (op.clone(), op.file);
        let state = &mut self.clients[number].files[file];
        state.acquiring = false;
        if lease <= state.returned {
            // A grant that crossed with our return is void.
            op.stage = OpStage::Start;
        } else {
            if lease <= state.recalled {
                self.seen.visit("lease recalled before its grant");
            }
            state.held = Some((lease, phase));
            if allows(phase, op.kind) {
                state.in_use = true;
                op.phase = Some(phase);
                op.stage = OpStage::Access;
            } else {
                op.stage = OpStage::Start;
            }
        }
        self.clients[number].errand = Some(Errand::Access(op));
        Ok(())
    }

    fn receive_lock(
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
            Some(Errand::Access(mut op)) if op.stage == OpStage::Lock && op.ask == ask => {
                let (file, wished) = (op.file, bytes_of(&op.cells));
                let (mode, cells) = (op.kind.mode(), shape_of(&op.cells));
                let table = &mut self.clients[number].files[file].table;
                op.lock = Some(table.granted(ACCESS, (token, mode, shape), &cells, &mut says));
                op.stage = OpStage::Start;
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
            self.report(number, file, say);
        }
        Ok(())
    }

    pub(crate) fn receive_notice(&mut self, number: usize) {
        let Some(notice) = self.links[number].notices.pop_front() else { return };
        self.note(|| format!("client {number} receives {notice:?}"));
        match notice {
            ManagerNotice::Recall { file, number: lease } => {
                let state = &mut self.clients[number].files[file];
                state.recalled = state.recalled.max(lease);
                if state.in_use {
                    self.seen.visit("lease recalled in use");
                }
            }
            ManagerNotice::RecallLock { file, number: token, wanted } => {
                let forgets = self.has(ClientBug::ForgetEarlyRecall);
                let table = &mut self.clients[number].files[file].table;
                if forgets && !table.knows(token) {
                    return;
                }
                if let Some(say) = table.recalled(token, wanted) {
                    self.report(number, file, say);
                }
            }
        }
    }

    pub(crate) fn serve(&mut self, client: usize, server: usize) -> Result<(), String> {
        let Some(data) = self.links[client].data[server].pop_front() else { return Ok(()) };
        self.note(|| format!("server {server} receives from {client}: {data:?}"));
        let below = &mut self.below;
        let of = &mut self.servers[server];
        let (tag, found) = match data {
            DataRequest::Write { file, cells, tag } => {
                return self.serve_write((client, server), (file, cells, tag));
            }
            DataRequest::Read { file, cells, tag } => {
                self.seen.visit("read by message");
                let found: Result<Vec<(usize, u64)>, StoreFull> =
                    cells.into_iter().map(|cell| Ok((cell, of.read(below, file, cell)?))).collect();
                (tag, found)
            }
            DataRequest::Sync { file, tag } => (tag, of.sync(below, file).map(|()| Vec::new())),
            DataRequest::Flush { file, tag } => (tag, of.flush(below, file).map(|()| Vec::new())),
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
        // Records that the node committed before are drained before.
        while let Some(at) =
            self.records.iter().position(|record| record.file == file && self.is_due(server, record))
            && !self.has(ClientBug::MessageOvertakes)
        {
            self.drain_record(server, at)?;
        }
        self.committed.insert(tag, self.step);
        let mut found = Ok(Vec::new());
        for cell in cells {
            if self.apply_logged(server, (file, cell), tag).is_err() {
                self.seen.visit("message refused");
                found = Err(StoreFull);
            }
        }
        if found.is_err() {
            // The sender is notified, if it is alive.
            self.lose(file, tag, "its server was full")?;
        }
        self.links[client].answers[server].push_back(DataReply { tag, found });
        Ok(())
    }

    pub(crate) fn receive_answer(&mut self, client: usize, server: usize) {
        let Some(answer) = self.links[client].answers[server].pop_front() else { return };
        let Some(Errand::Access(op)) = &mut self.clients[client].errand else { return };
        // A dropped request may be answered late.
        if op.stage != OpStage::Remote || op.tag != answer.tag {
            return;
        }
        op.waiting.remove(&server);
        match answer.found {
            Ok(found) => op.found.extend(found),
            Err(StoreFull) => op.refused = true,
        }
    }
}
