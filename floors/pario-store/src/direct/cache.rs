//! The cache itself: finds blocks, frees memory for them, copies in and out.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use pario_core::ObjectId;
use pario_core::limits::FILE_BYTES_MAX;
use pario_sys::{AlignedBuffer, MemoryPiece};

use super::block::{BLOCK_BYTES, DirectBlock};
use super::ledger::{DirectKey, DirectLedger, SharedDirectBlock};
use super::object::DirectObject;
use super::{BLOCKS_MIN, DirectSettings};
use crate::directory::{ObjectDirectory, OpenObject, OpenWant};
use crate::error::{Doing, StoreError};
use crate::files::total_bytes;
use crate::ranges::Span;
use crate::source::PieceReader;
use crate::store::StoreStats;
use crate::sync::{StoreCounters, lock};

/// Attempts to find a free block while all are in use, before the limit is exceeded by one block.
const IN_USE_TRIES: usize = 200;

#[derive(Debug)]
pub(super) struct DirectCache {
    pub(super) directory: ObjectDirectory,
    pub(super) ledger: Mutex<DirectLedger>,
    /// Held while an object gets its entry, or is truncated or removed.
    pub(super) names: Mutex<()>,
    /// Truncations and removals so far: each may have freed space on the disk.
    pub(super) freed: AtomicU64,
    pub(super) counters: StoreCounters,
    pub(super) staging: Staging,
    blocks_max: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Staging {
    pub(super) high_blocks: usize,
    pub(super) low_blocks: usize,
    pub(super) order: Mutex<StagingOrder>,
    pub(super) wake: Condvar,
    pub(super) staged_bytes: AtomicU64,
    pub(super) staged_writes: AtomicU64,
}

/// Next action of the write-back thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StagingOrder {
    Rest,
    Stage,
    Stop,
}

