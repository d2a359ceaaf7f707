//! Promises about every byte of the plain file, and the history of all accesses.
//!
//! Never: read by a simulated process. Always: a synced write is never replaced by an older one; a write that was only acknowledged may
//! be lost with its server, or with a later write that was to replace it and failed.

use std::collections::{BTreeMap, BTreeSet};

use super::server::SimPlainFile;
use super::simulation::{BLOCK_CELLS, BLOCKS, CELLS, PlacementOp};
use crate::history::{Did, RecordedAccess, sequential, visible};

/// Up to this number of unfinished writes, one order of all accesses to a block is searched: each may take effect at any time.
const UNENDED_MAX: usize = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct PlacementOracle {
    /// Writes applied to each cell, in order.
    applied: Vec<Vec<u64>>,
    /// How far of that is promised.
    promised: Vec<usize>,
    /// Accesses of each client, and unfinished ones.
    histories: Vec<Vec<RecordedAccess>>,
    unended: Vec<RecordedAccess>,
    /// When a write ended.
    ended: BTreeMap<u64, u64>,
    /// Lost writes.
    weak: BTreeSet<u64>,
    /// Writes that failed.
    failed: BTreeSet<u64>,
    /// Blocks of which bytes were lost.
    torn: [bool; BLOCKS],
    /// Blocks removed from a cache for a write: the write, and the receiving server.
    in_handover: BTreeMap<u64, (u64, usize)>,
    tags: u64,
}

impl PlacementOracle {
    pub(super) fn new(clients: usize) -> PlacementOracle {
        PlacementOracle {
            applied: vec![vec![0]; CELLS],
            promised: vec![0; CELLS],
            histories: vec![Vec::new(); clients],
            unended: Vec::new(),
            ended: BTreeMap::new(),
            weak: BTreeSet::new(),
            failed: BTreeSet::new(),
            torn: [false; BLOCKS],
            in_handover: BTreeMap::new(),
            tags: 0,
        }
    }

