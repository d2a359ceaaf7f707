//! Starting and ending an export: the listener, the limit of connections, open files that are closed when they are idle.
//!
//! Never: more than [`CONNECTIONS_MAX`] connections; a connection from an address that is not allowed. Always: an end in order answers the
//! calls under way and puts unstable writes on stable storage.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario::core::{Clock, InodeId};
use pario::{MonotonicClock, Partition};

use super::allow::AllowedNetwork;
use super::connection::ClientConnection;
use super::exported::Exported;
use super::replies::CallOrigin;
use crate::semantics::FileSystem;

/// Each has up to four records and replies of 1 MiB in memory: 256 MiB in the worst case.
const CONNECTIONS_MAX: usize = 32;
/// Idle files are searched this often.
const TICK: Duration = Duration::from_secs(1);
/// Time for calls under way to be answered at the end.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Time between two attempts to accept, while the process has no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Options of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// Address and port; port 0 chooses a free one.
    pub address: SocketAddr,
    /// Networks of clients; none: this machine only.
    pub allow: Vec<AllowedNetwork>,
    /// Changes are refused.
    pub read_only: bool,
    /// The superuser of a client has the rights of an unknown user.
    pub root_squash: bool,
}

/// An export that failed.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts are below")]
pub enum ExportError {
    Open { address: SocketAddr },
    Listen { address: SocketAddr, error: io::Error },
    Partition { text: String },
    Start { error: io::Error },
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Open { address } => write!(
                f,
                "{address} is reachable from other machines, and NFSv3 proves no identity (name the clients \
                 by --allow 10.0.0.0/24, or use 127.0.0.1)"
            ),
            ExportError::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address} is in use (choose another port, or end the process that has it)")
            }
            ExportError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error} (choose an address of this machine)")
            }
            ExportError::Partition { text } => write!(f, "{text}"),
            ExportError::Start { error } => write!(f, "cannot start the export: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

/// A partition that is served through NFS, until it is stopped or dropped.
#[derive(Debug)]
pub struct Export {
    address: SocketAddr,
    server: Arc<ExportServer>,
}

/// What the threads of an export share.
#[derive(Debug)]
pub(super) struct ExportServer {
    exported: Exported,
    listener: TcpListener,
    clients: Mutex<Clients>,
    changed: Condvar,
    panics: AtomicU64,
}

#[derive(Debug, Default)]
struct Clients {
    connections: HashMap<u64, Arc<ClientConnection>>,
    next: u64,
    /// The threads that accept and that close idle files.
    own_threads: usize,
    is_over: bool,
}

impl Export {
    /// Serves a partition with threads of this process.
    pub fn new(partition: &Partition, options: ExportOptions) -> Result<Export, ExportError> {
        if options.allow.is_empty() && !options.address.ip().is_loopback() {
            return Err(ExportError::Open { address: options.address });
        }
        let listen = |error| ExportError::Listen { address: options.address, error };
        let listener = TcpListener::bind(options.address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let system = FileSystem::new(partition, &format!("export {address}"));
        system.attributes(InodeId::ROOT).map_err(|error| ExportError::Partition {
            text: format!(
                "partition '{0}' does not answer: {error} (`pario status {0}` shows its servers)",
                partition.name()
            ),
        })?;
        let mut start = [0; 8];
        getrandom::fill(&mut start)
            .map_err(|error| ExportError::Start { error: io::Error::other(error.to_string()) })?;
        let exported = Exported::new(system, options, u64::from_be_bytes(start));
        let server = Arc::new(ExportServer {
            exported,
            listener,
            clients: Mutex::default(),
            changed: Condvar::new(),
            panics: AtomicU64::new(0),
        });
        let export = Export { address, server };
        export.server.start_thread("pario-export", ExportServer::accept_clients)?;
        export.server.start_thread("pario-idle", ExportServer::close_idle_files)?;
        Ok(export)
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.server.clients().connections.len()
    }

    /// Number of calls that ended by a defect of the export, and their connections with them.
    #[must_use]
    pub fn defects(&self) -> u64 {
        self.server.panics.load(Ordering::Acquire)
    }

    /// Ends it in order. Returns the number of files with lost writes.
    pub fn stop(&self) -> usize {
        self.server.stop()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ExportServer {
    pub(super) fn exported(&self) -> &Exported {
        &self.exported
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A procedure has panicked.
    pub(super) fn count_panic(&self) {
        tracing::error!("a call of a client has ended by a defect of the export; its connection ends");
        self.panics.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a connection after its last thread has ended.
    pub(super) fn forget(&self, connection: &ClientConnection) {
        self.clients().connections.remove(&connection.origin.connection);
        self.changed.notify_all();
    }

    fn start_thread(self: &Arc<Self>, name: &str, run: fn(&Arc<Self>)) -> Result<(), ExportError> {
        let server = Arc::clone(self);
        self.clients().own_threads += 1;
        let started = std::thread::Builder::new().name(name.into()).spawn(move || {
            run(&server);
            server.clients().own_threads -= 1;
            server.changed.notify_all();
        });
        started.map(drop).map_err(|error| {
            self.clients().own_threads -= 1;
            ExportError::Start { error }
        })
    }

    fn accept_clients(self: &Arc<Self>) {
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => {
                    if let Err(error) = self.add_client(stream, address.ip()) {
                        tracing::warn!(%error, %address, "a client cannot be served");
                    }
                }
                Err(error) => {
                    let clients = self.clients();
                    if clients.is_over {
                        return;
                    }
                    tracing::warn!(%error, "no client can be accepted");
                    drop(self.changed.wait_timeout(clients, ACCEPT_RETRY));
                }
            }
            if self.clients().is_over {
                return;
            }
        }
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        let allow = &self.exported.options.allow;
        if allow.is_empty() {
            return address.to_canonical().is_loopback();
        }
        allow.iter().any(|network| network.contains(address))
    }

    fn add_client(self: &Arc<Self>, stream: TcpStream, address: IpAddr) -> io::Result<()> {
        if !self.is_allowed(address) {
            tracing::info!(%address, "a client is refused: no --allow names its network");
            return Ok(());
        }
        let mut clients = self.clients();
        if clients.is_over || CONNECTIONS_MAX <= clients.connections.len() {
            drop(clients);
            let text = format!("{CONNECTIONS_MAX} connections are open already");
            return Err(io::Error::other(text));
        }
        let number = clients.next;
        let connection = Arc::new(ClientConnection::new(CallOrigin { address, connection: number }, stream)?);
        clients.next += 1;
        clients.connections.insert(number, Arc::clone(&connection));
        drop(clients);
        connection.add_thread(self).inspect_err(|_| self.forget(&connection))
    }

    fn close_idle_files(self: &Arc<Self>) {
        let mut clients = self.clients();
        while !clients.is_over {
            clients = self.changed.wait_timeout(clients, TICK).unwrap_or_else(PoisonError::into_inner).0;
            drop(clients);
            self.exported.open.close_idle();
            clients = self.clients();
        }
    }

    fn stop(&self) -> usize {
        self.clients().is_over = true;
        self.changed.notify_all();
        // A thread that accepts returns with an error. It fails if the export was stopped before.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for how in [Shutdown::Read, Shutdown::Both] {
            self.clients().connections.values().for_each(|connection| connection.end(how));
            if self.wait_for_threads(END_LIMIT) {
                break;
            }
            tracing::warn!("calls of clients did not end in time; their connections are cut");
        }
        self.exported.open.close_all();
        usize::try_from(self.exported.open.losses()).unwrap_or(usize::MAX)
    }

    fn wait_for_threads(&self, limit: Duration) -> bool {
        let (clock, began) = (MonotonicClock, MonotonicClock.now());
        let mut clients = self.clients();
        while 0 < clients.connections.len() + clients.own_threads {
            let waited = clock.now().since(began);
            let Some(left) = limit.checked_sub(waited).filter(|left| !left.is_zero()) else { return false };
            clients = self.changed.wait_timeout(clients, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
