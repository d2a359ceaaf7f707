//! Typemaps written out entry by entry, from the definitions in the MPI standard only.

use std::ops::Range;

use crate::{ArrayOrder, ByteRun, DarrayDimension, Distribution, SubarrayDimension};

/// A list of elementary types with displacements, and the markers of explicit bounds.
#[derive(Clone, Debug)]
pub(super) struct Typemap {
    pub(super) entries: Vec<(i64, u64)>,
    lb_markers: Vec<i64>,
    ub_markers: Vec<i64>,
    align: u64,
}

impl Typemap {
    pub(super) fn empty() -> Self {
        Typemap { entries: vec![], lb_markers: vec![], ub_markers: vec![], align: 1 }
    }

    pub(super) fn elementary(bytes: u64, align: u64) -> Self {
        Typemap { entries: vec![(0, bytes)], align, ..Typemap::empty() }
    }

    pub(super) fn size(&self) -> u64 {
        self.entries.iter().map(|entry| entry.1).sum()
    }

    pub(super) fn true_lb(&self) -> i64 {
        self.entries.iter().map(|entry| entry.0).min().unwrap_or(0)
    }

    pub(super) fn true_ub(&self) -> i64 {
        self.entries.iter().map(|(at, bytes)| at + bytes.cast_signed()).max().unwrap_or(0)
    }

    pub(super) fn lb(&self) -> i64 {
        self.lb_markers.iter().copied().min().unwrap_or_else(|| self.true_lb())
    }

    pub(super) fn ub(&self) -> i64 {
        if let Some(marker) = self.ub_markers.iter().copied().max() {
            return marker;
        }
        let mut ub = self.true_ub();
        while (ub - self.lb()) % self.align.cast_signed() != 0 {
            ub += 1;
        }
        ub
    }

    pub(super) fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    pub(super) fn is_nondecreasing(&self) -> bool {
        self.entries.windows(2).all(|pair| pair[0].0 <= pair[1].0)
    }

    /// Whether any byte belongs to two entries.
    pub(super) fn overlaps(&self) -> bool {
        let mut sorted = self.entries.clone();
        sorted.sort_unstable();
        let mut end = i64::MIN;
        sorted.iter().any(|(at, bytes)| {
            let hit = *at < end;
            end = end.max(at + bytes.cast_signed());
            hit
        })
    }

    pub(super) fn shifted(&self, by: i64) -> Self {
        let shift = |markers: &[i64]| markers.iter().map(|at| at + by).collect();
        Typemap {
            entries: self.entries.iter().map(|(at, bytes)| (at + by, *bytes)).collect(),
            lb_markers: shift(&self.lb_markers),
            ub_markers: shift(&self.ub_markers),
            align: self.align,
        }
    }

    fn append(&mut self, other: &Typemap) {
        self.entries.extend(&other.entries);
        self.lb_markers.extend(&other.lb_markers);
        self.ub_markers.extend(&other.ub_markers);
        if !other.entries.is_empty() {
            self.align = self.align.max(other.align);
        }
    }

