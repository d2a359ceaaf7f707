//! Builds programs: equal nodes are shared, loops collapse where possible.
//!
//! Never: keeps a node that the root does not reach. Always: the result obeys the invariants of [`crate::program`].

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::error::TypeError;
use crate::keyed::Keyed;
use crate::program::{ItemList, Items, Node, NodeId, NodeShape, Placed, ViewProgram};

const TOO_LARGE: TypeError = TypeError::TooLarge { what: "the type" };

/// Collects nodes.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    nodes: Vec<Node>,
    /// Nodes by the hash of their contents.
    known: HashMap<u64, Vec<NodeId>>,
    hasher: Keyed,
}

impl Builder {
    /// Starts from the nodes of a program.
    pub(crate) fn from_program(program: &ViewProgram) -> Builder {
        let mut builder = Builder::default();
        for node in program.nodes.iter() {
            let hash = builder.hash(node);
            builder.push(hash, node.clone());
        }
        builder
    }

    /// The node with this id.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The node added last.
    pub(crate) fn last(&self) -> Option<NodeId> {
        self.nodes.len().checked_sub(1).map(next_id)
    }

    /// All nodes so far.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// `bytes` contiguous bytes; at least one.
    pub(crate) fn run(&mut self, bytes: u64) -> Result<NodeId, TypeError> {
        Ok(self.add(Node::run(bytes)?))
    }

    /// `body` repeated `count` times, `stride` apart: one run if that leaves no gaps, one loop if loops continue each other.
    pub(crate) fn repeat(&mut self, count: u64, stride: i64, body: Placed) -> Result<Placed, TypeError> {
        assert!(0 < count, "nothing is not a node");
        if count == 1 {
            return Ok(body);
        }
        let of = self.node(body.node);
        let node = match of.shape {
            NodeShape::Run if of.hi == stride => {
                let bytes = of.size.checked_mul(count).ok_or(TOO_LARGE)?;
                self.run(bytes)?
            }
            NodeShape::Loop { count: inner, stride: step, body } if continues(inner, step, stride) => {
                let count = inner.checked_mul(count).ok_or(TOO_LARGE)?;
                self.looped(count, step, body)?
            }
            NodeShape::Run | NodeShape::Loop { .. } | NodeShape::List(_) => {
                self.looped(count, stride, body.node)?
            }
        };
        Ok(Placed { at: body.at, node })
    }

    /// A loop as it is.
    pub(crate) fn looped(&mut self, count: u64, stride: i64, body: NodeId) -> Result<NodeId, TypeError> {
        let node = Node::repeated(&self.nodes, count, stride, body)?;
        Ok(self.add(node))
    }

    /// A list as it is.
    pub(crate) fn list(&mut self, at: Box<[i64]>, items: Items) -> Result<NodeId, TypeError> {
        let node = Node::list(&self.nodes, at, items)?;
        Ok(self.add(node))
    }

    /// The program of the nodes reachable from `root`.
    pub(crate) fn finish(self, root: Option<Placed>) -> Result<ViewProgram, TypeError> {
        let Some(root) = root else { return Ok(ViewProgram { nodes: [].into(), root: None }) };
        let of = self.node(root.node);
        let ends = (root.at.checked_add(of.lo), root.at.checked_add(of.hi));
        if ends.0.zip(ends.1).is_none() {
            return Err(TOO_LARGE);
        }
        let mut renamed = HashMap::new();
        let mut kept = Vec::new();
        let node = self.keep(root.node, &mut renamed, &mut kept);
        Ok(ViewProgram { nodes: kept.into(), root: Some(Placed { at: root.at, node }) })
    }

