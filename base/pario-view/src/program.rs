//! The normal form of a datatype: a nest of loops over runs of bytes, with lists where the pattern is irregular.
//!
//! A node's offset is that of its first byte in stream order (its anchor); all offsets in a node are relative to it, so equal patterns at
//! different offsets are one node. Nodes are in an array, children before parents, the root last.
//!
//! Never: holds a node without data, a loop of less than two iterations, a list of less than two items. Always: sizes and bounds fit in
//! 63 bits, depth is at most [`DEPTH_MAX`], neighbouring runs of one leaf do not touch (they would be one run).

use std::ops::Range;
use std::sync::Arc;

use crate::error::TypeError;

/// Maximum nesting of loops and lists.
pub(crate) const DEPTH_MAX: u32 = 64;

/// Index of a node in its program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeId(pub(crate) u32);

/// A node at an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub(crate) at: i64,
    pub(crate) node: NodeId,
}

/// A pattern of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) shape: NodeShape,
    /// Bytes of data.
    pub(crate) size: u64,
    /// Lowest byte, relative to the anchor.
    pub(crate) lo: i64,
    /// One past the highest byte, relative to the anchor.
    pub(crate) hi: i64,
    /// 1 for a run.
    pub(crate) depth: u32,
    /// Offsets increase along the stream: file order is stream order.
    pub(crate) increasing: bool,
    /// Children start in file order, at every depth, though they may overlap. Then `lo` is 0.
    pub(crate) ascending: bool,
}

/// What a node is made of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum NodeShape {
    /// `size` contiguous bytes.
    Run,
    /// The body `count` times, `stride` apart.
    Loop { count: u64, stride: i64, body: NodeId },
    /// Items at irregular offsets.
    List(Arc<ItemList>),
}

/// Items at irregular offsets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ItemList {
    /// Where each item's anchor is; the first is 0.
    pub(crate) at: Box<[i64]>,
    pub(crate) items: Items,
    /// How far items up to each one reach; only where that is not the end of the item itself.
    reach: Option<Box<[i64]>>,
    /// Items are disjoint and ascending.
    apart: bool,
}

/// The items of a list. `before[i]` is the stream offset of item `i`; there is one entry more than items.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Items {
    /// All the same.
    Same(NodeId),
    /// Runs of different lengths.
    Runs { before: Box<[u64]> },
    /// Anything.
    Mixed { nodes: Box<[NodeId]>, before: Box<[u64]> },
}

/// One child of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Child {
    Run(u64),
    Node(NodeId),
}

/// Nodes, children first, and where the root is; `None` for a type without data.
#[derive(Clone, Debug)]
pub(crate) struct ViewProgram {
    pub(crate) nodes: Arc<[Node]>,
    pub(crate) root: Option<Placed>,
}

const TOO_LARGE: TypeError = TypeError::TooLarge { what: "the type" };

impl Node {
    /// A run of bytes.
    pub(crate) fn run(bytes: u64) -> Result<Node, TypeError> {
        let hi = i64::try_from(bytes).map_err(|_| TOO_LARGE)?;
        Ok(Node {
            shape: NodeShape::Run,
            size: bytes,
            lo: 0,
            hi,
            depth: 1,
            increasing: true,
            ascending: true,
        })
    }

    /// `body` repeated.
    pub(crate) fn repeated(nodes: &[Node], count: u64, stride: i64, body: NodeId) -> Result<Node, TypeError> {
        let of = &nodes[body.0 as usize];
        let rounds = i64::try_from(count).map_err(|_| TOO_LARGE)?;
        let far = (rounds - 1).checked_mul(stride).ok_or(TOO_LARGE)?;
        let shape = NodeShape::Loop { count, stride, body };
        Ok(Node {
            shape,
            size: sized(of.size.checked_mul(count))?,
            lo: of.lo.min(of.lo.checked_add(far).ok_or(TOO_LARGE)?),
            hi: of.hi.max(of.hi.checked_add(far).ok_or(TOO_LARGE)?),
            depth: deeper(of.depth)?,
            increasing: of.increasing && 0 < stride && of.hi <= stride,
            ascending: of.ascending && 0 <= stride,
        })
    }

    /// Items at `at`, the first of which is 0.
    pub(crate) fn list(nodes: &[Node], at: Box<[i64]>, items: Items) -> Result<Node, TypeError> {
        let mut list = ItemList { at, items, reach: None, apart: true };
        let (mut lo, mut hi) = (0, 0);
        let (mut increasing, mut ascending, mut own_ends) = (true, true, true);
        let mut depth = 0;
        let common = matches!(list.items, Items::Same(_)).then(|| list.extent_of(nodes, 0));
        for index in 0..list.at.len() {
            let (at, extent) = (list.at[index], common.unwrap_or_else(|| list.extent_of(nodes, index)));
            list.apart &= 0 == extent.lo && (index == 0 || hi <= at);
            increasing &= extent.increasing;
            ascending &= extent.ascending && (index == 0 || list.at[index - 1] <= at);
            depth = depth.max(extent.depth);
            lo = lo.min(at.checked_add(extent.lo).ok_or(TOO_LARGE)?);
            let end = at.checked_add(extent.hi).ok_or(TOO_LARGE)?;
            own_ends &= index == 0 || hi <= end;
            hi = if index == 0 { end } else { hi.max(end) };
        }
        if !own_ends {
            list.reach = Some(list.furthest(nodes));
        }
        increasing &= list.apart;
        let size = sized(list.size(nodes))?;
        let shape = NodeShape::List(Arc::new(list));
        Ok(Node { shape, size, lo, hi, depth: deeper(depth)?, increasing, ascending })
    }

