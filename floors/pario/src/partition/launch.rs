//! Starts the servers of a partition: in parallel, all or none.
//!
//! Never: passes the secret on a command line or in an environment; leaves a server, or a directory that it made, after a
//! failed start. Always: servers run on their own only after [`Launched::commit`]; write them into the registry first, so that
//! they can be found if this process dies in between.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use pario_core::{PartitionId, ServerIndex};

use super::address::{ServerAddress, own_host};
use super::choices::TransportChoice;
use super::claim::Claimed;
use super::destroy::destroy_all;
use super::entry::{RegistryEntry, ServerEntry};
use super::identity::{StartMode, count_missing};
use super::protocol::{
    BACKGROUND_ARGUMENT, Listen, ListenTcp, NamesDirectory, RegistryRecord, SERVE_ARGUMENTS, ServeSpec,
    StartOrder, to_line,
};
pub use super::starting::Cause;
use super::starting::{StartStep, Starting, drive, give_up, send_last};

/// Default time limit for the servers of a partition to answer.
pub const START_LIMIT: Duration = Duration::from_secs(20);

/// Specification of a start.
#[derive(Clone, Debug)]
pub struct LaunchPlan {
    /// The claimed partition.
    pub entry: RegistryEntry,
    /// Whether missing directories are made.
    pub mode: StartMode,
    /// The `pario` command, on this machine and on others.
    pub binary: PathBuf,
    /// Node labels of the servers on this machine, assigned in blocks; empty: the label of `PARIO_NODE`, if any.
    pub nodes: Vec<String>,
    /// Running servers, left alone.
    pub living: Vec<ServerEntry>,
    /// The registry that the partition is in.
    pub registry: PathBuf,
    /// Whether the registry did not have the partition, although its directories exist.
    pub anew: bool,
    /// Missing directories of a complete partition are made again, empty.
    pub accept_loss: bool,
}

/// One server that did not start.
#[derive(Debug)]
pub struct ServerFailure {
    /// Which.
    pub index: ServerIndex,
    /// Its address.
    pub address: ServerAddress,
    /// The cause.
    pub cause: Cause,
}

impl fmt::Display for ServerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} ({}): {}", self.index, self.address, self.cause)
    }
}

/// Why a partition did not start; none of its servers runs.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Servers that did not start; the others were ended.
    #[error("partition '{name}': {} of {servers} servers did not start: {}", .failures.len(), list(.failures))]
    Servers {
        /// Of which partition.
        name: String,
        /// Of how many.
        servers: usize,
        /// Which did not, and why.
        failures: Vec<ServerFailure>,
    },
    /// Unix sockets do not reach other machines.
    #[error(
        "partition '{name}': transport = \"unix\" does not reach server {index} on {host}: use \"auto\" or \"tcp\""
    )]
    UnixOnly {
        /// Which partition.
        name: String,
        /// Which server.
        index: ServerIndex,
        /// Where it is.
        host: String,
    },
}

fn list(failures: &[ServerFailure]) -> String {
    failures.iter().map(ServerFailure::to_string).collect::<Vec<_>>().join("; ")
}

impl LaunchError {
    /// The identity that all refusing directories have under the partition's name: the registry lost the partition, and
    /// [`super::claim::Birth::Found`] restores it.
    #[must_use]
    pub fn found(&self) -> Option<PartitionId> {
        let LaunchError::Servers { failures, .. } = self else { return None };
        let found = |failure: &ServerFailure| match &failure.cause {
            Cause::Reported { found, .. } => *found,
            Cause::Spawn { .. } | Cause::Exited { .. } | Cause::Silent { .. } => None,
        };
        let first = found(failures.first()?)?;
        failures.iter().all(|failure| found(failure) == Some(first)).then_some(first)
    }
}

/// Servers that are up and wait for [`Launched::commit`]; on drop they end.
#[derive(Debug)]
pub struct Launched {
    servers: Vec<ServerEntry>,
    starting: Vec<Starting>,
    plan: LaunchPlan,
}

