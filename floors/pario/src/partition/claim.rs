//! Who brings a partition up, takes it down, or removes it: one at a time, decided under the registry's lock.
//!
//! Always: of several processes that claim a name at once one wins; a claim whose process died is free again; a change
//! to an entry is made only if it is still the same life (epoch) of the partition.

use pario_core::PartitionId;

use super::address::own_host;
use super::entry::{Entry, Liveness, Process, Secret, ServerEntry, State};
use super::identity::StartMode;
use super::registry::{Registry, RegistryError};
use super::settings::Settings;

/// Where the identity of a partition that the registry does not know comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Birth {
    /// Nowhere: it is made now.
    New,
    /// Its storage directories have it (see [`super::identity::find_existing`]): all of them must be there.
    Found(PartitionId),
}

/// A partition that this process may now start.
#[derive(Clone, PartialEq, Debug)]
pub struct Claimed {
    /// Its entry, in state starting, with a fresh secret and the next epoch.
    pub entry: Entry,
    /// What the registry had before: servers that still live ([`Liveness::Partly`]) must be taken down first, and know
    /// this entry's secret.
    pub previous: Option<Entry>,
}

impl Claimed {
    /// Whether servers make missing directories, or must find them.
    #[must_use]
    pub fn mode(&self) -> StartMode {
        if self.entry.complete { StartMode::Existing } else { StartMode::Fresh }
    }
}

impl Registry {
    /// Takes the right to start a partition: a new one, one that is down, or one whose servers (or whose starter) died.
    /// `birth` is used if the registry has no entry. `probe` tells whether a server on another machine answers.
    ///
    /// # Errors
    /// [`RegistryError::AlreadyRunning`], [`RegistryError::BeingStarted`], or a structural setting that changed.
    pub fn claim(
        &self,
        settings: &Settings,
        birth: Birth,
        probe: impl Fn(&ServerEntry) -> bool,
    ) -> Result<Claimed, RegistryError> {
        loop {
            // Probing may take seconds, so it is done before the lock and holds for the entry it was done with.
            let seen = self.get(&settings.name)?;
            refuse_if_busy(seen.as_ref(), &probe)?;
            let claimed = self.update(|entries| -> Result<Option<Claimed>, RegistryError> {
                let at = entries.iter().position(|entry| entry.name == settings.name);
                let previous = at.map(|at| entries[at].clone());
                if previous != seen {
                    return Ok(None);
                }
                let entry = next_life(previous.as_ref(), settings, birth)?;
                match at {
                    Some(at) => entries[at] = entry.clone(),
                    None => entries.push(entry.clone()),
                }
                Ok(Some(Claimed { entry, previous }))
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
    pub fn finish(&self, claimed: &Claimed, servers: Vec<ServerEntry>) -> Result<Entry, RegistryError> {
        self.change(&claimed.entry, |entry| {
            entry.state = State::Running;
            entry.complete = true;
            entry.starter = None;
            entry.servers = servers;
        })
    }

    /// The start failed: what the registry did not know before, or was never up, is forgotten; another one is down.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] as in [`Registry::finish`].
    pub fn abandon(&self, claimed: &Claimed) -> Result<(), RegistryError> {
        if claimed.previous.is_none() || !claimed.entry.complete {
            return self.forget(&claimed.entry);
        }
        self.mark_down(&claimed.entry).map(drop)
    }

    /// The partition's servers are gone, its data is there.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] if the entry is of another life by now.
    pub fn mark_down(&self, entry: &Entry) -> Result<Entry, RegistryError> {
        self.change(entry, |entry| {
            entry.state = State::Down;
            entry.starter = None;
            entry.servers.clear();
        })
    }

    /// Removes the entry of a partition that was destroyed.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] if the entry is of another life by now.
    pub fn forget(&self, entry: &Entry) -> Result<(), RegistryError> {
        self.update(|entries| {
            let at = find_same_life(entries, entry)?;
            entries.remove(at);
            Ok(())
        })
    }

    fn change(&self, entry: &Entry, change: impl FnOnce(&mut Entry)) -> Result<Entry, RegistryError> {
        self.update(|entries| {
            let at = find_same_life(entries, entry)?;
            change(&mut entries[at]);
            Ok(entries[at].clone())
        })
    }
}

fn find_same_life(entries: &[Entry], entry: &Entry) -> Result<usize, RegistryError> {
    let same = |other: &Entry| (&other.name, other.id, other.epoch) == (&entry.name, entry.id, entry.epoch);
    entries.iter().position(same).ok_or_else(|| RegistryError::ClaimLost { name: entry.name.clone() })
}

fn refuse_if_busy(seen: Option<&Entry>, probe: impl Fn(&ServerEntry) -> bool) -> Result<(), RegistryError> {
    let Some(entry) = seen else { return Ok(()) };
    match entry.state {
        State::Starting if entry.starter_is_alive() => Err(RegistryError::BeingStarted {
            name: entry.name.clone(),
            pid: entry.starter.map_or(0, |starter| starter.pid),
            host: entry.home.clone(),
        }),
        State::Running if entry.liveness(probe) == Liveness::Live => {
            Err(RegistryError::AlreadyRunning { name: entry.name.clone() })
        }
        State::Starting | State::Running | State::Down => Ok(()),
    }
}

fn next_life(previous: Option<&Entry>, settings: &Settings, birth: Birth) -> Result<Entry, RegistryError> {
    if let Some(previous) = previous.filter(|previous| previous.complete) {
        settings.check_unchanged(&previous.settings, |_| None).map_err(Box::new)?;
    }
    let (born_id, born_complete) = match birth {
        Birth::New => (random_id(), false),
        Birth::Found(id) => (id, true),
    };
    Ok(Entry {
        name: settings.name.clone(),
        // What a start that died half-way has made carries the id of its entry.
        id: previous.map_or(born_id, |previous| previous.id),
        epoch: previous.map_or(1, |previous| previous.epoch + 1),
        state: State::Starting,
        complete: previous.map_or(born_complete, |previous| previous.complete),
        created_unix_s: previous.map_or_else(unix_s, |previous| previous.created_unix_s),
        home: own_host(),
        secret: Secret::random(),
        starter: Some(Process::own()),
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
