//! Bringing a partition up, mounting it, taking it down.
//!
//! Always: `up` returns when all servers have answered, or fails with the list of those that did not and leaves nothing behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pario_core::{Clock, Code, Fault, ServerIndex};
use pario_net::connection::Connection;
use pario_net::frame::PROTOCOL;
use pario_net::greeting::{Hello, Purpose, Secret, nonce, random_number};
use pario_net::message::Request;
use pario_server::Connect;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{self, Process};

use crate::client::{Application, MountSpec, Way};
use crate::connect::ByAddress;
use crate::error::{Error, Result};
use crate::handle::Partition;
use crate::partition::destroy::destroy_all;
use crate::partition::identity::find_existing;
use crate::partition::launch::START_LIMIT;
use crate::partition::{
    Birth, Claimed, Entry, LaunchPlan, Layers, Liveness, Registry, RegistryError, ServerEntry, Settings,
    State, StoreKind, TransportChoice, binary, launch,
};
use crate::serve::addresses;

pub use crate::serve::serve;

/// How long a server may take to flush and end before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A partition that is up.
#[derive(Clone, Debug)]
pub struct Up {
    /// Its registry entry.
    pub entry: Entry,
    /// How long it took.
    pub took: Duration,
    /// Whether it was created by this call.
    pub fresh: bool,
}

/// What becomes of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownHow {
    /// It stays in the storage directories.
    Keep,
    /// It is removed.
    Destroy,
}

/// A partition that is down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Down {
    /// Its name.
    pub name: String,
    /// Servers that flushed and ended.
    pub stopped: usize,
    /// Servers of this machine that did not answer and were killed.
    pub killed: Vec<ServerIndex>,
    /// Servers that were gone already.
    pub gone: Vec<ServerIndex>,
    /// Storage that could not be reached to be removed.
    pub left: Vec<String>,
}

/// Starts a partition's servers: a new partition, one that is down, or one whose servers died, whose data comes back.
pub fn up(registry: &Registry, settings: &Settings, limit: Duration) -> Result<Up> {
    up_playing(registry, settings, &[], limit)
}

/// [`up`], with the servers of this machine playing several nodes: `nodes` are their labels, dealt to the servers in blocks.
/// Processes share memory only with servers of their own label (`PARIO_NODE`) and use TCP to all others.
pub fn up_playing(registry: &Registry, settings: &Settings, nodes: &[String], limit: Duration) -> Result<Up> {
    if 1 < nodes.len() && settings.transport == TransportChoice::Unix {
        let text = "transport = \"unix\" does not reach another node: use \"auto\" or \"tcp\"";
        return Err(Error::Setup(format!("partition '{}': {text}", settings.name)));
    }
    let began = MonotonicClock.now();
    let birth = match find_existing(settings).map_err(Error::setup)? {
        Some(id) => Birth::Found(id),
        None => Birth::New,
    };
    let claimed = registry.claim(settings, birth, answers).map_err(Error::setup)?;
    let fresh = !claimed.entry.complete;
    let started = refuse_lost_memory(&claimed)
        .and_then(|()| end_survivors(&claimed))
        .and_then(|()| launch_all(&claimed, nodes, limit))
        .and_then(|launched| {
            let entry = registry.finish(&claimed, launched.servers().to_vec()).map_err(Error::setup)?;
            let _ = launched.commit();
            Ok(entry)
        });
    match started {
        Ok(entry) => Ok(Up { entry, took: MonotonicClock.now().since(began), fresh }),
        Err(error) => {
            if let Err(second) = registry.abandon(&claimed) {
                tracing::warn!(%second, "the registry keeps an entry of a failed start");
            }
            Err(error)
        }
    }
}

fn launch_all(claimed: &Claimed, nodes: &[String], limit: Duration) -> Result<launch::Launched> {
    let binary = binary::find_binary().map_err(Error::setup)?;
    let plan = LaunchPlan { nodes: nodes.to_vec(), ..LaunchPlan::new(claimed, binary) };
    launch::start_all(&plan, limit).map_err(Error::setup)
}

