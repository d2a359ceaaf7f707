//! Possible events of the simulation's state.

use pario_server::coherence::WaitLimit;

use crate::bugs::ClientBug;
use crate::client::{ClientOp, Errand, OpKind, OpStage};
use crate::simulation::{FAULTY_STEPS, FILES, PartState, SERVERS, SimEvent, SimRecord, Simulation};

/// What may happen.
impl Simulation {
    pub(crate) fn events(&self) -> Vec<SimEvent> {
        let events =
            self.events_but(self.drains_rarely && self.step < FAULTY_STEPS && !self.step.is_multiple_of(40));
        if events.is_empty() { self.events_but(false) } else { events }
    }

    /// All possible events; without drains at servers that wait for more records if `waiting`.
    fn events_but(&self, waiting: bool) -> Vec<SimEvent> {
        let mut events = Vec::new();
        (0..self.clients.len()).for_each(|client| self.client_events(client, &mut events));
        for server in 0..SERVERS {
            if !self.servers[server].runs() {
                continue;
            }
            // A successor does not wait while a client is missing, so that some records are late.
            if self.first_due(server).is_some() && (!waiting || self.is_client_away(server)) {
                events.push(SimEvent::Drain(server));
            }
            if self.servers[server].has_dirt() {
                events.push(SimEvent::Stage(server));
            }
        }
        for (at, (_, client)) in self.recovering.iter().enumerate() {
            let links = &self.links[*client];
            let idle =
                links.data.iter().all(std::collections::VecDeque::is_empty) || self.clients[*client].alive;
            if idle && self.servers.iter().all(|server| server.runs()) {
                events.push(SimEvent::RecoverWriter(at));
            }
            if self.servers.iter().any(|server| !server.alive) && self.someone_waits() {
                events.push(SimEvent::RecoverFails(at));
            }
        }
        if self.manager.locks.deadline().is_some_and(|at| at <= self.now) {
            events.push(SimEvent::Expire);
        }
        events
    }

    /// A server is a successor, and a client with records for it has not returned.
    pub(crate) fn is_client_away(&self, server: usize) -> bool {
        let there = &self.servers[server];
        let is_away = |record: &SimRecord| {
            record.parts[server] == PartState::Open
                && self.clients[record.client].alive
                && !there.outboxes.contains(&record.client)
        };
        1 < there.life && self.records.iter().any(is_away)
    }

    fn client_events(&self, number: usize, events: &mut Vec<SimEvent>) {
        let client = &self.clients[number];
        let links = &self.links[number];
        if !links.asks.is_empty() {
            events.push(SimEvent::Ask(number));
        }
        for server in 0..SERVERS {
            // Messages to a killed server do not reach its successor.
            let is_same = client.links[server].life == self.servers[server].life;
            if !links.data[server].is_empty() && is_same && self.servers[server].runs() {
                events.push(SimEvent::Data(number, server));
            }
        }
        if !client.alive {
            if !links.death_noticed && links.asks.is_empty() {
                events.push(SimEvent::NoticeDeath(number));
            }
            return;
        }
        if client.stopped {
            return;
        }
        if !links.replies.is_empty() {
            events.push(SimEvent::Reply(number));
        }
        if !links.notices.is_empty() {
            events.push(SimEvent::Notice(number));
        }
        events.extend(
            (0..SERVERS).filter(|s| !links.answers[*s].is_empty()).map(|s| SimEvent::Answer(number, s)),
        );
        events.extend(
            (0..SERVERS).filter(|s| self.may_hang_up(number, *s)).map(|s| SimEvent::HangUp(number, s)),
        );
        if client.recovering {
            // No other event before the manager is contacted.
            events.push(SimEvent::Recover(number));
            return;
        }
        events
            .extend((0..SERVERS).filter(|s| self.may_offer(number, *s)).map(|s| SimEvent::Offer(number, s)));
        events.extend(
            (0..FILES)
                .filter(|file| self.may_return_lease(number, *file))
                .map(|f| SimEvent::ReturnLease(number, f)),
        );
        if self.manager.ghosts.contains(&crate::manager::session(number)) {
            events.push(SimEvent::Greet(number));
        }
        if self.may_step(number) {
            events.push(SimEvent::Step(number));
        }
    }

    pub(crate) fn drained(&self, client: usize, file: usize) -> bool {
        self.records.iter().all(|record| (record.client, record.file) != (client, file) || record.is_over())
    }

