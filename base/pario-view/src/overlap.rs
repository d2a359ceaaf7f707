//! Whether two parts of programs share a byte, by their structure: translation for loops of equal stride, remainders for loops of
//! different strides, bounds for all else.
//!
//! Never: exceeds its work limit; the result is then `None`. Always: a definite result is exact.

use std::ops::Range;

use crate::program::{Child, ItemList, Node, NodeId, NodeShape, Placed};
use crate::residue::first_in_window;

/// Some iterations of a loop, some items of a list, or a run, at an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region<'p> {
    nodes: &'p [Node],
    at: i64,
    what: RegionKind<'p>,
}

#[derive(Clone, Copy, Debug)]
enum RegionKind<'p> {
    Run { bytes: i64 },
    Loop(LoopIterations),
    List { list: &'p ItemList, from: usize, to: usize },
}

/// Rounds of a loop; the first one stands where the region does.
#[derive(Clone, Copy, Debug)]
struct LoopIterations {
    count: u64,
    stride: i64,
    body: NodeId,
}

/// Steps left.
#[derive(Debug)]
pub(crate) struct WorkLimit(pub(crate) u64);

impl WorkLimit {
    fn spend(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

impl<'p> Region<'p> {
    /// All of a node.
    pub(crate) fn whole(nodes: &'p [Node], from: Placed) -> Self {
        let node = &nodes[from.node.0 as usize];
        let what = match &node.shape {
            NodeShape::Run => RegionKind::Run { bytes: node.hi },
            NodeShape::Loop { count, stride, body } => {
                RegionKind::Loop(LoopIterations { count: *count, stride: *stride, body: *body })
            }
            NodeShape::List(list) => RegionKind::List { list, from: 0, to: list.at.len() },
        };
        Region { nodes, at: from.at, what }
    }

    /// The regions that the bytes `stream` of a node consist of: at most two for each level, and one.
    pub(crate) fn cut(nodes: &'p [Node], from: Placed, stream: Range<u64>, into: &mut Vec<Self>) {
        let node = &nodes[from.node.0 as usize];
        if stream.is_empty() {
            return;
        }
        if stream.start == 0 && stream.end == node.size {
            into.push(Region::whole(nodes, from));
            return;
        }
        match &node.shape {
            NodeShape::Run => into.push(Region::run(nodes, from.at, stream)),
            NodeShape::Loop { stride, body, .. } => {
                Region::cut_loop(nodes, Placed { at: from.at, node: *body }, *stride, stream, into);
            }
            NodeShape::List(list) => Region::cut_list(nodes, from.at, list, stream, into),
        }
    }

    /// The bytes `stream` of a loop over `body`, which stands where the first round does.
    fn cut_loop(nodes: &'p [Node], body: Placed, stride: i64, stream: Range<u64>, into: &mut Vec<Self>) {
        let size = nodes[body.node.0 as usize].size;
        let place = |round: u64| body.at + round.cast_signed() * stride;
        let mut partial = |round: u64| {
            let within = clip(&stream, round * size..(round + 1) * size);
            Region::cut(nodes, Placed { at: place(round), ..body }, within, into);
        };
        let (mut first, mut end) = (stream.start / size, stream.end.div_ceil(size));
        if !stream.start.is_multiple_of(size) {
            partial(first);
            first += 1;
        }
        if first < end && !stream.end.is_multiple_of(size) {
            end -= 1;
            partial(end);
        }
        if first < end {
            let rounds = LoopIterations { count: end - first, stride, body: body.node };
            into.push(Region { nodes, at: place(first), what: RegionKind::Loop(rounds) });
        }
    }

    fn cut_list(nodes: &'p [Node], at: i64, list: &'p ItemList, stream: Range<u64>, into: &mut Vec<Self>) {
        let ends = (list.item_at(nodes, stream.start), list.item_at(nodes, stream.end - 1));
        let mut item = |item: usize| {
            let span = list.before(nodes, item)..list.before(nodes, item + 1);
            let (within, at) = (clip(&stream, span), at + list.at[item]);
            match list.child(item) {
                Child::Run(_) => into.push(Region::run(nodes, at, within)),
                Child::Node(node) => Region::cut(nodes, Placed { at, node }, within, into),
            }
        };
        item(ends.0);
        if ends.0 == ends.1 {
            return;
        }
        item(ends.1);
        if ends.0 + 1 < ends.1 {
            into.push(Region { nodes, at, what: RegionKind::List { list, from: ends.0 + 1, to: ends.1 } });
        }
    }

    fn run(nodes: &'p [Node], at: i64, stream: Range<u64>) -> Self {
        let bytes = (stream.end - stream.start).cast_signed();
        Region { nodes, at: at + stream.start.cast_signed(), what: RegionKind::Run { bytes } }
    }

    /// From the lowest byte to one past the highest; may be slightly larger.
    pub(crate) fn bounds(&self) -> Range<i64> {
        match self.what {
            RegionKind::Run { bytes } => self.at..self.at + bytes,
            RegionKind::Loop(LoopIterations { count, stride, body }) => {
                let far = (count - 1).cast_signed() * stride;
                self.at..self.at + far + self.nodes[body.0 as usize].hi
            }
            RegionKind::List { list, from, to } => {
                self.at + list.at[from]..self.at + list.reach(self.nodes, to - 1)
            }
        }
    }

    /// The stride, if this is a loop.
    pub(crate) fn stride(&self) -> Option<i64> {
        if let RegionKind::Loop(rounds) = self.what { Some(rounds.stride) } else { None }
    }

    /// How much of a circle of length `stride` it covers at most, from the remainder of its start on.
    pub(crate) fn length_on_circle(&self, stride: i64) -> i64 {
        match self.what {
            RegionKind::Loop(rounds) if rounds.stride == stride => self.nodes[rounds.body.0 as usize].hi,
            RegionKind::Run { .. } | RegionKind::Loop(_) | RegionKind::List { .. } => {
                self.bounds().end - self.bounds().start
            }
        }
    }

    fn iteration(&self, rounds: &LoopIterations, number: i64) -> Region<'p> {
        Region::whole(self.nodes, Placed { at: self.at + number * rounds.stride, node: rounds.body })
    }

    fn item(&self, list: &'p ItemList, item: usize) -> Region<'p> {
        let at = self.at + list.at[item];
        match list.child(item) {
            Child::Run(bytes) => {
                Region { nodes: self.nodes, at, what: RegionKind::Run { bytes: bytes.cast_signed() } }
            }
            Child::Node(node) => Region::whole(self.nodes, Placed { at, node }),
        }
    }
}

fn clip(stream: &Range<u64>, span: Range<u64>) -> Range<u64> {
    stream.start.max(span.start) - span.start..stream.end.min(span.end) - span.start
}

/// Whether two regions share a byte; `None` if the work limit is reached. Recursion is bounded by the depths.
pub(crate) fn overlap(one: &Region<'_>, other: &Region<'_>, work: &mut WorkLimit) -> Option<bool> {
    work.spend()?;
    let (bounds, others) = (one.bounds(), other.bounds());
    if bounds.end <= others.start || others.end <= bounds.start {
        return Some(false);
    }
    match (&one.what, &other.what) {
        (RegionKind::Run { .. }, RegionKind::Run { .. }) => Some(true),
        (RegionKind::Loop(a), RegionKind::Loop(b)) if 0 < a.stride && 0 < b.stride => {
            loops((one, a), (other, b), work)
        }
        (RegionKind::Run { .. }, _) => split(other, one, work),
        (_, RegionKind::Run { .. }) => split(one, other, work),
        _ => split_longer(one, other, work),
    }
}

fn split_longer(one: &Region<'_>, other: &Region<'_>, work: &mut WorkLimit) -> Option<bool> {
    let length = |region: &Region<'_>| region.bounds().end - region.bounds().start;
    if length(other) <= length(one) { split(one, other, work) } else { split(other, one, work) }
}

/// Compares each child of `whole` that touches the bounds of `other` with it.
fn split(whole: &Region<'_>, other: &Region<'_>, work: &mut WorkLimit) -> Option<bool> {
    let bounds = other.bounds();
    match whole.what {
        RegionKind::Run { .. } => unreachable!("a run has no children"),
        RegionKind::Loop(rounds) => {
            // Iterations with stride 0 are all equal.
            let touching = if rounds.stride == 0 { 0..=0 } else { touching(whole, &rounds, &bounds) };
            for number in touching {
                if overlap(&whole.iteration(&rounds, number), other, work)? {
                    return Some(true);
                }
            }
        }
        RegionKind::List { list, from, to } => {
            let start = bounds.start.saturating_sub(whole.at);
            let end = bounds.end.saturating_sub(whole.at);
            let first = list.first_reaching(whole.nodes, from, start);
            let last = from + list.at[from..to].partition_point(|at| *at < end);
            for item in first..last {
                if overlap(&whole.item(list, item), other, work)? {
                    return Some(true);
                }
            }
        }
    }
    Some(false)
}

/// The rounds of a loop that touch `bounds`.
fn touching(
    region: &Region<'_>,
    rounds: &LoopIterations,
    bounds: &Range<i64>,
) -> std::ops::RangeInclusive<i64> {
    let length = region.nodes[rounds.body.0 as usize].hi;
    let (start, end) = (bounds.start.saturating_sub(region.at), bounds.end.saturating_sub(region.at));
    let first = start.saturating_sub(length).div_euclid(rounds.stride).saturating_add(1);
    let last = (end - 1).div_euclid(rounds.stride);
    first.max(0)..=last.min(rounds.count.cast_signed() - 1)
}

type Looped<'a, 'p> = (&'a Region<'p>, &'a LoopIterations);

fn loops(one: Looped<'_, '_>, other: Looped<'_, '_>, work: &mut WorkLimit) -> Option<bool> {
    let (step, others) = (one.1.stride, other.1.stride);
    let is_run = |of: Looped<'_, '_>| of.0.nodes[of.1.body.0 as usize].shape == NodeShape::Run;
    if step == others {
        same_stride(one, other, work)
    } else if is_run(one) && is_run(other) {
        Some(runs_overlap(one, other))
    } else if others % step == 0 {
        translated(one, other, work)
    } else if step % others == 0 {
        translated(other, one, work)
    } else {
        split_longer(one.0, other.0, work)
    }
}

/// Loops of one stride: whether two iterations overlap depends only on the difference of their numbers, so one pair represents all.
fn same_stride(one: Looped<'_, '_>, other: Looped<'_, '_>, work: &mut WorkLimit) -> Option<bool> {
    let ((a, rounds), (b, others)) = (one, other);
    let stride = i128::from(rounds.stride);
    let ahead = i128::from(b.at) - i128::from(a.at);
    let lengths = (i128::from(length_of(one)), i128::from(length_of(other)));
    let counts = (i128::from(rounds.count), i128::from(others.count));
    let first = (-lengths.1 - ahead).div_euclid(stride) + 1;
    let last = (lengths.0 - ahead - 1).div_euclid(stride);
    for difference in first.max(1 - counts.0)..=last.min(counts.1 - 1) {
        let number = 0.max(-difference);
        let pair = (a.iteration(rounds, narrow(number)), b.iteration(others, narrow(number + difference)));
        if overlap(&pair.0, &pair.1, work)? {
            return Some(true);
        }
    }
    Some(false)
}

/// Runs at `a.at + i * a.stride` and at `b.at + j * b.stride`: the first `j` that overlaps an `i` is found by remainders.
fn runs_overlap(one: Looped<'_, '_>, other: Looped<'_, '_>) -> bool {
    let ((a, rounds), (b, others)) = (one, other);
    let (stride, step) = (i128::from(rounds.stride), i128::from(others.stride));
    let (length, len) = (i128::from(length_of(one)), i128::from(length_of(other)));
    let ahead = i128::from(b.at) - i128::from(a.at);
    // Iteration j is at `ahead + j * step` relative to a; it can overlap iterations 0 to count - 1 of a only between these.
    let last = (i128::from(rounds.count) - 1) * stride;
    let first_j = (-len - ahead).div_euclid(step) + 1;
    let last_j = (last + length - ahead - 1).div_euclid(step);
    let (first_j, last_j) = (first_j.max(0), last_j.min(i128::from(others.count) - 1));
    if last_j < first_j {
        return false;
    }
    // It overlaps one if `ahead + j * step + len - 1` leaves a remainder by the stride of at most `most`.
    let most = length + len - 2;
    if stride - 1 <= most {
        return true;
    }
    let low = (-(ahead + first_j * step + len - 1)).rem_euclid(stride);
    if low == 0 || stride <= low + most {
        return true;
    }
    let natural = |number: i128| u64::try_from(number).expect("reduced by a stride below 2^63");
    let hit = first_in_window(natural(step % stride), natural(stride), natural(low), natural(low + most));
    hit.is_some_and(|rounds| first_j + i128::from(rounds) <= last_j)
}

/// `fine` repeats within each iteration of `coarse`: iterations of `coarse` inside `fine` are all equal, one represents all; those at the
/// ends are checked one by one.
fn translated(fine: Looped<'_, '_>, coarse: Looped<'_, '_>, work: &mut WorkLimit) -> Option<bool> {
    let ((a, rounds), (b, others)) = (fine, coarse);
    let near = touching(b, others, &a.bounds());
    let end = i128::from(a.at) + i128::from(rounds.count) * i128::from(rounds.stride);
    let inside = |number: i64| {
        let at = i128::from(b.at) + i128::from(number) * i128::from(others.stride);
        let start = i128::from(a.at) + i128::from(length_of(fine)) - i128::from(rounds.stride);
        start <= at && at + i128::from(length_of(coarse)) <= end
    };
    let (mut number, last) = (*near.start(), *near.end());
    let mut seen_inside = false;
    while number <= last {
        if inside(number) && seen_inside {
            // On to the first that sticks out at the end.
            let room = end - i128::from(length_of(coarse)) - i128::from(b.at);
            number = narrow(room.div_euclid(i128::from(others.stride)) + 1);
            continue;
        }
        seen_inside |= inside(number);
        if overlap(&b.iteration(others, number), a, work)? {
            return Some(true);
        }
        number += 1;
    }
    Some(false)
}

fn length_of(of: Looped<'_, '_>) -> i64 {
    of.0.nodes[of.1.body.0 as usize].hi
}

fn narrow(number: i128) -> i64 {
    i64::try_from(number).expect("numbers of rounds are below 2^63")
}
