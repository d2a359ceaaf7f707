//! The conformance suite on a server's store of the file cache, with plain files that are made, truncated and removed as a manager does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::{Generation, InodeId, Layout, ObjectId, ServerIndex};

use super::*;
use crate::conformance::{self, FileOwner, OpenedFiles};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::StoreError;
use crate::real_disk::RealDisk;
use crate::store::Store;

const BLOCK: u64 = 64 << 10;

/// Plain files in a directory, all cached at one server.
#[derive(Debug)]
struct PlainFiles {
    store: PlainCacheStore,
    directory: tempfile::TempDir,
    made: AtomicU64,
}

impl PlainFiles {
    fn new(cache_bytes: u64) -> OpenedFiles<PlainFiles> {
        let store = PlainCacheStore::new(cache_bytes).unwrap();
        store.set_write_behind(true);
        let directory = tempfile::tempdir().unwrap();
        OpenedFiles::new(PlainFiles { store, directory, made: AtomicU64::new(0) })
    }

    fn path(&self, inode: InodeId) -> std::path::PathBuf {
        self.directory.path().join(inode.to_string())
    }
}

impl FileOwner for PlainFiles {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn make(&self) -> InodeId {
        let inode = InodeId(self.made.fetch_add(1, Ordering::Relaxed));
        let path = self.path(inode);
        let file: Arc<dyn DiskFile> = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        let opened = PlainFileOpening { path, file, reads: true, writes: true, locks: false };
        let place = CachePlacement {
            server: ServerIndex(0),
            layout: Layout::new(BLOCK, 1, 0, 1).unwrap(),
            block_bytes: BLOCK,
            homes: None,
            follows_writers: false,
            direct: false,
        };
        self.store.open(inode, place, opened, 0).unwrap();
        inode
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        // As a manager does: a file never grows by a truncation, and all servers know its new length before.
        let length = self.store.length(ObjectId { inode, generation: from })?.unwrap_or(0).min(bytes);
        self.store.announce_length(inode, length);
        self.store.truncate(inode, from, to, length)
    }

    fn remove(&self, inode: InodeId) {
        let generation = Generation(u32::MAX);
        self.store.remove(ObjectId { inode, generation }).unwrap();
        std::fs::remove_file(self.path(inode)).unwrap();
    }
}

#[test]
fn a_large_cache_conforms() {
    conformance::all(&|| Box::new(PlainFiles::new(64 << 20)));
}

#[test]
fn a_cache_of_a_few_blocks_conforms() {
    conformance::all(&|| Box::new(PlainFiles::new(5 * BLOCK)));
}

#[test]
fn without_a_cache_it_conforms() {
    conformance::all(&|| Box::new(PlainFiles::new(0)));
}