    pub(super) fn tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }

    /// A write was applied to a cell.
    pub(super) fn apply(&mut self, cell: usize, tag: u64) {
        self.applied[cell].push(tag);
        self.in_handover.remove(&((cell / BLOCK_CELLS) as u64));
    }

    pub(super) fn last(&self, cell: usize) -> u64 {
        self.applied[cell].last().copied().unwrap_or(0)
    }

    /// An access returned.
    pub(super) fn returned(&mut self, client: usize, tag: u64, parts: Vec<RecordedAccess>) {
        if let Some(part) = parts.first().filter(|part| matches!(part.did, Did::Wrote(_))) {
            self.ended.insert(tag, part.ended);
        }
        let ended = |mut part: RecordedAccess| {
            if self.weak.contains(&tag) {
                part.ended = u64::MAX;
            }
            part
        };
        self.histories[client].extend(parts.into_iter().map(ended));
    }

    /// Whether an atomic access was atomic: it found no part of another write, and writes that share cells with it were applied in one
    /// order.
    pub(super) fn is_atomic(&self, op: &PlacementOp, found: &[u64; CELLS]) -> Result<(), String> {
        let at = |cell: usize, tag: u64| self.applied[cell].iter().position(|came| *came == tag);
        let counts = |tag: u64| !self.failed.contains(&tag) && !self.weak.contains(&tag);
        let pairs = op.cells.clone().flat_map(|one| op.cells.clone().map(move |two| (one, two)));
        for (one, two) in pairs {
            if op.writes {
                let (Some(mine), Some(there)) = (at(one, op.tag), at(two, op.tag)) else { continue };
                let later = self.applied[one][mine + 1..].iter().filter(|tag| counts(**tag));
                if let Some(tag) = later.copied().find(|tag| at(two, *tag).is_some_and(|at| at < there)) {
                    return Err(format!(
                        "writes {} and {tag} were applied to cells {one} and {two} in two orders",
                        op.tag
                    ));
                }
                continue;
            }
            let (tag, other) = (found[one], found[two]);
            let (Some(due), Some(has)) = (at(two, tag), at(two, other)) else { continue };
            if counts(tag) && has < due && tag != 0 {
                return Err(format!(
                    "{op:?} found write {tag} in cell {one} and not in cell {two}: {found:?}"
                ));
            }
        }
        Ok(())
    }

    /// A write is known to fail: the writes it was to replace may be lost with it.
    pub(super) fn fails(&mut self, tag: u64) {
        self.failed.insert(tag);
    }

    /// A write failed, or its process died: it may take effect or not.
    pub(super) fn never_ends(&mut self, tag: u64, parts: Vec<RecordedAccess>) {
        self.failed.insert(tag);
        self.unended.extend(parts.into_iter().map(|part| RecordedAccess { ended: u64::MAX, ..part }));
    }

    /// A block has left a cache for a write at another server, without its bytes.
    pub(super) fn leaves(&mut self, block: u64, tag: u64, to: usize) {
        self.in_handover.insert(block, (tag, to));
    }

    /// A server does not wait for a block any more, of which there may be no bytes: whether they are lost.
    pub(super) fn missed(&mut self, block: u64, to: usize) -> Result<bool, String> {
        match self.in_handover.get(&block) {
            Some((tag, at)) if *at == to && self.failed.contains(tag) => {
                self.in_handover.remove(&block);
                Ok(true)
            }
            Some((tag, at)) if *at == to => {
                Err(format!("block {block} was handed over for write {tag}, which continues without it"))
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Blocks in flight to a server that died.
    pub(super) fn lost_in_flight(&mut self, to: usize) -> Vec<u64> {
        let lost: Vec<u64> =
            self.in_handover.iter().filter(|(_, (_, at))| *at == to).map(|(block, _)| *block).collect();
        self.in_handover.retain(|block, _| !lost.contains(block));
        lost
    }

    /// A block reverts to the plain file's bytes. Whether a write is lost.
    pub(super) fn reverts(&mut self, block: u64, plain: &mut SimPlainFile, now: u64) -> Result<bool, String> {
        let mut any = false;
        for cell in cells_of(block) {
            let found = plain.below[cell];
            let Some(at) = self.applied[cell].iter().rposition(|tag| *tag == found) else {
                return Err(format!("cell {cell} holds {found}, which was never applied there"));
            };
            if at < self.promised[cell] {
                let tag = self.applied[cell][self.promised[cell]];
                return Err(format!("write {tag} to cell {cell} was synced and is lost"));
            }
            if at + 1 == self.applied[cell].len() {
                continue;
            }
            any = true;
            self.weaken(cell, at);
            // From now on it counts as written once more.
            let tag = self.tag();
            self.applied[cell].push(tag);
            plain.renames(cell, tag);
            let did = Did::Wrote(tag);
            self.unended.push(RecordedAccess { began: now, ended: u64::MAX, cells: vec![cell], did });
        }
        self.torn[usize::try_from(block).unwrap_or(0)] |= any;
        Ok(any)
    }

    fn weaken(&mut self, cell: usize, at: usize) {
        let lost: BTreeSet<u64> = self.applied[cell].drain(at + 1..).collect();
        for access in self.histories.iter_mut().flatten() {
            if matches!(access.did, Did::Wrote(tag) if lost.contains(&tag)) {
                access.ended = u64::MAX;
            }
        }
        self.weak.extend(lost);
    }

    /// A sync that began then has ended: acknowledged writes are on stable storage.
    pub(super) fn synced(&mut self, began: u64, plain: &SimPlainFile) -> Result<(), String> {
        for cell in 0..CELLS {
            let before = |tag: &u64| self.ended.get(tag).is_some_and(|ended| *ended < began);
            let Some(due) =
                self.applied[cell].iter().rposition(|tag| before(tag) && !self.weak.contains(tag))
            else {
                continue;
            };
            let stable = plain.stable[cell];
            let has = self.applied[cell].iter().rposition(|tag| *tag == stable);
            if has.is_none_or(|has| has < due) {
                let tag = self.applied[cell][due];
                return Err(format!(
                    "a sync is over, and cell {cell} is {stable} on storage instead of {tag}"
                ));
            }
            self.promised[cell] = self.promised[cell].max(due);
        }
        Ok(())
    }

    /// One history explains all accesses, as a whole and block by block; the plain file ends with it.
    pub(super) fn judge(&self, plain: &SimPlainFile) -> Result<(), String> {
        if let Some((block, (tag, to))) = self.in_handover.first_key_value() {
            return Err(format!(
                "block {block} was handed over to server {to} for write {tag}, and no server has it"
            ));
        }
        for cell in 0..CELLS {
            let (found, last) = (plain.below[cell], self.last(cell));
            if found != last {
                return Err(format!("cell {cell} ends as {found} instead of {last}"));
            }
        }
        let mut all = self.histories.clone();
        all.extend(self.unended.iter().map(|access| vec![access.clone()]));
        visible(&all)?;
        for block in (0..BLOCKS).filter(|block| !self.torn[*block]) {
            let of_block =
                |access: &&RecordedAccess| cells_of(block as u64).any(|cell| access.cells.contains(&cell));
            if self.unended.iter().filter(of_block).count() <= UNENDED_MAX {
                let of_process =
                    |process: &Vec<RecordedAccess>| process.iter().filter(of_block).cloned().collect();
                let part: Vec<Vec<RecordedAccess>> = all.iter().map(of_process).collect();
                sequential(&part, CELLS).map_err(|what| format!("block {block}: {what}"))?;
            }
        }
        Ok(())
    }
}

/// The cells of a block.
pub(super) fn cells_of(block: u64) -> std::ops::Range<usize> {
    let first = usize::try_from(block).unwrap_or(0) * BLOCK_CELLS;
    first..first + BLOCK_CELLS
}
