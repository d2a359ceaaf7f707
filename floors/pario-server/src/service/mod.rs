//! The service: one thread that accepts, greets, decodes, decides and answers; all that may block is done elsewhere.
//!
//! ```text
//!  listeners ─┐                     ┌─► home (names, leases)            same thread
//!  links ─────┼─► epoll ─► dispatch ┼─► taker (outboxes, writes)        its own thread
//!  events ────┘                     └─► pool (reads, lends, syncs)      a few threads ──► events
//! ```
//! Never: waits except in epoll. Always: every request gets exactly one answer, or its connection ends.

mod answer;
mod dispatch;
mod link;
mod listen;
mod near;
mod report;
mod visits;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use pario_core::{Clock, Fault, Incarnation, Layout, Nanos, PartitionId, ServerIndex, SessionId};
use pario_net::greeting::Secret;
use pario_net::message::Reply;
use pario_net::stream::Stream;
use pario_store::Store;
use pario_store::disk::Disk;
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;
use pario_sys::process::fork_generation;
use rustix::event::epoll::{self, EventData, EventFlags};

pub(crate) use self::link::LinkId;
use self::link::{Link, Outgoing};
use self::listen::Listeners;
pub use self::near::Near;
use crate::desk::{Desk, SchedulerSpec};
use crate::home::Home;
use crate::peers::{Connect, RoundsResult};
use crate::pool::Pool;
use crate::stats::ServerStats;
use crate::take::{LivesSpec, Taker, Task};

/// Threads for reads, lends and syncs.
const POOL_THREADS: usize = 3;
/// How often waits are looked at.
const TICK: Duration = Duration::from_millis(250);
/// A connection that has not proved itself by then is closed.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

const TOKEN_EVENTS: u64 = 0;
const TOKEN_UNIX: u64 = 1;
const TOKEN_TCP: u64 = 2;
const TOKEN_LINKS: u64 = 16;

/// What makes a server the manager.
#[derive(Clone, Debug)]
pub struct NamesSpec {
    /// Where names and inodes are kept.
    pub dir: PathBuf,
    /// Through what they are written.
    pub disk: Arc<dyn Disk>,
    /// Layout of files that wish for none.
    pub defaults: Layout,
}

/// Everything a server needs to know.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The partition's identity.
    pub partition: PartitionId,
    /// The partition's name, for messages.
    pub name: String,
    /// Which of its servers this is.
    pub index: ServerIndex,
    /// How many there are.
    pub servers: usize,
    /// The partition's secret.
    pub secret: Secret,
    /// Where bytes rest.
    pub store: Arc<dyn Store>,
    /// Whether bytes in the store die with the process.
    pub volatile: bool,
    /// Whether the store lends descriptors for reading.
    pub lends: bool,
    /// Whether it lends them for writing too.
    pub lends_writing: bool,
    /// The manager's part, on server 0.
    pub names: Option<NamesSpec>,
    /// Outbox that clients should make.
    pub outbox_bytes: u64,
    /// Data that one message should carry.
    pub transfer_bytes: u32,
    /// Whether a read waits until everything is taken that was committed before it came, and a write by message until the store
    /// has settled it. For servers whose clients hold no leases: those of an application's own tier.
    pub take_before_read: bool,
    /// Which request the store gets next. Under any policy but `fifo` no descriptors are lent: what goes past the server
    /// cannot be ordered.
    pub scheduler: SchedulerSpec,
    /// Where it leaves to its successor what that must know of it; `None` where clients do not outlive it.
    pub lives: Option<LivesSpec>,
    /// Socket file to listen on.
    pub unix: Option<PathBuf>,
    /// Address to listen on; port 0 picks one.
    pub tcp: Option<SocketAddr>,
}

/// What other threads tell the service.
pub(crate) enum Event {
    /// An answer is ready.
    Answer(Answer),
    /// A connection made inside this process.
    Accept(Stream),
    /// How peers are reached, known when all servers are up.
    Peers(Arc<dyn Connect>),
    /// An outbox broke the rules.
    Lie(SessionId, String),
    /// The manager's calls to its peers came back.
    PeersDone(u64, RoundsResult),
    /// Stop in order.
    Stop,
    /// The taker has stopped and the store is synced.
    Quiet(Result<(), Fault>),
}

