//! A mounted partition: connections, session, outbox.
//!
//! Never: connects before something is wanted. Always: one session per mount, the same on all connections; requests to the
//! manager have numbers that are not reused, so that a repeated one does not act twice.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use pario_core::limits::FRAME_DATA_BYTES_MAX;
use pario_core::{Clock, Code, Fault, FileAttr, InodeId, Nanos, PartitionId, ServerIndex, SessionId};
use pario_net::connection::{Answer, Connection, Ticket};
use pario_net::frame::PROTOCOL;
use pario_net::greeting::{Hello, Purpose, Secret, nonce, random_number};
use pario_net::message::{NameReply, NameRequest, Reply, Request};
use pario_net::outbox::{Cursor, Outbox};
use pario_server::Connect;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{Point, reach};
use pario_sys::process::{Sign, fork_generation, start_ticks};

use super::application::Application;
use super::counts::{Counters, Counts};
use super::notices::Notices;
use super::open_file::OpenFile;
use crate::partition::choices::Method;

/// What messages are traced under: `PARIO_LOG=pario::messages=trace` shows each request and its answer.
const MESSAGES: &str = "pario::messages";

/// Answers that may be on their way without anybody waiting for them.
const TOLD_MAX: u64 = 64;

/// A server that was given up because it said nothing is not asked again for so long: one call may need it several times, and
/// must not wait for it each time.
const SILENCE_REST: Duration = Duration::from_secs(1);

/// A call is repeated after a reconnect only if it failed quickly: a silent server has used up the caller's patience.
const REPEAT_LIMIT: Duration = Duration::from_millis(800);

/// The current way to a partition: its secret and its servers' addresses change when it is brought up anew.
#[derive(Clone)]
pub struct Way {
    /// The secret of this life.
    pub secret: Secret,
    /// How the servers are reached.
    pub connect: Arc<dyn Connect>,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Way")
    }
}

/// Finds the way anew, as from the registry.
pub type Locate = Arc<dyn Fn() -> Result<Way, Fault> + Send + Sync>;

/// Less than this in a message is not worth a round trip.
const TRANSFER_BYTES_MIN: usize = 16 << 10;

/// What a client needs to know to mount a partition.
#[derive(Clone)]
pub struct MountSpec {
    /// Its name, for messages.
    pub name: String,
    /// Its identity.
    pub partition: PartitionId,
    /// How it is reached now.
    pub way: Way,
    /// How many servers it has.
    pub servers: usize,
    /// How to find it again after it was brought up anew; `None` for a partition inside this process.
    pub locate: Option<Locate>,
    /// Outbox size, or 0 for what the servers propose.
    pub outbox_bytes: usize,
    /// How collective accesses are put together, unless a file wishes otherwise.
    pub method: Method,
    /// The one server that this client talks to; it passes on what is meant for others.
    pub tied: Option<ServerIndex>,
    /// On whose behalf: servers share their service between applications.
    pub application: Application,
}

impl std::fmt::Debug for MountSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountSpec")
            .field("name", &self.name)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}

/// One server as the client sees it.
#[derive(Default)]
struct Link {
    connection: Option<Arc<Connection>>,
    incarnation: u64,
    /// Counts lives of the server that ended with data of ours in them.
    volatile_losses: u64,
    /// When it was given up because it said nothing, and the fault.
    silent: Option<(Nanos, Fault)>,
}

