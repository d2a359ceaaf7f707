//! Restarts the dead servers of a partition while the others continue: `pario up` on a partition that runs in part.
//!
//! Never: touches a living server, its connections, or the partition's secret. Always: a server counts as dead only if its
//! process has ended, or its host refuses connections; a memory store is not replaced, since zeros would be read as its data.

use std::time::Duration;

use pario_core::{Clock, Code, Fault, ServerIndex};
use pario_net::deadlines::Deadlines;
use pario_net::message::Request;
use pario_sys::clock::MonotonicClock;

use crate::error::{Error, Result};
use crate::orders::{is_refused, order};
use crate::partition::address::own_host;
use crate::partition::{
    Key, LaunchPlan, Liveness, Registry, RegistryEntry, ServerEntry, SettingOrigin, Settings, StartMode,
    StoreKind, binary, launch,
};
use crate::start::Up;

/// Time limit for a silent process to exit, in case it was just killed.
const DYING_LIMIT: Duration = Duration::from_secs(2);

/// State of a server that should run.
enum ServerCheck {
    Alive,
    Dead,
    /// Its process or host is alive, and it does not answer.
    Silent(Fault),
}

/// Living servers of a running partition. A killed process stays visible for a short time: each server is queried.
/// # Errors
/// A living server that does not answer: it can neither be used nor replaced.
pub(crate) fn check_servers(entry: &RegistryEntry) -> Result<Liveness> {
    let looks: Vec<(ServerIndex, ServerCheck)> = std::thread::scope(|scope| {
        let asked: Vec<_> = entry
            .servers
            .iter()
            .map(|server| (server.index, scope.spawn(|| check_server(entry, server))))
            .collect();
        asked.into_iter().map(|(index, look)| (index, look.join().unwrap_or(ServerCheck::Alive))).collect()
    });
    let mut dead = Vec::new();
    for (index, look) in looks {
        match look {
            ServerCheck::Alive => {}
            ServerCheck::Dead => dead.push(index),
            ServerCheck::Silent(fault) => return Err(Error::setup(fault)),
        }
    }
    Ok(match dead.len() {
        0 => Liveness::Live,
        count if count == entry.servers.len() => Liveness::Dead,
        _ => Liveness::Partly { dead },
    })
}

fn check_server(entry: &RegistryEntry, server: &ServerEntry) -> ServerCheck {
    let here = entry.is_here(server);
    if here && !server.process().is_alive() {
        return ServerCheck::Dead;
    }
    // A manager answers a ping without its thread of names; it reports with that thread.
    let request = if server.index == ServerIndex::MANAGER { Request::Status {} } else { Request::Ping {} };
    let Err(fault) = order(entry, server, &request, Deadlines::ORDER) else {
        return ServerCheck::Alive;
    };
    let is_dead = if here { exits_soon(server) } else { is_refused(server) };
    if is_dead {
        ServerCheck::Dead
    } else if fault.code == Code::Unreachable {
        ServerCheck::Silent(fault)
    } else {
        // It answers with a refusal: another user's, or of another release.
        ServerCheck::Alive
    }
}