impl DirectCache {
    pub(super) fn new(directory: ObjectDirectory, settings: DirectSettings) -> DirectCache {
        let blocks = |bytes: u64| usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        let blocks_max = blocks(settings.cache_bytes).max(BLOCKS_MIN);
        let high_blocks = blocks(settings.high_bytes).clamp(1, blocks_max);
        let low_blocks = blocks(settings.low_bytes).min(high_blocks - 1);
        DirectCache {
            directory,
            ledger: Mutex::default(),
            names: Mutex::default(),
            freed: AtomicU64::new(0),
            counters: StoreCounters::default(),
            staging: Staging {
                high_blocks,
                low_blocks,
                order: Mutex::new(StagingOrder::Rest),
                wake: Condvar::new(),
                staged_bytes: AtomicU64::new(0),
                staged_writes: AtomicU64::new(0),
            },
            blocks_max,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(super) fn write(&self, id: ObjectId, at: u64, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        let end = at.saturating_add(total_bytes(pieces));
        if FILE_BYTES_MAX < end {
            return Err(StoreError::TooLarge { object: id, range: at..end });
        }
        self.with_object(id, OpenWant::Made, |object| {
            object.take_error()?;
            let mut source = PieceReader::new(pieces);
            for (index, span) in spans(at..end) {
                self.write_block(object, index, span, &mut source)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    fn write_block(
        &self,
        object: &DirectObject,
        index: u64,
        span: Span,
        source: &mut PieceReader<'_>,
    ) -> Result<(), StoreError> {
        let key = DirectKey { object: object.id, index };
        let shared = self.pin_or_add(object, key)?;
        let mut block = lock(&shared);
        let end = start_of(index) + span.end as u64;
        source.copy_to(block.overwrite(span));
        object.grow(end);
        let mut ledger = lock(&self.ledger);
        ledger.set_dirty(key, block.dirty_bytes());
        if self.staging.high_blocks <= ledger.dirty_blocks() {
            drop(ledger);
            self.wake_stager();
        }
        Ok(())
    }

    pub(super) fn read(&self, id: ObjectId, at: u64, target: &mut [u8]) -> Result<usize, StoreError> {
        let read = self.with_object(id, OpenWant::Existing, |object| {
            let end = at.saturating_add(target.len() as u64).min(object.length());
            let mut filled = 0;
            for (index, span) in spans(at..end) {
                let part = &mut target[filled..filled + span.len()];
                filled += span.len();
                self.read_block(object, index, span, part)?;
            }
            Ok(filled)
        })?;
        Ok(read.unwrap_or(0))
    }

    fn read_block(
        &self,
        object: &DirectObject,
        index: u64,
        span: Span,
        target: &mut [u8],
    ) -> Result<(), StoreError> {
        let key = DirectKey { object: object.id, index };
        let shared = match self.pin_or_add(object, key) {
            Ok(shared) => shared,
            // The disk is full, so no block could be freed: this fails writers, not readers.
            Err(_) => Arc::new(Mutex::new(DirectBlock::new(None))),
        };
        let mut block = lock(&shared);
        if block.knows(&span) {
            self.hits.fetch_add(1, Ordering::Relaxed);
        } else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            let start = start_of(index);
            let range = start + span.start as u64..start + span.end as u64;
            self.on_disk(object.id, Doing::Reading, range, |open| {
                let file = open.direct.as_deref().expect("opened for direct use");
                block.fetch(file, start)
            })?;
        }
        target.copy_from_slice(&block.data[span]);
        Ok(())
    }

    pub(super) fn length(&self, id: ObjectId) -> Result<Option<u64>, StoreError> {
        loop {
            let Some(object) = lock(&self.ledger).object(id) else { return self.directory.length(id) };
            if let Some(_inside) = object.gate.enter() {
                return Ok(Some(object.length()));
            }
            self.wait_for_names();
        }
    }

    /// Runs `work` on the object, which is neither truncated nor removed meanwhile. `None`: there is no such object.
    pub(super) fn with_object<T>(
        &self,
        id: ObjectId,
        want: OpenWant,
        mut work: impl FnMut(&DirectObject) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        loop {
            let found = lock(&self.ledger).object(id);
            let Some(object) = found.map_or_else(|| self.load(id, want), |object| Ok(Some(object)))? else {
                return Ok(None);
            };
            if let Some(_inside) = object.gate.enter() {
                return work(&object).map(Some);
            }
            self.wait_for_names();
        }
    }

    /// Runs `work` on the object's files.
    pub(super) fn on_disk<T>(
        &self,
        id: ObjectId,
        doing: Doing,
        range: Range<u64>,
        mut work: impl FnMut(&OpenObject) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let root = self.directory.root();
        let want = if doing == Doing::Writing { OpenWant::ExistingForWriting } else { OpenWant::Existing };
        let done = self.directory.with(id, want, |open| {
            work(open).map_err(|e| StoreError::from_io(e, doing, id, range.clone(), root))
        })?;
        // The cache has an entry, so the file existed: another program removed it.
        done.ok_or_else(|| StoreError::from_io(io::ErrorKind::NotFound.into(), doing, id, range, root))
    }

    pub(super) fn stats(&self) -> StoreStats {
        let ledger = lock(&self.ledger);
        StoreStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            cached_bytes: (ledger.blocks() * BLOCK_BYTES) as u64,
            dirty_bytes: ledger.dirty_bytes(),
            staged_bytes: self.staging.staged_bytes.load(Ordering::Relaxed),
            staged_writes: self.staging.staged_writes.load(Ordering::Relaxed),
            ..self.counters.stats()
        }
    }

    fn load(&self, id: ObjectId, want: OpenWant) -> Result<Option<Arc<DirectObject>>, StoreError> {
        let _names = lock(&self.names);
        if let Some(object) = lock(&self.ledger).object(id) {
            return Ok(Some(object));
        }
        let length = match (self.directory.length(id)?, want) {
            (Some(length), _) => length,
            (None, OpenWant::Existing | OpenWant::ExistingForWriting) => return Ok(None),
            (None, OpenWant::Made) => {
                self.directory.with(id, OpenWant::Made, |_| Ok(()))?;
                0
            }
        };
        let object = Arc::new(DirectObject::new(id, length));
        lock(&self.ledger).insert_object(Arc::clone(&object));
        Ok(Some(object))
    }

    /// Waits until a closing thread has installed the new state.
    fn wait_for_names(&self) {
        drop(lock(&self.names));
    }

    fn pin_or_add(&self, object: &DirectObject, key: DirectKey) -> Result<SharedDirectBlock, StoreError> {
        if let Some(shared) = lock(&self.ledger).pin(key) {
            return Ok(shared);
        }
        let memory = self.make_room(object, key.index)?;
        Ok(lock(&self.ledger).add(key, DirectBlock::new(memory)))
    }

    /// Memory for one more block: reused, or new (`None`). Writes back dirty blocks if no clean one can be evicted.
    fn make_room(&self, own: &DirectObject, index: u64) -> Result<Option<AlignedBuffer>, StoreError> {
        let mut skipped: Vec<ObjectId> = Vec::new();
        for tries in 0.. {
            let (candidate, dirty_blocks) = {
                let mut ledger = lock(&self.ledger);
                if ledger.blocks() < self.blocks_max {
                    return Ok(None);
                }
                if let Some(memory) = ledger.evict() {
                    // Return to the limit after it was exceeded.
                    while self.blocks_max <= ledger.blocks() && ledger.evict().is_some() {}
                    return Ok(Some(memory));
                }
                let freed = self.freed.load(Ordering::Acquire);
                let passes = |o: &DirectObject| !skipped.contains(&o.id) && !o.waits_for_room(freed);
                (ledger.oldest_dirty(passes), ledger.dirty_blocks())
            };
            match candidate {
                Some((object, dirty)) if object.id == own.id => self.stage_own(own, dirty)?,
                // Only tries the gate: two writers that wait for each other's gates would deadlock.
                Some((object, dirty)) => match object.gate.try_enter() {
                    Some(_inside) => _ = self.stage(&object, dirty),
                    None => skipped.push(object.id),
                },
                None if skipped.is_empty() && 0 < dirty_blocks => {
                    let start = start_of(index);
                    return Err(StoreError::Full {
                        object: own.id,
                        range: start..start + BLOCK_BYTES as u64,
                    });
                }
                // All blocks are in use. If that lasts, exceed the limit by one block instead of a deadlock.
                None if tries < IN_USE_TRIES => std::thread::yield_now(),
                None => return Ok(None),
            }
        }
        unreachable!("the loop ends by returning")
    }
}

/// Offset of a block in its object.
pub(super) fn start_of(index: u64) -> u64 {
    index * BLOCK_BYTES as u64
}

/// The blocks that a range touches, with the touched part of each.
fn spans(range: Range<u64>) -> impl Iterator<Item = (u64, Span)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if range.end <= at {
            return None;
        }
        let index = at / BLOCK_BYTES as u64;
        let start = start_of(index);
        let end = range.end.min(start + BLOCK_BYTES as u64);
        let within = |offset: u64| usize::try_from(offset - start).expect("within a block");
        let span = within(at)..within(end);
        at = end;
        Some((index, span))
    })
}
