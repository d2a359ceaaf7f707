//! Cached files with placed blocks: accesses that may have to wait for another server, and remote accesses of other servers.
//!
//! ```text
//!  client ─► remote threads ─► store ─┬─ own block
//!                                     ├─ another server's ─► its local threads ─► its store
//!                                     └─ another server's, overwritten ─► its handover threads ─► its store ─► home
//! ```
//! Never: a remote access on a thread that may wait for another server, so that no two wait for each other (a local thread may wait for a
//! block that a remote thread is fetching; a handover thread never does); a claim on any other thread than the service's own, which never
//! waits; an atomic read on a thread that waits for a block. Always: writes in progress of a dead client end before its files are given to
//! others.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::limits::FRAME_DATA_BYTES_MAX;
use pario_core::{Code, Fault, InodeId, LocalOffset, ObjectId, ServerIndex, SessionId};
use pario_net::buffers;
use pario_net::message::{Reply, Request};
use pario_store::{
    AtomicReadReply, Claim, GiveBack, Handover, HandoverReply, HandoverReport, PeerService, RemoteAccess,
    Store, StoreError,
};
use pario_sys::MemoryPiece;

use super::Service;
use super::link::LinkId;
use crate::drain::{ByValue, DrainDone, WriteTarget, store_fault};
use crate::pool::ThreadPool;

/// Threads for accesses of this server's clients: they mostly wait for the network.
const REMOTE_THREADS: usize = 8;
/// Fenced sessions that are remembered.
const FENCED_MAX: usize = 4096;
/// Threads for remote accesses of other servers.
const LOCAL_THREADS: usize = 3;

/// Threads for servers that take over blocks.
const HANDOVER_THREADS: usize = 2;

/// Whether a message contains the whole data of a call, to be written atomically.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AtomicWrite {
    Yes,
    No,
}

/// Threads for atomic reads of other servers. They wait for no block: the requester blocks others on its own blocks meanwhile.
const ATOMIC_READ_THREADS: usize = 2;

/// A remote access: runs on the store and returns the reply.
type RemoteAccessTask = Box<dyn FnOnce(&dyn PeerService) -> Result<(Reply, Vec<u8>), StoreError> + Send>;

/// See the module; started when needed.
#[derive(Default)]
pub(crate) struct AccessThreads {
    remote: Option<ThreadPool>,
    local: Option<ThreadPool>,
    handover: Option<ThreadPool>,
    atomic_reads: Option<ThreadPool>,
    pub(super) writes: Arc<Mutex<Writes>>,
}

/// Writes in progress by session, and callbacks for their end.
#[derive(Default)]
pub(super) struct Writes {
    in_progress: HashMap<SessionId, usize>,
    waiting: Vec<(SessionId, Box<dyn FnOnce() + Send>)>,
    /// Fenced sessions: their late writes are refused.
    fenced: VecDeque<SessionId>,
}

impl AccessThreads {
    pub(super) fn remote(&mut self, index: ServerIndex) -> Result<ThreadPool, Fault> {
        started(&mut self.remote, &format!("pario-far-{index}"), REMOTE_THREADS)
    }

    fn local(&mut self, index: ServerIndex) -> Result<ThreadPool, Fault> {
        started(&mut self.local, &format!("pario-near-{index}"), LOCAL_THREADS)
    }

    fn atomic_reads(&mut self, index: ServerIndex) -> Result<ThreadPool, Fault> {
        started(&mut self.atomic_reads, &format!("pario-look-{index}"), ATOMIC_READ_THREADS)
    }

    fn handover(&mut self, index: ServerIndex) -> Result<ThreadPool, Fault> {
        started(&mut self.handover, &format!("pario-give-{index}"), HANDOVER_THREADS)
    }

    /// Accesses of this server's clients that wait.
    pub(super) fn waiting(&self) -> usize {
        self.remote.as_ref().map_or(0, ThreadPool::waiting)
    }

    /// Refuses further writes of a dead session.
    pub(super) fn fence(&self, session: SessionId) {
        let mut writes = lock(&self.writes);
        if FENCED_MAX <= writes.fenced.len() {
            writes.fenced.pop_front();
        }
        writes.fenced.push_back(session);
    }

