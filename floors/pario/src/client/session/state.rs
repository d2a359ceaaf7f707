//! The session of one mounted partition: connections to the servers, session id, outbox.
//!
//! Never: connects before the first request. Always: one session id per mount, the same on all connections; request numbers sent to the
//! manager are not reused, so that a repeated request has no second effect.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use pario_core::limits::FRAME_DATA_BYTES_MAX;
use pario_core::{Clock, Code, Fault, FileAttr, InodeId, Nanos, PartitionId, ServerIndex, SessionId};
use pario_net::connection::{Connection, ReceivedReply, Ticket};
use pario_net::frame::PROTOCOL;
use pario_net::greeting::{ConnectionPurpose, Hello, Secret, nonce, random_number};
use pario_net::message::{NameReply, NameRequest, Reply, Request};
use pario_net::outbox::{Cursor, Outbox};
use pario_net::protect::Protect;
use pario_server::Connect;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{Point, reach};
use pario_sys::mutex::lock;
use pario_sys::process::{Sign, fork_generation, host_name, start_ticks};

use crate::client::file::state::OpenFile;
use crate::client::session::application::Application;
use crate::client::session::counts::{Counters, Counts};
use crate::client::session::notices::NoticeConnection;
use crate::partition::choices::Method;

/// Log target of message traces: `PARIO_LOG=pario::messages=trace` prints each request and its reply.
const MESSAGES: &str = "pario::messages";

/// Replies that may be outstanding without a waiting caller.
const UNAWAITED_REPLIES_MAX: u64 = 64;

/// A server that was given up as silent is not contacted again for this long: one call may need it several times, and must not wait each
/// time.
const SILENT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A call is repeated after a reconnect only if it failed within this time: a silent server has already used up the caller's timeout.
const REPEAT_LIMIT: Duration = Duration::from_millis(800);

/// How to reach a partition now: its secret and its servers' addresses change each time it is started.
#[derive(Clone)]
pub struct Endpoint {
    /// The secret of this run of the partition.
    pub secret: Secret,
    /// Opens connections to the servers.
    pub connect: Arc<dyn Connect>,
    /// Which connections are encrypted.
    pub protect: Protect,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoint")
    }
}

/// Looks up the current endpoint, for example in the registry.
pub type Locate = Arc<dyn Fn() -> Result<Endpoint, Fault> + Send + Sync>;

/// Minimum data bytes of a message: less does not pay for a round trip.
const TRANSFER_BYTES_MIN: usize = 16 << 10;

