//! Brings a partition up, mounts it, takes it down.
//!
//! Always: `up` returns when all servers have answered, or fails with the list of those that did not and leaves nothing behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pario_core::{Clock, Code, Fault, ServerIndex};
use pario_net::greeting::Secret;
use pario_server::Connect;
use pario_sys::clock::MonotonicClock;
use pario_sys::kill_point::{self, ArmedProcess};

use crate::bound::Bound;
use crate::client::{Application, Endpoint, MountSpec};
use crate::connect::{ByAddress, Refused};
use crate::environment;
use crate::error::{Error, Result};
use crate::handle::Partition;
use crate::orders::is_refused;
use crate::partition::destroy::destroy_all;
use crate::partition::identity::find_existing;
use crate::partition::keys::Key;
use crate::partition::launch::START_LIMIT;
use crate::partition::{
    Claimed, IdentityOrigin, LaunchPlan, Layers, Liveness, PartitionState, Registry, RegistryEntry,
    RegistryError, ServerEntry, Settings, StoreKind, TransportChoice, binary, launch,
};
use crate::repair;
use crate::serve::addresses;
use crate::stopping::{StopResult, stop};

pub use crate::serve::serve;

/// A running partition.
#[derive(Clone, Debug)]
pub struct Up {
    /// Its registry entry.
    pub entry: RegistryEntry,
    /// How long it took.
    pub took: Duration,
    /// Whether it was created by this call.
    pub fresh: bool,
    /// Servers restarted by this call while the others continued; empty if all were started.
    pub restarted: Vec<ServerIndex>,
    /// Notes of its servers for the user, for example that names were restored from their second copy.
    pub notes: Vec<String>,
    /// Living servers that did not get the new address of a restarted one, a line with the cure for each.
    pub not_notified: Vec<String>,
}

/// Options of bringing a partition up, besides its settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpOptions {
    /// Node labels of the servers on this machine, assigned in blocks: processes share memory only with servers of their own
    /// label (`PARIO_NODE`) and use TCP to all others.
    pub nodes: Vec<String>,
    /// Missing names or storage directories of a complete partition are made again, empty.
    pub accept_loss: bool,
}

/// Whether the data is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownMode {
    /// It stays in the storage directories.
    Keep,
    /// It is removed.
    Destroy,
}

/// Result of taking a partition down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Down {
    /// Its name.
    pub name: String,
    /// Servers that flushed and ended.
    pub stopped: usize,
    /// Servers of this machine that did not answer and ended on SIGTERM, with a message each.
    pub terminated: Vec<(ServerIndex, String)>,
    /// Servers of this machine that did not answer, did not end on SIGTERM and were killed, with a message each.
    pub killed: Vec<(ServerIndex, String)>,
    /// Servers that were already dead.
    pub already_dead: Vec<ServerIndex>,
    /// Servers that ended without writing all data to their stores, and why.
    pub failed: Vec<(ServerIndex, String)>,
    /// Storage that could not be reached for removal.
    pub left: Vec<String>,
}

/// Starts a partition's servers: of a new partition, of one that is down, or of a dead one with its data kept. If some are
/// alive, only the dead ones are started.
pub fn up(registry: &Registry, settings: &Settings, limit: Duration) -> Result<Up> {
    up_as(registry, settings, &UpOptions::default(), limit)
}

/// [`up`] with node labels for the servers of this machine, assigned in blocks. Processes share memory only with servers of
/// their own label (`PARIO_NODE`) and use TCP to all others.
pub fn up_with_nodes(
    registry: &Registry,
    settings: &Settings,
    nodes: &[String],
    limit: Duration,
) -> Result<Up> {
    up_as(registry, settings, &UpOptions { nodes: nodes.to_vec(), accept_loss: false }, limit)
}

/// [`up`] with options.
pub fn up_as(registry: &Registry, settings: &Settings, how: &UpOptions, limit: Duration) -> Result<Up> {
    bring_up(registry, settings, &StartOptions { how, limit, bound: false }).map(|(up, _)| up)
}

