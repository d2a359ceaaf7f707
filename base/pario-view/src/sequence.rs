//! Concatenation: turns a list of placed nodes into the most regular equivalent node.
//!
//! Runs that touch become one; items that repeat with a period become a loop; long regular stretches become separate loops; the rest
//! becomes a list. Never: reorders items. Always: linear in the number of items, times a small constant.

use crate::build::Builder;
use crate::error::TypeError;
use crate::program::{Items, NodeId, NodeShape, Placed};

/// Regular stretches shorter than this stay in their list: an entry of a list is cheaper than a node.
const STRETCH_MIN: usize = 8;
/// Longest period searched.
const PERIOD_MAX: usize = 64;
/// Passes that search for stretches in the result of the pass before: one for each dimension that a list may hide.
const PASSES_MAX: usize = 4;

const TOO_LARGE: TypeError = TypeError::TooLarge { what: "the type" };

impl Builder {
    /// The items, concatenated; `None` if there are none.
    pub(crate) fn sequence(&mut self, items: Vec<Placed>) -> Result<Option<Placed>, TypeError> {
        let mut items = self.coalesce(items)?;
        for _ in 0..PASSES_MAX {
            if items.len() < 2 {
                break;
            }
            if let Some(whole) = self.periodic(&items)? {
                return Ok(Some(whole));
            }
            let before = items.len();
            items = self.gather_stretches(items)?;
            if items.len() == before {
                break;
            }
        }
        match items.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(*one)),
            _ => self.irregular(&items).map(Some),
        }
    }

    /// Makes one run of runs that touch.
    fn coalesce(&mut self, mut items: Vec<Placed>) -> Result<Vec<Placed>, TypeError> {
        let mut kept = 0;
        let mut next = 0;
        while next < items.len() {
            let first = items[next];
            let (count, bytes) = self.touching(&items[next..])?;
            let node = if count == 1 { first.node } else { self.run(bytes)? };
            items[kept] = Placed { at: first.at, node };
            kept += 1;
            next += count;
        }
        items.truncate(kept);
        Ok(items)
    }

    /// How many items from the first on are runs that touch, and their bytes.
    fn touching(&self, items: &[Placed]) -> Result<(usize, u64), TypeError> {
        let mut bytes = 0u64;
        for (count, item) in items.iter().enumerate() {
            let node = self.node(item.node);
            let touches = items[0].at.checked_add_unsigned(bytes) == Some(item.at);
            if 0 < count && (!touches || node.shape != NodeShape::Run) {
                return Ok((count, bytes));
            }
            bytes = bytes.checked_add(node.size).ok_or(TOO_LARGE)?;
            if node.shape != NodeShape::Run {
                return Ok((1, bytes));
            }
        }
        Ok((items.len(), bytes))
    }

    /// A loop, if the items are the same few over and over, always the same distance on.
    fn periodic(&mut self, items: &[Placed]) -> Result<Option<Placed>, TypeError> {
        let periods =
            (1..=PERIOD_MAX.min(items.len() / 2)).filter(|period| items.len().is_multiple_of(*period));
        let Some((period, stride)) =
            periods.filter_map(|period| Some((period, stride_of(items, period)?))).next()
        else {
            return Ok(None);
        };
        let rounds = items.len() / period;
        // The period itself may hide loops; it has at most half of the items, so this ends.
        let Some(body) = self.sequence(items[..period].to_vec())? else { return Ok(None) };
        self.repeat(rounds as u64, stride, body).map(Some)
    }

    /// Makes loops of stretches of equal nodes at equal distances.
    fn gather_stretches(&mut self, items: Vec<Placed>) -> Result<Vec<Placed>, TypeError> {
        let mut gathered = Vec::with_capacity(items.len());
        let mut start = 0;
        while start < items.len() {
            let length = stretch_length(&items[start..]);
            if STRETCH_MIN <= length {
                let stride = items[start + 1].at - items[start].at;
                gathered.push(self.repeat(length as u64, stride, items[start])?);
                start += length;
            } else {
                // The last item of a short stretch may be the first of a long one.
                let passed = length.max(2) - 1;
                gathered.extend_from_slice(&items[start..start + passed]);
                start += passed;
            }
        }
        Ok(gathered)
    }

    /// A list of at least two items.
    fn irregular(&mut self, items: &[Placed]) -> Result<Placed, TypeError> {
        if self.is_plain(items) {
            return self.plain(items);
        }
        let mut mixed = Vec::new();
        let mut start = 0;
        while start < items.len() {
            let length = self.plain_length(&items[start..]);
            if STRETCH_MIN <= length && length < items.len() {
                mixed.push(self.plain(&items[start..start + length])?);
            } else {
                mixed.extend_from_slice(&items[start..start + length]);
            }
            start += length;
        }
        let nodes: Box<[NodeId]> = mixed.iter().map(|item| item.node).collect();
        let sizes = mixed.iter().map(|item| self.node(item.node).size);
        let before = running_sum(sizes)?;
        self.placed_list(&mixed, Items::Mixed { nodes, before })
    }

    /// Whether a list of its own can hold the items: all equal, or all runs.
    fn is_plain(&self, items: &[Placed]) -> bool {
        self.plain_length(items) == items.len()
    }

    fn plain_length(&self, items: &[Placed]) -> usize {
        let first = items[0].node;
        let same = items.iter().take_while(|item| item.node == first).count();
        let runs = items.iter().take_while(|item| self.node(item.node).shape == NodeShape::Run).count();
        same.max(runs)
    }

    fn plain(&mut self, items: &[Placed]) -> Result<Placed, TypeError> {
        let first = items[0].node;
        if items.iter().all(|item| item.node == first) {
            return self.placed_list(items, Items::Same(first));
        }
        let before = running_sum(items.iter().map(|item| self.node(item.node).size))?;
        self.placed_list(items, Items::Runs { before })
    }

    fn placed_list(&mut self, items: &[Placed], of: Items) -> Result<Placed, TypeError> {
        let first = items[0].at;
        let at = items.iter().map(|item| item.at.checked_sub(first).ok_or(TOO_LARGE));
        let at = at.collect::<Result<Box<[i64]>, _>>()?;
        Ok(Placed { at: first, node: self.list(at, of)? })
    }
}