    /// Runs `done` when no write of a session is in progress; the session is fenced, so no new one starts.
    pub(super) fn after_writes(&self, session: SessionId, done: DrainDone<()>) -> DrainDone<()> {
        let writes = Arc::clone(&self.writes);
        Box::new(move |result| {
            let mut state = lock(&writes);
            if state.in_progress.contains_key(&session) {
                state.waiting.push((session, Box::new(move || done(result))));
                return;
            }
            drop(state);
            done(result);
        })
    }
}

fn started(pool: &mut Option<ThreadPool>, name: &str, threads: usize) -> Result<ThreadPool, Fault> {
    if pool.is_none() {
        *pool = Some(
            ThreadPool::start(name, threads).map_err(|error| Fault::from_io(&error, "starting threads"))?,
        );
    }
    pool.clone().ok_or_else(|| Fault::new(Code::Io, "the threads for remote accesses could not be started"))
}

fn lock(writes: &Mutex<Writes>) -> MutexGuard<'_, Writes> {
    writes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A write in progress, until it is dropped.
pub(super) struct WriteInProgress {
    writes: Arc<Mutex<Writes>>,
    session: SessionId,
}

impl WriteInProgress {
    /// Refused for a fenced session.
    pub(super) fn begin(writes: &Arc<Mutex<Writes>>, session: SessionId) -> Result<WriteInProgress, Fault> {
        let mut state = lock(writes);
        if state.fenced.contains(&session) {
            return Err(Fault::new(
                Code::Stale,
                "a write of a process that was declared dead: reopen the file",
            ));
        }
        *state.in_progress.entry(session).or_default() += 1;
        drop(state);
        Ok(WriteInProgress { writes: Arc::clone(writes), session })
    }
}

impl Drop for WriteInProgress {
    fn drop(&mut self) {
        let mut state = lock(&self.writes);
        let Some(count) = state.in_progress.get_mut(&self.session) else { return };
        *count -= 1;
        if 0 < *count {
            return;
        }
        state.in_progress.remove(&self.session);
        let waiting = std::mem::take(&mut state.waiting);
        let (ready, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(session, _)| *session == self.session);
        state.waiting = rest;
        drop(state);
        ready.into_iter().for_each(|(_, done)| done());
    }
}

impl Service {
    fn places(&self) -> Result<&dyn PeerService, Fault> {
        places_of(&*self.spec.store)
    }

    /// Whether an access to the file may have to wait for another server.
    pub(super) fn is_placed(&self, inode: InodeId) -> bool {
        self.spec.store.peer_service().is_some_and(|places| places.block_bytes(inode).is_some())
    }

    /// Threads for an access of a client: separate ones if it may have to wait for another server, so that local accesses are not delayed.
    pub(super) fn threads_for(
        &mut self,
        inode: InodeId,
        range: Option<Range<u64>>,
    ) -> Result<ThreadPool, Fault> {
        let places = self.spec.store.peer_service();
        let here = range.is_some_and(|range| places.is_some_and(|places| places.owns_range(inode, range)));
        if here { Ok(self.pool.clone()) } else { self.visits.remote(self.spec.index) }
    }

    /// Directory requests to a home, and read-only requests to an owner.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is sent here")]
    pub(super) fn directory_request(
        &mut self,
        id: LinkId,
        number: u64,
        request: Request,
    ) -> Result<(), Fault> {
        let reply = match request {
            Request::Claim { server, inode, block_bytes, blocks } => {
                let grants = self.places()?.claim(&Claim { server, inode, block_bytes, blocks })?;
                let grants = grants.into_iter().map(|grant| (grant.owner, grant.number)).collect();
                Reply::Claimed { grants }
            }
            Request::GiveBack { server, inode, blocks } => {
                self.places()?.give_back(&GiveBack { server, inode, blocks });
                Reply::Done {}
            }
            Request::ReportHandover { server, to, inode, blocks } => {
                self.places()?.report_handover(&HandoverReport { server, to, inode, blocks });
                Reply::Done {}
            }
            Request::VisitUnchanged { object, at, bytes, stamp } => {
                let visit = RemoteAccess { object, at, home_confirmed: false };
                let still = self.places()?.is_unchanged(visit, u64::from(bytes), stamp);
                if still { Reply::Done {} } else { Reply::NotNow {} }
            }
            other => return Err(Fault::new(Code::Protocol, format!("{other:?} is not expected here"))),
        };
        self.reply(id, number, reply);
        Ok(())
    }

