//! What goes wrong: processes and servers that are killed, stopped, restarted, and the end of all that.

use crate::bugs::ClientBug;
use crate::client::{Errand, Stage};
use crate::world::{SERVERS, World};

/// Faults.
impl World {
    pub(crate) fn fault(&mut self) -> Result<(), String> {
        let client = self.chance.below(self.clients.len());
        match self.chance.below(8) {
            0 if 1 < self.clients.iter().filter(|client| client.alive).count()
                && self.clients[client].alive =>
            {
                self.kill(client);
            }
            1 | 2 if self.clients[client].alive => {
                self.clients[client].stopped = true;
                self.seen.visit("process stopped");
            }
            3 => self.clients[client].stopped = false,
            4 => {
                let server = self.chance.below(SERVERS);
                self.servers_stopped[server] = true;
                self.seen.visit("server stopped");
            }
            5 => self.servers_stopped = [false; SERVERS],
            6 if self.chance.once_in(2) => self.restart_manager(),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn heal(&mut self) {
        self.servers_stopped = [false; SERVERS];
        self.clients.iter_mut().for_each(|client| client.stopped = false);
    }

    fn kill(&mut self, number: usize) {
        self.seen.visit("process killed");
        self.note(|| format!("client {number} is killed"));
        let client = &mut self.clients[number];
        client.alive = false;
        client.stopped = false;
        if !client.locks.is_empty() {
            self.seen.visit("process killed under a lock");
        }
        if let Some(Errand::Access(op)) = self.clients[number].errand.take() {
            if self.clients[number].files[op.file].in_use {
                self.seen.visit("process killed in an access");
            }
            self.abandoned(number, &op);
        }
        // What was sent last may not have left.
        let links = &mut self.links[number];
        let kept = self.chance.below(links.asks.len() + 1);
        links.asks.truncate(kept);
        for server in 0..SERVERS {
            let kept = self.chance.below(links.data[server].len() + 1);
            links.data[server].truncate(kept);
            links.answers[server].clear();
        }
        links.replies.clear();
        links.notices.clear();
    }

    /// The manager is killed and comes back; everybody notices at once.
    fn restart_manager(&mut self) {
        self.seen.visit("manager restarted");
        self.note(|| "the manager is killed and comes back".to_owned());
        self.manager.restart();
        self.settling.clear();
        for number in 0..self.clients.len() {
            let links = &mut self.links[number];
            links.asks.clear();
            links.replies.clear();
            links.notices.clear();
            links.mourned = false;
            if !self.clients[number].alive {
                continue;
            }
            let keeps = self.has(ClientBug::KeepOldLease);
            let client = &mut self.clients[number];
            client.locks.clear();
            let in_use: Vec<bool> = client.files.iter().map(|file| file.in_use).collect();
            for file in &mut client.files {
                file.forget(!keeps);
                // Closes that it has not heard of are said again.
                file.closed = false;
            }
            match client.errand.take() {
                Some(Errand::Access(op)) if in_use[op.file] => {
                    self.seen.visit("manager restarted in an access");
                    self.abandoned(number, &op);
                    self.links[number].answers.iter_mut().for_each(std::collections::VecDeque::clear);
                }
                Some(Errand::Access(mut op)) => {
                    op.stage = Stage::Start;
                    op.lock = None;
                    self.clients[number].errand = Some(Errand::Access(op));
                }
                Some(Errand::WantLock { .. } | Errand::Looking { .. } | Errand::Stopping { .. }) | None => {}
            }
        }
    }
}
