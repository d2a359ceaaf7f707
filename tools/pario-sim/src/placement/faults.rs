//! Faults: servers killed and stopped, connections cut, memory and disk short, and the repair of all faults.

use pario_core::{Code, Fault};

use super::access::parts;
use super::simulation::{PlacementOp, PlacementSim};

impl PlacementSim {
    /// Injects a fault. Returns the killed server, if any.
    pub(super) fn fault(&mut self) -> Option<usize> {
        let server = self.chance.index(self.servers.len());
        let alive = self.servers.iter().filter(|server| server.alive).count();
        match self.chance.index(16) {
            0 if 1 < alive && self.servers[server].alive && self.chance.once_in(3) => {
                self.kill(server);
                return Some(server);
            }
            1 | 2 if self.servers[server].alive => {
                self.servers[server].stopped = true;
                self.seen.visit("owner stopped");
            }
            3..=5 => {
                self.net.disconnected.clear();
                self.servers.iter_mut().for_each(|server| server.stopped = false);
            }
            6..=11 => {
                let other = self.chance.index(self.servers.len());
                if server != other {
                    self.seen.visit("connection cut");
                    self.note(|| format!("the connection of {server} and {other} is cut"));
                    self.cut(server, other);
                }
            }
            12 | 13 => {
                let blocks = Some(self.chance.index(4) as u64).filter(|blocks| *blocks < 3);
                self.servers[server].press(blocks);
                self.seen.visit("pool short");
            }
            14 => {
                self.plain.full = !self.plain.full;
                self.seen.visit("plain file full");
            }
            _ => self.plain.full = false,
        }
        None
    }

    fn kill(&mut self, server: usize) {
        self.seen.visit("owner killed");
        self.note(|| format!("server {server} is killed"));
        self.servers[server].alive = false;
        self.servers[server].stopped = false;
        self.tasks.retain(|_, task| task.server != server);
        let now = self.step;
        for at in 0..self.clients.len() {
            if self.clients[at].server != server {
                continue;
            }
            self.clients[at].left = 0;
            if let Some(op) = self.clients[at].op.take().filter(|op| op.writes) {
                self.truth.never_ends(op.tag, parts(&op, now, None));
            }
        }
        self.kill_server(server);
        self.hang_up(server);
        if self.sync.is_some() {
            if let Some(sync) = &mut self.sync {
                sync.failed = true;
            }
            self.refreshed(server, false);
        }
    }

    /// No faults from now on; dead servers stay dead.
    pub(super) fn heal(&mut self) {
        self.healed.get_or_insert(self.step);
        self.plain.full = false;
        self.net.disconnected.clear();
        for server in &mut self.servers {
            server.stopped = false;
            server.press(None);
        }
    }

    /// An access failed: if it began after the repair, only a dead server is a valid cause.
    pub(super) fn judge_fault(&mut self, op: &PlacementOp, fault: &Fault) {
        let names = |server: usize| fault.text.contains(&format!("server {server} "));
        let dead = (0..self.servers.len()).any(|server| !self.servers[server].alive && names(server));
        if dead && fault.code == Code::Unreachable {
            self.seen.visit("access failed and names the dead");
        } else if self.healed.is_some_and(|healed| healed < op.began) {
            self.violate(format!("{op:?} failed without a fault present: {fault}"));
        } else {
            self.seen.visit("access failed on the way");
        }
    }
}
