//! Files whose blocks have no fixed place: accesses that may have to wait for another server, and accesses of other servers.
//!
//! ```text
//!  client ─► far threads ─► store ─┬─ own block
//!                                  ├─ another server's ─► its near threads ─► its store
//!                                  └─ another server's, overwritten ─► its giving threads ─► its store ─► home
//! ```
//! Never: an access of another server on a thread that may wait for another server, so that no two wait for each other (a near thread may
//! wait for a block that a far thread is taking; a giving thread never does); a claim on any
//! other thread than the service's own, which waits for nobody; a read at one moment on a thread that waits for a block. Always: what a client that is gone was writing is over before its
//! files are given to others.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::limits::FRAME_DATA_BYTES_MAX;
use pario_core::{Code, Fault, InodeId, LocalOffset, ObjectId, ServerIndex, SessionId};
use pario_net::buffers;
use pario_net::message::{Reply, Request};
use pario_store::{Claim, GiveBack, Pass, Places, Store, StoreError, Take, Taken, Visit, Visited};
use pario_sys::Piece;

use super::link::LinkId;
use super::{Answer, Event, Service};
use crate::pool::Pool;
use crate::take::{ByValue, Done, Target, store_fault};

/// Threads for accesses of this server's clients: they wait for the network more than they work.
const FAR_THREADS: usize = 8;
/// Sessions that are known to be gone.
const FENCED_MAX: usize = 4096;
/// Threads for accesses of other servers.
const NEAR_THREADS: usize = 3;

/// Threads for servers that take blocks over.
const GIVING_THREADS: usize = 2;

/// Whether a message brings all that a call writes, so that others are to see it as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AtOnce {
    Yes,
    No,
}

/// Threads for servers that read at one moment. They wait for no block: who asks has others wait for blocks of its own meanwhile.
const LOOKING_THREADS: usize = 2;

/// What a visit does, and what is answered.
type Visiting = Box<dyn FnOnce(&dyn Places) -> Result<(Reply, Vec<u8>), StoreError> + Send>;

/// See the module; started when they are needed.
#[derive(Default)]
pub(crate) struct Threads {
    far: Option<Pool>,
    near: Option<Pool>,
    giving: Option<Pool>,
    looking: Option<Pool>,
    pub(super) writes: Arc<Mutex<Writes>>,
}

/// Writes under way, by whose they are, and who waits until there are none.
#[derive(Default)]
pub(super) struct Writes {
    under_way: HashMap<SessionId, usize>,
    waiting: Vec<(SessionId, Box<dyn FnOnce() + Send>)>,
    /// Sessions that are gone: what is still on its way of them comes too late.
    fenced: VecDeque<SessionId>,
}

impl Threads {
    pub(super) fn far(&mut self, index: ServerIndex) -> Result<Pool, Fault> {
        started(&mut self.far, &format!("pario-far-{index}"), FAR_THREADS)
    }

    fn near(&mut self, index: ServerIndex) -> Result<Pool, Fault> {
        started(&mut self.near, &format!("pario-near-{index}"), NEAR_THREADS)
    }

    fn looking(&mut self, index: ServerIndex) -> Result<Pool, Fault> {
        started(&mut self.looking, &format!("pario-look-{index}"), LOOKING_THREADS)
    }

    fn giving(&mut self, index: ServerIndex) -> Result<Pool, Fault> {
        started(&mut self.giving, &format!("pario-give-{index}"), GIVING_THREADS)
    }

    /// Takes no more writes of a session that is gone.
    pub(super) fn fence(&self, session: SessionId) {
        let mut writes = lock(&self.writes);
        if FENCED_MAX <= writes.fenced.len() {
            writes.fenced.pop_front();
        }
        writes.fenced.push_back(session);
    }

    /// Does something when nothing that a session writes is under way; nothing new comes from it.
    pub(super) fn after_writes(&self, session: SessionId, done: Done<()>) -> Done<()> {
        let writes = Arc::clone(&self.writes);
        Box::new(move |result| {
            let mut state = lock(&writes);
            if state.under_way.contains_key(&session) {
                state.waiting.push((session, Box::new(move || done(result))));
                return;
            }
            drop(state);
            done(result);
        })
    }
}

fn started(pool: &mut Option<Pool>, name: &str, threads: usize) -> Result<Pool, Fault> {
    if pool.is_none() {
        *pool = Some(Pool::start(name, threads).map_err(|error| Fault::from_io(&error, "starting threads"))?);
    }
    pool.clone().ok_or_else(|| Fault::new(Code::Io, "there are no threads"))
}

fn lock(writes: &Mutex<Writes>) -> MutexGuard<'_, Writes> {
    writes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A write under way, until it is dropped.
