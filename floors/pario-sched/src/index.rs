//! Ordered index in which every subtree has a summary of its values: finds the first key with a value that passes a test without reading
//! the keys before it. All scheduling decisions use it.
//!
//! It is a B+ tree. An empty node is freed; nodes are not refilled from their neighbours, so that removal is cheap.
//!
//! Never: allocates for a search. Always: insert, remove, set and searches by an exact summary enter one node of each level (two for a
//! search that starts at the end of a node); nodes entered are counted.

use std::cell::Cell;

const NIL: u32 = u32::MAX;
/// Entries of a node.
const WIDTH: usize = 16;

/// A value that can be summarised over a subtree.
pub(crate) trait Summary: Copy + PartialEq {
    /// The summary of both.
    fn with(self, other: Self) -> Self;
}

impl Summary for () {
    fn with(self, (): Self) {}
}

/// Summarised by the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Least(pub(crate) u64);

impl Summary for Least {
    fn with(self, other: Self) -> Self {
        self.min(other)
    }
}

/// A leaf (`children` unused) or an inner node: below child `at` are the keys from `keys[at]` on; the first child has all smaller ones.
#[derive(Debug, Clone)]
struct IndexNode<K, V> {
    len: usize,
    leaf: bool,
    keys: [K; WIDTH],
    /// Values of a leaf, or summaries of the children of an inner node.
    values: [V; WIDTH],
    children: [u32; WIDTH],
}

impl<K: Ord + Copy, V: Summary> IndexNode<K, V> {
    fn new(leaf: bool, (key, value, child): (K, V, u32)) -> Self {
        Self { len: 1, leaf, keys: [key; WIDTH], values: [value; WIDTH], children: [child; WIDTH] }
    }

    fn keys(&self) -> &[K] {
        &self.keys[..self.len]
    }

    fn values(&self) -> &[V] {
        &self.values[..self.len]
    }

    /// Number of keys below this one.
    fn below(&self, key: &K) -> usize {
        self.keys().partition_point(|here| here < key)
    }

    /// Index of the child with this key.
    fn child_of(&self, key: &K) -> usize {
        self.keys().partition_point(|here| here <= key).saturating_sub(1)
    }

    fn summary(&self) -> Option<V> {
        self.values().iter().copied().reduce(Summary::with)
    }

    fn insert(&mut self, at: usize, (key, value, child): (K, V, u32)) {
        self.keys.copy_within(at..self.len, at + 1);
        self.values.copy_within(at..self.len, at + 1);
        (self.keys[at], self.values[at]) = (key, value);
        if !self.leaf {
            self.children.copy_within(at..self.len, at + 1);
            self.children[at] = child;
        }
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.keys.copy_within(at + 1..self.len, at);
        self.values.copy_within(at + 1..self.len, at);
        if !self.leaf {
            self.children.copy_within(at + 1..self.len, at);
        }
        self.len -= 1;
    }

    /// Adds an entry to a full node; the entries after it are returned as a new node.
    fn insert_and_split(&mut self, at: usize, entry: (K, V, u32)) -> Self {
        // Keys often grow: then this node stays full and the new one begins with the new key.
        if at == WIDTH {
            return Self::new(self.leaf, entry);
        }
        let half = WIDTH / 2;
        let mut right = self.clone();
        right.keys.copy_within(half.., 0);
        right.values.copy_within(half.., 0);
        right.children.copy_within(half.., 0);
        (self.len, right.len) = (half, WIDTH - half);
        if at <= half {
            self.insert(at, entry);
        } else {
            right.insert(at - half, entry);
        }
        right
    }
}

/// Keys in order, each with a value.
#[derive(Debug)]
pub(crate) struct Index<K, V> {
    nodes: Vec<IndexNode<K, V>>,
    free: Vec<u32>,
    root: u32,
    visited: Cell<u64>,
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NIL, visited: Cell::new(0) }
    }
}