/// Parameters to mount a partition.
#[derive(Clone)]
pub struct MountSpec {
    /// Its name, for messages.
    pub name: String,
    /// Its identity.
    pub partition: PartitionId,
    /// How to reach it now.
    pub endpoint: Endpoint,
    /// Number of servers.
    pub servers: usize,
    /// Finds the endpoint again after the partition was restarted; `None` for a partition inside this process.
    pub locate: Option<Locate>,
    /// Outbox size, or 0 for the size that the servers propose.
    pub outbox_bytes: usize,
    /// Method of collective accesses, unless a file sets its own.
    pub method: Method,
    /// The only server that this client connects to; that server forwards requests for the others.
    pub tied: Option<ServerIndex>,
    /// The application that this client belongs to: servers share their capacity between applications.
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

/// Connection state of one server.
#[derive(Default)]
struct ServerLink {
    connection: Option<Arc<Connection>>,
    incarnation: u64,
    /// Number of server incarnations that ended with unsynced data of this session.
    volatile_losses: u64,
    /// Set after the server was given up because it did not reply.
    silent: Option<Silent>,
}

/// A server that did not reply.
struct Silent {
    at: Nanos,
    fault: Fault,
    /// The connection that was given up, if any.
    connection: Option<Arc<Connection>>,
}

impl Silent {
    /// Whether the server is not to be contacted yet. A running process of this node is contacted immediately.
    fn is_paused(&self, now: Nanos) -> bool {
        now.since(self.at) < SILENT_RETRY_AFTER
            && !self.connection.as_ref().is_some_and(|connection| connection.peer_runs())
    }
}

/// One mounted partition: see the module.
pub struct Session {
    pub(in crate::client) spec: MountSpec,
    endpoint: Mutex<Endpoint>,
    session: SessionId,
    /// Lease group: sessions with the same number count as one user of a file; 0: a group of its own.
    lease_group: u64,
    /// The node caches of group files opened through this session.
    pub(crate) node_caches: crate::node_cache::NodeCaches,
    /// Its files are plain files, shown to users by their own paths.
    plain: AtomicBool,
    fork: u64,
    numbers: AtomicU64,
    sent_unanswered: AtomicU64,
    pub(in crate::client) direct_report: crate::client::session::direct_report::DirectReport,
    pub(in crate::client) deferred: crate::client::session::deferred::Deferred,
    pub(in crate::client) has_watchdog: AtomicBool,
    /// The watchdog thread, once started.
    pub(in crate::client) watchdog: Mutex<Option<std::thread::Thread>>,
    links: Vec<Mutex<ServerLink>>,
    /// Connections made to each server so far.
    connection_epochs: Vec<AtomicU64>,
    server_restarts: AtomicU64,
    pub(in crate::client) views: crate::client::session::views::ViewRegistry,
    pub(in crate::client) mappings: crate::client::file::read::mapping::Mappings,
    pub(super) outbox: OnceLock<Arc<Outbox>>,
    making_outbox: Mutex<()>,
    /// Changes when the manager's connection is lost: leases of an older epoch are void.
    epoch: AtomicU64,
    /// The epoch in which the current (or last) manager first received a request of this session: records committed before it are already
    /// recovered.
    pub(super) announced_epoch: AtomicU64,
    /// The manager was lost and this session has not announced itself again.
    pub(super) recovering: AtomicBool,
    pub(super) recovery: Mutex<()>,
    pub(in crate::client) notices: Mutex<Option<NoticeConnection>>,
    files: Mutex<HashMap<InodeId, Weak<OpenFile>>>,
    pub(in crate::client) counters: Counters,
    pub(in crate::client) clock: MonotonicClock,
    pub(in crate::client) executor: crate::client::session::executor::Executor,
    /// Shown while leases may be held.
    pub(in crate::client) sign: OnceLock<Sign>,
    /// Lock requests waiting at the manager.
    pub(in crate::client) lock_slots: (Mutex<usize>, Condvar),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("name", &self.spec.name)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Mounts; nothing is sent before the first request.
    #[must_use]
    pub fn new(spec: MountSpec) -> Arc<Session> {
        Session::in_lease_group(spec, 0)
    }

    /// Mounts as part of a lease group: see [`Request::Acquire`].
    pub(crate) fn in_lease_group(spec: MountSpec, party: u64) -> Arc<Session> {
        let links: Vec<Mutex<ServerLink>> = (0..spec.servers).map(|_| Mutex::default()).collect();
        Arc::new(Session {
            endpoint: Mutex::new(spec.endpoint.clone()),
            spec,
            session: SessionId(random_number()),
            lease_group: party,
            node_caches: crate::node_cache::NodeCaches::default(),
            plain: AtomicBool::new(false),
            fork: fork_generation(),
            numbers: AtomicU64::new(1),
            sent_unanswered: AtomicU64::new(1),
            direct_report: crate::client::session::direct_report::DirectReport::default(),
            deferred: crate::client::session::deferred::Deferred::default(),
            has_watchdog: AtomicBool::new(false),
            watchdog: Mutex::new(None),
            connection_epochs: links.iter().map(|_| AtomicU64::new(0)).collect(),
            server_restarts: AtomicU64::new(0),
            views: crate::client::session::views::ViewRegistry::default(),
            mappings: crate::client::file::read::mapping::Mappings::default(),
            links,
            outbox: OnceLock::new(),
            making_outbox: Mutex::new(()),
            epoch: AtomicU64::new(1),
            announced_epoch: AtomicU64::new(1),
            recovering: AtomicBool::new(false),
            recovery: Mutex::new(()),
            notices: Mutex::new(None),
            files: Mutex::default(),
            counters: Counters::default(),
            clock: MonotonicClock,
            executor: crate::client::session::executor::Executor::default(),
            sign: OnceLock::new(),
            lock_slots: (Mutex::new(0), Condvar::new()),
        })
    }

    /// A second session of the same partition, through one server that forwards to all others.
    pub fn tied_to(&self, server: ServerIndex) -> Result<Arc<Session>, Fault> {
        if self.spec.servers <= server.at() {
            let text =
                format!("{} has {} servers, none is number {server}", self.spec.name, self.spec.servers);
            return Err(Fault::new(Code::Invalid, text));
        }
        Ok(Session::new(MountSpec { tied: Some(server), ..self.spec.clone() }))
    }

