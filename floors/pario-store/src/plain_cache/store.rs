//! The store itself: open, close, sync and the [`Store`] trait, over the files of one [`Core`].
//!
//! Never: copies bytes itself; `file.rs` and `placement/` do. Always: an object is a file that was opened here under its inode.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pario_core::{Code, Fault, Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::process::fork_generation;

use super::core::Core;
use super::file::{CachePlacement, CachedFile, CachedFileRef};
use super::placement::{DynamicPlacement, Owners, WriteVisibility};
use super::plain::{PlainCounts, PlainFileOpening, PlainHandle};
use super::stats::CacheStats;
use crate::disk::Disk;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::hooks::CacheHooks;
use crate::peers::{PeerServers, PeerService};
use crate::real_disk::RealDisk;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::{StoreCounters, lock};

/// See the module.
#[derive(Debug)]
pub struct PlainCacheStore {
    pub(super) core: Arc<Core>,
    plain: Arc<PlainCounts>,
    pub(super) counters: StoreCounters,
    /// Held during open and close: a reopened file is complete in the plain file.
    names: Mutex<()>,
    background: Mutex<Vec<JoinHandle<()>>>,
    fork: u64,
}

impl PlainCacheStore {
    /// A cache of `cache_bytes`. Its threads end with [`PlainCacheStore::shut`] or on drop.
    pub fn new(cache_bytes: u64) -> Result<PlainCacheStore, Fault> {
        let core = Arc::new(Core::new(cache_bytes));
        let start = |name: &str, work: fn(&Core)| {
            let own = Arc::clone(&core);
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread
                .spawn(move || work(&own))
                .map_err(|error| Fault::from_io(&error, "starting a thread of the file cache"))
        };
        let stager = start("pario-cache-out", Core::write_back_loop)?;
        let fetcher = start("pario-cache-in", Core::prefetch_loop).inspect_err(|_| core.stop())?;
        Ok(PlainCacheStore {
            core,
            plain: Arc::default(),
            counters: StoreCounters::default(),
            names: Mutex::default(),
            background: Mutex::new(vec![stager, fetcher]),
            fork: fork_generation(),
        })
    }

    /// Enables write-behind: blocks not written for a while are written back before memory is needed or the file is closed.
    pub fn set_write_behind(&self, write_behind: bool) {
        self.core.set_write_behind(write_behind);
    }

    /// Sets the size of the cache.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.core.pool.set_limit(bytes);
    }

    /// Sets the connection to the other servers; required before a file with dynamic placement is opened.
    pub fn set_peers(&self, companions: Arc<dyn PeerServers>) {
        // Set once: the servers of a group do not change.
        let _ = self.core.peers.set(companions);
    }

    /// Opens a plain file of `file_bytes` under an inode, also if it is open already.
    pub fn open(
        &self,
        inode: InodeId,
        place: CachePlacement,
        opened: PlainFileOpening,
        file_bytes: u64,
    ) -> Result<(), Fault> {
        let block_fits =
            0 < place.block_bytes && place.layout.stripe_bytes().is_multiple_of(place.block_bytes);
        if !block_fits {
            let text = format!(
                "{}: the stripe is not a multiple of the cache block of {} bytes",
                opened.path.display(),
                place.block_bytes
            );
            return Err(Fault::new(Code::Invalid, text));
        }
        let _names = lock(&self.names);
        let mut files = self.core.files.write().unwrap_or_else(PoisonError::into_inner);
        let file = match files.get(&inode) {
            Some(file) if file.placement.kind() != place.kind() => {
                let text = format!("{} is already open with another placement", opened.path.display());
                return Err(Fault::new(Code::Invalid, text));
            }
            Some(file) => {
                file.plain.add(opened);
                file.grow_to(file_bytes);
                Arc::clone(file)
            }
            None => {
                let touch = self.dynamic_placement(place, &opened)?;
                let plain = PlainHandle::new(opened, Arc::clone(&self.plain));
                let file = Arc::new(CachedFile::new(inode, place, (plain, touch), file_bytes));
                files.insert(inode, Arc::clone(&file));
                file
            }
        };
        file.opens.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Closes a file. The last close writes back all of its blocks and frees its memory.
    pub fn close(&self, inode: InodeId) -> Result<(), Fault> {
        let _names = lock(&self.names);
        let Some(file) = self.core.file(inode) else { return Ok(()) };
        if file.opens.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        let flushed = file.flush(&self.core);
        file.close(&self.core);
        file.give_back_all(&self.core);
        self.core.files.write().unwrap_or_else(PoisonError::into_inner).remove(&inode);
        Ok(flushed?)
    }

    /// Announces a truncation by the file's manager.
    pub fn announce_length(&self, inode: InodeId, file_bytes: u64) {
        if let Some(file) = self.core.file(inode) {
            file.announce_truncation(file_bytes);
        }
    }

    /// Syncs a file: all earlier writes are on stable storage, later reads see writes of other programs to the plain file, and its length
    /// is at least `file_bytes`.
    pub fn refresh_file(&self, inode: InodeId, file_bytes: u64) -> Result<(), Fault> {
        let Some(file) = self.core.file(inode) else { return Ok(()) };
        let sync = file.begin_sync()?;
        file.flush(&self.core)?;
        file.plain.sync()?;
        file.end_sync(sync);
        file.grow_to(file_bytes);
        Ok(file.forget_clean(&self.core)?)
    }

    /// Counters, and the present size.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        let (cached_bytes, dirty_bytes) = {
            let state = self.core.pool.state();
            (state.ledger.bytes(), state.ledger.dirty_bytes())
        };
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            hits: of(&self.core.counts.hits),
            misses: of(&self.core.counts.misses),
            read_ahead: of(&self.core.counts.prefetched),
            plain_reads: of(&self.plain.reads),
            plain_read_bytes: of(&self.plain.read_bytes),
            plain_writes: of(&self.plain.writes),
            plain_written_bytes: of(&self.plain.written_bytes),
            straight: of(&self.core.counts.uncached),
            locks: of(&self.plain.locks),
            claims: of(&self.core.counts.claims),
            forwards: of(&self.core.counts.forwards),
            visits: of(&self.core.counts.remote_accesses),
            handed_back: of(&self.core.counts.handed_back),
            takes: of(&self.core.counts.handover_requests),
            passed_on: of(&self.core.counts.handed_over),
            at_once: of(&self.core.counts.atomic_reads),
            again: of(&self.core.counts.atomic_repeats),
            cached_bytes,
            dirty_bytes,
        }
    }

    /// Stops the threads and writes back everything; called after the server has stopped.
    pub fn shut(&self) {
        let threads = std::mem::take(&mut *lock(&self.background));
        if self.fork != fork_generation() {
            // After a fork, the threads and the files belong to the parent.
            std::mem::forget(threads);
            return;
        }
        if threads.is_empty() {
            return;
        }
        self.core.stop();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the file cache panicked");
            }
        }
        for file in self.core.all() {
            if let Err(error) = file.flush(&self.core) {
                tracing::error!(%error, "written data was lost: the last write-back of the file cache failed");
            }
        }
    }

    /// Additional state of a file with dynamic placement.
    fn dynamic_placement(
        &self,
        place: CachePlacement,
        opened: &PlainFileOpening,
    ) -> Result<Option<DynamicPlacement>, Fault> {
        let Some(homes) = place.homes else { return Ok(None) };
        let companions = self.core.peers.get().ok_or_else(|| {
            Fault::new(
                Code::Invalid,
                format!("{}: its cache servers are not connected", opened.path.display()),
            )
        })?;
        self.core.pool.state().evicted.get_or_insert_default();
        let companions = Arc::clone(companions);
        Ok(Some(DynamicPlacement {
            homes,
            owners: Owners::default(),
            peers: companions,
            follows_writers: place.follows_writers,
        }))
    }

    pub(super) fn find(&self, object: ObjectId) -> Result<CachedFileRef, StoreError> {
        let unknown = || Fault::new(Code::Stale, format!("inode {} is not open in this cache", object.inode));
        self.core.file(object.inode).ok_or_else(|| StoreError::Below(unknown()))
    }
}

