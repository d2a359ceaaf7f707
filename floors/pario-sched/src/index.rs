//! An ordered index in which every subtree knows a summary of its values: the first key whose value passes a test is found
//! without looking at those before it. Everything that decides stands on it.
//!
//! Never: recurses deeper than the tree, which is a treap with priorities from a fixed sequence: the same calls build the same tree.
//! Always: insert, remove, set and searches by an exact summary visit O(log n) nodes (expected); visits are counted.

use std::cell::Cell;

const NIL: u32 = u32::MAX;

/// A value that can be summed up over a subtree.
pub(crate) trait Summary: Copy + PartialEq {
    /// Both together.
    fn with(self, other: Self) -> Self;
}

impl Summary for () {
    fn with(self, (): Self) {}
}

/// Summed up by the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Least(pub(crate) u64);

impl Summary for Least {
    fn with(self, other: Self) -> Self {
        self.min(other)
    }
}

#[derive(Debug, Clone, Copy)]
struct Node<K, V> {
    key: K,
    left: u32,
    right: u32,
    priority: u32,
    value: V,
    summary: V,
}

/// Keys in order, each with a value.
#[derive(Debug)]
pub(crate) struct Index<K, V> {
    nodes: Vec<Node<K, V>>,
    free: Vec<u32>,
    root: u32,
    random: u64,
    visited: Cell<u64>,
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NIL,
            random: 0x9E37_79B9_7F4A_7C15,
            visited: Cell::new(0),
        }
    }
}

