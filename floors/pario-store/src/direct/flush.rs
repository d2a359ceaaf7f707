//! Write-back of dirty blocks to the disk: on request, for memory, and in the background.
//!
//! Never: holds the ledger during I/O. Always: blocks are locked in ascending order; bytes count as clean only after the
//! write returned.

use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use pario_core::ObjectId;
use pario_sys::MemoryPiece;
use pario_sys::aligned::ALIGNMENT;

use super::block::DirectBlock;
use super::cache::{DirectCache, StagingOrder, start_of};
use super::ledger::{DirectKey, SharedDirectBlock};
use super::object::DirectObject;
use crate::directory::{OpenObject, OpenWant};
use crate::error::{Doing, StoreError};
use crate::ranges::Span;
use crate::sync::lock;

/// Adjacent blocks written in one call: 4 MiB.
const RUN_BLOCKS_MAX: u64 = 16;

/// One vectored write.
struct VectoredWrite<'a> {
    at: u64,
    end: u64,
    pieces: Vec<MemoryPiece<'a>>,
}

impl DirectCache {
    /// Writes back the object's dirty blocks; called inside its gate.
    pub(super) fn flush_object(&self, object: &DirectObject) -> Result<(), StoreError> {
        object.take_error()?;
        let dirty = lock(&self.ledger).dirty_within(object.id, 0..u64::MAX);
        for run in runs(&dirty) {
            self.flush_blocks(object, run)?;
        }
        Ok(())
    }

    /// Writes back everything; continues after errors and returns the first.
    pub(super) fn flush_all(&self) -> Result<(), StoreError> {
        let dirty: Vec<ObjectId> = lock(&self.ledger).objects_with_dirt();
        let mut first = Ok(());
        for id in dirty {
            let flushed =
                self.with_object(id, OpenWant::Existing, |object| self.flush_object(object)).map(drop);
            first = first.and(flushed);
        }
        first
    }

    /// Writes back a dirty block and its neighbours in the background: an error is kept for the object's next caller. Called inside the
    /// object's gate.
    pub(super) fn stage(&self, object: &DirectObject, index: u64) -> Result<(), ()> {
        let run = lock(&self.ledger).dirty_around(object.id, index, RUN_BLOCKS_MAX);
        let Err(error) = self.flush_blocks(object, &run) else { return Ok(()) };
        if !object.has_error() {
            tracing::warn!(%error, object = %object.id, "write-back failed; the object's next call reports it");
        }
        if !error.is_full() {
            self.discard(object, &run);
        }
        object.keep_error(error, self.freed.load(Ordering::Acquire));
        Err(())
    }

    /// Like `stage`, for a writer that needs memory and is inside the object's gate: the error is its own.
    pub(super) fn stage_own(&self, object: &DirectObject, index: u64) -> Result<(), StoreError> {
        self.stage(object, index).or_else(|()| object.take_error())
    }

    /// Loop of the write-back thread.
    pub(super) fn stage_in_background(&self) {
        loop {
            let mut order = lock(&self.staging.order);
            while *order == StagingOrder::Rest {
                order =
                    self.staging.wake.wait(order).expect("another thread panicked while it held this lock");
            }
            if *order == StagingOrder::Stop {
                return;
            }
            *order = StagingOrder::Rest;
            drop(order);
            while self.stage_oldest() {}
        }
    }

