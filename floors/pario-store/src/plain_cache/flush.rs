//! From the cache to the plain file: write-back of dirty blocks, uncached access, truncation and close.
//!
//! Never: writes a byte that was not written here. Always: bytes count as clean only after the write returned; blocks are locked in
//! ascending order; a background error is kept for the next flush.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use pario_core::{Generation, LocalOffset};
use pario_sys::MemoryPiece;

use super::core::Core;
use super::file::{CachedFile, NO_LENGTH};
use super::placement::KEPT_MAX;
use crate::cache::{BlockKey, Ledger, SharedBlock};
use crate::error::StoreError;
use crate::source::PieceReader;
use crate::sync::lock;

/// Adjacent blocks written back in one call.
const RUN_BLOCKS_MAX: usize = 16;

/// Bytes of quiet blocks written back in one call: bounds the time that an access to one of them waits.
const QUIET_BYTES_MAX: usize = 1 << 20;

impl CachedFile {
    /// Uncached write to the plain file; false: stale.
    pub(super) fn write_below(
        &self,
        generation: Generation,
        range: Range<u64>,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<bool, StoreError> {
        let gate = self.open_gate()?;
        if generation < gate.generation {
            return Ok(false);
        }
        let mut source = PieceReader::new(pieces);
        for (offset, bytes) in self.runs(range.clone()) {
            self.plain.write(&source.take(bytes), offset)?;
        }
        self.length.fetch_max(range.end, Ordering::AcqRel);
        Ok(true)
    }

    /// Uncached read from the plain file.
    pub(super) fn read_below(
        &self,
        generation: Generation,
        range: Range<u64>,
        target: &mut [u8],
    ) -> Result<usize, StoreError> {
        let gate = self.open_gate()?;
        if generation < gate.generation {
            return Ok(0);
        }
        let mut filled = 0;
        for (offset, bytes) in self.runs(range) {
            self.plain.read(&mut target[filled..filled + bytes], offset)?;
            filled += bytes;
        }
        Ok(filled)
    }

    pub(super) fn write_uncached(
        &self,
        core: &Core,
        generation: Generation,
        range: Range<u64>,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<bool, StoreError> {
        let gate = self.exclusive_gate()?;
        if generation < gate.generation {
            return Ok(false);
        }
        self.evict(core, &range)?;
        let mut source = PieceReader::new(pieces);
        for (offset, bytes) in self.runs(range.clone()) {
            self.plain.write(&source.take(bytes), offset)?;
        }
        core.counts.uncached.fetch_add(1, Ordering::Relaxed);
        self.length.fetch_max(range.end, Ordering::AcqRel);
        drop(gate);
        self.release_ownership(core, range);
        Ok(true)
    }

    pub(super) fn read_uncached(
        &self,
        core: &Core,
        generation: Generation,
        range: Range<u64>,
        target: &mut [u8],
    ) -> Result<usize, StoreError> {
        let gate = self.exclusive_gate()?;
        if generation < gate.generation {
            return Ok(0);
        }
        self.evict(core, &range)?;
        let mut filled = 0;
        for (offset, bytes) in self.runs(range.clone()) {
            self.plain.read(&mut target[filled..filled + bytes], offset)?;
            filled += bytes;
        }
        core.counts.uncached.fetch_add(1, Ordering::Relaxed);
        drop(gate);
        self.release_ownership(core, range);
        Ok(filled)
    }

    /// Releases ownership of the blocks of an uncached access.
    fn release_ownership(&self, core: &Core, range: Range<u64>) {
        if self.dynamic.is_some() {
            core.queue_give_back(self.parts(range).map(|part| part.key));
        }
    }

    /// Writes back and evicts the blocks that a range touches; the gate is held exclusively.
    fn evict(&self, core: &Core, range: &Range<u64>) -> Result<(), StoreError> {
        for part in self.parts(range.clone()) {
            let found = core.pool.state().ledger.find(part.key);
            let Some(block) = found else { continue };
            self.write_back(core, &[(part.key, block)])?;
            core.pool.state().ledger.remove(part.key);
        }
        Ok(())
    }

    /// Writes back all dirty blocks; returns errors of the background.
    pub(super) fn flush(&self, core: &Core) -> Result<(), StoreError> {
        let kept = lock(&self.error).take();
        core.pool.state().failed.remove(&self.inode);
        let flushed = self.open_gate().and_then(|_gate| self.flush_dirty(core));
        if flushed.is_ok() {
            // Blocks that failed in the background meanwhile are written now, or are still dirty and are retried.
            lock(&self.error).take();
            core.pool.state().failed.remove(&self.inode);
        }
        flushed.and(kept.map_or(Ok(()), Err))
    }

    fn flush_dirty(&self, core: &Core) -> Result<(), StoreError> {
        let _using = core.pool.begin_write_back();
        let dirty = core.pool.state().ledger.dirty(self.inode);
        let adjacent = dirty.chunk_by(|one, next| one.0.index + 1 == next.0.index);
        adjacent.flat_map(|run| run.chunks(RUN_BLOCKS_MAX)).try_for_each(|run| self.write_back(core, run))
    }

    /// Writes back a block and the dirty ones after it in the background: an error is kept.
    pub(super) fn write_back_background(&self, core: &Core, key: BlockKey) {
        let _using = core.pool.begin_write_back();
        let Ok(_gate) = self.open_gate() else { return };
        let run = core.pool.state().ledger.dirty_from(key, RUN_BLOCKS_MAX);
        let written = self.write_back(core, &run);
        self.keep_error(core, written);
    }

    /// Like `write_back_background`, for blocks not written after `mark`; returns whether any was written back.
    pub(super) fn write_back_quiet(&self, core: &Core, key: BlockKey, mark: u64) -> bool {
        let _using = core.pool.begin_write_back();
        // A file that is being closed is written back by the close.
        let Ok(_gate) = self.open_gate() else { return false };
        let limit = (QUIET_BYTES_MAX / self.block_bytes()).clamp(1, RUN_BLOCKS_MAX);
        let run = core.pool.state().ledger.quiet_from(key, limit, mark);
        let written = self.write_back_as(core, &run, Ledger::written_behind);
        self.keep_error(core, written) && !run.is_empty()
    }

    fn keep_error(&self, core: &Core, written: Result<(), StoreError>) -> bool {
        let Err(error) = written else { return true };
        tracing::warn!(%error, "a cached file could not be written back; the next sync or close reports it");
        lock(&self.error).get_or_insert(error);
        core.pool.state().failed.insert(self.inode);
        false
    }

    /// One vectored write for each run of dirty bytes.
    pub(super) fn write_back(&self, core: &Core, run: &[(BlockKey, SharedBlock)]) -> Result<(), StoreError> {
        self.write_back_as(core, run, |ledger, key| ledger.set_dirty(key, false))
    }

    fn write_back_as(
        &self,
        core: &Core,
        run: &[(BlockKey, SharedBlock)],
        enter: impl Fn(&mut Ledger, BlockKey),
    ) -> Result<(), StoreError> {
        let mut blocks: Vec<_> = run.iter().map(|(key, block)| (*key, lock(block))).collect();
        let mut writes: Vec<(u64, u64, Vec<MemoryPiece<'_>>)> = Vec::new();
        for (key, block) in &blocks {
            for (span, data) in block.dirty() {
                let at = key.index * self.placement.block_bytes + span.start as u64;
                let end = at + data.len() as u64;
                match writes.last_mut() {
                    Some((_, last, pieces)) if *last == at => {
                        pieces.push(data.into());
                        *last = end;
                    }
                    _ => writes.push((at, end, vec![data.into()])),
                }
            }
        }
        for (at, end, pieces) in &writes {
            self.plain.write(pieces, *at)?;
            core.counts.count_write_back(end - at);
        }
        drop(writes);
        let mut state = core.pool.state();
        for ((key, block), (_, shared)) in blocks.iter_mut().zip(run) {
            block.flushed();
            // A block that was handed over meanwhile and came back is another block under the same key.
            if state.ledger.find(*key).is_some_and(|found| Arc::ptr_eq(&found, shared)) {
                enter(&mut state.ledger, *key);
            }
        }
        Ok(())
    }

    /// See [`crate::Store::truncate`]: the object has at most `bytes` now, and the file the announced length.
    pub(super) fn truncate(&self, core: &Core, to: Generation, bytes: u64) -> Result<(), StoreError> {
        let mut gate = self.exclusive_gate()?;
        let coming = self.announced_length.load(Ordering::Acquire);
        if coming == NO_LENGTH {
            let what = format!("{}: truncation without an announced length", self.plain.path().display());
            return Err(StoreError::Unsupported { what });
        }
        // With dynamic placement the object has the whole file as far as lengths are concerned.
        let bytes = if self.dynamic.is_some() { coming } else { bytes };
        let blocks = core.pool.state().ledger.all(self.inode);
        let mut gone = Vec::new();
        for (key, block) in blocks {
            let (_, LocalOffset(start)) =
                self.placement.layout.locate(key.index * self.placement.block_bytes);
            if bytes <= start {
                core.pool.state().ledger.remove(key);
                gone.push(key);
            } else if bytes - start < self.placement.block_bytes {
                let mut block = lock(&block);
                block.cut(usize::try_from(bytes - start).expect("within a block"));
                let is_dirty = 0 < block.dirty_bytes();
                core.pool.state().ledger.set_dirty(key, is_dirty);
            }
        }
        self.length.fetch_min(bytes, Ordering::AcqRel);
        gate.generation = gate.generation.max(to);
        if self.dynamic.is_some() {
            core.queue_give_back(gone);
        }
        // Each server does so after its own part: the last one leaves the correct length.
        self.plain.set_length(coming)
    }

    /// Other programs may have written to the file: drops clean blocks, so that they are read again.
    pub(super) fn forget_clean(&self, core: &Core) -> Result<(), StoreError> {
        let _gate = self.exclusive_gate()?;
        let mut state = core.pool.state();
        let all = state.ledger.all(self.inode);
        let dirty: HashSet<BlockKey> =
            state.ledger.dirty(self.inode).into_iter().map(|(key, _)| key).collect();
        for (key, _) in all.iter().filter(|(key, _)| !dirty.contains(key)) {
            state.ledger.remove(*key);
        }
        drop(state);
        for (_, block) in all.iter().filter(|(key, _)| dirty.contains(key)) {
            lock(block).forget_clean();
        }
        if let Some(touch) =
            self.dynamic.as_ref().filter(|touch| KEPT_MAX < touch.owners.with(|table| table.count()))
        {
            let key = |index| BlockKey { inode: self.inode, index };
            core.queue_give_back(touch.owners.with(|table| table.owned()).into_iter().map(key));
        }
        Ok(())
    }

    /// Closes it: refuses later accesses and frees its memory.
    pub(super) fn close(&self, core: &Core) {
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        gate.is_closed = true;
        let mut state = core.pool.state();
        state.failed.remove(&self.inode);
        for (key, _) in state.ledger.all(self.inode) {
            state.ledger.remove(key);
        }
    }
}
