//! One file at one node-cache server: the blocks that this server is home of, and the lease under which they are valid.
//!
//! ```text
//!  drained from ranks ─► dirty ──(confirm: a lease is held)──► visible to all ──(write-back, recall, sync, close)──► partition
//! ```
//! Never: waits for a lease while it holds a lock that the return of a lease needs; writes bytes to the partition that no rank
//! wrote here. Always: clean bytes are used only while the lease under which they were read is held without interruption; when a
//! lease is returned, all bytes drained under it are in the partition, or their error is recorded; dirty bytes are kept only
//! under an exclusive lease, so that of two applications' writes the later one stays.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_core::{Code, Fault, Generation, InodeId, Layout, LocalOffset, ServerIndex};
use pario_net::message::{Phase, Want};
use pario_server::store::cache::{BlockKey, SharedBlock};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;

use super::flush::{RUN_BLOCKS_MAX, batches, plan};
use super::lock;
use super::shared::NodeCacheShared;
use crate::client::{File, LeaseObserver, LeasedAccess};

/// The lease under which blocks are valid: of one connection epoch of the manager.
#[derive(Clone, Copy, Debug)]
struct HeldLease {
    epoch: u64,
    generation: Generation,
}

/// See the module head.
pub(super) struct NodeCacheObject {
    inode: InodeId,
    server: ServerIndex,
    layout: Layout,
    block_bytes: u64,
    shared: Arc<NodeCacheShared>,
    file: RwLock<Arc<File>>,
    /// Read lock: use cached blocks. Write lock: change the lease under which they are valid.
    lease: RwLock<Option<HeldLease>>,
    /// The lease is being returned: ranks may not write behind any more.
    revoking: AtomicBool,
    /// Largest end of ranks' writes that the partition's file may not know yet.
    written_end: AtomicU64,
    error: Mutex<Option<Fault>>,
    /// Write-back failed: not retried before the error is reported.
    pub(super) is_stuck: AtomicBool,
    pub(super) opens: AtomicUsize,
    /// The last name is removed: the file cannot be opened again.
    is_unlinked: AtomicBool,
    pub(super) is_written: AtomicBool,
}

impl std::fmt::Debug for NodeCacheObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TierObject").field("inode", &self.inode).finish_non_exhaustive()
    }
}

impl NodeCacheObject {
    /// A file that was opened for this server; `layout` distributes its blocks over the node cache.
    pub(super) fn new(
        file: File,
        server: ServerIndex,
        layout: Layout,
        shared: &Arc<NodeCacheShared>,
    ) -> Arc<NodeCacheObject> {
        let object = Arc::new(NodeCacheObject {
            inode: file.inode(),
            server,
            layout,
            block_bytes: block_bytes(layout.stripe_bytes()),
            shared: Arc::clone(shared),
            file: RwLock::new(Arc::new(file)),
            lease: RwLock::default(),
            revoking: AtomicBool::new(false),
            written_end: AtomicU64::new(0),
            error: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            opens: AtomicUsize::new(0),
            is_unlinked: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
        });
        let guardian: Arc<dyn LeaseObserver> = Arc::<NodeCacheObject>::clone(&object);
        object.file().add_observer(Arc::downgrade(&guardian));
        object
    }

    /// Whether the next open can use the cached blocks. Without a lease nothing is valid, and no notice arrives when the file is
    /// removed.
    pub(super) fn is_worth_keeping(&self) -> bool {
        !self.is_unlinked.load(Ordering::Acquire) && self.lease().is_some()
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

    /// Another handle of the same file, with the access that is needed now. The old handle is closed; it is not the last, so the
    /// lease stays.
    pub(super) fn replace_file(&self, file: File) -> Arc<File> {
        let mut place = self.file.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, Arc::new(file))
    }

