//! The part of a stream inside a range of the file, or on one server, without walking the rest.
//!
//! In an increasing tree such a part is one interval of the stream for the range, or one for each block; its ends are found by descent,
//! then it is walked. Trees that are not increasing (overlaps, interleaved repetitions) are opened by [`Trees`].
//!
//! Always: parts are in stream order.

use std::iter::FusedIterator;
use std::ops::Range;

use pario_core::{Layout, LocalOffset, ServerIndex};

use crate::program::ViewProgram;
use crate::trees::{IncreasingTree, Trees};
use crate::walk::{ByteRun, RunRow, RunWalk};
use crate::window::StripeWindows;

/// Contiguous bytes of a file that are contiguous in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewPart {
    /// Where they start in the stream.
    pub stream_offset: u64,
    /// Where they start in the file.
    pub file_offset: u64,
    /// How many.
    pub bytes: u64,
}

/// A part that lies in one block of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerPart {
    /// Where it starts in the stream.
    pub stream_offset: u64,
    /// Where it starts in the file.
    pub file_offset: u64,
    /// Where it starts in the server's object.
    pub local: LocalOffset,
    /// How many bytes.
    pub bytes: u64,
}

/// Parts of equal length at equal distances, in one block of a server, that follow each other in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerRow {
    /// The first.
    pub first: ServerPart,
    /// Distance between the starts of neighbours; undefined for a single part.
    pub stride: u64,
    /// How many; at least one.
    pub count: u64,
}

impl ServerRow {
    /// One of them.
    #[must_use]
    pub fn part(&self, number: u64) -> ServerPart {
        let ServerPart { stream_offset, file_offset, local, bytes } = self.first;
        ServerPart {
            stream_offset: stream_offset + number * bytes,
            file_offset: file_offset + number * self.stride,
            local: LocalOffset(local.0 + number * self.stride),
            bytes,
        }
    }
}

/// An interval of the stream of a tree, in offsets of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    tree: IncreasingTree,
    stream: Range<u64>,
}

impl Interval {
    /// Bytes in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.stream.end - self.stream.start
    }
}

/// Intervals in a range of the file.
#[derive(Clone, Debug)]
pub(crate) struct InRange<'p> {
    trees: Trees<'p>,
}

impl<'p> InRange<'p> {
    pub(crate) fn new(program: &'p ViewProgram, base: i64, stream: Range<u64>, file: Range<i64>) -> Self {
        InRange { trees: Trees::new(program, base, stream, file) }
    }
}

impl Iterator for InRange<'_> {
    type Item = Interval;

    fn next(&mut self) -> Option<Interval> {
        loop {
            let tree = self.trees.next()?;
            let (nodes, file) = (self.trees.nodes(), self.trees.file());
            let clip = self.trees.clip(&tree);
            let start = tree.first_at_or_after(nodes, file.start).unwrap_or(clip.end).max(clip.start);
            let end = tree.first_at_or_after(nodes, file.end).unwrap_or(clip.end).min(clip.end);
            if start < end {
                return Some(Interval { tree, stream: start..end });
            }
        }
    }
}

/// Intervals on a server, none larger than a block.
#[derive(Clone, Debug)]
pub(crate) struct OnServer<'p> {
    trees: Trees<'p>,
    windows: Option<StripeWindows>,
    /// The tree being cut, its requested stream range, and the file range still to be searched.
    current: Option<(IncreasingTree, Range<u64>, Range<i64>)>,
}

impl<'p> OnServer<'p> {
    pub(crate) fn new(
        program: &'p ViewProgram,
        base: i64,
        stream: Range<u64>,
        windows: Option<StripeWindows>,
    ) -> Self {
        OnServer { trees: Trees::new(program, base, stream, 0..i64::MAX), windows, current: None }
    }
}

impl Iterator for OnServer<'_> {
    type Item = Interval;

    fn next(&mut self) -> Option<Interval> {
        let windows = self.windows?;
        loop {
            let nodes = self.trees.nodes();
            if let Some((tree, wanted, file)) = self.current.take() {
                let found = tree.first_in(nodes, &windows, &file).filter(|found| found.stream < wanted.end);
                let Some(found) = found else { continue };
                let block_end = windows.end_of(found.at);
                let end = tree.first_at_or_after(nodes, block_end).unwrap_or(wanted.end).min(wanted.end);
                self.current = Some((tree, wanted, block_end..file.end));
                return Some(Interval { tree, stream: found.stream..end });
            }
            let tree = self.trees.next()?;
            let wanted = self.trees.clip(&tree);
            let file = tree.offset_of(nodes, wanted.start)..tree.offset_of(nodes, wanted.end - 1) + 1;
            self.current = Some((tree, wanted, file));
        }
    }
}

