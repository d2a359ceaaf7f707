//! Brings the pieces of all slices of an object together.
//!
//! Records of several writers that interleave are merged by a walk over all of them at once, so that neighbours from different
//! outboxes become one vectored write. Where records overlap, or an older one meets a direct write, the object is written newest
//! first instead, each byte once. Fine pieces are not merged: each is put in its place in a window of the object, and the bytes of all are
//! written from there.
//!
//! Never: joins pieces that overlap. Always: of overlapping pieces the one that was committed last wins.

use std::ops::Range;

use pario_sys::piece::Piece;

use super::batch::{Slice, Source};
use super::cut::{Covered, Cut, sub_cut};
use super::run::{Run, stride};
use super::window::WINDOW_BYTES;
use super::writer::Writer;

/// Pieces of fewer bytes, on average, are fine: choosing which one comes next would cost more than everything else.
const FINE_BYTES_MAX: u64 = 64;

/// As long as they are not further apart, on average: a window is looked at as a whole.
const FINE_DISTANCE_MAX: u64 = 1024;

/// The slices of one object, in the order of their commits.
pub(super) struct Join<'g, 'a> {
    pub(super) slices: &'g [Slice<'a>],
    pub(super) cuts: &'g [Cut],
}

impl<'a> Join<'_, 'a> {
    /// Writes all of them.
    pub(super) fn write(&self, writer: &mut Writer<'a, '_>) {
        let amount = self.amount();
        let stride = stride(amount.1 / amount.0.max(1));
        writer.begin(self.slices.len(), stride);
        self.mark_intents(writer);
        let direct = self.slices.iter().any(|slice| slice.data.is_none()) && self.meets_intent();
        if direct || self.join(amount, writer).is_err() {
            writer.errors.overlap = true;
            writer.begin(self.slices.len(), stride);
            self.write_newest_first(writer);
        }
        writer.flush(self.slices);
    }

    /// Bytes of direct writes are in the store.
    fn mark_intents(&self, writer: &mut Writer<'a, '_>) {
        let Some(marks) = &mut writer.errors.marks else { return };
        for slice in self.slices.iter().filter(|slice| slice.data.is_none()) {
            for cut in &self.cuts[slice.cuts.clone()] {
                marks.add(slice.object, cut.local..cut.end(), slice.stamp.committed);
            }
        }
        marks.put();
    }

    /// Whether a record touches bytes of a direct write.
    fn meets_intent(&self) -> bool {
        let mut direct = Covered::default();
        for slice in self.slices.iter().filter(|slice| slice.data.is_none()) {
            for cut in &self.cuts[slice.cuts.clone()] {
                direct.add(cut.local..cut.end(), |_| ());
            }
        }
        let records = self.slices.iter().filter(|slice| slice.data.is_some());
        records
            .flat_map(|slice| &self.cuts[slice.cuts.clone()])
            .any(|cut| direct.touches(cut.local..cut.end()))
    }

    /// Pieces that are to be written, and their bytes.
    fn amount(&self) -> (u64, u64) {
        let (mut pieces, mut bytes) = (0, 0);
        for slice in self.slices.iter().filter(|slice| slice.data.is_some()) {
            let cuts = &self.cuts[slice.cuts.clone()];
            pieces += cuts.len() as u64;
            bytes += cuts.iter().map(|cut| u64::from(cut.bytes)).sum::<u64>();
        }
        (pieces, bytes)
    }

    /// Brings the pieces of all slices of an object together. Fails at the first overlap; what was written by then is written again.
    fn join(&self, (pieces, bytes): (u64, u64), writer: &mut Writer<'a, '_>) -> Result<(), Overlap> {
        let cuts = || self.slices.iter().filter(|slice| slice.data.is_some()).map(|slice| slice.cuts.clone());
        let some = || cuts().filter(|cuts| !cuts.is_empty());
        let start = some().map(|cuts| self.cuts[cuts.start].local).min().unwrap_or(0);
        let end = some().map(|cuts| self.cuts[cuts.end - 1].end()).max().unwrap_or(0);
        let is_fine = bytes < pieces * FINE_BYTES_MAX && end - start < pieces * FINE_DISTANCE_MAX;
        // Who remembers what it puts down must see each piece.
        if is_fine && writer.errors.marks.is_none() {
            return self.scatter(writer);
        }
        self.merge(writer)
    }

    /// Puts all pieces in their places, one window of the object after the other.
    fn scatter(&self, writer: &mut Writer<'a, '_>) -> Result<(), Overlap> {
        let fine = |(number, slice): (usize, &Slice<'a>)| {
            let first = *self.cuts[slice.cuts.clone()].first()?;
            let rest = slice.cuts.start + 1..slice.cuts.end;
            Some(Fine { number, data: slice.data?, next: first, rest })
        };
        let mut lanes: Vec<Fine<'a>> = self.slices.iter().enumerate().filter_map(fine).collect();
        while let Some(start) = lanes.iter().map(|lane| lane.next.local).min() {
            writer.run.open_window(start);
            let end = (start / WINDOW_BYTES as u64 + 1).saturating_mul(WINDOW_BYTES as u64);
            for lane in lanes.iter_mut().filter(|lane| lane.next.local < end) {
                writer.run.slices.push(lane.number);
                lane.place_below(end, self.cuts, &mut writer.run)?;
            }
            lanes.retain(|lane| 0 < lane.next.bytes);
            writer.run.close_window();
            writer.flush(self.slices);
        }
        Ok(())
    }

    /// Walks over all slices of an object at once. Fails at the first overlap.
    fn merge(&self, writer: &mut Writer<'a, '_>) -> Result<(), Overlap> {
        let mut lanes = self.lanes();
        let mut end = 0;
        while let Some(best) = smallest(&lanes) {
            let limit = lanes.iter().enumerate().filter(|(n, _)| *n != best).map(|(_, lane)| lane.next.local);
            let limit = limit.min().unwrap_or(u64::MAX);
            let lane = &mut lanes[best];
            loop {
                if lane.next.local < end {
                    return Err(Overlap);
                }
                end = lane.next.end();
                writer.push(self.slices, lane.slice(), &lane.next);
                if !lane.advance(self.slices, self.cuts) {
                    lanes.swap_remove(best);
                    break;
                }
                if limit <= lane.next.local {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Slices that follow each other in the object, as the records of one writer do, are one lane.
    fn lanes(&self) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = Vec::new();
        for (number, slice) in self.slices.iter().enumerate() {
            let cuts = &self.cuts[slice.cuts.clone()];
            let (Some(first), Some(last)) = (cuts.first(), cuts.last()) else { continue };
            if slice.data.is_none() {
                continue;
            }
            match lanes.iter_mut().find(|lane| lane.source == slice.stamp.source && lane.end <= first.local) {
                Some(lane) => {
                    lane.slices.push(number);
                    lane.end = last.end();
                }
                None => lanes.push(Lane {
                    source: slice.stamp.source,
                    end: last.end(),
                    slices: vec![number],
                    at: 0,
                    cut: slice.cuts.start,
                    next: *first,
                }),
            }
        }
        lanes
    }

    /// Newest first, each byte once; bytes of direct writes count as written.
    fn write_newest_first(&self, writer: &mut Writer<'a, '_>) {
        let mut covered = Covered::default();
        let mut left = Vec::new();
        for (number, slice) in self.slices.iter().enumerate().rev() {
            for cut in &self.cuts[slice.cuts.clone()] {
                covered.add(cut.local..cut.end(), |rest| left.push(sub_cut(cut, &rest)));
            }
            left.sort_unstable_by_key(|cut| cut.local);
            for cut in left.drain(..) {
                if slice.data.is_some() {
                    writer.push(self.slices, number, &cut);
                }
            }
        }
    }
}

/// Two slices of an object touch the same byte.
struct Overlap;

/// A slice of fine pieces that are put in their places.
struct Fine<'a> {
    number: usize,
    data: Piece<'a>,
    /// The next piece, or what is left of it; without bytes when all are in their places.
    next: Cut,
    rest: Range<usize>,
}

impl<'a> Fine<'a> {
    fn place_below(&mut self, end: u64, cuts: &[Cut], run: &mut Run<'a>) -> Result<(), Overlap> {
        let mut next = self.next;
        while next.local < end {
            #[expect(clippy::cast_possible_truncation, reason = "at most the bytes of a cut")]
            let bytes = (end - next.local).min(u64::from(next.bytes)) as u32;
            let piece = self.data.part(next.data_at as usize, bytes as usize);
            if !run.place(next.local, piece) {
                return Err(Overlap);
            }
            if bytes < next.bytes {
                next = sub_cut(&next, &(end..next.end()));
                break;
            }
            let Some(number) = self.rest.next() else {
                next.bytes = 0;
                break;
            };
            next = cuts[number];
        }
        self.next = next;
        Ok(())
    }
}

/// Slices of one source, one behind the other.
struct Lane {
    source: Source,
    end: u64,
    slices: Vec<usize>,
    at: usize,
    cut: usize,
    next: Cut,
}

impl Lane {
    fn slice(&self) -> usize {
        self.slices[self.at]
    }

    #[inline]
    fn advance(&mut self, group: &[Slice<'_>], cuts: &[Cut]) -> bool {
        self.cut += 1;
        if self.cut == group[self.slices[self.at]].cuts.end {
            self.at += 1;
            let Some(next) = self.slices.get(self.at) else { return false };
            self.cut = group[*next].cuts.start;
        }
        self.next = cuts[self.cut];
        true
    }
}

fn smallest(lanes: &[Lane]) -> Option<usize> {
    (0..lanes.len()).min_by_key(|lane| lanes[*lane].next.local)
}
