//! One plain file at one server: its cached blocks, copied in and out, written back and truncated.
//!
//! ```text
//!  object (local offsets) ── layout ──► file offsets ──► blocks of the cache ──► one vectored write per run of dirty bytes
//! ```
//! Never: writes a byte that was not written here; reserves memory while it holds the gate. Always: an uncached access has the file
//! exclusively, after the blocks that it touches were written back and evicted.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_sys::MemoryPiece;

use super::core::Core;
use super::placement::DynamicPlacement;
use super::plain::PlainHandle;
use super::read_ahead::ReadStreams;
use crate::cache::{BlockKey, SharedBlock};
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::ranges::Span;
use crate::source::PieceReader;
use crate::sync::lock;

/// Divisor of the pool: largest part of it that one prefetched block may use.
const PREFETCH_SHARE: u64 = 8;
/// No truncation is announced.
pub(super) const NO_LENGTH: u64 = u64::MAX;

/// Separates accesses from truncations, from uncached accesses, and from the close.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileGate {
    pub(super) generation: Generation,
    pub(super) is_closed: bool,
}

/// Placement of a file's blocks on the servers, and this server's part.
#[derive(Clone, Copy, Debug)]
pub struct CachePlacement {
    /// The index of this server.
    pub server: ServerIndex,
    /// Layout of the blocks on the servers.
    pub layout: Layout,
    /// Bytes of a block of the cache; divides the layout's stripe.
    pub block_bytes: u64,
    /// First-touch placement: layout of the blocks' homes, the servers that record their owners. `layout` then has the whole file at this
    /// server.
    pub homes: Option<Layout>,
    /// Last-writer placement: a server that overwrites a whole block becomes its owner. Only with first-touch placement.
    pub follows_writers: bool,
    /// Nothing is cached here: one node only, its kernel page cache is used, and the plain file is lent to the processes.
    pub direct: bool,
}

impl CachePlacement {
    /// Properties that must be equal at every open of a file.
    pub(super) fn kind(&self) -> (bool, bool) {
        (self.homes.is_some(), self.follows_writers)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) inode: InodeId,
    pub(super) placement: CachePlacement,
    pub(super) plain: PlainHandle,
    pub(super) gate: RwLock<FileGate>,
    /// Of the object: one past its last byte.
    pub(super) length: AtomicU64,
    /// File length after the truncation in progress; the object's length does not imply it.
    pub(super) announced_length: AtomicU64,
    pub(super) error: Mutex<Option<StoreError>>,
    pub(super) opens: AtomicU64,
    pub(super) streams: Mutex<ReadStreams>,
    pub(super) dynamic: Option<DynamicPlacement>,
}

/// Part of an access that lies in one block.
pub(super) struct BlockPart {
    pub(super) key: BlockKey,
    /// File offset of the block.
    pub(super) start: u64,
    pub(super) span: Span,
}

impl CachedFile {
    pub(super) fn new(
        inode: InodeId,
        place: CachePlacement,
        (plain, touch): (PlainHandle, Option<DynamicPlacement>),
        file_bytes: u64,
    ) -> CachedFile {
        let length = place.layout.local_length(place.server, file_bytes);
        CachedFile {
            inode,
            placement: place,
            plain,
            gate: RwLock::new(FileGate { generation: Generation::default(), is_closed: false }),
            length: AtomicU64::new(length),
            announced_length: AtomicU64::new(NO_LENGTH),
            error: Mutex::default(),
            opens: AtomicU64::new(0),
            streams: Mutex::default(),
            dynamic: touch,
        }
    }

    pub(super) fn id(&self) -> ObjectId {
        ObjectId { inode: self.inode, generation: self.read_gate().generation }
    }

    pub(super) fn length(&self) -> u64 {
        let known = self.length.load(Ordering::Acquire);
        // Processes with the lent file extend it themselves.
        if self.placement.direct { self.plain.length().max(known) } else { known }
    }

