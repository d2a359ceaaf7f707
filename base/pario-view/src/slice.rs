//! The part of a stream that falls into a range of the file, or on one server, without visiting the rest.
//!
//! In an increasing node such a part is one interval of the stream for each range or block; it is found by descent, then walked. Nodes
//! that are not increasing (overlaps, interleaved repetitions) are opened, and children that miss the range are passed over.
//!
//! Never: looks at a child that lies outside the range. Always: parts come in stream order.

use std::ops::Range;

use crate::find::{child_of, first_at_or_after, first_round_reaching, place_of, span_of};
use crate::program::{Child, Node, Placed, Program, Shape};
use crate::walk::{Run, Walk};
use crate::window::Windows;

/// An interval of the stream of a node.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    of: Tree,
    stream: Range<u64>,
}

/// A node, where it is in the file and in the stream; or a run that is no node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    at: i64,
    child: Child,
    stream: u64,
}

impl Interval {
    /// Bytes in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.stream.end - self.stream.start
    }
}

/// Iterator over the increasing trees of a program that touch both a range of the stream and a range of the file.
#[derive(Clone, Debug)]
pub(crate) struct Trees<'p> {
    nodes: &'p [Node],
    stream: Range<u64>,
    file: Range<i64>,
    frames: Vec<Opened>,
}

/// A node that is not increasing, and which of its children are still to be looked at.
#[derive(Clone, Debug)]
struct Opened {
    root: Placed,
    stream: u64,
    children: Range<u64>,
}

impl<'p> Trees<'p> {
    pub(crate) fn new(program: &'p Program, base: i64, stream: Range<u64>, file: Range<i64>) -> Self {
        let mut trees = Trees { nodes: &program.nodes, stream, file, frames: Vec::new() };
        if let Some(root) = program.root {
            // The root is looked at like any child.
            let only = Opened { root: Placed { at: base + root.at, ..root }, stream: 0, children: 0..0 };
            trees.frames.push(only);
        }
        trees
    }

    /// Opens a node at those children that may touch both ranges.
    fn open(&self, root: Placed, stream: u64) -> Opened {
        let node = &self.nodes[root.node.0 as usize];
        let wanted = self.stream.start.saturating_sub(stream)..self.stream.end.saturating_sub(stream);
        let (from, to) = (self.file.start.saturating_sub(root.at), self.file.end.saturating_sub(root.at));
        let children = match &node.shape {
            Shape::Run => 0..0,
            Shape::Loop { count, stride, body } => {
                let body = &self.nodes[body.0 as usize];
                let first = (wanted.start / body.size).max(first_round_reaching(*stride, from, body));
                let behind = to.saturating_sub(body.lo);
                let last = match *stride {
                    1.. if behind <= 0 => 0,
                    1.. => (behind.cast_unsigned() - 1) / stride.cast_unsigned() + 1,
                    _ => *count,
                };
                first..last.min(wanted.end.div_ceil(body.size)).min(*count)
            }
            Shape::List(list) => {
                let first = list.first_reaching(self.nodes, 0, from);
                let end = if list.sorted && node.ascending {
                    list.at.partition_point(|at| *at < to)
                } else {
                    list.at.len()
                };
                let last = wanted.end.min(node.size).saturating_sub(1);
                let start = list.item_at(self.nodes, wanted.start.min(node.size - 1)).max(first);
                start as u64..end.min(list.item_at(self.nodes, last) + 1) as u64
            }
        };
        Opened { root, stream, children }
    }

    fn touches(&self, tree: &Tree) -> bool {
        let (lo, hi) = span_of(self.nodes, tree.child);
        let size = tree.size(self.nodes);
        tree.at + lo < self.file.end
            && self.file.start < tree.at + hi
            && tree.stream < self.stream.end
            && self.stream.start < tree.stream + size
    }

    /// Gives a tree if it is increasing, else opens it.
    fn enter(&mut self, tree: Tree) -> Option<Tree> {
        if !self.touches(&tree) {
            return None;
        }
        match tree.child {
            Child::Node(node) if !self.nodes[node.0 as usize].increasing => {
                let opened = self.open(Placed { at: tree.at, node }, tree.stream);
                self.frames.push(opened);
                None
            }
            Child::Node(_) | Child::Run(_) => Some(tree),
        }
    }

    /// The part of an increasing tree that touches the range of the stream, as offsets in the tree.
    fn clip(&self, tree: &Tree) -> Range<u64> {
        let size = tree.size(self.nodes);
        let start = self.stream.start.saturating_sub(tree.stream);
        start..self.stream.end.saturating_sub(tree.stream).min(size)
    }
}

impl Iterator for Trees<'_> {
    type Item = Tree;

    fn next(&mut self) -> Option<Tree> {
        loop {
            let frame = self.frames.last_mut()?;
            let tree = if let Some(number) = frame.children.next() {
                let parent = &self.nodes[frame.root.node.0 as usize];
                let (child, at, stream) = child_of(self.nodes, parent, number);
                Tree { at: frame.root.at + at, child, stream: frame.stream + stream }
            } else if self.frames.len() == 1 && frame.children == (0..0) && frame.stream == 0 {
                let root = frame.root;
                self.frames.clear();
                Tree { at: root.at, child: Child::Node(root.node), stream: 0 }
            } else {
                self.frames.pop();
                continue;
            };
            if let Some(tree) = self.enter(tree) {
                return Some(tree);
            }
        }
    }
}

impl Tree {
    fn size(&self, nodes: &[Node]) -> u64 {
        match self.child {
            Child::Run(bytes) => bytes,
            Child::Node(node) => nodes[node.0 as usize].size,
        }
    }
}