/// Starts all servers in parallel and waits until all are up.
///
/// # Errors
/// [`LaunchError`] with every server that did not come up within `limit`, and why.
pub fn start_all(plan: &LaunchPlan, limit: Duration) -> Result<Launched, LaunchError> {
    reap();
    plan.check()?;
    let mut starting: Vec<Starting> = plan.specs().iter().map(|spec| plan.spawn(spec)).collect();
    drive(&mut starting, StartStep::Ready, limit);
    let starting = plan.fail_if_any(starting)?;
    let mut servers: Vec<ServerEntry> = starting.iter().map(|server| plan.server_entry(server)).collect();
    servers.extend(plan.living.iter().cloned());
    servers.sort_by_key(|server| server.index);
    let starting = plan.send_peers(starting, &servers, limit)?;
    Ok(Launched { servers, starting, plan: plan.clone() })
}

impl Launched {
    /// All servers of the partition, in order, for the registry.
    #[must_use]
    pub fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// Notes of the servers for the user.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.starting.iter().flat_map(|server| server.notes.clone()).collect()
    }

    /// Detaches the servers.
    #[must_use]
    pub fn commit(mut self) -> Vec<ServerEntry> {
        let mut starting = std::mem::take(&mut self.starting);
        for server in &mut starting {
            server.order(&StartOrder::Go);
        }
        send_last(&mut starting, Duration::from_secs(1));
        let children = starting.into_iter().filter_map(Starting::into_child);
        lock_children().extend(children);
        std::mem::take(&mut self.servers)
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let starting = std::mem::take(&mut self.starting);
        if !starting.is_empty() {
            self.plan.take_down(starting);
        }
    }
}

impl LaunchPlan {
    /// The plan for a claimed partition.
    #[must_use]
    pub fn new(claimed: &Claimed, binary: PathBuf) -> LaunchPlan {
        LaunchPlan {
            entry: claimed.entry.clone(),
            mode: claimed.mode(),
            binary,
            nodes: Vec::new(),
            living: Vec::new(),
            registry: claimed.registry.clone(),
            anew: claimed.previous.is_none() && claimed.entry.complete,
            accept_loss: false,
        }
    }

    fn servers(&self) -> &[ServerAddress] {
        &self.entry.settings.servers
    }

    fn check(&self) -> Result<(), LaunchError> {
        if self.entry.settings.transport != TransportChoice::Unix {
            return Ok(());
        }
        let remote = self.servers().iter().enumerate().find(|(_, server)| !server.is_local());
        remote.map_or(Ok(()), |(at, server)| {
            let host = server.host.clone().unwrap_or_default();
            Err(LaunchError::UnixOnly { name: self.entry.name.clone(), index: index(at), host })
        })
    }

    fn specs(&self) -> Vec<ServeSpec> {
        let spread = self.servers().iter().any(|server| !server.is_local());
        let spec = |(at, server): (usize, &ServerAddress)| ServeSpec {
            settings: self.entry.settings.clone(),
            index: index(at),
            id: self.entry.id,
            epoch: self.entry.epoch,
            secret: self.entry.secret.clone(),
            mode: self.mode,
            missing_directories: if server.is_local() { count_missing(&server.dir) } else { 0 },
            dir: server.dir.clone(),
            names: (at == 0).then(|| self.names_directory()),
            listen: self.listen(at, spread),
            node: self.node(at),
            registered: RegistryRecord { host: own_host(), path: self.registry.clone(), anew: self.anew },
            accept_loss: self.accept_loss,
        };
        let lives = |at: usize| self.living.iter().any(|server| server.index.at() == at);
        self.servers().iter().enumerate().filter(|(at, _)| !lives(*at)).map(spec).collect()
    }

    /// Servers on other machines use the label of their environment.
    fn node(&self, at: usize) -> Option<String> {
        let servers = self.servers();
        servers[at].is_local().then(|| self.nodes.get(at * self.nodes.len() / servers.len()).cloned())?
    }

    fn names_directory(&self) -> NamesDirectory {
        let settings = &self.entry.settings;
        let base = settings.names_base().map(Path::to_owned);
        let local = base.as_deref().filter(|_| self.servers()[0].is_local());
        NamesDirectory {
            missing_directories: local.map_or(0, count_missing),
            dir: settings.names_dir(),
            base,
        }
    }