/// [`up_with_nodes`] with servers that end with this process, or with the second returned value. They then remove their data if
/// this call created the partition, and its registry entry.
pub fn up_bound(
    registry: &Registry,
    settings: &Settings,
    nodes: &[String],
    limit: Duration,
) -> Result<(Up, Option<Bound>)> {
    let how = UpOptions { nodes: nodes.to_vec(), accept_loss: false };
    bring_up(registry, settings, &StartOptions { how: &how, limit, bound: true })
}

/// Options of one start.
struct StartOptions<'a> {
    how: &'a UpOptions,
    limit: Duration,
    bound: bool,
}

fn bring_up(
    registry: &Registry,
    settings: &Settings,
    wishes: &StartOptions<'_>,
) -> Result<(Up, Option<Bound>)> {
    let (how, limit) = (wishes.how, wishes.limit);
    if 1 < how.nodes.len() && settings.transport == TransportChoice::Unix {
        let text = "transport = \"unix\" does not reach another node: use \"auto\" or \"tcp\"";
        return Err(Error::Setup(format!("partition '{}': {text}", settings.name)));
    }
    let began = MonotonicClock.now();
    let seen = registry.get(&settings.name).map_err(Error::setup)?;
    if let Some(seen) = seen.filter(|seen| seen.state == PartitionState::Running && !seen.starter_is_alive())
    {
        match repair::check_servers(&seen)? {
            Liveness::Live => return Err(Error::setup(RegistryError::AlreadyRunning { name: seen.name })),
            Liveness::Partly { dead } => {
                return repair::restart(registry, &seen, dead, (settings, how.accept_loss), limit)
                    .map(|up| (up, None));
            }
            Liveness::Dead => {
                let all: Vec<ServerIndex> = seen.servers.iter().map(|server| server.index).collect();
                repair::refuse_lost_memory(&seen, &all)?;
            }
        }
    }
    let birth = match find_existing(settings).map_err(Error::setup)? {
        Some(id) => IdentityOrigin::Found(id),
        None => IdentityOrigin::New,
    };
    let claimed = registry.claim(settings, birth, may_live).map_err(Error::setup)?;
    let fresh = !claimed.entry.complete;
    let started = launch_all(&claimed, how, limit).and_then(|launched| {
        let bind = || Bound::to_this_process(&claimed.entry, launched.servers(), fresh);
        let bound = wishes.bound.then(bind).transpose()?;
        let notes = launched.notes();
        let entry = registry.finish(&claimed, launched.servers().to_vec()).map_err(Error::setup)?;
        let _ = launched.commit();
        Ok((entry, bound, notes))
    });
    match started {
        Ok((entry, bound, notes)) => {
            let took = MonotonicClock.now().since(began);
            Ok((Up { entry, took, fresh, restarted: Vec::new(), notes, not_notified: Vec::new() }, bound))
        }
        Err(error) => {
            if let Err(second) = registry.abandon(&claimed) {
                tracing::warn!(%second, "the registry keeps an entry of a failed start");
            }
            Err(error)
        }
    }
}

fn launch_all(claimed: &Claimed, how: &UpOptions, limit: Duration) -> Result<launch::Launched> {
    let binary = binary::find_binary().map_err(Error::setup)?;
    let UpOptions { nodes, accept_loss } = how.clone();
    let plan = LaunchPlan { nodes, accept_loss, ..LaunchPlan::new(claimed, binary) };
    launch::start_all(&plan, limit).map_err(Error::setup)
}

/// Whether a server on another machine may be alive: its host does not refuse connections.
fn may_live(server: &ServerEntry) -> bool {
    !is_refused(server)
}