    /// The partition's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// From now on messages call files by the paths they were opened with, not by the partition's name.
    pub(crate) fn serve_plain_files(&self) {
        self.plain.store(true, Ordering::Release);
    }

    /// Whether messages call files by their own paths.
    pub(in crate::client) fn serves_plain_files(&self) -> bool {
        self.plain.load(Ordering::Acquire)
    }

    pub(in crate::client) fn lease_group(&self) -> u64 {
        self.lease_group
    }

    /// The parameters to mount the same partition again.
    pub(crate) fn spec(&self) -> MountSpec {
        let way = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        MountSpec { endpoint: way, ..self.spec.clone() }
    }

    /// Local and remote address of the connection to a server, if it runs over a network.
    pub(crate) fn network_addresses(
        &self,
        server: ServerIndex,
    ) -> Result<Option<(SocketAddr, SocketAddr)>, Fault> {
        Ok(self.connection(server)?.network_addresses())
    }

    pub(in crate::client) fn session(&self) -> SessionId {
        self.session
    }

    /// Method of collective accesses, unless a file sets its own.
    pub fn method(&self) -> Method {
        self.spec.method
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.spec.servers
    }

    /// Counters of the accesses so far.
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    /// Fails in a forked child: connections, outbox and leases belong to the parent.
    pub(in crate::client) fn check_process(&self) -> Result<(), Fault> {
        if self.fork == fork_generation() {
            return Ok(());
        }
        Err(Fault::new(
            Code::Closed,
            format!("{} was mounted by the parent process: mount it again after fork", self.spec.name),
        ))
    }

    pub(in crate::client) fn is_own_process(&self) -> bool {
        self.fork == fork_generation()
    }

    pub(in crate::client) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The table of files with open handles: handles of one file share lease and records.
    pub(in crate::client) fn files(&self) -> MutexGuard<'_, HashMap<InodeId, Weak<OpenFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user's name request to the manager. Also reports pending errors of files without handles.
    pub fn name_call(&self, request: NameRequest) -> Result<NameReply, Fault> {
        self.report_once()?;
        self.request_names(request)
    }

