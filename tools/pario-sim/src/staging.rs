//! From outboxes to servers and stores: records are drained, outboxes offered again, records dropped, blocks staged.
//!
//! Always: undrained records of a dead server are offered to its successor, or dropped and reported to every file concerned.

use crate::bugs::ClientBug;
use crate::client::{Errand, OpStage};
use crate::server::{CursorSnapshot, StoreFull, WriteMethod, home};
use crate::simulation::{PartState, SERVERS, SimRecord, Simulation};

/// Draining.
impl Simulation {
    /// A record that a server may drain: it is open, and the server has its outbox.
    pub(crate) fn is_due(&self, server: usize, record: &SimRecord) -> bool {
        record.parts[server] == PartState::Open && self.servers[server].outboxes.contains(&record.client)
    }

    pub(crate) fn first_due(&self, server: usize) -> Option<usize> {
        self.records.iter().position(|record| self.is_due(server, record))
    }

    pub(crate) fn drain_one_of(&mut self, server: usize) -> Result<(), String> {
        let newest = self.has(ClientBug::TakeNewest);
        let due = |record: &SimRecord| self.is_due(server, record);
        let at = if newest { self.records.iter().rposition(due) } else { self.first_due(server) };
        at.map_or(Ok(()), |at| self.drain_record(server, at))
    }

    pub(crate) fn drain_record(&mut self, server: usize, at: usize) -> Result<(), String> {
        let record = self.records[at].clone();
        let (file, tag, client) = (record.file, record.tag, record.client);
        if record.void[server] {
            return Err(format!(
                "record {tag} of client {client} is drained after its file was granted to other clients"
            ));
        }
        self.records[at].parts[server] = PartState::Over;
        self.note(|| format!("server {server} drains {tag} of client {client}, file {file}"));
        let mut refused = false;
        for cell in record.cells.filter(|cell| home(*cell) == server) {
            if record.again[server] && self.is_covered(server, (file, cell), tag) {
                self.seen.visit("record taken behind newer ones");
                self.stays_out((file, cell), tag)?;
                continue;
            }
            self.check_order((file, cell), tag)?;
            refused |= self.apply_logged(server, (file, cell), tag).is_err();
        }
        self.seen.visit(if self.clients[client].alive { "record taken" } else { "record of the dead taken" });
        if refused {
            self.seen.visit("record refused");
            self.keep_error(server, client, file);
            self.lose(file, tag, "its server was full")?;
        }
        Ok(())
    }

    /// Applies bytes to a cell.
    pub(crate) fn apply(&mut self, server: usize, place: (usize, usize), tag: u64) -> Result<(), StoreFull> {
        let way = self.servers[server].write(&mut self.below, place, tag)?;
        self.seen.visit(match way {
            WriteMethod::Through => "write through to the store",
            WriteMethod::Cached => "write cached",
            WriteMethod::Uncached => "write past the cache",
        });
        self.truth.apply(place.0, place.1, tag);
        self.stamps[place.0][place.1] = self.committed_at(tag);
        Ok(())
    }

    /// The same by a server, which logs it for late records.
    pub(crate) fn apply_logged(
        &mut self,
        server: usize,
        place: (usize, usize),
        tag: u64,
    ) -> Result<(), StoreFull> {
        self.apply(server, place, tag)?;
        let committed = self.committed_at(tag);
        self.servers[server].remember(place, committed);
        Ok(())
    }

    /// The order of commits is the order in the store.
    fn check_order(&self, (file, cell): (usize, usize), tag: u64) -> Result<(), String> {
        if self.committed_at(tag) < self.stamps[file][cell] {
            let last = self.truth.last(file, cell);
            return Err(format!(
                "record {tag} is put over {last} in cell {cell} of file {file}, which is newer"
            ));
        }
        Ok(())
    }

    fn committed_at(&self, tag: u64) -> u64 {
        self.committed.get(&tag).copied().unwrap_or(0)
    }

    /// The successor of a killed server has applied newer bytes of other clients there already.
    fn is_covered(&self, server: usize, place: (usize, usize), tag: u64) -> bool {
        let newest = self.servers[server].newest(place);
        newest.is_some_and(|newest| self.committed_at(tag) < newest) && !self.has(ClientBug::TakeLateWhole)
    }

