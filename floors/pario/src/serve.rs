//! A server as a process: the body of `pario serve`.
//!
//! Always: ends if its starter dies before the server was detached; on SIGTERM it drains committed records, syncs, and ends.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, RwLock};

use pario_core::{Code, Fault, PartitionId, ServerIndex};
use pario_net::stream::Address;
use pario_server::store::StoreRate;
use pario_server::stores::{StoreChoice, disk_in};
use pario_server::{Ending, RestartLogSpec, SchedulerSpec, Server, ServerIdentity, ServerSpec};
use pario_sys::clock::time_namespace;
use pario_sys::kill_point::{self, ArmedProcess};
use pario_sys::signals::Signals;

use crate::connect::{ByAddress, PeerAddresses};
use crate::group::own_node;
use crate::names;
use crate::partition::identity::{DirectoryRole, RESTART_LOG_FILE, StartMode};
use crate::partition::protocol::{ListenTcp, detach};
use crate::partition::server_log::{LOG_FILE, LogFile, ServerLog};
use crate::partition::{
    HeldDirectory, Ready, Registry, RegistryEntry, ServeSpec, ServerEntry, ServerSide, Settings, StoreKind,
    orphan, private,
};

/// Signals that stop a server in order. Terminal signals do not reach it: it has left the terminal.
const TERMINATE: i32 = 15;
const INTERRUPT: i32 = 2;
const HANG_UP: i32 = 1;

/// Serves one storage directory until it is stopped: reads its parameters from `input`, replies on `output`. `begin` is called first, with
/// the settings and the log, to set up logging.
pub fn serve(
    input: impl Read,
    output: impl Write,
    begin: impl FnOnce(&Settings, &Arc<ServerLog>),
) -> ExitCode {
    // Inherited descriptors, for example an MPI rank's sockets, must not stay open as long as the server runs.
    pario_sys::process::close_descriptors_from(3);
    let mut side = ServerSide::new(input, output);
    let spec = match side.spec() {
        Ok(spec) => spec,
        Err(error) => return complain(&error.to_string()),
    };
    let log = Arc::new(ServerLog::default());
    begin(&spec.settings, &log);
    // Before any thread: all of them inherit the mask.
    let signals = match Signals::catch(&[TERMINATE, INTERRUPT, HANG_UP]) {
        Ok(signals) => signals,
        Err(error) => return complain(&error.to_string()),
    };
    if let Err(error) = kill_point::arm(ArmedProcess::Server(spec.index.0)) {
        return fail(&mut side, &error.to_string(), None);
    }
    let holds = match orphan::hold_directories(&spec) {
        Ok(holds) => holds,
        Err(error) => return fail(&mut side, &error.to_string(), error.found()),
    };
    let opened = LogFile::open(&holds[0].opened).map_err(|error| {
        Fault::new(Code::Invalid, format!("{}: {error}", spec.dir.join(LOG_FILE).display()))
    });
    match opened.and_then(|file| Ok((start(&spec, &holds)?, file))) {
        Ok(((server, ready), file)) => {
            converse(&mut side, &spec, RunningServer { server, ready, holds, signals, log, file })
        }
        Err(fault) => {
            undo(holds);
            fail(&mut side, &fault.text, None)
        }
    }
}

struct RunningServer {
    server: Server,
    ready: Ready,
    holds: Vec<HeldDirectory>,
    signals: Signals,
    log: Arc<ServerLog>,
    file: LogFile,
}