/// Takes a partition down: servers flush and end. The entry of a partition in memory is removed, since its data is lost.
pub fn down(registry: &Registry, name: &str, how: DownMode) -> Result<Down> {
    let entry = registry.find(name).map_err(Error::setup)?;
    if entry.state != PartitionState::Down && entry.starter_is_alive() {
        return Err(Error::Setup(format!("partition '{name}' is being started; try again when it is up")));
    }
    let how = if entry.settings.store == StoreKind::Memory { DownMode::Destroy } else { how };
    let mut down = Down {
        name: name.to_owned(),
        stopped: 0,
        terminated: Vec::new(),
        killed: Vec::new(),
        already_dead: Vec::new(),
        failed: Vec::new(),
        left: Vec::new(),
    };
    let outcomes: Vec<(ServerIndex, StopResult)> = std::thread::scope(|scope| {
        let ending: Vec<_> = entry
            .servers
            .iter()
            .map(|server| (server.index, scope.spawn(|| stop(&entry, server, how))))
            .collect();
        let gone = |_| StopResult::Unreachable("the thread that stopped it panicked".into());
        ending.into_iter().map(|(index, thread)| (index, thread.join().unwrap_or_else(gone))).collect()
    });
    let mut unreachable = Vec::new();
    for (index, outcome) in outcomes {
        match outcome {
            StopResult::InOrder => down.stopped += 1,
            StopResult::Failed(why) => down.failed.push((index, why)),
            StopResult::Terminated(told) => down.terminated.push((index, told)),
            StopResult::Killed(told) => down.killed.push((index, told)),
            StopResult::AlreadyDead => down.already_dead.push(index),
            StopResult::Unreachable(why) => unreachable.push(format!("server {index}: {why}")),
        }
    }
    if !unreachable.is_empty() {
        return Err(Error::Setup(format!("partition '{name}' is not down: {}", unreachable.join("; "))));
    }
    match how {
        DownMode::Keep => registry.mark_down(&entry).map(drop).map_err(Error::setup)?,
        DownMode::Destroy => destroy(registry, &entry, &mut down)?,
    }
    Ok(down)
}

fn destroy(registry: &Registry, entry: &RegistryEntry, down: &mut Down) -> Result<()> {
    let settings = &entry.settings;
    let local = |address: &&crate::partition::ServerAddress| address.is_local();
    let mut dirs: Vec<_> = settings.servers.iter().filter(local).map(|address| address.dir.clone()).collect();
    if settings.servers[0].is_local() {
        dirs.extend(settings.names_base().map(Path::to_owned));
    }
    destroy_all(&dirs, entry.id).map_err(Error::setup)?;
    // On other machines a server removes its own data; one that was already dead could not.
    let removed = |server: &&ServerEntry| !down.already_dead.contains(&server.index);
    let removed: Vec<ServerIndex> = entry.servers.iter().filter(removed).map(|server| server.index).collect();
    for (at, address) in settings.servers.iter().enumerate().filter(|(_, address)| !address.is_local()) {
        let index = ServerIndex(u16::try_from(at).unwrap_or(u16::MAX));
        if !removed.contains(&index) {
            down.left.push(address.to_string());
        }
    }
    registry.forget(entry).map_err(Error::setup)
}

/// The addresses of a partition's servers as this process may use them: `PARIO_TRANSPORT` and `PARIO_NODE` decide with the settings.
pub(crate) fn by_address(entry: &RegistryEntry) -> Result<ByAddress> {
    let forced = environment::choice(Key::Transport.info().variable)?;
    let transport = match forced {
        Some(TransportChoice::Auto) | None => entry.settings.transport,
        Some(transport) => transport,
    };
    let node = crate::group::own_node()?;
    let servers = entry.servers.iter().map(|server| {
        let shares = entry.is_here(server) && server.node == node;
        let mut all = addresses(server, shares && transport != TransportChoice::Tcp);
        if transport == TransportChoice::Unix {
            all.retain(|address| matches!(address, pario_net::stream::Address::Unix(_)));
        }
        all
    });
    Ok(ByAddress { servers: servers.collect() })
}

