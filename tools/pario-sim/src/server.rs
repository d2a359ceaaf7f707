//! A data server: its blocks in memory (the real ledger and blocks of `pario_store::cache`), and the store below all servers.
//!
//! A server of a partition on plain files writes through and lends; a caching one (node cache, file cache, direct store) keeps written
//! blocks and stages them, and unstaged blocks are lost with it.
//!
//! Never: keeps a block of another home server. Always: a dirty byte is in the ledger until the store has it.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::InodeId;
use pario_server::store::cache::{BlockKey, Ledger, SharedBlock};

use crate::bugs::{AnyBug, ClientBug};
use crate::simulation::{CELLS, FILES, SERVERS};

/// Cells of a block; blocks are dealt to servers in turn.
pub(crate) const BLOCK_CELLS: usize = 2;
const CELL: usize = 8;
const BLOCK_BYTES: usize = BLOCK_CELLS * CELL;
/// Maximum cached blocks without memory pressure.
const BLOCKS: u64 = 4;
/// Adjacent blocks that are written together.
const RUN_BLOCKS: usize = 16;

/// The server that a cell lies on.
pub(crate) fn home(cell: usize) -> usize {
    (cell / BLOCK_CELLS) % SERVERS
}

/// The store has no space for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreFull;

/// The store below the servers: in the page cache, and on stable storage.
#[derive(Debug)]
pub(crate) struct SimStore {
    pub(crate) store: Vec<[u64; CELLS]>,
    pub(crate) stable: Vec<[u64; CELLS]>,
}

impl SimStore {
    pub(crate) fn new() -> SimStore {
        SimStore { store: vec![[0; CELLS]; FILES], stable: vec![[0; CELLS]; FILES] }
    }
}

/// State of a server; see the module.
#[derive(Debug)]
pub(crate) struct SimServer {
    pub(crate) number: usize,
    pub(crate) alive: bool,
    pub(crate) stopped: bool,
    pub(crate) life: u64,
    pub(crate) caches: bool,
    /// The store rejects writes.
    pub(crate) full: bool,
    /// Space is reserved, so that writes may return before they are drained.
    pub(crate) grants: bool,
    /// Clients with an attached outbox.
    pub(crate) outboxes: BTreeSet<usize>,
    /// Errors kept for a client's file.
    pub(crate) errors: BTreeSet<(usize, usize)>,
    ledger: Ledger,
    limit: u64,
    stuck: BTreeSet<usize>,
    /// Errors of staging, by file.
    kept: BTreeSet<usize>,
    /// Commit times of the newest bytes that it or its predecessors applied since one of them was replaced: outlives its process, but not
    /// the machine. `None`: no server was replaced.
    overwrites: Option<BTreeMap<(usize, usize), u64>>,
    /// The machine was started anew.
    is_first: bool,
    bug: Option<AnyBug>,
}

fn key_of(file: usize, cell: usize) -> BlockKey {
    BlockKey { inode: InodeId(file as u64), index: (cell / BLOCK_CELLS) as u64 }
}

fn span_of(cell: usize) -> std::ops::Range<usize> {
    let start = cell % BLOCK_CELLS * CELL;
    start..start + CELL
}

fn tag_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a cell has eight bytes"))
}