/// Learns the peers, detaches from the starter, serves.
fn converse<R: Read, W: Write>(
    side: &mut ServerSide<R, W>,
    spec: &ServeSpec,
    running: RunningServer,
) -> ExitCode {
    let RunningServer { server, ready, holds, signals, log, file } = running;
    let node = ready.node.clone();
    let introduced = side.ready(ready).and_then(|()| side.peers()).and_then(|peers| {
        let reached = |peer: &ServerEntry| {
            let near = peer.is_at_own_address() && peer.time_namespace == time_namespace();
            addresses(peer, near && peer.node == node)
        };
        let peers = ByAddress { servers: peers.iter().map(reached).collect() };
        let connect = Arc::new(PeerAddresses(RwLock::new(peers)));
        // The second copy is at another server, which can be reached from here on.
        made_anew(spec, &holds).iter().try_for_each(|note| side.note(note))?;
        match names::open(&server, spec, &holds, Arc::clone(&connect) as _) {
            Ok(notes) => notes.iter().try_for_each(|note| side.note(note))?,
            Err(fault) => return side.failed(&fault.text, None).map(|()| Some(fault)),
        }
        server.set_peers(connect);
        side.up().map(|()| None)
    });
    let failure = match introduced {
        Ok(told) => told.map(|fault| fault.text),
        Err(error) => Some(error.to_string()),
    };
    if let Some(text) = failure {
        drop(server);
        undo(holds);
        return complain(&text);
    }
    if let Err(error) = detach(&log, file) {
        tracing::warn!(%error, "cannot detach from the terminal");
    }
    let server = wait(server, signals);
    let ended = server.join();
    log.write_pending();
    match ended {
        Ok(Ending::Keep) => ExitCode::SUCCESS,
        Ok(Ending::Destroy) => destroy(holds),
        Ok(Ending::Alone { destroy: true }) => {
            let code = destroy(holds);
            tidy_registry(spec, Tidy::Forget);
            code
        }
        Ok(Ending::Alone { destroy: false }) => {
            drop(holds);
            tidy_registry(spec, Tidy::MarkDown);
            ExitCode::SUCCESS
        }
        Err(fault) => complain(&fault.text),
    }
}

/// Directories that a complete partition had lost and that were created again because its user has accepted the loss.
fn made_anew(spec: &ServeSpec, holds: &[HeldDirectory]) -> Vec<String> {
    let index = spec.index;
    let say = |hold: &HeldDirectory| {
        let (what, dir) = match hold.identity.role {
            DirectoryRole::Store => ("storage directory", hold.dir.display()),
            DirectoryRole::Names => ("directory of names", hold.dir.display()),
        };
        format!("{what} {dir} of server {index} was missing and is made anew, empty")
    };
    match spec.mode {
        StartMode::Existing => holds.iter().filter(|hold| hold.created).map(say).collect(),
        StartMode::Fresh => Vec::new(),
    }
}

/// How to change the registry entry of a partition after its starter ended.
enum Tidy {
    Forget,
    MarkDown,
}

/// The process that would have updated the registry has ended: the manager does it, if it can reach the registry.
fn tidy_registry(spec: &ServeSpec, how: Tidy) {
    if spec.index != ServerIndex::MANAGER {
        return;
    }
    let registry = Registry::open(&spec.registered.path);
    // A repair raises the epoch and keeps the secret; a start makes a new one.
    let own = |entry: &RegistryEntry| entry.id == spec.id && entry.secret == spec.secret;
    let tidied = registry.get(&spec.settings.name).and_then(|entry| match (entry.filter(own), how) {
        (Some(entry), Tidy::Forget) => registry.forget(&entry),
        (Some(entry), Tidy::MarkDown) => registry.mark_down(&entry).map(drop),
        (None, _) => Ok(()),
    });
    if let Err(error) = tidied {
        tracing::warn!(%error, "the registry keeps an entry of a partition that ended");
    }
    private::remove_if_empty(&registry);
}

/// Waits for the end; a signal starts it.
fn wait(server: Server, signals: Signals) -> Server {
    let stopper = server.stopper();
    let watcher = std::thread::Builder::new().name("pario-signals".into()).spawn(move || {
        while let Ok(number) = signals.wait() {
            if number == TERMINATE {
                tracing::info!("stopped by a signal");
                stopper();
                return;
            }
        }
    });
    if let Err(error) = watcher {
        tracing::warn!(%error, "signals do not end this server");
    }
    server.wait_finished();
    server
}

