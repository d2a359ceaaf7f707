//! Sync and flush: they wait for the state that they promise; and asynchronous errors.
//!
//! Always: a kept fault is reported by the next sync, flush or close of its file, once.

use std::collections::{BTreeMap, BTreeSet};

use crate::bugs::ClientBug;
use crate::client::{ClientOp, Errand, OpKind, OpStage};
use crate::oracle::WritePromise;
use crate::simulation::{DataRequest, SERVERS, Simulation};

/// Next action of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextAction {
    On,
    Failed,
}

impl Simulation {
    pub(crate) fn begin_sync(&mut self, number: usize, file: usize, kind: OpKind) {
        let client = &mut self.clients[number];
        client.asks += 1;
        let noted = std::mem::take(&mut client.files[file].unsynced);
        let op = ClientOp {
            kind,
            file,
            cells: 0..0,
            tag: 0,
            began: self.step,
            stage: OpStage::Drain,
            phase: None,
            ask: client.asks,
            lock: None,
            found: BTreeMap::new(),
            waiting: BTreeSet::new(),
            record: None,
            touched: false,
            refused: false,
            through: false,
            noted,
        };
        client.errand = Some(Errand::Access(op));
    }

    /// All records are drained, or cannot be.
    pub(crate) fn drained_for(&mut self, number: usize, op: &mut ClientOp) -> NextAction {
        if !self.drained(number, op.file) {
            return if self.is_hopeless(number, op.file) { NextAction::Failed } else { NextAction::On };
        }
        self.collect_errors(number, op.file);
        let noted: Vec<usize> = (0..SERVERS).filter(|server| op.noted[*server].is_some()).collect();
        if op.kind == OpKind::Flush {
            for server in &noted {
                if !self.clients[number].links[*server].up && !self.servers[*server].alive {
                    return NextAction::Failed;
                }
                self.connect(number, *server);
            }
        }
        let asks_nobody =
            op.kind == OpKind::Flush && noted.iter().all(|server| !self.servers[*server].caches);
        op.stage = if noted.is_empty() || asks_nobody { OpStage::Done } else { OpStage::Start };
        NextAction::On
    }

    /// Requests the servers to flush.
    pub(crate) fn request_flush(&mut self, number: usize, op: &mut ClientOp) -> NextAction {
        let concerned = |server: &usize| {
            op.noted[*server].is_some() && (op.kind == OpKind::Sync || self.servers[*server].caches)
        };
        let servers: Vec<usize> = (0..SERVERS).filter(concerned).collect();
        for server in &servers {
            if !self.clients[number].links[*server].up && !self.servers[*server].alive {
                return NextAction::Failed;
            }
            self.connect(number, *server);
        }
        self.tags += 1;
        op.tag = self.tags;
        op.waiting = servers.iter().copied().collect();
        for server in servers {
            let data = match op.kind {
                OpKind::Sync => DataRequest::Sync { file: op.file, tag: op.tag },
                OpKind::Flush | OpKind::Read | OpKind::Write => {
                    DataRequest::Flush { file: op.file, tag: op.tag }
                }
            };
            self.links[number].data[server].push_back(data);
        }
        op.stage = OpStage::Remote;
        NextAction::On
    }

    /// All servers have flushed: the program's result, and the promise made to it.
    pub(crate) fn finish_sync(&mut self, number: usize, op: ClientOp) -> Result<(), String> {
        if op.refused {
            self.seen.visit("sync or flush refused");
            self.fail(number, op);
            return Ok(());
        }
        let forgets = self.has(ClientBug::ForgetUnsynced);
        let client = &mut self.clients[number];
        let state = &mut client.files[op.file];
        for server in 0..SERVERS {
            let Some(losses) = op.noted[server] else { continue };
            let lost = losses < client.links[server].losses;
            if lost {
                self.seen.visit("bytes went with their server");
                state.faults += 1;
            }
            // Bytes written since are not synced by that.
            if op.kind == OpKind::Flush && !(lost && forgets) {
                state.unsynced[server] = Some(client.links[server].losses);
            }
        }
        let told = std::mem::take(&mut state.faults);
        self.end_sync(number, op.file);
        if 0 < told {
            self.seen.visit("fault told");
            self.note(|| format!("client {number} receives {told} faults of file {}", op.file));
            self.truth.report(number, op.file);
            return Ok(());
        }
        self.note(|| format!("client {number}, file {}: {:?} is done", op.file, op.kind));
        let (promise, found) = match op.kind {
            OpKind::Sync => (WritePromise::Synced, &self.below.stable[op.file]),
            OpKind::Flush | OpKind::Read | OpKind::Write => {
                (WritePromise::Flushed, &self.below.store[op.file])
            }
        };
        self.seen.visit(if promise == WritePromise::Synced { "synced" } else { "put down" });
        self.truth.promised((number, op.file), promise, found)
    }

    /// The last one before close is over, however it ended.
    fn end_sync(&mut self, number: usize, file: usize) {
        let client = &mut self.clients[number];
        if client.left == 0 {
            client.files[file].flushed = true;
        }
    }

    /// An access ends with an error.
    pub(crate) fn fail(&mut self, number: usize, op: ClientOp) {
        self.seen.visit("access failed");
        self.note(|| format!("client {number}: {:?} of file {} fails at {:?}", op.kind, op.file, op.stage));
        self.clients[number].files[op.file].in_use = false;
        if let Some(lock) = op.lock
            && let Some(Some(say)) = self.clients[number].files[op.file].table.end(lock)
        {
            self.report(number, op.file, say);
        }
        if op.kind.flushes() {
            self.restore_unsynced(number, &op);
            self.end_sync(number, op.file);
            if self.clients[number].left == 0 {
                self.truth.report(number, op.file);
            }
        } else if op.touched {
            self.torn[op.file] |= op.kind == OpKind::Write;
            self.abandoned(number, &op);
        }
    }

    /// Unsynced servers are left to the next sync.
    pub(crate) fn restore_unsynced(&mut self, number: usize, op: &ClientOp) {
        let unsynced = &mut self.clients[number].files[op.file].unsynced;
        for (place, noted) in unsynced.iter_mut().zip(op.noted) {
            *place = noted.or(*place);
        }
    }

    /// Errors of servers since the file's last query.
    pub(crate) fn collect_errors(&mut self, number: usize, file: usize) {
        for server in 0..SERVERS {
            let link = self.clients[number].links[server];
            let state = &mut self.clients[number].files[file];
            if !link.attached || link.cursor.errors == 0 || state.queried_errors[server] == link.cursor {
                continue;
            }
            state.queried_errors[server] = link.cursor;
            let of = &mut self.servers[server];
            // A dead server cannot report the file.
            let is_mine = of.life != link.cursor.life || !of.alive || of.errors.remove(&(number, file));
            if is_mine {
                self.seen.visit("error collected");
                state.faults += 1;
            }
        }
    }

    /// A synchronous write has completed, or failed.
    pub(crate) fn through(&mut self, number: usize, op: &ClientOp) -> NextAction {
        if self.has(ClientBug::ReturnUntaken) || self.has(ClientBug::IgnoreGrant) {
            return NextAction::On;
        }
        self.collect_errors(number, op.file);
        if std::mem::take(&mut self.clients[number].files[op.file].faults) == 0 {
            return NextAction::On;
        }
        self.seen.visit("fault told by a write");
        self.truth.report(number, op.file);
        NextAction::Failed
    }
}
