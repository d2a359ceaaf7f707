//! Cuts a program into increasing trees: those that touch a range of the stream and a range of the file, in stream order.
//!
//! Most views are one increasing tree. Never: looks at a child outside the ranges, where children are in order.

use std::ops::Range;

use crate::find::{child_of, first_at_or_after, first_round_reaching, offset_in, place_of, span_of};
use crate::program::{Child, List, Node, Placed, Program, Shape};
use crate::walk::{Run, Walk};
use crate::window::{Found, Windows};

/// A node, or a run of a list, with its place in the file and in the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    at: i64,
    child: Child,
    stream: u64,
}

impl Tree {
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

    /// Where byte `stream` of the tree lies in the file.
    pub(crate) fn place_of(&self, nodes: &[Node], stream: u64) -> i64 {
        match self.child {
            Child::Run(_) => self.at + stream.cast_signed(),
            Child::Node(node) => place_of(nodes, Placed { at: self.at, node }, stream),
        }
    }

    /// The first byte of the tree at `x` or behind.
    pub(crate) fn first_at_or_after(&self, nodes: &[Node], x: i64) -> Option<u64> {
        match self.child {
            Child::Run(bytes) => Some(offset_in(self.at, x)).filter(|offset| *offset < bytes),
            Child::Node(node) => first_at_or_after(nodes, Placed { at: self.at, node }, x),
        }
    }

    /// The first byte of the tree at `x` or behind that lies in a window.
    pub(crate) fn first_in(&self, nodes: &[Node], windows: &Windows, x: i64) -> Option<Found> {
        match self.child {
            Child::Run(bytes) => windows.first_in_run(self.at, bytes.cast_signed(), x),
            Child::Node(node) => windows.first(nodes, Placed { at: self.at, node }, x),
        }
    }

    /// Sends `walk` over the bytes `stream` of the tree.
    pub(crate) fn walk(&self, walk: &mut Walk<'_>, stream: Range<u64>) {
        match self.child {
            Child::Run(_) => {
                let at = self.at + stream.start.cast_signed();
                walk.restart_with(Run { at, bytes: stream.end - stream.start });
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
    root: Option<Tree>,
    opened: Vec<Opened>,
}

/// A node that is not increasing, and which of its children are still to be looked at.
#[derive(Clone, Debug)]
struct Opened {
    node: Placed,
    stream: u64,
    children: Range<u64>,
}

impl<'p> Trees<'p> {
    /// The trees of a program that stands at `base`.
    pub(crate) fn new(program: &'p Program, base: i64, stream: Range<u64>, file: Range<i64>) -> Self {
        let tree = |root: Placed| Tree { at: base + root.at, child: Child::Node(root.node), stream: 0 };
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
    pub(crate) fn clip(&self, tree: &Tree) -> Range<u64> {
        let start = self.stream.start.saturating_sub(tree.stream);
        start..(self.stream.end - tree.stream).min(tree.size(self.nodes))
    }

    /// Gives a tree that is increasing; opens one that is not; forgets one that does not touch both ranges.
    fn enter(&mut self, tree: Tree) -> Option<Tree> {
        if !self.touches(&tree) {
            return None;
        }
        match tree.child {
            Child::Node(id) if !self.nodes[id.0 as usize].increasing => {
                let children = self.children(&tree, &self.nodes[id.0 as usize]);
                let node = Placed { at: tree.at, node: id };
                self.opened.push(Opened { node, stream: tree.stream, children });
                None
            }
            Child::Node(_) | Child::Run(_) => Some(tree),
        }
    }

    fn touches(&self, tree: &Tree) -> bool {
        let (lo, hi) = span_of(self.nodes, tree.child);
        let in_file = tree.at + lo < self.file.end && self.file.start < tree.at + hi;
        let end = tree.stream + tree.size(self.nodes);
        in_file && tree.stream < self.stream.end && self.stream.start < end
    }

    /// The children of a node that may touch both ranges.
    fn children(&self, tree: &Tree, node: &Node) -> Range<u64> {
        let wanted = self.clip(tree);
        let file = self.file.start.saturating_sub(tree.at)..self.file.end.saturating_sub(tree.at);
        match &node.shape {
            Shape::Run => 0..0,
            Shape::Loop { count, stride, body } => {
                let body = &self.nodes[body.0 as usize];
                let rounds = rounds_in(file, *stride, body);
                let first = (wanted.start / body.size).max(rounds.start);
                first..wanted.end.div_ceil(body.size).min(rounds.end).min(*count)
            }
            Shape::List(list) => {
                let items = self.items_in(file, list, node.ascending);
                let first = list.item_at(self.nodes, wanted.start).max(items.start);
                let last = list.item_at(self.nodes, wanted.end - 1);
                first as u64..items.end.min(last + 1) as u64
            }
        }
    }

    fn items_in(&self, file: Range<i64>, list: &List, ascending: bool) -> Range<usize> {
        let first = list.first_reaching(self.nodes, 0, file.start);
        let end = if ascending { list.at.partition_point(|at| *at < file.end) } else { list.at.len() };
        first..end
    }
}

/// The rounds of a loop that may touch a range, relative to the loop.
fn rounds_in(file: Range<i64>, stride: i64, body: &Node) -> Range<u64> {
    if stride <= 0 {
        return 0..u64::MAX;
    }
    let behind = file.end.saturating_sub(body.lo);
    let end = if behind <= 0 { 0 } else { (behind - 1) / stride + 1 };
    first_round_reaching(stride, file.start, body)..end.cast_unsigned()
}

impl Iterator for Trees<'_> {
    type Item = Tree;

    fn next(&mut self) -> Option<Tree> {
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
                    Tree { at: opened.node.at + at, child, stream: opened.stream + stream }
                }
            };
            if let Some(tree) = self.enter(tree) {
                return Some(tree);
            }
        }
    }
}
