//! A map ordered by last use.
//!
//! Never: evicts by itself; its owner decides when and what.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    values: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Self {
        Lru { values: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }
}

impl<K: Hash + Eq + Copy, V> Lru<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The value; marks it as used now.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let (used, value) = self.values.get_mut(key)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, *key);
        Some(value)
    }

    /// All values, in no order; not counted as a use.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values().map(|(_, value)| value)
    }

    /// All keys, in no order; not counted as a use.
    pub(crate) fn keys(&self) -> Vec<K> {
        self.values.keys().copied().collect()
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        self.uses += 1;
        self.values.insert(key, (self.uses, value));
        self.by_use.insert(self.uses, key);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.values.remove(key)?;
        self.by_use.remove(&used);
        Some(value)
    }

    /// Removes the least recently used value among those that `may_go` accepts.
    pub(crate) fn pop_oldest_where(&mut self, may_go: impl Fn(&V) -> bool) -> Option<(K, V)> {
        let key = *self.by_use.values().find(|key| may_go(&self.values[key].1))?;
        self.remove(&key).map(|value| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_goes_first_and_use_renews() {
        let mut lru = Lru::default();
        for key in 0..4 {
            lru.insert(key, key * 10);
        }
        assert_eq!(lru.get(&0), Some(&0));
        assert_eq!(lru.pop_oldest_where(|_| true), Some((1, 10)));
        assert_eq!(lru.pop_oldest_where(|value| *value == 0), Some((0, 0)));
        lru.insert(2, 21);
        assert_eq!(lru.pop_oldest_where(|_| true), Some((3, 30)));
        assert_eq!(lru.remove(&2), Some(21));
        assert_eq!(lru.pop_oldest_where(|_| true), None);
        assert_eq!(lru.len(), 0);
    }
}