    /// How many children it has.
    pub(crate) fn children(&self) -> u64 {
        match &self.shape {
            NodeShape::Run => 0,
            NodeShape::Loop { count, .. } => *count,
            NodeShape::List(list) => list.at.len() as u64,
        }
    }
}

fn sized(size: Option<u64>) -> Result<u64, TypeError> {
    size.filter(|size| i64::try_from(*size).is_ok()).ok_or(TOO_LARGE)
}

fn deeper(depth: u32) -> Result<u32, TypeError> {
    if depth == DEPTH_MAX { Err(TypeError::TooDeep { limit: DEPTH_MAX }) } else { Ok(depth + 1) }
}

/// Properties of one list item.
#[derive(Clone, Copy)]
struct ItemExtent {
    lo: i64,
    hi: i64,
    depth: u32,
    increasing: bool,
    ascending: bool,
}

impl ItemList {
    /// The same list over renamed items.
    pub(crate) fn with_items(self, items: Items) -> ItemList {
        ItemList { items, ..self }
    }

    fn extent_of(&self, nodes: &[Node], index: usize) -> ItemExtent {
        match self.child(index) {
            Child::Run(bytes) => {
                ItemExtent { lo: 0, hi: bytes.cast_signed(), depth: 1, increasing: true, ascending: true }
            }
            Child::Node(id) => {
                let Node { lo, hi, depth, increasing, ascending, .. } = nodes[id.0 as usize];
                ItemExtent { lo, hi, depth, increasing, ascending }
            }
        }
    }

    fn furthest(&self, nodes: &[Node]) -> Box<[i64]> {
        let mut furthest = i64::MIN;
        let ends = (0..self.at.len()).map(|index| self.at[index] + self.extent_of(nodes, index).hi);
        ends.map(|end| {
            furthest = furthest.max(end);
            furthest
        })
        .collect()
    }

    fn size(&self, nodes: &[Node]) -> Option<u64> {
        match &self.items {
            Items::Same(node) => nodes[node.0 as usize].size.checked_mul(self.at.len() as u64),
            Items::Runs { before } | Items::Mixed { before, .. } => before.last().copied(),
        }
    }

    /// Item `index`.
    pub(crate) fn child(&self, index: usize) -> Child {
        match &self.items {
            Items::Same(node) => Child::Node(*node),
            Items::Runs { before } => Child::Run(before[index + 1] - before[index]),
            Items::Mixed { nodes, .. } => Child::Node(nodes[index]),
        }
    }

    /// Stream offset of item `index` in the list.
    pub(crate) fn before(&self, nodes: &[Node], index: usize) -> u64 {
        match &self.items {
            Items::Same(node) => nodes[node.0 as usize].size * index as u64,
            Items::Runs { before } | Items::Mixed { before, .. } => before[index],
        }
    }

    /// The item that holds stream offset `stream`.
    pub(crate) fn item_at(&self, nodes: &[Node], stream: u64) -> usize {
        if stream == 0 {
            return 0;
        }
        match &self.items {
            Items::Same(node) => index(stream / nodes[node.0 as usize].size),
            Items::Runs { before } | Items::Mixed { before, .. } => {
                before.partition_point(|start| *start <= stream) - 1
            }
        }
    }

    /// How far items up to and with `index` reach.
    pub(crate) fn reach(&self, nodes: &[Node], index: usize) -> i64 {
        match &self.reach {
            Some(reach) => reach[index],
            None => self.at[index] + self.extent_of(nodes, index).hi,
        }
    }

    /// The first item from `from` on that reaches beyond `x`; the number of items if none does.
    pub(crate) fn first_reaching(&self, nodes: &[Node], from: usize, x: i64) -> usize {
        if !self.apart {
            return search(from..self.at.len(), |item| self.reach(nodes, item) <= x);
        }
        // Of items that do not overlap, only the last that starts at `x` or before can reach beyond it.
        let behind = search(from..self.at.len(), |item| self.at[item] <= x);
        if from < behind && x < self.reach(nodes, behind - 1) { behind - 1 } else { behind }
    }
}

/// The first number in a range for which `before` does not hold; it must hold for none after that.
fn search(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    if 0 < low {
        // A continued search usually ends near its start: gallop first.
        let mut step = 1;
        while low + step < high && before(low + step) {
            low += step;
            step *= 2;
        }
        high = high.min(low + step);
    }
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// A number known to be a valid index in memory.
pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("counts of things in memory fit in usize")
}

impl ViewProgram {
    /// The node with this id.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The root node.
    pub(crate) fn root_node(&self) -> Option<&Node> {
        self.root.map(|root| self.node(root.node))
    }

    /// Bytes of data.
    pub(crate) fn size(&self) -> u64 {
        self.root_node().map_or(0, |root| root.size)
    }

    /// Entries of all lists.
    pub(crate) fn items(&self) -> usize {
        let entries = |node: &Node| match &node.shape {
            NodeShape::List(list) => list.at.len(),
            NodeShape::Run | NodeShape::Loop { .. } => 0,
        };
        self.nodes.iter().map(entries).sum()
    }
}
