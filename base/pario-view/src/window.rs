//! The bytes of a file on one server: windows of one stripe that repeat with a period.
//!
//! Never: steps through iterations of a loop that miss the server; they are skipped by arithmetic. Where iterations must be searched, the
//! search ends after one full cycle of positions without a hit, or after the last requested byte. Always: called for increasing nodes
//! only, in which file order is stream order.

use std::ops::Range;

use pario_core::{Layout, LocalOffset, ServerIndex};

use crate::find::{first_iteration_reaching, offset_in};
use crate::program::{Child, ItemList, Node, NodeShape, Placed};
use crate::residue::{first_in_window, gcd};

/// Windows `start + k * period .. + stripe`, for every `k` from 0 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StripeWindows {
    start: i64,
    stripe: i64,
    period: i64,
}

/// A byte found: its file offset, and its stream offset in the node that was searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowHit {
    pub(crate) at: i64,
    pub(crate) stream: u64,
}

impl StripeWindows {
    /// The blocks of one server; `None` if the file has none there.
    pub(crate) fn of(layout: &Layout, server: ServerIndex) -> Option<StripeWindows> {
        let start = layout.file_offset(server, LocalOffset(0))?;
        let period = layout.stripe_bytes() * u64::from(layout.count());
        Some(StripeWindows {
            start: start.cast_signed(),
            stripe: layout.stripe_bytes().cast_signed(),
            period: period.cast_signed(),
        })
    }

    /// The first offset at or after `x` inside a window.
    pub(crate) fn next(&self, x: i64) -> Option<i64> {
        let from_start = x - self.start;
        if from_start < 0 {
            return Some(self.start);
        }
        let into = from_start % self.period;
        if into < self.stripe { Some(x) } else { x.checked_add(self.period - into) }
    }

    /// The end of the window that holds `x`.
    pub(crate) fn end_of(&self, x: i64) -> i64 {
        x.saturating_add(self.stripe - (x - self.start) % self.period)
    }

    /// The first byte in `range` of an increasing node that is inside a window; beyond the range the result is unspecified. Recursion is
    /// bounded by the depth of programs.
    pub(crate) fn first(&self, nodes: &[Node], from: Placed, range: &Range<i64>) -> Option<WindowHit> {
        let x = range.start;
        let node = &nodes[from.node.0 as usize];
        debug_assert!(node.increasing, "file order must be stream order");
        if from.at + node.hi <= x {
            return None;
        }
        match &node.shape {
            NodeShape::Run => self.first_in_run(from.at, node.hi, x),
            NodeShape::Loop { count, stride, body } => {
                let body = Placed { at: from.at, node: *body };
                self.first_in_loop(nodes, &WindowLoop { count: *count, stride: *stride, body }, range)
            }
            NodeShape::List(list) => self.first_in_list(nodes, list, from.at, range),
        }
    }

    /// The same in a run of `length` bytes at `base`.
    pub(crate) fn first_in_run(&self, base: i64, length: i64, x: i64) -> Option<WindowHit> {
        let at = self.next(base.max(x))?;
        (at - base < length).then(|| WindowHit { at, stream: offset_in(base, at) })
    }

    fn first_in_loop(&self, nodes: &[Node], rounds: &WindowLoop, range: &Range<i64>) -> Option<WindowHit> {
        let (&WindowLoop { count, stride, body }, x) = (rounds, range.start);
        let of = &nodes[body.node.0 as usize];
        let length = self.length_on_circle(nodes, of);
        let mut round = first_iteration_reaching(stride, x.saturating_sub(body.at), of);
        let mut misses = 0;
        while round < count {
            let rounds = self.iterations_to_hit(body.at + round.cast_signed() * stride, stride, length)?;
            round = round.checked_add(rounds)?;
            if count <= round {
                return None;
            }
            let base = body.at + round.cast_signed() * stride;
            if range.end <= base {
                return None;
            }
            if let Some(found) = self.first(nodes, Placed { at: base, ..body }, range) {
                return Some(WindowHit { stream: found.stream + round * of.size, ..found });
            }
            // An iteration entirely after `x` that misses, misses in every later cycle; after all distinct positions the search ends.
            misses += u64::from(x <= base);
            if self.cycle(stride) <= misses {
                return None;
            }
            round += 1;
        }
        None
    }

    fn first_in_list(
        &self,
        nodes: &[Node],
        list: &ItemList,
        base: i64,
        range: &Range<i64>,
    ) -> Option<WindowHit> {
        let (count, x) = (list.at.len(), range.start);
        let mut item = list.first_reaching(nodes, 0, x.saturating_sub(base));
        while item < count {
            let start = base + list.at[item];
            let at = self.next(start.max(x))?;
            if range.end <= at {
                return None;
            }
            if base + list.reach(nodes, item) <= at {
                item = list.first_reaching(nodes, item + 1, at - base);
                continue;
            }
            let found = match list.child(item) {
                Child::Run(bytes) => self.first_in_run(start, bytes.cast_signed(), x),
                Child::Node(node) => self.first(nodes, Placed { at: start, node }, range),
            };
            if let Some(found) = found {
                return Some(WindowHit { stream: found.stream + list.before(nodes, item), ..found });
            }
            item += 1;
        }
        None
    }

    /// Number of iterations of `stride` until a range of length `length` at `base` touches a window.
    fn iterations_to_hit(&self, base: i64, stride: i64, length: i64) -> Option<u64> {
        // It touches one if its offset, less the window's, plus its length less one, leaves a remainder of at most `most`.
        let most = self.stripe - 1 + (length - 1).min(self.period);
        if self.period - 1 <= most {
            return Some(0);
        }
        let into = (base - self.start + (length - 1)).rem_euclid(self.period);
        let low = (self.period - into) % self.period;
        if low == 0 || self.period <= low + most {
            return Some(0);
        }
        let (low, high) = (low.cast_unsigned(), (low + most).cast_unsigned());
        first_in_window(stride.cast_unsigned(), self.period.cast_unsigned(), low, high)
    }

