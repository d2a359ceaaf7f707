//! Directories with entries that are not on stable storage yet.
//!
//! Always: a directory that was not synced by this process counts as changed, since an earlier process may have died between making an
//! entry and syncing it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::InodeId;

use crate::directory::names_dir;
use crate::disk::Disk;
use crate::error::{Doing, StoreError};

#[derive(Debug)]
pub(crate) struct NameChanges {
    below: [Changes; 256],
    top: Changes,
}

#[derive(Debug)]
struct Changes {
    made: AtomicU64,
    synced: AtomicU64,
}

impl Default for NameChanges {
    fn default() -> Self {
        NameChanges { below: std::array::from_fn(|_| Changes::default()), top: Changes::default() }
    }
}

impl Default for Changes {
    fn default() -> Self {
        Changes { made: AtomicU64::new(1), synced: AtomicU64::new(0) }
    }
}

impl NameChanges {
    /// An entry of the inode's directory was made, renamed or removed.
    pub(crate) fn note(&self, inode: InodeId) {
        self.below(inode).note();
    }

    /// A directory was made.
    pub(crate) fn note_dir(&self) {
        self.top.note();
    }

    /// Flushes the names of the inode's objects to stable storage, if needed.
    pub(crate) fn sync(&self, disk: &dyn Disk, root: &Path, inode: InodeId) -> Result<(), StoreError> {
        self.below(inode).sync(disk, &root.join(names_dir(inode)))?;
        self.top.sync(disk, root)
    }

    fn below(&self, inode: InodeId) -> &Changes {
        &self.below[usize::from(inode.0.to_le_bytes()[0])]
    }
}

impl Changes {
    fn note(&self) {
        self.made.fetch_add(1, Ordering::AcqRel);
    }

    fn sync(&self, disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
        // Read before the sync: a change during it counts for the next one.
        let made = self.made.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) < made {
            disk.sync_dir(path).map_err(|e| StoreError::from_dir(e, Doing::Syncing, path))?;
            self.synced.fetch_max(made, Ordering::AcqRel);
        }
        Ok(())
    }
}
