//! Faults: processes, servers and nodes killed, stopped, restarted, memory and disk short, and the repair of all faults.

use std::collections::{BTreeSet, VecDeque};

use crate::bugs::ClientBug;
use crate::client::{Errand, OpStage};
use crate::oracle::FaultExtent;
use crate::server::home;
use crate::simulation::{CELLS, FAULTY_STEPS, FILES, PartState, SERVERS, SimRecord, Simulation};

/// Faults.
impl Simulation {
    pub(crate) fn fault(&mut self) -> Result<(), String> {
        let client = self.chance.index(self.clients.len());
        let server = self.victim();
        match self.chance.index(16) {
            0 | 1 if 1 < self.alive() && self.clients[client].alive => self.kill(client)?,
            2..=4 if self.clients[client].alive => {
                self.clients[client].stopped = true;
                self.seen.visit("process stopped");
            }
            5 | 6 => self.clients[client].stopped = false,
            7 if self.servers[server].alive => {
                self.servers[server].stopped = true;
                self.seen.visit("server stopped");
            }
            8 => self.servers.iter_mut().for_each(|server| server.stopped = false),
            9 if self.chance.once_in(2) => {
                self.restart_manager();
                // A server replaced just now may fail once more.
                if self.servers_die && self.chance.once_in(2) {
                    self.planned_kill = self.step + 1 + self.chance.index(12) as u64;
                }
            }
            10 | 11 if self.servers_die => self.kill_restart_or_replace(server)?,
            12 if self.servers_die && self.chance.once_in(4) => self.kill_node()?,
            13 if self.stores_fill => self.fill(server),
            14 if self.stores_fill => self.press(server),
            15 if self.servers_die && self.chance.once_in(12) => self.cut_power()?,
            _ => {}
        }
        Ok(())
    }

    /// A random server, preferably one with unsynced data.
    fn victim(&mut self) -> usize {
        let any = self.chance.index(SERVERS);
        let busy = (0..SERVERS).find(|server| self.first_due(*server).is_some());
        if self.chance.once_in(2) { any } else { busy.unwrap_or(any) }
    }

    /// The planned kill happens.
    pub(crate) fn execute_planned_kill(&mut self) -> Result<(), String> {
        let server = self.victim();
        if self.servers[server].alive { self.kill_server(server, FaultExtent::Process) } else { Ok(()) }
    }

    /// A server with records of several clients may be back before a client has dropped them.
    fn kill_restart_or_replace(&mut self, server: usize) -> Result<(), String> {
        let is_open = |record: &&SimRecord| {
            record.parts[server] == PartState::Open && self.clients[record.client].alive
        };
        let waiting: BTreeSet<usize> =
            self.records.iter().filter(is_open).map(|record| record.client).collect();
        self.kill_or_restart(server)?;
        if !self.servers[server].alive && 1 < waiting.len() && !self.chance.once_in(4) {
            self.kill_or_restart(server)?;
        }
        Ok(())
    }

    /// A successor may be killed once more before all clients with records for it have returned.
    pub(crate) fn shake(&mut self, server: usize) -> Result<(), String> {
        let may = self.step < FAULTY_STEPS && self.servers_die;
        if may && self.is_client_away(server) && self.chance.once_in(2) {
            self.seen.visit("server killed before all were back");
            self.kill_server(server, FaultExtent::Process)?;
            self.kill_or_restart(server)?;
        }
        Ok(())
    }

    fn alive(&self) -> usize {
        self.clients.iter().filter(|client| client.alive).count()
    }

    pub(crate) fn heal(&mut self) -> Result<(), String> {
        for server in 0..SERVERS {
            self.servers[server].stopped = false;
            self.servers[server].relax();
            if !self.servers[server].alive {
                self.kill_or_restart(server)?;
            }
        }
        self.clients.iter_mut().for_each(|client| client.stopped = false);
        Ok(())
    }

    fn fill(&mut self, number: usize) {
        // A server that monitors its space revokes the grant first; otherwise space may disappear at any time.
        let watched = self.chance.once_in(2);
        let server = &mut self.servers[number];
        if !server.full && server.grants && watched {
            server.grants = false;
            self.seen.visit("grant withdrawn");
        } else if server.full {
            (server.full, server.grants) = (false, true);
        } else {
            server.full = true;
            self.seen.visit("store full");
        }
    }

    fn press(&mut self, number: usize) {
        let blocks = self.chance.index(3) as u64;
        let server = &mut self.servers[number];
        if server.is_pressed() {
            server.press(4);
        } else {
            server.press(blocks);
            self.seen.visit("memory short");
        }
    }

    fn kill_or_restart(&mut self, server: usize) -> Result<(), String> {
        if self.servers[server].alive {
            return self.kill_server(server, FaultExtent::Process);
        }
        self.seen.visit("server restarted");
        self.note(|| format!("server {server} is back"));
        self.servers[server].restart();
        Ok(())
    }

    fn kill_server(&mut self, server: usize, extent: FaultExtent) -> Result<(), String> {
        self.seen.visit("server killed");
        self.note(|| format!("server {server} is killed"));
        // Undrained records of dead clients are lost with it.
        for at in 0..self.records.len() {
            let record = &self.records[at];
            if record.parts[server] == PartState::Open && !self.clients[record.client].alive {
                self.drop_of_dead(at, server)?;
            }
        }
        self.servers[server].kill();
        if extent == FaultExtent::Power {
            self.servers[server].lose_power();
            for file in 0..FILES {
                for cell in (0..CELLS).filter(|cell| home(*cell) == server) {
                    self.below.store[file][cell] = self.below.stable[file][cell];
                }
            }
        }
        for file in 0..FILES {
            for cell in (0..CELLS).filter(|cell| home(*cell) == server) {
                self.revert(file, cell, extent)?;
            }
        }
        for links in &mut self.links {
            links.data[server].clear();
            let sent = links.answers[server].len();
            links.answers[server].truncate(self.chance.index(sent + 1));
        }
        Ok(())
    }

