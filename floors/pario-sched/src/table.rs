//! A bounded table of things in use and of things that were: when it is full, what has been idle longest is forgotten.
//!
//! Never: forgets what is in use or pinned. Always: holds at most its limit.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::{Index, IndexMut};

/// Where a value is, while it is in use: no key has to be looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u32);

#[derive(Debug)]
struct Slot<K, V> {
    key: K,
    value: V,
    uses: usize,
    pinned: bool,
    /// When it became idle, while it is in `idle`.
    idle: Option<u64>,
}

/// Values by key, with a count of uses each.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<Place>,
    places: HashMap<K, Place>,
    idle: BTreeSet<(u64, K)>,
    tick: u64,
    limit: usize,
}

impl<K, V> Index<Place> for Table<K, V> {
    type Output = V;

    fn index(&self, place: Place) -> &V {
        &self.slots[place.0 as usize].as_ref().expect("a place is good while its value is in use").value
    }
}

impl<K, V> IndexMut<Place> for Table<K, V> {
    fn index_mut(&mut self, place: Place) -> &mut V {
        &mut self.slots[place.0 as usize].as_mut().expect("a place is good while its value is in use").value
    }
}

impl<K: Ord + Copy + Hash, V: Default> Table<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        let (slots, free, places, idle) = (Vec::new(), Vec::new(), HashMap::new(), BTreeSet::new());
        Self { slots, free, places, idle, tick: 0, limit }
    }

    /// Whether `enter` would find room, and whom it would forget for it.
    pub(crate) fn room(&self, key: K) -> Result<Option<K>, usize> {
        if self.places.contains_key(&key) || self.places.len() < self.limit {
            return Ok(None);
        }
        self.idle.first().map(|(_, idle)| Some(*idle)).ok_or(self.limit)
    }

    /// One more use; the caller has asked for room and taken out whom it must.
    pub(crate) fn enter(&mut self, key: K) -> Place {
        let place = self.place(key);
        let slot = self.slot(place);
        slot.uses += 1;
        if let Some(since) = slot.idle.take() {
            self.idle.remove(&(since, key));
        }
        place
    }

    /// One use less; whether that was the last.
    pub(crate) fn leave(&mut self, place: Place) -> bool {
        let slot = self.slot(place);
        assert!(0 < slot.uses, "something was left that nobody had entered");
        slot.uses -= 1;
        let last = slot.uses == 0;
        self.rest(place);
        last
    }

    /// A pinned value stays though nobody uses it.
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

    pub(crate) fn find(&self, key: K) -> Option<Place> {
        self.places.get(&key).copied()
    }

    pub(crate) fn is_idle(&self, place: Place) -> bool {
        self.slots[place.0 as usize].as_ref().is_none_or(|slot| slot.uses == 0)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let place = self.places.remove(&key)?;
        let slot = self.slots[place.0 as usize].take()?;
        self.free.push(place);
        if let Some(since) = slot.idle {
            self.idle.remove(&(since, key));
        }
        Some(slot.value)
    }

    /// All of them, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<(K, &V)> {
        let mut all: Vec<(K, &V)> = self.slots.iter().flatten().map(|slot| (slot.key, &slot.value)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    fn place(&mut self, key: K) -> Place {
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Place(u32::try_from(self.slots.len() - 1).expect("tables are limited to far fewer"))
        });
        self.slots[place.0 as usize] =
            Some(Slot { key, value: V::default(), uses: 0, pinned: false, idle: None });
        self.places.insert(key, place);
        place
    }

    fn slot(&mut self, place: Place) -> &mut Slot<K, V> {
        self.slots[place.0 as usize].as_mut().expect("a place is good while its value is in use")
    }

    fn rest(&mut self, place: Place) {
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
