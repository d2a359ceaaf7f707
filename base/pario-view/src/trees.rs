//! Cuts a program into increasing trees: those that touch a range of the stream and a range of the file, in stream order.
//!
//! Most views are one increasing tree. Never: visits a child outside the ranges, where children are in order.

use std::ops::Range;

use crate::find::{child_of, first_at_or_after, first_iteration_reaching, offset_in, offset_of, span_of};
use crate::program::{Child, ItemList, Node, NodeShape, Placed, ViewProgram};
use crate::walk::{ByteRun, RunWalk};
use crate::window::{StripeWindows, WindowHit};

/// A node, or a run of a list, with its offset in the file and in the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncreasingTree {
    at: i64,
    child: Child,
    stream: u64,
}

impl IncreasingTree {
    fn size(&self, nodes: &[Node]) -> u64 {
        match self.child {
            Child::Run(bytes) => bytes,
            Child::Node(node) => nodes[node.0 as usize].size,
        }
    }

    /// Where it starts in the stream.
    pub(crate) fn stream(&self) -> u64 {
        self.stream
    }

    /// File offset of byte `stream` of the tree.
    pub(crate) fn offset_of(&self, nodes: &[Node], stream: u64) -> i64 {
        match self.child {
            Child::Run(_) => self.at + stream.cast_signed(),
            Child::Node(node) => offset_of(nodes, Placed { at: self.at, node }, stream),
        }
    }

    /// Stream offset of the first byte of the tree at `x` or later.
    pub(crate) fn first_at_or_after(&self, nodes: &[Node], x: i64) -> Option<u64> {
        match self.child {
            Child::Run(bytes) => Some(offset_in(self.at, x)).filter(|offset| *offset < bytes),
            Child::Node(node) => first_at_or_after(nodes, Placed { at: self.at, node }, x),
        }
    }

    /// The first byte of the tree in a file range that is inside a window; beyond the range the result is unspecified.
    pub(crate) fn first_in(
        &self,
        nodes: &[Node],
        windows: &StripeWindows,
        range: &Range<i64>,
    ) -> Option<WindowHit> {
        match self.child {
            Child::Run(bytes) => windows.first_in_run(self.at, bytes.cast_signed(), range.start),
            Child::Node(node) => windows.first(nodes, Placed { at: self.at, node }, range),
        }
    }

    /// Sends `walk` over the bytes `stream` of the tree.
    pub(crate) fn walk(&self, walk: &mut RunWalk<'_>, stream: Range<u64>) {
        match self.child {
            Child::Run(_) => {
                let at = self.at + stream.start.cast_signed();
                walk.restart_with(ByteRun { at, bytes: stream.end - stream.start });
            }
            Child::Node(node) => walk.restart(Placed { at: self.at, node }, stream),
        }
    }
}

/// Iterator over the increasing trees of a program.
#[derive(Clone, Debug)]
pub(crate) struct Trees<'p> {
    nodes: &'p [Node],
    stream: Range<u64>,
    file: Range<i64>,
    root: Option<IncreasingTree>,
    opened: Vec<OpenedNode>,
}

/// A non-increasing node, and its children not visited yet.
#[derive(Clone, Debug)]
struct OpenedNode {
    node: Placed,
    stream: u64,
    children: Range<u64>,
}

impl<'p> Trees<'p> {
    /// The trees of a program that stands at `base`.
    pub(crate) fn new(program: &'p ViewProgram, base: i64, stream: Range<u64>, file: Range<i64>) -> Self {
        let tree =
            |root: Placed| IncreasingTree { at: base + root.at, child: Child::Node(root.node), stream: 0 };
        let root = program.root.map(tree);
        Trees { nodes: &program.nodes, stream, file, root, opened: Vec::new() }
    }

    /// The nodes of the program.
    pub(crate) fn nodes(&self) -> &'p [Node] {
        self.nodes
    }

    /// The range of the file.
    pub(crate) fn file(&self) -> Range<i64> {
        self.file.clone()
    }

    /// The part of a tree in the range of the stream, as offsets in the tree.
    pub(crate) fn clip(&self, tree: &IncreasingTree) -> Range<u64> {
        let start = self.stream.start.saturating_sub(tree.stream);
        start..(self.stream.end - tree.stream).min(tree.size(self.nodes))
    }

    /// Returns an increasing tree; opens a non-increasing one; drops one that does not touch both ranges.
    fn enter(&mut self, tree: IncreasingTree) -> Option<IncreasingTree> {
        if !self.touches(&tree) {
            return None;
        }
        match tree.child {
            Child::Node(id) if !self.nodes[id.0 as usize].increasing => {
                let children = self.children(&tree, &self.nodes[id.0 as usize]);
                let node = Placed { at: tree.at, node: id };
                self.opened.push(OpenedNode { node, stream: tree.stream, children });
                None
            }
            Child::Node(_) | Child::Run(_) => Some(tree),
        }
    }

    fn touches(&self, tree: &IncreasingTree) -> bool {
        let (lo, hi) = span_of(self.nodes, tree.child);
        let in_file = tree.at + lo < self.file.end && self.file.start < tree.at + hi;
        let end = tree.stream + tree.size(self.nodes);
        in_file && tree.stream < self.stream.end && self.stream.start < end
    }

    /// The children of a node that may touch both ranges.
    fn children(&self, tree: &IncreasingTree, node: &Node) -> Range<u64> {
        let wanted = self.clip(tree);
        let file = self.file.start.saturating_sub(tree.at)..self.file.end.saturating_sub(tree.at);
        match &node.shape {
            NodeShape::Run => 0..0,
            NodeShape::Loop { count, stride, body } => {
                let body = &self.nodes[body.0 as usize];
                let rounds = iterations_in(file, *stride, body);
                let first = (wanted.start / body.size).max(rounds.start);
                first..wanted.end.div_ceil(body.size).min(rounds.end).min(*count)
            }
            NodeShape::List(list) => {
                let items = self.items_in(file, list, node.ascending);
                let first = list.item_at(self.nodes, wanted.start).max(items.start);
                let last = list.item_at(self.nodes, wanted.end - 1);
                first as u64..items.end.min(last + 1) as u64
            }
        }
    }

    fn items_in(&self, file: Range<i64>, list: &ItemList, ascending: bool) -> Range<usize> {
        let first = list.first_reaching(self.nodes, 0, file.start);
        let end = if ascending { list.at.partition_point(|at| *at < file.end) } else { list.at.len() };
        first..end
    }
}

/// The rounds of a loop that may touch a range, relative to the loop.
fn iterations_in(file: Range<i64>, stride: i64, body: &Node) -> Range<u64> {
    if stride <= 0 {
        return 0..u64::MAX;
    }
    let behind = file.end.saturating_sub(body.lo);
    let end = if behind <= 0 { 0 } else { (behind - 1) / stride + 1 };
    first_iteration_reaching(stride, file.start, body)..end.cast_unsigned()
}

impl Iterator for Trees<'_> {
    type Item = IncreasingTree;

    fn next(&mut self) -> Option<IncreasingTree> {
        loop {
            let tree = match self.root.take() {
                Some(root) => root,
                None => {
                    let opened = self.opened.last_mut()?;
                    let Some(number) = opened.children.next() else {
                        self.opened.pop();
                        continue;
                    };
                    let parent = &self.nodes[opened.node.node.0 as usize];
                    let (child, at, stream) = child_of(self.nodes, parent, number);
                    IncreasingTree { at: opened.node.at + at, child, stream: opened.stream + stream }
                }
            };
            if let Some(tree) = self.enter(tree) {
                return Some(tree);
            }
        }
    }
}