    fn revert(&mut self, file: usize, cell: usize, extent: FaultExtent) -> Result<(), String> {
        let found = self.below.store[file][cell];
        let lost = self.truth.reverts((file, cell), found, extent)?;
        if lost.is_empty() {
            return Ok(());
        }
        self.seen.visit(match extent {
            FaultExtent::Process => "bytes lost with their server",
            FaultExtent::Power => "bytes lost with the power",
        });
        self.note(|| format!("file {file}, cell {cell} is {found} again, without {lost:?}"));
        lost.into_iter().for_each(|tag| self.weaken(file, tag));
        self.reverted(file, cell);
        Ok(())
    }

    fn drop_of_dead(&mut self, at: usize, server: usize) -> Result<(), String> {
        self.seen.visit("record of the dead lost");
        let (file, tag) = (self.records[at].file, self.records[at].tag);
        self.records[at].parts[server] = PartState::Over;
        self.lose(file, tag, "its writer and its server are dead")
    }

    /// Kills all processes of a node. The second node has clients only.
    fn kill_node(&mut self) -> Result<(), String> {
        let node = self.chance.index(2);
        let there: Vec<usize> = (0..self.clients.len())
            .filter(|c| self.clients[*c].alive && self.clients[*c].node == node)
            .collect();
        if there.is_empty() {
            return Ok(());
        }
        self.seen.visit("node killed");
        self.note(|| format!("node {node} is killed"));
        for client in there {
            self.kill(client)?;
        }
        if node == 0 {
            for server in 0..SERVERS {
                if self.servers[server].alive {
                    self.kill_server(server, FaultExtent::Process)?;
                }
            }
            self.restart_manager();
        }
        Ok(())
    }

    /// Power loss: all processes stop, and unsynced bytes are lost.
    fn cut_power(&mut self) -> Result<(), String> {
        self.seen.visit("power cut");
        self.note(|| "power loss".to_owned());
        for client in 0..self.clients.len() {
            if self.clients[client].alive {
                self.kill(client)?;
            }
        }
        for server in 0..SERVERS {
            self.kill_server(server, FaultExtent::Power)?;
        }
        self.restart_manager();
        Ok(())
    }

    fn kill(&mut self, number: usize) -> Result<(), String> {
        self.seen.visit("process killed");
        self.note(|| format!("client {number} is killed"));
        let client = &mut self.clients[number];
        client.alive = false;
        client.stopped = false;
        client.recovering = false;
        if !client.locks.is_empty() {
            self.seen.visit("process killed under a lock");
        }
        if let Some(Errand::Access(op)) = self.clients[number].errand.take() {
            if self.clients[number].files[op.file].in_use {
                self.seen.visit("process killed in an access");
            }
            self.abandoned(number, &op);
        }
        self.truth.dies(number);
        // An outbox outlives its client at servers that have attached it.
        for at in 0..self.records.len() {
            for server in 0..SERVERS {
                let record = &self.records[at];
                let open = record.client == number && record.parts[server] == PartState::Open;
                if open && !self.servers[server].outboxes.contains(&number) {
                    self.drop_of_dead(at, server)?;
                }
            }
        }
        // The last messages may not have been sent.
        let links = &mut self.links[number];
        let kept = self.chance.index(links.asks.len() + 1);
        links.asks.truncate(kept);
        for server in 0..SERVERS {
            let kept = self.chance.index(links.data[server].len() + 1);
            links.data[server].truncate(kept);
            links.answers[server].clear();
        }
        links.replies.clear();
        links.notices.clear();
        Ok(())
    }

    /// The manager is killed and restarts; all clients notice immediately.
    fn restart_manager(&mut self) {
        self.seen.visit("manager restarted");
        self.note(|| "the manager is killed and restarts".to_owned());
        self.manager.restart();
        self.recovering.clear();
        for number in 0..self.clients.len() {
            let links = &mut self.links[number];
            links.asks.clear();
            links.replies.clear();
            links.notices.clear();
            links.death_noticed = false;
            if self.clients[number].alive {
                self.lose_manager(number);
            }
        }
    }

    fn lose_manager(&mut self, number: usize) {
        let keeps = self.has(ClientBug::KeepOldLease);
        let client = &mut self.clients[number];
        client.locks.clear();
        client.epoch += 1;
        client.recovering = true;
        let in_use: Vec<bool> = client.files.iter().map(|file| file.in_use).collect();
        for file in &mut client.files {
            file.forget(!keeps);
            // Closes that the manager has not received are sent again.
            file.closed = false;
        }
        match client.errand.take() {
            Some(Errand::Access(op)) if in_use[op.file] => {
                self.seen.visit("manager restarted in an access");
                self.abandoned(number, &op);
                self.links[number].answers.iter_mut().for_each(VecDeque::clear);
            }
            Some(Errand::Access(mut op)) => {
                if op.stage != OpStage::Drain {
                    op.stage = OpStage::Start;
                }
                op.lock = None;
                self.clients[number].errand = Some(Errand::Access(op));
            }
            Some(Errand::WantLock { .. } | Errand::Looking { .. } | Errand::Stopping { .. }) | None => {}
        }
    }
}