impl<K: Ord + Copy, V: Summary> Index<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// Nodes read since the last call.
    pub(crate) fn take_visited(&self) -> u64 {
        self.visited.take()
    }

    /// The summary of all values.
    pub(crate) fn summary(&self) -> Option<V> {
        if self.root == NIL { None } else { self.visit(self.root).summary() }
    }

    /// Adds a new key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.root == NIL {
            self.root = self.add(IndexNode::new(true, (key, value, NIL)));
            return;
        }
        let left = self.root;
        if let Some(right) = self.insert_at(left, key, value) {
            let mut root = IndexNode::new(false, self.entry(left));
            root.insert(1, self.entry(right));
            self.root = self.add(root);
        }
    }

    /// Removes a key; returns whether it existed.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        if self.root == NIL {
            return false;
        }
        let removed = self.remove_at(self.root, key);
        let root = self.node(self.root);
        let next = match (root.leaf, root.len) {
            (_, 0) => NIL,
            (false, 1) => root.children[0],
            _ => return removed,
        };
        self.free.push(std::mem::replace(&mut self.root, next));
        removed
    }

    /// Changes the value of an existing key.
    pub(crate) fn set(&mut self, key: &K, value: V) {
        assert!(self.root != NIL, "set of a missing key");
        self.set_at(self.root, key, value);
    }

    /// The first key.
    pub(crate) fn first(&self) -> Option<K> {
        if self.root == NIL {
            return None;
        }
        let mut node = self.visit(self.root);
        while !node.leaf {
            node = self.visit(node.children[0]);
        }
        Some(node.keys[0])
    }

    /// The first key that is not below this one.
    pub(crate) fn first_from(&self, least: &K) -> Option<K> {
        if self.root == NIL { None } else { self.first_from_at(self.root, least) }
    }

    /// The first key with a value that passes; a summary passes exactly when one of its values does.
    pub(crate) fn first_where(&self, passes: impl Fn(V) -> bool) -> Option<K> {
        if self.root == NIL {
            return None;
        }
        let mut node = self.visit(self.root);
        loop {
            let at = node.values().iter().position(|value| passes(*value))?;
            if node.leaf {
                return Some(node.keys[at]);
            }
            node = self.visit(node.children[at]);
        }
    }

    /// The last key below `limit` with a value that passes; a summary passes at least when one of its values does.
    pub(crate) fn last_where(&self, limit: &K, passes: impl Fn(V) -> bool) -> Option<K> {
        if self.root == NIL { None } else { self.last_where_at(self.root, limit, &passes) }
    }

    fn node(&self, at: u32) -> &IndexNode<K, V> {
        &self.nodes[at as usize]
    }

    fn visit(&self, at: u32) -> &IndexNode<K, V> {
        self.visited.set(self.visited.get() + 1);
        self.node(at)
    }

    fn add(&mut self, node: IndexNode<K, V>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.nodes[slot as usize] = node;
            return slot;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("the queue limit is below 2^32")
    }

    /// A node's entry in its parent.
    fn entry(&self, at: u32) -> (K, V, u32) {
        let node = self.node(at);
        (node.keys[0], node.summary().expect("an empty node has no entry"), at)
    }

    /// Returns the new right neighbour if the node was split.
    fn insert_at(&mut self, at: u32, key: K, value: V) -> Option<u32> {
        let node = self.visit(at);
        if node.leaf {
            let place = node.below(&key);
            return self.put(at, place, (key, value, NIL));
        }
        let place = node.child_of(&key);
        let child = node.children[place];
        let split = self.insert_at(child, key, value);
        let (_, summary, _) = self.entry(child);
        self.nodes[at as usize].values[place] = summary;
        let right = self.entry(split?);
        self.put(at, place + 1, right)
    }

    fn put(&mut self, at: u32, place: usize, entry: (K, V, u32)) -> Option<u32> {
        let node = &mut self.nodes[at as usize];
        if node.len < WIDTH {
            node.insert(place, entry);
            return None;
        }
        let right = node.insert_and_split(place, entry);
        Some(self.add(right))
    }

    fn remove_at(&mut self, at: u32, key: &K) -> bool {
        let node = self.visit(at);
        if node.leaf {
            let place = node.below(key);
            let found = node.keys().get(place) == Some(key);
            if found {
                self.nodes[at as usize].remove(place);
            }
            return found;
        }
        let place = node.child_of(key);
        let child = node.children[place];
        let removed = self.remove_at(child, key);
        match self.node(child).summary() {
            Some(summary) => self.nodes[at as usize].values[place] = summary,
            None => {
                self.nodes[at as usize].remove(place);
                self.free.push(child);
            }
        }
        removed
    }

    fn set_at(&mut self, at: u32, key: &K, value: V) -> V {
        let node = self.visit(at);
        let (place, value) = if node.leaf {
            let place = node.below(key);
            assert!(node.keys().get(place) == Some(key), "set of a missing key");
            (place, value)
        } else {
            let place = node.child_of(key);
            (place, self.set_at(node.children[place], key, value))
        };
        let node = &mut self.nodes[at as usize];
        node.values[place] = value;
        node.summary().expect("the node has the key")
    }

    fn first_from_at(&self, at: u32, least: &K) -> Option<K> {
        let node = self.visit(at);
        if node.leaf {
            return node.keys().get(node.below(least)).copied();
        }
        let place = node.child_of(least);
        let found = self.first_from_at(node.children[place], least);
        let next =
            || node.children[..node.len].get(place + 1).and_then(|child| self.first_from_at(*child, least));
        found.or_else(next)
    }

    fn last_where_at(&self, at: u32, limit: &K, passes: &impl Fn(V) -> bool) -> Option<K> {
        let node = self.visit(at);
        if node.leaf {
            let place = node.values[..node.below(limit)].iter().rposition(|value| passes(*value))?;
            return Some(node.keys[place]);
        }
        let mut places = (0..=node.child_of(limit)).rev().filter(|place| passes(node.values[*place]));
        places.find_map(|place| self.last_where_at(node.children[place], limit, passes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Enough for three levels.
    const KEYS: u16 = 600;

    #[derive(Debug, Clone)]
    enum IndexAct {
        Insert(u16, u64),
        Remove(u16),
        Set(u16, u64),
    }

    fn act() -> impl Strategy<Value = IndexAct> {
        prop_oneof![
            3 => (0..KEYS, 0..32_u64).prop_map(|(key, value)| IndexAct::Insert(key, value)),
            2 => (0..KEYS).prop_map(IndexAct::Remove),
            1 => (0..KEYS, 0..32_u64).prop_map(|(key, value)| IndexAct::Set(key, value)),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(acts in prop::collection::vec(act(), 0..600), limit in 0..32_u64, from in 0..KEYS) {
            let mut index = Index::<u16, Least>::default();
            let mut model = BTreeMap::new();
            for act in acts {
                match act {
                    IndexAct::Insert(key, value) => {
                        if let std::collections::btree_map::Entry::Vacant(slot) = model.entry(key) {
                            slot.insert(value);
                            index.insert(key, Least(value));
                        }
                    }
                    IndexAct::Remove(key) => prop_assert_eq!(index.remove(&key), model.remove(&key).is_some()),
                    IndexAct::Set(key, value) => {
                        if let Some(slot) = model.get_mut(&key) {
                            *slot = value;
                            index.set(&key, Least(value));
                        }
                    }
                }
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
    fn a_sliding_window_keeps_few_nodes() {
        let mut index = Index::<u64, ()>::default();
        for key in 0..100_000 {
            index.insert(key, ());
            assert!(key < 1_000 || index.remove(&(key - 1_000)));
        }
        assert!(index.nodes.len() < 200, "{} nodes for 1,000 keys", index.nodes.len());
        (99_000..100_000).for_each(|key| assert!(index.remove(&key)));
        assert!(index.is_empty() && index.free.len() == index.nodes.len());
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
