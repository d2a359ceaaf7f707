//! A server of the file cache: its directory as home, its table as owner, and its cached blocks.
//!
//! Always: a dirty byte is in the ledger until the plain file has it, or until its block is handed over.

use std::ops::Range;

use pario_core::{Code, Fault, InodeId};
use pario_server::store::cache::{Block, BlockKey, Ledger, SharedBlock};
use pario_server::store::placement::{Bug, OwnerDirectory, OwnershipTable};

use super::simulation::{BLOCK_BYTES, CELL, CELLS};

/// The one file.
pub(super) const INODE: InodeId = InodeId(1);
/// Maximum cached blocks without memory pressure.
const CACHED_MAX: u64 = 3;
const RUN_BLOCKS: usize = 16;

/// The plain file: in the page cache, and on stable storage.
#[derive(Debug)]
pub(super) struct SimPlainFile {
    pub(super) below: [u64; CELLS],
    pub(super) stable: [u64; CELLS],
    /// Writes fail.
    pub(super) full: bool,
}

impl SimPlainFile {
    pub(super) fn new() -> SimPlainFile {
        SimPlainFile { below: [0; CELLS], stable: [0; CELLS], full: false }
    }

    fn write(&mut self, cell: usize, tag: u64) -> Result<(), Fault> {
        if self.full {
            return Err(Fault::new(Code::NoSpace, "the plain file is full"));
        }
        self.below[cell] = tag;
        Ok(())
    }

    /// The contents of a cell get another tag.
    pub(super) fn renames(&mut self, cell: usize, tag: u64) {
        if self.stable[cell] == self.below[cell] {
            self.stable[cell] = tag;
        }
        self.below[cell] = tag;
    }

    pub(super) fn sync(&mut self) {
        self.stable = self.below;
    }
}

/// State of a server; see the module.
#[derive(Debug)]
pub(super) struct PlacementServer {
    pub(super) alive: bool,
    pub(super) stopped: bool,
    pub(super) directory: OwnerDirectory,
    pub(super) table: OwnershipTable,
    pub(super) ledger: Ledger,
    /// Evicted blocks.
    pub(super) evicted: Vec<u64>,
    limit: u64,
}

/// Method of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessPath {
    Cache,
    Uncached,
}

fn key(block: u64) -> BlockKey {
    BlockKey { inode: INODE, index: block }
}

fn held(block: &SharedBlock) -> std::sync::MutexGuard<'_, Block> {
    block.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn block_of(cell: usize) -> u64 {
    (cell * CELL / BLOCK_BYTES) as u64
}

fn span_of(cell: usize) -> Range<usize> {
    let start = cell * CELL % BLOCK_BYTES;
    start..start + CELL
}

fn tag_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a cell has eight bytes"))
}

/// The blocks that cells lie in.
pub(super) fn blocks_of(cells: &Range<usize>) -> Range<u64> {
    block_of(cells.start)..block_of(cells.end - 1) + 1
}

