//! Outgoing replies, greetings, and orderly shutdown.
//!
//! Never: sends a reply larger than a frame. Always: a refused greeting gets its reason before the connection is closed.

use pario_core::{Clock, Code, Fault};
use pario_net::frame::{self, DataCheck, Frame, FrameKind};
use pario_net::greeting::{self, Challenge, ConnectionPurpose, Hello, Proof, Welcome};
use pario_net::message::{Notice, Reply, Request};
use pario_net::protect::{End, Keys, Protect};
use pario_sys::kill_point::{Point, reach};

use super::link::{Greeting, LinkId, OutgoingFrame};
use super::{Ending, Open, RequestAnswer, Service, ServiceEvent, describe, presentable};
use crate::drain::DrainTask;
use crate::manager::{ManagerEffect, ManagerTask};
use crate::relay::Passage;

/// Concurrent connections of clients: one for requests and one for notices each.
const CONNECTIONS_MAX: usize = pario_core::limits::CLIENTS_MAX * 2;
/// Reply to a client that requests no protection where the partition requires it.
const UNPROTECTED: &str = "this partition protects connections between hosts (`network.protect`), and the client asked for none: \
     the registry entry is stale, or one end sees the other on loopback by way of a tunnel; set network.protect = \"all\" for that";
/// Reply to a client that requests protection where the partition has none.
const PROTECTED: &str = "this partition was started with network.protect = \"none\", and the client asked for protection: \
     the registry entry is stale; look with `pario config show`";

/// Longest text of an outgoing fault; it may contain text of a peer.
const FAULT_BYTES_MAX: usize = 4 << 10;
/// Longest report or list: the rest of a frame's body is small.
const REPORT_BYTES_MAX: usize = pario_core::limits::FRAME_BODY_BYTES_MAX - 64;

