//! Walking: the runs of bytes of a program, in stream order, from any stream offset on.
//!
//! Seeking divides in loops and halves in lists; the next run of a leaf is an addition. Only the last run of a leaf can touch its
//! successor, so only there neighbours are joined.
//!
//! Never: visits a node outside the range. Always: two consecutive runs do not touch.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::program::{Child, Items, Node, NodeId, NodeShape, Placed, index};

/// Contiguous bytes at an offset relative to the program's origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteRun {
    /// Where they start.
    pub at: i64,
    /// How many.
    pub bytes: u64,
}

impl ByteRun {
    fn end(&self) -> i64 {
        self.at + self.bytes.cast_signed()
    }
}

/// Runs of equal length at equal distances that follow each other in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunRow {
    /// The first.
    pub(crate) run: ByteRun,
    /// Distance between the starts of neighbours; undefined for a single run.
    pub(crate) stride: i64,
    /// How many; at least one.
    pub(crate) count: u64,
}

/// Iterator over the runs of a stream range.
#[derive(Clone, Debug)]
pub struct RunWalk<'p> {
    nodes: &'p [Node],
    frames: Vec<WalkFrame>,
    leaf: Leaf<'p>,
    /// Runs of the leaf that can be returned unchanged: complete, in range, and not its last.
    ready: u64,
    /// Bytes left in the range, less those of ready runs.
    left: u64,
    /// A run read from its leaf and not returned yet.
    held: Option<ByteRun>,
}

/// A node with its current child.
#[derive(Clone, Copy, Debug)]
struct WalkFrame {
    node: NodeId,
    base: i64,
    child: u64,
}

/// What remains of the runs of a node that has no children but runs.
#[derive(Clone, Debug)]
enum Leaf<'p> {
    Strided { at: i64, stride: i64, bytes: u64, count: u64 },
    Equal { base: i64, at: &'p [i64], bytes: u64 },
    Listed { base: i64, at: &'p [i64], before: &'p [u64] },
}

const NO_LEAF: Leaf<'static> = Leaf::Strided { at: 0, stride: 0, bytes: 0, count: 0 };

impl<'p> RunWalk<'p> {
    /// An empty walk, to be started by [`RunWalk::restart`].
    pub(crate) fn idle(nodes: &'p [Node]) -> Self {
        RunWalk { nodes, frames: Vec::new(), leaf: NO_LEAF, ready: 0, left: 0, held: None }
    }

    /// Walks over the bytes `stream` of a node.
    pub(crate) fn over(nodes: &'p [Node], root: Option<Placed>, stream: Range<u64>) -> Self {
        let mut walk = RunWalk::idle(nodes);
        if let Some(root) = root {
            walk.restart(root, stream);
        }
        walk
    }

    /// Restarts at the bytes `stream` of `root`; the range is cut at the end of `root`.
    pub(crate) fn restart(&mut self, root: Placed, stream: Range<u64>) {
        let end = stream.end.min(self.nodes[root.node.0 as usize].size);
        self.forget();
        if stream.start < end {
            self.left = end - stream.start;
            self.seek(root, stream.start);
        }
    }

    /// Restarts with a single `run`.
    pub(crate) fn restart_with(&mut self, run: ByteRun) {
        self.forget();
        self.held = Some(run);
    }

    fn forget(&mut self) {
        *self = RunWalk { frames: std::mem::take(&mut self.frames), ..RunWalk::idle(self.nodes) };
        self.frames.clear();
    }

    /// Finds the leaf that holds stream offset `skip` of `from`, and holds the rest of the run there.
    fn seek(&mut self, from: Placed, mut skip: u64) {
        let Placed { at: mut base, mut node } = from;
        while let Some((child, at)) = self.inner_child(node, skip) {
            self.frames.push(WalkFrame { node, base, child });
            let (start, next) = self.child(node, child);
            skip -= start;
            base += at;
            node = next;
        }
        self.leaf = self.leaf_of(node, base);
        let skip = if skip == 0 { 0 } else { self.leaf.skip(skip) };
        if 0 < skip {
            let run = self.leaf.take().expect("the offset lies in this leaf");
            let bytes = (run.bytes - skip).min(self.left);
            self.left -= bytes;
            self.held = Some(ByteRun { at: run.at + skip.cast_signed(), bytes });
        }
    }