/// An answer to one request.
pub(crate) struct Answer {
    pub(crate) link: LinkId,
    pub(crate) request: u64,
    pub(crate) reply: Reply,
    pub(crate) data: Vec<u8>,
    pub(crate) descriptors: Vec<std::os::fd::OwnedFd>,
}

/// Posts events to the service from any thread.
#[derive(Clone)]
pub(crate) struct Mailbox {
    events: Sender<Event>,
    doorbell: Arc<Doorbell>,
}

impl Mailbox {
    pub(crate) fn post(&self, event: Event) {
        if self.events.send(event).is_ok() {
            let _ = self.doorbell.ring();
        }
    }
}

/// What was wished for when a server was told to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Its data stays.
    Keep,
    /// Whoever runs it removes its data.
    Destroy,
}

/// A running server.
pub struct Server {
    mailbox: Mailbox,
    taker: Taker,
    near: Near,
    tcp: Option<SocketAddr>,
    end: Arc<End>,
    fork: u64,
    thread: Option<JoinHandle<Result<Ending, Fault>>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens store and names, listens, and serves on threads of its own.
    pub fn start(spec: ServerSpec) -> Result<Server, Fault> {
        let (events, inbox) = crossbeam_channel::unbounded();
        let doorbell =
            Arc::new(Doorbell::new().map_err(|error| Fault::from_io(&error, "making a doorbell"))?);
        let mailbox = Mailbox { events, doorbell };
        let service = Service::new(spec, mailbox.clone(), inbox)?;
        let (tcp, taker) = (service.listeners.tcp_address(), service.taker.clone());
        let near = Near::of(&service);
        let end = Arc::new(End::default());
        let over = Arc::clone(&end);
        let thread = std::thread::Builder::new()
            .name(format!("pario-serve-{}", service.spec.index))
            .spawn(move || {
                // Also when it panics: whoever waits must not wait for ever.
                let _ends = EndsOnDrop(over);
                service.run()
            })
            .map_err(|error| Fault::from_io(&error, "starting the service thread"))?;
        Ok(Server { mailbox, taker, near, tcp, end, fork: fork_generation(), thread: Some(thread) })
    }

    /// A connection inside this process.
    pub fn connect(&self) -> io::Result<Stream> {
        let (ours, theirs) = Stream::pair()?;
        self.mailbox.post(Event::Accept(theirs));
        Ok(ours)
    }

    /// Its store, for files whose blocks have no fixed place, as processes that run it reach it.
    #[must_use]
    pub fn near(&self) -> Near {
        self.near.clone()
    }

    /// Tells the manager how to reach all servers.
    pub fn set_peers(&self, connect: Arc<dyn Connect>) {
        self.mailbox.post(Event::Peers(connect));
    }

    /// Where it listens.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// A hold on its taking thread, for its store.
    #[must_use]
    pub fn taking(&self) -> Taking {
        Taking(self.taker.clone())
    }

    /// Asks it to take what was committed, sync, and end.
    pub fn stop(&self) {
        self.mailbox.post(Event::Stop);
    }

    /// What [`Server::stop`] does, for another thread.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let mailbox = self.mailbox.clone();
        move || mailbox.post(Event::Stop)
    }

    /// Waits until it has ended, without taking its result.
    pub fn wait_finished(&self) {
        self.end.wait();
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.end.is_over()
    }

    /// Waits for its end.
    pub fn join(mut self) -> Result<Ending, Fault> {
        self.wait_end()
    }

    fn wait_end(&mut self) -> Result<Ending, Fault> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Fault::new(pario_core::Code::Io, "a server thread panicked")),
            None => Ok(Ending::Keep),
        }
    }
}

/// Lets a store say that its permission to have files written behind has changed.
#[derive(Clone)]
pub struct Taking(Taker);

impl std::fmt::Debug for Taking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Taking")
    }
}

impl Taking {
    /// Asks the store again which files may be written behind, then waits until everything that was committed before is taken:
    /// whoever commits later knows that it may not. Returns at once when the server has ended.
    pub fn take_all(&self) {
        let (done, over) = crossbeam_channel::bounded(1);
        self.0.post(Task::TakeAll {
            done: Box::new(move |_| {
                let _ = done.send(());
            }),
        });
        let _ = over.recv();
    }

    /// Asks the store again which files may be written behind.
    pub fn grant(&self) {
        self.0.post(Task::Grant);
    }
}

