//! What was promised about every byte: which writes returned, which of them were put down or synced, and who must be told of what was lost.
//!
//! Never: is looked at by anybody in the world. Always: a write that was synced is never replaced by an older one, whatever dies; one that
//! was put down only by a loss of power; one that just returned may go with its server, and then its writer is told.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{CELLS, FILES};

/// How much was promised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Promise {
    Nothing,
    /// What lies below has it.
    PutDown,
    /// It is on stable storage.
    Synced,
}

#[derive(Clone, Debug)]
struct Version {
    client: usize,
    file: usize,
    promise: Promise,
    /// Its writer was told that it failed, or is dead.
    told: bool,
}

/// How much dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// A process.
    Process,
    /// The power of all.
    Power,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Truth {
    versions: BTreeMap<u64, Version>,
    /// What came to each cell, in order.
    came: Vec<Vec<Vec<u64>>>,
    /// Losses that their writers have not heard of: client, file, write.
    owed: BTreeSet<(usize, usize, u64)>,
}

impl Truth {
    pub(crate) fn new() -> Truth {
        Truth { versions: BTreeMap::new(), came: vec![vec![vec![0]; CELLS]; FILES], owed: BTreeSet::new() }
    }

    /// A write begins.
    pub(crate) fn begins(&mut self, client: usize, file: usize, tag: u64) {
        self.versions.insert(tag, Version { client, file, promise: Promise::Nothing, told: false });
    }

    /// A server has put it into a cell.
    pub(crate) fn comes(&mut self, file: usize, cell: usize, tag: u64) {
        self.came[file][cell].push(tag);
    }

    /// What came last.
    pub(crate) fn last(&self, file: usize, cell: usize) -> u64 {
        self.came[file][cell].last().copied().unwrap_or(0)
    }

    /// Its writer hears that it failed, or is dead.
    pub(crate) fn failed(&mut self, tag: u64) {
        if let Some(version) = self.versions.get_mut(&tag) {
            version.told = true;
            self.owed.remove(&(version.client, version.file, tag));
        }
    }

    /// A client is dead: nobody is there to be told.
    pub(crate) fn dies(&mut self, client: usize) {
        for version in self.versions.values_mut().filter(|version| version.client == client) {
            version.told = true;
        }
        self.owed.retain(|(of, _, _)| *of != client);
    }

    /// A write will never come to a cell.
    pub(crate) fn dropped(&mut self, tag: u64, why: &str) -> Result<(), String> {
        let Some(version) = self.versions.get(&tag) else { return Ok(()) };
        if version.promise != Promise::Nothing {
            return Err(format!("write {tag} was {:?} and is lost: {why}", version.promise));
        }
        if !version.told {
            self.owed.insert((version.client, version.file, tag));
        }
        Ok(())
    }

    /// A cell holds an older write than it did. Returns those that are lost.
    pub(crate) fn reverts(
        &mut self,
        (file, cell): (usize, usize),
        found: u64,
        extent: Extent,
    ) -> Result<Vec<u64>, String> {
        let came = &self.came[file][cell];
        let Some(at) = came.iter().rposition(|tag| *tag == found) else {
            return Err(format!("file {file}, cell {cell} holds {found}, which never came there"));
        };
        let lost: Vec<u64> = came[at + 1..].to_vec();
        self.came[file][cell].truncate(at + 1);
        for tag in &lost {
            let Some(version) = self.versions.get(tag) else { continue };
            let kept = match extent {
                Extent::Process => Promise::PutDown,
                Extent::Power => Promise::Synced,
            };
            if kept <= version.promise {
                return Err(format!(
                    "write {tag} to cell {cell} of file {file} was {:?} and is lost",
                    version.promise
                ));
            }
            if !version.told {
                self.owed.insert((version.client, version.file, *tag));
            }
        }
        Ok(lost)
    }

    /// What a cell holds gets another name, under which it counts as written now.
    pub(crate) fn rename(&mut self, (file, cell): (usize, usize), from: u64, to: u64) {
        if let Some(tag) = self.came[file][cell].last_mut() {
            *tag = to;
        }
        if let Some(version) = self.versions.get(&from).cloned() {
            self.versions.insert(to, Version { told: true, ..version });
        }
    }

    /// A client hears of an error of a file that was kept for it.
    pub(crate) fn told(&mut self, client: usize, file: usize) {
        self.owed.retain(|(of, what, _)| (*of, *what) != (client, file));
    }

    /// A sync or a flush of a client succeeded; `found` is what lies there now.
    pub(crate) fn promised(
        &mut self,
        (client, file): (usize, usize),
        promise: Promise,
        found: &[u64; CELLS],
    ) -> Result<(), String> {
        if let Some((_, _, tag)) = self.owed.iter().find(|(of, what, _)| (*of, *what) == (client, file)) {
            return Err(format!(
                "client {client} hears of {promise:?}, but its write {tag} of file {file} is lost"
            ));
        }
        for (tag, version) in &mut self.versions {
            if (version.client, version.file, version.told) != (client, file, false) {
                continue;
            }
            version.promise = version.promise.max(promise);
            for (cell, found) in found.iter().enumerate() {
                let came = &self.came[file][cell];
                let Some(mine) = came.iter().rposition(|other| other == tag) else { continue };
                if came.iter().rposition(|other| other == found).is_none_or(|at| at < mine) {
                    return Err(format!(
                        "client {client} hears of {promise:?}, but cell {cell} of file {file} has {found} below, not {tag}"
                    ));
                }
            }
        }
        Ok(())
    }
}
