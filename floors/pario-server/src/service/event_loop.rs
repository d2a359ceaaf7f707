//! The state of the service thread, and its loop: events of the mailbox, new connections, input of links, the clock.
//!
//! Never: waits except in epoll.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use pario_core::{Clock, Fault, Incarnation, Nanos, SessionId};
use pario_net::message::Binding;
use pario_sys::clock::MonotonicClock;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::link::ServiceLink;
use super::listen::{self, Listeners};
use super::unproved::Unproved;
use super::{Ending, Keeping, LinkId, Mailbox, ServerSpec, ServiceEvent, dispatch, remote_access};
use crate::drain::Drainer;
use crate::io_queue::IoQueue;
use crate::manager::{Manager, ManagerHandle};
use crate::names::LedgerSpec;
use crate::peers::Connect;
use crate::pool::ThreadPool;
use crate::stats::ServerStats;

/// Interval at which waits are checked.
pub(crate) const TICK: Duration = Duration::from_millis(250);

const TOKEN_EVENTS: u64 = 0;
pub(super) const TOKEN_UNIX: u64 = 1;
pub(super) const TOKEN_TCP: u64 = 2;
const TOKEN_LINKS: u64 = 16;

/// State of a request until it is answered.
pub(crate) struct Open {
    pub(super) started: Nanos,
    pub(super) received_bytes: usize,
}

/// The state of the service thread.
pub(crate) struct Service {
    pub(crate) spec: ServerSpec,
    pub(crate) incarnation: Incarnation,
    pub(crate) mailbox: Mailbox,
    pub(crate) drainer: Drainer,
    pub(crate) pool: ThreadPool,
    pub(crate) visits: remote_access::AccessThreads,
    pub(crate) io_queue: Option<Arc<IoQueue>>,
    pub(crate) stats: Arc<ServerStats>,
    pub(crate) manager: Option<ManagerHandle>,
    /// The manager's thread closes the names.
    pub(super) closing_names: Option<ManagerHandle>,
    pub(super) names_closed: Result<(), Fault>,
    /// Ended connections of sessions that the manager does not know of yet.
    pub(super) ending_sessions: HashMap<SessionId, usize>,
    pub(crate) fences: dispatch::Fences,
    /// This is the manager, and its names are not open yet.
    pub(super) awaits_names: bool,
    pub(super) keeping: Option<Keeping>,
    /// Connections to the other servers, once known.
    pub(super) connect: Option<Arc<dyn Connect>>,
    pub(super) relays: crate::relay::Relays,
    pub(crate) started: Nanos,
    pub(super) inbox: Receiver<ServiceEvent>,
    pub(super) epoll: std::os::fd::OwnedFd,
    pub(super) listeners: Listeners,
    pub(super) links: HashMap<LinkId, ServiceLink>,
    pub(super) unproved: Unproved,
    /// Links with input that epoll does not report: decrypted, and not read yet.
    pub(super) unread: Vec<LinkId>,
    /// Links with parked requests, the oldest first.
    pub(super) parked: VecDeque<LinkId>,
    pub(super) open: HashMap<(LinkId, u64), Open>,
    pub(super) next_link: u64,
    pub(super) stopping: Option<Vec<(LinkId, u64)>>,
    pub(super) destroy: bool,
    /// The connection that this server ends with.
    pub(super) bound: Option<(LinkId, Binding)>,
    /// That connection ended.
    pub(super) bound_ended: bool,
    /// New connections are not accepted until then.
    pub(super) accept_paused_until: Option<Nanos>,
    /// The pause was logged.
    pub(super) pause_logged: bool,
    pub(super) stopped: Option<Result<(), Fault>>,
    pub(super) clock: MonotonicClock,
}

