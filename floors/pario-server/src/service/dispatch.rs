//! Who does what: names and leases go home, writes and outboxes to the taker, the rest to the pool.
//!
//! Never: accepts an access to a generation that was truncated or removed while this server ran.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pario_core::limits::{FILE_BYTES_MAX, FRAME_DATA_BYTES_MAX, LIST_PAGE_ENTRIES};
use pario_core::{Clock, Code, Fault, Generation, InodeId, LocalOffset, Nanos, ObjectId, SessionId};
use pario_net::frame::Frame;
use pario_net::greeting::Purpose;
use pario_net::message::{LockAsk, LockShape, Reply, Request, Stream};
use pario_net::outbox::{CursorPage, OutboxReader};
use pario_store::{LendAccess, Lent, Store, StoreError, Take, Visit};
use pario_sys::kill_point::{Point, reach};
use pario_view::Direction;

use super::link::LinkId;
use super::visits::AtOnce;
use super::{Answer, Event, Service};
use crate::coherence::Shape;
use crate::desk::{Turn, Wish};
use crate::gather::Part;
use crate::home::{Caller, Home};
use crate::take::{ByValue, Target, Task, store_fault};

/// Files whose older generations are refused; bounded, oldest forgotten first.
#[derive(Default)]
pub(crate) struct Fences {
    lowest: HashMap<InodeId, Generation>,
    order: VecDeque<InodeId>,
}

/// Fences kept. What is older had to be recalled from its users long ago.
const FENCES_MAX: usize = 1 << 16;

impl Fences {
    pub(crate) fn raise(&mut self, inode: InodeId, lowest: Generation) {
        if self.lowest.insert(inode, lowest).is_none() {
            self.order.push_back(inode);
        }
        if FENCES_MAX < self.order.len()
            && let Some(oldest) = self.order.pop_front()
        {
            self.lowest.remove(&oldest);
        }
    }

