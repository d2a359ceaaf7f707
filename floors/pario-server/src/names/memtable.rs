//! A memtable: changed rows in memory, ordered by key, on their way from the log to redb.
//!
//! Always: holds the latest change of each key since it was empty; a deleted row is kept as a tombstone, since it hides a row in redb.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::batch::Batch;

/// Memory of a row besides its bytes: two heap blocks and its share of a tree node.
const ROW_BYTES: usize = 96;

/// See the module.
#[derive(Debug, Default)]
pub struct Memtable {
    rows: BTreeMap<Box<[u8]>, Option<Box<[u8]>>>,
    bytes: usize,
    last_sequence: u64,
}

impl Memtable {
    /// Adds a batch's rows. Sequence numbers only grow.
    pub fn apply(&mut self, sequence: u64, batch: &Batch) {
        assert!(self.last_sequence < sequence, "batch {sequence} came after {}", self.last_sequence);
        self.last_sequence = sequence;
        for row in batch.rows() {
            let value_bytes = row.value.map_or(0, <[u8]>::len);
            match self.rows.insert(row.key.into(), row.value.map(Into::into)) {
                Some(old) => self.bytes -= old.map_or(0, |value| value.len()),
                None => self.bytes += ROW_BYTES + row.key.len(),
            }
            self.bytes += value_bytes;
        }
    }

    /// `None` if the key was not changed, `Some(None)` if its row was deleted.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.rows.get(key).map(Option::as_deref)
    }

    /// The changed rows from a key on, in order.
    pub fn from<'a>(&'a self, start: Bound<&'a [u8]>) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let rows = self.rows.range::<[u8], _>((start, Bound::Unbounded));
        rows.map(|(key, value)| (key.as_ref(), value.as_deref()))
    }

    /// Every changed row, in order.
    pub fn all(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.rows.iter().map(|(key, value)| (key.as_ref(), value.as_deref()))
    }

    /// Approximate memory use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sequence number of the last batch in it.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_changes_win_and_bytes_are_exact() {
        let mut table = Memtable::default();
        let mut batch = Batch::default();
        batch.put(b"a", b"12345");
        batch.put(b"b", b"1");
        batch.put(b"a", b"12");
        table.apply(1, &batch);
        assert_eq!(table.get(b"a"), Some(Some(&b"12"[..])));
        assert_eq!(table.bytes(), 2 * (ROW_BYTES + 1) + 2 + 1);
        let mut batch = Batch::default();
        batch.delete(b"a");
        table.apply(2, &batch);
        assert_eq!(table.get(b"a"), Some(None));
        assert_eq!(table.get(b"c"), None);
        assert_eq!(table.bytes(), 2 * (ROW_BYTES + 1) + 1);
        let after: Vec<_> = table.from(Bound::Excluded(b"a")).collect();
        assert_eq!(after, [(&b"b"[..], Some(&b"1"[..]))]);
    }
}
