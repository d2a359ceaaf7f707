//! One plain file at one server: the blocks that it is home of, copied in and out, written down and cut.
//!
//! ```text
//!  object (local offsets) ── layout ──► file offsets ──► blocks of the cache ──► one vectored write per run of dirty bytes
//! ```
//! Never: writes a byte that nobody wrote here; looks for room while it holds the gate. Always: an access that goes past the cache has
//! the file for itself, and the blocks that it touches are written down and gone before.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_sys::Piece;

use super::ahead::Streams;
use super::core::Core;
use super::first_touch::Touch;
use super::plain::Plain;
use crate::cache::{Key, SharedBlock};
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::ranges::Span;
use crate::source::Source;
use crate::sync::lock;

/// The part of the pool that a block read ahead may take.
const AHEAD_SHARE: u64 = 8;
/// No length is on its way.
pub(super) const NONE: u64 = u64::MAX;

/// What keeps accesses apart from cuts, from accesses past the cache, and from the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) generation: Generation,
    pub(super) is_closed: bool,
}

/// How a file lies on the servers, and this server's part.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Which server this is.
    pub server: ServerIndex,
    /// How blocks are dealt.
    pub layout: Layout,
    /// Bytes of a block of the cache; divides the layout's stripe.
    pub block_bytes: u64,
    /// Where blocks are cached by whoever touched them first: how they are dealt to the servers that know whose they are. The layout
    /// then has all of the file at this server.
    pub homes: Option<Layout>,
    /// Whoever overwrites a block as a whole gets it, if blocks have no fixed place.
    pub follows: bool,
    /// Nothing is kept: the kernel's cache is the one cache of the only node, and the plain file is lent to its processes.
    pub direct: bool,
}

