//! What may happen next, from what everybody waits for.

use pario_server::coherence::Patience;

use crate::bugs::ClientBug;
use crate::client::{Errand, Kind, Op, Stage};
use crate::world::{Event, FAULTY_STEPS, FILES, Fate, Record, SERVERS, World};

/// What may happen.
impl World {
    pub(crate) fn events(&self) -> Vec<Event> {
        let events =
            self.events_but(self.patient && self.step < FAULTY_STEPS && !self.step.is_multiple_of(40));
        if events.is_empty() { self.events_but(false) } else { events }
    }

    /// All that may happen, but that records are taken where servers wait for more of them.
    fn events_but(&self, waiting: bool) -> Vec<Event> {
        let mut events = Vec::new();
        (0..self.clients.len()).for_each(|client| self.client_events(client, &mut events));
        for server in 0..SERVERS {
            if !self.servers[server].runs() {
                continue;
            }
            // One that has taken over is not patient while somebody is missed, so that some come late.
            if self.first_due(server).is_some() && (!waiting || self.somebody_is_away(server)) {
                events.push(Event::Take(server));
            }
            if self.servers[server].has_dirt() {
                events.push(Event::Stage(server));
            }
        }
        for (at, (_, client)) in self.settling.iter().enumerate() {
            let links = &self.links[*client];
            let idle =
                links.data.iter().all(std::collections::VecDeque::is_empty) || self.clients[*client].alive;
            if idle && self.servers.iter().all(|server| server.runs()) {
                events.push(Event::Settle(at));
            }
            if self.servers.iter().any(|server| !server.alive) && self.someone_waits() {
                events.push(Event::SettleFails(at));
            }
        }
        if self.manager.locks.deadline().is_some_and(|at| at <= self.now) {
            events.push(Event::Expire);
        }
        events
    }

    /// A server has taken over, and not all are back that have something for it.
    pub(crate) fn somebody_is_away(&self, server: usize) -> bool {
        let there = &self.servers[server];
        let is_away = |record: &Record| {
            record.fate[server] == Fate::Open
                && self.clients[record.client].alive
                && !there.outboxes.contains(&record.client)
        };
        1 < there.life && self.records.iter().any(is_away)
    }

    fn client_events(&self, number: usize, events: &mut Vec<Event>) {
        let client = &self.clients[number];
        let links = &self.links[number];
        if !links.asks.is_empty() {
            events.push(Event::Ask(number));
        }
        for server in 0..SERVERS {
            // What was sent to a server that was killed does not reach the one that replaced it.
            let is_same = client.links[server].life == self.servers[server].life;
            if !links.data[server].is_empty() && is_same && self.servers[server].runs() {
                events.push(Event::Data(number, server));
            }
        }
        if !client.alive {
            if !links.mourned && links.asks.is_empty() {
                events.push(Event::Mourn(number));
            }
            return;
        }
        if client.stopped {
            return;
        }
        if !links.replies.is_empty() {
            events.push(Event::Reply(number));
        }
        if !links.notices.is_empty() {
            events.push(Event::Notice(number));
        }
        events
            .extend((0..SERVERS).filter(|s| !links.answers[*s].is_empty()).map(|s| Event::Answer(number, s)));
        events
            .extend((0..SERVERS).filter(|s| self.may_hang_up(number, *s)).map(|s| Event::HangUp(number, s)));
        if client.recovering {
            // Nothing else before the manager has heard of it.
            events.push(Event::Recover(number));
            return;
        }
        events.extend((0..SERVERS).filter(|s| self.may_offer(number, *s)).map(|s| Event::Offer(number, s)));
        events.extend(
            (0..FILES).filter(|file| self.may_give_back(number, *file)).map(|f| Event::GiveBack(number, f)),
        );
        if self.manager.ghosts.contains(&crate::manager::session(number)) {
            events.push(Event::Greet(number));
        }
        if self.may_step(number) {
            events.push(Event::Step(number));
        }
    }