impl Drop for PlainCacheStore {
    fn drop(&mut self) {
        self.shut();
    }
}

impl CacheHooks for PlainCacheStore {
    fn peer_service(&self) -> Option<&dyn PeerService> {
        Some(self)
    }
}

impl Store for PlainCacheStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        self.find(object)?.write(&self.core, (object.generation, WriteVisibility::PerBlock), at.0, pieces)?;
        self.counters.count_write(total_bytes(pieces));
        Ok(())
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let count = self.find(object)?.read(&self.core, object.generation, at.0, target)?;
        self.counters.count_read(count);
        Ok(count)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        let file = self.core.file(object.inode).filter(|file| file.id().generation <= object.generation);
        Ok(file.map(|file| file.length()))
    }

    fn truncate(
        &self,
        inode: InodeId,
        _from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        self.core.file(inode).map_or(Ok(()), |file| file.truncate(&self.core, to, bytes))
    }

    /// Forgets the inode; the plain file stays.
    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        lock(&self.core.directory).forget(object.inode);
        let removed = self.core.files.write().unwrap_or_else(PoisonError::into_inner).remove(&object.inode);
        if let Some(file) = removed {
            file.close(&self.core);
        }
        Ok(())
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.core.file(object.inode).map_or(Ok(()), |file| file.flush(&self.core))
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.counters.count_sync();
        let Some(file) = self.core.file(object.inode) else { return Ok(()) };
        file.flush(&self.core)?;
        file.plain.sync()
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        let synced = self.core.all().into_iter().map(|file| self.sync(file.id()));
        synced.fold(Ok(()), Result::and)
    }

    fn hooks(&self) -> Option<&dyn CacheHooks> {
        Some(self)
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        let file = self.core.file(object.inode).filter(|file| file.placement.direct);
        let lent = file.and_then(|file| file.plain.lend(access == LendAccess::Write));
        Ok(lent.map_or(Lent::NotLent, Lent::Descriptor))
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        let mut all: Vec<(ObjectId, u64)> =
            self.core.all().iter().map(|file| (file.id(), file.length())).collect();
        all.sort_unstable();
        Ok(all.into_iter().filter(|(id, _)| after.is_none_or(|after| after < *id)).take(limit).collect())
    }

    fn space(&self) -> Result<Space, StoreError> {
        let found = self.core.all().first().and_then(|file| RealDisk.space(file.plain.path()).ok());
        // Without an open file there is no limit.
        Ok(found.unwrap_or(Space { total_bytes: u64::MAX, free_bytes: u64::MAX, pool: 0 }))
    }

    fn stats(&self) -> StoreStats {
        let stats = self.cache_stats();
        StoreStats {
            hits: stats.hits,
            misses: stats.misses,
            cached_bytes: stats.cached_bytes,
            dirty_bytes: stats.dirty_bytes,
            staged_bytes: self.core.counts.staged_bytes.load(Ordering::Relaxed),
            staged_writes: self.core.counts.staged_writes.load(Ordering::Relaxed),
            ..self.counters.stats()
        }
    }
}