impl Service {
    pub(super) fn new(
        spec: ServerSpec,
        mailbox: Mailbox,
        inbox: Receiver<ServiceEvent>,
    ) -> Result<Service, Fault> {
        let os = |doing: &'static str| move |error: io::Error| Fault::from_io(&error, doing);
        let stats = Arc::new(ServerStats::default());
        let lies = mailbox.clone();
        let on_lie = Box::new(move |session, what| lies.post(ServiceEvent::Violation(session, what)));
        let incarnation = Incarnation(pario_net::greeting::random_number());
        let home = spec
            .names
            .as_ref()
            .map(|names| {
                let manager = Manager::open(names, &spec.name, incarnation, LedgerSpec::default())?;
                ManagerHandle::start(manager, mailbox.clone())
            })
            .transpose()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| os("making an epoll")(error.into()))?;
        let listeners = Listeners::open(&spec)?;
        let alarm = mailbox.clone();
        let on_end = Box::new(move || {
            let text = "the drain thread panicked; the server ends";
            alarm.post(ServiceEvent::Quiet(Err(Fault::new(pario_core::Code::Io, text))));
        });
        let pool = ThreadPool::start(&format!("pario-store-{}", spec.index), spec.pool_threads.max(1))
            .map_err(os("starting threads"))?;
        let desk = IoQueue::open(&spec.scheduler, &spec.store, &pool, &spec.index.to_string())?;
        let below = (Arc::clone(&spec.store), desk.clone(), spec.restart_log.as_ref());
        let taker = Drainer::start(spec.index, below, Arc::clone(&stats), on_lie, on_end)
            .map_err(os("starting the drain thread"))?;
        let service = Service {
            incarnation,
            drainer: taker,
            pool,
            visits: remote_access::AccessThreads::default(),
            io_queue: desk,
            stats,
            manager: home,
            closing_names: None,
            names_closed: Ok(()),
            ending_sessions: HashMap::new(),
            awaits_names: false,
            keeping: None,
            connect: None,
            relays: crate::relay::Relays::default(),
            fences: dispatch::Fences::default(),
            started: MonotonicClock.now(),
            inbox,
            listeners,
            links: HashMap::new(),
            unproved: Unproved::new(listen::descriptors_max()),
            unread: Vec::new(),
            parked: VecDeque::new(),
            open: HashMap::new(),
            next_link: TOKEN_LINKS,
            stopping: None,
            destroy: false,
            bound: None,
            bound_ended: false,
            accept_paused_until: None,
            pause_logged: false,
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

    pub(super) fn run(mut self) -> Result<Ending, Fault> {
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
            for id in std::mem::take(&mut self.unread) {
                self.serve_link(id, EventFlags::IN, &mut scratch);
            }
            if !self.parked.is_empty() {
                self.resume_parked();
            }
            let now = self.clock.now();
            if TICK <= now.since(ticked) {
                ticked = now;
                self.tick(now);
            }
            if let Some(result) = self.end() {
                return result;
            }
        }
    }

    /// The clock is needed only for a greeting in progress, parked requests, a pause, or the end.
    fn tick_limit(&self) -> Option<rustix::event::Timespec> {
        if !self.unread.is_empty() {
            return Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let greeting = 0 < self.unproved.len();
        let ticks = greeting
            || !self.parked.is_empty()
            || self.stopping.is_some()
            || self.accept_paused_until.is_some();
        ticks.then(|| rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) })
    }

    fn tick(&mut self, now: Nanos) {
        if self.accept_paused_until.is_some_and(|until| until <= now) {
            self.accept_paused_until = None;
            self.watch_listeners_for(EventFlags::IN);
        }
        for id in self.unproved.tick() {
            self.drop_link(id, Some("it did not prove the partition's secret in time"));
        }
    }

    fn take_events(&mut self) {
        // Rung or not, the events are read.
        let _ = self.mailbox.doorbell.take();
        while let Ok(event) = self.inbox.try_recv() {
            match event {
                ServiceEvent::Answer(answer) => self.answer(answer),
                ServiceEvent::Accept(stream) => self.accept(stream),
                ServiceEvent::Peers(connect) => self.set_peers(&connect),
                ServiceEvent::Manager(manager) => (self.manager, self.awaits_names) = (Some(manager), false),
                ServiceEvent::Keep(keeping) => self.keeping = Some(*keeping),
                ServiceEvent::Violation(session, what) => self.drop_violator(session, &what),
                ServiceEvent::Effects(effects) => self.carry_out_manager(effects),
                ServiceEvent::NamesClosed(result) => {
                    (self.manager, self.closing_names, self.names_closed) = (None, None, result);
                }
                ServiceEvent::Stop => self.begin_stop(None),
                ServiceEvent::Quiet(result) => self.stopped = Some(result),
            }
        }
    }
}