/// Iterator over the runs of intervals.
#[derive(Clone, Debug)]
struct IntervalParts<'p, I> {
    intervals: I,
    walk: RunWalk<'p>,
    stream: u64,
}

impl<'p, I: Iterator<Item = Interval>> IntervalParts<'p, I> {
    fn new(program: &'p ViewProgram, intervals: I) -> Self {
        IntervalParts { intervals, walk: RunWalk::idle(&program.nodes), stream: 0 }
    }

    #[inline]
    fn next(&mut self) -> Option<ViewPart> {
        loop {
            if let Some(run) = self.walk.next() {
                return Some(self.part(run, 1));
            }
            self.next_interval()?;
        }
    }

    /// The first of the next equal parts, their distance and number.
    #[inline]
    fn next_row(&mut self) -> Option<(ViewPart, u64, u64)> {
        loop {
            if let Some(RunRow { run, stride, count }) = self.walk.next_row() {
                // Trees increase, and so do distances.
                return Some((self.part(run, count), stride.cast_unsigned(), count));
            }
            self.next_interval()?;
        }
    }

    /// The first of `count` equal parts.
    #[inline]
    fn part(&mut self, run: ByteRun, count: u64) -> ViewPart {
        let stream_offset = self.stream;
        self.stream += run.bytes * count;
        ViewPart { stream_offset, file_offset: run.at.cast_unsigned(), bytes: run.bytes }
    }

    fn next_interval(&mut self) -> Option<()> {
        let interval = self.intervals.next()?;
        self.stream = interval.tree.stream() + interval.stream.start;
        interval.tree.walk(&mut self.walk, interval.stream);
        Some(())
    }
}

/// Iterator over the parts in a range of the file; see [`crate::View::slice`].
#[derive(Clone, Debug)]
pub struct ViewSlice<'p>(IntervalParts<'p, InRange<'p>>);

impl<'p> ViewSlice<'p> {
    pub(crate) fn new(program: &'p ViewProgram, intervals: InRange<'p>) -> Self {
        ViewSlice(IntervalParts::new(program, intervals))
    }
}

impl Iterator for ViewSlice<'_> {
    type Item = ViewPart;

    #[inline]
    fn next(&mut self) -> Option<ViewPart> {
        self.0.next()
    }
}

impl FusedIterator for ViewSlice<'_> {}

/// Iterator over the parts on a server; see [`crate::View::on_server`].
#[derive(Clone, Debug)]
pub struct ServerSlice<'p> {
    parts: IntervalParts<'p, OnServer<'p>>,
    layout: Layout,
    server: ServerIndex,
    /// The block of the last part, and its offset in the object.
    block: Range<u64>,
    local: u64,
}

impl<'p> ServerSlice<'p> {
    pub(crate) fn new(
        program: &'p ViewProgram,
        intervals: OnServer<'p>,
        layout: Layout,
        server: ServerIndex,
    ) -> Self {
        ServerSlice { parts: IntervalParts::new(program, intervals), layout, server, block: 0..0, local: 0 }
    }

    /// Offset of a part in the object.
    #[inline]
    fn locate_part(&mut self, ViewPart { stream_offset, file_offset, bytes }: ViewPart) -> ServerPart {
        if !self.block.contains(&file_offset) {
            self.locate(file_offset);
        }
        let local = LocalOffset(self.local + (file_offset - self.block.start));
        ServerPart { stream_offset, file_offset, local, bytes }
    }

    fn locate(&mut self, file_offset: u64) {
        let (server, local) = self.layout.locate(file_offset);
        debug_assert_eq!(server, self.server, "parts lie on the server they were cut for");
        let into = file_offset % self.layout.stripe_bytes();
        let start = file_offset - into;
        self.block = start..start.saturating_add(self.layout.stripe_bytes());
        self.local = local.0 - into;
    }
}

impl Iterator for ServerSlice<'_> {
    type Item = ServerPart;

    #[inline]
    fn next(&mut self) -> Option<ServerPart> {
        let part = self.parts.next()?;
        Some(self.locate_part(part))
    }
}

impl FusedIterator for ServerSlice<'_> {}

/// Iterator over the same parts, equal ones grouped; see [`crate::View::rows_on_server`].
#[derive(Clone, Debug)]
pub struct ServerRows<'p>(ServerSlice<'p>);

impl<'p> ServerRows<'p> {
    pub(crate) fn new(slice: ServerSlice<'p>) -> Self {
        ServerRows(slice)
    }
}

impl Iterator for ServerRows<'_> {
    type Item = ServerRow;

    #[inline]
    fn next(&mut self) -> Option<ServerRow> {
        let (part, stride, count) = self.0.parts.next_row()?;
        // An interval is no larger than a block: all are in the block of the first.
        Some(ServerRow { first: self.0.locate_part(part), stride, count })
    }
}

impl FusedIterator for ServerRows<'_> {}
