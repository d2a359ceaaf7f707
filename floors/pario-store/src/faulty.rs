//! A store that fails when it is told to, around one that works.

use std::sync::Mutex;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::Piece;

use crate::error::StoreError;
use crate::files::total_bytes;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::lock;

/// What a store was asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// [`Store::write`].
    Write,
    /// [`Store::read`].
    Read,
    /// [`Store::length`].
    Length,
    /// [`Store::truncate`].
    Truncate,
    /// [`Store::remove`].
    Remove,
    /// [`Store::flush`].
    Flush,
    /// [`Store::sync`].
    Sync,
    /// [`Store::sync_all`].
    SyncAll,
    /// [`Store::lend`].
    Lend,
    /// [`Store::list`].
    List,
    /// [`Store::space`].
    Space,
}

/// Decides about an operation (and its object, if it has one): `Some` makes it fail before anything is done.
pub type Predicate = Box<dyn FnMut(Operation, Option<ObjectId>) -> Option<StoreError> + Send>;

/// A store that fails when it is told to.
pub struct Faulty {
    store: Box<dyn Store>,
    rules: Mutex<Rules>,
}

#[derive(Default)]
struct Rules {
    operations: u64,
    at: Option<(u64, StoreError)>,
    when: Option<Predicate>,
    full: bool,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Faulty {
    /// Fails nothing yet.
    #[must_use]
    pub fn new(store: Box<dyn Store>) -> Faulty {
        Faulty { store, rules: Mutex::default() }
    }

    /// Makes the `count`-th operation from now on fail, once; 1 is the next.
    pub fn fail_nth(&self, count: u64, error: StoreError) {
        let mut rules = lock(&self.rules);
        rules.at = Some((rules.operations + count, error));
    }

    /// Makes every operation fail for which `predicate` has an error.
    pub fn fail_when(
        &self,
        predicate: impl FnMut(Operation, Option<ObjectId>) -> Option<StoreError> + Send + 'static,
    ) {
        lock(&self.rules).when = Some(Box::new(predicate));
    }

    /// Behaves like a full store: writes fail, nothing is free, and nothing is lent for writing.
    pub fn fill_up(&self) {
        lock(&self.rules).full = true;
    }

    /// Fails no more.
    pub fn heal(&self) {
        let mut rules = lock(&self.rules);
        *rules = Rules { operations: rules.operations, ..Rules::default() };
    }

    /// Operations so far, failed ones too.
    #[must_use]
    pub fn operations(&self) -> u64 {
        lock(&self.rules).operations
    }

    fn check(&self, operation: Operation, object: Option<ObjectId>) -> Result<(), StoreError> {
        let mut rules = lock(&self.rules);
        rules.operations += 1;
        let now = rules.operations;
        if let Some((_, error)) = rules.at.take_if(|(count, _)| *count == now) {
            return Err(error);
        }
        let refused = rules.when.as_mut().and_then(|predicate| predicate(operation, object));
        refused.map_or(Ok(()), Err)
    }

    fn is_full(&self) -> bool {
        lock(&self.rules).full
    }
}

impl Store for Faulty {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[Piece<'_>]) -> Result<(), StoreError> {
        self.check(Operation::Write, Some(object))?;
        if self.is_full() {
            return Err(StoreError::Full { object, range: at.0..at.0.saturating_add(total_bytes(pieces)) });
        }
        self.store.write(object, at, pieces)
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        self.check(Operation::Read, Some(object))?;
        self.store.read(object, at, target)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.check(Operation::Length, Some(object))?;
        self.store.length(object)
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        self.check(Operation::Truncate, Some(ObjectId { inode, generation: from }))?;
        self.store.truncate(inode, from, to, bytes)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        self.check(Operation::Remove, Some(object))?;
        self.store.remove(object)
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.check(Operation::Flush, Some(object))?;
        self.store.flush(object)
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.check(Operation::Sync, Some(object))?;
        self.store.sync(object)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.check(Operation::SyncAll, None)?;
        self.store.sync_all()
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        self.check(Operation::Lend, Some(object))?;
        if self.is_full() && access == LendAccess::Write {
            return Ok(Lent::NotLent);
        }
        self.store.lend(object, access)
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        self.check(Operation::List, None)?;
        self.store.list(after, limit)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.check(Operation::Space, None)?;
        let space = self.store.space()?;
        Ok(if self.is_full() { Space { free_bytes: 0, ..space } } else { space })
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::memory::MemoryStore;

    const OBJECT: ObjectId = ObjectId { inode: InodeId(1), generation: Generation(0) };

    fn faulty() -> Faulty {
        Faulty::new(Box::new(MemoryStore::new(64 << 20)))
    }

    fn write(store: &dyn Store) -> Result<(), StoreError> {
        store.write(OBJECT, LocalOffset(3), &[Piece::from(&b"abc"[..])])
    }

    fn unsupported() -> StoreError {
        StoreError::Unsupported { what: "on purpose".to_owned() }
    }

    #[test]
    fn conforms_while_nothing_fails() {
        conformance::all(&|| Box::new(faulty()));
    }

    #[test]
    fn the_nth_operation_fails_once() {
        let store = faulty();
        store.fail_nth(2, unsupported());
        write(&store).unwrap();
        assert!(matches!(store.length(OBJECT), Err(StoreError::Unsupported { .. })));
        assert_eq!(store.length(OBJECT).unwrap(), Some(6));
        assert_eq!(store.operations(), 3);
    }

    #[test]
    fn a_predicate_chooses_what_fails() {
        let store = faulty();
        store.fail_when(|operation, object| {
            (operation == Operation::Sync && object == Some(OBJECT)).then(unsupported)
        });
        write(&store).unwrap();
        assert!(store.sync(OBJECT).is_err() && store.sync(OBJECT).is_err());
        store.sync(ObjectId { inode: InodeId(2), ..OBJECT }).unwrap();
        store.heal();
        store.sync(OBJECT).unwrap();
    }

    #[test]
    fn a_full_one_reads_but_does_not_write() {
        let store = faulty();
        write(&store).unwrap();
        store.fill_up();
        let error = write(&store).unwrap_err();
        assert!(matches!(&error, StoreError::Full { range, .. } if *range == (3..6)), "{error}");
        assert_eq!(store.space().unwrap().free_bytes, 0);
        assert!(matches!(store.lend(OBJECT, LendAccess::Write).unwrap(), Lent::NotLent));
        assert_eq!(store.read(OBJECT, LocalOffset(3), &mut [0; 3]).unwrap(), 3);
        store.heal();
        write(&store).unwrap();
    }
}