    pub(crate) fn drained(&self, client: usize, file: usize) -> bool {
        self.records.iter().all(|record| (record.client, record.file) != (client, file) || record.is_over())
    }

    fn someone_waits(&self) -> bool {
        self.manager.leases.waiting(self.now).next().is_some()
    }

    /// The server at the other end is not the one that was there.
    fn may_hang_up(&self, client: usize, server: usize) -> bool {
        let (link, of) = (&self.clients[client].links[server], &self.servers[server]);
        (link.up || link.attached) && (!of.alive || of.life != link.life)
    }

    /// A server that is back is wanted for what is in the outbox.
    fn may_offer(&self, client: usize, server: usize) -> bool {
        let wanted =
            |record: &crate::world::Record| record.client == client && record.fate[server] == Fate::Open;
        let near = self.clients[client].node == 0;
        let detached = near && !self.clients[client].links[server].attached;
        detached && self.servers[server].runs() && self.records.iter().any(wanted)
    }

    fn may_give_back(&self, client: usize, file: usize) -> bool {
        let state = &self.clients[client].files[file];
        let drained = self.drained(client, file) || self.has(ClientBug::ReturnUndrained);
        // Of what waits for a server that is gone, nothing can be hoped for in time.
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
                Stage::Start => {
                    let state = &client.files[op.file];
                    // A lease that is on its way back is waited for.
                    !state.acquiring && (state.must_return().is_none() || self.has(ClientBug::UseRecalled))
                }
                Stage::Done => true,
                Stage::Access => self.may_access(number, op),
                Stage::Drain => {
                    self.drained(number, op.file) && self.can_collect(number)
                        || self.is_hopeless(number, op.file)
                }
                Stage::Taken => {
                    let over = op.record.is_some_and(|record| self.records[record].is_over());
                    self.has(ClientBug::ReturnUntaken)
                        || over && self.can_collect(number)
                        || self.is_hopeless(number, op.file)
                }
                Stage::Reading => {
                    let drained = self.has(ClientBug::ReadPastOwn) || self.drained(number, op.file);
                    let there = |of: &crate::server::Server| !of.caches || !of.stopped;
                    drained && self.servers.iter().all(there) || self.is_hopeless(number, op.file)
                }
                Stage::Far => op.waiting.is_empty(),
                Stage::Lease | Stage::Lock => false,
            },
            // In the end nobody changes its mind, so that who waits in a circle is found out.
            Some(Errand::WantLock { cancelled, patience, .. }) => {
                !cancelled && *patience == Patience::Wait && self.step < FAULTY_STEPS
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

    /// All that is not taken waits for servers that are gone.
    fn is_lost_for_now(&self, client: usize, file: usize) -> bool {
        let left = self.left_by(client, file);
        let elsewhere = self.records.iter().any(|record| {
            let open = |server: &usize| record.fate[*server] == Fate::Open && !left.contains(server);
            (record.client, record.file) == (client, file) && (0..SERVERS).any(|server| open(&server))
        });
        !elsewhere && !left.is_empty() && left.iter().all(|server| !self.servers[*server].alive)
    }

    /// Servers that have something to tell can.
    fn can_collect(&self, client: usize) -> bool {
        let links = &self.clients[client].links;
        let silent =
            |s: &usize| links[*s].attached && links[*s].cursor.errors != 0 && self.servers[*s].stopped;
        !(0..SERVERS).any(|server| silent(&server))
    }

    fn may_access(&self, number: usize, op: &Op) -> bool {
        if self.clients[number].node != 0 || op.kind != Kind::Write {
            return true;
        }
        let links = &self.clients[number].links;
        let unreachable = |s: &usize| !links[*s].attached && self.servers[*s].stopped;
        let servers = crate::world::servers_of(&op.cells);
        !servers.iter().any(unreachable) && !self.must_wait_for_room(number)
    }
}