    /// Stores a rank's write. It is valid after [`NodeCacheObject::confirm`] or if a lease was held before.
    pub(super) fn write(&self, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), Fault> {
        let mut at = at.0;
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let within = usize::try_from(at % self.block_bytes).expect("within a block");
                let room = usize::try_from(self.block_bytes).expect("a block fits into memory") - within;
                let (part, left) = rest.split_at(rest.len().min(room));
                self.shared.reclaim(self.block_bytes);
                let _using = self.lease();
                self.write_block(at, part)?;
                at += part.len() as u64;
                rest = left;
            }
        }
        Ok(())
    }

    /// The same for ascending offsets: all pieces of one block under one lock.
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
                [one] => self.write(LocalOffset(one.at), &[MemoryPiece::from(one.bytes)])?,
                [first, .., last] => {
                    self.shared.reclaim(self.block_bytes);
                    let _using = self.lease();
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

    /// The block that contains an offset, and its start.
    fn block_at(&self, at: u64) -> (BlockKey, u64) {
        let index = at / self.block_bytes;
        (BlockKey { inode: self.inode, index }, index * self.block_bytes)
    }

    fn write_block(&self, at: u64, part: MemoryPiece<'_>) -> Result<(), Fault> {
        let within = usize::try_from(at % self.block_bytes).expect("within a block");
        let key = BlockKey { inode: self.inode, index: at / self.block_bytes };
        let end = self.file_offset(at)? + part.len() as u64;
        let block = self.pin(key);
        let mut block = lock(&block);
        part.copy_to(block.overwrite(within..within + part.len()));
        self.shared.set_dirty(key);
        self.written_end.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Confirms drained writes: a lease that allows writing is held, or the partition has the bytes.
    pub(super) fn confirm(&self) -> Result<(), Fault> {
        if self.is_confirmed() {
            return Ok(());
        }
        let file = self.file();
        let access = file.access(Want::Write {})?;
        self.record_lease(&file, &access)
    }

    /// Whether a lease is held under which ranks may write behind.
    pub(super) fn is_confirmed(&self) -> bool {
        // While the lease changes the answer is no; the caller asks again later.
        let Ok(cover) = self.lease.try_read() else { return false };
        let file = self.file();
        let phase = held(&file, *cover).map(|access| access.phase);
        phase == Some(Phase::Exclusive {}) && !self.revoking.load(Ordering::Acquire)
    }

    /// Fills `target` up to the end of the file; returns the number of bytes.
    pub(super) fn read(&self, at: LocalOffset, target: &mut [u8]) -> Result<usize, Fault> {
        // Before the lock under which blocks are used: memory may have to be reclaimed from other files.
        self.shared.reclaim(self.block_bytes);
        if let Some(count) = self.read_cached(at, target)? {
            return Ok(count);
        }
        let file = self.file();
        let access = file.access(Want::Read {})?;
        self.record_lease(&file, &access)?;
        if access.phase == (Phase::Mixed {}) {
            return self.read_through(&file, &access, at, target);
        }
        // The access ends before the lease can be recalled: so every reader makes progress.
        let read = self.read_cached(at, target)?;
        read.ok_or_else(|| {
            Fault::new(Code::Unreachable, "the manager, server 0, was lost in the middle of a read")
        })
    }

    /// The object's length, derived from the file's.
    pub(super) fn length(&self) -> Result<u64, Fault> {
        let file = self.file();
        if let Some(size) = self.cached_size(&file) {
            return Ok(self.layout.local_length(self.server, size));
        }
        let access = file.access(Want::Read {})?;
        self.record_lease(&file, &access)?;
        let size = match access.phase {
            Phase::Mixed {} => file.attr().map_err(into_fault)?.size,
            Phase::Exclusive {} | Phase::Write {} | Phase::Read {} => file.known_size(),
        };
        let size = size.max(self.written_end.load(Ordering::Acquire));
        Ok(self.layout.local_length(self.server, size))
    }

    fn cached_size(&self, file: &File) -> Option<u64> {
        let cover = self.lease();
        held(file, *cover).filter(|access| keeps_clean(access.phase))?;
        Some(file.known_size().max(self.written_end.load(Ordering::Acquire)))
    }

    /// Reads under the held lease; `None` if no held lease allows it.
    fn read_cached(&self, at: LocalOffset, target: &mut [u8]) -> Result<Option<usize>, Fault> {
        let file = self.file();
        let cover = self.lease();
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

    fn read_block(
        &self,
        file: &File,
        access: &LeasedAccess<'_>,
        at: u64,
        part: &mut [u8],
    ) -> Result<(), Fault> {
        let within = usize::try_from(at % self.block_bytes).expect("within a block");
        let span = within..within + part.len();
        let block = self.pin(BlockKey { inode: self.inode, index: at / self.block_bytes });
        let mut block = lock(&block);
        if block.knows(&span) {
            self.shared.counts.hits.fetch_add(1, Ordering::Relaxed);
        } else {
            self.shared.counts.misses.fetch_add(1, Ordering::Relaxed);
            let mut fetched = vec![0; block.len()];
            // Bytes behind the end of the file are zeros.
            file.read_under(access, self.file_offset(at - within as u64)?, &mut fetched)?;
            block.learn(&fetched);
        }
        part.copy_from_slice(block.bytes(span));
        Ok(())
    }

    /// Uncached read: the partition's bytes, overlaid with dirty bytes that are not yet written back.
    fn read_through(
        &self,
        file: &File,
        access: &LeasedAccess<'_>,
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
            let key = BlockKey { inode: self.inode, index: at / self.block_bytes };
            let block = lock(&self.shared.ledger).find(key);
            if let Some(block) = block {
                lock(&block).overlay(within, part);
            }
            at += part.len() as u64;
            rest = left;
        }
        Ok(target.len())
    }

    /// Records the lease of an access that is still in progress.
    fn record_lease(&self, file: &File, access: &LeasedAccess<'_>) -> Result<(), Fault> {
        let mut cover = self.lease_exclusive();
        // With concurrent writers of other applications only the partition's servers know the order of writes, so nothing stays
        // cached.
        if matches!(access.phase, Phase::Mixed {} | Phase::Write {}) {
            *cover = None;
            self.keep_dirty_only();
            self.flush_all(file, access)?;
            self.drop_all();
            self.written_end.store(0, Ordering::Release);
            return Ok(());
        }
        // A new connection epoch of the manager: other applications may have changed the file in between.
        let lost = cover.filter(|cover| cover.epoch != access.epoch);
        if lost.is_some() || cover.is_none() {
            self.keep_dirty_only();
        }
        if lost.is_some_and(|lost| lost.generation != access.generation) {
            self.drop_dirty("the file was truncated while its manager was unreachable");
        }
        *cover = Some(HeldLease { epoch: access.epoch, generation: access.generation });
        Ok(())
    }

    /// Writes back all drained bytes, to every server's store. Reports errors of earlier background write-backs.
    pub(super) fn flush(&self) -> Result<(), Fault> {
        self.is_stuck.store(false, Ordering::Release);
        let flushed = self.flush_dirty();
        let file = self.file();
        let put_down = file.flush();
        let kept = lock(&self.error).take();
        flushed.and(put_down).and(kept.map_or(Ok(()), Err))
    }

    /// The same, to stable storage.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        self.flush()?;
        self.file().sync().map_err(into_fault)
    }

    fn flush_dirty(&self) -> Result<(), Fault> {
        if !lock(&self.shared.ledger).has_dirty(self.inode) {
            return Ok(());
        }
        self.confirm()?;
        let file = self.file();
        let cover = self.lease();
        // Without a lease another client holds it, and all dirty bytes were written back before it was returned.
        let Some(access) = held(&file, *cover) else { return Ok(()) };
        self.flush_all(&file, &access)
    }

    /// Writes back a dirty block and the following ones in the background. Returns whether it succeeded.
    pub(super) fn stage(&self, key: BlockKey, blocks: usize) -> bool {
        let file = self.file();
        let cover = self.lease();
        let access = held(&file, *cover).filter(|access| access.phase != (Phase::Mixed {}));
        let Some(access) = access else { return false };
        let run = lock(&self.shared.ledger).dirty_from(key, blocks);
        let written = self.write_run(&file, &access, &run);
        let Err(fault) = written else { return true };
        tracing::warn!(%fault, inode = %self.inode, "write-back from the node cache failed; sync or close reports it");
        self.is_stuck.store(true, Ordering::Release);
        lock(&self.error).get_or_insert(fault);
        false
    }

    fn flush_all(&self, file: &File, access: &LeasedAccess<'_>) -> Result<(), Fault> {
        let dirty = lock(&self.shared.ledger).dirty(self.inode);
        dirty.chunks(RUN_BLOCKS_MAX).try_for_each(|run| self.write_run(file, access, run))
    }

    fn write_run(
        &self,
        file: &File,
        access: &LeasedAccess<'_>,
        run: &[(BlockKey, SharedBlock)],
    ) -> Result<(), Fault> {
        let mut blocks = Vec::with_capacity(run.len());
        for (key, block) in run {
            blocks.push((self.file_offset(key.index * self.block_bytes)?, *key, lock(block)));
        }
        let places = blocks.iter().map(|(offset, _, block)| (*offset, &**block));
        let writes = plan(places);
        let counts = &self.shared.counts;
        for some in batches(&writes) {
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

    /// Drops dirty bytes that cannot be written back; the next flush reports the loss.
    fn drop_dirty(&self, why: &str) {
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
        let text = format!("{}: {bytes} bytes in the node cache were lost: {why}", self.file().description());
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

    fn pin(&self, key: BlockKey) -> SharedBlock {
        self.shared.pin(key, usize::try_from(self.block_bytes).expect("a block fits into memory"))
    }

    fn file_offset(&self, local: u64) -> Result<u64, Fault> {
        let offset = self.layout.file_offset(self.server, LocalOffset(local));
        offset.ok_or_else(|| Fault::new(Code::TooLarge, "an offset beyond the largest file size"))
    }

    fn lease(&self) -> RwLockReadGuard<'_, Option<HeldLease>> {
        self.lease.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease_exclusive(&self) -> RwLockWriteGuard<'_, Option<HeldLease>> {
        self.lease.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseObserver for NodeCacheObject {
    fn before_return(&self) {
        // First write-behind by ranks is switched off, then everything they wrote is drained: later writes wait for a new lease.
        self.revoking.store(true, Ordering::Release);
        if let Some(taking) = self.shared.drainer() {
            taking.drain_all();
        }
        let file = self.file();
        let mut cover = self.lease_exclusive();
        if let Some(access) = held(&file, *cover) {
            if let Err(fault) = self.flush_all(&file, &access) {
                self.drop_dirty(&fault.to_string());
            }
            self.drop_all();
            self.written_end.store(0, Ordering::Release);
            *cover = None;
        }
        self.revoking.store(false, Ordering::Release);
    }

    fn unlinked(&self) {
        // Store first, check afterwards: a concurrent close decrements first and checks afterwards, so one of the two sees the
        // other.
        self.is_unlinked.store(true, Ordering::Release);
        let own = self.shared.object(self.inode).filter(|object| std::ptr::eq(&**object, self));
        if let Some(object) = own {
            self.shared.forget_if_idle(&object);
        }
    }
}

/// An access under the lease that has been held since it was recorded.
fn held(file: &File, cover: Option<HeldLease>) -> Option<LeasedAccess<'_>> {
    cover.and_then(|cover| file.access_held(cover.epoch))
}

/// Whether no other client can have changed the bytes that were read.
fn keeps_clean(phase: Phase) -> bool {
    matches!(phase, Phase::Exclusive {} | Phase::Read {})
}

/// Block size of the cache: the file's stripe, or an equal part of it if it is large.
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
        other @ (crate::error::Error::Setup(_) | crate::error::Error::PastEnd { .. }) => {
            Fault::new(code, other.to_string())
        }
    }
}
