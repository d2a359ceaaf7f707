//! Virtual requests in the order of a key; shared by policies.
//!
//! Never: iterates over all requests. Always: a request has one key.

use super::{PolicyChoice, VirtualId};
use crate::index::Index;

/// Virtual requests ordered by a key that the policy computes.
#[derive(Debug)]
pub(super) struct Ranked<K> {
    pub(super) order: Index<(K, VirtualId), ()>,
    pub(super) keys: Vec<Option<K>>,
}

impl<K> Default for Ranked<K> {
    fn default() -> Self {
        Self { order: Index::default(), keys: Vec::new() }
    }
}

impl<K: Ord + Copy> Ranked<K> {
    /// Sets its key, replacing an earlier one.
    pub(super) fn put(&mut self, id: VirtualId, key: K) {
        if self.keys.len() <= id.index() {
            self.keys.resize(id.index() + 1, None);
        }
        let before = self.keys[id.index()].replace(key);
        if before != Some(key) {
            if let Some(before) = before {
                self.order.remove(&(before, id));
            }
            self.order.insert((key, id), ());
        }
    }

    pub(super) fn take(&mut self, id: VirtualId) -> Option<K> {
        let key = self.keys.get_mut(id.index())?.take()?;
        self.order.remove(&(key, id));
        Some(key)
    }

    pub(super) fn first(&self) -> Option<(K, VirtualId)> {
        self.order.first()
    }

    pub(super) fn pop_first(&mut self) -> Option<VirtualId> {
        let (_, id) = self.first()?;
        self.take(id);
        Some(id)
    }
}

pub(super) fn serve(picked: Option<VirtualId>) -> PolicyChoice {
    picked.map_or(PolicyChoice::Nothing, PolicyChoice::Serve)
}