    /// The child of an inner node that holds stream offset `stream`, and its offset; `None` for leaves.
    fn inner_child(&self, id: NodeId, stream: u64) -> Option<(u64, i64)> {
        match &self.nodes[id.0 as usize].shape {
            NodeShape::Run => None,
            NodeShape::Loop { stride, body, .. } => {
                let body = self.inner(*body)?;
                // Most descents go to the first child; they need no division.
                let child = if stream == 0 { 0 } else { stream / body.size };
                Some((child, child.cast_signed() * stride))
            }
            NodeShape::List(list) => {
                match &list.items {
                    Items::Runs { .. } => return None,
                    Items::Same(body) => _ = self.inner(*body)?,
                    Items::Mixed { .. } => {}
                }
                let item = list.item_at(self.nodes, stream);
                Some((item as u64, list.at[item]))
            }
        }
    }

    fn inner(&self, body: NodeId) -> Option<&'p Node> {
        let body = &self.nodes[body.0 as usize];
        (body.shape != NodeShape::Run).then_some(body)
    }

    /// Stream offset in an inner node, and id, of one of its children.
    fn child(&self, id: NodeId, child: u64) -> (u64, NodeId) {
        match &self.nodes[id.0 as usize].shape {
            NodeShape::Loop { body, .. } => (self.nodes[body.0 as usize].size * child, *body),
            NodeShape::List(list) => match list.child(index(child)) {
                Child::Node(node) => (list.before(self.nodes, index(child)), node),
                Child::Run(_) => unreachable!("a list of runs is a leaf"),
            },
            NodeShape::Run => unreachable!("a run is a leaf"),
        }
    }

    fn leaf_of(&self, id: NodeId, base: i64) -> Leaf<'p> {
        let node = &self.nodes[id.0 as usize];
        match &node.shape {
            NodeShape::Run => Leaf::Strided { at: base, stride: 0, bytes: node.size, count: 1 },
            NodeShape::Loop { count, stride, body } => {
                let bytes = self.nodes[body.0 as usize].size;
                Leaf::Strided { at: base, stride: *stride, bytes, count: *count }
            }
            NodeShape::List(list) => match &list.items {
                Items::Same(body) => {
                    Leaf::Equal { base, at: &list.at, bytes: self.nodes[body.0 as usize].size }
                }
                Items::Runs { before } => Leaf::Listed { base, at: &list.at, before },
                Items::Mixed { .. } => unreachable!("a mixed list is an inner node"),
            },
        }
    }

    /// Moves to the next leaf; `false` after the last.
    fn advance(&mut self) -> bool {
        while let Some(mut frame) = self.frames.pop() {
            frame.child += 1;
            let node = &self.nodes[frame.node.0 as usize];
            if frame.child < node.children() {
                let at = match &node.shape {
                    NodeShape::Loop { stride, .. } => frame.child.cast_signed() * stride,
                    NodeShape::List(list) => list.at[index(frame.child)],
                    NodeShape::Run => unreachable!("a run is a leaf"),
                };
                self.frames.push(frame);
                let (_, next) = self.child(frame.node, frame.child);
                self.seek(Placed { at: frame.base + at, node: next }, 0);
                return true;
            }
        }
        false
    }

    /// The next run of the leaf, or of the next leaf, cut where the range ends.
    fn take(&mut self) -> Option<ByteRun> {
        if self.left == 0 {
            return None;
        }
        loop {
            if let Some(run) = self.leaf.take() {
                let bytes = run.bytes.min(self.left);
                self.left -= bytes;
                return Some(ByteRun { bytes, ..run });
            }
            if !self.advance() {
                return None;
            }
        }
    }

    /// The next runs: as many as one loop yields.
    #[inline]
    pub(crate) fn next_row(&mut self) -> Option<RunRow> {
        if 0 < self.ready
            && let Leaf::Strided { at, stride, bytes, count } = &mut self.leaf
        {
            let row = RunRow { run: ByteRun { at: *at, bytes: *bytes }, stride: *stride, count: self.ready };
            *at = at.wrapping_add(self.ready.cast_signed().wrapping_mul(*stride));
            *count -= std::mem::take(&mut self.ready);
            return Some(row);
        }
        self.next().map(|run| RunRow { run, stride: 0, count: 1 })
    }

    /// The slow path: the first run, the last of a leaf, or a run cut by the range.
    #[inline(never)]
    fn next_with_care(&mut self) -> Option<ByteRun> {
        let mut run = match self.held.take() {
            Some(held) => held,
            None => self.take()?,
        };
        while self.leaf.is_empty() {
            match self.take() {
                Some(next) if next.at == run.end() => run.bytes += next.bytes,
                next => {
                    self.held = next;
                    break;
                }
            }
        }
        if self.held.is_none() {
            let (runs, bytes) = self.leaf.ready(self.left);
            self.ready = runs;
            self.left -= bytes;
        }
        Some(run)
    }
}

