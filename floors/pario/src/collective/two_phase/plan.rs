//! The plan of one two-phase call: the file domain of each aggregator, and the number of iterations.
//!
//! Pure: equal spans give equal plans on every rank, so no message is needed. Never: reads a view; each rank does that for its
//! own. Always: domains tile the range that all ranks access together, and the windows of a domain tile it.

use std::ops::Range;

/// Domains are aligned to pages at least: two aggregators never write one page.
const PAGE_BYTES: u64 = 4096;

/// Parameters that do not change from call to call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlanShape {
    /// Number of ranks that merge for the others.
    pub(super) aggregators: usize,
    /// Bytes that an aggregator merges in one iteration.
    pub(super) window_bytes: u64,
    /// Block size of the target: the preferred alignment of domains.
    pub(super) align_bytes: u64,
}

/// See the module head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TwoPhasePlan {
    reach: Range<u64>,
    /// Aligned start of the first domain.
    origin: u64,
    domain_bytes: u64,
    shape: PlanShape,
}

impl TwoPhasePlan {
    /// The plan for ranks that access these ranges of the file; empty ranges take no part.
    pub(super) fn new(spans: &[Range<u64>], shape: PlanShape) -> TwoPhasePlan {
        assert!(0 < shape.aggregators && 0 < shape.window_bytes, "a plan needs an aggregator and a window");
        let some = || spans.iter().filter(|span| span.start < span.end);
        let start = some().map(|span| span.start).min().unwrap_or(0);
        let end = some().map(|span| span.end).max().unwrap_or(0);
        let align = alignment(end - start, &shape);
        let origin = start / align * align;
        let domain_bytes = share(end - origin, shape.aggregators).next_multiple_of(align);
        TwoPhasePlan { reach: start..end, origin, domain_bytes, shape }
    }

    /// Number of windows of the longest domain.
    pub(super) fn iterations(&self) -> u64 {
        self.domain_bytes.min(self.reach.end - self.origin).div_ceil(self.shape.window_bytes)
    }

    /// The part of the file that an aggregator handles.
    #[cfg(test)]
    pub(super) fn domain(&self, aggregator: usize) -> Range<u64> {
        let start = self.domain_start(aggregator);
        self.clip(start..start.saturating_add(self.domain_bytes))
    }

    /// The part of a domain that is merged in an iteration; empty where the domain is shorter.
    pub(super) fn window(&self, aggregator: usize, round: u64) -> Range<u64> {
        let domain = self.domain_start(aggregator);
        let into = round.saturating_mul(self.shape.window_bytes).min(self.domain_bytes);
        let end = into.saturating_add(self.shape.window_bytes).min(self.domain_bytes);
        self.clip(domain.saturating_add(into)..domain.saturating_add(end))
    }

    /// Length of a window in memory.
    pub(super) fn window_bytes(&self, aggregator: usize, round: u64) -> usize {
        let window = self.window(aggregator, round);
        usize::try_from(window.end - window.start).expect("windows are small")
    }

    fn domain_start(&self, aggregator: usize) -> u64 {
        self.origin.saturating_add(self.domain_bytes.saturating_mul(aggregator as u64))
    }

    fn clip(&self, range: Range<u64>) -> Range<u64> {
        let start = range.start.clamp(self.reach.start, self.reach.end);
        start..range.end.clamp(start, self.reach.end)
    }
}

/// Whole blocks if that keeps the aggregators about equally busy, else pages.
fn alignment(bytes: u64, shape: &PlanShape) -> u64 {
    let even = share(bytes, shape.aggregators);
    let blocks = shape.align_bytes.max(1);
    if even.next_multiple_of(blocks) <= even + even / 8 { blocks } else { PAGE_BYTES.min(blocks) }
}

fn share(bytes: u64, aggregators: usize) -> u64 {
    bytes.div_ceil(aggregators as u64).max(1)
}

/// A file system lets one process at a time write to a file: meanwhile another process on the same processor merges.
const AGGREGATORS_PER_PROCESSOR: usize = 2;

/// Default number of aggregators: on each node as many as it has ranks, but at most [`AGGREGATORS_PER_PROCESSOR`] per processor.
/// `processors` is the number that each rank sees.
pub(super) fn default_aggregators(nodes: &[usize], processors: &[usize]) -> usize {
    let count = nodes.iter().max().map_or(0, |last| last + 1);
    let on = |node: usize| nodes.iter().zip(processors).filter(move |(other, _)| **other == node);
    let kept_at_work =
        |node| AGGREGATORS_PER_PROCESSOR * on(node).map(|(_, seen)| *seen).min().unwrap_or(1).max(1);
    let wanted = |node| on(node).count().min(kept_at_work(node));
    (0..count).map(wanted).sum()
}

/// The ranks of the aggregators: spread over the nodes, the first ranks of each. Ascending.
pub(super) fn choose_aggregators(nodes: &[usize], count: usize) -> Vec<usize> {
    let count = count.clamp(1, nodes.len());
    // Sorted by the index of a rank within its node: all first ranks before any second rank.
    let turn = |rank: usize| nodes[..rank].iter().filter(|node| **node == nodes[rank]).count();
    let mut ranks: Vec<usize> = (0..nodes.len()).collect();
    ranks.sort_by_key(|rank| (turn(*rank), *rank));
    ranks.truncate(count);
    ranks.sort_unstable();
    ranks
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
