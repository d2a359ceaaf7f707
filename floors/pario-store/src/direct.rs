//! Files opened with O_DIRECT, with a cache of the store's own: blocks of 256 KiB with exact dirty ranges.
//!
//! A write is copied into the cache and returns. A write-back thread starts when dirty blocks fill the cache up to `high` and stops at
//! `low`, oldest first, adjacent blocks of an object in one vectored write. A writer that needs memory when no block is clean writes some
//! back itself, so that writers wait only for the disk.
//!
//! Never: lends descriptors (borrowers would bypass the cache); makes an object longer than its last written byte, not even temporarily:
//! the last, unaligned bytes of an object go through the page cache, by an ordinary descriptor. Always: locks are taken in the order
//! names, gate, block (ascending), then the ledger or a directory shard.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::aligned::{ALIGNMENT, AlignedBuffer};
use rustix::io::Errno;

use crate::directory::{Buffering, ObjectDirectory, OpenWant};
use crate::disk::{Disk, OpenMode};
use crate::error::{Doing, StoreError};
use crate::files::total_bytes;
use crate::real_disk::RealDisk;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::lock;

mod block;
mod cache;
mod flush;
mod ledger;
mod object;
mod truncate;

use cache::DirectCache;

/// Smallest number of blocks of a cache.
const BLOCKS_MIN: usize = 4;

/// Sizes of the store's own cache, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectSettings {
    /// Memory for blocks; threads that work at the same time can exceed it by a block each.
    pub cache_bytes: u64,
    /// Write-back starts when dirty blocks use so much.
    pub high_bytes: u64,
    /// Write-back stops when they use no more than this.
    pub low_bytes: u64,
}

impl DirectSettings {
    /// A cache of that size, with write-back between three quarters and half of it.
    #[must_use]
    pub fn with_cache(cache_bytes: u64) -> DirectSettings {
        DirectSettings { cache_bytes, high_bytes: cache_bytes / 4 * 3, low_bytes: cache_bytes / 2 }
    }
}

/// A store of files opened with O_DIRECT.
#[derive(Debug)]
pub struct DirectStore {
    cache: Arc<DirectCache>,
    stager: Option<JoinHandle<()>>,
}

impl DirectStore {
    /// Opens the store in `dir`, which must exist; an empty directory becomes a store.
    pub fn open(dir: &Path, settings: DirectSettings) -> Result<DirectStore, StoreError> {
        DirectStore::open_on(RealDisk::shared(), dir, settings)
    }

    /// The same, on the caller's disk.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        settings: DirectSettings,
    ) -> Result<DirectStore, StoreError> {
        let directory = ObjectDirectory::open(disk, dir, Buffering::Direct)?;
        probe(directory.disk(), directory.root())?;
        let cache = Arc::new(DirectCache::new(directory, settings));
        let background = Arc::clone(&cache);
        let stager = std::thread::Builder::new()
            .name("pario-stage".to_owned())
            .spawn(move || background.stage_in_background())
            .map_err(|e| StoreError::from_dir(e, Doing::Opening, dir))?;
        Ok(DirectStore { cache, stager: Some(stager) })
    }
}

/// Tests whether the file system supports O_DIRECT with the required alignment.
fn probe(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let path = root.join("probe");
    let tried = (|| {
        let file = disk.open_direct(&path, OpenMode::Create)?;
        let mut sector = AlignedBuffer::zeroed(ALIGNMENT);
        file.write_at(&sector, 0)?;
        file.read_at(&mut sector, 0).map(drop)
    })();
    let _ = disk.remove(&path);
    match tried {
        Ok(()) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::INVAL | Errno::OPNOTSUPP) => Err(StoreError::Unsupported {
                what: format!("{} does not support O_DIRECT: use the store \"files\" there", root.display()),
            }),
            // A full or read-only disk is reported by the first write.
            Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS) => Ok(()),
            _ => Err(StoreError::from_dir(error, Doing::Opening, root)),
        },
    }
}

impl Drop for DirectStore {
    fn drop(&mut self) {
        self.cache.stop();
        if let Some(stager) = self.stager.take()
            && stager.join().is_err()
        {
            tracing::error!("the write-back thread of a direct store panicked");
            return;
        }
        if let Err(error) = self.cache.flush_all() {
            tracing::error!(%error, "written data was lost: the last write-back of the store failed");
        }
        self.cache.directory.keep_marks();
    }
}

impl Store for DirectStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        self.cache.write(object, at.0, pieces)?;
        self.cache.counters.count_write(total_bytes(pieces));
        Ok(())
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let bytes = self.cache.read(object, at.0, target)?;
        if bytes < target.len() {
            let range = at.0..at.0.saturating_add(target.len() as u64);
            self.cache.directory.check_whole(object, || self.cache.length(object), range)?;
        }
        self.cache.counters.count_read(bytes);
        Ok(bytes)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.cache.length(object)
    }

    fn marked(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.cache.directory.marked(object)
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (from, to) = (ObjectId { inode, generation: from }, ObjectId { inode, generation: to });
        self.cache.truncate(from, to, bytes)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        self.cache.remove(object)
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.cache.with_object(object, OpenWant::Existing, |found| self.cache.flush_object(found)).map(drop)
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.cache.counters.count_sync();
        self.flush(object)?;
        self.cache.directory.sync(object)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.cache.counters.count_sync();
        self.cache.flush_all()?;
        self.cache.directory.keep_marks();
        self.cache.directory.sync_all()
    }

    fn lend(&self, _object: ObjectId, _access: LendAccess) -> Result<Lent, StoreError> {
        Ok(Lent::NotLent)
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        let mut page = self.cache.directory.list(after, limit)?;
        let ledger = lock(&self.cache.ledger);
        for (object, bytes) in &mut page {
            if let Some(cached) = ledger.object(*object) {
                *bytes = cached.length();
            }
        }
        Ok(page)
    }

    fn space(&self) -> Result<Space, StoreError> {
        let space = self.cache.directory.space()?;
        let dirty_bytes = lock(&self.cache.ledger).dirty_bytes();
        Ok(Space { free_bytes: space.free_bytes.saturating_sub(dirty_bytes), ..space })
    }

    fn stats(&self) -> StoreStats {
        self.cache.stats()
    }
}

#[cfg(test)]
mod tests;
