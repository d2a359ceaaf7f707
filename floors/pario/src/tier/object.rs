//! One file at one tier-1 server: the blocks that it is home of, and the lease under which they are kept.
//!
//! ```text
//!  taken from ranks ─► dirty ──(settle: a lease is held)──► counts for everybody ──(staging, recall, sync, close)──► partition
//! ```
//! Never: waits for a lease while it holds something that whoever gives one up needs; writes bytes to the partition that no rank wrote
//! here. Always: clean bytes are used only while the lease under which they were read has been held all the time; when a lease
//! goes back, everything that was taken under it is in the partition, or its error is kept; what is kept dirty is kept under an exclusive
//! lease, so that of two applications' writes the later one stays.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_core::{Code, Fault, Generation, InodeId, Layout, LocalOffset, ServerIndex};
use pario_net::message::{Phase, Want};
use pario_server::store::cache::{Key, SharedBlock};
use pario_sys::Piece;
use pario_sys::file_map::Scattered;

use super::flush::{RUN_BLOCKS_MAX, plan, together};
use super::lock;
use super::shared::Shared;
use crate::client::{Access, File, Guardian};

/// The lease under which blocks are kept: of this life of the manager's connection.
#[derive(Clone, Copy, Debug)]
struct Cover {
    epoch: u64,
    generation: Generation,
}

/// See the module.
pub(super) struct TierObject {
    inode: InodeId,
    server: ServerIndex,
    layout: Layout,
    block_bytes: u64,
    shared: Arc<Shared>,
    file: RwLock<Arc<File>>,
    /// Held for reading by whoever uses blocks, for writing by whoever changes what they are worth.
    cover: RwLock<Option<Cover>>,
    /// The lease is on its way back: ranks may not write behind any more.
    revoking: AtomicBool,
    /// Largest end of what ranks wrote and the file may not know of.
    written_end: AtomicU64,
    error: Mutex<Option<Fault>>,
    /// Staging failed: not tried again before somebody has heard of it.
    pub(super) is_stuck: AtomicBool,
    pub(super) opens: AtomicUsize,
    /// Its last name is gone: nobody can open it again.
    is_unlinked: AtomicBool,
    pub(super) is_written: AtomicBool,
}

impl std::fmt::Debug for TierObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TierObject").field("inode", &self.inode).finish_non_exhaustive()
    }
}

impl TierObject {
    /// A file that was opened for this server; `layout` deals its blocks to the tier.
    pub(super) fn new(
        file: File,
        server: ServerIndex,
        layout: Layout,
        shared: &Arc<Shared>,
    ) -> Arc<TierObject> {
        let object = Arc::new(TierObject {
            inode: file.inode(),
            server,
            layout,
            block_bytes: block_bytes(layout.stripe_bytes()),
            shared: Arc::clone(shared),
            file: RwLock::new(Arc::new(file)),
            cover: RwLock::default(),
            revoking: AtomicBool::new(false),
            written_end: AtomicU64::new(0),
            error: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            opens: AtomicUsize::new(0),
            is_unlinked: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
        });
        let guardian: Arc<dyn Guardian> = Arc::<TierObject>::clone(&object);
        object.file().set_guardian(Arc::downgrade(&guardian));
        object
    }

    /// Whether the next open can use what is kept. Without a lease there is nothing, and nobody tells us when the file is removed.
    pub(super) fn is_worth_keeping(&self) -> bool {
        !self.is_unlinked.load(Ordering::Acquire) && self.cover().is_some()
    }

    pub(super) fn inode(&self) -> InodeId {
        self.inode
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another handle of the same file, opened for what is wanted now. The old one is closed, and being not the last, keeps the lease.
    pub(super) fn replace_file(&self, file: File) -> Arc<File> {
        let mut place = self.file.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, Arc::new(file))
    }

