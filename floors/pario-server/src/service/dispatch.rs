//! Dispatch of requests: names and leases to the manager, writes and outboxes to the drain thread, the rest to the pool.
//!
//! Never: accepts an access to a generation that was truncated or removed while this server ran.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pario_core::limits::{FILE_BYTES_MAX, FRAME_DATA_BYTES_MAX, LIST_PAGE_ENTRIES};
use pario_core::{Code, Fault, Generation, InodeId, LocalOffset, ObjectId, SessionId};
use pario_net::frame::Frame;
use pario_net::greeting::ConnectionPurpose;
use pario_net::message::{LockShape, LockSpec, Reply, Request, ViewStream};
use pario_net::outbox::{CursorPage, OutboxReader};
use pario_store::{Handover, LendAccess, Lent, RemoteAccess, Store, StoreError};
use pario_sys::kill_point::{Point, reach};
use pario_view::Direction;

use super::link::LinkId;
use super::remote_access::AtomicWrite;
use super::{RequestAnswer, Service, ServiceEvent};
use crate::coherence::LockedBytes;
use crate::drain::{ByValue, DrainTask, WriteTarget, store_fault};
use crate::gather::StreamPart;
use crate::io_queue::{IoRequest, StoreTurn};
use crate::manager::{ManagerTask, RequestCaller};

/// Files with refused older generations; bounded, the oldest is dropped first.
#[derive(Default)]
pub(crate) struct Fences {
    lowest: HashMap<InodeId, Generation>,
    order: VecDeque<InodeId>,
}

/// Number of fences. Leases of older generations were recalled long ago.
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

type StoreWork = Box<dyn FnOnce(&Arc<dyn Store>) -> Result<WorkResult, StoreError> + Send>;