/// Whether a silent process exits within `DYING_LIMIT`; a stopped one does not.
fn exits_soon(server: &ServerEntry) -> bool {
    let began = MonotonicClock.now();
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    while server.process().is_alive() {
        if DYING_LIMIT < MonotonicClock.now().since(began) {
            return false;
        }
        launch::reap();
        // An empty `poll` sleeps.
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    true
}

/// The error for a partition in memory that lost servers.
pub(crate) fn refuse_lost_memory(entry: &RegistryEntry, dead: &[ServerIndex]) -> Result<()> {
    if entry.settings.store != StoreKind::Memory {
        return Ok(());
    }
    let name = &entry.name;
    let whose = match dead {
        [one] => format!("server {one} is gone, and what it held"),
        _ => format!("servers {} are gone, and what they held", list(dead)),
    };
    let rest =
        if dead.len() < entry.servers.len() { "copy out what is left if it is worth it, then " } else { "" };
    Err(Error::Setup(format!(
        "partition '{name}' is in memory: {whose} is lost: {rest}`pario down {name}`, and `pario up` with the options or the \
         file that it was made with"
    )))
}

/// `1, 2, 3`.
fn list(servers: &[ServerIndex]) -> String {
    servers.iter().map(ServerIndex::to_string).collect::<Vec<_>>().join(", ")
}

/// Restarts the dead servers of a partition that runs on the others.
pub(crate) fn restart(
    registry: &Registry,
    seen: &RegistryEntry,
    dead: Vec<ServerIndex>,
    (settings, accept_loss): (&Settings, bool),
    limit: Duration,
) -> Result<Up> {
    let began = MonotonicClock.now();
    refuse_lost_memory(seen, &dead)?;
    settings.check_unchanged(&seen.settings, |_| None).map_err(Error::setup)?;
    warn_unused(settings, &seen.settings);
    check_home(seen, &dead)?;
    let entry = registry.claim_repair(seen).map_err(Error::setup)?;
    match start_dead(registry, &entry, (&dead, accept_loss), limit) {
        Ok(Restarted { entry, notes, not_notified: untold }) => {
            let took = MonotonicClock.now().since(began);
            Ok(Up { entry, took, fresh: false, restarted: dead, notes, not_notified: untold })
        }
        Err(error) => {
            if let Err(second) = registry.finish_repair(&entry, entry.servers.clone()) {
                tracing::warn!(%second, "the registry keeps an entry that says it is being repaired");
            }
            Err(error)
        }
    }
}

/// Result of a repair.
struct Restarted {
    entry: RegistryEntry,
    notes: Vec<String>,
    /// See [`Up::not_notified`].
    not_notified: Vec<String>,
}

fn start_dead(
    registry: &Registry,
    entry: &RegistryEntry,
    (dead, accept_loss): (&[ServerIndex], bool),
    limit: Duration,
) -> Result<Restarted> {
    let living: Vec<ServerEntry> =
        entry.servers.iter().filter(|server| !dead.contains(&server.index)).cloned().collect();
    let plan = LaunchPlan {
        entry: entry.clone(),
        mode: StartMode::Existing,
        binary: binary::find_binary().map_err(Error::setup)?,
        nodes: labels(entry),
        living: living.clone(),
        registry: registry.path().to_owned(),
        anew: false,
        accept_loss,
    };
    let launched = launch::start_all(&plan, limit).map_err(Error::setup)?;
    let mut untold = Vec::new();
    for server in launched.servers().iter().filter(|server| dead.contains(&server.index)) {
        // Also if the address is unchanged: peers that were refused there retry immediately.
        untold.extend(living.iter().filter_map(|peer| send_new_address(entry, peer, server).err()));
    }
    let notes = launched.notes();
    let entry = registry.finish_repair(entry, launched.servers().to_vec()).map_err(Error::setup)?;
    let _ = launched.commit();
    Ok(Restarted { entry, notes, not_notified: untold })
}

/// Sends a living server the new address of a restarted one; clients find it in the registry. The error is a line with a cure.
fn send_new_address(
    entry: &RegistryEntry,
    peer: &ServerEntry,
    moved: &ServerEntry,
) -> std::result::Result<(), String> {
    let Some(tcp) = moved.tcp else { return Ok(()) };
    let request = Request::AddressChanged { server: moved.index, tcp: tcp.to_string() };
    order(entry, peer, &request, Deadlines::ORDER).map(drop).map_err(|fault| {
        let host = peer.host.as_deref().unwrap_or(&entry.home);
        format!(
            "server {} could not be told the new address of server {} ({fault}): end process {} on {host}, then `pario up {}` \
             starts it with that address",
            peer.index, moved.index, peer.pid, entry.name
        )
    })
}

/// Node labels of the servers; each keeps its own.
fn labels(entry: &RegistryEntry) -> Vec<String> {
    if entry.servers.iter().all(|server| server.node.is_none()) {
        return Vec::new();
    }
    entry.servers.iter().map(|server| server.node.clone().unwrap_or_default()).collect()
}

/// Servers without a host are on the machine that brought the partition up, and can only be restarted there.
fn check_home(entry: &RegistryEntry, dead: &[ServerIndex]) -> Result<()> {
    if entry.home == own_host() {
        return Ok(());
    }
    let homeless = |server: &&ServerEntry| dead.contains(&server.index) && server.host.is_none();
    match entry.servers.iter().find(homeless) {
        Some(server) => Err(Error::Setup(format!(
            "server {} of partition '{}' is on {}, where it was brought up: run `pario up {}` there",
            server.index, entry.name, entry.home, entry.name
        ))),
        None => Ok(()),
    }
}

/// Warns of given settings that differ from those of the running partition.
fn warn_unused(given: &Settings, used: &Settings) {
    let chosen = |key: &Key| matches!(given.origin(*key), SettingOrigin::File(_) | SettingOrigin::Option(_));
    for key in Key::ALL.iter().filter(|key| chosen(key) && given.value(**key) != used.value(**key)) {
        tracing::warn!(
            "{key} = {} is not used: the partition runs with {}; take it down and bring it up for the change",
            given.value(*key),
            used.value(*key)
        );
    }
}