    /// Records that the file has at least `file_bytes`.
    pub(super) fn grow_to(&self, file_bytes: u64) {
        let local = self.placement.layout.local_length(self.placement.server, file_bytes);
        self.length.fetch_max(local, Ordering::AcqRel);
    }

    /// Announces a truncation to this length.
    pub(super) fn announce_truncation(&self, file_bytes: u64) {
        self.announced_length.store(file_bytes, Ordering::Release);
    }

    /// Writes to blocks cached here. False: stale, from before a truncation, so that no reader can see it.
    pub(super) fn write_here(
        &self,
        core: &Core,
        generation: Generation,
        at: u64,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<bool, StoreError> {
        let range = at..at.saturating_add(total_bytes(pieces));
        if range.is_empty() {
            return Ok(true);
        }
        self.check_reach(&range)?;
        if self.placement.direct {
            return self.write_below(generation, range, pieces);
        }
        let Some(mut room) = core.reserve(self.reservation_bytes(&range)) else {
            return self.write_uncached(core, generation, range, pieces);
        };
        let gate = self.open_gate()?;
        if generation < gate.generation {
            return Ok(false);
        }
        let mut source = PieceReader::new(pieces);
        for part in self.parts(range.clone()) {
            let Some(block) = room.pin(part.key, self.block_bytes()) else {
                drop((gate, room));
                return self.write_uncached(core, generation, range, pieces);
            };
            let mut block = lock(&block);
            source.copy_to(block.overwrite(part.span));
            core.written(part.key);
        }
        self.length.fetch_max(range.end, Ordering::AcqRel);
        Ok(true)
    }

    /// Reads from blocks cached here; `ahead`: prefetches the following ones.
    pub(super) fn read_here(
        &self,
        core: &Core,
        (generation, at): (Generation, u64),
        target: &mut [u8],
        ahead: bool,
    ) -> Result<usize, StoreError> {
        // With dynamic placement other servers may have written beyond the length known here.
        let known = if self.dynamic.is_some() { u64::MAX } else { self.length() };
        let range = at..at.saturating_add(target.len() as u64).min(known);
        if range.is_empty() {
            return Ok(0);
        }
        let count = usize::try_from(range.end - range.start).expect("within the target");
        let target = &mut target[..count];
        if self.placement.direct {
            return self.read_below(generation, range, target);
        }
        let Some(mut room) = core.reserve(self.reservation_bytes(&range)) else {
            return self.read_uncached(core, generation, range, target);
        };
        let gate = self.open_gate()?;
        if generation < gate.generation {
            return Ok(0);
        }
        let mut filled = 0;
        for part in self.parts(range.clone()) {
            let Some(block) = room.pin(part.key, self.block_bytes()) else {
                drop((gate, room));
                return self.read_uncached(core, generation, range, target);
            };
            let into = &mut target[filled..filled + part.span.len()];
            filled += into.len();
            let known = self.fetch(&block, &part)?;
            core.counts.count_lookup(known);
            into.copy_from_slice(lock(&block).bytes(part.span));
        }
        drop((gate, room));
        if ahead {
            core.queue_prefetch(self, self.blocks(&range));
        }
        Ok(count)
    }

    /// Ensures that the block has the bytes that a part needs; returns whether it had them.
    fn fetch(&self, block: &SharedBlock, part: &BlockPart) -> Result<bool, StoreError> {
        let mut block = lock(block);
        if block.knows(&part.span) {
            return Ok(true);
        }
        block.fetch(|target| self.plain.read(target, part.start))?;
        Ok(false)
    }

    /// Prefetches a block, if memory for it is free without waiting.
    pub(super) fn prefetch(&self, core: &Core, index: u64) {
        let bytes = self.placement.block_bytes;
        let range =
            index.saturating_mul(bytes)..(index.saturating_add(1).saturating_mul(bytes)).min(self.length());
        // In a small pool it would evict blocks in use.
        if range.is_empty() || core.pool.limit() / PREFETCH_SHARE < bytes {
            return;
        }
        let own = self.own_block(core, index);
        if self.dynamic.is_some() && own.is_none() {
            return;
        }
        let room = core.pool.try_reserve(bytes);
        core.give_back_evicted();
        let Some(mut room) = room else { return };
        let Ok(_gate) = self.open_gate() else { return };
        for part in self.parts(range) {
            let Some(block) = room.pin(part.key, self.block_bytes()) else { return };
            // The reader that needs the block meets the error.
            if let Ok(false) = self.fetch(&block, &part) {
                core.counts.prefetched.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether a block is cached.
    pub(super) fn has_block(&self, core: &Core, index: u64) -> bool {
        let start = index.saturating_mul(self.placement.block_bytes);
        let part = self.parts(start..start.saturating_add(1)).next();
        part.is_some_and(|part| core.pool.state().ledger.find(part.key).is_some())
    }

    pub(super) fn block_bytes(&self) -> usize {
        usize::try_from(self.placement.block_bytes).expect("a block fits into memory")
    }

    /// Memory for all blocks that a range touches.
    fn reservation_bytes(&self, range: &Range<u64>) -> u64 {
        let blocks = self.blocks(range);
        (blocks.end - blocks.start).saturating_mul(self.placement.block_bytes)
    }

    /// Indexes of the object's blocks that a range of the object touches.
    pub(super) fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.placement.block_bytes..range.end.div_ceil(self.placement.block_bytes)
    }

    /// The blocks that a range of the object touches.
    pub(super) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = BlockPart> + '_ {
        let bytes = self.placement.block_bytes;
        self.blocks(&range).filter_map(move |number| {
            let local = number * bytes;
            let start = self.placement.layout.file_offset(self.placement.server, LocalOffset(local))?;
            let within =
                |at: u64| usize::try_from(at.clamp(local, local + bytes) - local).expect("within a block");
            let span = within(range.start)..within(range.end);
            Some(BlockPart { key: BlockKey { inode: self.inode, index: start / bytes }, start, span })
        })
    }

    /// File offsets of a range of the object, in runs as long as possible.
    pub(super) fn runs(&self, range: Range<u64>) -> Vec<(u64, usize)> {
        let mut runs: Vec<(u64, usize)> = Vec::new();
        for part in self.parts(range) {
            let (at, bytes) = (part.start + part.span.start as u64, part.span.len());
            match runs.last_mut() {
                Some((last, count)) if *last + *count as u64 == at => *count += bytes,
                _ => runs.push((at, bytes)),
            }
        }
        runs
    }

    pub(super) fn check_reach(&self, range: &Range<u64>) -> Result<(), StoreError> {
        let last = self.placement.layout.file_offset(self.placement.server, LocalOffset(range.end - 1));
        match last {
            Some(last) if last < FILE_BYTES_MAX => Ok(()),
            Some(_) | None => Err(StoreError::TooLarge { object: self.id(), range: range.clone() }),
        }
    }

    fn read_gate(&self) -> RwLockReadGuard<'_, FileGate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open_gate(&self) -> Result<RwLockReadGuard<'_, FileGate>, StoreError> {
        let gate = self.read_gate();
        if gate.is_closed { Err(self.closed()) } else { Ok(gate) }
    }

    pub(super) fn exclusive_gate(&self) -> Result<RwLockWriteGuard<'_, FileGate>, StoreError> {
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if gate.is_closed { Err(self.closed()) } else { Ok(gate) }
    }

    fn closed(&self) -> StoreError {
        StoreError::Below(Fault::new(Code::Stale, format!("{} is closed", self.plain.path().display())))
    }
}

/// A file shared by several requests.
pub(super) type CachedFileRef = Arc<CachedFile>;