/// See the module.
pub struct Mount {
    pub(super) spec: MountSpec,
    way: Mutex<Way>,
    session: SessionId,
    /// Sessions that say the same number are one user of a file; 0: a user of its own.
    party: u64,
    /// The tiers that files of groups opened from here use.
    pub(crate) tiers: crate::tier::Tiers,
    /// Its files are plain ones, known to users by their own paths.
    plain: AtomicBool,
    fork: u64,
    numbers: AtomicU64,
    told: AtomicU64,
    pub(super) minding: AtomicBool,
    /// The minding thread, once it ran.
    pub(super) minder: Mutex<Option<std::thread::Thread>>,
    links: Vec<Mutex<Link>>,
    /// How often each server was connected to.
    lives: Vec<AtomicU64>,
    pub(super) views: super::views::Views,
    pub(super) windows: super::windows::Windows,
    outbox: OnceLock<Arc<Outbox>>,
    making_outbox: Mutex<()>,
    /// Changes when the manager's connection is lost: leases of an older epoch are void.
    epoch: AtomicU64,
    /// The epoch in which the manager that we have, or had, heard of us first: what was committed before is settled.
    heard: AtomicU64,
    /// The manager was lost and has not heard of us again.
    recovering: AtomicBool,
    recovery: Mutex<()>,
    pub(super) notices: Mutex<Option<Notices>>,
    files: Mutex<HashMap<InodeId, Weak<OpenFile>>>,
    pub(super) counters: Counters,
    pub(super) clock: MonotonicClock,
    pub(super) pool: OnceLock<super::pending::Workers>,
    /// Shown while leases may be held.
    pub(super) sign: OnceLock<Sign>,
    /// Wishes for locks that wait at the manager.
    pub(super) lock_slots: (Mutex<usize>, Condvar),
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount")
            .field("name", &self.spec.name)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Mount {
    /// Mounts; nothing is sent before something is wanted.
    #[must_use]
    pub fn new(spec: MountSpec) -> Arc<Mount> {
        Mount::of_party(spec, 0)
    }

    /// Mounts as one of a party: see [`Request::Acquire`].
    pub(crate) fn of_party(spec: MountSpec, party: u64) -> Arc<Mount> {
        let links: Vec<Mutex<Link>> = (0..spec.servers).map(|_| Mutex::default()).collect();
        Arc::new(Mount {
            way: Mutex::new(spec.way.clone()),
            spec,
            session: SessionId(random_number()),
            party,
            tiers: crate::tier::Tiers::default(),
            plain: AtomicBool::new(false),
            fork: fork_generation(),
            numbers: AtomicU64::new(1),
            told: AtomicU64::new(1),
            minding: AtomicBool::new(false),
            minder: Mutex::new(None),
            lives: links.iter().map(|_| AtomicU64::new(0)).collect(),
            views: super::views::Views::default(),
            windows: super::windows::Windows::default(),
            links,
            outbox: OnceLock::new(),
            making_outbox: Mutex::new(()),
            epoch: AtomicU64::new(1),
            heard: AtomicU64::new(1),
            recovering: AtomicBool::new(false),
            recovery: Mutex::new(()),
            notices: Mutex::new(None),
            files: Mutex::default(),
            counters: Counters::default(),
            clock: MonotonicClock,
            pool: OnceLock::new(),
            sign: OnceLock::new(),
            lock_slots: (Mutex::new(0), Condvar::new()),
        })
    }

    /// The same partition once more, through one server that answers for all others.
    pub fn tied_to(&self, server: ServerIndex) -> Result<Arc<Mount>, Fault> {
        if self.spec.servers <= server.at() {
            let text =
                format!("{} has {} servers, none is number {server}", self.spec.name, self.spec.servers);
            return Err(Fault::new(Code::Invalid, text));
        }
        Ok(Mount::new(MountSpec { tied: Some(server), ..self.spec.clone() }))
    }

    /// The partition's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// From now on files are called by the paths that they were opened by, not by the partition's name.
    pub(crate) fn serve_plain_files(&self) {
        self.plain.store(true, Ordering::Release);
    }

    /// Whether files are called by their own paths.
    pub(super) fn serves_plain_files(&self) -> bool {
        self.plain.load(Ordering::Acquire)
    }

    pub(super) fn party(&self) -> u64 {
        self.party
    }

    /// How to mount the same partition once more.
    pub(crate) fn spec(&self) -> MountSpec {
        let way = self.way.lock().unwrap_or_else(PoisonError::into_inner).clone();
        MountSpec { way, ..self.spec.clone() }
    }

    /// Both ends of the way to a server over a network, if it is reached by one.
    pub(crate) fn network_addresses(
        &self,
        server: ServerIndex,
    ) -> Result<Option<(SocketAddr, SocketAddr)>, Fault> {
        Ok(self.connection(server)?.network_addresses())
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    /// How collective accesses are put together, unless a file wishes otherwise.
    pub fn method(&self) -> Method {
        self.spec.method
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.spec.servers
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    /// Adds the time until it is dropped to a counter.
    pub(super) fn timed<'a>(&self, counter: &'a AtomicU64) -> Timed<'a> {
        Timed { counter, began: self.clock.now() }
    }

    /// Fails in a forked child: connections, outbox and leases are the parent's.
    pub(super) fn check_process(&self) -> Result<(), Fault> {
        if self.fork == fork_generation() {
            return Ok(());
        }
        Err(Fault::new(
            Code::Closed,
            format!("{} was mounted by the parent process: mount it again after fork", self.spec.name),
        ))
    }

    pub(super) fn is_own_process(&self) -> bool {
        self.fork == fork_generation()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The table of files that have handles, so that handles of one file share lease and records.
    pub(super) fn files(&self) -> MutexGuard<'_, HashMap<InodeId, Weak<OpenFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call to the manager about names.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn name_call(&self, request: NameRequest) -> Result<NameReply, Fault> {
        match self.call(ServerIndex::MANAGER, &Request::Name { request })?.reply {
            Reply::Name { mut reply } => {
                self.add_own_lengths(&mut reply);
                Ok(reply)
            }
            other => Err(odd(&other)),
        }
    }

    /// What we write behind makes files longer than the manager knows; it does not recall from the one who asks.
    fn add_own_lengths(&self, reply: &mut NameReply) {
        let files = self.files();
        let grow = |attr: &mut FileAttr| {
            if let Some(file) = files.get(&attr.inode).and_then(Weak::upgrade) {
                attr.size = attr.size.max(file.unreported_end.load(Ordering::Acquire));
            }
        };
        match reply {
            NameReply::Attr { attr } => grow(attr),
            NameReply::Entries { entries, .. } if !files.is_empty() => {
                entries.iter_mut().for_each(|entry| grow(&mut entry.attr));
            }
            NameReply::Entries { .. } | NameReply::Done {} | NameReply::Target { .. } => {}
        }
    }

    /// A call to a server; repeated once after a reconnect, under the same number.
    pub fn call(&self, server: ServerIndex, request: &Request) -> Result<Answer, Fault> {
        let number = self.number();
        let began = self.clock.now();
        match self.call_once(server, number, request) {
            Err(fault) if fault.code == Code::Unreachable && self.clock.now().since(began) < REPEAT_LIMIT => {
                self.connection(server)?;
                self.call_once(server, number, request)
            }
            other => other,
        }
    }

    fn call_once(&self, server: ServerIndex, number: u64, request: &Request) -> Result<Answer, Fault> {
        let connection = self.connection(server)?;
        self.counters.message(request, 0);
        let answer =
            connection.start_as(number, request, &[], &[]).and_then(|ticket| connection.wait(ticket, None));
        if answer.is_err() && connection.is_dead() {
            self.lost(server, &connection);
        }
        answer
    }

    /// Tells a server something without waiting for its answer; now and then it waits, so that answers do not pile up.
    pub(super) fn tell(&self, server: ServerIndex, request: &Request) -> Result<(), Fault> {
        if !self.told.fetch_add(1, Ordering::Relaxed).is_multiple_of(TOLD_MAX)
            && let Ok(started) = self.start(server, request, &[])
        {
            started.connection.forget(started.ticket);
            return Ok(());
        }
        self.call(server, request).map(|_| ())
    }

    /// Sends a request with data; the caller waits with [`Mount::finish`].
    pub(super) fn start(
        &self,
        server: ServerIndex,
        request: &Request,
        data: &[&[u8]],
    ) -> Result<Started, Fault> {
        let mut connection = self.connection(server)?;
        if connection.has_ended() {
            // The server went away while nothing was wanted of it; it may be back.
            self.lost(server, &connection);
            connection = self.connection(server)?;
        }
        self.counters.message(request, data.iter().map(|part| part.len()).sum());
        tracing::trace!(target: MESSAGES, server = server.0, ?request, "sent");
        match connection.start_as(self.number(), request, data, &[]) {
            Ok(ticket) => Ok(Started { server, connection, ticket }),
            Err(fault) => {
                if connection.is_dead() {
                    self.lost(server, &connection);
                }
                Err(fault)
            }
        }
    }

    /// Waits for a started request.
    pub(super) fn finish(&self, started: Started, target: Option<&mut [u8]>) -> Result<Answer, Fault> {
        let answer = started.connection.wait(started.ticket, target);
        tracing::trace!(target: MESSAGES, server = started.server.0, "answered");
        if let Ok(answer) = &answer {
            self.counters.received_bytes.fetch_add(answer.data_bytes as u64, Ordering::Relaxed);
        }
        if answer.is_err() && started.connection.is_dead() {
            self.lost(started.server, &started.connection);
        }
        answer
    }

    /// Data that one message to a server should carry.
    pub(super) fn transfer_bytes(&self, server: ServerIndex) -> Result<usize, Fault> {
        let wished = self.connection(server)?.welcome().transfer_bytes as usize;
        Ok(wished.clamp(TRANSFER_BYTES_MIN, FRAME_DATA_BYTES_MAX))
    }

    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The connection to a server, made if there is none.
    pub(super) fn connection(&self, server: ServerIndex) -> Result<Arc<Connection>, Fault> {
        if let Some(connection) = self.live_connection(server) {
            if !connection.is_dead() {
                return self.check_process().map(|()| connection);
            }
            // Whoever finds it dead sees to the consequences before a new one takes its place.
            self.lost(server, &connection);
        }
        if server == ServerIndex::MANAGER && self.recovering.load(Ordering::Acquire) {
            self.recover()?;
        }
        self.connect(server)
    }

    /// After the manager was lost: what we had committed is offered to the servers again before the manager hears of us, since
    /// from then on it may give our files to others. What cannot be offered is given up, and its files say so.
    fn recover(&self) -> Result<(), Fault> {
        let _one = self.recovery.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.recovering.load(Ordering::Acquire) {
            return Ok(());
        }
        let epoch = self.epoch();
        // Where the manager went, others may have gone unnoticed.
        self.look_after_links();
        // As long as it is away nobody gets our files, so nothing needs to be given up. Its greeting alone tells it nothing: what
        // it knows of us it keeps until our first request.
        self.connect(ServerIndex::MANAGER)?;
        // The manager last: it is itself a server that takes records.
        for server in self.server_indices().skip(1).chain([ServerIndex::MANAGER]) {
            let Some(outbox) = self.outbox.get() else { break };
            if outbox.stopped(server).is_none() {
                continue;
            }
            if let Err(fault) =
                self.connect(server).and_then(|connection| self.offer(outbox, server, &connection))
            {
                if server == ServerIndex::MANAGER {
                    return Err(fault);
                }
                tracing::warn!(%fault, "records for a server that is gone are given up");
                self.give_up_records(outbox, server);
            }
        }
        let connection = self.connect(ServerIndex::MANAGER)?;
        self.heard.store(epoch, Ordering::Release);
        self.announce_files(&connection)?;
        self.recovering.store(false, Ordering::Release);
        Ok(())
    }

    /// A manager that was restarted does not know who has which file open; one that lost its name lives by that alone.
    fn announce_files(&self, connection: &Connection) -> Result<(), Fault> {
        let open: Vec<InodeId> = {
            let files = self.files();
            let held = files.values().filter_map(Weak::upgrade).filter(|file| file.homeless.is_none());
            held.map(|file| file.inode).collect()
        };
        for inode in open {
            let ticket = connection.start_as(self.number(), &Request::Use { inode }, &[], &[])?;
            match connection.wait(ticket, None) {
                Ok(_) => {}
                // Removed while we were away: its next use says so.
                Err(fault) if fault.code == Code::Stale => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    pub(super) fn server_indices(&self) -> impl Iterator<Item = ServerIndex> + use<> {
        (0..self.spec.servers).map(|server| ServerIndex(u16::try_from(server).unwrap_or(u16::MAX)))
    }

    /// The connection to a server, if there is one.
    pub(super) fn live_connection(&self, server: ServerIndex) -> Option<Arc<Connection>> {
        self.link(server).ok()?.connection.clone()
    }

    fn connect(&self, server: ServerIndex) -> Result<Arc<Connection>, Fault> {
        self.check_process()?;
        let mut link = self.link(server)?;
        if let Some(connection) = link.connection.as_ref().filter(|connection| !connection.is_dead()) {
            return Ok(Arc::clone(connection));
        }
        let began = self.clock.now();
        if let Some((at, fault)) = &link.silent
            && began.since(*at) < SILENCE_REST
        {
            return Err(fault.clone());
        }
        let opened = self.open(server, Purpose::Requests {});
        let ended = self.clock.now();
        link.silent = match &opened {
            Err(fault) if SILENCE_REST <= ended.since(began) => Some((ended, fault.clone())),
            Ok(_) | Err(_) => None,
        };
        let connection = Arc::new(opened.map_err(|fault| replaced(server, link.incarnation, fault))?);
        let welcome = connection.welcome();
        if link.incarnation != 0 && link.incarnation != welcome.incarnation.0 {
            link.volatile_losses += u64::from(welcome.volatile);
            // Before anybody can offer the outbox to the new one.
            self.note_unheard_errors(server);
        }
        link.incarnation = welcome.incarnation.0;
        self.lives[server.at()].fetch_add(1, Ordering::AcqRel);
        link.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Names the current connection to a server; another one has another number.
    pub(super) fn life(&self, server: ServerIndex) -> u64 {
        self.lives.get(server.at()).map_or(0, |life| life.load(Ordering::Acquire))
    }

    /// How often a server with a store that dies with it was replaced by a new life.
    pub(super) fn volatile_losses(&self, server: ServerIndex) -> u64 {
        self.link(server).map_or(0, |link| link.volatile_losses)
    }

    /// A fresh connection. Where the old way leads nowhere, a new one is looked for.
    pub(super) fn open(&self, server: ServerIndex, purpose: Purpose) -> Result<Connection, Fault> {
        let way = self.way.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let began = self.clock.now();
        let fault = match self.open_by(&way, server, purpose) {
            Ok(connection) => return Ok(connection),
            Err(fault) => fault,
        };
        let outdated = matches!(fault.code, Code::Unreachable | Code::WrongSecret | Code::Stale);
        let Some(locate) = self.spec.locate.as_ref().filter(|_| outdated) else { return Err(fault) };
        let Ok(way) = locate() else { return Err(fault) };
        if REPEAT_LIMIT < self.clock.now().since(began) {
            return Err(fault);
        }
        let connection = self.open_by(&way, server, purpose)?;
        *self.way.lock().unwrap_or_else(PoisonError::into_inner) = way;
        Ok(connection)
    }

    fn open_by(&self, way: &Way, server: ServerIndex, purpose: Purpose) -> Result<Connection, Fault> {
        let to = self.spec.tied.unwrap_or(server);
        let mut stream = way.connect.connect(to).map_err(|fault| fault.at(&self.spec.name))?;
        if to != server {
            stream = stream.relayed();
        }
        Connection::greet(stream, self.spec.name.clone(), &self.hello(server, purpose), &way.secret)
    }

    fn hello(&self, server: ServerIndex, purpose: Purpose) -> Hello {
        let pid = std::process::id();
        Hello {
            protocol: PROTOCOL,
            partition: self.spec.partition,
            server,
            session: self.session,
            purpose,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            program: program(),
            application: self.spec.application.name.clone(),
            weight: self.spec.application.weight,
            relay: self.spec.tied.is_some_and(|tied| tied != server),
            nonce: nonce(),
        }
    }

    /// A server's connection is gone: what depends on it must know.
    pub(super) fn lost(&self, server: ServerIndex, connection: &Arc<Connection>) {
        let Ok(mut link) = self.link(server) else { return };
        let same = link.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection));
        if same {
            link.connection = None;
            link.silent = connection.silence().map(|fault| (self.clock.now(), fault));
        }
        drop(link);
        if same {
            if let Some(outbox) = self.outbox.get() {
                outbox.detach(server);
            }
            if server == ServerIndex::MANAGER {
                self.lost_home();
            }
        }
    }

    /// The manager's connection is gone, and with it every lease.
    pub(super) fn lost_home(&self) {
        self.recovering.store(true, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).take();
        let connection = self.link(ServerIndex::MANAGER).ok().and_then(|mut link| link.connection.take());
        if let Some(connection) = connection {
            connection.close();
        }
        if let Some(outbox) = self.outbox.get() {
            outbox.detach(ServerIndex::MANAGER);
        }
    }

    fn link(&self, server: ServerIndex) -> Result<MutexGuard<'_, Link>, Fault> {
        let link = self.links.get(server.at()).ok_or_else(|| {
            Fault::new(
                Code::Invalid,
                format!("{} has {} servers, none is number {server}", self.spec.name, self.spec.servers),
            )
        })?;
        Ok(link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The outbox, made when first needed.
    pub(super) fn outbox(&self) -> Result<Arc<Outbox>, Fault> {
        if let Some(outbox) = self.outbox.get() {
            return Ok(Arc::clone(outbox));
        }
        let _one = self.making_outbox.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outbox) = self.outbox.get() {
            return Ok(Arc::clone(outbox));
        }
        let proposed = self.connection(ServerIndex::MANAGER)?.welcome().outbox_bytes;
        let bytes = match self.spec.outbox_bytes {
            0 => usize::try_from(proposed).unwrap_or(usize::MAX),
            bytes => bytes,
        };
        let outbox = Outbox::create(bytes, self.spec.servers)
            .map_err(|error| Fault::from_io(&error, "making an outbox"))?;
        Ok(Arc::clone(self.outbox.get_or_init(|| Arc::new(outbox))))
    }

    pub(super) fn outbox_if_made(&self) -> Option<&Arc<Outbox>> {
        self.outbox.get()
    }

    /// The server's cursor in our outbox; offers the outbox if it has none.
    pub(super) fn cursor(&self, server: ServerIndex) -> Result<(Arc<Outbox>, Arc<Cursor>), Fault> {
        let outbox = self.outbox()?;
        if let Some(cursor) = outbox.cursor(server) {
            return Ok((outbox, cursor));
        }
        let connection = self.connection(server)?;
        let cursor = self.offer(&outbox, server, &connection)?;
        Ok((outbox, cursor))
    }

    fn offer(
        &self,
        outbox: &Outbox,
        server: ServerIndex,
        connection: &Connection,
    ) -> Result<Arc<Cursor>, Fault> {
        self.give_up_stale(outbox, server);
        let attached = outbox.attach(server, |from| {
            self.retell_views(server, connection, from)?;
            let descriptor = std::os::fd::AsFd::as_fd(outbox.descriptor());
            let request = Request::OfferOutbox { from };
            self.counters.message(&request, 0);
            let ticket = connection.start_as(self.number(), &request, &[], &[descriptor])?;
            Mount::cursor_in(server, connection.wait(ticket, None)?)
        })?;
        if let Some(lost) = &attached.lost {
            self.note_lost_records(server, lost);
        }
        if !self.keep_if_live(outbox, server, connection) {
            let text = format!("{}: server {server} went away while it took the outbox", self.spec.name);
            return Err(Fault::new(Code::Unreachable, text));
        }
        Ok(attached.cursor)
    }

    /// What a server answers to an offered outbox.
    pub(super) fn cursor_in(server: ServerIndex, mut answer: Answer) -> Result<Cursor, Fault> {
        let (Some(doorbell), Some(page)) = (answer.descriptors.pop(), answer.descriptors.pop()) else {
            let text = format!("server {server} took the outbox without a cursor");
            return Err(Fault::new(Code::Protocol, text));
        };
        reach(Point::OfferAnswered);
        Cursor::attach(server, page, doorbell)
    }

    /// Whoever found the connection lost before the cursor was in its place had nothing to detach: the server has let go of the outbox, and
    /// nobody would offer it again.
    pub(super) fn keep_if_live(&self, outbox: &Outbox, server: ServerIndex, connection: &Connection) -> bool {
        let current = self.live_connection(server);
        let is_live = current.is_some_and(|current| std::ptr::eq(Arc::as_ptr(&current), connection));
        if !is_live {
            outbox.detach(server);
        }
        is_live
    }

    /// What a server that is gone has not taken will never be applied, and its files say so.
    pub(super) fn give_up_records(&self, outbox: &Outbox, server: ServerIndex) {
        let pending = outbox.stopped(server);
        if outbox.abandon(server)
            && let Some(pending) = pending
        {
            self.note_lost_records(server, &pending);
        }
    }

    /// Records of a time before the manager's last loss, for a server that went down after the new manager had heard of us: it may have
    /// given their files to others since, and they would come over what those wrote.
    fn give_up_stale(&self, outbox: &Outbox, server: ServerIndex) {
        let Some(pending) = outbox.stopped(server) else { return };
        let heard = self.heard.load(Ordering::Acquire);
        let files: Vec<Arc<OpenFile>> = self.files().values().filter_map(Weak::upgrade).collect();
        if files.iter().any(|file| file.has_stale_records(server, pending.start, heard)) {
            tracing::warn!(%server, "records from before the manager's restart come too late and are given up");
            self.give_up_records(outbox, server);
        }
    }

    /// A server was replaced: errors that it had counted and not told are not to be had any more.
    fn note_unheard_errors(&self, server: ServerIndex) {
        let Some(counted) = self.outbox.get().and_then(|outbox| outbox.counted_errors(server)) else {
            return;
        };
        let files: Vec<Arc<OpenFile>> = self.files().values().filter_map(Weak::upgrade).collect();
        files.iter().for_each(|file| file.note_unheard(server, counted));
    }

    /// Records that were overwritten before a server came back: their files must say so.
    fn note_lost_records(&self, server: ServerIndex, lost: &std::ops::Range<u64>) {
        let files: Vec<Arc<OpenFile>> = self.files().values().filter_map(Weak::upgrade).collect();
        for file in files {
            if lost.start < file.records_end(server) {
                let text = format!(
                    "{}: writes that server {server} had not taken when it went down were lost",
                    file.describe()
                );
                file.keep_fault(Fault::new(Code::Lost, text));
            }
        }
    }

    /// Does something, and once more if it failed quickly because a server was gone: it may have been restarted.
    pub(super) fn twice_if_quick<T>(&self, mut action: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
        let began = self.clock.now();
        match action() {
            Err(fault) if fault.code == Code::Unreachable && self.clock.now().since(began) < REPEAT_LIMIT => {
                action()
            }
            other => other,
        }
    }

    /// What waiting for a cursor asks now and then: see [`Mount::mind`].
    pub(super) fn minded(&self) -> impl Fn(ServerIndex, Duration) -> Result<(), Fault> {
        let asked = std::cell::Cell::new(Duration::ZERO);
        move |server, waited| {
            let mut last = asked.get();
            let result = self.mind(server, waited, &mut last);
            asked.set(last);
            result
        }
    }

    /// Asked while waiting for a server's cursor: a sign of life each second, and an error when there is none.
    pub(super) fn mind(
        &self,
        server: ServerIndex,
        waited: Duration,
        asked: &mut Duration,
    ) -> Result<(), Fault> {
        if waited.saturating_sub(*asked) < Duration::from_millis(500) {
            return Ok(());
        }
        *asked = waited;
        // Never a new connection: the caller may hold what making one needs.
        let connection = self.live_connection(server).ok_or_else(|| {
            Fault::new(Code::Unreachable, format!("{}: server {server} is gone", self.spec.name))
        })?;
        let number = self.number();
        let answer = connection
            .start_as(number, &Request::Ping {}, &[], &[])
            .and_then(|ticket| connection.wait(ticket, None));
        if answer.is_err() && connection.is_dead() {
            self.lost(server, &connection);
        }
        answer.map(|_| ())
    }
}

/// Time that is being counted.
pub(super) struct Timed<'a> {
    counter: &'a AtomicU64,
    began: Nanos,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let spent = MonotonicClock.now().0.saturating_sub(self.began.0);
        self.counter.fetch_add(spent, Ordering::Relaxed);
    }
}

/// A request under way.
pub(super) struct Started {
    server: ServerIndex,
    connection: Arc<Connection>,
    ticket: Ticket,
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_own_process() {
            for link in &self.links {
                if let Some(connection) =
                    link.lock().unwrap_or_else(PoisonError::into_inner).connection.take()
                {
                    connection.close();
                }
            }
        }
    }
}

/// A server that knew the secret before and does not now is another life of it, and the registry will say so in a moment.
fn replaced(server: ServerIndex, incarnation: u64, fault: Fault) -> Fault {
    if fault.code != Code::WrongSecret || incarnation == 0 {
        return fault;
    }
    let text = format!("server {server} is being replaced and cannot be used yet: {}", fault.text);
    Fault::new(Code::Unreachable, text)
}

pub(super) fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(|| "unknown".into(), |name| name.to_string_lossy().into_owned())
}

pub(super) fn odd(reply: &Reply) -> Fault {
    Fault::new(Code::Protocol, format!("an answer that does not belong to its question: {reply:?}"))
}