    /// A remote access of another server.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is sent here")]
    pub(super) fn remote_access(
        &mut self,
        id: LinkId,
        number: u64,
        request: Request,
        data: Vec<u8>,
    ) -> Result<(), Fault> {
        self.places()?;
        let (store, index) = (Arc::clone(&self.spec.store), self.spec.index);
        let mut threads = self.visits.local(index)?;
        let work: RemoteAccessTask = match request {
            Request::VisitRead { object, at, bytes, told, atomic: at_once } => {
                let (visit, bytes) = (
                    RemoteAccess { object, at, home_confirmed: told },
                    (bytes as usize).min(FRAME_DATA_BYTES_MAX),
                );
                let read = if at_once { remote_read_atomic } else { remote_read };
                if at_once {
                    threads = self.visits.atomic_reads(index)?;
                }
                Box::new(move |places| read(places, visit, bytes))
            }
            Request::VisitWrite { object, at, told } => Box::new(move |places| {
                remote_write(places, RemoteAccess { object, at, home_confirmed: told }, data)
            }),
            other => return Err(Fault::new(Code::Protocol, format!("{other:?} is not expected here"))),
        };
        let visit = move || work(places_of(&*store)?).map_err(|error| store_fault(index, &error));
        threads.run(visit, self.answer_with(id, number));
        Ok(())
    }

    /// Handover: another server overwrites whole blocks, and becomes their owner. The reply is sent before homes are notified.
    pub(super) fn give(&mut self, id: LinkId, number: u64, take: Handover) -> Result<(), Fault> {
        self.places()?;
        let (store, index) = (Arc::clone(&self.spec.store), self.spec.index);
        let threads = self.visits.handover(index)?;
        let answer = Once::new(self.answer_with(id, number));
        let early = answer.clone();
        let give = move || {
            let mut tell = |taken| early.give(Ok((reply_to(&take, taken), Vec::new())));
            places_of(&*store)?.hand_over(take, &mut tell).map_err(|error| store_fault(index, &error))
        };
        threads.run(give, move |given| {
            if let Err(fault) = given {
                answer.give(Err(fault));
            }
        });
        Ok(())
    }

    /// A client's write to blocks that another server may own.
    pub(super) fn write_placed(
        &mut self,
        id: LinkId,
        (write, at_once): (ByValue, AtomicWrite),
        done: DrainDone<()>,
    ) -> Result<(), Fault> {
        let under_way = WriteInProgress::begin(&self.visits.writes, self.session(id)?)?;
        let (store, index) = (Arc::clone(&self.spec.store), self.spec.index);
        let range = match &write.to {
            WriteTarget::Bytes(at) => Some(at.0..at.0.saturating_add(write.data.len() as u64)),
            WriteTarget::Stream { .. } => None,
        };
        // An atomic write may wait for readers, which must not wait for it.
        let here = range.filter(|_| at_once == AtomicWrite::No);
        let (object, bytes) = (write.object, write.data.len());
        let put = move || {
            let written = write_out((store.as_ref(), index), &write, at_once);
            buffers::give_back(write.data);
            written
        };
        self.threads_for(object.inode, here)?.run(put, move |written| {
            done(written.map_err(|fault| fault.at(format!("writing {bytes} bytes of object {object}"))));
            drop(under_way);
        });
        Ok(())
    }
}

fn places_of(store: &dyn Store) -> Result<&dyn PeerService, Fault> {
    let fixed = || Fault::new(Code::Unsupported, "every block of this store has its fixed place");
    store.peer_service().ok_or_else(fixed)
}

/// An answer that may be given early, and otherwise when its job ends; the first one counts.
#[derive(Clone)]
struct Once(Arc<Mutex<Option<Answering>>>);

/// Told the reply and its data.
type Answering = DrainDone<(Reply, Vec<u8>)>;

impl Once {
    fn new(answer: Answering) -> Once {
        Once(Arc::new(Mutex::new(Some(answer))))
    }

    fn give(&self, result: Result<(Reply, Vec<u8>), Fault>) {
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(answer) = answer {
            answer(result);
        }
    }
}

