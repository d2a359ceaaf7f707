//! Stream offset to file offset and back, without walking: one descent, a division per loop and a search per list.
//!
//! Never: enters more than one child of a node. Always: `first_at_or_after` is the inverse of `offset_of` where an inverse exists.

use crate::program::{Child, Node, NodeId, NodeShape, Placed, index};

/// Offset of byte `stream` of a node. The byte must exist.
pub(crate) fn offset_of(nodes: &[Node], from: Placed, mut stream: u64) -> i64 {
    let Placed { at: mut base, mut node } = from;
    loop {
        match &nodes[node.0 as usize].shape {
            NodeShape::Run => return base + stream.cast_signed(),
            NodeShape::Loop { stride, body, .. } => {
                let size = nodes[body.0 as usize].size;
                base += (stream / size).cast_signed() * stride;
                stream %= size;
                node = *body;
            }
            NodeShape::List(list) => {
                let item = list.item_at(nodes, stream);
                base += list.at[item];
                stream -= list.before(nodes, item);
                match list.child(item) {
                    Child::Run(_) => return base + stream.cast_signed(),
                    Child::Node(child) => node = child,
                }
            }
        }
    }
}

/// The smallest stream offset in a node with a byte at `x` or later; `None` if all of the node is before `x`.
pub(crate) fn first_at_or_after(nodes: &[Node], from: Placed, x: i64) -> Option<u64> {
    let Placed { at: mut base, mut node } = from;
    if base + nodes[node.0 as usize].hi <= x {
        return None;
    }
    let mut stream = 0;
    loop {
        match &nodes[node.0 as usize].shape {
            NodeShape::Run => return Some(stream + offset_in(base, x)),
            NodeShape::Loop { stride, body, .. } => {
                let round =
                    first_iteration_reaching(*stride, x.saturating_sub(base), &nodes[body.0 as usize]);
                stream += round * nodes[body.0 as usize].size;
                base += round.cast_signed() * stride;
                node = *body;
            }
            NodeShape::List(list) => {
                let item = list.first_reaching(nodes, 0, x.saturating_sub(base));
                stream += list.before(nodes, item);
                base += list.at[item];
                match list.child(item) {
                    Child::Run(_) => return Some(stream + offset_in(base, x)),
                    Child::Node(child) => node = child,
                }
            }
        }
    }
}

/// The first iteration of a loop that reaches beyond `x`, which is relative to the loop. A loop with a stride of 0 or less reaches
/// furthest in its first iteration.
pub(crate) fn first_iteration_reaching(stride: i64, x: i64, body: &Node) -> u64 {
    let short = x.saturating_sub(body.hi);
    if short < 0 || stride <= 0 { 0 } else { (short / stride + 1).cast_unsigned() }
}

/// Id and offset of child `number` of a node that is not a list of runs, and its stream offset there.
pub(crate) fn child_of(nodes: &[Node], parent: &Node, number: u64) -> (Child, i64, u64) {
    match &parent.shape {
        NodeShape::Run => unreachable!("a run has no children"),
        NodeShape::Loop { stride, body, .. } => {
            let stream = nodes[body.0 as usize].size * number;
            (Child::Node(*body), number.cast_signed() * stride, stream)
        }
        NodeShape::List(list) => {
            let item = index(number);
            (list.child(item), list.at[item], list.before(nodes, item))
        }
    }
}

/// Lowest and highest byte of a child, relative to it.
pub(crate) fn span_of(nodes: &[Node], child: Child) -> (i64, i64) {
    match child {
        Child::Run(bytes) => (0, bytes.cast_signed()),
        Child::Node(NodeId(id)) => (nodes[id as usize].lo, nodes[id as usize].hi),
    }
}

/// Distance from `base` to `x`; 0 if `x` is before `base`.
pub(crate) fn offset_in(base: i64, x: i64) -> u64 {
    x.saturating_sub(base).max(0).cast_unsigned()
}