/// A memory partition whose servers died has names but no bytes: zeros must not be passed off as data.
fn refuse_lost_memory(claimed: &Claimed) -> Result<()> {
    let entry = &claimed.entry;
    if entry.settings.store == StoreKind::Memory && entry.complete {
        let name = &entry.name;
        return Err(Error::Setup(format!(
            "partition '{name}' was in memory and its data died with its servers: `pario down {name} --destroy`, then up again"
        )));
    }
    Ok(())
}

/// Servers of a life that ended only partly are taken down before the next begins.
fn end_survivors(claimed: &Claimed) -> Result<()> {
    let Some(previous) = &claimed.previous else { return Ok(()) };
    if previous.state != State::Running || matches!(previous.liveness(answers), Liveness::Dead) {
        return Ok(());
    }
    for server in &previous.servers {
        if let Stopped::Unreachable(why) = stop(previous, server, DownHow::Keep) {
            return Err(Error::Setup(format!(
                "server {} of the former life cannot be stopped: {why}",
                server.index
            )));
        }
    }
    Ok(())
}

/// Whether a server on another machine can be connected to.
fn answers(server: &ServerEntry) -> bool {
    server
        .tcp
        .is_some_and(|address| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok())
}

enum Stopped {
    InOrder,
    Killed,
    Gone,
    Unreachable(String),
}

/// Ends one server: by asking, or, on this machine, by force.
fn stop(entry: &Entry, server: &ServerEntry, how: DownHow) -> Stopped {
    let here = entry.is_here(server);
    if here && !server.process().is_alive() {
        return Stopped::Gone;
    }
    let asked = control(entry, server).and_then(|connection| {
        connection.call(&Request::Shutdown { destroy: how == DownHow::Destroy }).map(|_| ())
    });
    match (asked, here) {
        (Ok(()), true) => {
            wait_gone(server, STOP_LIMIT);
            Stopped::InOrder
        }
        (Ok(()), false) => Stopped::InOrder,
        // It answers, to others: the registry is not its own, and nothing here may be ended by force.
        (Err(fault), true) if fault.code == Code::WrongSecret => Stopped::Unreachable(fault.text),
        (Err(fault), true) => {
            tracing::warn!(%fault, "server {} does not answer and is killed", server.index);
            kill(server);
            Stopped::Killed
        }
        (Err(_), false) if is_refused(server) => Stopped::Gone,
        (Err(fault), false) => Stopped::Unreachable(fault.text),
    }
}

/// Whether a host answers that nobody listens where the server did: the server is gone, and not merely cut off.
fn is_refused(server: &ServerEntry) -> bool {
    let attempt = |address| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2));
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    server.tcp.is_some_and(|address| attempt(address).is_err_and(refused))
}

