//! Promises about every byte: returned, flushed and synced writes, and losses that must be reported to their writers.
//!
//! Never: read by a simulated process. Always: a synced write is never replaced by an older one, under any fault; a flushed one only by a
//! power loss; one that only returned may be lost with its server, and then its writer is notified.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::{CELLS, FILES};

/// Promise made for a write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum WritePromise {
    Nothing,
    /// The store has it.
    Flushed,
    /// It is on stable storage.
    Synced,
}

#[derive(Clone, Debug)]
struct WriteVersion {
    client: usize,
    file: usize,
    promise: WritePromise,
    /// Its writer was notified of the failure, or is dead.
    reported: bool,
}

/// Extent of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultExtent {
    /// A process.
    Process,
    /// All machines: a power loss.
    Power,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ByteOracle {
    versions: BTreeMap<u64, WriteVersion>,
    /// Writes applied to each cell, in order.
    applied: Vec<Vec<Vec<u64>>>,
    /// Unreported losses: client, file, write.
    unreported: BTreeSet<(usize, usize, u64)>,
}

impl ByteOracle {
    pub(crate) fn new() -> ByteOracle {
        ByteOracle {
            versions: BTreeMap::new(),
            applied: vec![vec![vec![0]; CELLS]; FILES],
            unreported: BTreeSet::new(),
        }
    }

    /// A write begins.
    pub(crate) fn begins(&mut self, client: usize, file: usize, tag: u64) {
        self.versions
            .insert(tag, WriteVersion { client, file, promise: WritePromise::Nothing, reported: false });
    }

    /// A server has put it into a cell.
    pub(crate) fn apply(&mut self, file: usize, cell: usize, tag: u64) {
        self.applied[file][cell].push(tag);
    }

    /// The last write applied.
    pub(crate) fn last(&self, file: usize, cell: usize) -> u64 {
        self.applied[file][cell].last().copied().unwrap_or(0)
    }

    /// Its writer is notified of the failure, or is dead.
    pub(crate) fn failed(&mut self, tag: u64) {
        if let Some(version) = self.versions.get_mut(&tag) {
            version.reported = true;
            self.unreported.remove(&(version.client, version.file, tag));
        }
    }

    /// A client is dead: its losses need no report.
    pub(crate) fn dies(&mut self, client: usize) {
        for version in self.versions.values_mut().filter(|version| version.client == client) {
            version.reported = true;
        }
        self.unreported.retain(|(of, _, _)| *of != client);
    }

    /// A write will never be applied to a cell.
    pub(crate) fn dropped(&mut self, tag: u64, why: &str) -> Result<(), String> {
        let Some(version) = self.versions.get(&tag) else { return Ok(()) };
        if version.promise != WritePromise::Nothing {
            return Err(format!("write {tag} was {:?} and is lost: {why}", version.promise));
        }
        if !version.reported {
            self.unreported.insert((version.client, version.file, tag));
        }
        Ok(())
    }

    /// A cell holds an older write than before. Returns the lost writes.
    pub(crate) fn reverts(
        &mut self,
        (file, cell): (usize, usize),
        found: u64,
        extent: FaultExtent,
    ) -> Result<Vec<u64>, String> {
        let came = &self.applied[file][cell];
        let Some(at) = came.iter().rposition(|tag| *tag == found) else {
            return Err(format!("file {file}, cell {cell} holds {found}, which was never applied there"));
        };
        let lost: Vec<u64> = came[at + 1..].to_vec();
        self.applied[file][cell].truncate(at + 1);
        for tag in &lost {
            let Some(version) = self.versions.get(tag) else { continue };
            let kept = match extent {
                FaultExtent::Process => WritePromise::Flushed,
                FaultExtent::Power => WritePromise::Synced,
            };
            if kept <= version.promise {
                return Err(format!(
                    "write {tag} to cell {cell} of file {file} was {:?} and is lost",
                    version.promise
                ));
            }
            if !version.reported {
                self.unreported.insert((version.client, version.file, *tag));
            }
        }
        Ok(lost)
    }

    /// What a cell holds gets another name, under which it counts as written now.
    pub(crate) fn rename(&mut self, (file, cell): (usize, usize), from: u64, to: u64) {
        if let Some(tag) = self.applied[file][cell].last_mut() {
            *tag = to;
        }
        if let Some(version) = self.versions.get(&from).cloned() {
            self.versions.insert(to, WriteVersion { reported: true, ..version });
        }
    }

    /// A client is notified of an error kept for a file.
    pub(crate) fn report(&mut self, client: usize, file: usize) {
        self.unreported.retain(|(of, what, _)| (*of, *what) != (client, file));
    }

    /// A sync or a flush of a client succeeded; `found` is the current contents.
    pub(crate) fn promised(
        &mut self,
        (client, file): (usize, usize),
        promise: WritePromise,
        found: &[u64; CELLS],
    ) -> Result<(), String> {
        if let Some((_, _, tag)) = self.unreported.iter().find(|(of, what, _)| (*of, *what) == (client, file))
        {
            return Err(format!(
                "client {client} receives {promise:?}, but its write {tag} of file {file} is lost"
            ));
        }
        for (tag, version) in &mut self.versions {
            if (version.client, version.file, version.reported) != (client, file, false) {
                continue;
            }
            version.promise = version.promise.max(promise);
            for (cell, found) in found.iter().enumerate() {
                let came = &self.applied[file][cell];
                let Some(mine) = came.iter().rposition(|other| other == tag) else { continue };
                if came.iter().rposition(|other| other == found).is_none_or(|at| at < mine) {
                    return Err(format!(
                        "client {client} receives {promise:?}, but cell {cell} of file {file} has {found} in the store, not {tag}"
                    ));
                }
            }
        }
        Ok(())
    }
}
