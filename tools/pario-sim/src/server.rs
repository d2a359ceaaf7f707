//! A data server: its blocks in memory (the real ledger and blocks of `pario_store::cache`), and what lies below all servers.
//!
//! A server of a partition on plain files writes through and lends; one that caches (tier 1, the cooperative cache, a store past the page
//! cache) keeps written blocks and stages them, and what it has not staged dies with it.
//!
//! Never: keeps a block that another server is home of. Always: a dirty byte is in the ledger until what lies below has it.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::InodeId;
use pario_server::store::cache::{Key, Ledger, SharedBlock};

use crate::bugs::{AnyBug, ClientBug};
use crate::world::{CELLS, FILES, SERVERS};

/// Cells of a block; blocks are dealt to servers in turn.
pub(crate) const BLOCK_CELLS: usize = 2;
const CELL: usize = 8;
const BLOCK_BYTES: usize = BLOCK_CELLS * CELL;
/// Blocks that a server may keep when nothing presses.
const BLOCKS: u64 = 4;
/// Adjacent blocks that are written together.
const RUN_BLOCKS: usize = 16;

/// The server that a cell lies on.
pub(crate) fn home(cell: usize) -> usize {
    (cell / BLOCK_CELLS) % SERVERS
}

/// There is no room for it below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused;

/// What lies below the servers: as their system has it, and as it is on stable storage.
#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) store: Vec<[u64; CELLS]>,
    pub(crate) stable: Vec<[u64; CELLS]>,
}

impl Below {
    pub(crate) fn new() -> Below {
        Below { store: vec![[0; CELLS]; FILES], stable: vec![[0; CELLS]; FILES] }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) number: usize,
    pub(crate) alive: bool,
    pub(crate) stopped: bool,
    pub(crate) life: u64,
    pub(crate) caches: bool,
    /// What lies below refuses writes.
    pub(crate) full: bool,
    /// There is room reserved, so that writes may return before they are taken.
    pub(crate) grants: bool,
    /// Clients whose outboxes it has.
    pub(crate) outboxes: BTreeSet<usize>,
    /// Errors kept for a client's file.
    pub(crate) errors: BTreeSet<(usize, usize)>,
    ledger: Ledger,
    limit: u64,
    stuck: BTreeSet<usize>,
    /// Errors of staging, by file.
    kept: BTreeSet<usize>,
    /// When the newest bytes were committed that it or those before it put down since one of them was replaced: outlives its process,
    /// but not the machine. `None`: nobody was replaced.
    ahead: Option<BTreeMap<(usize, usize), u64>>,
    /// The machine was started anew.
    is_first: bool,
    bug: Option<AnyBug>,
}