    fn someone_waits(&self) -> bool {
        self.manager.leases.waiting(self.now).next().is_some()
    }

    /// The server at the other end was replaced.
    fn may_hang_up(&self, client: usize, server: usize) -> bool {
        let (link, of) = (&self.clients[client].links[server], &self.servers[server]);
        (link.up || link.attached) && (!of.alive || of.life != link.life)
    }

    /// A returned server is needed for records in the outbox.
    fn may_offer(&self, client: usize, server: usize) -> bool {
        let wanted = |record: &crate::simulation::SimRecord| {
            record.client == client && record.parts[server] == PartState::Open
        };
        let near = self.clients[client].node == 0;
        let detached = near && !self.clients[client].links[server].attached;
        detached && self.servers[server].runs() && self.records.iter().any(wanted)
    }

    fn may_return_lease(&self, client: usize, file: usize) -> bool {
        let state = &self.clients[client].files[file];
        let drained = self.drained(client, file) || self.has(ClientBug::ReturnUndrained);
        // Records for a dead server need not be waited for.
        state.must_return().is_some() && (drained || self.is_lost_for_now(client, file))
    }

    fn may_step(&self, number: usize) -> bool {
        let client = &self.clients[number];
        match &client.errand {
            None => {
                0 < client.left
                    || client
                        .files
                        .iter()
                        .enumerate()
                        .any(|(file, s)| !s.closed && self.may_close(number, file))
            }
            Some(Errand::Access(op)) => match op.stage {
                OpStage::Start => {
                    let state = &client.files[op.file];
                    // A lease being returned is waited for.
                    !state.acquiring && (state.must_return().is_none() || self.has(ClientBug::UseRecalled))
                }
                OpStage::Done => true,
                OpStage::Access => self.may_access(number, op),
                OpStage::Drain => {
                    self.drained(number, op.file) && self.can_collect(number)
                        || self.is_hopeless(number, op.file)
                }
                OpStage::Drained => {
                    let over = op.record.is_some_and(|record| self.records[record].is_over());
                    self.has(ClientBug::ReturnUntaken)
                        || over && self.can_collect(number)
                        || self.is_hopeless(number, op.file)
                }
                OpStage::Reading => {
                    let drained = self.has(ClientBug::ReadPastOwn) || self.drained(number, op.file);
                    let there = |of: &crate::server::SimServer| !of.caches || !of.stopped;
                    drained && self.servers.iter().all(there) || self.is_hopeless(number, op.file)
                }
                OpStage::Remote => op.waiting.is_empty(),
                OpStage::Lease | OpStage::Lock => false,
            },
            // At the end no request is cancelled, so that a deadlock is detected.
            Some(Errand::WantLock { cancelled, patience, .. }) => {
                !cancelled && *patience == WaitLimit::Wait && self.step < FAULTY_STEPS
            }
            Some(Errand::Stopping { in_force, .. }) => *in_force,
            Some(Errand::Looking { .. }) => false,
        }
    }

    pub(crate) fn may_close(&self, client: usize, file: usize) -> bool {
        let state = &self.clients[client].files[file];
        let over = self.drained(client, file) || self.is_lost_for_now(client, file);
        !state.in_use && !state.acquiring && over
    }

    /// All undrained records wait for dead servers.
    fn is_lost_for_now(&self, client: usize, file: usize) -> bool {
        let left = self.left_by(client, file);
        let elsewhere = self.records.iter().any(|record| {
            let open = |server: &usize| record.parts[*server] == PartState::Open && !left.contains(server);
            (record.client, record.file) == (client, file) && (0..SERVERS).any(|server| open(&server))
        });
        !elsewhere && !left.is_empty() && left.iter().all(|server| !self.servers[*server].alive)
    }

    /// Servers with errors can report them.
    fn can_collect(&self, client: usize) -> bool {
        let links = &self.clients[client].links;
        let silent =
            |s: &usize| links[*s].attached && links[*s].cursor.errors != 0 && self.servers[*s].stopped;
        !(0..SERVERS).any(|server| silent(&server))
    }

    fn may_access(&self, number: usize, op: &ClientOp) -> bool {
        if self.clients[number].node != 0 || op.kind != OpKind::Write {
            return true;
        }
        let links = &self.clients[number].links;
        let unreachable = |s: &usize| !links[*s].attached && self.servers[*s].stopped;
        let servers = crate::simulation::servers_of(&op.cells);
        !servers.iter().any(unreachable) && !self.must_wait_for_space(number)
    }
}
