//! The bytes of a file that live on one server: windows of a stripe that come back with a period.
//!
//! Never: steps through rounds of a loop that miss the server; whole rounds are skipped by arithmetic. Where rounds must be looked
//! into, the search ends after one full cycle of positions without a hit. Always: called for increasing nodes only, in which file
//! order is stream order.

use pario_core::{Layout, LocalOffset, ServerIndex};

use crate::find::{first_round_reaching, offset_in};
use crate::program::{Child, List, Node, Placed, Shape};
use crate::residue::{first_in_window, gcd};

/// Windows `start + k * period .. + stripe`, for every `k` from 0 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Windows {
    start: i64,
    stripe: i64,
    period: i64,
}

/// A byte found: where it lies, and its stream offset in the node that was searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) at: i64,
    pub(crate) stream: u64,
}

impl Windows {
    /// The blocks of one server; `None` if the file has none there.
    pub(crate) fn of(layout: &Layout, server: ServerIndex) -> Option<Windows> {
        let start = layout.file_offset(server, LocalOffset(0))?;
        let period = layout.stripe_bytes() * u64::from(layout.count());
        Some(Windows {
            start: start.cast_signed(),
            stripe: layout.stripe_bytes().cast_signed(),
            period: period.cast_signed(),
        })
    }

    /// The first place at or after `x` that lies in a window.
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

    /// The first byte at or after `x` of an increasing node that lies in a window. Recursion is bounded by the depth of programs.
    pub(crate) fn first(&self, nodes: &[Node], from: Placed, x: i64) -> Option<Found> {
        let node = &nodes[from.node.0 as usize];
        debug_assert!(node.increasing, "file order must be stream order");
        if from.at + node.hi <= x {
            return None;
        }
        match &node.shape {
            Shape::Run => self.first_in_run(from.at, node.hi, x),
            Shape::Loop { count, stride, body } => {
                let body = Placed { at: from.at, node: *body };
                self.first_in_loop(nodes, &Rounds { count: *count, stride: *stride, body }, x)
            }
            Shape::List(list) => self.first_in_list(nodes, list, from.at, x),
        }
    }

    /// The same in a run of `length` bytes at `base`.
    pub(crate) fn first_in_run(&self, base: i64, length: i64, x: i64) -> Option<Found> {
        let at = self.next(base.max(x))?;
        (at - base < length).then(|| Found { at, stream: offset_in(base, at) })
    }

    fn first_in_loop(&self, nodes: &[Node], rounds: &Rounds, x: i64) -> Option<Found> {
        let Rounds { count, stride, body } = *rounds;
        let of = &nodes[body.node.0 as usize];
        let length = self.length_on_circle(nodes, of);
        let mut round = first_round_reaching(stride, x.saturating_sub(body.at), of);
        let mut misses = 0;
        while round < count {
            let rounds = self.rounds_to_hit(body.at + round.cast_signed() * stride, stride, length)?;
            round = round.checked_add(rounds)?;
            if count <= round {
                return None;
            }
            let base = body.at + round.cast_signed() * stride;
            if let Some(found) = self.first(nodes, Placed { at: base, ..body }, x) {
                return Some(Found { stream: found.stream + round * of.size, ..found });
            }
            // A round that lies behind `x` as a whole misses for ever; after all different ones nothing is left.
            misses += u64::from(x <= base);
            if self.cycle(stride) <= misses {
                return None;
            }
            round += 1;
        }
        None
    }

    fn first_in_list(&self, nodes: &[Node], list: &List, base: i64, x: i64) -> Option<Found> {
        let count = list.at.len();
        let mut item = list.first_reaching(nodes, 0, x.saturating_sub(base));
        while item < count {
            let start = base + list.at[item];
            let at = self.next(start.max(x))?;
            if base + list.reach(nodes, item) <= at {
                item = list.first_reaching(nodes, item + 1, at - base);
                continue;
            }
            let found = match list.child(item) {
                Child::Run(bytes) => self.first_in_run(start, bytes.cast_signed(), x),
                Child::Node(node) => self.first(nodes, Placed { at: start, node }, x),
            };
            if let Some(found) = found {
                return Some(Found { stream: found.stream + list.before(nodes, item), ..found });
            }
            item += 1;
        }
        None
    }