    pub(super) fn wake_stager(&self) {
        let mut order = lock(&self.staging.order);
        if *order == StagingOrder::Rest {
            *order = StagingOrder::Stage;
            self.staging.wake.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        *lock(&self.staging.order) = StagingOrder::Stop;
        self.staging.wake.notify_one();
    }

    /// One step of the write-back; returns whether more work is left.
    fn stage_oldest(&self) -> bool {
        let oldest = {
            let ledger = lock(&self.ledger);
            if ledger.dirty_blocks() <= self.staging.low_blocks {
                return false;
            }
            let freed = self.freed.load(Ordering::Acquire);
            ledger.oldest_dirty(|object| !object.waits_for_room(freed))
        };
        let Some((object, index)) = oldest else { return false };
        match object.gate.enter() {
            Some(_inside) => _ = self.stage(&object, index),
            // It is being truncated or removed: wait for that.
            None => drop(lock(&self.names)),
        }
        *lock(&self.staging.order) != StagingOrder::Stop
    }

    fn flush_blocks(
        &self,
        object: &DirectObject,
        run: &[(u64, SharedDirectBlock)],
    ) -> Result<(), StoreError> {
        let locked = run.iter().map(|(index, block)| (*index, lock(block)));
        let mut blocks: Vec<_> = locked.filter(|(_, block)| 0 < block.dirty_bytes()).collect();
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(()) };
        let range = start_of(first.0)..start_of(last.0 + 1);
        let length = object.length();
        let writes =
            self.on_disk(object.id, Doing::Writing, range, |open| write_out(open, &mut blocks, length))?;
        let mut ledger = lock(&self.ledger);
        for (index, block) in &mut blocks {
            self.staging.staged_bytes.fetch_add(block.dirty_bytes(), Ordering::Relaxed);
            block.flushed();
            ledger.set_dirty(DirectKey { object: object.id, index: *index }, 0);
        }
        self.staging.staged_writes.fetch_add(writes, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, object: &DirectObject, run: &[(u64, SharedDirectBlock)]) {
        for (index, block) in run {
            let mut block = lock(block);
            block.discard();
            lock(&self.ledger).set_dirty(DirectKey { object: object.id, index: *index }, 0);
        }
    }
}

/// Runs of contiguous blocks, at most [`RUN_BLOCKS_MAX`] each.
fn runs(blocks: &[(u64, SharedDirectBlock)]) -> impl Iterator<Item = &[(u64, SharedDirectBlock)]> {
    let adjacent = blocks.chunk_by(|a, b| a.0 + 1 == b.0);
    adjacent.flat_map(|run| run.chunks(usize::try_from(RUN_BLOCKS_MAX).expect("small")))
}

/// Writes the blocks' dirty bytes, widened to whole sectors but not past `length`; returns the number of writes.
fn write_out(
    open: &OpenObject,
    blocks: &mut [(u64, MutexGuard<'_, DirectBlock>)],
    length: u64,
) -> io::Result<u64> {
    let direct = open.direct.as_deref().expect("opened for direct use");
    let mut parts: Vec<(usize, Span)> = Vec::new();
    for (place, (index, block)) in blocks.iter_mut().enumerate() {
        let spans = block.prepare_flush(direct, start_of(*index))?;
        parts.extend(spans.into_iter().map(|span| (place, span)));
    }
    let (writes, tail) = plan(blocks, parts, length);
    for write in &writes {
        direct.write_pieces_at(&write.pieces, write.at)?;
    }
    if let Some(tail) = &tail {
        open.plain.write_pieces_at(&tail.pieces, tail.at)?;
    }
    Ok((writes.len() + usize::from(tail.is_some())) as u64)
}

/// Joins adjacent parts into vectored writes; the part of the object's last sector before `length` is separate, as the tail.
fn plan<'a>(
    blocks: &'a [(u64, MutexGuard<'_, DirectBlock>)],
    parts: Vec<(usize, Span)>,
    length: u64,
) -> (Vec<VectoredWrite<'a>>, Option<VectoredWrite<'a>>) {
    let mut writes: Vec<VectoredWrite<'a>> = Vec::new();
    let mut tail = None;
    for (place, span) in parts {
        let (index, block) = &blocks[place];
        let at = start_of(*index) + span.start as u64;
        let beyond = (at + span.len() as u64).saturating_sub(length);
        let mut piece = MemoryPiece::from(&block.data[span]);
        if 0 < beyond {
            let kept = piece.len() - usize::try_from(beyond).expect("less than a sector lies beyond the end");
            let aligned = kept / ALIGNMENT * ALIGNMENT;
            let (whole, rest) = piece.split_at(kept).0.split_at(aligned);
            tail = Some(VectoredWrite { at: at + aligned as u64, end: length, pieces: vec![rest] });
            piece = whole;
        }
        let end = at + piece.len() as u64;
        match writes.last_mut() {
            _ if piece.is_empty() => {}
            Some(last) if last.end == at => {
                last.pieces.push(piece);
                last.end = end;
            }
            _ => writes.push(VectoredWrite { at, end, pieces: vec![piece] }),
        }
    }
    (writes, tail)
}
