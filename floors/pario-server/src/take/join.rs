//! Brings the pieces of all slices of an object together.
//!
//! Records of several writers that interleave are merged by a walk over all of them at once, so that neighbours from different
//! outboxes become one vectored write. Where records overlap, or an older one meets a direct write, the object is written newest
//! first instead, each byte once. Fine pieces are not merged: each is put in its place in a window of the object, whole rows at a time, and
//! the bytes of all are written from there.
//!
//! Never: joins pieces that overlap. Always: of overlapping pieces the one that was committed last wins.

use std::ops::Range;

use pario_sys::piece::Piece;

use super::batch::{Slice, Source};
use super::cut::{Covered, Cut, Row, sub_cut};
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
    pub(super) rows: &'g [Row],
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

    fn cuts_of(&self, slice: &Slice<'_>) -> impl Iterator<Item = Cut> {
        self.rows[slice.rows.clone()].iter().flat_map(|row| row.cuts())
    }

    /// Bytes of direct writes are in the store.
    fn mark_intents(&self, writer: &mut Writer<'a, '_>) {
        let Some(marks) = &mut writer.errors.marks else { return };
        for slice in self.slices.iter().filter(|slice| slice.data.is_none()) {
            for cut in self.cuts_of(slice) {
                marks.add(slice.object, cut.local..cut.end(), slice.stamp.committed);
            }
        }
        marks.put();
    }

    /// Whether a record touches bytes of a direct write.
    fn meets_intent(&self) -> bool {
        let mut direct = Covered::default();
        for slice in self.slices.iter().filter(|slice| slice.data.is_none()) {
            for cut in self.cuts_of(slice) {
                direct.add(cut.local..cut.end(), |_| ());
            }
        }
        let records = self.slices.iter().filter(|slice| slice.data.is_some());
        records.flat_map(|slice| self.cuts_of(slice)).any(|cut| direct.touches(cut.local..cut.end()))
    }

    /// Pieces that are to be written, and their bytes.
    fn amount(&self) -> (u64, u64) {
        let slices = self.slices.iter().filter(|slice| slice.data.is_some());
        slices.fold((0, 0), |(pieces, bytes), slice| (pieces + slice.pieces, bytes + slice.bytes))
    }

    /// Brings the pieces of all slices of an object together. Fails at the first overlap; what was written by then is written again.
    fn join(&self, (pieces, bytes): (u64, u64), writer: &mut Writer<'a, '_>) -> Result<(), Overlap> {
        let slices = || self.slices.iter().filter(|slice| slice.data.is_some() && !slice.rows.is_empty());
        let start = slices().map(|slice| self.rows[slice.rows.start].first.local).min().unwrap_or(0);
        let end = slices().map(|slice| self.rows[slice.rows.end - 1].end()).max().unwrap_or(0);
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
            let mut rest = slice.rows.clone();
            let row = self.rows[rest.next()?];
            Some(Fine { number, data: slice.data?, held: None, row, rest })
        };
        let mut lanes: Vec<Fine<'a>> = self.slices.iter().enumerate().filter_map(fine).collect();
        while let Some(start) = lanes.iter().map(Fine::start).min() {
            writer.run.open_window(start);
            let end = (start / WINDOW_BYTES as u64 + 1).saturating_mul(WINDOW_BYTES as u64);
            for lane in lanes.iter_mut().filter(|lane| lane.start() < end) {
                writer.run.slices.push(lane.number);
                lane.place_below(end, self.rows, &mut writer.run)?;
            }
            lanes.retain(|lane| !lane.is_over());
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
            let limit =
                lanes.iter().enumerate().filter(|(n, _)| *n != best).map(|(_, lane)| lane.row.first.local);
            let limit = limit.min().unwrap_or(u64::MAX);
            let lane = &mut lanes[best];
            loop {
                if lane.row.first.local < end {
                    return Err(Overlap);
                }
                end = lane.row.first.end();
                writer.push(self.slices, lane.slice(), &lane.row.first);
                if !lane.advance(self.slices, self.rows) {
                    lanes.swap_remove(best);
                    break;
                }
                if limit <= lane.row.first.local {
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
            let rows = &self.rows[slice.rows.clone()];
            let (Some(row), Some(last)) = (rows.first(), rows.last()) else { continue };
            if slice.data.is_none() {
                continue;
            }
            let first = row.first;
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
                    number: slice.rows.start,
                    row: *row,
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
            for cut in self.cuts_of(slice) {
                covered.add(cut.local..cut.end(), |rest| left.push(sub_cut(&cut, &rest)));
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
    /// What a window left of a piece.
    held: Option<Cut>,
    /// What is left of a row; without cuts when all are in their places.
    row: Row,
    rest: Range<usize>,
}

impl<'a> Fine<'a> {
    /// Where the next piece goes.
    fn start(&self) -> u64 {
        self.held.map_or(self.row.first.local, |cut| cut.local)
    }

    fn is_over(&self) -> bool {
        self.held.is_none() && self.row.count == 0
    }

    fn place_below(&mut self, end: u64, rows: &[Row], run: &mut Run<'a>) -> Result<(), Overlap> {
        if let Some(cut) = self.held.take() {
            self.place_part(&cut, end, run)?;
        }
        while self.held.is_none() && 0 < self.row.count && self.row.first.local < end {
            if self.row.count == 1 {
                self.row.count = 0;
                self.place_part(&self.row.first.clone(), end, run)?;
            } else {
                let whole = self.row.whole_below(end);
                if 0 < whole && !run.place(&Row { count: whole, ..self.row }, &self.data) {
                    return Err(Overlap);
                }
                self.row.skip(whole);
                if 0 < self.row.count && self.row.first.local < end {
                    let cut = self.row.first;
                    self.row.skip(1);
                    self.place_part(&cut, end, run)?;
                }
            }
            if self.row.count == 0
                && let Some(number) = self.rest.next()
            {
                self.row = rows[number];
            }
        }
        Ok(())
    }

    /// Places what of a piece lies in the window, and holds the rest.
    #[inline]
    fn place_part(&mut self, cut: &Cut, end: u64, run: &mut Run<'a>) -> Result<(), Overlap> {
        let mut here = *cut;
        if end < cut.end() {
            here = sub_cut(cut, &(cut.local..end));
            self.held = Some(sub_cut(cut, &(end..cut.end())));
        }
        if run.place_one(&here, &self.data) { Ok(()) } else { Err(Overlap) }
    }
}

/// Slices of one source, one behind the other.
struct Lane {
    source: Source,
    end: u64,
    slices: Vec<usize>,
    at: usize,
    /// The row that is walked, and what is left of it; its first cut is next.
    number: usize,
    row: Row,
}

impl Lane {
    fn slice(&self) -> usize {
        self.slices[self.at]
    }

    #[inline]
    fn advance(&mut self, group: &[Slice<'_>], rows: &[Row]) -> bool {
        self.row.skip(1);
        if self.row.count == 0 {
            self.number += 1;
            if self.number == group[self.slices[self.at]].rows.end {
                self.at += 1;
                let Some(next) = self.slices.get(self.at) else { return false };
                self.number = group[*next].rows.start;
            }
            self.row = rows[self.number];
        }
        true
    }
}

fn smallest(lanes: &[Lane]) -> Option<usize> {
    (0..lanes.len()).min_by_key(|lane| lanes[*lane].row.first.local)
}