    /// Appends a node and its descendants to those kept already; recursion is bounded by the depth of programs.
    fn keep(&self, id: NodeId, renamed: &mut HashMap<NodeId, NodeId>, kept: &mut Vec<Node>) -> NodeId {
        if let Some(known) = renamed.get(&id) {
            return *known;
        }
        let old = self.node(id);
        let shape = match &old.shape {
            NodeShape::Run => NodeShape::Run,
            NodeShape::Loop { count, stride, body } => {
                NodeShape::Loop { count: *count, stride: *stride, body: self.keep(*body, renamed, kept) }
            }
            NodeShape::List(list) => NodeShape::List(match &list.items {
                Items::Runs { .. } => list.clone(),
                Items::Same(body) => match self.keep(*body, renamed, kept) {
                    same if same == *body => list.clone(),
                    other => ItemList::clone(list).with_items(Items::Same(other)).into(),
                },
                Items::Mixed { nodes, before } => {
                    let nodes = nodes.iter().map(|node| self.keep(*node, renamed, kept)).collect();
                    let items = Items::Mixed { nodes, before: before.clone() };
                    ItemList::clone(list).with_items(items).into()
                }
            }),
        };
        let new = next_id(kept.len());
        kept.push(Node { shape, ..old.clone() });
        renamed.insert(id, new);
        new
    }

    fn add(&mut self, node: Node) -> NodeId {
        let hash = self.hash(&node);
        let same = |id: &&NodeId| {
            let other = self.node(**id);
            other.size == node.size && other.shape == node.shape
        };
        if let Some(id) = self.known.get(&hash).and_then(|ids| ids.iter().find(same)) {
            return *id;
        }
        self.push(hash, node)
    }

    fn push(&mut self, hash: u64, node: Node) -> NodeId {
        let id = next_id(self.nodes.len());
        self.known.entry(hash).or_default().push(id);
        self.nodes.push(node);
        id
    }

    fn hash(&self, node: &Node) -> u64 {
        self.hasher.hash_one((node.size, &node.shape))
    }
}

/// Whether rounds of a loop, `stride` apart, go on where the loop before ends.
pub(crate) fn continues(count: u64, step: i64, stride: i64) -> bool {
    i64::try_from(count).ok().and_then(|count| count.checked_mul(step)) == Some(stride)
}

fn next_id(count: usize) -> NodeId {
    NodeId(u32::try_from(count).expect("a program of 2^32 nodes would not fit in memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(node: NodeId) -> Placed {
        Placed { at: 0, node }
    }

    #[test]
    fn adjacent_rounds_are_one_run() {
        let mut builder = Builder::default();
        let run = builder.run(4).unwrap();
        let row = builder.repeat(10, 4, placed(run)).unwrap();
        assert_eq!(builder.node(row.node).shape, NodeShape::Run);
        assert_eq!(builder.node(row.node).size, 40);
    }

    #[test]
    fn loops_that_continue_each_other_are_one() {
        let mut builder = Builder::default();
        let run = builder.run(4).unwrap();
        let row = builder.repeat(10, 16, placed(run)).unwrap();
        let plane = builder.repeat(3, 160, row).unwrap();
        assert_eq!(builder.node(plane.node).shape, NodeShape::Loop { count: 30, stride: 16, body: run });
        let gap = builder.repeat(3, 161, row).unwrap();
        assert_eq!(builder.node(gap.node).depth, 3);
    }

    #[test]
    fn equal_nodes_are_one_and_strangers_are_dropped() {
        let mut builder = Builder::default();
        let run = builder.run(4).unwrap();
        assert_eq!(builder.run(4).unwrap(), run);
        builder.run(5).unwrap();
        let root = builder.repeat(2, 8, placed(run)).unwrap();
        let program = builder.finish(Some(root)).unwrap();
        assert_eq!(program.nodes.len(), 2);
        assert_eq!(program.size(), 8);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut builder = Builder::default();
        let run = builder.run(4).unwrap();
        assert!(builder.repeat(1 << 62, 8, placed(run)).is_err());
        assert!(builder.repeat(1 << 62, 4, placed(run)).is_err());
        let mut deep = run;
        let error = loop {
            let before = [0, builder.node(deep).size, builder.node(deep).size + 4];
            let items = Items::Mixed { nodes: [deep, run].into(), before: before.into() };
            match builder.list([0, 1000].into(), items) {
                Ok(next) => deep = next,
                Err(error) => break error,
            }
        };
        assert_eq!(error, TypeError::TooDeep { limit: crate::program::DEPTH_MAX });
    }
}
