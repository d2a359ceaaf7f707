//! Views by content: each known view is held once, under an id hashed from its bytes.
//!
//! Never: exceeds its limits of views and bytes; accepts an id without hashing the bytes. Always: evicts the least recently used view; a
//! view referenced elsewhere outlives its eviction.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use pario_core::codec::{Encode, Malformed, Reader, Writer};
use sha2::{Digest, Sha256};

use crate::error::ViewError;
use crate::view::View;

/// Content hash of a view: the first 128 bits of SHA-256 over its bytes. Two views with one id would corrupt data, hence a
/// collision-resistant hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewId(pub [u8; 16]);

impl ViewId {
    /// The id of a view that was encoded to `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> ViewId {
        let digest = Sha256::digest(bytes);
        ViewId(std::array::from_fn(|index| digest[index]))
    }
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Encode for ViewId {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(ViewId(reader.get()?))
    }
}

/// Why a table rejects a view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The bytes hash to another id.
    #[error("bytes of view {got} were sent as view {claimed}: the peer is damaged or incompatible")]
    WrongId {
        /// The claimed id.
        claimed: ViewId,
        /// The id computed from the bytes.
        got: ViewId,
    },
    /// It alone is more than the table may hold.
    #[error("a view of {bytes} bytes in a table of {bytes_max}")]
    TooBig {
        /// Memory of the view.
        bytes: usize,
        /// What the table may hold.
        bytes_max: usize,
    },
    /// The bytes are no view.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The view cannot travel.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Views by id, the least recently used go first.
#[derive(Debug)]
pub struct ViewTable {
    views_max: usize,
    bytes_max: usize,
    bytes: usize,
    clock: u64,
    views: HashMap<ViewId, ViewEntry>,
    /// Ids by the time of their last use.
    uses: BTreeMap<u64, ViewId>,
}

#[derive(Debug)]
struct ViewEntry {
    view: View,
    bytes: usize,
    used: u64,
}

impl ViewTable {
    /// An empty table for at most `views_max` views of at most `bytes_max` bytes of memory.
    #[must_use]
    pub fn new(views_max: usize, bytes_max: usize) -> ViewTable {
        assert!(0 < views_max, "a table needs space for at least one view");
        let (views, uses) = (HashMap::new(), BTreeMap::new());
        ViewTable { views_max, bytes_max, bytes: 0, clock: 0, views, uses }
    }

    /// Adds a local view; returns its id and its bytes, for peers without it.
    pub fn intern(&mut self, view: &View) -> Result<(ViewId, Vec<u8>), TableError> {
        let bytes = view.encode()?;
        let id = ViewId::of(&bytes);
        if self.get(&id).is_none() {
            self.insert(id, view.clone())?;
        }
        Ok((id, bytes))
    }

    /// Adds the bytes of a view that a peer calls `claimed`.
    pub fn receive(&mut self, claimed: ViewId, bytes: &[u8]) -> Result<View, TableError> {
        let got = ViewId::of(bytes);
        if got != claimed {
            return Err(TableError::WrongId { claimed, got });
        }
        if let Some(known) = self.get(&claimed) {
            return Ok(known);
        }
        let view = View::decode(bytes)?;
        self.insert(claimed, view.clone())?;
        Ok(view)
    }

    /// Looks up a view and marks it as recently used.
    pub fn get(&mut self, id: &ViewId) -> Option<View> {
        let entry = self.views.get_mut(id)?;
        self.clock += 1;
        self.uses.remove(&entry.used);
        entry.used = self.clock;
        self.uses.insert(self.clock, *id);
        Some(entry.view.clone())
    }

    /// How many views it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Memory of the views it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, id: ViewId, view: View) -> Result<(), TableError> {
        let bytes = view.memory_bytes();
        if self.bytes_max < bytes {
            return Err(TableError::TooBig { bytes, bytes_max: self.bytes_max });
        }
        while self.views.len() == self.views_max || self.bytes_max - self.bytes < bytes {
            self.evict();
        }
        self.clock += 1;
        self.bytes += bytes;
        self.uses.insert(self.clock, id);
        self.views.insert(id, ViewEntry { view, bytes, used: self.clock });
        Ok(())
    }

    fn evict(&mut self) {
        let (_, oldest) = self.uses.pop_first().expect("a full table holds a view");
        let entry = self.views.remove(&oldest).expect("every use is of a held view");
        self.bytes -= entry.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(displacement: i64) -> View {
        View::contiguous(displacement, 1).unwrap()
    }

    #[test]
    fn equal_views_are_held_once() {
        let mut table = ViewTable::new(8, 1 << 20);
        let (one, bytes) = table.intern(&view(5)).unwrap();
        assert_eq!(table.intern(&view(5)).unwrap().0, one);
        assert_eq!(table.receive(one, &bytes).unwrap().displacement(), 5);
        assert_eq!(table.len(), 1);
        assert_ne!(table.intern(&view(6)).unwrap().0, one);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut table = ViewTable::new(2, 1 << 20);
        let (one, _) = table.intern(&view(1)).unwrap();
        let (two, _) = table.intern(&view(2)).unwrap();
        assert!(table.get(&one).is_some());
        table.intern(&view(3)).unwrap();
        assert!(table.get(&two).is_none());
        assert!(table.get(&one).is_some());
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn memory_is_bounded_too() {
        let each = view(1).memory_bytes();
        let mut table = ViewTable::new(100, 3 * each);
        for displacement in 0..10 {
            table.intern(&view(displacement)).unwrap();
            assert!(table.bytes() <= 3 * each);
        }
        assert_eq!(table.len(), 3);
        let mut tiny = ViewTable::new(1, each - 1);
        assert_eq!(tiny.intern(&view(0)), Err(TableError::TooBig { bytes: each, bytes_max: each - 1 }));
    }

    #[test]
    fn a_false_id_is_refused() {
        let mut table = ViewTable::new(2, 1 << 20);
        let bytes = view(1).encode().unwrap();
        assert!(matches!(table.receive(ViewId([0; 16]), &bytes), Err(TableError::WrongId { .. })));
        assert!(matches!(table.receive(ViewId::of(&[9]), &[9]), Err(TableError::Malformed(_))));
        assert!(table.is_empty());
    }
}
