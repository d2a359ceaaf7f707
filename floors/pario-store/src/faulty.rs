//! A store that fails on request, around a working one.

use std::sync::Mutex;

use pario_core::{ObjectId, Space};

use crate::error::StoreError;
pub use crate::layer::Operation;
use crate::layer::{StoreCall, StoreLayer};
use crate::store::{LendAccess, Store};
use crate::sync::lock;

/// Decides about an operation (and its object, if it has one): `Some` makes it fail before it starts.
pub type Predicate = Box<dyn FnMut(Operation, Option<ObjectId>) -> Option<StoreError> + Send>;

/// A store that fails on request.
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
    /// No failures yet.
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

    /// Behaves like a full store: writes fail, no space is free, and nothing is lent for writing.
    pub fn fill_up(&self) {
        lock(&self.rules).full = true;
    }

    /// Ends all failures.
    pub fn heal(&self) {
        let mut rules = lock(&self.rules);
        *rules = Rules { operations: rules.operations, ..Rules::default() };
    }

    /// Operations so far, including failed ones.
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

impl StoreLayer for Faulty {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    fn before(&self, call: &StoreCall) -> Result<(), StoreError> {
        self.check(call.operation, call.object)?;
        match call.object {
            Some(object) if call.operation == Operation::Write && self.is_full() => {
                Err(StoreError::Full { object, range: call.range.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn lends(&self, access: LendAccess) -> bool {
        !self.is_full() || access == LendAccess::Read
    }

    fn visible_space(&self, space: Space) -> Space {
        if self.is_full() { Space { free_bytes: 0, ..space } } else { space }
    }
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId, LocalOffset};
    use pario_sys::MemoryPiece;

    use super::*;
    use crate::conformance;
    use crate::memory::MemoryStore;
    use crate::store::Lent;

    const OBJECT: ObjectId = ObjectId { inode: InodeId(1), generation: Generation(0) };

    fn faulty() -> Faulty {
        Faulty::new(Box::new(MemoryStore::new(64 << 20)))
    }

    fn write(store: &dyn Store) -> Result<(), StoreError> {
        store.write(OBJECT, LocalOffset(3), &[MemoryPiece::from(&b"abc"[..])])
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
