//! The store of a cooperative cache: blocks of plain files in memory, written back to them.
//!
//! An object is this server's part of a plain file on any file system: blocks are dealt to the servers of a group, and each server keeps
//! and writes its own. A write is copied into the cache and returns; dirty bytes go down when nobody has written to their block for a
//! while (`behind.rs`), when they fill three quarters of the pool, when room is needed, on request and at the end; the oldest first, adjacent ones in one vectored write, and no byte that was not written here.
//!
//! Where blocks have a fixed home each is cached there; else where it was first touched (`first_touch.rs`), or was last overwritten as a whole
//! (`last_writer.rs`).
//!
//! Never: two copies of a block, since each has one home or one owner; lends descriptors of files that it keeps blocks of; removes or renames the plain file. Always: one pool for all
//! files; room is reserved before a block is held; what is larger than the pool goes past it.

mod ahead;
mod answers;
mod behind;
mod core;
mod down;
mod file;
mod first_touch;
mod last_writer;
mod moment;
mod owners;
mod plain;
mod pool;
mod walk;

#[cfg(test)]
mod first_touch_tests;
#[cfg(test)]
mod last_writer_tests;
#[cfg(test)]
mod moment_tests;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pario_core::{Code, Fault, Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::Piece;
use pario_sys::process::fork_generation;
use serde::Serialize;

use self::core::Core;
pub use self::file::Place;
use self::file::{Shared, SharedFile};
use self::first_touch::{Seen, Touch};
use self::owners::Owners;
use self::plain::{Plain, PlainCounts};
pub use self::plain::{PlainFile, extend};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::places::{Companions, Places};
use crate::real_disk::RealDisk;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::{Counters, lock};

/// What a cache has done so far and holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CacheStats {
    /// Blocks that a read found.
    pub hits: u64,
    /// Blocks that a read had to fetch from the plain file.
    pub misses: u64,
    /// Blocks that were fetched before anybody asked for them.
    pub read_ahead: u64,
    /// Reads of plain files.
    pub plain_reads: u64,
    /// Bytes that they returned.
    pub plain_read_bytes: u64,
    /// Writes to plain files.
    pub plain_writes: u64,
    /// Bytes that they brought.
    pub plain_written_bytes: u64,
    /// Accesses that went past the cache, for want of room.
    pub straight: u64,
    /// Times that another server was asked whose blocks are.
    pub claims: u64,
    /// Accesses that another server carried out, since the blocks were its own.
    pub forwards: u64,
    /// Accesses carried out here for other servers.
    pub visits: u64,
    /// Blocks that were given back to whoever touches them next.
    pub handed_back: u64,
    /// Times that another server was asked for blocks that were overwritten here.
    pub takes: u64,
    /// Blocks that were passed on to servers that overwrote them.
    pub passed_on: u64,
    /// Reads that saw blocks as they were at one moment without a lock.
    pub at_once: u64,
    /// Times that such a read found something changed, and what had come was in vain.
    pub again: u64,
    /// Byte-range locks taken around accesses to plain files.
    pub locks: u64,
    /// Memory of blocks.
    pub cached_bytes: u64,
    /// Memory of those that their plain files do not have yet.
    pub dirty_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct SharedFileStore {
    core: Arc<Core>,
    plain: Arc<PlainCounts>,
    counters: Counters,
    /// Held while a file is opened or closed: who opens it again finds all of it in the plain file.
    names: Mutex<()>,
    background: Mutex<Vec<JoinHandle<()>>>,
    fork: u64,
}

impl SharedFileStore {
    /// A cache of that size. Its threads start now and end with [`SharedFileStore::shut`] or when the store is dropped.
    pub fn new(cache_bytes: u64) -> Result<SharedFileStore, Fault> {
        let core = Arc::new(Core::new(cache_bytes));
        let start = |name: &str, work: fn(&Core)| {
            let own = Arc::clone(&core);
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread
                .spawn(move || work(&own))
                .map_err(|error| Fault::from_io(&error, "starting a thread of the cooperative cache"))
        };
        let stager = start("pario-cache-out", Core::stage)?;
        let fetcher = start("pario-cache-in", Core::fetch).inspect_err(|_| core.stop())?;
        Ok(SharedFileStore {
            core,
            plain: Arc::default(),
            counters: Counters::default(),
            names: Mutex::default(),
            background: Mutex::new(vec![stager, fetcher]),
            fork: fork_generation(),
        })
    }

    /// Whether blocks that nobody writes to any more go down in the background, long before room is needed or the file closed.
    pub fn set_write_behind(&self, write_behind: bool) {
        self.core.set_behind(write_behind);
    }

    /// Sets the size of the cache.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.core.pool.set_limit(bytes);
    }

    /// Says how the other servers are reached; before a file is opened whose blocks have no fixed place.
    pub fn set_companions(&self, companions: Arc<dyn Companions>) {
        // Set once: the servers of a group stay what they are.
        let _ = self.core.companions.set(companions);
    }

