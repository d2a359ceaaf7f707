//! Sync and flush: what they promise, they wait for; and errors that happened behind a program's back.
//!
//! Always: a fault that is kept is told by the next sync, flush or close of its file, once.

use std::collections::{BTreeMap, BTreeSet};

use crate::bugs::ClientBug;
use crate::client::{Errand, Kind, Op, Stage};
use crate::truth::Promise;
use crate::world::{Data, SERVERS, World};

/// What an access goes on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    On,
    Failed,
}

impl World {
    pub(crate) fn begin_keeping(&mut self, number: usize, file: usize, kind: Kind) {
        let client = &mut self.clients[number];
        client.asks += 1;
        let noted = std::mem::take(&mut client.files[file].unsynced);
        let op = Op {
            kind,
            file,
            cells: 0..0,
            tag: 0,
            began: self.step,
            stage: Stage::Drain,
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

    /// All records are taken, or cannot be.
    pub(crate) fn drained_for(&mut self, number: usize, op: &mut Op) -> Flow {
        if !self.drained(number, op.file) {
            return if self.is_hopeless(number, op.file) { Flow::Failed } else { Flow::On };
        }
        self.collect_errors(number, op.file);
        let noted: Vec<usize> = (0..SERVERS).filter(|server| op.noted[*server].is_some()).collect();
        if op.kind == Kind::Flush {
            for server in &noted {
                if !self.clients[number].links[*server].up && !self.servers[*server].alive {
                    return Flow::Failed;
                }
                self.connect(number, *server);
            }
        }
        let asks_nobody = op.kind == Kind::Flush && noted.iter().all(|server| !self.servers[*server].caches);
        op.stage = if noted.is_empty() || asks_nobody { Stage::Done } else { Stage::Start };
        Flow::On
    }

    /// Servers are asked to put down what they have.
    pub(crate) fn put_down(&mut self, number: usize, op: &mut Op) -> Flow {
        let concerned = |server: &usize| {
            op.noted[*server].is_some() && (op.kind == Kind::Sync || self.servers[*server].caches)
        };
        let servers: Vec<usize> = (0..SERVERS).filter(concerned).collect();
        for server in &servers {
            if !self.clients[number].links[*server].up && !self.servers[*server].alive {
                return Flow::Failed;
            }
            self.connect(number, *server);
        }
        self.tags += 1;
        op.tag = self.tags;
        op.waiting = servers.iter().copied().collect();
        for server in servers {
            let data = match op.kind {
                Kind::Sync => Data::Sync { file: op.file, tag: op.tag },
                Kind::Flush | Kind::Read | Kind::Write => Data::Flush { file: op.file, tag: op.tag },
            };
            self.links[number].data[server].push_back(data);
        }
        op.stage = Stage::Far;
        Flow::On
    }

    /// All servers have done so: what the program hears, and what it was promised.
    pub(crate) fn kept(&mut self, number: usize, op: Op) -> Result<(), String> {
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
            // What came since is not synced for that.
            if op.kind == Kind::Flush && !(lost && forgets) {
                state.unsynced[server] = Some(client.links[server].losses);
            }
        }
        let told = std::mem::take(&mut state.faults);
        self.end_keeping(number, op.file);
        if 0 < told {
            self.seen.visit("fault told");
            self.note(|| format!("client {number} hears of {told} faults of file {}", op.file));
            self.truth.told(number, op.file);
            return Ok(());
        }
        self.note(|| format!("client {number}, file {}: {:?} is done", op.file, op.kind));
        let (promise, found) = match op.kind {
            Kind::Sync => (Promise::Synced, &self.below.stable[op.file]),
            Kind::Flush | Kind::Read | Kind::Write => (Promise::PutDown, &self.below.store[op.file]),
        };
        self.seen.visit(if promise == Promise::Synced { "synced" } else { "put down" });
        self.truth.promised((number, op.file), promise, found)
    }

    /// The last one before close is over, however it ended.
    fn end_keeping(&mut self, number: usize, file: usize) {
        let client = &mut self.clients[number];
        if client.left == 0 {
            client.files[file].put_down = true;
        }
    }

    /// An access ends with an error.
    pub(crate) fn fail(&mut self, number: usize, op: Op) {
        self.seen.visit("access failed");
        self.note(|| format!("client {number}: {:?} of file {} fails at {:?}", op.kind, op.file, op.stage));
        self.clients[number].files[op.file].in_use = false;
        if let Some(lock) = op.lock
            && let Some(Some(say)) = self.clients[number].files[op.file].table.end(lock)
        {
            self.say(number, op.file, say);
        }
        if op.kind.puts_down() {
            self.put_back(number, &op);
            self.end_keeping(number, op.file);
            if self.clients[number].left == 0 {
                self.truth.told(number, op.file);
            }
        } else if op.touched {
            self.torn[op.file] |= op.kind == Kind::Write;
            self.abandoned(number, &op);
        }
    }

    /// What was not synced is the next sync's.
    pub(crate) fn put_back(&mut self, number: usize, op: &Op) {
        let unsynced = &mut self.clients[number].files[op.file].unsynced;
        for (place, noted) in unsynced.iter_mut().zip(op.noted) {
            *place = noted.or(*place);
        }
    }

    /// Errors that servers met since the file last looked.
    pub(crate) fn collect_errors(&mut self, number: usize, file: usize) {
        for server in 0..SERVERS {
            let link = self.clients[number].links[server];
            let state = &mut self.clients[number].files[file];
            if !link.attached || link.cursor.errors == 0 || state.heard[server] == link.cursor {
                continue;
            }
            state.heard[server] = link.cursor;
            let of = &mut self.servers[server];
            // One that is gone cannot say which file it was.
            let is_mine = of.life != link.cursor.life || !of.alive || of.errors.remove(&(number, file));
            if is_mine {
                self.seen.visit("error collected");
                state.faults += 1;
            }
        }
    }

    /// A write that was waited for has come through, or has not.
    pub(crate) fn through(&mut self, number: usize, op: &Op) -> Flow {
        if self.has(ClientBug::ReturnUntaken) || self.has(ClientBug::IgnoreGrant) {
            return Flow::On;
        }
        self.collect_errors(number, op.file);
        if std::mem::take(&mut self.clients[number].files[op.file].faults) == 0 {
            return Flow::On;
        }
        self.seen.visit("fault told by a write");
        self.truth.told(number, op.file);
        Flow::Failed
    }
}
