//! A server as a process: the body of `pario serve`.
//!
//! Always: ends when its starter dies before it was told to go on its own; on SIGTERM it takes what was committed, syncs, ends.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use pario_core::{Code, Fault, Layout, PartitionId};
use pario_net::stream::Address;
use pario_server::store::Pace;
use pario_server::stores::{StoreChoice, lives_in, names_in};
use pario_server::{Ending, SchedulerSpec, Server, ServerSpec};
use pario_sys::kill_point::{self, Process};
use pario_sys::signals::Signals;

use crate::connect::ByAddress;
use crate::group::own_node;
use crate::partition::identity::AHEAD_FILE;
use crate::partition::protocol::{LOG_FILE, ListenTcp, detach};
use crate::partition::{Hold, Ready, ServeSpec, ServerEntry, ServerSide, Settings, StoreKind};

/// Signals that end a server in order. The terminal's are not its own: it has left the terminal.
const TERMINATE: i32 = 15;
const INTERRUPT: i32 = 2;
const HANG_UP: i32 = 1;

/// Serves one storage directory until told to stop: reads what to serve from `input`, answers on `output`. `begin` is called with
/// the settings before anything else happens, as for setting up the log.
pub fn serve(input: impl Read, output: impl Write, begin: impl FnOnce(&Settings)) -> ExitCode {
    // What the starter had open, an MPI rank's sockets for instance, must not live as long as the server.
    pario_sys::process::close_descriptors_from(3);
    let mut side = ServerSide::new(input, output);
    let spec = match side.spec() {
        Ok(spec) => spec,
        Err(error) => return complain(&error.to_string()),
    };
    begin(&spec.settings);
    // Before any thread: all of them inherit the mask.
    let signals = match Signals::catch(&[TERMINATE, INTERRUPT, HANG_UP]) {
        Ok(signals) => signals,
        Err(error) => return complain(&error.to_string()),
    };
    if let Err(error) = kill_point::arm(Process::Server(spec.index.0)) {
        return fail(&mut side, &error.to_string(), None);
    }
    let holds = match spec.hold_directories() {
        Ok(holds) => holds,
        Err(error) => return fail(&mut side, &error.to_string(), error.found()),
    };
    match start(&spec) {
        Ok((server, ready)) => converse(&mut side, &spec, Running { server, ready, holds, signals }),
        Err(fault) => {
            undo(holds);
            fail(&mut side, &fault.text, None)
        }
    }
}

struct Running {
    server: Server,
    ready: Ready,
    holds: Vec<Hold>,
    signals: Signals,
}

/// Gets to know the peers, lets go of the starter, serves.
fn converse<R: Read, W: Write>(side: &mut ServerSide<R, W>, spec: &ServeSpec, running: Running) -> ExitCode {
    let Running { server, ready, holds, signals } = running;
    let node = ready.node.clone();
    let introduced = side.ready(ready).and_then(|()| side.peers()).and_then(|peers| {
        server.set_peers(Arc::new(ByAddress {
            servers: peers
                .iter()
                .map(|peer| addresses(peer, peer.is_at_own_address() && peer.node == node))
                .collect(),
        }));
        side.up()
    });
    if let Err(error) = introduced {
        drop(server);
        undo(holds);
        return complain(&error.to_string());
    }
    if let Err(error) = detach(&spec.dir.join(LOG_FILE)) {
        tracing::warn!(%error, "cannot let go of the terminal");
    }
    let server = wait(server, signals);
    match server.join() {
        Ok(Ending::Keep) => ExitCode::SUCCESS,
        Ok(Ending::Destroy) => destroy(holds),
        Err(fault) => complain(&fault.text),
    }
}

/// Waits for the end; a signal brings it on.
fn wait(server: Server, signals: Signals) -> Server {
    let stopper = server.stopper();
    let watcher = std::thread::Builder::new().name("pario-signals".into()).spawn(move || {
        while let Ok(number) = signals.wait() {
            if number == TERMINATE {
                tracing::info!("told to stop by a signal");
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

fn start(spec: &ServeSpec) -> Result<(Server, Ready), Fault> {
    // Many clients and many objects: take as many descriptors as the system gives.
    if let Err(error) = pario_sys::process::raise_descriptor_limit() {
        tracing::debug!(%error, "the descriptor limit stays as it is");
    }
    let settings = &spec.settings;
    let node = match &spec.node {
        Some(node) => Some(node.clone()),
        None => own_node().map_err(|error| Fault::new(Code::Invalid, error.to_string()))?,
    };
    let total = u16::try_from(settings.servers.len()).unwrap_or(u16::MAX);
    let defaults = Layout::new(settings.stripe.0, total, 0, total)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
    let store = match pace(settings) {
        None => store_choice(spec).open()?,
        Some(pace) => store_choice(spec).open_limited(pace)?,
    };
    let unix: Option<PathBuf> = spec.listen.unix.then(|| spec.dir.join("socket"));
    let tcp = spec.listen.tcp.as_ref().map(tcp_address).transpose()?;
    let server = Server::start(ServerSpec {
        partition: spec.id,
        name: settings.name.clone(),
        index: spec.index,
        servers: settings.servers.len(),
        secret: pario_net::greeting::Secret(spec.secret.0),
        store: store.store,
        volatile: store.volatile,
        lends: store.lends,
        lends_writing: store.lends_writing,
        names: spec.names.as_ref().map(|names| names_in(&names.dir, defaults)),
        outbox_bytes: settings.cache.outbox.0,
        transfer_bytes: u32::try_from(settings.network.buffer.0).unwrap_or(u32::MAX),
        take_before_read: false,
        lives: Some(lives_in(&spec.dir.join(AHEAD_FILE))),
        scheduler: scheduler(spec),
        unix: unix.clone(),
        tcp,
    })?;
    let ready = Ready::own(spec.index, unix, server.tcp_address()).on(node);
    Ok((server, ready))
}

/// What the store is slowed to, if it is.
fn pace(settings: &Settings) -> Option<Pace> {
    let pace = Pace {
        bytes_per_second: (settings.limits.store.0 != 0).then_some(settings.limits.store.0),
        calls_per_second: (settings.limits.operations != 0).then_some(settings.limits.operations.into()),
    };
    (pace != Pace::default()).then_some(pace)
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

fn undo(holds: Vec<Hold>) {
    for hold in holds {
        if let Err(error) = hold.undo() {
            tracing::warn!(%error, "left behind after a failed start");
        }
    }
}

fn destroy(holds: Vec<Hold>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for hold in holds {
        if let Err(error) = hold.destroy() {
            code = complain(&error.to_string());
        }
    }
    code
}

/// Standard error is the starter's terminal, or the log once the server is on its own.
fn complain(text: &str) -> ExitCode {
    tracing::error!("{text}");
    ExitCode::FAILURE
}