/// Result of a job of the pool.
#[derive(Default)]
struct WorkResult {
    reply: Option<Reply>,
    data: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl WorkResult {
    fn reply(reply: Reply) -> Result<WorkResult, StoreError> {
        Ok(WorkResult { reply: Some(reply), ..WorkResult::default() })
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
            Request::Ping {} | Request::CountDirect { .. } => {
                self.stats.count_direct(&request);
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
            | Request::ListInodes { .. } => self.serve_by_manager(id, number, request),
            Request::Lock { .. } | Request::FindLock { .. } => self.lock(id, number, request),
            Request::Write { object, at } => {
                let write = ByValue { object, to: WriteTarget::Bytes(at), data: frame.data };
                self.write(id, number, write)
            }
            Request::WriteAtomic { object, at } => self.write_atomic(id, number, (object, at), frame.data),
            Request::WriteStream { object, stream } => {
                self.write_stream(id, number, (object, stream), frame.data)
            }
            Request::Claim { .. }
            | Request::GiveBack { .. }
            | Request::ReportHandover { .. }
            | Request::VisitUnchanged { .. } => self.directory_request(id, number, request),
            Request::VisitRead { .. } | Request::VisitWrite { .. } => {
                self.remote_access(id, number, request, frame.data)
            }
            Request::VisitHandover { object, at, blocks, to, syncs, number_sum: of, told } => {
                let visit = RemoteAccess { object, at, home_confirmed: told };
                self.give(id, number, Handover { to, first: visit, blocks, syncs, number_sum: of })
            }
            _ if super::keep::is_about_kept(&request) => self.keep(id, number, request, frame.data),
            Request::StoreCall {} => self.store_call(id, number, frame.data),
            Request::DefineView { view } => self.define_view(id, number, view, frame.data),
            Request::ForgetView { view } => self.forget_view(id, number, view),
            Request::OfferOutbox { from } => self.attach(id, number, from),
            Request::CollectErrors { inode } => self.take_errors(id, number, inode),
            Request::Drain { session } => self.drain(id, number, session),
            Request::Status {} => {
                self.report(id, number);
                Ok(())
            }
            Request::Shutdown { .. } | Request::AddressChanged { .. } | Request::Bind { .. } => {
                self.ordered(id, number, request)
            }
            other => self.use_store(id, number, other),
        };
        if let Err(fault) = result {
            self.reply(id, number, Reply::Failed { fault });
        }
    }

    fn serve_by_manager(&mut self, id: LinkId, number: u64, request: Request) -> Result<(), Fault> {
        let session = self.session(id)?;
        let caller = RequestCaller { link: id, request: number, session };
        self.to_manager(ManagerTask::Request { caller, request })
    }

    fn to_manager(&self, task: ManagerTask) -> Result<(), Fault> {
        let index = self.spec.index;
        let manager = self.manager.as_ref();
        let manager =
            manager.ok_or_else(|| Fault::new(Code::Invalid, format!("server {index} is not the manager")))?;
        manager.post(task);
        Ok(())
    }

    /// Passes a lock request to the manager, with its view resolved.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is about locks")]
    fn lock(&self, id: LinkId, number: u64, request: Request) -> Result<(), Fault> {
        match request {
            Request::Lock { inode, wish } => {
                let (caller, shape) = self.lock_shape(id, number, &wish)?;
                self.to_manager(ManagerTask::Lock { caller, inode, wish, shape })
            }
            Request::FindLock { inode, wish } => {
                let (caller, shape) = self.lock_shape(id, number, &wish)?;
                self.to_manager(ManagerTask::FindLock { caller, inode, wish, shape })
            }
            other => Err(Fault::new(Code::Protocol, format!("{other:?} is not about locks"))),
        }
    }

    /// The caller and the bytes of a lock request.
    fn lock_shape(
        &self,
        id: LinkId,
        number: u64,
        wish: &LockSpec,
    ) -> Result<(RequestCaller, LockedBytes), Fault> {
        let session = self.session(id)?;
        let shape = match wish.shape {
            LockShape::Bytes { start, end } if start < end => LockedBytes::Bytes(start..end),
            LockShape::Bytes { start, end } => {
                return Err(Fault::new(Code::Invalid, format!("a lock of bytes {start} to {end}")));
            }
            LockShape::Stream { view, displacement: moved, offset, bytes } => {
                let view = self.drainer.views().find(session, view, moved)?;
                let end = offset.checked_add(bytes).filter(|end| bytes != 0 && *end <= view.stream_bytes());
                let end =
                    end.ok_or_else(|| Fault::new(Code::TooLarge, "a lock beyond the end of its view"))?;
                LockedBytes::stream(view, offset..end)
            }
        };
        Ok((RequestCaller { link: id, request: number, session }, shape))
    }

    pub(super) fn session(&self, id: LinkId) -> Result<SessionId, Fault> {
        let hello = self.links.get(&id).and_then(super::ServiceLink::hello);
        hello.map(|hello| hello.session).ok_or_else(|| Fault::from(Code::Closed))
    }

    pub(super) fn is_peer(&self, id: LinkId) -> bool {
        self.links
            .get(&id)
            .and_then(super::ServiceLink::hello)
            .is_some_and(|hello| hello.purpose == (ConnectionPurpose::Peer {}))
    }

    fn write(&mut self, id: LinkId, number: u64, write: ByValue) -> Result<(), Fault> {
        self.fences.check(write.object)?;
        write.check()?;
        let done = self.answer_done(id, number);
        if self.is_placed(write.object.inode) {
            return self.write_placed(id, (write, AtomicWrite::No), done);
        }
        if !self.spec.drain_before_read {
            self.write_in_turn(id, write, done)?;
            return Ok(());
        }
        let (object, empty) = (write.object, write.data.is_empty());
        let done = self.confirmed(object, done);
        // An empty write requests that all earlier writes are drained.
        self.drainer.post(if empty {
            DrainTask::DrainAll { done }
        } else {
            DrainTask::Write { write, done }
        });
        Ok(())
    }

    /// The whole data of a call: in a cached file it becomes visible atomically.
    fn write_atomic(
        &mut self,
        id: LinkId,
        number: u64,
        (object, at): (ObjectId, LocalOffset),
        data: Vec<u8>,
    ) -> Result<(), Fault> {
        let write = ByValue { object, to: WriteTarget::Bytes(at), data };
        if !self.is_placed(write.object.inode) {
            return self.write(id, number, write);
        }
        self.fences.check(write.object)?;
        write.check()?;
        let done = self.answer_done(id, number);
        self.write_placed(id, (write, AtomicWrite::Yes), done)
    }

    /// Passes a write to the drain thread, immediately or at its turn.
    fn write_in_turn(
        &self,
        id: LinkId,
        write: ByValue,
        done: crate::drain::DrainDone<()>,
    ) -> Result<(), Fault> {
        let Some(desk) = &self.io_queue else {
            self.drainer.post(DrainTask::Write { write, done });
            return Ok(());
        };
        // Of a write through a view the I/O queue knows the first offset; it keeps the order of a session's writes in any case.
        let start = match &write.to {
            WriteTarget::Bytes(at) => at.0,
            WriteTarget::Stream { view, layout, stream } => {
                let (index, stream) = (self.spec.index, stream.clone());
                let first = match view {
                    Some(view) => view.on_server(layout, index, stream).next().map(|part| part.local),
                    None => layout.pieces_on(index, stream).next().map(|piece| piece.local),
                };
                first.map_or(0, |local| local.0)
            }
        };
        let bytes = start..start.saturating_add(write.data.len() as u64);
        let wish = IoRequest { session: self.session(id)?, object: write.object, bytes };
        let taker = self.drainer.clone();
        let release = move |turn: StoreTurn| {
            let done = Box::new(move |result| {
                drop(turn);
                done(result);
            });
            taker.post(DrainTask::Write { write, done });
        };
        desk.write(&wish, Box::new(release));
        Ok(())
    }

    /// Reads at the request's turn. False: it is no read, or there is no I/O queue.
    fn read_in_turn(&mut self, id: LinkId, number: u64, request: &Request) -> Result<bool, Fault> {
        let Some(desk) = self.io_queue.clone() else { return Ok(false) };
        let (mailbox, index, session) = (self.mailbox.clone(), self.spec.index, self.session(id)?);
        let done = Box::new(move |result: Result<Vec<u8>, StoreError>| {
            let (reply, data) = match result {
                Ok(data) => (Reply::Data {}, data),
                Err(error) => (Reply::Failed { fault: store_fault(index, &error) }, Vec::new()),
            };
            mailbox.post(ServiceEvent::Answer(RequestAnswer {
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
                desk.read(&IoRequest { session, object: *object, bytes }, done);
            }
            Request::ReadStream { object, stream } => {
                self.fences.check(*object)?;
                self.part(id, stream)?.read_in_turn(&desk, (session, *object), done);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Has the store confirm the object before a write is answered.
    fn confirmed(&self, object: ObjectId, done: crate::drain::DrainDone<()>) -> crate::drain::DrainDone<()> {
        let (store, pool, taker) = (Arc::clone(&self.spec.store), self.pool.clone(), self.drainer.clone());
        let index = self.spec.index;
        Box::new(move |result| {
            if result.is_err() || store.is_confirmed(object) {
                return done(result);
            }
            // Never on the drain thread: other callers may wait for its records.
            let settle = move || store.confirm(object).map_err(|error| store_fault(index, &error));
            pool.run(settle, move |settled| {
                taker.post(DrainTask::Grant);
                done(settled);
            });
        })
    }

    fn write_stream(
        &mut self,
        id: LinkId,
        number: u64,
        (object, stream): (ObjectId, ViewStream),
        data: Vec<u8>,
    ) -> Result<(), Fault> {
        let part = self.part(id, &stream)?;
        if part.view.as_ref().is_some_and(|view| view.direction() != Direction::Increasing) {
            return Err(Fault::new(Code::Invalid, "a write through a view that maps bytes twice"));
        }
        let to = WriteTarget::Stream { view: part.view, layout: stream.layout, stream: part.stream };
        self.write(id, number, ByValue { object, to, data })
    }

    /// The stream range of a message, checked.
    fn part(&self, id: LinkId, stream: &ViewStream) -> Result<StreamPart, Fault> {
        let session = self.session(id)?;
        let view = match stream.view {
            0 => None,
            number => Some(self.drainer.views().find(session, number, stream.displacement)?),
        };
        let end = view.as_ref().map_or(FILE_BYTES_MAX, |view| view.stream_bytes());
        let range =
            stream.offset.checked_add(stream.bytes).filter(|to| *to <= end).map(|to| stream.offset..to);
        let range = range.ok_or_else(|| Fault::new(Code::TooLarge, "a range beyond the end of its view"))?;
        Ok(StreamPart { view, layout: stream.layout, stream: range, server: self.spec.index })
    }

    fn define_view(&mut self, id: LinkId, number: u64, view: u32, bytes: Vec<u8>) -> Result<(), Fault> {
        let (session, done) = (self.session(id)?, self.answer_done(id, number));
        self.drainer.post(DrainTask::DefineView { session, view, bytes, done });
        Ok(())
    }

    fn forget_view(&mut self, id: LinkId, number: u64, view: u32) -> Result<(), Fault> {
        let (session, done) = (self.session(id)?, self.answer_done(id, number));
        self.drainer.post(DrainTask::ForgetView { session, view, done });
        Ok(())
    }

    fn attach(&mut self, id: LinkId, number: u64, from: u64) -> Result<(), Fault> {
        let session = self.session(id)?;
        let protocol = |what: String| Fault::new(Code::Protocol, what);
        if !self.links.get(&id).is_some_and(|link| link.stream.shares_memory()) {
            return Err(protocol("an outbox over a connection that shares no memory".into()));
        }
        let descriptor = self
            .links
            .get_mut(&id)
            .and_then(super::ServiceLink::take_descriptor)
            .ok_or_else(|| protocol("an outbox without a descriptor".into()))?;
        let outbox = OutboxReader::attach(descriptor).map_err(|error| protocol(error.to_string()))?;
        outbox.tail(from).map_err(|error| protocol(error.to_string()))?;
        let (cursor, page) = CursorPage::create(from).map_err(|error| protocol(error.to_string()))?;
        let doorbell = self
            .drainer
            .doorbell()
            .duplicate()
            .map_err(|error| Fault::from_io(&error, "passing a doorbell"))?;
        let mailbox = self.mailbox.clone();
        let done = Box::new(move |_| {
            let descriptors = vec![page, doorbell];
            let reply = Reply::OutboxAttached {};
            mailbox.post(ServiceEvent::Answer(RequestAnswer {
                link: id,
                request: number,
                reply,
                data: Vec::new(),
                descriptors,
            }));
        });
        self.drainer.post(DrainTask::Attach { session, outbox, cursor, from, done });
        Ok(())
    }

    fn take_errors(&mut self, id: LinkId, number: u64, inode: InodeId) -> Result<(), Fault> {
        let session = self.session(id)?;
        let mailbox = self.mailbox.clone();
        let done = Box::new(move |faults: Result<Vec<Fault>, Fault>| {
            let reply =
                faults.map_or_else(|fault| Reply::Failed { fault }, |faults| Reply::Errors { faults });
            mailbox.post(ServiceEvent::Answer(RequestAnswer {
                link: id,
                request: number,
                reply,
                data: Vec::new(),
                descriptors: Vec::new(),
            }));
        });
        self.drainer.post(DrainTask::Errors { session, inode, done });
        Ok(())
    }

    /// The manager recovers a dead session. A session from the network is fenced permanently; a session of this node shares memory with the
    /// server, and its death was proved by the kernel.
    fn drain(&mut self, id: LinkId, number: u64, session: SessionId) -> Result<(), Fault> {
        if !self.is_peer(id) {
            return Err(Fault::new(Code::Denied, "only the manager drains other sessions"));
        }
        for link in self.links_of(session) {
            if self.links.get(&link).is_some_and(|link| !link.stream.shares_memory()) {
                self.drop_link(link, Some("the manager declared it dead"));
            }
        }
        self.visits.fence(session);
        let done = self.visits.after_writes(session, self.answer_done(id, number));
        self.drainer.post(DrainTask::Drain { session, done });
        Ok(())
    }

    pub(super) fn answer_done(&self, link: LinkId, request: u64) -> crate::drain::DrainDone<()> {
        let mailbox = self.mailbox.clone();
        Box::new(move |result| {
            let reply = result.map_or_else(|fault| Reply::Failed { fault }, |()| Reply::Done {});
            mailbox.post(ServiceEvent::Answer(RequestAnswer {
                link,
                request,
                reply,
                data: Vec::new(),
                descriptors: Vec::new(),
            }));
        })
    }

    /// The same for a reply that brings data.
    pub(super) fn answer_with(
        &self,
        link: LinkId,
        request: u64,
    ) -> crate::drain::DrainDone<(Reply, Vec<u8>)> {
        let mailbox = self.mailbox.clone();
        Box::new(move |result| {
            let (reply, data) = result.unwrap_or_else(|fault| (Reply::Failed { fault }, Vec::new()));
            let answer = RequestAnswer { link, request, reply, data, descriptors: Vec::new() };
            mailbox.post(ServiceEvent::Answer(answer));
        })
    }

    fn use_store(&mut self, id: LinkId, number: u64, request: Request) -> Result<(), Fault> {
        if self.read_in_turn(id, number, &request)? {
            return Ok(());
        }
        let first = self.spec.drain_before_read && reads(&request);
        let placed = read_of(&request).filter(|(inode, _)| self.is_placed(*inode));
        let work: StoreWork = if crate::inspect::is_inspection(&request) {
            Box::new(move |store| WorkResult::reply(crate::inspect::answer(store.as_ref(), &request)?))
        } else if let Request::FindData { object, at, bytes } = request {
            self.fences.check(object)?;
            let (range, ordered) = (at.0..at.0.saturating_add(bytes), self.io_queue.is_some());
            Box::new(move |store| match ordered {
                // A request that waits for its turn is not in the store yet.
                true => WorkResult::reply(Reply::DataParts {
                    parts: vec![(range.start, range.end)],
                    searched_to: range.end,
                }),
                false => WorkResult::reply(crate::data_parts::find(store.as_ref(), object, range)?),
            })
        } else {
            self.work(id, request)?
        };
        let (store, mailbox, index) = (Arc::clone(&self.spec.store), self.mailbox.clone(), self.spec.index);
        let answer = move |result: Result<WorkResult, Fault>| {
            let (reply, data, descriptors) = match result {
                Ok(done) => (done.reply.unwrap_or(Reply::Done {}), done.data, done.descriptors),
                Err(fault) => (Reply::Failed { fault }, Vec::new(), Vec::new()),
            };
            mailbox.post(ServiceEvent::Answer(RequestAnswer {
                link: id,
                request: number,
                reply,
                data,
                descriptors,
            }));
        };
        let work = move || work(&store).map_err(|error| store_fault(index, &error));
        if let Some((inode, range)) = placed {
            self.threads_for(inode, range)?.run(work, answer);
        } else if first {
            let pool = self.pool.clone();
            self.drainer.post(DrainTask::DrainAll { done: Box::new(move |_| pool.run(work, answer)) });
        } else {
            self.pool.run(work, answer);
        }
        Ok(())
    }

    /// An operation that only this kind of store has.
    fn store_call(&mut self, id: LinkId, number: u64, operation: Vec<u8>) -> Result<(), Fault> {
        let (store, index) = (Arc::clone(&self.spec.store), self.spec.index);
        let answer = self.answer_with(id, number);
        let work = move || {
            let data = store.call(&operation).map_err(|error| store_fault(index, &error))?;
            Ok((Reply::Data {}, data))
        };
        self.pool.run(work, answer);
        Ok(())
    }

    /// Whether descriptors are lent. Accesses that bypass the server cannot be ordered by it.
    pub(super) fn lends(&self) -> bool {
        self.spec.lends && self.io_queue.is_none()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn work(&mut self, id: LinkId, request: Request) -> Result<StoreWork, Fault> {
        let peer = self.is_peer(id);
        let only_peers =
            || if peer { Ok(()) } else { Err(Fault::new(Code::Denied, "only the manager may ask this")) };
        Ok(match request {
            Request::Read { object, at, bytes } => {
                self.fences.check(object)?;
                let bytes = (bytes as usize).min(FRAME_DATA_BYTES_MAX);
                Box::new(move |store| read(store.as_ref(), object, at, bytes))
            }
            Request::ReadAtomic { object, at, bytes } => {
                self.fences.check(object)?;
                let bytes = (bytes as usize).min(FRAME_DATA_BYTES_MAX);
                Box::new(move |store| read_atomic(store.as_ref(), object, at, bytes))
            }
            Request::ReadStream { object, stream } => {
                self.fences.check(object)?;
                let part = self.part(id, &stream)?;
                Box::new(move |store| {
                    let data = part.read(store.as_ref(), object)?;
                    Ok(WorkResult { reply: Some(Reply::Data {}), data, descriptors: Vec::new() })
                })
            }
            Request::Lend { object, write } => {
                self.fences.check(object)?;
                if !self.links.get(&id).is_some_and(|link| link.stream.shares_memory()) {
                    return Err(Fault::new(Code::Unsupported, "descriptors are lent on the same node only"));
                }
                let lends = self.lends() && (!write || self.spec.lends_writing);
                if !lends {
                    return Ok(Box::new(|_| WorkResult::reply(Reply::NotLent {})));
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
                Box::new(move |store| store.flush(object).map(|()| WorkResult::default()))
            }
            Request::Truncate { inode, from, to, bytes } => {
                only_peers()?;
                self.fences.raise(inode, to);
                Box::new(move |store| {
                    store.truncate(inode, from, to, bytes)?;
                    reach(Point::CutObject);
                    Ok(WorkResult::default())
                })
            }
            Request::RemoveObject { object } => {
                only_peers()?;
                self.fences.raise(object.inode, Generation(u32::MAX));
                Box::new(move |store| {
                    store.remove(object)?;
                    reach(Point::RemoveObject);
                    Ok(WorkResult::default())
                })
            }
            Request::RemoveOrphan { object } => {
                Box::new(move |store| store.remove(object).map(|()| WorkResult::default()))
            }
            Request::Measure { object } => Box::new(move |store| measure(store.as_ref(), object)),
            Request::ListObjects { after, limit } => {
                Box::new(move |store| list(store.as_ref(), after, limit))
            }
            Request::Space {} => Box::new(|store| WorkResult::reply(Reply::Space { space: store.space()? })),
            other => return Err(Fault::new(Code::Protocol, format!("{other:?} is not expected here"))),
        })
    }

    pub(super) fn set_peers(&mut self, connect: &Arc<dyn crate::peers::Connect>) {
        self.connect = Some(Arc::clone(connect));
        let hello = self.own_hello();
        let (trust, servers) = ((self.spec.secret.clone(), self.spec.protect), self.spec.servers);
        let Some(manager) = &self.manager else { return };
        let peers = crate::peers::ManagerPeers::new(Arc::clone(connect), hello, trust, servers);
        manager.post(ManagerTask::SetPeers(peers));
    }

    fn own_hello(&self) -> pario_net::greeting::Hello {
        server_hello(&self.spec, SessionId(self.incarnation.0))
    }
}

/// The greeting of a server to its peers, in a session of this number.
pub(super) fn server_hello(spec: &super::ServerSpec, session: SessionId) -> pario_net::greeting::Hello {
    pario_net::greeting::Hello {
        protocol: pario_net::frame::PROTOCOL,
        partition: spec.partition,
        server: spec.index,
        session,
        purpose: ConnectionPurpose::Peer {},
        host: crate::manager::host_name(),
        pid: std::process::id(),
        start_ticks: pario_sys::process::start_ticks(std::process::id()).unwrap_or(0),
        program: format!("pario server {}", spec.index),
        application: "pario".into(),
        weight: 1,
        relay: false,
        protect: false,
        nonce: [0; 32],
    }
}

/// Whether a request reads bytes that may still be in an outbox.
fn reads(request: &Request) -> bool {
    matches!(
        request,
        Request::Read { .. }
            | Request::ReadStream { .. }
            | Request::Measure { .. }
            | Request::FindData { .. }
    )
}

/// The file that a request reads, and its range, if it names one.
#[expect(clippy::wildcard_enum_match_arm, reason = "nothing else reads")]
fn read_of(request: &Request) -> Option<(InodeId, Option<Range<u64>>)> {
    match request {
        Request::Read { object, at, bytes } => {
            Some((object.inode, Some(at.0..at.0.saturating_add(u64::from(*bytes)))))
        }
        Request::ReadStream { object, .. } | Request::ReadAtomic { object, .. } => Some((object.inode, None)),
        _ => None,
    }
}

fn read(
    store: &dyn Store,
    object: ObjectId,
    at: LocalOffset,
    bytes: usize,
) -> Result<WorkResult, StoreError> {
    let mut data = pario_net::buffers::take(bytes);
    let count = store.read(object, at, &mut data)?;
    data.truncate(count);
    Ok(WorkResult { reply: Some(Reply::Data {}), data, descriptors: Vec::new() })
}

fn read_atomic(
    store: &dyn Store,
    object: ObjectId,
    at: LocalOffset,
    bytes: usize,
) -> Result<WorkResult, StoreError> {
    let Some(places) = store.peer_service() else { return WorkResult::reply(Reply::NotNow {}) };
    let mut data = pario_net::buffers::take(bytes);
    if places.read_atomic(object, at, &mut data)? {
        return Ok(WorkResult { reply: Some(Reply::Data {}), data, descriptors: Vec::new() });
    }
    pario_net::buffers::give_back(data);
    WorkResult::reply(Reply::NotNow {})
}

fn lend(store: &dyn Store, object: ObjectId, access: LendAccess) -> Result<WorkResult, StoreError> {
    reach(Point::LendAsked);
    let lent = store.lend(object, access)?;
    reach(Point::LendOpened);
    match lent {
        Lent::Descriptor(descriptor) => {
            Ok(WorkResult { reply: Some(Reply::Lent {}), data: Vec::new(), descriptors: vec![descriptor] })
        }
        Lent::Summed { descriptor, sums } => {
            let descriptors = vec![descriptor, sums];
            Ok(WorkResult { reply: Some(Reply::LentSummed {}), data: Vec::new(), descriptors })
        }
        Lent::NoObject => WorkResult::reply(Reply::NoObject {}),
        Lent::NotLent => WorkResult::reply(Reply::NotLent {}),
    }
}

fn sync(store: &dyn Store, object: ObjectId) -> Result<WorkResult, StoreError> {
    reach(Point::SyncAsked);
    store.sync(object)?;
    reach(Point::SyncDone);
    Ok(WorkResult::default())
}

fn measure(store: &dyn Store, object: ObjectId) -> Result<WorkResult, StoreError> {
    if let Some(bytes) = store.peer_service().and_then(|places| places.file_length(object.inode)) {
        return WorkResult::reply(Reply::FileLength { bytes });
    }
    let length = store.length(object)?;
    WorkResult::reply(
        length.map_or(Reply::NoObject {}, |bytes| Reply::Length { bytes, generation: object.generation }),
    )
}

fn list(store: &dyn Store, after: Option<ObjectId>, limit: u32) -> Result<WorkResult, StoreError> {
    let limit = limit.clamp(1, LIST_PAGE_ENTRIES) as usize;
    let mut objects = store.list(after, limit + 1)?;
    let more = limit < objects.len();
    objects.truncate(limit);
    WorkResult::reply(Reply::Objects { objects, more })
}
