//! What may happen next, from what everybody waits for.

use pario_server::coherence::Patience;

use crate::bugs::ClientBug;
use crate::client::{Errand, Stage};
use crate::world::{Event, FAULTY_STEPS, FILES, SERVERS, World};

/// What may happen.
impl World {
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            let links = &self.links[number];
            if !links.asks.is_empty() {
                events.push(Event::Ask(number));
            }
            for server in 0..SERVERS {
                if !links.data[server].is_empty() && !self.servers_stopped[server] {
                    events.push(Event::Data(number, server));
                }
            }
            if !client.alive {
                if !links.mourned && links.asks.is_empty() {
                    events.push(Event::Mourn(number));
                }
                continue;
            }
            if client.stopped {
                continue;
            }
            if !links.replies.is_empty() {
                events.push(Event::Reply(number));
            }
            if !links.notices.is_empty() {
                events.push(Event::Notice(number));
            }
            events.extend(
                (0..SERVERS).filter(|s| !links.answers[*s].is_empty()).map(|s| Event::Answer(number, s)),
            );
            events.extend(
                (0..FILES)
                    .filter(|file| self.may_give_back(number, *file))
                    .map(|f| Event::GiveBack(number, f)),
            );
            if self.manager.ghosts.contains(&crate::manager::session(number)) {
                events.push(Event::Greet(number));
            }
            if self.may_step(number) {
                events.push(Event::Step(number));
            }
        }
        for server in 0..SERVERS {
            let open = self.records.iter().any(|record| !record.taken[server]);
            if open && !self.servers_stopped[server] {
                events.push(Event::Take(server));
            }
        }
        for (at, (_, client)) in self.settling.iter().enumerate() {
            let links = &self.links[*client];
            let idle =
                links.data.iter().all(std::collections::VecDeque::is_empty) || self.clients[*client].alive;
            if idle && !self.servers_stopped.contains(&true) {
                events.push(Event::Settle(at));
            }
        }
        if self.manager.locks.deadline().is_some_and(|at| at <= self.now) {
            events.push(Event::Expire);
        }
        events
    }

    pub(crate) fn drained(&self, client: usize, file: usize) -> bool {
        self.records.iter().all(|record| (record.client, record.file) != (client, file) || record.is_taken())
    }

    fn may_give_back(&self, client: usize, file: usize) -> bool {
        let state = &self.clients[client].files[file];
        let drained = self.drained(client, file) || self.has(ClientBug::ReturnUndrained);
        state.must_return().is_some() && drained
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
                Stage::Access | Stage::Done => true,
                Stage::Taken => {
                    self.has(ClientBug::ReturnUntaken)
                        || op.record.is_some_and(|record| self.records[record].is_taken())
                }
                Stage::Reading => self.has(ClientBug::ReadPastOwn) || self.drained(number, op.file),
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
        !state.in_use && !state.acquiring && self.drained(client, file)
    }
}