fn held(block: &SharedBlock) -> std::sync::MutexGuard<'_, pario_server::store::cache::Block> {
    block.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl SimServer {
    pub(crate) fn new(number: usize, caches: bool, bug: Option<AnyBug>) -> SimServer {
        SimServer {
            number,
            alive: true,
            stopped: false,
            life: 1,
            caches,
            full: false,
            grants: true,
            outboxes: BTreeSet::new(),
            errors: BTreeSet::new(),
            ledger: Ledger::default(),
            limit: BLOCKS * BLOCK_BYTES as u64,
            stuck: BTreeSet::new(),
            kept: BTreeSet::new(),
            overwrites: None,
            is_first: false,
            bug,
        }
    }

    /// It is able to act now.
    pub(crate) fn runs(&self) -> bool {
        self.alive && !self.stopped
    }

    fn has(&self, bug: ClientBug) -> bool {
        self.bug == Some(AnyBug::Around(bug))
    }

    /// It is killed: its memory is lost.
    pub(crate) fn kill(&mut self) {
        self.alive = false;
        self.stopped = false;
        self.outboxes.clear();
        self.errors.clear();
        self.ledger = Ledger::default();
        self.stuck.clear();
        self.kept.clear();
        if self.has(ClientBug::ForgetAhead) {
            self.overwrites = None;
        }
    }

    /// Power loss: no late client is left.
    pub(crate) fn lose_power(&mut self) {
        (self.overwrites, self.is_first) = (None, true);
    }

    /// Logs an applied write.
    pub(crate) fn remember(&mut self, place: (usize, usize), committed: u64) {
        if let Some(ahead) = &mut self.overwrites {
            let newest = ahead.entry(place).or_default();
            *newest = committed.max(*newest);
        }
    }

    /// Commit time of the newest bytes that it is known to have applied there.
    pub(crate) fn newest(&self, place: (usize, usize)) -> Option<u64> {
        self.overwrites.as_ref()?.get(&place).copied()
    }

    /// It restarts, as another incarnation.
    pub(crate) fn restart(&mut self) {
        self.alive = true;
        self.life += 1;
        if !std::mem::take(&mut self.is_first) {
            self.overwrites.get_or_insert_default();
        }
    }

    /// Memory pressure: sets the maximum number of cached blocks.
    pub(crate) fn press(&mut self, blocks: u64) {
        self.limit = blocks * BLOCK_BYTES as u64;
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.limit < BLOCKS * BLOCK_BYTES as u64
    }

    pub(crate) fn relax(&mut self) {
        (self.full, self.grants) = (false, true);
        self.press(BLOCKS);
    }

    /// Whether it keeps a block, as an index of cells.
    pub(crate) fn keeps(&self, file: usize, cell: usize) -> bool {
        self.ledger.find(key_of(file, cell)).is_some()
    }

    pub(crate) fn write(
        &mut self,
        below: &mut SimStore,
        (file, cell): (usize, usize),
        tag: u64,
    ) -> Result<WriteMethod, StoreFull> {
        if !self.caches {
            return self.apply_cached(below, (file, cell), tag).map(|()| WriteMethod::Through);
        }
        let key = key_of(file, cell);
        if !self.free_space(below) {
            if !self.has(ClientBug::StraightPastCache) {
                self.evict(below, key)?;
            }
            return self.apply_cached(below, (file, cell), tag).map(|()| WriteMethod::Uncached);
        }
        let block = self.ledger.pin(key, BLOCK_BYTES);
        held(&block).overwrite(span_of(cell)).copy_from_slice(&tag.to_le_bytes());
        self.ledger.set_dirty(key, true);
        Ok(WriteMethod::Cached)
    }

    pub(crate) fn read(&mut self, below: &mut SimStore, file: usize, cell: usize) -> Result<u64, StoreFull> {
        if !self.caches {
            return Ok(below.store[file][cell]);
        }
        let key = key_of(file, cell);
        if !self.free_space(below) {
            self.evict(below, key)?;
            return Ok(below.store[file][cell]);
        }
        let block = self.ledger.pin(key, BLOCK_BYTES);
        let mut block = held(&block);
        if !block.knows(&span_of(cell)) {
            let first = cell / BLOCK_CELLS * BLOCK_CELLS;
            let bytes: Vec<u8> = below.store[file][first..first + BLOCK_CELLS]
                .iter()
                .flat_map(|tag| tag.to_le_bytes())
                .collect();
            block.learn(&bytes);
        }
        Ok(tag_of(block.bytes(span_of(cell))))
    }

    fn apply_cached(
        &mut self,
        below: &mut SimStore,
        (file, cell): (usize, usize),
        tag: u64,
    ) -> Result<(), StoreFull> {
        if self.full {
            return Err(StoreFull);
        }
        below.store[file][cell] = tag;
        Ok(())
    }

    /// As `Pool::reserve` does for a request of one block.
    fn free_space(&mut self, below: &mut SimStore) -> bool {
        let Some(rest) = self.limit.checked_sub(BLOCK_BYTES as u64) else { return false };
        loop {
            if self.ledger.shrink_to(rest, |_| ()) {
                return true;
            }
            let Some(key) = self.oldest() else { return false };
            if self.has(ClientBug::EvictDirty) {
                self.ledger.remove(key);
                continue;
            }
            self.stage(below, key);
        }
    }

    fn oldest(&self) -> Option<BlockKey> {
        self.ledger.oldest_dirty(|key| !self.stuck.contains(&file_of(key)))
    }

    /// Whether there are dirty blocks.
    pub(crate) fn has_dirt(&self) -> bool {
        self.oldest().is_some()
    }

    /// One step of staging; whether it went well.
    pub(crate) fn stage_oldest(&mut self, below: &mut SimStore) -> bool {
        let Some(key) = self.oldest() else { return true };
        self.stage(below, key)
    }

    fn stage(&mut self, below: &mut SimStore, key: BlockKey) -> bool {
        let run = self.ledger.dirty_from(key, RUN_BLOCKS);
        if self.write_back(below, &run).is_ok() {
            return true;
        }
        self.kept.insert(file_of(key));
        self.stuck.insert(file_of(key));
        false
    }

    fn evict(&mut self, below: &mut SimStore, key: BlockKey) -> Result<(), StoreFull> {
        let Some(block) = self.ledger.find(key) else { return Ok(()) };
        self.write_back(below, &[(key, block)])?;
        self.ledger.remove(key);
        Ok(())
    }

    fn write_back(&mut self, below: &mut SimStore, run: &[(BlockKey, SharedBlock)]) -> Result<(), StoreFull> {
        let mut result = Ok(());
        for (key, block) in run {
            for (span, data) in held(block).dirty() {
                let index = usize::try_from(key.index).expect("a small file");
                let first = index * BLOCK_CELLS + span.start / CELL;
                for (at, cell) in data.chunks(CELL).zip(first..) {
                    result = result.and(self.apply_cached(below, (file_of(*key), cell), tag_of(at)));
                }
            }
        }
        if result.is_err() && !self.has(ClientBug::CleanOnError) {
            return result;
        }
        for (key, block) in run {
            held(block).flushed();
            self.ledger.set_dirty(*key, false);
        }
        result
    }

    /// All of a file is in the store; a staging error is reported.
    pub(crate) fn flush(&mut self, below: &mut SimStore, file: usize) -> Result<(), StoreFull> {
        if self.has(ClientBug::FlushNothing) {
            return Ok(());
        }
        let kept = self.kept.remove(&file);
        self.stuck.remove(&file);
        let dirty = self.ledger.dirty(InodeId(file as u64));
        self.write_back(below, &dirty)?;
        if kept { Err(StoreFull) } else { Ok(()) }
    }

    /// The same, on stable storage.
    pub(crate) fn sync(&mut self, below: &mut SimStore, file: usize) -> Result<(), StoreFull> {
        if self.has(ClientBug::SyncUnstaged) {
            self.make_stable(below, file);
            return self.flush(below, file);
        }
        self.flush(below, file)?;
        self.make_stable(below, file);
        Ok(())
    }

    fn make_stable(&self, below: &mut SimStore, file: usize) {
        for cell in (0..CELLS).filter(|cell| home(*cell) == self.number) {
            below.stable[file][cell] = below.store[file][cell];
        }
    }
}

fn file_of(key: BlockKey) -> usize {
    usize::try_from(key.inode.0).expect("a file of this simulation")
}

/// Method of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteMethod {
    Through,
    Cached,
    Uncached,
}

/// A client's knowledge of a server from shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CursorSnapshot {
    pub(crate) life: u64,
    pub(crate) errors: u64,
}

/// Cells by server.
pub(crate) fn by_server(cells: &std::ops::Range<usize>) -> BTreeMap<usize, Vec<usize>> {
    let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for cell in cells.clone() {
        all.entry(home(cell)).or_default().push(cell);
    }
    all
}