impl PlacementServer {
    pub(super) fn new(bug: Option<Bug>) -> PlacementServer {
        PlacementServer {
            alive: true,
            stopped: false,
            directory: OwnerDirectory::sabotaged(bug),
            table: OwnershipTable::sabotaged(bug),
            ledger: Ledger::default(),
            evicted: Vec::new(),
            limit: CACHED_MAX * BLOCK_BYTES as u64,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.alive && !self.stopped
    }

    /// Sets the maximum number of cached blocks; `None`: the default.
    pub(super) fn press(&mut self, blocks: Option<u64>) {
        self.limit = blocks.unwrap_or(CACHED_MAX) * BLOCK_BYTES as u64;
    }

    pub(super) fn keeps(&self, block: u64) -> bool {
        self.ledger.find(key(block)).is_some()
    }

    pub(super) fn is_dirty(&self, block: u64) -> bool {
        self.ledger.find(key(block)).is_some_and(|block| 0 < held(&block).dirty_bytes())
    }

    pub(super) fn has_dirty(&self) -> bool {
        self.ledger.has_dirty(INODE)
    }

    /// Writes to blocks of this server's.
    pub(super) fn write(
        &mut self,
        plain: &mut SimPlainFile,
        cells: Range<usize>,
        tag: u64,
    ) -> Result<AccessPath, Fault> {
        if !self.free_space(plain, &cells) {
            self.evict(plain, blocks_of(&cells))?;
            if plain.full {
                return plain.write(cells.start, tag).map(|()| AccessPath::Uncached);
            }
            cells.clone().try_for_each(|cell| plain.write(cell, tag))?;
            self.evicted.extend(blocks_of(&cells));
            return Ok(AccessPath::Uncached);
        }
        for cell in cells {
            let key = key(block_of(cell));
            let block = self.ledger.pin(key, BLOCK_BYTES);
            held(&block).overwrite(span_of(cell)).copy_from_slice(&tag.to_le_bytes());
            self.ledger.set_dirty(key, true);
        }
        Ok(AccessPath::Cache)
    }

    /// Reads from blocks of this server's.
    pub(super) fn read(
        &mut self,
        plain: &mut SimPlainFile,
        cells: Range<usize>,
    ) -> Result<(Vec<u64>, AccessPath), Fault> {
        if !self.free_space(plain, &cells) {
            self.evict(plain, blocks_of(&cells))?;
            self.evicted.extend(blocks_of(&cells));
            return Ok((cells.map(|cell| plain.below[cell]).collect(), AccessPath::Uncached));
        }
        let found = cells.map(|cell| {
            let block = self.ledger.pin(key(block_of(cell)), BLOCK_BYTES);
            let mut block = held(&block);
            if !block.knows(&span_of(cell)) {
                let first = cell * CELL / BLOCK_BYTES * BLOCK_BYTES / CELL;
                let cells = plain.below[first..first + BLOCK_BYTES / CELL].iter();
                let fetched: Vec<u8> = cells.flat_map(|tag| tag.to_le_bytes()).collect();
                block.learn(&fetched);
            }
            tag_of(block.bytes(span_of(cell)))
        });
        Ok((found.collect(), AccessPath::Cache))
    }

    fn free_space(&mut self, plain: &mut SimPlainFile, cells: &Range<usize>) -> bool {
        let blocks = blocks_of(cells);
        let Some(rest) = self.limit.checked_sub((blocks.end - blocks.start) * BLOCK_BYTES as u64) else {
            return false;
        };
        loop {
            let gone = &mut self.evicted;
            if self.ledger.shrink_to(rest, |key| gone.push(key.index)) {
                return true;
            }
            if self.write_back_oldest(plain).is_err() {
                return false;
            }
        }
    }

    /// Evicts clean blocks down to a number.
    pub(super) fn shrink(&mut self, blocks: u64) {
        let gone = &mut self.evicted;
        // Dirty ones stay.
        let _ = self.ledger.shrink_to(blocks * BLOCK_BYTES as u64, |key| gone.push(key.index));
    }

    /// Writes back the oldest dirty block and those that follow it.
    pub(super) fn write_back_oldest(&mut self, plain: &mut SimPlainFile) -> Result<(), Fault> {
        let nothing = || Fault::new(Code::NoSpace, "there is no dirty block");
        let oldest = self.ledger.oldest_dirty(|_| true).ok_or_else(nothing)?;
        let run = self.ledger.dirty_from(oldest, RUN_BLOCKS);
        run.iter().try_for_each(|(key, block)| self.apply(plain, *key, block))
    }

    /// Writes down all that is dirty.
    pub(super) fn flush(&mut self, plain: &mut SimPlainFile) -> Result<(), Fault> {
        let dirty = self.ledger.dirty(INODE);
        dirty.iter().try_for_each(|(key, block)| self.apply(plain, *key, block))
    }

    /// Writes back the dirty parts of these blocks.
    pub(super) fn write_back(&mut self, plain: &mut SimPlainFile, blocks: Range<u64>) -> Result<(), Fault> {
        for key in blocks.map(key) {
            if let Some(block) = self.ledger.find(key) {
                self.apply(plain, key, &block)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, plain: &mut SimPlainFile, key: BlockKey, block: &SharedBlock) -> Result<(), Fault> {
        let mut block = held(block);
        let first = usize::try_from(key.index).expect("few blocks") * BLOCK_BYTES / CELL;
        for (span, data) in block.dirty() {
            for (place, tag) in data.chunks(CELL).enumerate() {
                plain.write(first + span.start / CELL + place, tag_of(tag))?;
            }
        }
        block.flushed();
        self.ledger.set_dirty(key, false);
        Ok(())
    }

    fn evict(&mut self, plain: &mut SimPlainFile, blocks: Range<u64>) -> Result<(), Fault> {
        self.write_back(plain, blocks.clone())?;
        self.evict_all(blocks);
        Ok(())
    }

    /// Removes blocks from the cache, dirty or not.
    pub(super) fn evict_all(&mut self, blocks: Range<u64>) {
        blocks.for_each(|block| self.ledger.remove(key(block)));
    }

    /// Drops clean blocks, so that they are read again.
    pub(super) fn forget_clean(&mut self) {
        for (key, block) in self.ledger.all(INODE) {
            if held(&block).dirty_bytes() == 0 {
                self.ledger.remove(key);
            } else {
                held(&block).forget_clean();
            }
        }
    }
}
