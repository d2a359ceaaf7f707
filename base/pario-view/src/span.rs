//! File extent of a part of a stream: lowest and highest offset.
//!
//! Never: walks ordered parts: an increasing node costs two descents, a loop its two partial iterations. Always: exact.

use std::ops::Range;

use crate::find::offset_of;
use crate::program::{Child, Node, NodeShape, Placed};

/// From the lowest byte of a part of a node's stream to one past the highest. The part must exist and have a byte. Recursion is bounded
/// by the depth of programs.
pub(crate) fn span_of_part(nodes: &[Node], from: Placed, stream: Range<u64>) -> Range<i64> {
    let node = &nodes[from.node.0 as usize];
    if stream.start == 0 && stream.end == node.size {
        return from.at + node.lo..from.at + node.hi;
    }
    if node.increasing {
        return offset_of(nodes, from, stream.start)..offset_of(nodes, from, stream.end - 1) + 1;
    }
    match &node.shape {
        NodeShape::Run => from.at + stream.start.cast_signed()..from.at + stream.end.cast_signed(),
        NodeShape::Loop { stride, body, .. } => {
            let of = &nodes[body.0 as usize];
            let rounds = (stream.start / of.size, (stream.end - 1) / of.size);
            let place = |round: u64| from.at + round.cast_signed() * stride;
            let part = |round: u64| {
                let within = clip(&stream, round * of.size..(round + 1) * of.size);
                span_of_part(nodes, Placed { at: place(round), node: *body }, within)
            };
            let ends = joined(part(rounds.0), part(rounds.1));
            if rounds.1 - rounds.0 < 2 {
                return ends;
            }
            let inner = (place(rounds.0 + 1), place(rounds.1 - 1));
            joined(ends, inner.0.min(inner.1) + of.lo..inner.0.max(inner.1) + of.hi)
        }
        NodeShape::List(list) => {
            let items = list.item_at(nodes, stream.start)..=list.item_at(nodes, stream.end - 1);
            let part = |item: usize| {
                let within = clip(&stream, list.before(nodes, item)..list.before(nodes, item + 1));
                let at = from.at + list.at[item];
                match list.child(item) {
                    Child::Run(_) => at + within.start.cast_signed()..at + within.end.cast_signed(),
                    Child::Node(node) => span_of_part(nodes, Placed { at, node }, within),
                }
            };
            items.map(part).reduce(joined).expect("a part with a byte is in some item")
        }
    }
}

fn joined(one: Range<i64>, other: Range<i64>) -> Range<i64> {
    one.start.min(other.start)..one.end.max(other.end)
}

fn clip(stream: &Range<u64>, part: Range<u64>) -> Range<u64> {
    stream.start.max(part.start) - part.start..stream.end.min(part.end) - part.start
}
