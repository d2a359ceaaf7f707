//! A server of the cooperative cache: what it knows of owners as home and as owner, and the blocks that it keeps.
//!
//! Always: a dirty byte is in the ledger until the plain file has it, or until its block is given away.

use std::ops::Range;

use pario_core::{Code, Fault, InodeId};
use pario_server::store::cache::{Block, Key, Ledger, SharedBlock};
use pario_server::store::ownership::{Bug, Directory, Table};

use super::world::{BLOCK_BYTES, CELL, CELLS};

/// The one file.
pub(super) const INODE: InodeId = InodeId(1);
/// Blocks that a server may keep when nothing presses.
const KEPT: u64 = 3;
const RUN_BLOCKS: usize = 16;

/// The plain file: as the system has it, and as it is on stable storage.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) below: [u64; CELLS],
    pub(super) stable: [u64; CELLS],
    /// Writes are refused.
    pub(super) full: bool,
}

impl Plain {
    pub(super) fn new() -> Plain {
        Plain { below: [0; CELLS], stable: [0; CELLS], full: false }
    }

    fn write(&mut self, cell: usize, tag: u64) -> Result<(), Fault> {
        if self.full {
            return Err(Fault::new(Code::NoSpace, "the plain file is full"));
        }
        self.below[cell] = tag;
        Ok(())
    }

    /// What a cell holds gets another name.
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

/// See the module.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) alive: bool,
    pub(super) stopped: bool,
    pub(super) directory: Directory,
    pub(super) table: Table,
    pub(super) ledger: Ledger,
    /// Blocks that were thrown out.
    pub(super) gone: Vec<u64>,
    limit: u64,
}

/// How an access was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Through {
    Cache,
    Straight,
}

fn key(block: u64) -> Key {
    Key { inode: INODE, index: block }
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

impl Server {
    pub(super) fn new(bug: Option<Bug>) -> Server {
        Server {
            alive: true,
            stopped: false,
            directory: Directory::sabotaged(bug),
            table: Table::sabotaged(bug),
            ledger: Ledger::default(),
            gone: Vec::new(),
            limit: KEPT * BLOCK_BYTES as u64,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.alive && !self.stopped
    }

    /// There is room for so many blocks from now on; `None`: as many as ever.
    pub(super) fn press(&mut self, blocks: Option<u64>) {
        self.limit = blocks.unwrap_or(KEPT) * BLOCK_BYTES as u64;
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
        plain: &mut Plain,
        cells: Range<usize>,
        tag: u64,
    ) -> Result<Through, Fault> {
        if !self.make_room(plain, &cells) {
            self.evict(plain, blocks_of(&cells))?;
            if plain.full {
                return plain.write(cells.start, tag).map(|()| Through::Straight);
            }
            cells.clone().try_for_each(|cell| plain.write(cell, tag))?;
            self.gone.extend(blocks_of(&cells));
            return Ok(Through::Straight);
        }
        for cell in cells {
            let key = key(block_of(cell));
            let block = self.ledger.pin(key, BLOCK_BYTES);
            held(&block).overwrite(span_of(cell)).copy_from_slice(&tag.to_le_bytes());
            self.ledger.set_dirty(key, true);
        }
        Ok(Through::Cache)
    }

    /// Reads from blocks of this server's.
    pub(super) fn read(
        &mut self,
        plain: &mut Plain,
        cells: Range<usize>,
    ) -> Result<(Vec<u64>, Through), Fault> {
        if !self.make_room(plain, &cells) {
            self.evict(plain, blocks_of(&cells))?;
            self.gone.extend(blocks_of(&cells));
            return Ok((cells.map(|cell| plain.below[cell]).collect(), Through::Straight));
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
        Ok((found.collect(), Through::Cache))
    }

    fn make_room(&mut self, plain: &mut Plain, cells: &Range<usize>) -> bool {
        let blocks = blocks_of(cells);
        let Some(rest) = self.limit.checked_sub((blocks.end - blocks.start) * BLOCK_BYTES as u64) else {
            return false;
        };
        loop {
            let gone = &mut self.gone;
            if self.ledger.shrink_to(rest, |key| gone.push(key.index)) {
                return true;
            }
            if self.stage(plain).is_err() {
                return false;
            }
        }
    }

    /// Throws clean blocks out until so many are left.
    pub(super) fn shrink(&mut self, blocks: u64) {
        let gone = &mut self.gone;
        // Dirty ones stay.
        let _ = self.ledger.shrink_to(blocks * BLOCK_BYTES as u64, |key| gone.push(key.index));
    }

    /// Writes the oldest dirty block and those behind it down.
    pub(super) fn stage(&mut self, plain: &mut Plain) -> Result<(), Fault> {
        let nothing = || Fault::new(Code::NoSpace, "there is nothing to write down");
        let oldest = self.ledger.oldest_dirty(|_| true).ok_or_else(nothing)?;
        let run = self.ledger.dirty_from(oldest, RUN_BLOCKS);
        run.iter().try_for_each(|(key, block)| self.put(plain, *key, block))
    }

    /// Writes down all that is dirty.
    pub(super) fn flush(&mut self, plain: &mut Plain) -> Result<(), Fault> {
        let dirty = self.ledger.dirty(INODE);
        dirty.iter().try_for_each(|(key, block)| self.put(plain, *key, block))
    }

    /// Writes down what is dirty of these blocks.
    pub(super) fn put_down(&mut self, plain: &mut Plain, blocks: Range<u64>) -> Result<(), Fault> {
        for key in blocks.map(key) {
            if let Some(block) = self.ledger.find(key) {
                self.put(plain, key, &block)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, plain: &mut Plain, key: Key, block: &SharedBlock) -> Result<(), Fault> {
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

    fn evict(&mut self, plain: &mut Plain, blocks: Range<u64>) -> Result<(), Fault> {
        self.put_down(plain, blocks.clone())?;
        self.take_out(blocks);
        Ok(())
    }

    /// Takes blocks out of the cache, whatever they hold.
    pub(super) fn take_out(&mut self, blocks: Range<u64>) {
        blocks.for_each(|block| self.ledger.remove(key(block)));
    }

    /// What is clean is read again.
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
