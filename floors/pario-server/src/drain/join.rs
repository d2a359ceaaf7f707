//! Joins the pieces of all slices of an object.
//!
//! Interleaved records of several writers are merged by one walk over all of them, so that neighbours from different outboxes become one
//! vectored write. Where records overlap, or an older one overlaps a direct write, the object is written newest first instead, each byte
//! once. Fine pieces are not merged: each is copied to its offset in a scatter buffer, whole rows at a time, and the buffer is written.
//!
//! Never: joins pieces that overlap. Always: of overlapping pieces the one that was committed last wins.

use std::ops::Range;

use pario_sys::piece::MemoryPiece;

use super::batch::{RecordSlice, SliceSource};
use super::cut::{Covered, Cut, CutRow, sub_cut};
use super::run::{WriteRun, stride};
use super::scatter_buffer::SCATTER_BUFFER_BYTES;
use super::writer::RunWriter;

/// Pieces of fewer bytes, on average, are fine: choosing the next one in a merge would cost more than all other work.
const FINE_BYTES_MAX: u64 = 64;

/// Largest average distance of fine pieces: a scatter buffer is searched as a whole.
const FINE_DISTANCE_MAX: u64 = 1024;

/// The slices of one object, in commit order.
pub(super) struct Join<'g, 'a> {
    pub(super) slices: &'g [RecordSlice<'a>],
    pub(super) rows: &'g [CutRow],
}