    /// Loopback, unless hosts are named; then a server without a host must also be reachable by its peers.
    fn listen(&self, at: usize, spread: bool) -> Listen {
        let settings = &self.entry.settings;
        let named = settings.servers[at].host.clone().filter(|host| !is_loopback(host));
        let host = named.or_else(|| spread.then(own_host));
        let offset = u16::try_from(at).unwrap_or(u16::MAX);
        let port = if settings.network.port == 0 { 0 } else { settings.network.port.saturating_add(offset) };
        Listen {
            unix: settings.transport != TransportChoice::Tcp,
            tcp: (settings.transport != TransportChoice::Unix).then_some(ListenTcp { host, port }),
        }
    }

    fn spawn(&self, spec: &ServeSpec) -> Starting {
        let address = &self.servers()[spec.index.at()];
        let mut foreground = vec![self.binary.display().to_string()];
        foreground.extend(SERVE_ARGUMENTS.map(str::to_owned));
        let first = to_line(spec);
        match address.host.as_deref().filter(|_| !address.is_local()) {
            // A server must not keep its starter's working directory busy.
            None => Starting::spawn(spec.index, &foreground, Some(Path::new("/")), first),
            Some(host) => {
                let mut background = foreground.clone();
                background.push(BACKGROUND_ARGUMENT.to_owned());
                let words = self.entry.settings.launch.expand(host, &background, &foreground);
                Starting::spawn(spec.index, &words, None, first)
            }
        }
    }

    fn server_entry(&self, server: &Starting) -> ServerEntry {
        let ready = server.ready.clone().expect("every server is ready");
        let address = &self.servers()[server.index.at()];
        ServerEntry {
            index: server.index,
            host: address.host.clone(),
            dir: address.dir.clone(),
            unix: ready.unix,
            tcp: ready.tcp,
            node: ready.node,
            time_namespace: ready.time_namespace,
            pid: ready.pid,
            start_ticks: ready.start_ticks,
        }
    }

    /// Sends the list of all servers to each of them.
    fn send_peers(
        &self,
        mut starting: Vec<Starting>,
        servers: &[ServerEntry],
        limit: Duration,
    ) -> Result<Vec<Starting>, LaunchError> {
        let order = StartOrder::Peers(servers.to_vec());
        for server in &mut starting {
            server.order(&order);
        }
        drive(&mut starting, StartStep::Up, limit);
        self.fail_if_any(starting)
    }

    fn fail_if_any(&self, mut starting: Vec<Starting>) -> Result<Vec<Starting>, LaunchError> {
        let failure = |server: &mut Starting| {
            let address = self.servers()[server.index.at()].clone();
            server.cause.take().map(|cause| ServerFailure { index: server.index, address, cause })
        };
        let failures: Vec<ServerFailure> = starting.iter_mut().filter_map(failure).collect();
        if failures.is_empty() {
            return Ok(starting);
        }
        self.take_down(starting);
        Err(LaunchError::Servers { name: self.entry.name.clone(), servers: self.servers().len(), failures })
    }

    /// Ends the servers, and removes directories that those of this machine made and could not remove themselves.
    fn take_down(&self, starting: Vec<Starting>) {
        give_up(starting);
        if self.mode == StartMode::Existing {
            return;
        }
        let local = self.servers().iter().filter(|server| server.is_local());
        let mut dirs: Vec<PathBuf> = local.map(|server| server.dir.clone()).collect();
        if self.servers()[0].is_local() {
            dirs.extend(self.entry.settings.names_base().map(Path::to_owned));
        }
        for dir in dirs {
            // A directory of another partition is kept: an error here, already reported by the server.
            if let Err(error) = destroy_all(std::slice::from_ref(&dir), self.entry.id) {
                tracing::debug!(%error, "left as it is after a failed start");
            }
        }
    }
}

fn index(at: usize) -> ServerIndex {
    ServerIndex(u16::try_from(at).expect("at most 1024 servers"))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Servers and launch commands started by this process and not yet reaped.
static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn lock_children() -> std::sync::MutexGuard<'static, Vec<Child>> {
    CHILDREN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reaps ended servers that this process has started.
pub fn reap() {
    lock_children().retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