impl Partition {
    /// Mounts a running partition by its name in the default registry (`PARIO_REGISTRY`).
    pub fn mount(name: &str) -> Result<Partition> {
        Partition::mount_from(&Registry::open_default().map_err(Error::setup)?, name)
    }

    /// Mounts a running partition by its name.
    pub fn mount_from(registry: &Registry, name: &str) -> Result<Partition> {
        kill_point::arm(ArmedProcess::Client).map_err(Error::setup)?;
        let entry = registry.find(name).map_err(Error::setup)?;
        check_running(&entry)?;
        // A value that no variable can have is reported by the mount, not by the first access.
        by_address(&entry)?;
        let mut spec = mount_spec(&entry, Application::own()?);
        let (path, id) = (registry.path().to_owned(), entry.id);
        spec.locate = Some(Arc::new(move || {
            let gone = |error: RegistryError| Fault::new(Code::Unreachable, error.to_string());
            let entry = Registry::open(&path).find(&spec_name(&path, id)?).map_err(gone)?;
            Ok(endpoint(&entry))
        }));
        Ok(Partition::from_spec(spec))
    }

    /// Mounts a partition by its registry entry, for administration: under the program's own name, regardless of
    /// `PARIO_APPLICATION` and `PARIO_WEIGHT`. Connects at the first request.
    #[must_use]
    pub fn mount_entry(entry: &RegistryEntry) -> Partition {
        Partition::from_spec(mount_spec(entry, Application::of_program()))
    }

    /// Mounts the partition of a partition file; the first caller starts its servers.
    pub fn mount_or_start(file: &Path) -> Result<Partition> {
        // Checked before servers are started for a caller that could not mount.
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
                && entry.state == PartitionState::Running
                && entry.liveness(may_live) == Liveness::Live
            {
                return Partition::mount_from(&registry, &settings.name);
            }
            match up(&registry, &settings, START_LIMIT) {
                Ok(_) => return Partition::mount_from(&registry, &settings.name),
                Err(error) => {
                    // Another process was first: mounts the partition that it starts.
                    let theirs = registry.get(&settings.name).map_err(Error::setup)?.is_some_and(|entry| {
                        entry.starter_is_alive()
                            || (entry.state == PartitionState::Running
                                && entry.liveness(may_live) == Liveness::Live)
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

/// The current name of a partition in the registry.
fn spec_name(path: &Path, id: pario_core::PartitionId) -> std::result::Result<String, Fault> {
    let entries =
        Registry::open(path).list().map_err(|error| Fault::new(Code::Unreachable, error.to_string()))?;
    let found = entries.into_iter().find(|entry| entry.id == id && entry.state == PartitionState::Running);
    found.map(|entry| entry.name).ok_or_else(|| Fault::new(Code::Unreachable, "the partition is down"))
}

fn check_running(entry: &RegistryEntry) -> Result<()> {
    let name = &entry.name;
    match entry.state {
        PartitionState::Running => Ok(()),
        PartitionState::Down => Err(Error::Setup(format!("partition '{name}' is down: `pario up {name}`"))),
        PartitionState::Starting => Err(Error::Setup(format!("partition '{name}' is still being started"))),
    }
}

fn endpoint(entry: &RegistryEntry) -> Endpoint {
    let connect: Arc<dyn Connect> = match by_address(entry) {
        Ok(servers) => Arc::new(servers),
        Err(error) => Arc::new(Refused(Fault::new(Code::Invalid, error.to_string()))),
    };
    Endpoint { secret: Secret(entry.secret.0), connect, protect: entry.settings.network.protect.into() }
}

fn mount_spec(entry: &RegistryEntry, application: Application) -> MountSpec {
    MountSpec {
        name: entry.name.clone(),
        partition: entry.id,
        endpoint: endpoint(entry),
        servers: entry.servers.len(),
        locate: None,
        outbox_bytes: usize::try_from(entry.settings.cache.outbox.0).unwrap_or(usize::MAX),
        method: entry.settings.method,
        tied: None,
        application,
    }
}