fn start(spec: &ServeSpec, holds: &[HeldDirectory]) -> Result<(Server, Ready), Fault> {
    // Many clients and many objects: use as many descriptors as the system allows.
    if let Err(error) = pario_sys::process::raise_descriptor_limit() {
        tracing::debug!(%error, "the descriptor limit stays as it is");
    }
    let settings = &spec.settings;
    let node = match &spec.node {
        Some(node) => Some(node.clone()),
        None => own_node().map_err(|error| Fault::new(Code::Invalid, error.to_string()))?,
    };
    let disk = disk_in(&holds[0].opened);
    let store = store_choice(spec).open_as(Arc::clone(&disk), settings.checksums.into(), pace(settings))?;
    let unix: Option<PathBuf> = spec.listen.unix.then(|| spec.dir.join("socket"));
    let tcp = spec.listen.tcp.as_ref().map(tcp_address).transpose()?;
    let start = if spec.names.is_some() { Server::start_before_names } else { Server::start };
    let identity = ServerIdentity {
        partition: spec.id,
        name: settings.name.clone(),
        index: spec.index,
        servers: settings.servers.len(),
        secret: pario_net::greeting::Secret(spec.secret.0),
    };
    // A manager's names are opened when its peers are known.
    let server = start(ServerSpec {
        protect: settings.network.protect.into(),
        outbox_bytes: settings.cache.outbox.0,
        transfer_bytes: u32::try_from(settings.network.buffer.0).unwrap_or(u32::MAX),
        restart_log: Some(RestartLogSpec { disk, path: spec.dir.join(RESTART_LOG_FILE) }),
        scheduler: scheduler(spec),
        unix: unix.clone(),
        tcp,
        ..ServerSpec::new(identity, store)
    })?;
    server.set_keeping(names::keeping(spec, holds));
    let ready = Ready::own(spec.index, unix, server.tcp_address()).on(node);
    Ok((server, ready))
}

/// The rate limit of the store, if there is one.
fn pace(settings: &Settings) -> Option<StoreRate> {
    let pace = StoreRate {
        bytes_per_second: (settings.limits.store.0 != 0).then_some(settings.limits.store.0),
        calls_per_second: (settings.limits.operations != 0).then_some(settings.limits.operations.into()),
    };
    (pace != StoreRate::default()).then_some(pace)
}

fn scheduler(spec: &ServeSpec) -> SchedulerSpec {
    let settings = &spec.settings;
    let file = format!("{}-{}.trace", settings.name, spec.index);
    SchedulerSpec {
        policy: settings.scheduler.word().to_owned(),
        weights: settings.weights.clone(),
        trace: settings.trace.as_ref().map(|dir| dir.join(file)),
    }
}

fn store_choice(spec: &ServeSpec) -> StoreChoice {
    let (settings, dir) = (&spec.settings, spec.dir.clone());
    match settings.store {
        StoreKind::Files => StoreChoice::Files { dir },
        StoreKind::Direct => StoreChoice::Direct {
            dir,
            cache_bytes: settings.cache.server.0,
            high: settings.cache.high,
            low: settings.cache.low,
        },
        StoreKind::Log => StoreChoice::Log { dir },
        StoreKind::Memory => StoreChoice::Memory { bytes: settings.memory.0 },
    }
}

/// Loopback, or the address of the host that the partition file names.
fn tcp_address(listen: &ListenTcp) -> Result<SocketAddr, Fault> {
    let Some(host) = &listen.host else { return Ok((IpAddr::V4(Ipv4Addr::LOCALHOST), listen.port).into()) };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = (bare, listen.port)
        .to_socket_addrs()
        .map_err(|error| Fault::new(Code::Invalid, format!("host '{host}' has no address here: {error}")))?
        .filter(|address| !address.ip().is_loopback());
    found.next().ok_or_else(|| {
        let text = format!("host '{host}' has only loopback addresses here, which other hosts do not reach: name the server by its address");
        Fault::new(Code::Invalid, text)
    })
}

/// A server's addresses, best first: shared memory if it is on this node.
pub(crate) fn addresses(server: &ServerEntry, here: bool) -> Vec<Address> {
    let unix = server.unix.clone().filter(|_| here).map(Address::Unix);
    unix.into_iter().chain(server.tcp.map(Address::Tcp)).collect()
}

fn fail<R: Read, W: Write>(side: &mut ServerSide<R, W>, text: &str, found: Option<PartitionId>) -> ExitCode {
    if let Err(error) = side.failed(text, found) {
        return complain(&format!("{text} ({error})"));
    }
    ExitCode::FAILURE
}

fn undo(holds: Vec<HeldDirectory>) {
    for hold in holds {
        if let Err(error) = hold.undo() {
            tracing::warn!(%error, "could not be removed after a failed start");
        }
    }
}

fn destroy(holds: Vec<HeldDirectory>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for hold in holds {
        if let Err(error) = hold.destroy() {
            code = complain(&error.to_string());
        }
    }
    code
}

/// Standard error is the starter's terminal, or the log once the server is detached.
fn complain(text: &str) -> ExitCode {
    tracing::error!("{text}");
    ExitCode::FAILURE
}