/// The distance between each item and the one a period later, if it is the same for all, and the nodes are too.
fn stride_of(items: &[Placed], period: usize) -> Option<i64> {
    let stride = items[period].at.checked_sub(items[0].at)?;
    let mut pairs = items.iter().zip(&items[period..]);
    let same =
        pairs.all(|(one, later)| one.node == later.node && later.at.checked_sub(one.at) == Some(stride));
    same.then_some(stride)
}

/// How many items from the first on are the same node at the same distance.
fn stretch_length(items: &[Placed]) -> usize {
    let [first, second, ..] = items else { return items.len() };
    let Some(stride) = second.at.checked_sub(first.at) else { return 1 };
    let pairs = items.windows(2);
    let same =
        |pair: &&[Placed]| pair[0].node == pair[1].node && pair[1].at.checked_sub(pair[0].at) == Some(stride);
    1 + pairs.take_while(same).count()
}

/// The sum before each item, then the sum of all.
pub(crate) fn running_sum(sizes: impl Iterator<Item = u64>) -> Result<Box<[u64]>, TypeError> {
    let mut before = vec![0u64];
    for size in sizes {
        let sum = before[before.len() - 1].checked_add(size);
        before.push(sum.filter(|sum| i64::try_from(*sum).is_ok()).ok_or(TOO_LARGE)?);
    }
    Ok(before.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(builder: &mut Builder, items: &[(i64, u64)]) -> Placed {
        let placed = items.iter().map(|(at, bytes)| Placed { at: *at, node: builder.run(*bytes).unwrap() });
        let placed = placed.collect();
        builder.sequence(placed).unwrap().unwrap()
    }

    #[test]
    fn touching_runs_become_one() {
        let mut builder = Builder::default();
        let one = runs(&mut builder, &[(8, 4), (12, 4), (16, 8)]);
        assert_eq!((one.at, builder.node(one.node).size), (8, 16));
        assert_eq!(builder.node(one.node).shape, NodeShape::Run);
    }

    #[test]
    fn equal_distances_become_a_loop() {
        let mut builder = Builder::default();
        let items: Vec<_> = (0..100).map(|i| (10 * i, 3)).collect();
        let looped = runs(&mut builder, &items);
        assert!(matches!(builder.node(looped.node).shape, NodeShape::Loop { count: 100, stride: 10, .. }));
    }

    #[test]
    fn a_list_that_hides_a_box_becomes_its_loops() {
        let mut builder = Builder::default();
        let items: Vec<_> = (0..3).flat_map(|z| (0..9).map(move |y| (1000 * z + 10 * y, 3))).collect();
        let looped = runs(&mut builder, &items);
        let NodeShape::Loop { count: 3, stride: 1000, body } = builder.node(looped.node).shape else {
            panic!()
        };
        assert!(matches!(builder.node(body).shape, NodeShape::Loop { count: 9, stride: 10, .. }));
    }

    #[test]
    fn a_period_becomes_a_loop_over_a_short_list() {
        let mut builder = Builder::default();
        let items: Vec<_> =
            (0..40).flat_map(|i| [(100 * i, 3), (100 * i + 7, 1), (100 * i + 31, 3)]).collect();
        let looped = runs(&mut builder, &items);
        let NodeShape::Loop { count: 40, stride: 100, body } = builder.node(looped.node).shape else {
            panic!()
        };
        assert_eq!(builder.node(body).children(), 3);
    }

    #[test]
    fn what_is_irregular_stays_a_list_beside_what_is_not() {
        let mut builder = Builder::default();
        let mut items: Vec<_> = (0..20).map(|i| (10 * i, 3)).collect();
        items.extend((0..20).map(|i| (1000 + i * i * 5, 4)));
        let list = runs(&mut builder, &items);
        let node = builder.node(list.node);
        assert_eq!((node.children(), node.size), (2, 140));
        assert!(node.increasing);
    }
}