impl Place {
    /// What must be the same each time that a file is opened.
    pub(super) fn kind(&self) -> (bool, bool) {
        (self.homes.is_some(), self.follows)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct SharedFile {
    pub(super) inode: InodeId,
    pub(super) place: Place,
    pub(super) plain: Plain,
    pub(super) gate: RwLock<Gate>,
    /// Of the object: one past the last byte that it has.
    pub(super) length: AtomicU64,
    /// The file's length that a cut under way leads to: the object's own part of it does not say.
    pub(super) coming: AtomicU64,
    pub(super) error: Mutex<Option<StoreError>>,
    pub(super) opens: AtomicU64,
    pub(super) streams: Mutex<Streams>,
    pub(super) touch: Option<Touch>,
}

/// A part of an access that lies in one block.
pub(super) struct Part {
    pub(super) key: Key,
    /// Where the block begins in the file.
    pub(super) start: u64,
    pub(super) span: Span,
}

impl SharedFile {
    pub(super) fn new(
        inode: InodeId,
        place: Place,
        (plain, touch): (Plain, Option<Touch>),
        file_bytes: u64,
    ) -> SharedFile {
        let length = place.layout.local_length(place.server, file_bytes);
        SharedFile {
            inode,
            place,
            plain,
            gate: RwLock::new(Gate { generation: Generation::default(), is_closed: false }),
            length: AtomicU64::new(length),
            coming: AtomicU64::new(NONE),
            error: Mutex::default(),
            opens: AtomicU64::new(0),
            streams: Mutex::default(),
            touch,
        }
    }

    pub(super) fn id(&self) -> ObjectId {
        ObjectId { inode: self.inode, generation: self.read_gate().generation }
    }

    pub(super) fn length(&self) -> u64 {
        let known = self.length.load(Ordering::Acquire);
        // Those that it is lent to lengthen it themselves.
        if self.place.direct { self.plain.length().max(known) } else { known }
    }

    /// The file is known to have so many bytes.
    pub(super) fn grow_to(&self, file_bytes: u64) {
        let local = self.place.layout.local_length(self.place.server, file_bytes);
        self.length.fetch_max(local, Ordering::AcqRel);
    }

    /// A cut to this length is on its way.
    pub(super) fn announce(&self, file_bytes: u64) {
        self.coming.store(file_bytes, Ordering::Release);
    }

    /// Writes to blocks of this server's. False: late, of a file that was cut since, so that nobody can ask for it any more.
    pub(super) fn write_here(
        &self,
        core: &Core,
        generation: Generation,
        at: u64,
        pieces: &[Piece<'_>],
    ) -> Result<bool, StoreError> {
        let range = at..at.saturating_add(total_bytes(pieces));
        if range.is_empty() {
            return Ok(true);
        }
        self.check_reach(&range)?;
        if self.place.direct {
            return self.write_below(generation, range, pieces);
        }
        let Some(mut room) = core.reserve(self.room(&range)) else {
            return self.write_straight(core, generation, range, pieces);
        };
        let gate = self.open_gate()?;
        if generation < gate.generation {
            return Ok(false);
        }
        let mut source = Source::new(pieces);
        for part in self.parts(range.clone()) {
            let Some(block) = room.pin(part.key, self.block_bytes()) else {
                drop((gate, room));
                return self.write_straight(core, generation, range, pieces);
            };
            let mut block = lock(&block);
            source.copy_to(block.overwrite(part.span));
            core.written(part.key);
        }
        self.length.fetch_max(range.end, Ordering::AcqRel);
        Ok(true)
    }

    /// Reads from blocks of this server's; `ahead`: the next ones are fetched too.
    pub(super) fn read_here(
        &self,
        core: &Core,
        (generation, at): (Generation, u64),
        target: &mut [u8],
        ahead: bool,
    ) -> Result<usize, StoreError> {
        // Where blocks have no fixed place others may have written behind what is known here.
        let known = if self.touch.is_some() { u64::MAX } else { self.length() };
        let range = at..at.saturating_add(target.len() as u64).min(known);
        if range.is_empty() {
            return Ok(0);
        }
        let count = usize::try_from(range.end - range.start).expect("within the target");
        let target = &mut target[..count];
        if self.place.direct {
            return self.read_below(generation, range, target);
        }
        let Some(mut room) = core.reserve(self.room(&range)) else {
            return self.read_straight(core, generation, range, target);
        };
        let gate = self.open_gate()?;
        if generation < gate.generation {
            return Ok(0);
        }
        let mut filled = 0;
        for part in self.parts(range.clone()) {
            let Some(block) = room.pin(part.key, self.block_bytes()) else {
                drop((gate, room));
                return self.read_straight(core, generation, range, target);
            };
            let into = &mut target[filled..filled + part.span.len()];
            filled += into.len();
            let known = self.fetch(&block, &part)?;
            core.counts.looked(known);
            into.copy_from_slice(lock(&block).bytes(part.span));
        }
        drop((gate, room));
        if ahead {
            core.look_ahead(self, self.blocks(&range));
        }
        Ok(count)
    }

    /// Sees to it that what a part needs of its block is known; whether it was already.
    fn fetch(&self, block: &SharedBlock, part: &Part) -> Result<bool, StoreError> {
        let mut block = lock(block);
        if block.knows(&part.span) {
            return Ok(true);
        }
        block.fetch(|target| self.plain.read(target, part.start))?;
        Ok(false)
    }

    /// Brings a block in that nobody asked for yet, if there is room for it at once.
    pub(super) fn fetch_ahead(&self, core: &Core, index: u64) {
        let bytes = self.place.block_bytes;
        let range =
            index.saturating_mul(bytes)..(index.saturating_add(1).saturating_mul(bytes)).min(self.length());
        // In a small pool it would throw out what is in use.
        if range.is_empty() || core.pool.limit() / AHEAD_SHARE < bytes {
            return;
        }
        let own = self.own_block(core, index);
        if self.touch.is_some() && own.is_none() {
            return;
        }
        let room = core.pool.reserve_at_once(bytes);
        core.see_to_gone();
        let Some(mut room) = room else { return };
        let Ok(_gate) = self.open_gate() else { return };
        for part in self.parts(range) {
            let Some(block) = room.pin(part.key, self.block_bytes()) else { return };
            // Whoever wants it meets the error.
            if let Ok(false) = self.fetch(&block, &part) {
                core.counts.ahead.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether a block is there.
    pub(super) fn has_block(&self, core: &Core, index: u64) -> bool {
        let start = index.saturating_mul(self.place.block_bytes);
        let part = self.parts(start..start.saturating_add(1)).next();
        part.is_some_and(|part| core.pool.state().ledger.find(part.key).is_some())
    }

    pub(super) fn block_bytes(&self) -> usize {
        usize::try_from(self.place.block_bytes).expect("a block fits into memory")
    }

    /// Memory for all blocks that a range touches.
    fn room(&self, range: &Range<u64>) -> u64 {
        let blocks = self.blocks(range);
        (blocks.end - blocks.start).saturating_mul(self.place.block_bytes)
    }

    /// Numbers of the blocks that a range of the object touches, among the object's.
    pub(super) fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.place.block_bytes..range.end.div_ceil(self.place.block_bytes)
    }

    /// The blocks that a range of the object touches.
    pub(super) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part> + '_ {
        let bytes = self.place.block_bytes;
        self.blocks(&range).filter_map(move |number| {
            let local = number * bytes;
            let start = self.place.layout.file_offset(self.place.server, LocalOffset(local))?;
            let within =
                |at: u64| usize::try_from(at.clamp(local, local + bytes) - local).expect("within a block");
            let span = within(range.start)..within(range.end);
            Some(Part { key: Key { inode: self.inode, index: start / bytes }, start, span })
        })
    }

    /// Where a range of the object lies in the file, in parts as long as can be.
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
        let last = self.place.layout.file_offset(self.place.server, LocalOffset(range.end - 1));
        match last {
            Some(last) if last < FILE_BYTES_MAX => Ok(()),
            Some(_) | None => Err(StoreError::TooLarge { object: self.id(), range: range.clone() }),
        }
    }

    fn read_gate(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open_gate(&self) -> Result<RwLockReadGuard<'_, Gate>, StoreError> {
        let gate = self.read_gate();
        if gate.is_closed { Err(self.closed()) } else { Ok(gate) }
    }

    pub(super) fn gate_alone(&self) -> Result<RwLockWriteGuard<'_, Gate>, StoreError> {
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if gate.is_closed { Err(self.closed()) } else { Ok(gate) }
    }

    fn closed(&self) -> StoreError {
        StoreError::Below(Fault::new(Code::Stale, format!("{} is closed", self.plain.path().display())))
    }
}

/// A file that several requests work on.
pub(super) type Shared = Arc<SharedFile>;