fn remote_read(
    places: &dyn PeerService,
    visit: RemoteAccess,
    bytes: usize,
) -> Result<(Reply, Vec<u8>), StoreError> {
    let mut data = buffers::take(bytes);
    if places.remote_read(visit, &mut data)? {
        return Ok((Reply::Data {}, data));
    }
    buffers::give_back(data);
    Ok((Reply::NotOwner {}, Vec::new()))
}

fn remote_read_atomic(
    places: &dyn PeerService,
    visit: RemoteAccess,
    bytes: usize,
) -> Result<(Reply, Vec<u8>), StoreError> {
    let mut data = buffers::take(bytes);
    let reply = match places.remote_read_atomic(visit, &mut data)? {
        AtomicReadReply::Found(stamp) => return Ok((Reply::AtomicData { stamp }, data)),
        AtomicReadReply::NotMine => Reply::NotOwner {},
        AtomicReadReply::Busy => Reply::NotNow {},
    };
    buffers::give_back(data);
    Ok((reply, Vec::new()))
}

fn remote_write(
    places: &dyn PeerService,
    visit: RemoteAccess,
    data: Vec<u8>,
) -> Result<(Reply, Vec<u8>), StoreError> {
    let written = places.remote_write(visit, &[MemoryPiece::from(data.as_slice())])?;
    buffers::give_back(data);
    Ok((if written { Reply::Done {} } else { Reply::NotOwner {} }, Vec::new()))
}

fn reply_to(take: &Handover, taken: HandoverReply) -> Reply {
    match taken {
        HandoverReply::Granted(numbers) => {
            Reply::Claimed { grants: numbers.into_iter().map(|number| (take.to, number)).collect() }
        }
        HandoverReply::NotMine => Reply::NotOwner {},
        HandoverReply::TooLate => Reply::Done {},
    }
}

/// Writes atomically, if the store can.
pub(super) fn store_atomic(
    store: &dyn Store,
    (object, at): (ObjectId, LocalOffset),
    bytes: &[u8],
) -> Result<(), StoreError> {
    let pieces = [MemoryPiece::from(bytes)];
    match store.peer_service() {
        Some(places) => places.write_atomic(object, at, &pieces),
        None => store.write(object, at, &pieces),
    }
}

/// Writes the data of a message, joining neighbours.
fn write_out(
    (store, index): (&dyn Store, ServerIndex),
    write: &ByValue,
    at_once: AtomicWrite,
) -> Result<(), Fault> {
    let put = |at: u64, pieces: &[MemoryPiece<'_>]| {
        store.write(write.object, LocalOffset(at), pieces).map_err(|error| store_fault(index, &error))
    };
    let (view, layout, stream) = match &write.to {
        WriteTarget::Bytes(at) if at_once == AtomicWrite::Yes => {
            return store_atomic(store, (write.object, *at), &write.data)
                .map_err(|error| store_fault(index, &error));
        }
        WriteTarget::Bytes(at) => return put(at.0, &[MemoryPiece::from(write.data.as_slice())]),
        WriteTarget::Stream { view, layout, stream } => (view, layout, stream.clone()),
    };
    let odd = || Fault::new(Code::Protocol, "the data does not match the view");
    let mut run: Option<(u64, u64, Vec<MemoryPiece<'_>>)> = None;
    let mut done = 0;
    let mut add = |local: LocalOffset, bytes: u64| -> Result<(), Fault> {
        let bytes = usize::try_from(bytes).map_err(|_| odd())?;
        let piece = MemoryPiece::from(write.data.get(done..done + bytes).ok_or_else(odd)?);
        done += bytes;
        match &mut run {
            Some((_, end, pieces)) if *end == local.0 => {
                pieces.push(piece);
                *end += bytes as u64;
                Ok(())
            }
            other => {
                let before = other.replace((local.0, local.0 + bytes as u64, vec![piece]));
                before.map_or(Ok(()), |(at, _, pieces)| put(at, &pieces))
            }
        }
    };
    match view {
        Some(view) => {
            view.on_server(layout, index, stream).try_for_each(|part| add(part.local, part.bytes))?;
        }
        None => layout.pieces_on(index, stream).try_for_each(|piece| add(piece.local, piece.bytes))?,
    }
    if done != write.data.len() {
        return Err(odd());
    }
    run.map_or(Ok(()), |(at, _, pieces)| put(at, &pieces))
}
