//! The conformance suite for stores of opened files: caches above files with names and lengths that belong to another component.
//!
//! ```text
//!  suite ─ objects ─► [`OpenedFiles`]: one file per object ─┬─ make, truncate, remove ─► [`FileOwner`], as a manager would
//!                                                          └─ read, write, flush, … ─► the store
//! ```
//! Never: keeps bytes or lengths itself. Always: a file is opened before its first use; a call and the removal of its file do not overlap.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;

use crate::error::StoreError;
use crate::store::{LendAccess, Lent, Store, StoreStats};

/// The owner of the files of a store: makes, truncates and removes them.
pub trait FileOwner: Send + Sync + std::fmt::Debug {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// Makes a file of no bytes and opens it in the store; returns its inode there.
    fn make(&self) -> InodeId;

    /// Truncates a file to at most `bytes` and gives it the generation `to`, as the file's manager does.
    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError>;

    /// Whether the owner lets no call overlap with a truncation, because the store itself does not know generations.
    fn separates_truncations(&self) -> bool {
        false
    }

    /// Removes a file, and closes it in the store.
    fn remove(&self, inode: InodeId);
}

/// See the module.
#[derive(Debug)]
pub struct OpenedFiles<Owner> {
    owner: Owner,
    files: RwLock<BTreeMap<ObjectId, InodeId>>,
}

type Files = BTreeMap<ObjectId, InodeId>;

impl<Owner: FileOwner> OpenedFiles<Owner> {
    /// No objects yet.
    pub fn new(owner: Owner) -> OpenedFiles<Owner> {
        OpenedFiles { owner, files: RwLock::default() }
    }

    fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn files_exclusive(&self) -> RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on an object, if there is one.
    fn find<T>(
        &self,
        object: ObjectId,
        act: impl FnOnce(&dyn Store, ObjectId) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let files = self.files();
        let inode = files.get(&object);
        inode.map(|inode| act(self.owner.store(), ObjectId { inode: *inode, ..object })).transpose()
    }

    /// Acts on an object, which is made if it is missing.
    fn make<T>(
        &self,
        object: ObjectId,
        act: impl FnOnce(&dyn Store, ObjectId) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let inode = self.files().get(&object).copied();
        let inode = inode
            .unwrap_or_else(|| *self.files_exclusive().entry(object).or_insert_with(|| self.owner.make()));
        // A truncation may overlap with the call, unless the owner keeps them apart: then the object may be another one by now.
        let files = self.owner.separates_truncations().then(|| self.files());
        if files.as_ref().is_some_and(|files| files.get(&object) != Some(&inode)) {
            drop(files);
            return self.make(object, act);
        }
        act(self.owner.store(), ObjectId { inode, ..object })
    }
}

impl<Owner: FileOwner> Store for OpenedFiles<Owner> {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        self.make(object, |store, file| store.write(file, at, pieces).and_then(|()| confirm(store, file)))
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        self.make(object, |store, file| {
            store.write_scattered(file, pieces).and_then(|()| confirm(store, file))
        })
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        Ok(self.find(object, |store, file| store.read(file, at, target))?.unwrap_or(0))
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        Ok(self.find(object, |store, file| store.length(file))?.flatten())
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let [old, new] = [from, to].map(|generation| ObjectId { inode, generation });
        let mut files = self.files_exclusive();
        let Some((live, file)) = [new, old].iter().find_map(|id| files.get(id).map(|file| (*id, *file)))
        else {
            return Ok(());
        };
        self.owner.truncate(file, live.generation, to, bytes)?;
        let gone = files.remove(&old);
        files.insert(new, file);
        let store = self.owner.store();
        if !self.owner.separates_truncations() && live != new {
            let stale = ObjectId { inode: file, generation: from };
            assert_eq!(store.length(stale)?, None, "a truncated generation has no length");
            assert_eq!(
                store.read(stale, LocalOffset(0), &mut [0; 1])?,
                0,
                "a truncated generation has no bytes"
            );
        }
        gone.filter(|gone| *gone != file).into_iter().for_each(|gone| self.owner.remove(gone));
        Ok(())
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        if let Some(file) = self.files_exclusive().remove(&object) {
            self.owner.remove(file);
        }
        Ok(())
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.find(object, |store, file| store.flush(file)).map(|_| ())
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.find(object, |store, file| store.sync(file)).map(|_| ())
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.owner.store().sync_all()
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        match access {
            LendAccess::Read => {
                let lent = self.find(object, |store, file| store.lend(file, access))?;
                lent.map_or_else(|| self.owner.store().lend(object, access), Ok)
            }
            LendAccess::Write => self.make(object, |store, file| store.lend(file, access)),
        }
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        let files = self.files();
        let later = files.iter().filter(|(object, _)| after.is_none_or(|after| after < **object)).take(limit);
        later
            .map(|(object, file)| {
                let length = self.owner.store().length(ObjectId { inode: *file, ..*object })?;
                Ok((*object, length.unwrap_or(0)))
            })
            .collect()
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.owner.store().space()
    }

    fn stats(&self) -> StoreStats {
        self.owner.store().stats()
    }
}

/// Has a write confirmed before it is answered, as a server does.
fn confirm(store: &dyn Store, file: ObjectId) -> Result<(), StoreError> {
    if store.is_confirmed(file) { Ok(()) } else { store.confirm(file) }
}