pub(super) struct UnderWay {
    writes: Arc<Mutex<Writes>>,
    session: SessionId,
}

impl UnderWay {
    /// Refused to a session that is gone.
    pub(super) fn begin(writes: &Arc<Mutex<Writes>>, session: SessionId) -> Result<UnderWay, Fault> {
        let mut state = lock(writes);
        if state.fenced.contains(&session) {
            return Err(Fault::new(Code::Stale, "a write of a process that was taken for gone"));
        }
        *state.under_way.entry(session).or_default() += 1;
        drop(state);
        Ok(UnderWay { writes: Arc::clone(writes), session })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = lock(&self.writes);
        let Some(count) = state.under_way.get_mut(&self.session) else { return };
        *count -= 1;
        if 0 < *count {
            return;
        }
        state.under_way.remove(&self.session);
        let waiting = std::mem::take(&mut state.waiting);
        let (ready, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(session, _)| *session == self.session);
        state.waiting = rest;
        drop(state);
        ready.into_iter().for_each(|(_, done)| done());
    }
}

impl Service {
    fn places(&self) -> Result<&dyn Places, Fault> {
        let fixed = || Fault::new(Code::Unsupported, "every block of this store has its fixed place");
        self.spec.store.places().ok_or_else(fixed)
    }

    /// Whether an access to the file may have to wait for another server.
    pub(super) fn is_placed(&self, inode: InodeId) -> bool {
        self.spec.store.places().is_some_and(|places| places.block_bytes(inode).is_some())
    }

    /// Threads for an access of a client's: of their own for what may have to wait for another server, so that what need not goes on.
    pub(super) fn threads_for(&mut self, inode: InodeId, range: Option<Range<u64>>) -> Result<Pool, Fault> {
        let places = self.spec.store.places();
        let here = range.is_some_and(|range| places.is_some_and(|places| places.is_here(inode, range)));
        if here { Ok(self.pool.clone()) } else { self.visits.far(self.spec.index) }
    }

    /// What a home is asked and told, and what an owner is asked that changes nothing.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is sent here")]
    pub(super) fn tell_places(&mut self, id: LinkId, number: u64, request: Request) -> Result<(), Fault> {
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
            Request::Pass { server, to, inode, blocks } => {
                self.places()?.pass(&Pass { server, to, inode, blocks });
                Reply::Done {}
            }
            Request::VisitStill { object, at, bytes, stamp } => {
                let visit = Visit { object, at, told: false };
                let still = self.places()?.is_still(visit, u64::from(bytes), stamp);
                if still { Reply::Done {} } else { Reply::NotNow {} }
            }
            other => return Err(Fault::new(Code::Protocol, format!("{other:?} has no place here"))),
        };
        self.reply(id, number, reply);
        Ok(())
    }

    /// An access of another server.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is sent here")]
    pub(super) fn visit(
        &mut self,
        id: LinkId,
        number: u64,
        request: Request,
        data: Vec<u8>,
    ) -> Result<(), Fault> {
        self.places()?;
        let (store, mailbox, index) = (Arc::clone(&self.spec.store), self.mailbox.clone(), self.spec.index);
        let mut threads = self.visits.near(index)?;
        let work: Visiting = match request {
            Request::VisitRead { object, at, bytes, told, at_once } => {
                let (visit, bytes) = (Visit { object, at, told }, (bytes as usize).min(FRAME_DATA_BYTES_MAX));
                let read = if at_once { visit_at_once } else { visit_read };
                if at_once {
                    threads = self.visits.looking(index)?;
                }
                Box::new(move |places| read(places, visit, bytes))
            }
            Request::VisitWrite { object, at, told } => {
                Box::new(move |places| visit_write(places, Visit { object, at, told }, data))
            }
            other => return Err(Fault::new(Code::Protocol, format!("{other:?} has no place here"))),
        };
        threads.run(move || {
            let Some(places) = store.places() else { return };
            let (reply, data) = work(places)
                .unwrap_or_else(|error| (Reply::Failed { fault: store_fault(index, &error) }, Vec::new()));
            let answer = Answer { link: id, request: number, reply, data, descriptors: Vec::new() };
            mailbox.post(Event::Answer(answer));
        });
        Ok(())
    }

    /// Another server overwrites whole blocks, and wants to own them. It is answered before homes are told.
    pub(super) fn give(&mut self, id: LinkId, number: u64, take: Take) -> Result<(), Fault> {
        self.places()?;
        let (store, mailbox, index) = (Arc::clone(&self.spec.store), self.mailbox.clone(), self.spec.index);
        self.visits.giving(index)?.run(move || {
            let Some(places) = store.places() else { return };
            let post = |reply| {
                let answer =
                    Answer { link: id, request: number, reply, data: Vec::new(), descriptors: Vec::new() };
                mailbox.post(Event::Answer(answer));
            };
            let given = places.take(take, &mut |taken| post(reply_to(&take, taken)));
            if let Err(error) = given {
                post(Reply::Failed { fault: store_fault(index, &error) });
            }
        });
        Ok(())
    }

    /// A client's write to blocks that may be another server's.
    pub(super) fn write_placed(
        &mut self,
        id: LinkId,
        (write, at_once): (ByValue, AtOnce),
        done: Done<()>,
    ) -> Result<(), Fault> {
        let under_way = UnderWay::begin(&self.visits.writes, self.session(id)?)?;
        let (store, index) = (Arc::clone(&self.spec.store), self.spec.index);
        let range = match &write.to {
            Target::Bytes(at) => Some(at.0..at.0.saturating_add(write.data.len() as u64)),
            Target::Stream { .. } => None,
        };
        // One that is seen as a whole may wait for readers, who must not wait for it.
        let here = range.filter(|_| at_once == AtOnce::No);
        self.threads_for(write.object.inode, here)?.run(move || {
            let written = write_out((store.as_ref(), index), &write, at_once);
            let what = || format!("writing {} bytes of object {}", write.data.len(), write.object);
            done(written.map_err(|fault| fault.at(what())));
            drop(under_way);
            buffers::give_back(write.data);
        });
        Ok(())
    }
}