    /// How many rounds of `stride` it takes until something of length `length` at `base` touches a window.
    fn rounds_to_hit(&self, base: i64, stride: i64, length: i64) -> Option<u64> {
        // It touches one if its place, less the window's, plus its length less one, leaves a remainder of at most `most`.
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

    /// How much of the circle of one period a node covers at most, from its anchor on. Loops whose stride is a multiple of the
    /// period, or drifts slowly, cover little of it, however long they are.
    fn length_on_circle(&self, nodes: &[Node], node: &Node) -> i64 {
        let Shape::Loop { count, stride, body } = node.shape else { return node.hi };
        let drift = (count - 1).cast_signed().saturating_mul(stride % self.period);
        let body = self.length_on_circle(nodes, &nodes[body.0 as usize]);
        drift.saturating_add(body).min(node.hi)
    }

    /// After how many rounds of `stride` places come back, as seen from the windows.
    fn cycle(&self, stride: i64) -> u64 {
        let period = self.period.cast_unsigned();
        period / gcd(stride.cast_unsigned(), period)
    }
}

/// A loop at a place: `body` stands where its first round does.
struct Rounds {
    count: u64,
    stride: i64,
    body: Placed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Builder;

    fn windows() -> Windows {
        Windows::of(&Layout::new(4096, 4, 0, 4).unwrap(), ServerIndex(1)).unwrap()
    }

    #[test]
    fn windows_are_the_blocks_of_the_server() {
        assert_eq!(windows().next(0), Some(4096));
        assert_eq!(windows().next(5000), Some(5000));
        assert_eq!(windows().next(8192), Some(4096 * 5));
        assert_eq!(windows().end_of(5000), 8192);
        assert_eq!(Windows::of(&Layout::new(4096, 2, 0, 4).unwrap(), ServerIndex(3)), None);
    }

    #[test]
    fn loops_that_never_meet_the_server_end_at_once() {
        let mut builder = Builder::default();
        let run = builder.run(8).unwrap();
        // Each round lies in a block of server 0; stepping through them would take for ever.
        let looped = builder.repeat(1 << 40, 4 * 4096, Placed { at: 0, node: run }).unwrap();
        assert_eq!(windows().first(builder.nodes(), looped, 0), None);
        // The same with something to look into.
        let pair = builder.repeat(2, 64, Placed { at: 0, node: run }).unwrap();
        let nested = builder.repeat(1 << 40, 4 * 4096, pair).unwrap();
        assert_eq!(windows().first(builder.nodes(), nested, 0), None);
        let other = builder.repeat(2, 3 * 4096, Placed { at: 0, node: run }).unwrap();
        let around = builder.repeat(1 << 40, 4 * 4096, other).unwrap();
        assert_eq!(windows().first(builder.nodes(), around, 0), None);
    }

    #[test]
    fn a_hit_far_away_is_found_by_arithmetic() {
        let mut builder = Builder::default();
        let run = builder.run(1).unwrap();
        // Byte 0 of every 16 KiB + 1: it takes 4096 rounds to drift into server 1.
        let looped = builder.repeat(1 << 40, 4 * 4096 + 1, Placed { at: 0, node: run }).unwrap();
        let found = windows().first(builder.nodes(), looped, 0).unwrap();
        assert_eq!(found, Found { at: 4096 * (4 * 4096 + 1), stream: 4096 });
    }

    #[test]
    fn columns_that_drift_together_are_skipped_together() {
        let mut builder = Builder::default();
        let run = builder.run(8).unwrap();
        // A column of 1000 rows, each a whole number of periods long, in planes that are one byte longer than that.
        let column = builder.repeat(1000, 8 * 4096, Placed { at: 8192, node: run }).unwrap();
        let planes = builder.repeat(1 << 30, 8000 * 4096 + 1, column).unwrap();
        let Shape::Loop { body, .. } = builder.node(planes.node).shape else { panic!() };
        assert_eq!(windows().length_on_circle(builder.nodes(), builder.node(body)), 8);
        let found = windows().first(builder.nodes(), planes, 0).unwrap();
        let plane = 2 * 4096 + 4096 - 7;
        assert_eq!(found.stream, plane * 8000 + 7);
    }

    #[test]
    fn a_round_that_hits_late_in_the_cycle_is_found() {
        let mut builder = Builder::default();
        let run = builder.run(1).unwrap();
        // Both bytes of a round have the same place in the period, which drifts by one each round.
        let pair = builder.repeat(2, 4 * 4096, Placed { at: 8192, node: run }).unwrap();
        let looped = builder.repeat(1 << 40, 8 * 4096 + 1, pair).unwrap();
        let found = windows().first(builder.nodes(), looped, 0).unwrap();
        assert_eq!(found, Found { at: 8192 + 12288 * (8 * 4096 + 1), stream: 2 * 12288 });
    }
}