    pub(crate) fn check(&self, object: ObjectId) -> Result<(), Fault> {
        match self.lowest.get(&object.inode) {
            Some(lowest) if object.generation < *lowest => {
                Err(Fault::new(Code::Stale, format!("object {object} was truncated or removed")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

type Work = Box<dyn FnOnce(&Arc<dyn Store>) -> Result<Done, StoreError> + Send>;

/// What a job of the pool brings back.
#[derive(Default)]
struct Done {
    reply: Option<Reply>,
    data: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Done {
    fn reply(reply: Reply) -> Result<Done, StoreError> {
        Ok(Done { reply: Some(reply), ..Done::default() })
    }
}

impl Service {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(super) fn dispatch(&mut self, id: LinkId, frame: Frame, request: Request) {
        let number = frame.head.request;
        if self.stopping.is_some()
            && !matches!(request, Request::Ping {} | Request::Status {} | Request::Shutdown { .. })
        {
            let fault =
                Fault::new(Code::ShuttingDown, format!("server {} is shutting down", self.spec.index));
            return self.reply(id, number, Reply::Failed { fault });
        }
        let result = match request {
            Request::Ping {} => {
                self.reply(id, number, Reply::Done {});
                Ok(())
            }
            Request::Name { .. }
            | Request::Close { .. }
            | Request::Acquire { .. }
            | Request::AcquireFree { .. }
            | Request::Return { .. }
            | Request::Extend { .. }
            | Request::Use { .. }
            | Request::SetLength { .. }
            | Request::SyncNames { .. }
            | Request::Unlock { .. }
            | Request::LockBusy { .. }
            | Request::CancelLock { .. }
            | Request::SharePointer { .. }
            | Request::MovePointer { .. }
            | Request::ListInodes { .. } => self.go_home(id, number, request),
            Request::Lock { inode, ref wish } => self.lock(id, number, (inode, wish), Home::lock),
            Request::FindLock { inode, ref wish } => self.lock(id, number, (inode, wish), Home::find_lock),
            Request::Write { object, at } => {
                let write = ByValue { object, to: Target::Bytes(at), data: frame.data };
                self.write(id, number, write)
            }
            Request::WriteAtOnce { object, at } => self.write_at_once(id, number, (object, at), frame.data),
            Request::WriteStream { object, stream } => {
                self.write_stream(id, number, (object, stream), frame.data)
            }
            Request::Claim { .. }
            | Request::GiveBack { .. }
            | Request::Pass { .. }
            | Request::VisitStill { .. } => self.tell_places(id, number, request),
            Request::VisitRead { .. } | Request::VisitWrite { .. } => {
                self.visit(id, number, request, frame.data)
            }
            Request::VisitTake { object, at, blocks, to, syncs, of, told } => {
                let visit = Visit { object, at, told };
                self.give(id, number, Take { to, visit, blocks, syncs, of })
            }
            Request::DefineView { view } => self.define_view(id, number, view, frame.data),
            Request::ForgetView { view } => self.forget_view(id, number, view),
            Request::OfferOutbox { from } => self.attach(id, number, from),
            Request::TakeErrors { inode } => self.take_errors(id, number, inode),
            Request::Drain { session } => self.drain(id, number, session),
            Request::Status {} => {
                let json = self.status_json();
                self.reply(id, number, Reply::Status { json });
                Ok(())
            }
            Request::Shutdown { destroy } => {
                self.destroy |= destroy;
                self.begin_stop(Some((id, number)));
                Ok(())
            }
            other => self.use_store(id, number, other),
        };
        if let Err(fault) = result {
            self.reply(id, number, Reply::Failed { fault });
        }
    }

    fn go_home(&mut self, id: LinkId, number: u64, request: Request) -> Result<(), Fault> {
        let session = self.session(id)?;
        let now = self.clock.now();
        let index = self.spec.index;
        let home = self
            .home
            .as_mut()
            .ok_or_else(|| Fault::new(Code::Invalid, format!("server {index} is not the manager")))?;
        home.handle(Caller { link: id, request: number, session }, request, now);
        Ok(())
    }

    /// Brings a wish for a lock home, with the view that it names looked up.
    fn lock(
        &mut self,
        id: LinkId,
        number: u64,
        (inode, wish): (InodeId, &LockAsk),
        act: impl FnOnce(&mut Home, Caller, (InodeId, &LockAsk), Shape, Nanos),
    ) -> Result<(), Fault> {
        let (session, now, index) = (self.session(id)?, self.clock.now(), self.spec.index);
        let shape = match wish.shape {
            LockShape::Bytes { start, end } if start < end => Shape::Bytes(start..end),
            LockShape::Bytes { start, end } => {
                return Err(Fault::new(Code::Invalid, format!("a lock of bytes {start} to {end}")));
            }
            LockShape::Stream { view, moved, offset, bytes } => {
                let view = self.taker.views().find(session, view, moved)?;
                let end = offset.checked_add(bytes).filter(|end| bytes != 0 && *end <= view.stream_bytes());
                let end =
                    end.ok_or_else(|| Fault::new(Code::TooLarge, "a lock beyond the end of its view"))?;
                Shape::stream(view, offset..end)
            }
        };
        let home = self
            .home
            .as_mut()
            .ok_or_else(|| Fault::new(Code::Invalid, format!("server {index} is not the manager")))?;
        act(home, Caller { link: id, request: number, session }, (inode, wish), shape, now);
        Ok(())
    }

    pub(super) fn session(&self, id: LinkId) -> Result<SessionId, Fault> {
        let hello = self.links.get(&id).and_then(super::Link::hello);
        hello.map(|hello| hello.session).ok_or_else(|| Fault::from(Code::Closed))
    }

    fn is_peer(&self, id: LinkId) -> bool {
        self.links
            .get(&id)
            .and_then(super::Link::hello)
            .is_some_and(|hello| hello.purpose == (Purpose::Peer {}))
    }

    fn write(&mut self, id: LinkId, number: u64, write: ByValue) -> Result<(), Fault> {
        self.fences.check(write.object)?;
        write.check()?;
        let done = self.answer_done(id, number);
        if self.is_placed(write.object.inode) {
            return self.write_placed(id, (write, AtOnce::No), done);
        }
        if !self.spec.take_before_read {
            self.write_in_turn(id, write, done)?;
            return Ok(());
        }
        let (object, empty) = (write.object, write.data.is_empty());
        let done = self.settled(object, done);
        // A write of nothing asks that everything written before counts.
        self.taker.post(if empty { Task::TakeAll { done } } else { Task::Write { write, done } });
        Ok(())
    }

    /// All that a call writes: where blocks have no fixed place others see it as a whole.
    fn write_at_once(
        &mut self,
        id: LinkId,
        number: u64,
        (object, at): (ObjectId, LocalOffset),
        data: Vec<u8>,
    ) -> Result<(), Fault> {
        let write = ByValue { object, to: Target::Bytes(at), data };
        if !self.is_placed(write.object.inode) {
            return self.write(id, number, write);
        }
        self.fences.check(write.object)?;
        write.check()?;
        let done = self.answer_done(id, number);
        self.write_placed(id, (write, AtOnce::Yes), done)
    }

    /// Hands a write to the taker, at once or when it is its turn.
    fn write_in_turn(&self, id: LinkId, write: ByValue, done: crate::take::Done<()>) -> Result<(), Fault> {
        let Some(desk) = &self.desk else {
            self.taker.post(Task::Write { write, done });
            return Ok(());
        };
        // Of what a view spreads the desk knows the first place; it keeps the order of a session's writes in any case.
        let start = match &write.to {
            Target::Bytes(at) => at.0,
            Target::Stream { view, layout, stream } => {
                let (index, stream) = (self.spec.index, stream.clone());
                let first = match view {
                    Some(view) => view.on_server(layout, index, stream).next().map(|part| part.local),
                    None => layout.pieces_on(index, stream).next().map(|piece| piece.local),
                };
                first.map_or(0, |local| local.0)
            }
        };
        let bytes = start..start.saturating_add(write.data.len() as u64);
        let wish = Wish { session: self.session(id)?, object: write.object, bytes };
        let taker = self.taker.clone();
        let release = move |turn: Turn| {
            let done = Box::new(move |result| {
                drop(turn);
                done(result);
            });
            taker.post(Task::Write { write, done });
        };
        desk.write(&wish, Box::new(release));
        Ok(())
    }

    /// Reads when it is the request's turn. False: it is no read, or there is no order.
    fn read_in_turn(&mut self, id: LinkId, number: u64, request: &Request) -> Result<bool, Fault> {
        let Some(desk) = self.desk.clone() else { return Ok(false) };
        let (mailbox, index, session) = (self.mailbox.clone(), self.spec.index, self.session(id)?);
        let done = Box::new(move |result: Result<Vec<u8>, StoreError>| {
            let (reply, data) = match result {
                Ok(data) => (Reply::Data {}, data),
                Err(error) => (Reply::Failed { fault: store_fault(index, &error) }, Vec::new()),
            };
            mailbox.post(Event::Answer(Answer {
                link: id,
                request: number,
                reply,
                data,
                descriptors: Vec::new(),
            }));
        });
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else reads")]
        match request {
            Request::Read { object, at, bytes } => {
                self.fences.check(*object)?;
                let bytes = u64::from(*bytes).min(FRAME_DATA_BYTES_MAX as u64);
                let bytes = at.0..at.0.saturating_add(bytes);
                desk.read(&Wish { session, object: *object, bytes }, done);
            }
            Request::ReadStream { object, stream } => {
                self.fences.check(*object)?;
                self.part(id, stream)?.read_in_turn(&desk, (session, *object), done);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Has the store settle the object before a write is answered.
    fn settled(&self, object: ObjectId, done: crate::take::Done<()>) -> crate::take::Done<()> {
        let (store, pool, taker) = (Arc::clone(&self.spec.store), self.pool.clone(), self.taker.clone());
        let index = self.spec.index;
        Box::new(move |result| {
            if result.is_err() || store.is_settled(object) {
                return done(result);
            }
            // Never on the taking thread: others may wait for what it takes.
            pool.run(move || {
                let settled = store.settle(object).map_err(|error| store_fault(index, &error));
                taker.post(Task::Grant);
                done(settled);
            });
        })
    }

    fn write_stream(
        &mut self,
        id: LinkId,
        number: u64,
        (object, stream): (ObjectId, Stream),
        data: Vec<u8>,
    ) -> Result<(), Fault> {
        let part = self.part(id, &stream)?;
        if part.view.as_ref().is_some_and(|view| view.direction() != Direction::Increasing) {
            return Err(Fault::new(Code::Invalid, "a write through a view that shows bytes twice"));
        }
        let to = Target::Stream { view: part.view, layout: stream.layout, stream: part.stream };
        self.write(id, number, ByValue { object, to, data })
    }

    /// What a message says of a stream, checked.
    fn part(&self, id: LinkId, stream: &Stream) -> Result<Part, Fault> {
        let session = self.session(id)?;
        let view = match stream.view {
            0 => None,
            number => Some(self.taker.views().find(session, number, stream.moved)?),
        };
        let end = view.as_ref().map_or(FILE_BYTES_MAX, |view| view.stream_bytes());
        let range =
            stream.offset.checked_add(stream.bytes).filter(|to| *to <= end).map(|to| stream.offset..to);
        let range = range.ok_or_else(|| Fault::new(Code::TooLarge, "a range beyond the end of its view"))?;
        Ok(Part { view, layout: stream.layout, stream: range, server: self.spec.index })
    }

    fn define_view(&mut self, id: LinkId, number: u64, view: u32, bytes: Vec<u8>) -> Result<(), Fault> {
        let (session, done) = (self.session(id)?, self.answer_done(id, number));
        self.taker.post(Task::DefineView { session, view, bytes, done });
        Ok(())
    }

    fn forget_view(&mut self, id: LinkId, number: u64, view: u32) -> Result<(), Fault> {
        let (session, done) = (self.session(id)?, self.answer_done(id, number));
        self.taker.post(Task::ForgetView { session, view, done });
        Ok(())
    }

    fn attach(&mut self, id: LinkId, number: u64, from: u64) -> Result<(), Fault> {
        let session = self.session(id)?;
        let protocol = |what: String| Fault::new(Code::Protocol, what);
        let descriptor = self
            .links
            .get_mut(&id)
            .and_then(super::Link::take_descriptor)
            .ok_or_else(|| protocol("an outbox without a descriptor".into()))?;
        let outbox = OutboxReader::attach(descriptor).map_err(|error| protocol(error.to_string()))?;
        outbox.tail(from).map_err(|error| protocol(error.to_string()))?;
        let (cursor, page) = CursorPage::create(from).map_err(|error| protocol(error.to_string()))?;
        let doorbell = self
            .taker
            .doorbell()
            .duplicate()
            .map_err(|error| Fault::from_io(&error, "passing a doorbell"))?;
        let mailbox = self.mailbox.clone();
        let done = Box::new(move |_| {
            let descriptors = vec![page, doorbell];
            let reply = Reply::OutboxTaken {};
            mailbox.post(Event::Answer(Answer {
                link: id,
                request: number,
                reply,
                data: Vec::new(),
                descriptors,
            }));
        });
        self.taker.post(Task::Attach { session, outbox, cursor, from, done });
        Ok(())
    }

    fn take_errors(&mut self, id: LinkId, number: u64, inode: InodeId) -> Result<(), Fault> {
        let session = self.session(id)?;
        let mailbox = self.mailbox.clone();
        let done = Box::new(move |faults: Result<Vec<Fault>, Fault>| {
            let reply =
                faults.map_or_else(|fault| Reply::Failed { fault }, |faults| Reply::Errors { faults });
            mailbox.post(Event::Answer(Answer {
                link: id,
                request: number,
                reply,
                data: Vec::new(),
                descriptors: Vec::new(),
            }));
        });
        self.taker.post(Task::Errors { session, inode, done });
        Ok(())
    }

    /// A session whose death the manager wants settled. One that came over the network is cut off for good; one of this node
    /// shares memory with us, and its death was proved by the kernel.
    fn drain(&mut self, id: LinkId, number: u64, session: SessionId) -> Result<(), Fault> {
        if !self.is_peer(id) {
            return Err(Fault::new(Code::Denied, "only the manager drains other sessions"));
        }
        for link in self.links_of(session) {
            if self.links.get(&link).is_some_and(|link| !link.stream.shares_memory()) {
                self.drop_link(link, Some("the manager takes it for gone"));
            }
        }
        self.visits.fence(session);
        let done = self.visits.after_writes(session, self.answer_done(id, number));
        self.taker.post(Task::Drain { session, done });
        Ok(())
    }

    pub(super) fn answer_done(&self, link: LinkId, request: u64) -> crate::take::Done<()> {
        let mailbox = self.mailbox.clone();
        Box::new(move |result| {
            let reply = result.map_or_else(|fault| Reply::Failed { fault }, |()| Reply::Done {});
            mailbox.post(Event::Answer(Answer {
                link,
                request,
                reply,
                data: Vec::new(),
                descriptors: Vec::new(),
            }));
        })
    }

    fn use_store(&mut self, id: LinkId, number: u64, request: Request) -> Result<(), Fault> {
        if self.read_in_turn(id, number, &request)? {
            return Ok(());
        }
        let first = self.spec.take_before_read && reads(&request);
        let placed = read_of(&request).filter(|(inode, _)| self.is_placed(*inode));
        let work = self.work(id, request)?;
        let (store, mailbox, index) = (Arc::clone(&self.spec.store), self.mailbox.clone(), self.spec.index);
        let run = move || {
            let (reply, data, descriptors) = match work(&store) {
                Ok(done) => (done.reply.unwrap_or(Reply::Done {}), done.data, done.descriptors),
                Err(error) => (Reply::Failed { fault: store_fault(index, &error) }, Vec::new(), Vec::new()),
            };
            mailbox.post(Event::Answer(Answer { link: id, request: number, reply, data, descriptors }));
        };
        if let Some((inode, range)) = placed {
            self.threads_for(inode, range)?.run(run);
        } else if first {
            let pool = self.pool.clone();
            self.taker.post(Task::TakeAll { done: Box::new(move |_| pool.run(run)) });
        } else {
            self.pool.run(run);
        }
        Ok(())
    }

    /// Whether descriptors are lent. What goes past the server cannot be ordered by it.
    pub(super) fn lends(&self) -> bool {
        self.spec.lends && self.desk.is_none()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn work(&mut self, id: LinkId, request: Request) -> Result<Work, Fault> {
        let peer = self.is_peer(id);
        let only_peers =
            || if peer { Ok(()) } else { Err(Fault::new(Code::Denied, "only the manager may ask this")) };
        Ok(match request {
            Request::Read { object, at, bytes } => {
                self.fences.check(object)?;
                let bytes = (bytes as usize).min(FRAME_DATA_BYTES_MAX);
                Box::new(move |store| read(store.as_ref(), object, at, bytes))
            }
            Request::ReadAtOnce { object, at, bytes } => {
                self.fences.check(object)?;
                let bytes = (bytes as usize).min(FRAME_DATA_BYTES_MAX);
                Box::new(move |store| read_at_once(store.as_ref(), object, at, bytes))
            }
            Request::ReadStream { object, stream } => {
                self.fences.check(object)?;
                let part = self.part(id, &stream)?;
                Box::new(move |store| {
                    let data = part.read(store.as_ref(), object)?;
                    Ok(Done { reply: Some(Reply::Data {}), data, descriptors: Vec::new() })
                })
            }
            Request::Lend { object, write } => {
                self.fences.check(object)?;
                if !self.links.get(&id).is_some_and(|link| link.stream.shares_memory()) {
                    return Err(Fault::new(Code::Unsupported, "descriptors are lent on the same node only"));
                }
                let lends = self.lends() && (!write || self.spec.lends_writing);
                if !lends {
                    return Ok(Box::new(|_| Done::reply(Reply::NotLent {})));
                }
                let (access, stats) =
                    (if write { LendAccess::Write } else { LendAccess::Read }, Arc::clone(&self.stats));
                Box::new(move |store| {
                    stats.count_lent();
                    lend(store.as_ref(), object, access)
                })
            }
            Request::SyncObject { object } => Box::new(move |store| sync(store.as_ref(), object)),
            Request::FlushObject { object } => {
                Box::new(move |store| store.flush(object).map(|()| Done::default()))
            }
            Request::Truncate { inode, from, to, bytes } => {
                only_peers()?;
                self.fences.raise(inode, to);
                Box::new(move |store| {
                    store.truncate(inode, from, to, bytes)?;
                    reach(Point::CutObject);
                    Ok(Done::default())
                })
            }
            Request::RemoveObject { object } => {
                only_peers()?;
                self.fences.raise(object.inode, Generation(u32::MAX));
                Box::new(move |store| {
                    store.remove(object)?;
                    reach(Point::RemoveObject);
                    Ok(Done::default())
                })
            }
            Request::RemoveOrphan { object } => {
                Box::new(move |store| store.remove(object).map(|()| Done::default()))
            }
            Request::Measure { object } => Box::new(move |store| measure(store.as_ref(), object)),
            Request::ListObjects { after, limit } => {
                Box::new(move |store| list(store.as_ref(), after, limit))
            }
            Request::Space {} => Box::new(|store| Done::reply(Reply::Space { space: store.space()? })),
            other => return Err(Fault::new(Code::Protocol, format!("{other:?} has no place here"))),
        })
    }

    pub(super) fn set_peers(&mut self, connect: &Arc<dyn crate::peers::Connect>) {
        self.connect = Some(Arc::clone(connect));
        let hello = self.own_hello();
        let (secret, servers) = (self.spec.secret.clone(), self.spec.servers);
        let Some(home) = &mut self.home else { return };
        home.set_peers(crate::peers::Peers::new(Arc::clone(connect), hello, secret, servers));
    }

    fn own_hello(&self) -> pario_net::greeting::Hello {
        pario_net::greeting::Hello {
            protocol: pario_net::frame::PROTOCOL,
            partition: self.spec.partition,
            server: self.spec.index,
            session: SessionId(self.incarnation.0),
            purpose: Purpose::Peer {},
            host: crate::home::host_name(),
            pid: std::process::id(),
            start_ticks: pario_sys::process::start_ticks(std::process::id()).unwrap_or(0),
            program: format!("pario server {}", self.spec.index),
            application: "pario".into(),
            weight: 1,
            relay: false,
            nonce: [0; 32],
        }
    }
}

/// Whether a request is about bytes that may still be on their way in an outbox.
fn reads(request: &Request) -> bool {
    matches!(request, Request::Read { .. } | Request::ReadStream { .. } | Request::Measure { .. })
}

/// The file that a request reads bytes of, and which, if it says so in a range.
#[expect(clippy::wildcard_enum_match_arm, reason = "nothing else reads")]
fn read_of(request: &Request) -> Option<(InodeId, Option<Range<u64>>)> {
    match request {
        Request::Read { object, at, bytes } => {
            Some((object.inode, Some(at.0..at.0.saturating_add(u64::from(*bytes)))))
        }
        Request::ReadStream { object, .. } | Request::ReadAtOnce { object, .. } => Some((object.inode, None)),
        _ => None,
    }
}

fn read(store: &dyn Store, object: ObjectId, at: LocalOffset, bytes: usize) -> Result<Done, StoreError> {
    let mut data = pario_net::buffers::take(bytes);
    let count = store.read(object, at, &mut data)?;
    data.truncate(count);
    Ok(Done { reply: Some(Reply::Data {}), data, descriptors: Vec::new() })
}

fn read_at_once(
    store: &dyn Store,
    object: ObjectId,
    at: LocalOffset,
    bytes: usize,
) -> Result<Done, StoreError> {
    let Some(places) = store.places() else { return Done::reply(Reply::NotNow {}) };
    let mut data = pario_net::buffers::take(bytes);
    if places.read_at_once(object, at, &mut data)? {
        return Ok(Done { reply: Some(Reply::Data {}), data, descriptors: Vec::new() });
    }
    pario_net::buffers::give_back(data);
    Done::reply(Reply::NotNow {})
}

fn lend(store: &dyn Store, object: ObjectId, access: LendAccess) -> Result<Done, StoreError> {
    reach(Point::LendAsked);
    let lent = store.lend(object, access)?;
    reach(Point::LendOpened);
    match lent {
        Lent::Descriptor(descriptor) => {
            Ok(Done { reply: Some(Reply::Lent {}), data: Vec::new(), descriptors: vec![descriptor] })
        }
        Lent::NoObject => Done::reply(Reply::NoObject {}),
        Lent::NotLent => Done::reply(Reply::NotLent {}),
    }
}

fn sync(store: &dyn Store, object: ObjectId) -> Result<Done, StoreError> {
    reach(Point::SyncAsked);
    store.sync(object)?;
    reach(Point::SyncDone);
    Ok(Done::default())
}

fn measure(store: &dyn Store, object: ObjectId) -> Result<Done, StoreError> {
    if let Some(bytes) = store.places().and_then(|places| places.file_length(object.inode)) {
        return Done::reply(Reply::FileLength { bytes });
    }
    let length = store.length(object)?;
    Done::reply(
        length.map_or(Reply::NoObject {}, |bytes| Reply::Length { bytes, generation: object.generation }),
    )
}

fn list(store: &dyn Store, after: Option<ObjectId>, limit: u32) -> Result<Done, StoreError> {
    let limit = limit.clamp(1, LIST_PAGE_ENTRIES) as usize;
    let mut objects = store.list(after, limit + 1)?;
    let more = limit < objects.len();
    objects.truncate(limit);
    Done::reply(Reply::Objects { objects, more })
}
