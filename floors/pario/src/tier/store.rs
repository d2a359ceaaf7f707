//! The store of a tier-1 server: blocks in memory, above files of the partition.
//!
//! Never: lends descriptors; lists, cuts or removes objects: files belong to the partition. Always: an object is a file that was
//! opened here, under its inode; a few that are closed stay, with their leases and clean blocks, for the next open.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pario_core::{Code, Fault, Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex, Space};
use pario_server::Taking;
use pario_server::store::{LendAccess, Lent, Store, StoreError, StoreStats};
use pario_sys::Piece;
use pario_sys::file_map::Scattered;
use pario_sys::process::fork_generation;

use super::lock;
use super::object::TierObject;
use super::shared::Shared;
use crate::client::File;

/// What a tier-1 server has done so far, and what it holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct TierStats {
    /// Reads of a block that found it here.
    pub hits: u64,
    /// Reads of a block that had to fetch it from the partition.
    pub misses: u64,
    /// Bytes written to the partition.
    pub staged_bytes: u64,
    /// Writes that it took.
    pub staged_writes: u64,
    /// Memory of blocks.
    pub cached_bytes: u64,
    /// Memory of those that the partition does not have yet.
    pub dirty_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct UpstreamStore {
    shared: Arc<Shared>,
    server: ServerIndex,
    stager: Mutex<Option<JoinHandle<()>>>,
    fork: u64,
}

impl UpstreamStore {
    /// The store of one server of a tier.
    pub(crate) fn new(server: ServerIndex, cache_bytes: u64) -> UpstreamStore {
        UpstreamStore {
            shared: Arc::new(Shared::new(cache_bytes)),
            server,
            stager: Mutex::default(),
            fork: fork_generation(),
        }
    }

    /// Makes the server's taking thread known.
    pub(crate) fn set_taking(&self, taking: Taking) {
        self.shared.begin_taking(taking);
    }

    /// Sets the size of the cache.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.shared.set_limit(bytes);
    }

    /// A file is opened; `layout` deals its blocks to the tier's servers.
    pub(crate) fn open(&self, file: File, layout: Layout) -> Result<(), Fault> {
        self.start_stager()?;
        let (inode, writes) = (file.inode(), file.is_writable());
        let mut objects = self.shared.objects.write().unwrap_or_else(PoisonError::into_inner);
        let (object, before) = match objects.get(&inode).filter(|object| object.layout() == layout) {
            Some(object) => {
                let object = Arc::clone(object);
                // One that writes serves both; the other goes.
                let keeps = object.file().is_writable() && !writes;
                let before = if keeps { Arc::new(file) } else { object.replace_file(file) };
                (object, Some(before))
            }
            None => (TierObject::new(file, self.server, layout, &self.shared), None),
        };
        object.opens.fetch_add(1, Ordering::AcqRel);
        object.is_written.fetch_or(writes, Ordering::AcqRel);
        objects.insert(inode, object);
        drop(objects);
        self.shared.is_used(inode);
        if let Some(taking) = self.shared.taking() {
            taking.grant();
        }
        // Closed out here: whoever closes may have to wait.
        drop(before);
        Ok(())
    }

    /// A file is closed. It stays for a while: clean blocks serve the next open.
    pub(crate) fn close(&self, inode: InodeId) {
        let Some(object) = self.shared.object(inode) else { return };
        if object.opens.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        object.is_written.store(false, Ordering::Release);
        self.shared.keep_idle(&object);
    }

    /// Ends the staging thread and lets go of all files. The server has ended: nobody takes anything any more. Whoever ran the server
    /// calls it, since the last to drop the store may be the taking thread, which cannot wait for itself.
    pub(super) fn shut(&self) {
        let stager = lock(&self.stager).take();
        if self.fork != fork_generation() {
            // The thread and the files are the parent's.
            std::mem::forget(stager);
            return;
        }
        self.shared.end_taking();
        self.shared.stop();
        if let Some(Err(_)) = stager.map(JoinHandle::join) {
            tracing::error!("the staging thread of tier 1 panicked");
        }
        for object in self.shared.all() {
            self.shared.forget(&object);
        }
    }

    pub(super) fn is_own_process(&self) -> bool {
        self.fork == fork_generation()
    }

    /// Every server's store has what ranks wrote to the file.
    pub(crate) fn flush_file(&self, inode: InodeId) -> Result<(), Fault> {
        self.known(inode)?.flush()
    }

    /// What ranks wrote to the file is on stable storage.
    pub(crate) fn sync_file(&self, inode: InodeId) -> Result<(), Fault> {
        self.known(inode)?.sync()
    }

    /// What was done so far, and what is held now.
    pub(crate) fn tier_stats(&self) -> TierStats {
        let (cached_bytes, dirty_bytes) = {
            let ledger = lock(&self.shared.ledger);
            (ledger.bytes(), ledger.dirty_bytes())
        };
        let counts = &self.shared.counts;
        TierStats {
            hits: counts.hits.load(Ordering::Relaxed),
            misses: counts.misses.load(Ordering::Relaxed),
            staged_bytes: counts.staged_bytes.load(Ordering::Relaxed),
            staged_writes: counts.staged_writes.load(Ordering::Relaxed),
            cached_bytes,
            dirty_bytes,
        }
    }

    /// How many files are known, open or kept.
    #[cfg(test)]
    pub(super) fn shared_files(&self) -> usize {
        self.shared.all().len()
    }

    fn known(&self, inode: InodeId) -> Result<Arc<TierObject>, Fault> {
        let unknown = || Fault::new(Code::Stale, format!("inode {inode} is not open in tier 1"));
        self.shared.object(inode).ok_or_else(unknown)
    }

    fn find(&self, object: ObjectId) -> Result<Arc<TierObject>, StoreError> {
        self.known(object.inode).map_err(StoreError::Below)
    }

    fn start_stager(&self) -> Result<(), Fault> {
        let mut stager = lock(&self.stager);
        if stager.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(format!("pario-tier-{}", self.server));
            let thread = thread.spawn(move || shared.stage_in_background());
            *stager = Some(thread.map_err(|error| Fault::from_io(&error, "starting the staging thread"))?);
        }
        Ok(())
    }
}