    /// `length` elements from `at` on, for each of `blocks`.
    pub(super) fn blocks<'a>(blocks: impl IntoIterator<Item = (i64, i64, &'a Typemap)>) -> Self {
        let mut all = Typemap::empty();
        for (at, length, element) in blocks {
            for number in 0..length {
                all.append(&element.shifted(at + number * element.extent()));
            }
        }
        all
    }

    pub(super) fn strided(&self, count: i64, block: i64, stride: i64) -> Self {
        Typemap::blocks((0..count).map(|number| (number * stride, block, self)))
    }

    pub(super) fn resized(&self, lb: i64, extent: i64) -> Self {
        Typemap { lb_markers: vec![lb], ub_markers: vec![lb + extent], ..self.clone() }
    }

    pub(super) fn subarray(&self, dimensions: &[SubarrayDimension], order: ArrayOrder) -> Self {
        let sizes: Vec<i64> = dimensions.iter().map(|dimension| dimension.size).collect();
        self.array(&sizes, order, |dimension, index| {
            let SubarrayDimension { subsize, start, .. } = dimensions[dimension];
            (start..start + subsize).contains(&index)
        })
    }

    pub(super) fn darray(&self, rank: i64, dimensions: &[DarrayDimension], order: ArrayOrder) -> Self {
        let sizes: Vec<i64> = dimensions.iter().map(|dimension| dimension.size).collect();
        // The grid is row-major: the last coordinate changes fastest.
        let mut place = vec![0; dimensions.len()];
        let mut rest = rank;
        for (index, dimension) in dimensions.iter().enumerate().rev() {
            place[index] = rest % dimension.processes;
            rest /= dimension.processes;
        }
        self.array(&sizes, order, |dimension, index| {
            let DarrayDimension { size, distribution, processes } = dimensions[dimension];
            let owner = match distribution {
                Distribution::Undistributed => 0,
                Distribution::Block => index / ((size + processes - 1) / processes),
                Distribution::BlockOf(block) => index / block,
                Distribution::Cyclic => index % processes,
                Distribution::CyclicOf(block) => (index / block) % processes,
            };
            owner == place[dimension]
        })
    }

    /// The elements of an array with an index selected in every dimension, in the order of the array.
    fn array(&self, sizes: &[i64], order: ArrayOrder, taken: impl Fn(usize, i64) -> bool) -> Self {
        let total: i64 = sizes.iter().product();
        let mut all = Typemap::empty();
        for linear in 0..total {
            let mut rest = linear;
            let fastest_first: Vec<usize> = match order {
                ArrayOrder::C => (0..sizes.len()).rev().collect(),
                ArrayOrder::Fortran => (0..sizes.len()).collect(),
            };
            let inside = fastest_first.into_iter().all(|dimension| {
                let index = rest % sizes[dimension];
                rest /= sizes[dimension];
                taken(dimension, index)
            });
            if inside {
                all.append(&self.shifted(linear * self.extent()));
            }
        }
        all.lb_markers = vec![0];
        all.ub_markers = vec![total * self.extent()];
        all
    }
}

/// Entries of `count` elements, in stream order.
pub(super) fn written_out(map: &Typemap, base: i64, count: i64) -> Vec<ByteRun> {
    let mut runs = vec![];
    for number in 0..count {
        let moved = map.shifted(base + number * map.extent());
        runs.extend(moved.entries.iter().map(|(at, bytes)| ByteRun { at: *at, bytes: *bytes }));
    }
    runs
}

/// A piece of a stream: its stream offset, its file offset, its length.
pub(super) type StreamBit = (u64, i64, u64);

/// The bits of a stream range, those that touch made one.
pub(super) fn bits(runs: &[ByteRun], stream: Range<u64>) -> Vec<StreamBit> {
    let mut bits = vec![];
    let mut offset = 0;
    for run in runs {
        let start = offset.max(stream.start);
        let end = (offset + run.bytes).min(stream.end);
        if start < end {
            bits.push((start, run.at + (start - offset).cast_signed(), end - start));
        }
        offset += run.bytes;
    }
    joined(bits)
}

/// Bits that touch in stream and file joined.
pub(super) fn joined(bits: Vec<StreamBit>) -> Vec<StreamBit> {
    let mut all: Vec<StreamBit> = vec![];
    for bit in bits {
        match all.last_mut() {
            Some(last) if last.0 + last.2 == bit.0 && last.1 + last.2.cast_signed() == bit.1 => {
                last.2 += bit.2
            }
            _ => all.push(bit),
        }
    }
    all
}

/// The part of each bit inside a file range.
pub(super) fn inside(bits: &[StreamBit], range: Range<i64>) -> Vec<StreamBit> {
    let cut = |(stream, at, bytes): &StreamBit| {
        let start = (*at).max(range.start);
        let end = (at + bytes.cast_signed()).min(range.end);
        (start < end).then(|| (stream + (start - at).cast_unsigned(), start, (end - start).cast_unsigned()))
    };
    bits.iter().filter_map(cut).collect()
}