    /// Takes what a rank wrote. It counts once [`TierObject::settle`] was called or a lease was held before.
    pub(super) fn write(&self, at: LocalOffset, pieces: &[Piece<'_>]) -> Result<(), Fault> {
        let mut at = at.0;
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let within = usize::try_from(at % self.block_bytes).expect("within a block");
                let room = usize::try_from(self.block_bytes).expect("a block fits into memory") - within;
                let (part, left) = rest.split_at(rest.len().min(room));
                self.shared.make_room(self.block_bytes);
                let _using = self.cover();
                self.write_block(at, part)?;
                at += part.len() as u64;
                rest = left;
            }
        }
        Ok(())
    }

    /// The same to places that ascend: what lies in one block at once.
    pub(super) fn write_scattered(&self, pieces: &[Scattered<'_>]) -> Result<(), Fault> {
        let block_of = |piece: &Scattered<'_>| {
            let within = piece.at % self.block_bytes;
            (within + piece.bytes.len() as u64 <= self.block_bytes).then_some(piece.at / self.block_bytes)
        };
        let is_together = |one: &Scattered<'_>, next: &Scattered<'_>| {
            block_of(one).is_some() && block_of(one) == block_of(next)
        };
        for some in pieces.chunk_by(is_together) {
            match some {
                [] => {}
                [one] => self.write(LocalOffset(one.at), &[Piece::from(one.bytes)])?,
                [first, .., last] => {
                    self.shared.make_room(self.block_bytes);
                    let _using = self.cover();
                    let (key, start) = self.block_at(first.at);
                    let end = self.file_offset(last.at)? + last.bytes.len() as u64;
                    let block = self.pin(key);
                    let mut block = lock(&block);
                    for piece in some {
                        let within = usize::try_from(piece.at - start).expect("within a block");
                        block.overwrite(within..within + piece.bytes.len()).copy_from_slice(piece.bytes);
                    }
                    self.shared.set_dirty(key);
                    self.written_end.fetch_max(end, Ordering::AcqRel);
                }
            }
        }
        Ok(())
    }

    /// The block that a place lies in, and where it starts.
    fn block_at(&self, at: u64) -> (Key, u64) {
        let index = at / self.block_bytes;
        (Key { inode: self.inode, index }, index * self.block_bytes)
    }

    fn write_block(&self, at: u64, part: Piece<'_>) -> Result<(), Fault> {
        let within = usize::try_from(at % self.block_bytes).expect("within a block");
        let key = Key { inode: self.inode, index: at / self.block_bytes };
        let end = self.file_offset(at)? + part.len() as u64;
        let block = self.pin(key);
        let mut block = lock(&block);
        part.copy_to(block.overwrite(within..within + part.len()));
        self.shared.set_dirty(key);
        self.written_end.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Sees to it that what was taken counts: a lease that allows writing is held, or the partition has it.
    pub(super) fn settle(&self) -> Result<(), Fault> {
        if self.is_settled() {
            return Ok(());
        }
        let file = self.file();
        let access = file.access(Want::Write {})?;
        self.note(&file, &access)
    }

    /// Whether a lease is held under which ranks may write behind.
    pub(super) fn is_settled(&self) -> bool {
        // Who changes it at this moment is asked again.
        let Ok(cover) = self.cover.try_read() else { return false };
        let file = self.file();
        let phase = held(&file, *cover).map(|access| access.phase);
        phase == Some(Phase::Exclusive {}) && !self.revoking.load(Ordering::Acquire)
    }

    /// Fills `target` up to the file's end; returns how many bytes there were.
    pub(super) fn read(&self, at: LocalOffset, target: &mut [u8]) -> Result<usize, Fault> {
        // Before the lock under which the blocks are used: room may come from other files.
        self.shared.make_room(self.block_bytes);
        if let Some(count) = self.read_kept(at, target)? {
            return Ok(count);
        }
        let file = self.file();
        let access = file.access(Want::Read {})?;
        self.note(&file, &access)?;
        if access.phase == (Phase::Mixed {}) {
            return self.read_through(&file, &access, at, target);
        }
        // Before the lease can be recalled: so everybody makes progress.
        let read = self.read_kept(at, target)?;
        read.ok_or_else(|| {
            Fault::new(Code::Unreachable, "the manager, server 0, was lost in the middle of a read")
        })
    }

    /// The object's length, from the file's.
    pub(super) fn length(&self) -> Result<u64, Fault> {
        let file = self.file();
        if let Some(size) = self.size_kept(&file) {
            return Ok(self.layout.local_length(self.server, size));
        }
        let access = file.access(Want::Read {})?;
        self.note(&file, &access)?;
        let size = match access.phase {
            Phase::Mixed {} => file.attr().map_err(into_fault)?.size,
            Phase::Exclusive {} | Phase::Write {} | Phase::Read {} => file.known_size(),
        };
        let size = size.max(self.written_end.load(Ordering::Acquire));
        Ok(self.layout.local_length(self.server, size))
    }

    fn size_kept(&self, file: &File) -> Option<u64> {
        let cover = self.cover();
        held(file, *cover).filter(|access| keeps_clean(access.phase))?;
        Some(file.known_size().max(self.written_end.load(Ordering::Acquire)))
    }

    /// Reads under the lease that is held; `None` if there is none that allows it.
    fn read_kept(&self, at: LocalOffset, target: &mut [u8]) -> Result<Option<usize>, Fault> {
        let file = self.file();
        let cover = self.cover();
        let Some(access) = held(&file, *cover).filter(|access| keeps_clean(access.phase)) else {
            return Ok(None);
        };
        let size = file.known_size().max(self.written_end.load(Ordering::Acquire));
        let left = self.layout.local_length(self.server, size).saturating_sub(at.0);
        let count = target.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (mut at, mut rest) = (at.0, &mut target[..count]);
        while !rest.is_empty() {
            let within = usize::try_from(at % self.block_bytes).expect("within a block");
            let room = usize::try_from(self.block_bytes).expect("a block fits into memory") - within;
            let (part, left) = rest.split_at_mut(rest.len().min(room));
            self.read_block(&file, &access, at, part)?;
            at += part.len() as u64;
            rest = left;
        }
        Ok(Some(count))
    }

    fn read_block(&self, file: &File, access: &Access<'_>, at: u64, part: &mut [u8]) -> Result<(), Fault> {
        let within = usize::try_from(at % self.block_bytes).expect("within a block");
        let span = within..within + part.len();
        let block = self.pin(Key { inode: self.inode, index: at / self.block_bytes });
        let mut block = lock(&block);
        if block.knows(&span) {
            self.shared.counts.hits.fetch_add(1, Ordering::Relaxed);
        } else {
            self.shared.counts.misses.fetch_add(1, Ordering::Relaxed);
            let mut fetched = vec![0; block.len()];
            // What lies behind the file's end are zeros.
            file.read_under(access, self.file_offset(at - within as u64)?, &mut fetched)?;
            block.learn(&fetched);
        }
        part.copy_from_slice(block.bytes(span));
        Ok(())
    }

    /// Nothing may be kept: the partition's bytes, and over them what is on its way there.
    fn read_through(
        &self,
        file: &File,
        access: &Access<'_>,
        at: LocalOffset,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        target.fill(0);
        let (mut at, mut rest) = (at.0, &mut *target);
        while !rest.is_empty() {
            let within = usize::try_from(at % self.block_bytes).expect("within a block");
            let room = usize::try_from(self.block_bytes).expect("a block fits into memory") - within;
            let (part, left) = rest.split_at_mut(rest.len().min(room));
            file.read_under(access, self.file_offset(at)?, part)?;
            let key = Key { inode: self.inode, index: at / self.block_bytes };
            let block = lock(&self.shared.ledger).find(key);
            if let Some(block) = block {
                lock(&block).overlay(within, part);
            }
            at += part.len() as u64;
            rest = left;
        }
        Ok(target.len())
    }

    /// Takes note of the lease that an access is made under; the access is still under way.
    fn note(&self, file: &File, access: &Access<'_>) -> Result<(), Fault> {
        let mut cover = self.cover_alone();
        // Beside writers of other applications too: whose bytes are newer only the partition's servers can tell.
        if matches!(access.phase, Phase::Mixed {} | Phase::Write {}) {
            *cover = None;
            self.keep_dirty_only();
            self.flush_all(file, access)?;
            self.drop_all();
            self.written_end.store(0, Ordering::Release);
            return Ok(());
        }
        // Another life of the manager: others may have had the file in between.
        let lost = cover.filter(|cover| cover.epoch != access.epoch);
        if lost.is_some() || cover.is_none() {
            self.keep_dirty_only();
        }
        if lost.is_some_and(|lost| lost.generation != access.generation) {
            self.give_up_dirty("the file was cut while its manager was away");
        }
        *cover = Some(Cover { epoch: access.epoch, generation: access.generation });
        Ok(())
    }

    /// Puts everything down: what was taken so far is in every server's store. Errors that happened behind everybody's back are told.
    pub(super) fn flush(&self) -> Result<(), Fault> {
        self.is_stuck.store(false, Ordering::Release);
        let flushed = self.flush_dirty();
        let file = self.file();
        let put_down = file.put_down();
        let kept = lock(&self.error).take();
        flushed.and(put_down).and(kept.map_or(Ok(()), Err))
    }

    /// The same, onto stable storage.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        self.flush()?;
        self.file().sync().map_err(into_fault)
    }

    fn flush_dirty(&self) -> Result<(), Fault> {
        if !lock(&self.shared.ledger).has_dirty(self.inode) {
            return Ok(());
        }
        self.settle()?;
        let file = self.file();
        let cover = self.cover();
        // Without a lease somebody else has it by now, and got everything first.
        let Some(access) = held(&file, *cover) else { return Ok(()) };
        self.flush_all(&file, &access)
    }

    /// Writes out a dirty block and those behind it, on behalf of nobody. Whether it could.
    pub(super) fn stage(&self, key: Key, blocks: usize) -> bool {
        let file = self.file();
        let cover = self.cover();
        let access = held(&file, *cover).filter(|access| access.phase != (Phase::Mixed {}));
        let Some(access) = access else { return false };
        let run = lock(&self.shared.ledger).dirty_from(key, blocks);
        let written = self.write_run(&file, &access, &run);
        let Err(fault) = written else { return true };
        tracing::warn!(%fault, inode = %self.inode, "staging from tier 1 failed");
        self.is_stuck.store(true, Ordering::Release);
        lock(&self.error).get_or_insert(fault);
        false
    }

    fn flush_all(&self, file: &File, access: &Access<'_>) -> Result<(), Fault> {
        let dirty = lock(&self.shared.ledger).dirty(self.inode);
        dirty.chunks(RUN_BLOCKS_MAX).try_for_each(|run| self.write_run(file, access, run))
    }

    fn write_run(&self, file: &File, access: &Access<'_>, run: &[(Key, SharedBlock)]) -> Result<(), Fault> {
        let mut blocks = Vec::with_capacity(run.len());
        for (key, block) in run {
            blocks.push((self.file_offset(key.index * self.block_bytes)?, *key, lock(block)));
        }
        let places = blocks.iter().map(|(offset, _, block)| (*offset, &**block));
        let writes = plan(places);
        let counts = &self.shared.counts;
        for some in together(&writes) {
            match some {
                [one] => file.write_under(access, one.offset, &one.data)?,
                many => {
                    file.write_scattered(access, many.iter().map(|write| (write.offset, &*write.data)))?
                }
            }
            counts.staged_writes.fetch_add(1, Ordering::Relaxed);
        }
        let bytes = writes.iter().map(|write| write.data.len() as u64).sum();
        drop(writes);
        counts.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut ledger = lock(&self.shared.ledger);
        for (_, key, block) in &mut blocks {
            block.flushed();
            ledger.set_dirty(*key, false);
        }
        Ok(())
    }

    /// What cannot be written any more; whoever flushes next is told.
    fn give_up_dirty(&self, why: &str) {
        let dirty = lock(&self.shared.ledger).dirty(self.inode);
        if dirty.is_empty() {
            return;
        }
        let bytes: u64 = dirty.iter().map(|(_, block)| lock(block).dirty_bytes()).sum();
        for (key, block) in dirty {
            let mut block = lock(&block);
            block.flushed();
            block.forget_clean();
            lock(&self.shared.ledger).set_dirty(key, false);
        }
        let text = format!("{}: {bytes} bytes in tier 1 were lost: {why}", self.file().place());
        lock(&self.error).get_or_insert(Fault::new(Code::Lost, text));
    }

    fn keep_dirty_only(&self) {
        let all = lock(&self.shared.ledger).all(self.inode);
        for (_, block) in all {
            lock(&block).forget_clean();
        }
    }

    fn drop_all(&self) {
        let mut ledger = lock(&self.shared.ledger);
        for (key, _) in ledger.all(self.inode) {
            ledger.remove(key);
        }
    }

    fn pin(&self, key: Key) -> SharedBlock {
        self.shared.pin(key, usize::try_from(self.block_bytes).expect("a block fits into memory"))
    }

    fn file_offset(&self, local: u64) -> Result<u64, Fault> {
        let offset = self.layout.file_offset(self.server, LocalOffset(local));
        offset.ok_or_else(|| Fault::new(Code::TooLarge, "a place beyond every file"))
    }

    fn cover(&self) -> RwLockReadGuard<'_, Option<Cover>> {
        self.cover.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn cover_alone(&self) -> RwLockWriteGuard<'_, Option<Cover>> {
        self.cover.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guardian for TierObject {
    fn give_up(&self) {
        // First ranks may not write behind any more, then everything that they did is taken: what comes later waits for a new lease.
        self.revoking.store(true, Ordering::Release);
        if let Some(taking) = self.shared.taking() {
            taking.take_all();
        }
        let file = self.file();
        let mut cover = self.cover_alone();
        if let Some(access) = held(&file, *cover) {
            if let Err(fault) = self.flush_all(&file, &access) {
                self.give_up_dirty(&fault.to_string());
            }
            self.drop_all();
            self.written_end.store(0, Ordering::Release);
            *cover = None;
        }
        self.revoking.store(false, Ordering::Release);
    }

    fn unlinked(&self) {
        // First the word, then the look: whoever closes it meanwhile counts down first and looks then.
        self.is_unlinked.store(true, Ordering::Release);
        let own = self.shared.object(self.inode).filter(|object| std::ptr::eq(&**object, self));
        if let Some(object) = own {
            self.shared.forget_if_idle(&object);
        }
    }
}

/// An access under the lease that has been held since it was noted.
fn held(file: &File, cover: Option<Cover>) -> Option<Access<'_>> {
    cover.and_then(|cover| file.access_held(cover.epoch))
}

/// Whether nobody else can have changed what was read.
fn keeps_clean(phase: Phase) -> bool {
    matches!(phase, Phase::Exclusive {} | Phase::Read {})
}

/// Blocks of the cache: those of the file, or equal parts of them where they are large.
fn block_bytes(stripe_bytes: u64) -> u64 {
    const BLOCK_BYTES_MAX: u64 = 1 << 20;
    if stripe_bytes <= BLOCK_BYTES_MAX {
        return stripe_bytes;
    }
    // A stripe is a multiple of 4 KiB, so this is at least that.
    1 << stripe_bytes.trailing_zeros().min(BLOCK_BYTES_MAX.trailing_zeros())
}

pub(super) fn into_fault(error: crate::error::Error) -> Fault {
    let code = error.code();
    match error {
        crate::error::Error::Fault(fault) => fault,
        crate::error::Error::Setup(text) => Fault::new(code, text),
    }
}