/// The end of a service thread, for whoever waits for it.
#[derive(Default)]
struct End {
    over: Mutex<bool>,
    changed: Condvar,
}

impl End {
    fn wait(&self) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            over = self.changed.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_over(&self) -> bool {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct EndsOnDrop(Arc<End>);

impl Drop for EndsOnDrop {
    fn drop(&mut self) {
        *self.0.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.fork != fork_generation() {
            // The threads are the parent's; a forked child has none of them to wait for.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop();
        if let Err(fault) = self.wait_end() {
            tracing::warn!(%fault, "a server ended with an error");
        }
    }
}

/// What a request carries along until it is answered.
pub(crate) struct Open {
    started: Nanos,
    received_bytes: usize,
}

/// The state of the service thread.
pub(crate) struct Service {
    pub(crate) spec: ServerSpec,
    pub(crate) incarnation: Incarnation,
    pub(crate) mailbox: Mailbox,
    pub(crate) taker: Taker,
    pub(crate) pool: Pool,
    pub(crate) visits: visits::Threads,
    pub(crate) desk: Option<Arc<Desk>>,
    pub(crate) stats: Arc<ServerStats>,
    pub(crate) home: Option<Home>,
    pub(crate) fences: dispatch::Fences,
    /// How the other servers are reached, once that is known.
    connect: Option<Arc<dyn Connect>>,
    relays: crate::relay::Relays,
    pub(crate) started: Nanos,
    inbox: Receiver<Event>,
    epoll: std::os::fd::OwnedFd,
    listeners: Listeners,
    links: HashMap<LinkId, Link>,
    open: HashMap<(LinkId, u64), Open>,
    next_link: u64,
    stopping: Option<Vec<(LinkId, u64)>>,
    destroy: bool,
    /// New connections are not taken until then.
    deaf_until: Option<Nanos>,
    /// It was said that they are not.
    told_deaf: bool,
    stopped: Option<Result<(), Fault>>,
    clock: MonotonicClock,
}

impl Service {
    fn new(spec: ServerSpec, mailbox: Mailbox, inbox: Receiver<Event>) -> Result<Service, Fault> {
        let os = |doing: &'static str| move |error: io::Error| Fault::from_io(&error, doing);
        let stats = Arc::new(ServerStats::default());
        let lies = mailbox.clone();
        let on_lie = Box::new(move |session, what| lies.post(Event::Lie(session, what)));
        let incarnation = Incarnation(pario_net::greeting::random_number());
        let home = spec.names.as_ref().map(|names| Home::open(names, &spec, incarnation)).transpose()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| os("making an epoll")(error.into()))?;
        let listeners = Listeners::open(&spec)?;
        let alarm = mailbox.clone();
        let on_end = Box::new(move || {
            let text = "the thread that takes records died of a bug; the server ends";
            alarm.post(Event::Quiet(Err(Fault::new(pario_core::Code::Io, text))));
        });
        let pool = Pool::start(&format!("pario-store-{}", spec.index), POOL_THREADS)
            .map_err(os("starting threads"))?;
        let desk = Desk::open(&spec.scheduler, &spec.store, &pool, &spec.index.to_string())?;
        let below = (Arc::clone(&spec.store), desk.clone(), spec.lives.as_ref());
        let taker = Taker::start(spec.index, below, Arc::clone(&stats), on_lie, on_end)
            .map_err(os("starting the taking thread"))?;
        let service = Service {
            incarnation,
            taker,
            pool,
            visits: visits::Threads::default(),
            desk,
            stats,
            home,
            connect: None,
            relays: crate::relay::Relays::default(),
            fences: dispatch::Fences::default(),
            started: MonotonicClock.now(),
            inbox,
            listeners,
            links: HashMap::new(),
            open: HashMap::new(),
            next_link: TOKEN_LINKS,
            stopping: None,
            destroy: false,
            deaf_until: None,
            told_deaf: false,
            stopped: None,
            clock: MonotonicClock,
            spec,
            mailbox,
            epoll,
        };
        service.watch_listeners().map_err(os("watching sockets"))?;
        Ok(service)
    }

    fn watch_listeners(&self) -> io::Result<()> {
        epoll::add(&self.epoll, &self.mailbox.doorbell, EventData::new_u64(TOKEN_EVENTS), EventFlags::IN)?;
        if let Some(unix) = &self.listeners.unix {
            epoll::add(&self.epoll, unix, EventData::new_u64(TOKEN_UNIX), EventFlags::IN)?;
        }
        if let Some(tcp) = &self.listeners.tcp {
            epoll::add(&self.epoll, tcp, EventData::new_u64(TOKEN_TCP), EventFlags::IN)?;
        }
        Ok(())
    }

    fn run(mut self) -> Result<Ending, Fault> {
        let mut ready = Vec::with_capacity(256);
        let mut scratch = vec![0u8; 64 << 10];
        let mut ticked = self.clock.now();
        loop {
            ready.clear();
            let limit = self.tick_limit();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), limit.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Fault::from_io(&error.into(), "waiting for events")),
            }
            for event in &ready {
                let token = event.data.u64();
                match token {
                    TOKEN_EVENTS => self.take_events(),
                    TOKEN_UNIX | TOKEN_TCP => self.accept_all(token),
                    link => self.serve_link(LinkId(link), event.flags, &mut scratch),
                }
            }
            let now = self.clock.now();
            if let Some(home) = &mut self.home {
                home.expire_locks(now);
            }
            if TICK <= now.since(ticked) {
                ticked = now;
                self.tick(now);
            }
            self.carry_out_home();
            if let Some(result) = self.end() {
                return result;
            }
        }
    }

    /// Only somebody who waits, a greeting under way, or a ghost needs the clock.
    fn tick_limit(&self) -> Option<rustix::event::Timespec> {
        let greeting = self.links.values().any(|link| link.hello().is_none());
        let waiting = self.home.as_ref().is_some_and(Home::needs_ticks);
        let ticks = greeting || waiting || self.stopping.is_some() || self.deaf_until.is_some();
        let expiry = self.home.as_ref().and_then(Home::lock_deadline).map(|at| at.since(self.clock.now()));
        let limit = expiry.into_iter().chain(ticks.then_some(TICK)).min()?;
        Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(limit.min(TICK).subsec_nanos()) })
    }

    fn tick(&mut self, now: Nanos) {
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            self.watch_listeners_for(EventFlags::IN);
        }
        let late: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(_, link)| link.hello().is_none() && GREETING_LIMIT <= now.since(link.accepted_at))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.drop_link(id, Some("it did not greet in time"));
        }
        if let Some(home) = &mut self.home {
            home.tick(now);
        }
    }

    fn take_events(&mut self) {
        // Rung or not, the events are looked at.
        let _ = self.mailbox.doorbell.take();
        while let Ok(event) = self.inbox.try_recv() {
            match event {
                Event::Answer(answer) => self.answer(answer),
                Event::Accept(stream) => self.accept(stream),
                Event::Peers(connect) => self.set_peers(&connect),
                Event::Lie(session, what) => self.shut_out(session, &what),
                Event::PeersDone(token, result) => {
                    let now = self.clock.now();
                    if let Some(home) = &mut self.home {
                        home.peers_done(token, result, now);
                    }
                }
                Event::Stop => self.begin_stop(None),
                Event::Quiet(result) => self.stopped = Some(result),
            }
        }
    }

    fn accept_all(&mut self, token: u64) {
        loop {
            if !listen::has_descriptors(&self.epoll) {
                let error = io::Error::from(rustix::io::Errno::MFILE);
                return self.be_deaf(&error);
            }
            match self.listeners.accept(token == TOKEN_UNIX) {
                None => return,
                Some(Ok(stream)) => {
                    self.told_deaf = false;
                    self.accept(stream);
                }
                Some(Err(error)) => {
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::ConnectionAborted
                    ) {
                        return self.be_deaf(&error);
                    }
                    self.stats.count_refused();
                    tracing::warn!(%error, "refused a connection");
                }
            }
        }
    }

    /// Out of descriptors or memory: who waits stays in the queue until something was freed. Said once, not at each look.
    fn be_deaf(&mut self, error: &io::Error) {
        self.stats.count_refused();
        if !self.told_deaf {
            tracing::warn!(%error, "connections wait until something is free");
        }
        self.told_deaf = true;
        self.watch_listeners_for(EventFlags::empty());
        self.deaf_until = Some(self.clock.now().plus_ms(500));
    }

    fn watch_listeners_for(&self, flags: EventFlags) {
        let unix = self.listeners.unix.as_ref().map(|unix| (unix.as_fd(), TOKEN_UNIX));
        let tcp = self.listeners.tcp.as_ref().map(|tcp| (tcp.as_fd(), TOKEN_TCP));
        for (listener, token) in unix.into_iter().chain(tcp) {
            if let Err(error) = epoll::modify(&self.epoll, listener, EventData::new_u64(token), flags) {
                tracing::warn!(%error, "could not watch a listener");
            }
        }
    }

    fn accept(&mut self, stream: Stream) {
        if pario_core::limits::CLIENTS_MAX * 2 <= self.links.len() {
            self.stats.count_refused();
            tracing::warn!("refused a connection: {} are open", self.links.len());
            return;
        }
        let id = LinkId(self.next_link);
        self.next_link += 1;
        let added = Link::new(stream, self.clock.now()).and_then(|link| {
            epoll::add(&self.epoll, link.stream.as_fd(), EventData::new_u64(id.0), EventFlags::IN)?;
            Ok(link)
        });
        match added {
            Ok(link) => {
                self.stats.count_connection();
                self.links.insert(id, link);
            }
            Err(error) => tracing::warn!(%error, "could not take a connection"),
        }
    }

    fn serve_link(&mut self, id: LinkId, flags: EventFlags, scratch: &mut [u8]) {
        if flags.intersects(EventFlags::OUT) {
            self.flush_link(id);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP) {
            return;
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        let heard = link.hear(scratch);
        for frame in heard.frames {
            if !self.links.contains_key(&id) {
                return;
            }
            self.handle_frame(id, frame);
        }
        match heard.end {
            Some(pario_net::frame::FrameError::Ended) => self.drop_link(id, None),
            Some(error) => self.drop_link(id, Some(&error.to_string())),
            None => self.watch_link(id),
        }
    }

    /// Tells epoll what the link waits for now.
    pub(super) fn watch_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        let mut flags = EventFlags::empty();
        if link.wants_input() {
            flags |= EventFlags::IN;
        }
        if link.wants_output() {
            flags |= EventFlags::OUT;
        }
        if link.watched.get() != flags {
            link.watched.set(flags);
            if let Err(error) =
                epoll::modify(&self.epoll, link.stream.as_fd(), EventData::new_u64(id.0), flags)
            {
                tracing::warn!(%error, "could not watch a connection");
            }
        }
    }

    pub(super) fn flush_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.flush().is_err() {
            self.drop_link(id, None);
            return;
        }
        if link.closing && !link.wants_output() {
            self.drop_link(id, None);
            return;
        }
        self.watch_link(id);
    }

    /// Ends a connection without further consequences.
    pub(super) fn forget_link(&mut self, id: LinkId) -> Option<Link> {
        let link = self.links.remove(&id)?;
        if let Err(error) = epoll::delete(&self.epoll, link.stream.as_fd()) {
            tracing::debug!(%error, "a connection was not watched");
        }
        self.open.retain(|(owner, _), _| *owner != id);
        Some(link)
    }

    /// Ends a connection; `why` is logged when the peer is to blame.
    pub(super) fn drop_link(&mut self, id: LinkId, why: Option<&str>) {
        let Some(link) = self.forget_link(id) else { return };
        let who = link.hello().map_or_else(|| "a peer that had not greeted".to_owned(), describe);
        if let Some(why) = why {
            self.stats.count_refused();
            tracing::warn!("ended the connection of {who}: {why}");
        }
        if let Some(hello) = link.hello() {
            let (session, purpose) = (hello.session, hello.purpose);
            self.session_left(session, purpose);
        }
    }

    fn shut_out(&mut self, session: SessionId, what: &str) {
        let ids: Vec<LinkId> = self.links_of(session);
        for id in ids {
            self.drop_link(id, Some(what));
        }
    }

    pub(super) fn links_of(&self, session: SessionId) -> Vec<LinkId> {
        let mine = |link: &Link| link.hello().is_some_and(|hello| hello.session == session);
        self.links.iter().filter(|(_, link)| mine(link)).map(|(id, _)| *id).collect()
    }

    pub(super) fn push(&mut self, id: LinkId, outgoing: Outgoing) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.push(outgoing);
        self.flush_link(id);
    }
}

/// Who a client is, in words.
pub(crate) fn describe(hello: &pario_net::greeting::Hello) -> String {
    format!("{} (process {} on {})", hello.program, hello.pid, hello.host)
}
