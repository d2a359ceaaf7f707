//! Ownership of starting, stopping and destroying a partition: one process at a time, decided under the registry's lock.
//!
//! Always: of several concurrent claims one succeeds; a claim ends with its process; an entry is changed only in the same epoch
//! of the partition.

use std::path::PathBuf;

use pario_core::PartitionId;

use super::address::own_host;
use super::entry::{Liveness, PartitionSecret, PartitionState, RegistryEntry, ServerEntry, ServerProcess};
use super::identity::StartMode;
use super::registry::{Registry, RegistryError};
use super::settings::Settings;

/// Origin of the identity of a partition that is not in the registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityOrigin {
    /// Created now.
    New,
    /// Read from its storage directories (see [`super::identity::find_existing`]): all of them must exist.
    Found(PartitionId),
}

/// A partition that this process may start.
#[derive(Clone, PartialEq, Debug)]
pub struct Claimed {
    /// Its entry, in state starting, with a fresh secret and the next epoch.
    pub entry: RegistryEntry,
    /// The registry's previous entry.
    pub previous: Option<RegistryEntry>,
    /// The registry's file.
    pub registry: PathBuf,
}

impl Claimed {
    /// Whether servers make missing directories, or require them.
    #[must_use]
    pub fn mode(&self) -> StartMode {
        if self.entry.complete { StartMode::Existing } else { StartMode::Fresh }
    }
}

impl Registry {
    /// Claims the right to start a partition: a new one, one that is down, or one with no living server (or a dead starter). A
    /// partition with a living server is repaired instead: see `repair.rs`. `birth` is used if the registry has no entry.
    /// `probe` tells whether a server on another machine answers.
    ///
    /// # Errors
    /// [`RegistryError::AlreadyRunning`], [`RegistryError::BeingStarted`], or a structural setting that changed.
    pub fn claim(
        &self,
        settings: &Settings,
        birth: IdentityOrigin,
        probe: impl Fn(&ServerEntry) -> bool,
    ) -> Result<Claimed, RegistryError> {
        loop {
            // Probing may take seconds: it runs before the lock, and its result applies only to the entry that was probed.
            let seen = self.get(&settings.name)?;
            refuse_if_busy(seen.as_ref(), &probe)?;
            let claimed = self.update(|entries| -> Result<Option<Claimed>, RegistryError> {
                let at = entries.iter().position(|entry| entry.name == settings.name);
                let previous = at.map(|at| entries[at].clone());
                if previous != seen {
                    return Ok(None);
                }
                let entry = next_epoch(previous.as_ref(), settings, birth)?;
                match at {
                    Some(at) => entries[at] = entry.clone(),
                    None => entries.push(entry.clone()),
                }
                Ok(Some(Claimed { entry, previous, registry: self.path().to_owned() }))
            })?;
            if let Some(claimed) = claimed {
                return Ok(claimed);
            }
        }
    }

    /// The start succeeded: the partition runs on these servers.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] if the claim is no longer this process's.
    pub fn finish(
        &self,
        claimed: &Claimed,
        servers: Vec<ServerEntry>,
    ) -> Result<RegistryEntry, RegistryError> {
        self.change(&claimed.entry, |entry| {
            entry.state = PartitionState::Running;
            entry.complete = true;
            entry.starter = None;
            entry.servers = servers;
        })
    }

    /// The start failed: a new or never completed entry is removed, another one is restored. Servers of the previous epoch that
    /// seemed dead, and were not, can then still be found.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] as in [`Registry::finish`].
    pub fn abandon(&self, claimed: &Claimed) -> Result<(), RegistryError> {
        if claimed.previous.is_none() || !claimed.entry.complete {
            return self.forget(&claimed.entry);
        }
        self.change(&claimed.entry, |entry| {
            let before =
                claimed.previous.as_ref().filter(|previous| previous.state == PartitionState::Running);
            entry.state = before.map_or(PartitionState::Down, |previous| previous.state);
            entry.starter = None;
            entry.servers = before.map_or_else(Vec::new, |previous| previous.servers.clone());
            if let Some(previous) = before {
                (entry.secret, entry.home) = (previous.secret.clone(), previous.home.clone());
                entry.settings = previous.settings.clone();
            }
        })
        .map(drop)
    }