    /// A late byte is skipped. If the newer one was lost with its server's memory, so is this one.
    fn stays_out(&mut self, (file, cell): (usize, usize), tag: u64) -> Result<(), String> {
        if self.stamps[file][cell] < self.committed_at(tag) {
            self.lose(file, tag, "newer bytes lay over it, and are lost")?;
        }
        Ok(())
    }

    fn keep_error(&mut self, server: usize, client: usize, file: usize) {
        if self.has(ClientBug::ForgetError) {
            return;
        }
        self.servers[server].errors.insert((client, file));
        let life = self.servers[server].life;
        let cursor = &mut self.clients[client].links[server].cursor;
        if cursor.life == life {
            cursor.errors += 1;
        }
    }

    /// A write that returned, or may have, will not be seen everywhere.
    pub(crate) fn lose(&mut self, file: usize, tag: u64, why: &str) -> Result<(), String> {
        self.note(|| format!("write {tag} of file {file} is lost: {why}"));
        self.torn[file] = true;
        self.weaken(file, tag);
        self.truth.dropped(tag, why)
    }

    /// Recovers a dead client's records, before its file is granted again.
    pub(crate) fn recover_writer(&mut self, at: usize) -> Result<(), String> {
        let (file, client) = self.recovering.swap_remove(at);
        if !self.has(ClientBug::SettleNothing) {
            for server in 0..SERVERS {
                let mine = |record: &SimRecord| {
                    record.client == client && record.file == file && self.is_due(server, record)
                };
                let Some(last) = self.records.iter().rposition(mine) else { continue };
                while let Some(first) = self.first_due(server).filter(|first| *first <= last) {
                    self.drain_record(server, first)?;
                }
            }
        }
        // Other clients may have the file from now on: records that its writer has not offered are void.
        for at in 0..self.records.len() {
            let record = &self.records[at];
            if (record.client, record.file) != (client, file) {
                continue;
            }
            for server in 0..SERVERS {
                if self.records[at].parts[server] == PartState::Open
                    && !self.is_due(server, &self.records[at])
                {
                    self.seen.visit("record void");
                    self.records[at].void[server] = true;
                    let tag = self.records[at].tag;
                    self.lose(file, tag, "its file went on without it")?;
                }
            }
        }
        self.manager.recovered(file, client, self.now, &mut self.seen)
    }

    pub(crate) fn stage(&mut self, server: usize) {
        let went = self.servers[server].stage_oldest(&mut self.below);
        self.seen.visit(if went { "block staged" } else { "staging refused" });
    }
}

/// Outboxes.
impl Simulation {
    /// A connection has ended, and the client sees it.
    pub(crate) fn hang_up(&mut self, number: usize, server: usize) {
        self.seen.visit("server seen to be gone");
        self.note(|| format!("client {number} sees that server {server} is dead"));
        let link = &mut self.clients[number].links[server];
        (link.up, link.attached) = (false, false);
        self.links[number].data[server].clear();
        self.links[number].answers[server].clear();
        match self.clients[number].errand.take() {
            Some(Errand::Access(op)) if op.stage == OpStage::Remote && op.waiting.contains(&server) => {
                self.fail(number, op);
            }
            other => self.clients[number].errand = other,
        }
    }

    /// There is a connection from now on; the server may be another than before.
    pub(crate) fn connect(&mut self, number: usize, server: usize) {
        let (life, caches) = (self.servers[server].life, self.servers[server].caches);
        let (losses, unheard) = (!self.has(ClientBug::ForgetLosses), !self.has(ClientBug::ForgetUnheard));
        let client = &mut self.clients[number];
        let link = &mut client.links[server];
        if link.up {
            return;
        }
        link.up = true;
        if link.life == life {
            return;
        }
        link.life = life;
        link.losses += u64::from(caches && losses);
        // Errors that it had counted but not reported are lost.
        let old = link.cursor;
        for file in client.files.iter_mut().filter(|_| old.errors != 0) {
            if file.queried_errors[server] != old && file.recorded[server] && unheard {
                file.queried_errors[server] = old;
                file.faults += 1;
                self.seen.visit("error went with its server");
            }
        }
    }