fn key_of(file: usize, cell: usize) -> Key {
    Key { inode: InodeId(file as u64), index: (cell / BLOCK_CELLS) as u64 }
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

impl Server {
    pub(crate) fn new(number: usize, caches: bool, bug: Option<AnyBug>) -> Server {
        Server {
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
            ahead: None,
            is_first: false,
            bug,
        }
    }

    /// It can do something now.
    pub(crate) fn runs(&self) -> bool {
        self.alive && !self.stopped
    }

    fn has(&self, bug: ClientBug) -> bool {
        self.bug == Some(AnyBug::Around(bug))
    }

    /// It is killed: what it had in memory is gone.
    pub(crate) fn kill(&mut self) {
        self.alive = false;
        self.stopped = false;
        self.outboxes.clear();
        self.errors.clear();
        self.ledger = Ledger::default();
        self.stuck.clear();
        self.kept.clear();
        if self.has(ClientBug::ForgetAhead) {
            self.ahead = None;
        }
    }

    /// The power goes, and with it everybody who could come late.
    pub(crate) fn lose_power(&mut self) {
        (self.ahead, self.is_first) = (None, true);
    }

    /// It has put something down.
    pub(crate) fn remember(&mut self, place: (usize, usize), committed: u64) {
        if let Some(ahead) = &mut self.ahead {
            let newest = ahead.entry(place).or_default();
            *newest = committed.max(*newest);
        }
    }

    /// When the newest bytes were committed that it is known to have put there.
    pub(crate) fn newest(&self, place: (usize, usize)) -> Option<u64> {
        self.ahead.as_ref()?.get(&place).copied()
    }

    /// It comes back, in another life.
    pub(crate) fn restart(&mut self) {
        self.alive = true;
        self.life += 1;
        if !std::mem::take(&mut self.is_first) {
            self.ahead.get_or_insert_default();
        }
    }

    /// Memory is short: from now on there is room for so many blocks.
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
        below: &mut Below,
        (file, cell): (usize, usize),
        tag: u64,
    ) -> Result<Way, Refused> {
        if !self.caches {
            return self.put(below, (file, cell), tag).map(|()| Way::Through);
        }
        let key = key_of(file, cell);
        if !self.make_room(below) {
            if !self.has(ClientBug::StraightPastCache) {
                self.evict(below, key)?;
            }
            return self.put(below, (file, cell), tag).map(|()| Way::Straight);
        }
        let block = self.ledger.pin(key, BLOCK_BYTES);
        held(&block).overwrite(span_of(cell)).copy_from_slice(&tag.to_le_bytes());
        self.ledger.set_dirty(key, true);
        Ok(Way::Cached)
    }

    pub(crate) fn read(&mut self, below: &mut Below, file: usize, cell: usize) -> Result<u64, Refused> {
        if !self.caches {
            return Ok(below.store[file][cell]);
        }
        let key = key_of(file, cell);
        if !self.make_room(below) {
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

    fn put(&mut self, below: &mut Below, (file, cell): (usize, usize), tag: u64) -> Result<(), Refused> {
        if self.full {
            return Err(Refused);
        }
        below.store[file][cell] = tag;
        Ok(())
    }

    /// As `Pool::reserve` does for a request of one block.
    fn make_room(&mut self, below: &mut Below) -> bool {
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

    fn oldest(&self) -> Option<Key> {
        self.ledger.oldest_dirty(|key| !self.stuck.contains(&file_of(key)))
    }

    /// There is something that could be staged.
    pub(crate) fn has_dirt(&self) -> bool {
        self.oldest().is_some()
    }

    /// One step of staging; whether it went well.
    pub(crate) fn stage_oldest(&mut self, below: &mut Below) -> bool {
        let Some(key) = self.oldest() else { return true };
        self.stage(below, key)
    }

    fn stage(&mut self, below: &mut Below, key: Key) -> bool {
        let run = self.ledger.dirty_from(key, RUN_BLOCKS);
        if self.write_down(below, &run).is_ok() {
            return true;
        }
        self.kept.insert(file_of(key));
        self.stuck.insert(file_of(key));
        false
    }

    fn evict(&mut self, below: &mut Below, key: Key) -> Result<(), Refused> {
        let Some(block) = self.ledger.find(key) else { return Ok(()) };
        self.write_down(below, &[(key, block)])?;
        self.ledger.remove(key);
        Ok(())
    }

    fn write_down(&mut self, below: &mut Below, run: &[(Key, SharedBlock)]) -> Result<(), Refused> {
        let mut result = Ok(());
        for (key, block) in run {
            for (span, data) in held(block).dirty() {
                let index = usize::try_from(key.index).expect("a small file");
                let first = index * BLOCK_CELLS + span.start / CELL;
                for (at, cell) in data.chunks(CELL).zip(first..) {
                    result = result.and(self.put(below, (file_of(*key), cell), tag_of(at)));
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

    /// Everything of a file is below; an error of staging is told.
    pub(crate) fn flush(&mut self, below: &mut Below, file: usize) -> Result<(), Refused> {
        if self.has(ClientBug::FlushNothing) {
            return Ok(());
        }
        let kept = self.kept.remove(&file);
        self.stuck.remove(&file);
        let dirty = self.ledger.dirty(InodeId(file as u64));
        self.write_down(below, &dirty)?;
        if kept { Err(Refused) } else { Ok(()) }
    }

    /// The same, on stable storage.
    pub(crate) fn sync(&mut self, below: &mut Below, file: usize) -> Result<(), Refused> {
        if self.has(ClientBug::SyncUnstaged) {
            self.make_stable(below, file);
            return self.flush(below, file);
        }
        self.flush(below, file)?;
        self.make_stable(below, file);
        Ok(())
    }

    fn make_stable(&self, below: &mut Below, file: usize) {
        for cell in (0..CELLS).filter(|cell| home(*cell) == self.number) {
            below.stable[file][cell] = below.store[file][cell];
        }
    }
}

fn file_of(key: Key) -> usize {
    usize::try_from(key.inode.0).expect("a file of this world")
}

/// How a write went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Through,
    Cached,
    Straight,
}

/// What a client sees of a server in memory that they share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
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
