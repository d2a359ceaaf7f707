//! A bounded table of values in use and idle values: when it is full, the value that has been idle longest is forgotten.
//!
//! Never: forgets a value that is in use or pinned. Always: holds at most its limit.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::{Index, IndexMut};

/// Slot of a value in use: avoids a lookup by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableSlot(u32);

#[derive(Debug)]
struct TableValue<K, V> {
    key: K,
    value: V,
    uses: usize,
    pinned: bool,
    /// When it became idle, while it is in `idle`.
    idle: Option<u64>,
}

/// Values by key, with a count of uses each.
#[derive(Debug)]
pub(crate) struct IdleTable<K, V> {
    slots: Vec<Option<TableValue<K, V>>>,
    free: Vec<TableSlot>,
    slot_of: HashMap<K, TableSlot>,
    idle: BTreeSet<(u64, K)>,
    tick: u64,
    limit: usize,
}

impl<K, V> Index<TableSlot> for IdleTable<K, V> {
    type Output = V;

    fn index(&self, place: TableSlot) -> &V {
        &self.slots[place.0 as usize].as_ref().expect("a slot is valid while its value is in use").value
    }
}

impl<K, V> IndexMut<TableSlot> for IdleTable<K, V> {
    fn index_mut(&mut self, place: TableSlot) -> &mut V {
        &mut self.slots[place.0 as usize].as_mut().expect("a slot is valid while its value is in use").value
    }
}

impl<K: Ord + Copy + Hash, V: Default> IdleTable<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        let (slots, free, places, idle) = (Vec::new(), Vec::new(), HashMap::new(), BTreeSet::new());
        Self { slots, free, slot_of: places, idle, tick: 0, limit }
    }

    /// Whether `enter` would succeed, and which key it would evict.
    pub(crate) fn room(&self, key: K) -> Result<Option<K>, usize> {
        if self.slot_of.contains_key(&key) || self.slot_of.len() < self.limit {
            return Ok(None);
        }
        self.idle.first().map(|(_, idle)| Some(*idle)).ok_or(self.limit)
    }

    /// Adds one use; the caller has checked `room` and removed the evicted key.
    pub(crate) fn enter(&mut self, key: K) -> TableSlot {
        let place = self.place(key);
        let slot = self.slot(place);
        slot.uses += 1;
        if let Some(since) = slot.idle.take() {
            self.idle.remove(&(since, key));
        }
        place
    }

    /// Ends one use; returns whether it was the last.
    pub(crate) fn leave(&mut self, place: TableSlot) -> bool {
        let slot = self.slot(place);
        assert!(0 < slot.uses, "leave without enter");
        slot.uses -= 1;
        let last = slot.uses == 0;
        self.rest(place);
        last
    }

    /// A pinned value stays without uses.
    pub(crate) fn pin(&mut self, key: K, pinned: bool) -> &mut V {
        let place = self.place(key);
        let slot = self.slot(place);
        slot.pinned = pinned;
        if let Some(since) = slot.idle.take() {
            self.idle.remove(&(since, key));
        }
        self.rest(place);
        &mut self[place]
    }

    pub(crate) fn find(&self, key: K) -> Option<TableSlot> {
        self.slot_of.get(&key).copied()
    }

    pub(crate) fn is_idle(&self, place: TableSlot) -> bool {
        self.slots[place.0 as usize].as_ref().is_none_or(|slot| slot.uses == 0)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let place = self.slot_of.remove(&key)?;
        let slot = self.slots[place.0 as usize].take()?;
        self.free.push(place);
        if let Some(since) = slot.idle {
            self.idle.remove(&(since, key));
        }
        Some(slot.value)
    }

    /// All values, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<(K, &V)> {
        let mut all: Vec<(K, &V)> = self.slots.iter().flatten().map(|slot| (slot.key, &slot.value)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    fn place(&mut self, key: K) -> TableSlot {
        if let Some(place) = self.slot_of.get(&key) {
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            TableSlot(u32::try_from(self.slots.len() - 1).expect("tables are limited to far fewer"))
        });
        self.slots[place.0 as usize] =
            Some(TableValue { key, value: V::default(), uses: 0, pinned: false, idle: None });
        self.slot_of.insert(key, place);
        place
    }

    fn slot(&mut self, place: TableSlot) -> &mut TableValue<K, V> {
        self.slots[place.0 as usize].as_mut().expect("a slot is valid while its value is in use")
    }

    fn rest(&mut self, place: TableSlot) {
        let tick = self.tick + 1;
        let slot = self.slot(place);
        if slot.uses == 0 && !slot.pinned && slot.idle.is_none() {
            slot.idle = Some(tick);
            let key = slot.key;
            self.idle.insert((tick, key));
            self.tick = tick;
        }
    }
}