fn kill(server: &ServerEntry) {
    let pid = i32::try_from(server.pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid.filter(|_| server.process().is_alive()) {
        // Gone meanwhile is as good.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    wait_gone(server, Duration::from_secs(5));
}

/// Waits until the process is gone; looks often, since an orderly end takes milliseconds.
fn wait_gone(server: &ServerEntry, limit: Duration) {
    let began = MonotonicClock.now();
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    while server.process().is_alive() && MonotonicClock.now().since(began) < limit {
        launch::reap();
        // An empty poll is a pause.
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    if server.process().is_alive() {
        tracing::warn!("server {} (process {}) is still there", server.index, server.pid);
    }
}

/// A connection for orders.
fn control(entry: &Entry, server: &ServerEntry) -> std::result::Result<Connection, Fault> {
    let connect = by_address(entry);
    let pid = std::process::id();
    let hello = Hello {
        protocol: PROTOCOL,
        partition: entry.id,
        server: server.index,
        session: pario_core::SessionId(random_number()),
        purpose: Purpose::Requests {},
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid,
        start_ticks: pario_sys::process::start_ticks(pid).unwrap_or(0),
        program: "pario".into(),
        application: "pario".into(),
        weight: 1,
        relay: false,
        nonce: nonce(),
    };
    let stream = connect.connect(server.index)?;
    Connection::greet(stream, entry.name.clone(), &hello, &Secret(entry.secret.0))
}

/// Takes a partition down: servers flush and end. What was in memory only is gone with it, so its entry goes too.
pub fn down(registry: &Registry, name: &str, how: DownHow) -> Result<Down> {
    let entry = registry.find(name).map_err(Error::setup)?;
    if entry.state == State::Starting && entry.starter_is_alive() {
        return Err(Error::Setup(format!("partition '{name}' is being started; try again when it is up")));
    }
    let how = if entry.settings.store == StoreKind::Memory { DownHow::Destroy } else { how };
    let mut down =
        Down { name: name.to_owned(), stopped: 0, killed: Vec::new(), gone: Vec::new(), left: Vec::new() };
    let outcomes: Vec<(ServerIndex, Stopped)> = std::thread::scope(|scope| {
        let ending: Vec<_> = entry
            .servers
            .iter()
            .map(|server| (server.index, scope.spawn(|| stop(&entry, server, how))))
            .collect();
        let gone = |_| Stopped::Unreachable("the thread that stopped it panicked".into());
        ending.into_iter().map(|(index, thread)| (index, thread.join().unwrap_or_else(gone))).collect()
    });
    let mut unreachable = Vec::new();
    for (index, outcome) in outcomes {
        match outcome {
            Stopped::InOrder => down.stopped += 1,
            Stopped::Killed => down.killed.push(index),
            Stopped::Gone => down.gone.push(index),
            Stopped::Unreachable(why) => unreachable.push(format!("server {index}: {why}")),
        }
    }
    if !unreachable.is_empty() {
        return Err(Error::Setup(format!("partition '{name}' is not down: {}", unreachable.join("; "))));
    }
    match how {
        DownHow::Keep => registry.mark_down(&entry).map(drop).map_err(Error::setup)?,
        DownHow::Destroy => destroy(registry, &entry, &mut down)?,
    }
    Ok(down)
}

fn destroy(registry: &Registry, entry: &Entry, down: &mut Down) -> Result<()> {
    let settings = &entry.settings;
    let local = |address: &&crate::partition::ServerAddress| address.is_local();
    let mut dirs: Vec<_> = settings.servers.iter().filter(local).map(|address| address.dir.clone()).collect();
    if settings.servers[0].is_local() {
        dirs.extend(settings.names_base().map(Path::to_owned));
    }
    destroy_all(&dirs, entry.id).map_err(Error::setup)?;
    // On other machines a server removes its own data; one that was gone before could not.
    let removed = |server: &&ServerEntry| !down.gone.contains(&server.index);
    let removed: Vec<ServerIndex> = entry.servers.iter().filter(removed).map(|server| server.index).collect();
    for (at, address) in settings.servers.iter().enumerate().filter(|(_, address)| !address.is_local()) {
        let index = ServerIndex(u16::try_from(at).unwrap_or(u16::MAX));
        if !removed.contains(&index) {
            down.left.push(address.to_string());
        }
    }
    registry.forget(entry).map_err(Error::setup)
}

fn by_address(entry: &Entry) -> ByAddress {
    let forced = std::env::var("PARIO_TRANSPORT").ok();
    let transport = match forced.as_deref() {
        Some("tcp") => TransportChoice::Tcp,
        Some("unix") => TransportChoice::Unix,
        _ => entry.settings.transport,
    };
    // A label that cannot be is no server's.
    let node = crate::group::own_node().unwrap_or_else(|_| Some(String::new()));
    let servers = entry.servers.iter().map(|server| {
        let shares = entry.is_here(server) && server.node == node;
        let mut all = addresses(server, shares && transport != TransportChoice::Tcp);
        if transport == TransportChoice::Unix {
            all.retain(|address| matches!(address, pario_net::stream::Address::Unix(_)));
        }
        all
    });
    ByAddress { servers: servers.collect() }
}

impl Partition {
    /// Mounts a running partition by its name in the default registry (`PARIO_REGISTRY`).
    pub fn mount(name: &str) -> Result<Partition> {
        Partition::mount_from(&Registry::open_default().map_err(Error::setup)?, name)
    }

    /// Mounts a running partition by its name.
    pub fn mount_from(registry: &Registry, name: &str) -> Result<Partition> {
        kill_point::arm(Process::Client).map_err(Error::setup)?;
        let entry = registry.find(name).map_err(Error::setup)?;
        check_running(&entry)?;
        let mut spec = mount_spec(&entry, Application::own()?);
        let (path, id) = (registry.path().to_owned(), entry.id);
        spec.locate = Some(Arc::new(move || {
            let gone = |error: RegistryError| Fault::new(Code::Unreachable, error.to_string());
            let entry = Registry::open(&path).find(&spec_name(&path, id)?).map_err(gone)?;
            Ok(way(&entry))
        }));
        Ok(Partition::from_spec(spec))
    }

    /// Mounts a partition by its registry entry, for those who look after it: on behalf of the program, whatever
    /// `PARIO_APPLICATION` and `PARIO_WEIGHT` say. Nothing is sent before something is wanted.
    #[must_use]
    pub fn mount_entry(entry: &Entry) -> Partition {
        Partition::from_spec(mount_spec(entry, Application::of_program()))
    }

    /// Mounts the partition that a partition file describes; the first to come starts its servers.
    pub fn mount_or_start(file: &Path) -> Result<Partition> {
        // Before servers are started for somebody who could not mount.
        Application::own()?;
        let registry = Registry::open_default().map_err(Error::setup)?;
        let settings = Layers::new()
            .file(file)
            .and_then(Layers::environment)
            .and_then(Layers::check)
            .map_err(Error::setup)?;
        let began = MonotonicClock.now();
        loop {
            let entry = registry.get(&settings.name).map_err(Error::setup)?;
            if let Some(entry) = &entry
                && entry.state == State::Running
                && entry.liveness(answers) == Liveness::Live
            {
                return Partition::mount_from(&registry, &settings.name);
            }
            match up(&registry, &settings, START_LIMIT) {
                Ok(_) => return Partition::mount_from(&registry, &settings.name),
                Err(error) => {
                    // Somebody else was first: mount what they start.
                    let theirs = registry.get(&settings.name).map_err(Error::setup)?.is_some_and(|entry| {
                        entry.state == State::Running
                            || (entry.state == State::Starting && entry.starter_is_alive())
                    });
                    if !theirs || START_LIMIT < MonotonicClock.now().since(began) {
                        return Err(error);
                    }
                    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                    let _ = rustix::event::poll(&mut [], Some(&pause));
                }
            }
        }
    }
}

/// The name that a partition has in the registry now.
fn spec_name(path: &Path, id: pario_core::PartitionId) -> std::result::Result<String, Fault> {
    let entries =
        Registry::open(path).list().map_err(|error| Fault::new(Code::Unreachable, error.to_string()))?;
    let found = entries.into_iter().find(|entry| entry.id == id && entry.state == State::Running);
    found.map(|entry| entry.name).ok_or_else(|| Fault::new(Code::Unreachable, "the partition is down"))
}

fn check_running(entry: &Entry) -> Result<()> {
    let name = &entry.name;
    match entry.state {
        State::Running => Ok(()),
        State::Down => Err(Error::Setup(format!("partition '{name}' is down: `pario up {name}`"))),
        State::Starting => Err(Error::Setup(format!("partition '{name}' is still being started"))),
    }
}

fn way(entry: &Entry) -> Way {
    let connect: Arc<dyn Connect> = Arc::new(by_address(entry));
    Way { secret: Secret(entry.secret.0), connect }
}

fn mount_spec(entry: &Entry, application: Application) -> MountSpec {
    MountSpec {
        name: entry.name.clone(),
        partition: entry.id,
        way: way(entry),
        servers: entry.servers.len(),
        locate: None,
        outbox_bytes: usize::try_from(entry.settings.cache.outbox.0).unwrap_or(usize::MAX),
        method: entry.settings.method,
        tied: None,
        application,
    }
}