    /// A plain file of `file_bytes` is opened under an inode; once more, if it is open already.
    pub fn open(
        &self,
        inode: InodeId,
        place: Place,
        opened: PlainFile,
        file_bytes: u64,
    ) -> Result<(), Fault> {
        let block_fits =
            0 < place.block_bytes && place.layout.stripe_bytes().is_multiple_of(place.block_bytes);
        if !block_fits {
            let text = format!(
                "{}: blocks of {} bytes do not divide a stripe",
                opened.path.display(),
                place.block_bytes
            );
            return Err(Fault::new(Code::Invalid, text));
        }
        let _names = lock(&self.names);
        let mut files = self.core.files.write().unwrap_or_else(PoisonError::into_inner);
        let file = match files.get(&inode) {
            Some(file) if file.place.kind() != place.kind() => {
                let text = format!("{} is open with another placement", opened.path.display());
                return Err(Fault::new(Code::Invalid, text));
            }
            Some(file) => {
                file.plain.add(opened);
                file.grow_to(file_bytes);
                Arc::clone(file)
            }
            None => {
                let touch = self.touch(place, &opened)?;
                let plain = Plain::new(opened, Arc::clone(&self.plain));
                let file = Arc::new(SharedFile::new(inode, place, (plain, touch), file_bytes));
                files.insert(inode, Arc::clone(&file));
                file
            }
        };
        file.opens.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// A file is closed. With its last close everything of it is written down, and its memory is free.
    pub fn close(&self, inode: InodeId) -> Result<(), Fault> {
        let _names = lock(&self.names);
        let Some(file) = self.core.file(inode) else { return Ok(()) };
        if file.opens.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        let flushed = file.flush(&self.core);
        file.end(&self.core);
        file.hand_back_all(&self.core);
        self.core.files.write().unwrap_or_else(PoisonError::into_inner).remove(&inode);
        Ok(flushed?)
    }

    /// A file is about to be given a length by its manager.
    pub fn announce_length(&self, inode: InodeId, file_bytes: u64) {
        if let Some(file) = self.core.file(inode) {
            file.announce(file_bytes);
        }
    }

    /// Everything that was written to a file so far is on stable storage; what others wrote to the plain file is seen from now on, and its
    /// length is at least `file_bytes`.
    pub fn refresh_file(&self, inode: InodeId, file_bytes: u64) -> Result<(), Fault> {
        let Some(file) = self.core.file(inode) else { return Ok(()) };
        let sync = file.sync_begins()?;
        file.flush(&self.core)?;
        file.plain.sync()?;
        file.sync_ends(sync);
        file.grow_to(file_bytes);
        Ok(file.forget_clean(&self.core)?)
    }

    /// What was done so far, and what is held now.
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
            read_ahead: of(&self.core.counts.ahead),
            plain_reads: of(&self.plain.reads),
            plain_read_bytes: of(&self.plain.read_bytes),
            plain_writes: of(&self.plain.writes),
            plain_written_bytes: of(&self.plain.written_bytes),
            straight: of(&self.core.counts.straight),
            locks: of(&self.plain.locks),
            claims: of(&self.core.counts.claims),
            forwards: of(&self.core.counts.forwards),
            visits: of(&self.core.counts.visits),
            handed_back: of(&self.core.counts.handed_back),
            takes: of(&self.core.counts.takes),
            passed_on: of(&self.core.counts.passed),
            at_once: of(&self.core.counts.at_once),
            again: of(&self.core.counts.again),
            cached_bytes,
            dirty_bytes,
        }
    }

    /// Ends the threads and writes everything down; whoever runs the server calls it when that has ended.
    pub fn shut(&self) {
        let threads = std::mem::take(&mut *lock(&self.background));
        if self.fork != fork_generation() {
            // The threads and the files are the parent's.
            std::mem::forget(threads);
            return;
        }
        if threads.is_empty() {
            return;
        }
        self.core.stop();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the cooperative cache panicked");
            }
        }
        for file in self.core.all() {
            if let Err(error) = file.flush(&self.core) {
                tracing::error!(%error, "written data was lost when the cache ended");
            }
        }
    }

    /// What a file has beside its blocks where they have no fixed place.
    fn touch(&self, place: Place, opened: &PlainFile) -> Result<Option<Touch>, Fault> {
        let Some(homes) = place.homes else { return Ok(None) };
        let companions = self.core.companions.get().ok_or_else(|| {
            Fault::new(Code::Invalid, format!("{}: the other servers are not known", opened.path.display()))
        })?;
        self.core.pool.state().gone.get_or_insert_default();
        let companions = Arc::clone(companions);
        Ok(Some(Touch { homes, owners: Owners::default(), companions, follows: place.follows }))
    }

    fn find(&self, object: ObjectId) -> Result<Shared, StoreError> {
        let unknown = || Fault::new(Code::Stale, format!("inode {} is not open in this cache", object.inode));
        self.core.file(object.inode).ok_or_else(|| StoreError::Below(unknown()))
    }
}

impl Drop for SharedFileStore {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Store for SharedFileStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[Piece<'_>]) -> Result<(), StoreError> {
        self.find(object)?.write(&self.core, (object.generation, Seen::InParts), at.0, pieces)?;
        self.counters.count_write(total_bytes(pieces));
        Ok(())
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let count = self.find(object)?.read(&self.core, object.generation, at.0, target)?;
        self.counters.count_read(count);
        Ok(count)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        Ok(self.core.file(object.inode).map(|file| file.length()))
    }

    fn truncate(
        &self,
        inode: InodeId,
        _from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        self.core.file(inode).map_or(Ok(()), |file| file.cut(&self.core, to, bytes))
    }

    /// The inode is forgotten; the plain file stays.
    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        lock(&self.core.directory).forget(object.inode);
        let removed = self.core.files.write().unwrap_or_else(PoisonError::into_inner).remove(&object.inode);
        if let Some(file) = removed {
            file.end(&self.core);
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

    fn places(&self) -> Option<&dyn Places> {
        Some(self)
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        let file = self.core.file(object.inode).filter(|file| file.place.direct);
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
        // Without a file there is nothing that room could be wanted for.
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