impl<'a> Join<'_, 'a> {
    /// Writes all slices.
    pub(super) fn write(&self, writer: &mut RunWriter<'a, '_>) {
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

    fn cuts_of(&self, slice: &RecordSlice<'_>) -> impl Iterator<Item = Cut> {
        self.rows[slice.rows.clone()].iter().flat_map(|row| row.cuts())
    }

    /// Bytes of direct writes are in the store.
    fn mark_intents(&self, writer: &mut RunWriter<'a, '_>) {
        let Some(marks) = &mut writer.errors.marks else { return };
        for slice in self.slices.iter().filter(|slice| slice.data.is_none()) {
            for cut in self.cuts_of(slice) {
                marks.add(slice.object, cut.local..cut.end(), slice.stamp.committed);
            }
        }
        marks.stored();
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

    /// Number of pieces to write, and of their bytes.
    fn amount(&self) -> (u64, u64) {
        let slices = self.slices.iter().filter(|slice| slice.data.is_some());
        slices.fold((0, 0), |(pieces, bytes), slice| (pieces + slice.pieces, bytes + slice.bytes))
    }

    /// Joins the pieces of all slices of an object. Fails at the first overlap; bytes written by then are written again.
    fn join(&self, (pieces, bytes): (u64, u64), writer: &mut RunWriter<'a, '_>) -> Result<(), Overlap> {
        let slices = || self.slices.iter().filter(|slice| slice.data.is_some() && !slice.rows.is_empty());
        let start = slices().map(|slice| self.rows[slice.rows.start].first.local).min().unwrap_or(0);
        let end = slices().map(|slice| self.rows[slice.rows.end - 1].end()).max().unwrap_or(0);
        let is_fine = bytes < pieces * FINE_BYTES_MAX && end - start < pieces * FINE_DISTANCE_MAX;
        // With marks, each piece must be recorded.
        if is_fine && writer.errors.marks.is_none() {
            return self.scatter(writer);
        }
        self.merge(writer)
    }

    /// Copies all pieces to their offsets, one scatter buffer of the object after the other.
    fn scatter(&self, writer: &mut RunWriter<'a, '_>) -> Result<(), Overlap> {
        let fine = |(number, slice): (usize, &RecordSlice<'a>)| {
            let mut rest = slice.rows.clone();
            let row = self.rows[rest.next()?];
            Some(Fine { number, data: slice.data?, held: None, row, rest })
        };
        let mut lanes: Vec<Fine<'a>> = self.slices.iter().enumerate().filter_map(fine).collect();
        while let Some(start) = lanes.iter().map(Fine::start).min() {
            writer.run.open_scatter(start);
            let end = (start / SCATTER_BUFFER_BYTES as u64 + 1).saturating_mul(SCATTER_BUFFER_BYTES as u64);
            for lane in lanes.iter_mut().filter(|lane| lane.start() < end) {
                writer.run.slices.push(lane.number);
                lane.copy_below(end, self.rows, &mut writer.run)?;
            }
            lanes.retain(|lane| !lane.is_over());
            writer.run.close_scatter();
            writer.flush(self.slices);
        }
        Ok(())
    }

    /// Merges all slices of an object. Fails at the first overlap.
    fn merge(&self, writer: &mut RunWriter<'a, '_>) -> Result<(), Overlap> {
        let mut lanes = self.merge_inputs();
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

    /// Slices that follow each other in the object, as the records of one writer do, form one merge input.
    fn merge_inputs(&self) -> Vec<MergeInput> {
        let mut lanes: Vec<MergeInput> = Vec::new();
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
                None => lanes.push(MergeInput {
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
    fn write_newest_first(&self, writer: &mut RunWriter<'a, '_>) {
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

/// Two slices of an object overlap.
struct Overlap;

/// A slice of fine pieces that are copied to a scatter buffer.
struct Fine<'a> {
    number: usize,
    data: MemoryPiece<'a>,
    /// The rest of a piece that crosses the end of the scatter buffer.
    held: Option<Cut>,
    /// The rest of a row; no cuts if all are copied.
    row: CutRow,
    rest: Range<usize>,
}

impl<'a> Fine<'a> {
    /// Offset of the next piece.
    fn start(&self) -> u64 {
        self.held.map_or(self.row.first.local, |cut| cut.local)
    }

    fn is_over(&self) -> bool {
        self.held.is_none() && self.row.count == 0
    }

    fn copy_below(&mut self, end: u64, rows: &[CutRow], run: &mut WriteRun<'a>) -> Result<(), Overlap> {
        if let Some(cut) = self.held.take() {
            self.copy_part(&cut, end, run)?;
        }
        while self.held.is_none() && 0 < self.row.count && self.row.first.local < end {
            if self.row.count == 1 {
                self.row.count = 0;
                self.copy_part(&self.row.first.clone(), end, run)?;
            } else {
                let whole = self.row.whole_below(end);
                if 0 < whole && !run.scatter_row(&CutRow { count: whole, ..self.row }, &self.data) {
                    return Err(Overlap);
                }
                self.row.skip(whole);
                if 0 < self.row.count && self.row.first.local < end {
                    let cut = self.row.first;
                    self.row.skip(1);
                    self.copy_part(&cut, end, run)?;
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

    /// Copies the part of a piece inside the scatter buffer, and holds the rest.
    #[inline]
    fn copy_part(&mut self, cut: &Cut, end: u64, run: &mut WriteRun<'a>) -> Result<(), Overlap> {
        let mut here = *cut;
        if end < cut.end() {
            here = sub_cut(cut, &(cut.local..end));
            self.held = Some(sub_cut(cut, &(end..cut.end())));
        }
        if run.scatter_one(&here, &self.data) { Ok(()) } else { Err(Overlap) }
    }
}

/// Consecutive slices of one source.
struct MergeInput {
    source: SliceSource,
    end: u64,
    slices: Vec<usize>,
    at: usize,
    /// The current row and its rest; its first cut is next.
    number: usize,
    row: CutRow,
}

impl MergeInput {
    fn slice(&self) -> usize {
        self.slices[self.at]
    }

    #[inline]
    fn advance(&mut self, group: &[RecordSlice<'_>], rows: &[CutRow]) -> bool {
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

fn smallest(lanes: &[MergeInput]) -> Option<usize> {
    (0..lanes.len()).min_by_key(|lane| lanes[*lane].row.first.local)
}