    /// A server gets the outbox, with its predecessor's undrained records.
    pub(crate) fn offer(&mut self, number: usize, server: usize) -> Result<(), String> {
        self.connect(number, server);
        let heard = self.clients[number].recovered_epoch;
        let open = |record: &SimRecord| record.client == number && record.parts[server] == PartState::Open;
        let stale = self.records.iter().any(|record| open(record) && record.epoch < heard);
        let stale = stale && !self.has(ClientBug::OfferStale);
        if stale {
            self.seen.visit("records of a lost manager given up");
            self.drop_records(number, server, None)?;
        }
        if std::mem::take(&mut self.clients[number].links[server].overwritten) {
            self.seen.visit("records overwritten");
            let told = !self.has(ClientBug::ForgetOverwritten);
            self.drop_open(number, server, |_| told)?;
        }
        if self.has(ClientBug::OfferFromTail) {
            self.drop_open(number, server, |_| false)?;
        }
        if self.has(ClientBug::OfferTwice)
            && let Some(last) = self.records.iter().rposition(|record| {
                record.client == number && record.parts[server] == PartState::Over && !record.void[server]
            })
        {
            self.records[last].parts[server] = PartState::Open;
        }
        for record in self.records.iter_mut().filter(|record| record.client == number) {
            if record.parts[server] == PartState::Open {
                record.again[server] = true;
                self.seen.visit("record offered again");
            }
        }
        self.note(|| format!("client {number} offers its outbox to server {server}"));
        let life = self.servers[server].life;
        self.servers[server].outboxes.insert(number);
        let link = &mut self.clients[number].links[server];
        link.attached = true;
        link.cursor = CursorSnapshot { life, errors: 0 };
        Ok(())
    }

    /// Undrained records of a dead server must never overwrite later writes; `on_behalf` of a file, or of all.
    pub(crate) fn drop_records(
        &mut self,
        number: usize,
        server: usize,
        on_behalf: Option<usize>,
    ) -> Result<(), String> {
        self.seen.visit("records given up");
        let quiet = self.has(ClientBug::AbandonQuietly);
        self.clients[number].links[server].overwritten = false;
        self.drop_open(number, server, |file| !quiet || on_behalf == Some(file))
    }

    fn drop_open(
        &mut self,
        number: usize,
        server: usize,
        told: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        for at in 0..self.records.len() {
            let record = &self.records[at];
            if record.client != number || record.parts[server] != PartState::Open {
                continue;
            }
            let (file, tag) = (record.file, record.tag);
            self.records[at].parts[server] = PartState::Over;
            self.lose(file, tag, "it was dropped")?;
            self.clients[number].files[file].faults += u32::from(told(file));
        }
        Ok(())
    }

    /// Servers with undrained records of a file that are dead as known to the client.
    pub(crate) fn left_by(&self, number: usize, file: usize) -> Vec<usize> {
        let open = |server: &usize| {
            self.records.iter().any(|record| {
                (record.client, record.file, record.parts[*server]) == (number, file, PartState::Open)
            })
        };
        (0..SERVERS).filter(|s| !self.clients[number].links[*s].attached).filter(open).collect()
    }

    /// These records are drained only if a server returns.
    pub(crate) fn is_hopeless(&self, number: usize, file: usize) -> bool {
        self.left_by(number, file).iter().any(|server| !self.servers[*server].alive)
    }

    /// Records in the ring that a server has not drained.
    fn in_ring(&self, number: usize) -> impl Iterator<Item = usize> {
        let mine = move |at: &usize| {
            let record = &self.records[*at];
            record.client == number && !record.overwritten && !record.is_over()
        };
        (0..self.records.len()).filter(mine)
    }

    /// The ring is full of undrained records of living servers.
    pub(crate) fn must_wait_for_space(&self, number: usize) -> bool {
        let links = &self.clients[number].links;
        let wanted = |at: &usize| {
            (0..SERVERS).any(|s| self.records[*at].parts[s] == PartState::Open && links[s].attached)
        };
        self.ring <= self.in_ring(number).count() && self.in_ring(number).any(|at| wanted(&at))
    }

    /// Reuses memory of records that only a dead server has not drained.
    pub(crate) fn overwrite_oldest(&mut self, number: usize) {
        while self.ring <= self.in_ring(number).count() {
            let Some(oldest) = self.in_ring(number).next() else { return };
            self.records[oldest].overwritten = true;
            for server in 0..SERVERS {
                if self.records[oldest].parts[server] == PartState::Open {
                    self.clients[number].links[server].overwritten = true;
                }
            }
        }
    }
}