impl Drop for UpstreamStore {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Store for UpstreamStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[Piece<'_>]) -> Result<(), StoreError> {
        self.find(object)?.write(at, pieces).map_err(StoreError::Below)
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        self.find(object)?.write_scattered(pieces).map_err(StoreError::Below)
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        self.find(object)?.read(at, target).map_err(StoreError::Below)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.find(object)?.length().map(Some).map_err(StoreError::Below)
    }

    fn truncate(
        &self,
        inode: InodeId,
        _from: Generation,
        _to: Generation,
        _bytes: u64,
    ) -> Result<(), StoreError> {
        Err(StoreError::Unsupported { what: format!("inode {inode} is cut by its manager, not in tier 1") })
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        Err(StoreError::Unsupported {
            what: format!("object {object} is removed by its manager, not in tier 1"),
        })
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.flush_file(object.inode).map_err(StoreError::Below)
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.sync_file(object.inode).map_err(StoreError::Below)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        let flushed = self.shared.dirty_files().into_iter().map(|inode| self.flush_file(inode));
        flushed.fold(Ok(()), Result::and).map_err(StoreError::Below)
    }

    fn lend(&self, _object: ObjectId, _access: LendAccess) -> Result<Lent, StoreError> {
        Ok(Lent::NotLent)
    }

    fn list(&self, _after: Option<ObjectId>, _limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        Ok(Vec::new())
    }

    fn space(&self) -> Result<Space, StoreError> {
        // Room is the partition's affair: whoever flushes hears of it.
        Ok(Space { total_bytes: u64::MAX, free_bytes: u64::MAX, pool: 0 })
    }

    fn stats(&self) -> StoreStats {
        let stats = self.tier_stats();
        StoreStats {
            hits: stats.hits,
            misses: stats.misses,
            staged_bytes: stats.staged_bytes,
            staged_writes: stats.staged_writes,
            cached_bytes: stats.cached_bytes,
            dirty_bytes: stats.dirty_bytes,
            ..StoreStats::default()
        }
    }

    fn write_behind(&self) -> u32 {
        self.shared.write_behind()
    }

    fn is_settled(&self, object: ObjectId) -> bool {
        self.shared.object(object.inode).is_none_or(|object| object.is_settled())
    }

    fn settle(&self, object: ObjectId) -> Result<(), StoreError> {
        self.find(object)?.settle().map_err(StoreError::Below)
    }
}
