//! The store of a node-cache server: blocks in memory, above files of the partition.
//!
//! Never: lends descriptors; lists, truncates or removes objects: files belong to the partition. Always: an object is a file that
//! was opened here, under its inode; up to [`super::shared::IDLE_FILES_MAX`] closed files stay, with their leases and clean
//! blocks, for the next open.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pario_core::{Code, Fault, Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex, Space};
use pario_server::DrainHandle;
use pario_server::store::{CacheHooks, LendAccess, Lent, Store, StoreError, StoreStats};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;
use pario_sys::process::fork_generation;

use super::lock;
use super::object::NodeCacheObject;
use super::shared::NodeCacheShared;
use crate::client::File;

/// Counters of a node-cache server, and its current contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct TierStats {
    /// Block reads served from the cache.
    pub hits: u64,
    /// Block reads that fetched from the partition.
    pub misses: u64,
    /// Bytes written to the partition.
    pub staged_bytes: u64,
    /// Number of these writes.
    pub staged_writes: u64,
    /// Memory of cached blocks.
    pub cached_bytes: u64,
    /// Memory of dirty blocks.
    pub dirty_bytes: u64,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct UpstreamStore {
    shared: Arc<NodeCacheShared>,
    server: ServerIndex,
    stager: Mutex<Option<JoinHandle<()>>>,
    fork: u64,
}

impl UpstreamStore {
    /// The store of one node-cache server.
    pub(crate) fn new(server: ServerIndex, cache_bytes: u64) -> UpstreamStore {
        UpstreamStore {
            shared: Arc::new(NodeCacheShared::new(cache_bytes)),
            server,
            stager: Mutex::default(),
            fork: fork_generation(),
        }
    }

    /// Registers the server's drain thread.
    pub(crate) fn set_drainer(&self, taking: DrainHandle) {
        self.shared.begin_draining(taking);
    }

    /// Sets the size of the cache.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.shared.set_limit(bytes);
    }

    /// A file is opened; `layout` distributes its blocks over the node-cache servers.
    pub(crate) fn open(&self, file: File, layout: Layout) -> Result<(), Fault> {
        self.start_stager()?;
        let (inode, writes) = (file.inode(), file.is_writable());
        let mut objects = self.shared.objects.write().unwrap_or_else(PoisonError::into_inner);
        let (object, before) = match objects.get(&inode).filter(|object| object.layout() == layout) {
            Some(object) => {
                let object = Arc::clone(object);
                // A writable handle serves both; the other one is closed.
                let keeps = object.file().is_writable() && !writes;
                let before = if keeps { Arc::new(file) } else { object.replace_file(file) };
                (object, Some(before))
            }
            None => (NodeCacheObject::new(file, self.server, layout, &self.shared), None),
        };
        object.opens.fetch_add(1, Ordering::AcqRel);
        object.is_written.fetch_or(writes, Ordering::AcqRel);
        objects.insert(inode, object);
        drop(objects);
        self.shared.mark_open(inode);
        if let Some(taking) = self.shared.drainer() {
            taking.grant();
        }
        // Closed outside the lock: closing may wait.
        drop(before);
        Ok(())
    }

    /// A file is closed. Its clean blocks stay for the next open.
    pub(crate) fn close(&self, inode: InodeId) {
        let Some(object) = self.shared.object(inode) else { return };
        if object.opens.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        object.is_written.store(false, Ordering::Release);
        self.shared.keep_idle(&object);
    }

    /// Ends the write-back thread and drops all files. The server has ended: nothing is drained any more. Called by the owner of
    /// the server, since the last reference to the store may be held by the drain thread, which cannot wait for itself.
    pub(super) fn shut_down(&self) {
        let stager = lock(&self.stager).take();
        if self.fork != fork_generation() {
            // In a forked child the thread and the files belong to the parent.
            std::mem::forget(stager);
            return;
        }
        self.shared.end_draining();
        self.shared.stop();
        if let Some(Err(_)) = stager.map(JoinHandle::join) {
            tracing::error!("the write-back thread of the node cache panicked");
        }
        for object in self.shared.all() {
            self.shared.forget(&object);
        }
    }

    /// Writes the ranks' data of the file to every server's store.
    pub(crate) fn flush_file(&self, inode: InodeId) -> Result<(), Fault> {
        self.known(inode)?.flush()
    }

    /// Writes the ranks' data of the file to stable storage.
    pub(crate) fn sync_file(&self, inode: InodeId) -> Result<(), Fault> {
        self.known(inode)?.sync()
    }

    /// Counters so far, and current contents.
    pub(crate) fn node_cache_stats(&self) -> TierStats {
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

    /// Number of known files, open or idle.
    #[cfg(test)]
    pub(super) fn shared_files(&self) -> usize {
        self.shared.all().len()
    }

    fn known(&self, inode: InodeId) -> Result<Arc<NodeCacheObject>, Fault> {
        let unknown = || Fault::new(Code::Stale, format!("inode {inode} is not open in the node cache"));
        self.shared.object(inode).ok_or_else(unknown)
    }

    fn find(&self, object: ObjectId) -> Result<Arc<NodeCacheObject>, StoreError> {
        self.known(object.inode).map_err(StoreError::Below)
    }

    fn start_stager(&self) -> Result<(), Fault> {
        let mut stager = lock(&self.stager);
        if stager.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(format!("pario-tier-{}", self.server));
            let thread = thread.spawn(move || shared.stage_in_background());
            *stager = Some(thread.map_err(|error| Fault::from_io(&error, "starting the write-back thread"))?);
        }
        Ok(())
    }
}

impl Drop for UpstreamStore {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Store for UpstreamStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
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
        Err(StoreError::Unsupported {
            what: format!("inode {inode} is truncated by its manager, not in the node cache"),
        })
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        Err(StoreError::Unsupported {
            what: format!("object {object} is removed by its manager, not in the node cache"),
        })
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.flush_file(object.inode).map_err(StoreError::Below)
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.sync_file(object.inode).map_err(StoreError::Below)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        // A dirty file that is no longer known is being closed: its close writes it back.
        let known = self.shared.dirty_files().into_iter().filter_map(|inode| self.shared.object(inode));
        let flushed = known.map(|object| object.flush());
        flushed.fold(Ok(()), Result::and).map_err(StoreError::Below)
    }

    fn lend(&self, _object: ObjectId, _access: LendAccess) -> Result<Lent, StoreError> {
        Ok(Lent::NotLent)
    }

    fn list(&self, _after: Option<ObjectId>, _limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        Ok(Vec::new())
    }

    fn space(&self) -> Result<Space, StoreError> {
        // Free space is that of the partition: a flush reports a full one.
        Ok(Space { total_bytes: u64::MAX, free_bytes: u64::MAX, pool: 0 })
    }

    fn stats(&self) -> StoreStats {
        let stats = self.node_cache_stats();
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

    fn hooks(&self) -> Option<&dyn CacheHooks> {
        Some(self)
    }
}

impl CacheHooks for UpstreamStore {
    fn write_behind(&self) -> u32 {
        self.shared.write_behind()
    }

    fn is_confirmed(&self, object: ObjectId) -> bool {
        self.shared.object(object.inode).is_none_or(|object| object.is_confirmed())
    }

    fn confirm(&self, object: ObjectId) -> Result<(), StoreError> {
        self.find(object)?.confirm().map_err(StoreError::Below)
    }
}