/// The reply, or a fault instead of it that fits into a frame.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other reply has a limit of its own")]
fn within_frame(reply: Reply) -> Reply {
    let too_long = |what: &str| Reply::Failed {
        fault: Fault::new(Code::TooLarge, format!("{what} is longer than a message may be")),
    };
    match reply {
        Reply::Failed { mut fault } => {
            let end =
                (0..=FAULT_BYTES_MAX.min(fault.text.len())).rev().find(|at| fault.text.is_char_boundary(*at));
            fault.text.truncate(end.unwrap_or(0));
            Reply::Failed { fault }
        }
        Reply::Status { json } if REPORT_BYTES_MAX < json.len() => too_long("the report of the server"),
        Reply::CopyFiles { files } if REPORT_BYTES_MAX / 16 < files.len() => {
            too_long("the list of names files")
        }
        fits => fits,
    }
}

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
                if let Some(twice) = self.open.insert((id, frame.head.request), open)
                    && let Some(link) = self.links.get_mut(&id)
                {
                    // Both requests get one reply.
                    link.answered(twice.received_bytes);
                }
                self.admit(id, frame, request);
            }
            Err(error) => self.drop_link(id, Some(&error.to_string())),
        }
    }

    fn greet(&mut self, id: LinkId, frame: &Frame) -> Result<(), Fault> {
        let malformed = |error: frame::FrameError| Fault::new(Code::Protocol, error.to_string());
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        match (&link.greeting, frame.head.kind) {
            (Greeting::Unauthenticated, FrameKind::Hello) => {
                check_protocol(frame)?;
                let hello: Hello = frame.message().map_err(malformed)?;
                let me = (self.spec.partition, self.spec.index);
                let challenge = greeting::challenge(&self.spec.secret, &hello, me)?;
                let bytes = frame::seal(FrameKind::Challenge, 0, &challenge, &[], DataCheck::None);
                link.greeting = Greeting::Challenged(Box::new((hello, challenge)));
                self.push(id, OutgoingFrame { head: bytes, data: Vec::new(), descriptors: Vec::new() });
                Ok(())
            }
            (Greeting::Challenged(asked), FrameKind::Proof) => {
                let proof: Proof = frame.message().map_err(malformed)?;
                greeting::verify(&self.spec.secret, &asked.0, &asked.1, &proof)?;
                let (hello, challenge) = (asked.0.clone(), asked.1.clone());
                self.proved(id, &hello, &challenge)
            }
            (Greeting::Unauthenticated | Greeting::Challenged(_) | Greeting::Ready(_), _) => {
                Err(Fault::new(Code::Protocol, "a frame that is not part of a greeting"))
            }
        }
    }

    /// The peer has proved the secret: from here on it is a client, and the connection is protected if requested.
    fn proved(&mut self, id: LinkId, hello: &Hello, challenge: &Challenge) -> Result<(), Fault> {
        let Some(link) = self.links.get(&id) else { return Ok(()) };
        let wanted = self.spec.protect.wants(&link.stream);
        if wanted && !hello.protect {
            return Err(Fault::new(Code::Invalid, UNPROTECTED));
        }
        if hello.relay && hello.server == self.spec.index {
            return Err(Fault::new(
                Code::Stale,
                "the target server itself replied, not a relay: the registry entry is stale",
            ));
        }
        if hello.relay {
            return self.relay(id, hello);
        }
        if hello.protect
            && let Some(link) = self.links.remove(&id)
        {
            let keys = Keys::of_greeting(&self.spec.secret, hello, challenge, End::Server);
            self.links.insert(id, link.protected(keys));
        }
        if hello.protect && self.spec.protect == Protect::None {
            return Err(Fault::new(Code::Invalid, PROTECTED));
        }
        if self.awaits_names && hello.purpose != (ConnectionPurpose::Peer {}) {
            // A client admitted now would be unknown to the names that are still being opened.
            return Err(Fault::new(Code::Unreachable, "the manager is starting: its names are not open yet"));
        }
        if CONNECTIONS_MAX <= self.links.len() - self.unproved.len() {
            return Err(Fault::new(Code::TooMany, format!("{CONNECTIONS_MAX} connections are open")));
        }
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let hello = presentable(hello);
        link.greeting = Greeting::Ready(Box::new(hello.clone()));
        self.unproved.leave(id);
        self.welcome(id, &hello);
        Ok(())
    }

    /// A client that is bound to this server requests another one: its connection is relayed.
    fn relay(&mut self, id: LinkId, hello: &Hello) -> Result<(), Fault> {
        let server = hello.server;
        let known = self.connect.clone().filter(|_| server.at() < self.spec.servers);
        let connect = known.ok_or_else(|| {
            let text = format!("this is server {}, which knows no server {server}", self.spec.index);
            Fault::new(Code::Stale, text)
        })?;
        let place = self.relays.reserve(hello.session, server)?;
        let Some(link) = self.forget_link(id) else { return Ok(()) };
        let (protect, stats) = (self.spec.protect, std::sync::Arc::clone(&self.stats));
        if let Err(error) = (Passage { client: link.stream, server, connect, protect, stats }).start(place) {
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
        self.push(id, OutgoingFrame { head: bytes, data: Vec::new(), descriptors: Vec::new() });
        // A session that reconnects has lost its older connection of the same kind, even if this server has not noticed yet.
        let older = |link: &super::ServiceLink| {
            link.hello().is_some_and(|other| (other.session, other.purpose) == (hello.session, hello.purpose))
        };
        let old: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(other, link)| **other != id && older(link))
            .map(|(id, _)| *id)
            .collect();
        for old in old {
            if hello.purpose == (ConnectionPurpose::Notices {}) {
                self.forget_link(old);
            } else {
                self.drop_link(old, None);
            }
        }
        if let Some(desk) = &self.io_queue
            && hello.purpose == (ConnectionPurpose::Requests {})
        {
            desk.joined(hello.session, &hello.application, hello.weight);
        }
        if let Some(manager) = &self.manager
            && hello.purpose == (ConnectionPurpose::Requests {})
        {
            manager.post(ManagerTask::Greeted(Box::new(hello.clone())));
        }
    }

    /// Sends why a greeting failed, then closes the connection.
    fn refuse(&mut self, id: LinkId, fault: &Fault) {
        self.stats.count_refused();
        let Some(link) = self.links.get_mut(&id) else { return };
        let peer = match &link.greeting {
            Greeting::Challenged(asked) => describe(&asked.0),
            Greeting::Unauthenticated | Greeting::Ready(_) => "an unauthenticated peer".to_owned(),
        };
        tracing::warn!("refused {peer}: {fault}");
        link.closing = true;
        let reply = Reply::Failed { fault: fault.clone() };
        let bytes = frame::seal(FrameKind::Reply, 0, &reply, &[], DataCheck::None);
        self.push(id, OutgoingFrame { head: bytes, data: Vec::new(), descriptors: Vec::new() });
    }

    /// A client's connection ended: drain its outbox, and notify the manager.
    pub(super) fn session_left(&mut self, session: pario_core::SessionId, purpose: ConnectionPurpose) {
        if purpose == (ConnectionPurpose::Peer {}) {
            return;
        }
        if purpose == (ConnectionPurpose::Requests {}) {
            self.drainer.post(DrainTask::Detach { session });
        }
        // Requests and notices end together: a client that cannot receive a recall cannot hold a lease.
        let sibling = if purpose == (ConnectionPurpose::Requests {}) {
            ConnectionPurpose::Notices {}
        } else {
            ConnectionPurpose::Requests {}
        };
        for id in self.links_of(session) {
            let is_sibling = self
                .links
                .get(&id)
                .and_then(super::ServiceLink::hello)
                .is_some_and(|hello| hello.purpose == sibling);
            if is_sibling {
                self.forget_link(id);
            }
        }
        if purpose == (ConnectionPurpose::Notices {}) {
            self.drainer.post(DrainTask::Detach { session });
        }
        if let Some(desk) = &self.io_queue {
            desk.left(session);
        }
        if let Some(manager) = &self.manager {
            *self.ending_sessions.entry(session).or_default() += 1;
            manager.post(ManagerTask::SessionEnded(session));
        }
    }

    pub(super) fn answer(&mut self, mut answer: RequestAnswer) {
        answer.reply = within_frame(answer.reply);
        let failed = matches!(answer.reply, Reply::Failed { .. });
        let Some(open) = self.open.remove(&(answer.link, answer.request)) else { return };
        let took = (open.started, self.clock.now());
        self.stats.answered(took, (open.received_bytes as u64, answer.data.len() as u64), failed);
        let Some(link) = self.links.get_mut(&answer.link) else { return };
        link.answered(open.received_bytes);
        let check = link.stream.data_check();
        let head = frame::seal(FrameKind::Reply, answer.request, &answer.reply, &[&answer.data], check);
        self.push(answer.link, OutgoingFrame { head, data: answer.data, descriptors: answer.descriptors });
        if answer.reply == (Reply::Lent {}) {
            reach(Point::LendSent);
        }
    }

    /// Replies without data or descriptors.
    pub(super) fn reply(&mut self, link: LinkId, request: u64, reply: Reply) {
        self.answer(RequestAnswer { link, request, reply, data: Vec::new(), descriptors: Vec::new() });
    }

    fn notify(&mut self, link: LinkId, notice: &Notice) {
        let head = frame::seal(FrameKind::Notice, 0, notice, &[], DataCheck::None);
        self.push(link, OutgoingFrame { head, data: Vec::new(), descriptors: Vec::new() });
    }

    /// Carries out the manager's decisions.
    pub(super) fn carry_out_manager(&mut self, effects: Vec<ManagerEffect>) {
        for effect in effects {
            match effect {
                ManagerEffect::Reply { caller, reply } => self.reply(caller.link, caller.request, reply),
                ManagerEffect::Waiting { caller, on } => {
                    self.notify(caller.link, &Notice::Waiting { request: caller.request, on });
                }
                ManagerEffect::Recall { session, notice } => self.recall(session, &notice),
                ManagerEffect::Notify { session, notice } => {
                    if let Some(link) = self.notices_link(session) {
                        self.notify(link, &notice);
                    }
                }
                ManagerEffect::Lend { caller, reply, descriptor } => self.lend(caller, reply, descriptor),
                ManagerEffect::SessionEnded { session } => self.session_end_known(session),
                ManagerEffect::Peers { .. } | ManagerEffect::Sync { .. } => {
                    unreachable!("carried out by the manager's thread")
                }
            }
        }
    }

    /// The manager knows of the end of a session's connection.
    fn session_end_known(&mut self, session: pario_core::SessionId) {
        if let Some(count) = self.ending_sessions.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.ending_sessions.remove(&session);
            }
        }
    }

    /// Replies with a descriptor, or that none can be passed over this connection.
    fn lend(
        &mut self,
        caller: crate::manager::RequestCaller,
        reply: Reply,
        descriptor: std::os::fd::OwnedFd,
    ) {
        let (link, request) = (caller.link, caller.request);
        if !self.links.get(&link).is_some_and(|link| link.stream.shares_memory()) {
            return self.reply(link, request, Reply::NotLent {});
        }
        self.answer(RequestAnswer { link, request, reply, data: Vec::new(), descriptors: vec![descriptor] });
    }

    /// The notice connection of a session.
    fn notices_link(&self, session: pario_core::SessionId) -> Option<LinkId> {
        let is_notices = |link: &super::ServiceLink| {
            link.hello().is_some_and(|hello| {
                hello.session == session && hello.purpose == (ConnectionPurpose::Notices {})
            })
        };
        self.links.iter().find(|(_, link)| is_notices(link)).map(|(id, _)| *id)
    }

    fn recall(&mut self, session: pario_core::SessionId, notice: &Notice) {
        if self.ending_sessions.contains_key(&session) {
            // A lease of a connection that has ended; the session's next connection does not hold it.
            return;
        }
        let Some(id) = self.notices_link(session) else {
            // A lease is granted only to a session that can receive notices; without that connection it counts as ended.
            for id in self.links_of(session) {
                self.drop_link(id, Some("it holds a lease but listens to no notices"));
            }
            return;
        };
        reach(Point::RecallDecided);
        self.notify(id, notice);
        reach(Point::RecallSent);
    }

    /// Orderly shutdown: drain every outbox, sync the store, apply the names.
    pub(super) fn begin_stop(&mut self, asker: Option<(LinkId, u64)>) {
        if let Some(askers) = &mut self.stopping {
            askers.extend(asker);
            return;
        }
        self.stopping = Some(asker.into_iter().collect());
        let (mailbox, store, pool) = (self.mailbox.clone(), self.spec.store.clone(), self.pool.clone());
        let index = self.spec.index;
        let done = Box::new(move |_| {
            let sync = move || store.sync_all().map_err(|error| crate::drain::store_fault(index, &error));
            pool.run(sync, move |result| mailbox.post(ServiceEvent::Quiet(result)));
        });
        self.drainer.post(DrainTask::Stop { done });
    }

    /// The result of the shutdown, once it is complete.
    pub(super) fn end(&mut self) -> Option<Result<Ending, Fault>> {
        self.stopped.as_ref()?;
        if let Some(manager) = self.manager.take() {
            manager.post(ManagerTask::ShutDown);
            self.closing_names = Some(manager);
        }
        if self.closing_names.is_some() {
            return None;
        }
        let result = self.stopped.take()?.and(self.names_closed.clone());
        if let Some(desk) = &self.io_queue {
            desk.close();
        }
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
            .filter(|(_, link)| {
                link.hello().is_some_and(|hello| hello.purpose == (ConnectionPurpose::Notices {}))
            })
            .map(|(id, _)| *id)
            .collect();
        for id in listeners {
            self.notify(id, &goodbye);
        }
        let ending = match (self.bound_ended, self.destroy) {
            (true, destroy) => Ending::Alone { destroy },
            (false, true) => Ending::Destroy,
            (false, false) => Ending::Keep,
        };
        Some(result.map(|()| ending))
    }
}

/// The version is the first field of a greeting in every version, so that a mismatch can be reported even if the rest has changed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_would_not_fit_becomes_a_short_fault() {
        let long = Reply::Failed { fault: Fault::new(Code::Invalid, "\u{e4}".repeat(FAULT_BYTES_MAX)) };
        let Reply::Failed { fault } = within_frame(long) else { panic!("a fault stays one") };
        assert_eq!((fault.code, fault.text.len()), (Code::Invalid, FAULT_BYTES_MAX));
        let report = Reply::Status { json: "x".repeat(REPORT_BYTES_MAX + 1) };
        assert!(matches!(within_frame(report), Reply::Failed { fault } if fault.code == Code::TooLarge));
        let short = Reply::Status { json: "{}".into() };
        assert_eq!(within_frame(short.clone()), short);
    }
}