fn visit_read(places: &dyn Places, visit: Visit, bytes: usize) -> Result<(Reply, Vec<u8>), StoreError> {
    let mut data = buffers::take(bytes);
    if places.visit_read(visit, &mut data)? {
        return Ok((Reply::Data {}, data));
    }
    buffers::give_back(data);
    Ok((Reply::NotMine {}, Vec::new()))
}

fn visit_at_once(places: &dyn Places, visit: Visit, bytes: usize) -> Result<(Reply, Vec<u8>), StoreError> {
    let mut data = buffers::take(bytes);
    let reply = match places.visit_at_once(visit, &mut data)? {
        Visited::Found(stamp) => return Ok((Reply::Moment { stamp }, data)),
        Visited::NotMine => Reply::NotMine {},
        Visited::NotNow => Reply::NotNow {},
    };
    buffers::give_back(data);
    Ok((reply, Vec::new()))
}

fn visit_write(places: &dyn Places, visit: Visit, data: Vec<u8>) -> Result<(Reply, Vec<u8>), StoreError> {
    let written = places.visit_write(visit, &[Piece::from(data.as_slice())])?;
    buffers::give_back(data);
    Ok((if written { Reply::Done {} } else { Reply::NotMine {} }, Vec::new()))
}

fn reply_to(take: &Take, taken: Taken) -> Reply {
    match taken {
        Taken::Yours(numbers) => {
            Reply::Claimed { grants: numbers.into_iter().map(|number| (take.to, number)).collect() }
        }
        Taken::NotMine => Reply::NotMine {},
        Taken::Late => Reply::Done {},
    }
}

/// Writes so that others see it as a whole, if the store can.
pub(super) fn put_at_once(
    store: &dyn Store,
    (object, at): (ObjectId, LocalOffset),
    bytes: &[u8],
) -> Result<(), StoreError> {
    let pieces = [Piece::from(bytes)];
    match store.places() {
        Some(places) => places.write_at_once(object, at, &pieces),
        None => store.write(object, at, &pieces),
    }
}

/// Writes what a message brought, neighbours together.
fn write_out(
    (store, index): (&dyn Store, ServerIndex),
    write: &ByValue,
    at_once: AtOnce,
) -> Result<(), Fault> {
    let put = |at: u64, pieces: &[Piece<'_>]| {
        store.write(write.object, LocalOffset(at), pieces).map_err(|error| store_fault(index, &error))
    };
    let (view, layout, stream) = match &write.to {
        Target::Bytes(at) if at_once == AtOnce::Yes => {
            return put_at_once(store, (write.object, *at), &write.data)
                .map_err(|error| store_fault(index, &error));
        }
        Target::Bytes(at) => return put(at.0, &[Piece::from(write.data.as_slice())]),
        Target::Stream { view, layout, stream } => (view, layout, stream.clone()),
    };
    let odd = || Fault::new(Code::Protocol, "not what the view asks for");
    let mut run: Option<(u64, u64, Vec<Piece<'_>>)> = None;
    let mut done = 0;
    let mut add = |local: LocalOffset, bytes: u64| -> Result<(), Fault> {
        let bytes = usize::try_from(bytes).map_err(|_| odd())?;
        let piece = Piece::from(write.data.get(done..done + bytes).ok_or_else(odd)?);
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
