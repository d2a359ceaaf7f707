//! Answers on their way out, greetings, and the orderly end.

use pario_core::{Clock, Code, Fault};
use pario_net::frame::{self, DataCheck, Frame, FrameKind};
use pario_net::greeting::{self, Hello, Proof, Purpose, Welcome};
use pario_net::message::{Notice, Reply, Request};
use pario_sys::kill_point::{Point, reach};

use super::link::{Greeting, LinkId, Outgoing};
use super::{Answer, Ending, Event, Open, Service, describe};
use crate::home::Effect;
use crate::relay::Passage;
use crate::take::Task;

impl Service {
    pub(super) fn handle_frame(&mut self, id: LinkId, frame: Frame) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.hello().is_none() {
            link.answered(frame.data.len());
            if let Err(fault) = self.greet(id, &frame) {
                self.refuse(id, &fault);
            }
            return;
        }
        if frame.head.kind != FrameKind::Request {
            self.drop_link(id, Some("it sent a frame that is no request"));
            return;
        }
        match frame.message::<Request>() {
            Ok(request) => {
                let open = Open { started: self.clock.now(), received_bytes: frame.data.len() };
                self.open.insert((id, frame.head.request), open);
                self.dispatch(id, frame, request);
            }
            Err(error) => self.drop_link(id, Some(&error.to_string())),
        }
    }

    fn greet(&mut self, id: LinkId, frame: &Frame) -> Result<(), Fault> {
        let malformed = |error: frame::FrameError| Fault::new(Code::Protocol, error.to_string());
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        match (&link.greeting, frame.head.kind) {
            (Greeting::Silent, FrameKind::Hello) => {
                check_protocol(frame)?;
                let hello: Hello = frame.message().map_err(malformed)?;
                if hello.relay && hello.partition == self.spec.partition && hello.server != self.spec.index {
                    return self.relay(id, &hello);
                }
                let me = (self.spec.partition, self.spec.index);
                let challenge = greeting::challenge(&self.spec.secret, &hello, me)?;
                let bytes = frame::seal(FrameKind::Challenge, 0, &challenge, &[], DataCheck::None);
                link.greeting = Greeting::Challenged(Box::new((hello, challenge)));
                self.push(id, Outgoing { head: bytes, data: Vec::new(), descriptors: Vec::new() });
                Ok(())
            }
            (Greeting::Challenged(asked), FrameKind::Proof) => {
                let proof: Proof = frame.message().map_err(malformed)?;
                greeting::verify(&self.spec.secret, &asked.0, &asked.1, &proof)?;
                let hello = asked.0.clone();
                link.greeting = Greeting::Ready(Box::new(hello.clone()));
                self.welcome(id, &hello);
                Ok(())
            }
            (Greeting::Silent | Greeting::Challenged(_) | Greeting::Ready(_), _) => {
                Err(Fault::new(Code::Protocol, "a frame that does not belong into a greeting"))
            }
        }
    }

    /// A client that is tied to this server wants another one: its connection is passed on.
    fn relay(&mut self, id: LinkId, hello: &Hello) -> Result<(), Fault> {
        let server = hello.server;
        let known = self.connect.clone().filter(|_| server.at() < self.spec.servers);
        let connect = known.ok_or_else(|| {
            let text = format!("this is server {}, which knows no server {server}", self.spec.index);
            Fault::new(Code::Stale, text)
        })?;
        self.relays.check()?;
        let Some(link) = self.forget_link(id) else { return Ok(()) };
        let said = frame::seal(FrameKind::Hello, 0, hello, &[], DataCheck::None);
        let passage =
            Passage { client: link.stream, said, server, connect, stats: std::sync::Arc::clone(&self.stats) };
        if let Err(error) = self.relays.start(passage) {
            tracing::warn!(%error, "no thread to relay a connection");
        }
        Ok(())
    }

    fn welcome(&mut self, id: LinkId, hello: &Hello) {
        let welcome = Welcome {
            incarnation: self.incarnation,
            volatile: self.spec.volatile,
            lends: self.lends(),
            lends_writing: self.lends() && self.spec.lends_writing,
            outbox_bytes: self.spec.outbox_bytes,
            transfer_bytes: self.spec.transfer_bytes,
        };
        let bytes = frame::seal(FrameKind::Welcome, 0, &welcome, &[], DataCheck::None);
        self.push(id, Outgoing { head: bytes, data: Vec::new(), descriptors: Vec::new() });
        // A session that comes again has lost its older connection of the same kind, even if we have not noticed yet.
        let older = |link: &super::Link| {
            link.hello().is_some_and(|other| (other.session, other.purpose) == (hello.session, hello.purpose))
        };
        let old: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(other, link)| **other != id && older(link))
            .map(|(id, _)| *id)
            .collect();
        for old in old {
            if hello.purpose == (Purpose::Notices {}) {
                self.forget_link(old);
            } else {
                self.drop_link(old, None);
            }
        }
        if let Some(desk) = &self.desk
            && hello.purpose == (Purpose::Requests {})
        {
            desk.joined(hello.session, &hello.application, hello.weight);
        }
        if let Some(home) = &mut self.home
            && hello.purpose == (Purpose::Requests {})
        {
            home.greeted(hello);
        }
    }

    /// Says why a greeting failed, then hangs up.
    fn refuse(&mut self, id: LinkId, fault: &Fault) {
        self.stats.count_refused();
        let Some(link) = self.links.get_mut(&id) else { return };
        let who = match &link.greeting {
            Greeting::Challenged(asked) => describe(&asked.0),
            Greeting::Silent | Greeting::Ready(_) => "a stranger".to_owned(),
        };
        tracing::warn!("refused {who}: {fault}");
        link.closing = true;
        let reply = Reply::Failed { fault: fault.clone() };
        let bytes = frame::seal(FrameKind::Reply, 0, &reply, &[], DataCheck::None);
        self.push(id, Outgoing { head: bytes, data: Vec::new(), descriptors: Vec::new() });
    }

    /// A client's connection ended: take what it left, and let the manager know.
    pub(super) fn session_left(&mut self, session: pario_core::SessionId, purpose: Purpose) {
        if purpose == (Purpose::Peer {}) {
            return;
        }
        if purpose == (Purpose::Requests {}) {
            self.taker.post(Task::Detach { session });
        }
        // Requests and notices end together: a client that cannot be told of a recall cannot hold a lease.
        let sibling =
            if purpose == (Purpose::Requests {}) { Purpose::Notices {} } else { Purpose::Requests {} };
        for id in self.links_of(session) {
            let is_sibling = self
                .links
                .get(&id)
                .and_then(super::Link::hello)
                .is_some_and(|hello| hello.purpose == sibling);
            if is_sibling {
                self.forget_link(id);
            }
        }
        if purpose == (Purpose::Notices {}) {
            self.taker.post(Task::Detach { session });
        }
        if let Some(desk) = &self.desk {
            desk.left(session);
        }
        let now = self.clock.now();
        if let Some(home) = &mut self.home {
            home.gone(session, now);
        }
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        let failed = matches!(answer.reply, Reply::Failed { .. });
        let Some(open) = self.open.remove(&(answer.link, answer.request)) else { return };
        let took = (open.started, self.clock.now());
        self.stats.answered(took, (open.received_bytes as u64, answer.data.len() as u64), failed);
        let Some(link) = self.links.get_mut(&answer.link) else { return };
        link.answered(open.received_bytes);
        let check = link.stream.data_check();
        let head = frame::seal(FrameKind::Reply, answer.request, &answer.reply, &[&answer.data], check);
        self.push(answer.link, Outgoing { head, data: answer.data, descriptors: answer.descriptors });
        if answer.reply == (Reply::Lent {}) {
            reach(Point::LendSent);
        }
    }

    /// Answers without data or descriptors.
    pub(super) fn reply(&mut self, link: LinkId, request: u64, reply: Reply) {
        self.answer(Answer { link, request, reply, data: Vec::new(), descriptors: Vec::new() });
    }

    fn notify(&mut self, link: LinkId, notice: &Notice) {
        let head = frame::seal(FrameKind::Notice, 0, notice, &[], DataCheck::None);
        self.push(link, Outgoing { head, data: Vec::new(), descriptors: Vec::new() });
    }

    /// Does what the manager decided.
    pub(super) fn carry_out_home(&mut self) {
        while let Some(effects) = self.home.as_mut().map(crate::home::Home::take_effects) {
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Reply { caller, reply } => self.reply(caller.link, caller.request, reply),
                    Effect::Waiting { caller, on } => {
                        self.notify(caller.link, &Notice::Waiting { request: caller.request, on });
                    }
                    Effect::Recall { session, notice } => self.recall(session, &notice),
                    Effect::Tell { session, notice } => {
                        if let Some(link) = self.notices_link(session) {
                            self.notify(link, &notice);
                        }
                    }
                    Effect::Peers { token, rounds } => self.ask_peers(token, rounds),
                    Effect::Lend { caller, reply, descriptor } => self.lend(caller, reply, descriptor),
                    Effect::Sync { caller } => self.sync_names(caller.link, caller.request),
                }
            }
        }
    }

    /// Answers with a descriptor, or says that none can be had by this way.
    fn lend(&mut self, caller: crate::home::Caller, reply: Reply, descriptor: std::os::fd::OwnedFd) {
        let (link, request) = (caller.link, caller.request);
        if !self.links.get(&link).is_some_and(|link| link.stream.shares_memory()) {
            return self.reply(link, request, Reply::NotLent {});
        }
        self.answer(Answer { link, request, reply, data: Vec::new(), descriptors: vec![descriptor] });
    }

    /// Where a session listens.
    fn notices_link(&self, session: pario_core::SessionId) -> Option<LinkId> {
        let is_notices = |link: &super::Link| {
            link.hello()
                .is_some_and(|hello| hello.session == session && hello.purpose == (Purpose::Notices {}))
        };
        self.links.iter().find(|(_, link)| is_notices(link)).map(|(id, _)| *id)
    }

    fn recall(&mut self, session: pario_core::SessionId, notice: &Notice) {
        let Some(id) = self.notices_link(session) else {
            // A lease is granted only to a session that can be told; without the connection it is as good as gone.
            for id in self.links_of(session) {
                self.drop_link(id, Some("it holds a lease but listens to no notices"));
            }
            return;
        };
        reach(Point::RecallDecided);
        self.notify(id, notice);
        reach(Point::RecallSent);
    }

    fn ask_peers(&mut self, token: u64, rounds: crate::peers::Rounds) {
        let mailbox = self.mailbox.clone();
        let done = move |result| mailbox.post(Event::PeersDone(token, result));
        match self.home.as_ref().and_then(crate::home::Home::peers) {
            Some(peers) => peers.submit(rounds, done),
            None => done(Err(Fault::new(Code::Unreachable, "the partition is still starting"))),
        }
    }

    fn sync_names(&mut self, link: LinkId, request: u64) {
        let mailbox = self.mailbox.clone();
        let done = Box::new(move |result: Result<(), Fault>| {
            let reply = result.map_or_else(|fault| Reply::Failed { fault }, |()| Reply::Done {});
            mailbox.post(Event::Answer(Answer {
                link,
                request,
                reply,
                data: Vec::new(),
                descriptors: Vec::new(),
            }));
        });
        if let Some(home) = &self.home {
            home.sync(done);
        }
    }

    /// Stops in order: take every outbox, sync the store, apply the names.
    pub(super) fn begin_stop(&mut self, asker: Option<(LinkId, u64)>) {
        if let Some(askers) = &mut self.stopping {
            askers.extend(asker);
            return;
        }
        self.stopping = Some(asker.into_iter().collect());
        let (mailbox, store, pool) = (self.mailbox.clone(), self.spec.store.clone(), self.pool.clone());
        let index = self.spec.index;
        let done = Box::new(move |_| {
            pool.run(move || {
                let result = store.sync_all().map_err(|error| crate::take::store_fault(index, &error));
                mailbox.post(Event::Quiet(result));
            });
        });
        self.taker.post(Task::Stop { done });
    }

    /// Whether everything is over, and how it went.
    pub(super) fn end(&mut self) -> Option<Result<Ending, Fault>> {
        let result = self.stopped.take()?;
        if let Some(desk) = &self.desk {
            desk.close();
        }
        let result = match self.home.take() {
            Some(home) => result.and(home.shut_down()),
            None => result,
        };
        let reply = match &result {
            Ok(()) => Reply::Done {},
            Err(fault) => Reply::Failed { fault: fault.clone() },
        };
        for (link, request) in self.stopping.take().unwrap_or_default() {
            self.reply(link, request, reply.clone());
        }
        let goodbye = Notice::Goodbye { server: self.spec.index };
        let listeners: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(_, link)| link.hello().is_some_and(|hello| hello.purpose == (Purpose::Notices {})))
            .map(|(id, _)| *id)
            .collect();
        for id in listeners {
            self.notify(id, &goodbye);
        }
        let ending = if self.destroy { Ending::Destroy } else { Ending::Keep };
        Some(result.map(|()| ending))
    }
}

/// The version stands first in a greeting in every version, so that a mismatch can be named even if the rest has changed.
fn check_protocol(frame: &Frame) -> Result<(), Fault> {
    let spoken = frame.body.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    if spoken == Some(frame::PROTOCOL) {
        return Ok(());
    }
    let text = format!(
        "this server speaks protocol {}, the client speaks {}: use the same Pario release for both",
        frame::PROTOCOL,
        spoken.map_or_else(|| "none".to_owned(), |version| version.to_string())
    );
    Err(Fault::new(Code::Protocol, text))
}
