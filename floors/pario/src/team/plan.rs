//! The plan of a call: parts of the members become work items.
//!
//! A pure function. Parts are ordered by offset, neighbours in the file are joined to runs, and large runs are divided.
//!
//! Never: looks at bytes; drops or repeats one. Always: the pieces of an item are neighbours in the file; with the hint
//! *not contiguous* an item is a part.

use super::call::Hint;

/// Cuts of divided runs are multiples of this size, in a file without stripes.
pub(super) const CUT_BYTES: u64 = 4096;

/// One contiguous part that a member brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlannedPart {
    /// Offset in the file.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Index of the member, in the order of arrival.
    pub(super) owner: usize,
    /// Index of the buffer in the member's list.
    pub(super) buffer: usize,
    /// Bytes of the member's list in front of this buffer.
    pub(super) before: u64,
}

/// What a plan depends on besides the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlanRules {
    pub(super) hint: Hint,
    /// Smaller totals are one item.
    pub(super) saturation: u64,
    /// Members that do the work.
    pub(super) active: u64,
    /// Divided runs are cut at multiples of it.
    pub(super) cut: u64,
}

/// A piece of a work item: bytes of one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ItemPiece {
    pub(super) owner: usize,
    pub(super) buffer: usize,
    /// First byte in the buffer.
    pub(super) start: u64,
    /// First byte in the member's whole list.
    pub(super) list_start: u64,
    pub(super) bytes: u64,
}

/// One range of the file, read or written in one call of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkItem {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Its pieces: the range in [`TeamPlan::pieces`].
    pub(super) first_piece: usize,
    pub(super) pieces: usize,
}

/// Work items of a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TeamPlan {
    pub(super) items: Vec<WorkItem>,
    pub(super) pieces: Vec<ItemPiece>,
    /// Parts that were joined with the part in front.
    pub(super) joined: u64,
    /// The hint said contiguous, and the parts are not.
    pub(super) is_hint_false: bool,
    /// Whether one member does all of it: less than the saturation size.
    pub(super) is_small: bool,
}

impl TeamPlan {
    /// Makes a plan in place; sorts the parts.
    pub(super) fn make(&mut self, parts: &mut Vec<PlannedPart>, rules: PlanRules) {
        self.clear();
        parts.retain(|part| 0 < part.bytes);
        let total: u64 = parts.iter().map(|part| part.bytes).sum();
        self.is_small = total < rules.saturation;
        let is_contiguous = || parts.windows(2).all(|pair| pair[0].offset + pair[0].bytes == pair[1].offset);
        match rules.hint {
            Hint::NotContiguous => {
                parts.iter().for_each(|part| self.one_item(std::slice::from_ref(part)));
                return;
            }
            Hint::Contiguous if is_contiguous() => {}
            Hint::Contiguous | Hint::Unknown => {
                self.is_hint_false = rules.hint == Hint::Contiguous;
                // Stable: of equal offsets the lower member comes first.
                if !parts.is_sorted_by_key(|part| part.offset) {
                    parts.sort_by_key(|part| part.offset);
                }
            }
        }
        for run in parts.chunk_by(|one, next| one.offset + one.bytes == next.offset) {
            self.joined += run.len() as u64 - 1;
            self.divide(run, rules);
        }
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.pieces.clear();
        (self.joined, self.is_hint_false, self.is_small) = (0, false, false);
    }

    /// The pieces of an item.
    pub(super) fn pieces_of(&self, item: &WorkItem) -> &[ItemPiece] {
        &self.pieces[item.first_piece..item.first_piece + item.pieces]
    }

    fn one_item(&mut self, run: &[PlannedPart]) {
        let (start, end) = span(run);
        self.cut_out(run, start, end);
    }

    fn divide(&mut self, run: &[PlannedPart], rules: PlanRules) {
        let (start, end) = span(run);
        let mut at = start;
        while at < end {
            let next = next_cut(start, end, at, rules);
            self.cut_out(run, at, next);
            at = next;
        }
    }

    /// Adds the item of bytes `start..end` of a run.
    fn cut_out(&mut self, run: &[PlannedPart], start: u64, end: u64) {
        let first_piece = self.pieces.len();
        let from = run.partition_point(|part| part.offset + part.bytes <= start);
        for part in run[from..].iter().take_while(|part| part.offset < end) {
            let (low, high) = (part.offset.max(start), (part.offset + part.bytes).min(end));
            let skip = low - part.offset;
            self.pieces.push(ItemPiece {
                owner: part.owner,
                buffer: part.buffer,
                start: skip,
                list_start: part.before + skip,
                bytes: high - low,
            });
        }
        let pieces = self.pieces.len() - first_piece;
        self.items.push(WorkItem { offset: start, bytes: end - start, first_piece, pieces });
    }
}

fn span(run: &[PlannedPart]) -> (u64, u64) {
    let last = run[run.len() - 1];
    (run[0].offset, last.offset + last.bytes)
}

/// Where the item that begins at `at` ends: equal shares of the active members if each is larger than the saturation size, else pieces of that
/// size.
fn next_cut(start: u64, end: u64, at: u64, rules: PlanRules) -> u64 {
    let (bytes, active) = (end - start, rules.active.max(1));
    if bytes <= rules.saturation {
        return end;
    }
    let share = if rules.saturation < bytes / active { bytes.div_ceil(active) } else { rules.saturation };
    // Cuts are the same multiples however the run begins; the first item may be shorter.
    let step = share.max(rules.cut).next_multiple_of(rules.cut);
    let next = (at + step) / rules.cut * rules.cut;
    // A rest that is smaller than a cut is not worth a call.
    if end <= next + rules.cut / 2 || next <= at { end } else { next }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