    /// Upper bound of a node's coverage of one period, from its anchor on. Loops with a stride that is a multiple of the period, or
    /// drifts slowly, cover little of it, however long they are.
    fn length_on_circle(&self, nodes: &[Node], node: &Node) -> i64 {
        let NodeShape::Loop { count, stride, body } = node.shape else { return node.hi };
        let drift = (count - 1).cast_signed().saturating_mul(stride % self.period);
        let body = self.length_on_circle(nodes, &nodes[body.0 as usize]);
        drift.saturating_add(body).min(node.hi)
    }

    /// Number of iterations of `stride` after which offsets modulo the period repeat.
    fn cycle(&self, stride: i64) -> u64 {
        let period = self.period.cast_unsigned();
        period / gcd(stride.cast_unsigned(), period)
    }
}

/// A loop at an offset: `body` is at the offset of its first iteration.
struct WindowLoop {
    count: u64,
    stride: i64,
    body: Placed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Builder;

    fn windows() -> StripeWindows {
        StripeWindows::of(&Layout::new(4096, 4, 0, 4).unwrap(), ServerIndex(1)).unwrap()
    }

    #[test]
    fn windows_are_the_blocks_of_the_server() {
        assert_eq!(windows().next(0), Some(4096));
        assert_eq!(windows().next(5000), Some(5000));
        assert_eq!(windows().next(8192), Some(4096 * 5));
        assert_eq!(windows().end_of(5000), 8192);
        assert_eq!(StripeWindows::of(&Layout::new(4096, 2, 0, 4).unwrap(), ServerIndex(3)), None);
    }

    #[test]
    fn loops_that_never_meet_the_server_end_at_once() {
        let mut builder = Builder::default();
        let run = builder.run(8).unwrap();
        // Each iteration is in a block of server 0; stepping through them would not end in time.
        let looped = builder.repeat(1 << 40, 4 * 4096, Placed { at: 0, node: run }).unwrap();
        assert_eq!(windows().first(builder.nodes(), looped, &(0..i64::MAX)), None);
        // The same with a body that must be searched.
        let pair = builder.repeat(2, 64, Placed { at: 0, node: run }).unwrap();
        let nested = builder.repeat(1 << 40, 4 * 4096, pair).unwrap();
        assert_eq!(windows().first(builder.nodes(), nested, &(0..i64::MAX)), None);
        let other = builder.repeat(2, 3 * 4096, Placed { at: 0, node: run }).unwrap();
        let around = builder.repeat(1 << 40, 4 * 4096, other).unwrap();
        assert_eq!(windows().first(builder.nodes(), around, &(0..i64::MAX)), None);
    }

    #[test]
    fn a_hit_far_away_is_found_by_arithmetic() {
        let mut builder = Builder::default();
        let run = builder.run(1).unwrap();
        // Byte 0 of every 16 KiB + 1: after 4096 iterations it drifts into server 1.
        let looped = builder.repeat(1 << 40, 4 * 4096 + 1, Placed { at: 0, node: run }).unwrap();
        let found = windows().first(builder.nodes(), looped, &(0..i64::MAX)).unwrap();
        assert_eq!(found, WindowHit { at: 4096 * (4 * 4096 + 1), stream: 4096 });
    }

    #[test]
    fn columns_that_drift_together_are_skipped_together() {
        let mut builder = Builder::default();
        let run = builder.run(8).unwrap();
        // A column of 1000 rows, each a whole number of periods long, in planes that are one byte longer than that.
        let column = builder.repeat(1000, 8 * 4096, Placed { at: 8192, node: run }).unwrap();
        let planes = builder.repeat(1 << 30, 8000 * 4096 + 1, column).unwrap();
        let NodeShape::Loop { body, .. } = builder.node(planes.node).shape else { panic!() };
        assert_eq!(windows().length_on_circle(builder.nodes(), builder.node(body)), 8);
        let found = windows().first(builder.nodes(), planes, &(0..i64::MAX)).unwrap();
        let plane = 2 * 4096 + 4096 - 7;
        assert_eq!(found.stream, plane * 8000 + 7);
    }

    #[test]
    fn a_round_that_hits_late_in_the_cycle_is_found() {
        let mut builder = Builder::default();
        let run = builder.run(1).unwrap();
        // Both bytes of an iteration have the same offset in the period, which drifts by one each iteration.
        let pair = builder.repeat(2, 4 * 4096, Placed { at: 8192, node: run }).unwrap();
        let looped = builder.repeat(1 << 40, 8 * 4096 + 1, pair).unwrap();
        let found = windows().first(builder.nodes(), looped, &(0..i64::MAX)).unwrap();
        assert_eq!(found, WindowHit { at: 8192 + 12288 * (8 * 4096 + 1), stream: 2 * 12288 });
    }
    #[test]
    fn a_search_ends_behind_what_is_wanted() {
        let mut builder = Builder::default();
        let run = builder.run(1).unwrap();
        let pair = builder.repeat(2, 4 * 4096, Placed { at: 8192, node: run }).unwrap();
        let looped = builder.repeat(1 << 40, 8 * 4096 + 1, pair).unwrap();
        // The first hit is in iteration 12,288: all before it would be searched.
        assert_eq!(windows().first(builder.nodes(), looped, &(0..100 * 4096)), None);
    }
}