impl<K: Ord + Copy, V: Summary> Index<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// Nodes looked at since the last call.
    pub(crate) fn take_visited(&self) -> u64 {
        self.visited.take()
    }

    /// The summary of all values.
    pub(crate) fn summary(&self) -> Option<V> {
        (self.root != NIL).then(|| self.node(self.root).summary)
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let node = Node { key, left: NIL, right: NIL, priority: self.priority(), value, summary: value };
        let new = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("the queue limit is below 2^32")
            }
        };
        self.root = self.insert_at(self.root, new);
    }

    /// Takes a key out; whether it was there.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let before = self.free.len();
        self.root = self.remove_at(self.root, key);
        before < self.free.len()
    }

    /// Changes the value of a key that is there.
    pub(crate) fn set(&mut self, key: &K, value: V) {
        self.set_at(self.root, key, value);
    }

    /// The first key.
    pub(crate) fn first(&self) -> Option<K> {
        let mut found = None;
        let mut at = self.root;
        while at != NIL {
            let node = self.visit(at);
            (found, at) = (Some(node.key), node.left);
        }
        found
    }

    /// The first key that is not below this one.
    pub(crate) fn first_from(&self, least: &K) -> Option<K> {
        let mut found = None;
        let mut at = self.root;
        while at != NIL {
            let node = self.visit(at);
            if node.key < *least {
                at = node.right;
            } else {
                (found, at) = (Some(node.key), node.left);
            }
        }
        found
    }

    /// The first key whose value passes; a summary passes exactly when one of its values does.
    pub(crate) fn first_where(&self, passes: impl Fn(V) -> bool) -> Option<K> {
        let mut at = self.root;
        if at == NIL || !passes(self.visit(at).summary) {
            return None;
        }
        loop {
            let Node { key, left, right, value, .. } = *self.node(at);
            if left != NIL && passes(self.visit(left).summary) {
                at = left;
            } else if passes(value) {
                return Some(key);
            } else {
                assert!(right != NIL, "a summary passed and none of its values does");
                at = right;
            }
        }
    }

    /// The last key below `limit` whose value passes; a summary passes at least when one of its values does.
    pub(crate) fn last_where(&self, limit: &K, passes: impl Fn(V) -> bool) -> Option<K> {
        let mut at = self.root;
        let mut beside = Vec::new();
        loop {
            while at != NIL && passes(self.visit(at).summary) {
                let node = self.node(at);
                if node.key < *limit {
                    beside.push(at);
                    at = node.right;
                } else {
                    at = node.left;
                }
            }
            let parent = self.node(beside.pop()?);
            if passes(parent.value) {
                return Some(parent.key);
            }
            at = parent.left;
        }
    }

    fn priority(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }

    fn node(&self, at: u32) -> &Node<K, V> {
        &self.nodes[at as usize]
    }

    fn visit(&self, at: u32) -> &Node<K, V> {
        self.visited.set(self.visited.get() + 1);
        self.node(at)
    }

    fn pull(&mut self, at: u32) {
        let Node { left, right, value, .. } = self.nodes[at as usize];
        let mut summary = value;
        for child in [left, right] {
            if child != NIL {
                summary = summary.with(self.node(child).summary);
            }
        }
        self.nodes[at as usize].summary = summary;
    }

    fn insert_at(&mut self, at: u32, new: u32) -> u32 {
        if at == NIL {
            return new;
        }
        let Node { key, left, right, priority, .. } = *self.visit(at);
        if priority < self.node(new).priority {
            let limit = self.node(new).key;
            let (low, high) = self.split(at, &limit);
            (self.nodes[new as usize].left, self.nodes[new as usize].right) = (low, high);
            self.pull(new);
            return new;
        }
        if self.node(new).key < key {
            self.nodes[at as usize].left = self.insert_at(left, new);
        } else {
            self.nodes[at as usize].right = self.insert_at(right, new);
        }
        self.pull(at);
        at
    }

    /// Those below `key`, and the others.
    fn split(&mut self, at: u32, key: &K) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let Node { key: here, left, right, .. } = *self.visit(at);
        if here < *key {
            let (low, high) = self.split(right, key);
            self.nodes[at as usize].right = low;
            self.pull(at);
            (at, high)
        } else {
            let (low, high) = self.split(left, key);
            self.nodes[at as usize].left = high;
            self.pull(at);
            (low, at)
        }
    }

    fn join(&mut self, low: u32, high: u32) -> u32 {
        if low == NIL || high == NIL {
            return if low == NIL { high } else { low };
        }
        if self.visit(high).priority < self.visit(low).priority {
            self.nodes[low as usize].right = self.join(self.node(low).right, high);
            self.pull(low);
            low
        } else {
            self.nodes[high as usize].left = self.join(low, self.node(high).left);
            self.pull(high);
            high
        }
    }

    fn remove_at(&mut self, at: u32, key: &K) -> u32 {
        if at == NIL {
            return NIL;
        }
        let Node { key: here, left, right, .. } = *self.visit(at);
        if here == *key {
            self.free.push(at);
            return self.join(left, right);
        }
        if *key < here {
            self.nodes[at as usize].left = self.remove_at(left, key);
        } else {
            self.nodes[at as usize].right = self.remove_at(right, key);
        }
        self.pull(at);
        at
    }

    fn set_at(&mut self, at: u32, key: &K, value: V) {
        assert!(at != NIL, "only a key that is there changes its value");
        let Node { key: here, left, right, .. } = *self.visit(at);
        if here == *key {
            self.nodes[at as usize].value = value;
        } else {
            self.set_at(if *key < here { left } else { right }, key, value);
        }
        self.pull(at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Act {
        Insert(u16, u64),
        Remove(u16),
        Set(u16, u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..64_u16, 0..32_u64).prop_map(|(key, value)| Act::Insert(key, value)),
            (0..64_u16).prop_map(Act::Remove),
            (0..64_u16, 0..32_u64).prop_map(|(key, value)| Act::Set(key, value)),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(acts in prop::collection::vec(act(), 0..200), limit in 0..32_u64, from in 0..64_u16) {
            let mut index = Index::<u16, Least>::default();
            let mut model = BTreeMap::new();
            for act in acts {
                match act {
                    Act::Insert(key, value) => {
                        if let std::collections::btree_map::Entry::Vacant(slot) = model.entry(key) {
                            slot.insert(value);
                            index.insert(key, Least(value));
                        }
                    }
                    Act::Remove(key) => prop_assert_eq!(index.remove(&key), model.remove(&key).is_some()),
                    Act::Set(key, value) => {
                        if let Some(slot) = model.get_mut(&key) {
                            *slot = value;
                            index.set(&key, Least(value));
                        }
                    }
                }
                prop_assert_eq!(index.nodes.len() - index.free.len(), model.len());
                prop_assert_eq!(index.is_empty(), model.is_empty());
                prop_assert_eq!(index.first(), model.keys().next().copied());
                prop_assert_eq!(index.summary(), model.values().min().map(|least| Least(*least)));
                prop_assert_eq!(index.first_from(&from), model.range(from..).next().map(|(key, _)| *key));
                let first = model.iter().find(|(_, value)| **value <= limit).map(|(key, _)| *key);
                prop_assert_eq!(index.first_where(|least| least.0 <= limit), first);
                let last = model.range(..from).rev().find(|(_, value)| **value <= limit).map(|(key, _)| *key);
                prop_assert_eq!(index.last_where(&from, |least| least.0 <= limit), last);
            }
        }
    }

    #[test]
    fn visits_grow_with_the_logarithm() {
        let visits = |count: u64| {
            let mut index = Index::<u64, Least>::default();
            for key in 0..count {
                index.insert(key, Least(key));
            }
            index.take_visited();
            for key in (0..count).step_by(7) {
                index.set(&key, Least(count));
                let _ = index.first_where(|least| least.0 > 3);
            }
            index.take_visited() / (count / 7)
        };
        let (small, large) = (visits(1_000), visits(100_000));
        assert!(large < small * 3, "{small} nodes at 1,000 keys, {large} at 100,000");
    }
}
