//! From the cache to the plain file: writing down what is dirty, going past the cache, cutting, and the end.
//!
//! Never: a byte that nobody wrote here. Always: bytes count as clean only after the write returned; blocks are locked in ascending
//! order; an error of the background is kept for whoever flushes next.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use pario_core::{Generation, LocalOffset};
use pario_sys::Piece;

use super::core::Core;
use super::file::{NONE, SharedFile};
use super::first_touch::KEPT_MAX;
use crate::cache::{Key, Ledger, SharedBlock};
use crate::error::StoreError;
use crate::source::Source;
use crate::sync::lock;

/// Adjacent blocks that are written together.
const RUN_BLOCKS_MAX: usize = 16;

/// Bytes of quiet blocks that are written together: whoever wants one of them after all waits no longer than that takes.
const QUIET_BYTES_MAX: usize = 1 << 20;

impl SharedFile {
    /// Writes to the plain file, of which nothing is kept here; false: late.
    pub(super) fn write_below(
        &self,
        generation: Generation,
        range: Range<u64>,
        pieces: &[Piece<'_>],
    ) -> Result<bool, StoreError> {
        let gate = self.open_gate()?;
        if generation < gate.generation {
            return Ok(false);
        }
        let mut source = Source::new(pieces);
        for (offset, bytes) in self.runs(range.clone()) {
            self.plain.write(&source.take(bytes), offset)?;
        }
        self.length.fetch_max(range.end, Ordering::AcqRel);
        Ok(true)
    }

    /// Reads from the plain file, of which nothing is kept here.
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

    pub(super) fn write_straight(
        &self,
        core: &Core,
        generation: Generation,
        range: Range<u64>,
        pieces: &[Piece<'_>],
    ) -> Result<bool, StoreError> {
        let gate = self.gate_alone()?;
        if generation < gate.generation {
            return Ok(false);
        }
        self.evict(core, &range)?;
        let mut source = Source::new(pieces);
        for (offset, bytes) in self.runs(range.clone()) {
            self.plain.write(&source.take(bytes), offset)?;
        }
        core.counts.straight.fetch_add(1, Ordering::Relaxed);
        self.length.fetch_max(range.end, Ordering::AcqRel);
        drop(gate);
        self.let_go(core, range);
        Ok(true)
    }

    pub(super) fn read_straight(
        &self,
        core: &Core,
        generation: Generation,
        range: Range<u64>,
        target: &mut [u8],
    ) -> Result<usize, StoreError> {
        let gate = self.gate_alone()?;
        if generation < gate.generation {
            return Ok(0);
        }
        self.evict(core, &range)?;
        let mut filled = 0;
        for (offset, bytes) in self.runs(range.clone()) {
            self.plain.read(&mut target[filled..filled + bytes], offset)?;
            filled += bytes;
        }
        core.counts.straight.fetch_add(1, Ordering::Relaxed);
        drop(gate);
        self.let_go(core, range);
        Ok(filled)
    }

    /// Blocks that an access went past need not be this server's any longer.
    fn let_go(&self, core: &Core, range: Range<u64>) {
        if self.touch.is_some() {
            core.let_go(self.parts(range).map(|part| part.key));
        }
    }

    /// Writes down and throws out the blocks that a range touches; the gate is held alone.
    fn evict(&self, core: &Core, range: &Range<u64>) -> Result<(), StoreError> {
        for part in self.parts(range.clone()) {
            let found = core.pool.state().ledger.find(part.key);
            let Some(block) = found else { continue };
            self.write_down(core, &[(part.key, block)])?;
            core.pool.state().ledger.remove(part.key);
        }
        Ok(())
    }

    /// Writes down everything that is dirty; errors of the background are told.
    pub(super) fn flush(&self, core: &Core) -> Result<(), StoreError> {
        let kept = lock(&self.error).take();
        core.pool.state().stuck.remove(&self.inode);
        let flushed = self.open_gate().and_then(|_gate| self.flush_dirty(core));
        if flushed.is_ok() {
            // What failed in the background meanwhile is down now, or still dirty and tried again.
            lock(&self.error).take();
            core.pool.state().stuck.remove(&self.inode);
        }
        flushed.and(kept.map_or(Ok(()), Err))
    }

    fn flush_dirty(&self, core: &Core) -> Result<(), StoreError> {
        let _using = core.pool.using();
        let dirty = core.pool.state().ledger.dirty(self.inode);
        let adjacent = dirty.chunk_by(|one, next| one.0.index + 1 == next.0.index);
        adjacent.flat_map(|run| run.chunks(RUN_BLOCKS_MAX)).try_for_each(|run| self.write_down(core, run))
    }

    /// Writes down a block and the dirty ones behind it, on behalf of nobody: an error is kept.
    pub(super) fn stage(&self, core: &Core, key: Key) {
        let _using = core.pool.using();
        let Ok(_gate) = self.open_gate() else { return };
        let run = core.pool.state().ledger.dirty_from(key, RUN_BLOCKS_MAX);
        let written = self.write_down(core, &run);
        self.keep_error(core, written);
    }

    /// The same of blocks that nobody wrote after `mark`; whether something was written.
    pub(super) fn stage_quiet(&self, core: &Core, key: Key, mark: u64) -> bool {
        let _using = core.pool.using();
        // If it is about to end, all of it goes down then.
        let Ok(_gate) = self.open_gate() else { return false };
        let limit = (QUIET_BYTES_MAX / self.block_bytes()).clamp(1, RUN_BLOCKS_MAX);
        let run = core.pool.state().ledger.quiet_from(key, limit, mark);
        let written = self.write_down_as(core, &run, Ledger::put_down);
        self.keep_error(core, written) && !run.is_empty()
    }

    fn keep_error(&self, core: &Core, written: Result<(), StoreError>) -> bool {
        let Err(error) = written else { return true };
        tracing::warn!(%error, "a cached file could not be written down");
        lock(&self.error).get_or_insert(error);
        core.pool.state().stuck.insert(self.inode);
        false
    }

    /// One vectored write for each run of dirty bytes.
    pub(super) fn write_down(&self, core: &Core, run: &[(Key, SharedBlock)]) -> Result<(), StoreError> {
        self.write_down_as(core, run, |ledger, key| ledger.set_dirty(key, false))
    }

    fn write_down_as(
        &self,
        core: &Core,
        run: &[(Key, SharedBlock)],
        enter: impl Fn(&mut Ledger, Key),
    ) -> Result<(), StoreError> {
        let mut blocks: Vec<_> = run.iter().map(|(key, block)| (*key, lock(block))).collect();
        let mut writes: Vec<(u64, u64, Vec<Piece<'_>>)> = Vec::new();
        for (key, block) in &blocks {
            for (span, data) in block.dirty() {
                let at = key.index * self.place.block_bytes + span.start as u64;
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
            core.counts.staged(end - at);
        }
        drop(writes);
        let mut state = core.pool.state();
        for ((key, block), (_, shared)) in blocks.iter_mut().zip(run) {
            block.flushed();
            // One that was passed on meanwhile, and came back, is another block under the same key.
            if state.ledger.find(*key).is_some_and(|found| Arc::ptr_eq(&found, shared)) {
                enter(&mut state.ledger, *key);
            }
        }
        Ok(())
    }

    /// See [`crate::Store::truncate`]: the object has at most `bytes` now, and the file the length that was announced.
    pub(super) fn cut(&self, core: &Core, to: Generation, bytes: u64) -> Result<(), StoreError> {
        let mut gate = self.gate_alone()?;
        let coming = self.coming.load(Ordering::Acquire);
        if coming == NONE {
            let what = format!("{}: a cut of unknown length", self.plain.path().display());
            return Err(StoreError::Unsupported { what });
        }
        // A file whose blocks have no fixed place has all its bytes here, as far as lengths go.
        let bytes = if self.touch.is_some() { coming } else { bytes };
        let blocks = core.pool.state().ledger.all(self.inode);
        let mut gone = Vec::new();
        for (key, block) in blocks {
            let (_, LocalOffset(start)) = self.place.layout.locate(key.index * self.place.block_bytes);
            if bytes <= start {
                core.pool.state().ledger.remove(key);
                gone.push(key);
            } else if bytes - start < self.place.block_bytes {
                let mut block = lock(&block);
                block.cut(usize::try_from(bytes - start).expect("within a block"));
                let is_dirty = 0 < block.dirty_bytes();
                core.pool.state().ledger.set_dirty(key, is_dirty);
            }
        }
        self.length.fetch_min(bytes, Ordering::AcqRel);
        gate.generation = gate.generation.max(to);
        if self.touch.is_some() {
            core.let_go(gone);
        }
        // Each server does so behind its own part: whoever is last has the last word.
        self.plain.set_length(coming)
    }

    /// Others may have written to the file: what is clean is read again.
    pub(super) fn forget_clean(&self, core: &Core) -> Result<(), StoreError> {
        let _gate = self.gate_alone()?;
        let mut state = core.pool.state();
        let all = state.ledger.all(self.inode);
        let dirty: HashSet<Key> = state.ledger.dirty(self.inode).into_iter().map(|(key, _)| key).collect();
        for (key, _) in all.iter().filter(|(key, _)| !dirty.contains(key)) {
            state.ledger.remove(*key);
        }
        drop(state);
        for (_, block) in all.iter().filter(|(key, _)| dirty.contains(key)) {
            lock(block).forget_clean();
        }
        if let Some(touch) = self.touch.as_ref().filter(|touch| KEPT_MAX < touch.owners.count()) {
            let key = |index| Key { inode: self.inode, index };
            core.let_go(touch.owners.mine().into_iter().map(key));
        }
        Ok(())
    }

    /// Ends it: nothing gets in any more, and its memory is free.
    pub(super) fn end(&self, core: &Core) {
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        gate.is_closed = true;
        let mut state = core.pool.state();
        state.stuck.remove(&self.inode);
        for (key, _) in state.ledger.all(self.inode) {
            state.ledger.remove(key);
        }
    }
}
