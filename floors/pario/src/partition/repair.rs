//! The registry's side of a repair: dead servers of a running partition are replaced, the others continue.
//!
//! Always: the entry stays in state running, so that programs find the living servers; `starter` names the repairing process,
//! and a dead one is replaced by the next.

use super::claim::find_same_epoch;
use super::entry::{RegistryEntry, ServerEntry, ServerProcess};
use super::registry::{Registry, RegistryError};

impl Registry {
    /// Claims the right to replace servers of the partition `seen`.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] if the entry has changed since.
    pub fn claim_repair(&self, seen: &RegistryEntry) -> Result<RegistryEntry, RegistryError> {
        self.update(|entries| {
            let at = find_same_epoch(entries, seen)?;
            if entries[at] != *seen {
                return Err(RegistryError::ClaimLost { name: seen.name.clone() });
            }
            // A `down` with an older copy of the entry must not mark unknown servers as down.
            entries[at].epoch += 1;
            entries[at].starter = Some(ServerProcess::own());
            Ok(entries[at].clone())
        })
    }

    /// The repair succeeded, or nothing was replaced: the partition runs on these servers.
    ///
    /// # Errors
    /// [`RegistryError::ClaimLost`] if the claim was lost.
    pub fn finish_repair(
        &self,
        entry: &RegistryEntry,
        servers: Vec<ServerEntry>,
    ) -> Result<RegistryEntry, RegistryError> {
        self.change(entry, |entry| {
            entry.starter = None;
            entry.servers = servers;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::entry::PartitionState;
    use crate::partition::entry::tests::sample;

    #[test]
    fn one_repairs_and_the_others_wait() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::open(&dir.path().join("registry"));
        let seen = sample("x", 2);
        registry
            .update(|entries| -> Result<(), RegistryError> {
                entries.push(seen.clone());
                Ok(())
            })
            .unwrap();
        let mine = registry.claim_repair(&seen).unwrap();
        assert_eq!(
            (mine.state, mine.starter, mine.epoch),
            (PartitionState::Running, Some(ServerProcess::own()), 4)
        );
        assert_eq!(mine.secret, seen.secret, "the living servers know it");
        assert!(matches!(registry.claim_repair(&seen), Err(RegistryError::ClaimLost { .. })));
        assert!(matches!(registry.mark_down(&seen), Err(RegistryError::ClaimLost { .. })));
        let servers = seen.servers[..1].to_vec();
        let done = registry.finish_repair(&mine, servers.clone()).unwrap();
        assert_eq!((done.starter, done.servers), (None, servers));
    }
}