    /// The partition's servers have ended, its data is kept.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] if the entry has another epoch by now.
    pub fn mark_down(&self, entry: &RegistryEntry) -> Result<RegistryEntry, RegistryError> {
        self.change(entry, |entry| {
            entry.state = PartitionState::Down;
            entry.starter = None;
            entry.servers.clear();
        })
    }

    /// Removes the entry of a partition that was destroyed.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] if the entry has another epoch by now.
    pub fn forget(&self, entry: &RegistryEntry) -> Result<(), RegistryError> {
        self.update(|entries| {
            let at = find_same_epoch(entries, entry)?;
            entries.remove(at);
            Ok(())
        })
    }

    pub(super) fn change(
        &self,
        entry: &RegistryEntry,
        change: impl FnOnce(&mut RegistryEntry),
    ) -> Result<RegistryEntry, RegistryError> {
        self.update(|entries| {
            let at = find_same_epoch(entries, entry)?;
            change(&mut entries[at]);
            Ok(entries[at].clone())
        })
    }
}

pub(super) fn find_same_epoch(
    entries: &[RegistryEntry],
    entry: &RegistryEntry,
) -> Result<usize, RegistryError> {
    let same =
        |other: &RegistryEntry| (&other.name, other.id, other.epoch) == (&entry.name, entry.id, entry.epoch);
    entries.iter().position(same).ok_or_else(|| RegistryError::ClaimLost { name: entry.name.clone() })
}

fn refuse_if_busy(
    seen: Option<&RegistryEntry>,
    probe: impl Fn(&ServerEntry) -> bool,
) -> Result<(), RegistryError> {
    let Some(entry) = seen else { return Ok(()) };
    match entry.state {
        PartitionState::Starting | PartitionState::Running if entry.starter_is_alive() => {
            Err(RegistryError::BeingStarted {
                name: entry.name.clone(),
                pid: entry.starter.map_or(0, |starter| starter.pid),
                host: entry.home.clone(),
            })
        }
        PartitionState::Running if entry.liveness(probe) != Liveness::Dead => {
            Err(RegistryError::AlreadyRunning { name: entry.name.clone() })
        }
        PartitionState::Starting | PartitionState::Running | PartitionState::Down => Ok(()),
    }
}

fn next_epoch(
    previous: Option<&RegistryEntry>,
    settings: &Settings,
    birth: IdentityOrigin,
) -> Result<RegistryEntry, RegistryError> {
    if let Some(previous) = previous.filter(|previous| previous.complete) {
        settings.check_unchanged(&previous.settings, |_| None).map_err(Box::new)?;
    }
    let (born_id, born_complete) = match birth {
        IdentityOrigin::New => (random_id(), false),
        IdentityOrigin::Found(id) => (id, true),
    };
    Ok(RegistryEntry {
        name: settings.name.clone(),
        // Directories of an interrupted start carry the id of its entry.
        id: previous.map_or(born_id, |previous| previous.id),
        epoch: previous.map_or(1, |previous| previous.epoch + 1),
        state: PartitionState::Starting,
        complete: previous.map_or(born_complete, |previous| previous.complete),
        created_unix_s: previous.map_or_else(unix_s, |previous| previous.created_unix_s),
        home: own_host(),
        secret: PartitionSecret::random(),
        starter: Some(ServerProcess::own()),
        servers: Vec::new(),
        settings: settings.clone(),
    })
}

/// Seconds since 1970.
pub(super) fn unix_s() -> u64 {
    pario_sys::clock::wall_ns() / 1_000_000_000
}

/// A fresh identity for a new partition.
///
/// # Panics
/// If the operating system has no random numbers.
#[must_use]
pub fn random_id() -> PartitionId {
    let mut id = [0; 16];
    getrandom::fill(&mut id).expect("the operating system gives random numbers");
    PartitionId(id)
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
