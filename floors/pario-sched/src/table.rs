//! A bounded table of things in use and of things that were: when it is full, what has been idle longest is forgotten.
//!
//! Never: forgets what is in use or pinned. Always: holds at most its limit.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

#[derive(Debug)]
struct Slot<V> {
    value: V,
    uses: usize,
    pinned: bool,
    /// When it became idle, while it is in `idle`.
    idle: Option<u64>,
}

/// Values by key, with a count of uses each.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    slots: HashMap<K, Slot<V>>,
    idle: BTreeSet<(u64, K)>,
    tick: u64,
    limit: usize,
}

impl<K: Ord + Copy + Hash, V: Default> Table<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { slots: HashMap::new(), idle: BTreeSet::new(), tick: 0, limit }
    }

    /// Whether `enter` would find room, and whom it would forget for it.
    pub(crate) fn room(&self, key: K) -> Result<Option<K>, usize> {
        if self.slots.contains_key(&key) || self.slots.len() < self.limit {
            return Ok(None);
        }
        self.idle.first().map(|(_, idle)| Some(*idle)).ok_or(self.limit)
    }

    /// One more use; the caller has asked for room and taken out whom it must.
    pub(crate) fn enter(&mut self, key: K) -> &mut V {
        let slot = self.slot(key);
        slot.uses += 1;
        &mut slot.value
    }

    /// One use less; whether that was the last.
    pub(crate) fn leave(&mut self, key: K) -> bool {
        let Some(slot) = self.slots.get_mut(&key) else { return false };
        assert!(0 < slot.uses, "something was left that nobody had entered");
        slot.uses -= 1;
        let last = slot.uses == 0;
        self.rest(key);
        last
    }

    /// A pinned value stays though nobody uses it.
    pub(crate) fn pin(&mut self, key: K, pinned: bool) -> &mut V {
        self.slot(key).pinned = pinned;
        self.rest(key);
        &mut self.slots.get_mut(&key).expect("it was just made").value
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.slots.get(&key).map(|slot| &slot.value)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.slots.get_mut(&key).map(|slot| &mut slot.value)
    }

    pub(crate) fn is_idle(&self, key: K) -> bool {
        self.slots.get(&key).is_none_or(|slot| slot.uses == 0)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let slot = self.slots.remove(&key)?;
        if let Some(since) = slot.idle {
            self.idle.remove(&(since, key));
        }
        Some(slot.value)
    }

    /// All of them, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<(K, &V)> {
        let mut all: Vec<(K, &V)> = self.slots.iter().map(|(key, slot)| (*key, &slot.value)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    fn slot(&mut self, key: K) -> &mut Slot<V> {
        let slot = self.slots.entry(key).or_insert_with(|| Slot {
            value: V::default(),
            uses: 0,
            pinned: false,
            idle: None,
        });
        if let Some(since) = slot.idle.take() {
            self.idle.remove(&(since, key));
        }
        slot
    }

    fn rest(&mut self, key: K) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        if slot.uses == 0 && !slot.pinned && slot.idle.is_none() {
            self.tick += 1;
            slot.idle = Some(self.tick);
            self.idle.insert((self.tick, key));
        }
    }
}