impl Iterator for RunWalk<'_> {
    type Item = ByteRun;

    #[inline]
    fn next(&mut self) -> Option<ByteRun> {
        if 0 < self.ready {
            self.ready -= 1;
            return self.leaf.take();
        }
        self.next_with_care()
    }
}

impl FusedIterator for RunWalk<'_> {}

impl Leaf<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Leaf::Strided { count, .. } => *count == 0,
            Leaf::Equal { at, .. } | Leaf::Listed { at, .. } => at.is_empty(),
        }
    }

    #[inline]
    fn take(&mut self) -> Option<ByteRun> {
        match self {
            Leaf::Strided { at, stride, bytes, count } => {
                *count = count.checked_sub(1)?;
                let run = ByteRun { at: *at, bytes: *bytes };
                // After the last run the sum is unused, and may wrap.
                *at = at.wrapping_add(*stride);
                Some(run)
            }
            Leaf::Equal { base, at, bytes } => {
                let (first, rest) = at.split_first()?;
                *at = rest;
                Some(ByteRun { at: *base + first, bytes: *bytes })
            }
            Leaf::Listed { base, at, before } => {
                let (first, rest) = at.split_first()?;
                *at = rest;
                let bytes = before[1] - before[0];
                *before = &before[1..];
                Some(ByteRun { at: *base + first, bytes })
            }
        }
    }

    /// Passes over `skip` bytes in whole runs; returns how many bytes of the next run are still to be skipped.
    fn skip(&mut self, skip: u64) -> u64 {
        match self {
            Leaf::Strided { at, stride, bytes, count } => {
                let runs = skip / *bytes;
                *at = at.wrapping_add(runs.cast_signed().wrapping_mul(*stride));
                *count -= runs;
                skip % *bytes
            }
            Leaf::Equal { at, bytes, .. } => {
                *at = &at[index(skip / *bytes)..];
                skip % *bytes
            }
            Leaf::Listed { at, before, .. } => {
                let item = before.partition_point(|start| *start <= skip) - 1;
                let rest = skip - before[item];
                *at = &at[item..];
                *before = &before[item..];
                rest
            }
        }
    }

    /// How many runs, but for the last, lie within the next `left` bytes, and their bytes.
    fn ready(&self, left: u64) -> (u64, u64) {
        match self {
            Leaf::Strided { bytes, count, .. } if 1 < *count => {
                let runs = (*count - 1).min(left / *bytes);
                (runs, runs * *bytes)
            }
            Leaf::Equal { at, bytes, .. } if 1 < at.len() => {
                let runs = (at.len() as u64 - 1).min(left / *bytes);
                (runs, runs * *bytes)
            }
            Leaf::Listed { at, before, .. } if 1 < at.len() => {
                let bound = before[0] + left;
                let ends = &before[1..at.len()];
                let runs = match ends.last() {
                    Some(last) if *last <= bound => ends.len(),
                    _ => ends.partition_point(|end| *end <= bound),
                };
                (runs as u64, before[runs] - before[0])
            }
            Leaf::Strided { .. } | Leaf::Equal { .. } | Leaf::Listed { .. } => (0, 0),
        }
    }
}