    /// The same request without reporting errors to a user.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(in crate::client) fn request_names(&self, request: NameRequest) -> Result<NameReply, Fault> {
        match self.call(ServerIndex::MANAGER, &Request::Name { request })?.reply {
            Reply::Name { mut reply } => {
                self.add_own_lengths(&mut reply);
                Ok(reply)
            }
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Buffered writes of this client make files longer than the manager knows: it does not recall a lease from the client that sent the
    /// request.
    fn add_own_lengths(&self, reply: &mut NameReply) {
        let is_used = !self.files().is_empty();
        let grow = |attr: &mut FileAttr| {
            let file = self.files().get(&attr.inode).and_then(Weak::upgrade);
            if let Some(file) = file {
                attr.size = attr.size.max(file.lease.unreported_end_in(attr.generation));
            }
        };
        match reply {
            NameReply::Attr { attr } => grow(attr),
            NameReply::Entries { entries, .. } if is_used => {
                entries.iter_mut().for_each(|entry| grow(&mut entry.attr));
            }
            NameReply::Entries { .. }
            | NameReply::Done {}
            | NameReply::Target { .. }
            | NameReply::Value { .. }
            | NameReply::XattrNames { .. } => {}
        }
    }

    /// A call to a server; repeated once after a reconnect, under the same number.
    pub fn call(&self, server: ServerIndex, request: &Request) -> Result<ReceivedReply, Fault> {
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

    fn call_once(&self, server: ServerIndex, number: u64, request: &Request) -> Result<ReceivedReply, Fault> {
        let connection = self.connection(server)?;
        self.counters.message(request, 0);
        let answer =
            connection.start_as(number, request, &[], &[]).and_then(|ticket| connection.wait(ticket, None));
        if answer.is_err() && connection.is_dead() {
            self.connection_lost(server, &connection);
        }
        answer
    }

    /// Sends a request without waiting for its reply; waits after every [`UNAWAITED_REPLIES_MAX`] requests, so that replies do not pile up.
    pub(in crate::client) fn send_unawaited(
        &self,
        server: ServerIndex,
        request: &Request,
    ) -> Result<(), Fault> {
        if !self.sent_unanswered.fetch_add(1, Ordering::Relaxed).is_multiple_of(UNAWAITED_REPLIES_MAX)
            && let Ok(started) = self.start(server, request, &[])
        {
            started.connection.forget(started.ticket);
            return Ok(());
        }
        self.call(server, request).map(|_| ())
    }

    /// Sends a request with data; the caller waits with [`Session::finish`].
    pub(in crate::client) fn start(
        &self,
        server: ServerIndex,
        request: &Request,
        data: &[&[u8]],
    ) -> Result<StartedRequest, Fault> {
        let mut connection = self.connection(server)?;
        if connection.has_ended() {
            // The connection was lost while idle; the server may be back.
            self.connection_lost(server, &connection);
            connection = self.connection(server)?;
        }
        self.counters.message(request, data.iter().map(|part| part.len()).sum());
        tracing::trace!(target: MESSAGES, server = server.0, ?request, "sent");
        match connection.start_as(self.number(), request, data, &[]) {
            Ok(ticket) => Ok(StartedRequest { server, connection, ticket }),
            Err(fault) => {
                if connection.is_dead() {
                    self.connection_lost(server, &connection);
                }
                Err(fault)
            }
        }
    }

    /// Waits for the reply to a started request.
    pub(in crate::client) fn finish(
        &self,
        started: StartedRequest,
        target: Option<&mut [u8]>,
    ) -> Result<ReceivedReply, Fault> {
        let answer = started.connection.wait(started.ticket, target);
        tracing::trace!(target: MESSAGES, server = started.server.0, "answered");
        if let Ok(answer) = &answer {
            self.counters.received_bytes.fetch_add(answer.data_bytes as u64, Ordering::Relaxed);
        }
        if answer.is_err() && started.connection.is_dead() {
            self.connection_lost(started.server, &started.connection);
        }
        answer
    }

    /// Data bytes that one message to a server should carry.
    pub(in crate::client) fn transfer_bytes(&self, server: ServerIndex) -> Result<usize, Fault> {
        let wished = self.connection(server)?.welcome().transfer_bytes as usize;
        Ok(wished.clamp(TRANSFER_BYTES_MIN, FRAME_DATA_BYTES_MAX))
    }

    pub(in crate::client) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The connection to a server; connects if there is none.
    pub(in crate::client) fn connection(&self, server: ServerIndex) -> Result<Arc<Connection>, Fault> {
        let is_recovering = || server == ServerIndex::MANAGER && self.recovering.load(Ordering::Acquire);
        if let Some(connection) = self.live_connection(server) {
            // A recovering thread connects to the manager before it announces the session.
            if !connection.is_dead() && !is_recovering() {
                return self.check_process().map(|()| connection);
            }
            if connection.is_dead() {
                // The thread that finds the connection dead handles the loss before a new connection replaces it.
                self.connection_lost(server, &connection);
            }
        }
        if is_recovering() {
            self.recover()?;
        }
        self.connect(server)
    }

    pub(in crate::client) fn server_indices(&self) -> impl Iterator<Item = ServerIndex> + use<> {
        (0..self.spec.servers).map(|server| ServerIndex(u16::try_from(server).unwrap_or(u16::MAX)))
    }

    /// The connection to a server, if there is one.
    pub(in crate::client) fn live_connection(&self, server: ServerIndex) -> Option<Arc<Connection>> {
        self.link(server).ok()?.connection.clone()
    }

    pub(super) fn connect(&self, server: ServerIndex) -> Result<Arc<Connection>, Fault> {
        self.check_process()?;
        let mut link = self.link(server)?;
        if let Some(connection) = link.connection.as_ref().filter(|connection| !connection.is_dead()) {
            return Ok(Arc::clone(connection));
        }
        let began = self.clock.now();
        if let Some(silent) = link.silent.as_ref().filter(|silent| silent.is_paused(began)) {
            return Err(silent.fault.clone());
        }
        let opened = self.open(server, ConnectionPurpose::Requests {});
        let ended = self.clock.now();
        link.silent = match &opened {
            Err(fault) if SILENT_RETRY_AFTER <= ended.since(began) => {
                Some(Silent { at: ended, fault: fault.clone(), connection: None })
            }
            Ok(_) | Err(_) => None,
        };
        let connection = Arc::new(opened.map_err(|fault| replaced(server, link.incarnation, fault))?);
        let welcome = connection.welcome();
        if link.incarnation != 0 && link.incarnation != welcome.incarnation.0 {
            self.server_restarts.fetch_add(1, Ordering::AcqRel);
            link.volatile_losses += u64::from(welcome.volatile);
            // Before a thread can offer the outbox on the new connection.
            self.note_uncollected_errors(server);
        }
        link.incarnation = welcome.incarnation.0;
        self.connection_epochs[server.at()].fetch_add(1, Ordering::AcqRel);
        link.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Connection epoch: the number of the current connection to a server.
    pub(in crate::client) fn connection_epoch(&self, server: ServerIndex) -> u64 {
        self.connection_epochs.get(server.at()).map_or(0, |life| life.load(Ordering::Acquire))
    }

    /// Number of restarts of a server with a memory store.
    pub(in crate::client) fn volatile_losses(&self, server: ServerIndex) -> u64 {
        self.link(server).map_or(0, |link| link.volatile_losses)
    }

    /// A new connection. If the old endpoint does not answer, looks up the current one.
    pub(in crate::client) fn open(
        &self,
        server: ServerIndex,
        purpose: ConnectionPurpose,
    ) -> Result<Connection, Fault> {
        let way = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let began = self.clock.now();
        let fault = match self.open_at(&way, server, purpose) {
            Ok(connection) => return Ok(connection),
            Err(fault) => fault,
        };
        let outdated = matches!(fault.code, Code::Unreachable | Code::WrongSecret | Code::Stale);
        let Some(locate) = self.spec.locate.as_ref().filter(|_| outdated) else { return Err(fault) };
        let Ok(way) = locate() else { return Err(fault) };
        if REPEAT_LIMIT < self.clock.now().since(began) {
            return Err(fault);
        }
        let connection = self.open_at(&way, server, purpose)?;
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = way;
        Ok(connection)
    }

    fn open_at(
        &self,
        way: &Endpoint,
        server: ServerIndex,
        purpose: ConnectionPurpose,
    ) -> Result<Connection, Fault> {
        let to = self.spec.tied.unwrap_or(server);
        let mut stream = way.connect.connect(to).map_err(|fault| fault.at(&self.spec.name))?;
        if to != server {
            stream = stream.relayed();
        }
        let protect = way.protect.wants(&stream);
        let hello = Hello { protect, ..self.hello(server, purpose) };
        Connection::greet(stream, self.spec.name.clone(), &hello, &way.secret)
    }

    fn hello(&self, server: ServerIndex, purpose: ConnectionPurpose) -> Hello {
        let pid = std::process::id();
        Hello {
            protocol: PROTOCOL,
            partition: self.spec.partition,
            server,
            session: self.session,
            purpose,
            host: host_name(),
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            program: program(),
            application: self.spec.application.name.clone(),
            weight: self.spec.application.weight,
            relay: self.spec.tied.is_some_and(|tied| tied != server),
            protect: false,
            nonce: nonce(),
        }
    }

    /// A server's connection was lost: detaches its cursor and fails its outstanding requests.
    pub(in crate::client) fn connection_lost(&self, server: ServerIndex, connection: &Arc<Connection>) {
        let Ok(mut link) = self.link(server) else { return };
        let same = link.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection));
        if same {
            link.connection = None;
            let silent =
                |fault| Silent { at: self.clock.now(), fault, connection: Some(Arc::clone(connection)) };
            link.silent = connection.silence().map(silent);
        }
        drop(link);
        if same {
            if let Some(outbox) = self.outbox.get() {
                outbox.detach(server);
            }
            if server == ServerIndex::MANAGER {
                self.manager_lost();
            }
        }
    }

    /// The manager's connection was lost, and with it every lease.
    pub(in crate::client) fn manager_lost(&self) {
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

    fn link(&self, server: ServerIndex) -> Result<MutexGuard<'_, ServerLink>, Fault> {
        let link = self.links.get(server.at()).ok_or_else(|| {
            Fault::new(
                Code::Invalid,
                format!("{} has {} servers, none is number {server}", self.spec.name, self.spec.servers),
            )
        })?;
        Ok(lock(link))
    }

    /// The outbox, created at first use.
    pub(in crate::client) fn outbox(&self) -> Result<Arc<Outbox>, Fault> {
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
            .map_err(|error| Fault::from_io(&error, "creating an outbox"))?;
        Ok(Arc::clone(self.outbox.get_or_init(|| Arc::new(outbox))))
    }

    pub(in crate::client) fn outbox_if_made(&self) -> Option<&Arc<Outbox>> {
        self.outbox.get()
    }

    /// The server's cursor in the outbox of this session; offers the outbox if the server has none.
    pub(in crate::client) fn cursor(&self, server: ServerIndex) -> Result<(Arc<Outbox>, Arc<Cursor>), Fault> {
        let outbox = self.outbox()?;
        if let Some(cursor) = outbox.cursor(server) {
            return Ok((outbox, cursor));
        }
        let connection = self.connection(server)?;
        let cursor = self.offer(&outbox, server, &connection)?;
        Ok((outbox, cursor))
    }

    pub(super) fn offer(
        &self,
        outbox: &Outbox,
        server: ServerIndex,
        connection: &Connection,
    ) -> Result<Arc<Cursor>, Fault> {
        self.drop_stale_records(outbox, server);
        let attached = outbox.attach(server, |from| {
            self.resend_views(server, connection, from)?;
            let descriptor = std::os::fd::AsFd::as_fd(outbox.descriptor());
            let request = Request::OfferOutbox { from };
            self.counters.message(&request, 0);
            let ticket = connection.start_as(self.number(), &request, &[], &[descriptor])?;
            Session::cursor_in(server, connection.wait(ticket, None)?)
        })?;
        if let Some(lost) = &attached.lost {
            self.note_lost_records(server, lost);
        }
        if !self.keep_cursor_if_live(outbox, server, connection) {
            let text = format!(
                "{}: server {server} closed the connection while the outbox was offered to it; retry",
                self.spec.name
            );
            return Err(Fault::new(Code::Unreachable, text));
        }
        Ok(attached.cursor)
    }

    /// The cursor in a server's reply to an offered outbox.
    pub(in crate::client) fn cursor_in(
        server: ServerIndex,
        mut answer: ReceivedReply,
    ) -> Result<Cursor, Fault> {
        let (Some(doorbell), Some(page)) = (answer.descriptors.pop(), answer.descriptors.pop()) else {
            let text = format!("server {server} accepted the outbox without a cursor");
            return Err(Fault::new(Code::Protocol, text));
        };
        reach(Point::OfferAnswered);
        Cursor::attach(server, page, doorbell)
    }

    /// A thread that found the connection lost before the cursor was stored had nothing to detach: the server has dropped the outbox, and
    /// no other thread would offer it again.
    pub(in crate::client) fn keep_cursor_if_live(
        &self,
        outbox: &Outbox,
        server: ServerIndex,
        connection: &Connection,
    ) -> bool {
        let current = self.live_connection(server);
        let is_live = current.is_some_and(|current| std::ptr::eq(Arc::as_ptr(&current), connection));
        if !is_live {
            outbox.detach(server);
        }
        is_live
    }

    /// Drops the undrained records of a dead server; their files report the loss.
    pub(in crate::client) fn drop_records(&self, outbox: &Outbox, server: ServerIndex) {
        let pending = outbox.stopped(server);
        if outbox.abandon(server)
            && let Some(pending) = pending
        {
            self.note_lost_records(server, &pending);
        }
    }

    /// Drops records from before the manager's last loss, for a server that failed after the session announced itself to the new manager:
    /// their files may have been granted to other clients since, and the records would overwrite newer data.
    fn drop_stale_records(&self, outbox: &Outbox, server: ServerIndex) {
        let Some(pending) = outbox.stopped(server) else { return };
        let heard = self.announced_epoch.load(Ordering::Acquire);
        let files: Vec<Arc<OpenFile>> = self.files().values().filter_map(Weak::upgrade).collect();
        if files.iter().any(|file| file.data.unflushed.has_stale_records(server, pending.start, heard)) {
            tracing::warn!(%server, "records from before the manager's restart are dropped: other clients may have written their files");
            self.drop_records(outbox, server);
        }
    }

    /// A server was replaced: errors that it counted and did not report are lost.
    fn note_uncollected_errors(&self, server: ServerIndex) {
        let Some(counted) = self.outbox.get().and_then(|outbox| outbox.counted_errors(server)) else {
            return;
        };
        let files: Vec<Arc<OpenFile>> = self.files().values().filter_map(Weak::upgrade).collect();
        files.iter().for_each(|file| file.data.unflushed.note_uncollected(server, counted));
    }

    /// Records that were overwritten in the outbox before a server came back: their files must report the loss.
    fn note_lost_records(&self, server: ServerIndex, lost: &std::ops::Range<u64>) {
        let files: Vec<Arc<OpenFile>> = self.files().values().filter_map(Weak::upgrade).collect();
        for file in files {
            if lost.start < file.data.unflushed.records_end(server) {
                let text = format!(
                    "{}: writes that server {server} had not drained when it went down were lost",
                    file.context.describe()
                );
                file.data.faults.keep(Fault::new(Code::Lost, text));
            }
        }
    }

    /// Runs `action`, and again if it failed quickly because a server was unreachable: the server may have been restarted.
    pub(in crate::client) fn retry_once<T>(
        &self,
        mut action: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let began = self.clock.now();
        match action() {
            Err(fault) if fault.code == Code::Unreachable && self.clock.now().since(began) < REPEAT_LIMIT => {
                action()
            }
            other => other,
        }
    }

    /// Runs `action` with the check for waiting threads, and again if it failed because a server was unreachable and it had not waited
    /// long. The number of the attempt is passed to it. Reads no clock unless `action` waits.
    pub(in crate::client) fn retry_commit<T>(
        &self,
        mut action: impl FnMut(usize, pario_net::outbox::WaitCheck<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let waiting_since = std::cell::Cell::new(None);
        let alive = self.alive_check();
        let check = |server, waited| {
            waiting_since.set(waiting_since.get().or_else(|| Some(self.clock.now())));
            alive(server, waited)
        };
        match action(0, &check) {
            Err(fault) if fault.code == Code::Unreachable => {
                let waited = waiting_since.get().map(|since| self.clock.now().since(since));
                if waited.is_none_or(|waited| waited < REPEAT_LIMIT) { action(1, &check) } else { Err(fault) }
            }
            other => other,
        }
    }

    /// The check that runs while a thread waits for a cursor: see [`Session::mind`].
    pub(in crate::client) fn alive_check(&self) -> impl Fn(ServerIndex, Duration) -> Result<(), Fault> {
        let asked = std::cell::Cell::new(Duration::ZERO);
        move |server, waited| {
            let mut last = asked.get();
            let result = self.check_alive(server, waited, &mut last);
            asked.set(last);
            result
        }
    }

    /// Runs while a thread waits for a server's cursor: pings the server each second, and fails if it does not reply.
    pub(in crate::client) fn check_alive(
        &self,
        server: ServerIndex,
        waited: Duration,
        asked: &mut Duration,
    ) -> Result<(), Fault> {
        if waited.saturating_sub(*asked) < Duration::from_millis(500) {
            return Ok(());
        }
        *asked = waited;
        // Never a new connection: the caller may hold locks that connecting needs.
        let connection = self.live_connection(server).ok_or_else(|| {
            Fault::new(Code::Unreachable, format!("{}: server {server} is gone", self.spec.name))
        })?;
        let number = self.number();
        let answer = connection
            .start_as(number, &Request::Ping {}, &[], &[])
            .and_then(|ticket| connection.wait(ticket, None));
        if answer.is_err() && connection.is_dead() {
            self.connection_lost(server, &connection);
        }
        answer.map(|_| ())
    }
}

/// A request under way.
pub(in crate::client) struct StartedRequest {
    server: ServerIndex,
    connection: Arc<Connection>,
    ticket: Ticket,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_own_process() {
            self.send_direct_report();
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

/// A server that accepted the secret before and rejects it now has been restarted; the registry is updated within a second.
/// Number of restarts of servers that a session has found when it connected again.
pub fn server_restarts(session: &Session) -> u64 {
    session.server_restarts.load(Ordering::Acquire)
}

fn replaced(server: ServerIndex, incarnation: u64, fault: Fault) -> Fault {
    if fault.code != Code::WrongSecret || incarnation == 0 {
        return fault;
    }
    let text = format!("server {server} is being replaced and cannot be used yet: {}", fault.text);
    Fault::new(Code::Unreachable, text)
}

/// Sleeps.
pub(in crate::client) fn pause(time: Duration) {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    // An empty poll is a pause.
    let _ = rustix::event::poll(&mut [], Some(&time));
}

pub(in crate::client) fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(|| "unknown".into(), |name| name.to_string_lossy().into_owned())
}

pub(in crate::client) fn unexpected_reply(reply: &Reply) -> Fault {
    Fault::new(
        Code::Protocol,
        format!("unexpected reply {reply:?}: check that client and servers have the same version"),
    )
}
