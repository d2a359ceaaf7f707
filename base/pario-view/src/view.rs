//! Views as in MPI: the part of a file visible to one process, given by a displacement, an elementary type and a repeating file type.
//!
//! Never: expands the file type. Always: the program walked is the file type repeated as often as fits below 2^63, so that repetitions
//! are a loop like any other and collapse with the loops inside.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

use pario_core::{Layout, ServerIndex};

use crate::build::Builder;
use crate::datatype::Datatype;
use crate::error::ViewError;
use crate::find::{first_at_or_after, offset_of};
use crate::lower::program_of;
use crate::program::{NodeShape, Placed, ViewProgram};
use crate::slice::{InRange, OnServer, ServerRows, ServerSlice, ViewSlice};
use crate::span::span_of_part;
use crate::walk::RunWalk;
use crate::window::StripeWindows;

/// What the file is open for: a file type that overlaps itself is legal for reading only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ViewAccess {
    /// Reading only.
    Read,
    /// Writing, perhaps reading too.
    Write,
}

/// How a view's stream runs through the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Offsets increase along the stream; no byte occurs twice.
    Increasing,
    /// Bytes may occur twice, or repetitions of the file type interleave.
    Mixed,
}

/// Contiguous bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Where they start.
    pub file_offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What one process sees of a file. Cheap to clone.
#[derive(Clone)]
pub struct View {
    displacement: u64,
    etype_bytes: u64,
    extent: i64,
    filetype: ViewProgram,
    program: ViewProgram,
}

impl View {
    /// The view of `filetype` repeated from `displacement` on. Checks the rules of MPI.
    pub fn new(
        displacement: i64,
        etype: &Datatype,
        filetype: &Datatype,
        access: ViewAccess,
    ) -> Result<View, ViewError> {
        let start = u64::try_from(displacement).map_err(|_| ViewError::Displacement(displacement))?;
        if etype.size() == 0 {
            return Err(ViewError::EmptyElementary);
        }
        if !filetype.size().is_multiple_of(etype.size()) {
            let (filetype_bytes, etype_bytes) = (filetype.size(), etype.size());
            return Err(ViewError::NotMultiple { filetype_bytes, etype_bytes });
        }
        check_order("elementary type", etype)?;
        check_order("file type", filetype)?;
        let program = program_of(filetype)?;
        if access == ViewAccess::Write {
            check_overlap("elementary type", &program_of(etype)?)?;
            check_overlap("file type", &program)?;
        }
        View::from_parts(start, etype.size(), filetype.extent(), program)
    }

    /// The file as it is: its own bytes, from the first.
    #[must_use]
    pub fn whole() -> View {
        View::contiguous(0, 1).expect("bytes from 0 on are legal")
    }

    /// Contiguous elements of `etype_bytes` from `displacement` on.
    pub fn contiguous(displacement: i64, etype_bytes: u64) -> Result<View, ViewError> {
        let etype = Datatype::elementary(etype_bytes)?;
        View::new(displacement, &etype, &etype, ViewAccess::Write)
    }

    /// A view from arguments checked by [`View::new`] or the decoder.
    pub(crate) fn from_parts(
        displacement: u64,
        etype_bytes: u64,
        extent: i64,
        filetype: ViewProgram,
    ) -> Result<View, ViewError> {
        let program = repeated(displacement, extent, &filetype)?;
        Ok(View { displacement, etype_bytes, extent, filetype, program })
    }

    /// The same view, displaced by `bytes` towards the end of the file.
    pub fn displaced(&self, bytes: u64) -> Result<View, ViewError> {
        let displacement = self.displacement.checked_add(bytes);
        let displacement = displacement.filter(|place| i64::try_from(*place).is_ok());
        let end = self.filetype.root.map_or(0, |root| root.at);
        let displacement = displacement.ok_or(ViewError::TooFar { displacement: u64::MAX, end })?;
        View::from_parts(displacement, self.etype_bytes, self.extent, self.filetype.clone())
    }

    /// Where the first repetition of the file type stands, in bytes.
    #[must_use]
    pub fn displacement(&self) -> u64 {
        self.displacement
    }

    /// Size of the elementary type, in which MPI counts offsets of the view.
    #[must_use]
    pub fn etype_bytes(&self) -> u64 {
        self.etype_bytes
    }

    /// Bytes of data in one repetition of the file type; 0 for an empty view.
    #[must_use]
    pub fn filetype_bytes(&self) -> u64 {
        self.filetype.size()
    }

    /// Distance between repetitions of the file type.
    #[must_use]
    pub fn filetype_extent(&self) -> i64 {
        self.extent
    }

    /// Approximate memory use, for tables with a limit.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let nodes = self.filetype.nodes.len() + self.program.nodes.len();
        // A list entry has a file offset and a stream offset, and may have a reach and a node.
        size_of::<View>() + nodes * size_of::<crate::program::Node>() + self.filetype.items() * 28
    }

    pub(crate) fn filetype(&self) -> &ViewProgram {
        &self.filetype
    }

    /// The repeated file type, and its offset.
    pub(crate) fn program(&self) -> (&ViewProgram, i64) {
        (&self.program, self.displacement.cast_signed())
    }

    /// The root of the repeated file type, at its file offset.
    fn root(&self) -> Option<Placed> {
        let base = self.displacement.cast_signed();
        self.program.root.map(|root| Placed { at: base + root.at, ..root })
    }

    /// Bytes of the stream: as many as fit below 2^63.
    #[must_use]
    pub fn stream_bytes(&self) -> u64 {
        self.program.size()
    }

    /// Whether the stream is one contiguous range of the file.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.program.root_node().is_some_and(|root| root.shape == NodeShape::Run)
    }

    /// Whether stream offsets are file offsets.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_contiguous() && self.root().is_some_and(|root| root.at == 0)
    }

    /// How the stream runs through the file.
    #[must_use]
    pub fn direction(&self) -> Direction {
        if self.program.root_node().is_none_or(|root| root.increasing) {
            Direction::Increasing
        } else {
            Direction::Mixed
        }
    }

    /// The contiguous file ranges of the stream range, in stream order; touching ranges are joined.
    #[must_use]
    pub fn extents(&self, stream: Range<u64>) -> Extents<'_> {
        Extents(RunWalk::over(&self.program.nodes, self.root(), stream))
    }

    /// File offset of byte `stream_offset` of the stream; `None` beyond the end of the stream.
    #[must_use]
    pub fn file_offset(&self, stream_offset: u64) -> Option<u64> {
        let root = self.root().filter(|_| stream_offset < self.stream_bytes())?;
        Some(offset_of(&self.program.nodes, root, stream_offset).cast_unsigned())
    }

    /// From the lowest byte of a stream range to one past the highest; `None` if the range is empty or exceeds the stream.
    #[must_use]
    pub fn span(&self, stream: Range<u64>) -> Option<Range<u64>> {
        let root = self.root().filter(|_| !stream.is_empty() && stream.end <= self.stream_bytes())?;
        let Range { start, end } = span_of_part(&self.program.nodes, root, stream);
        Some(start.cast_unsigned()..end.cast_unsigned())
    }

    /// The smallest stream offset with a byte at `file_offset` or later; `None` if there is none.
    #[must_use]
    pub fn stream_at_or_after(&self, file_offset: u64) -> Option<u64> {
        let x = i64::try_from(file_offset).ok()?;
        first_at_or_after(&self.program.nodes, self.root()?, x)
    }

    /// The stream offset of the byte at `file_offset`; `None` if the view does not show it. In a view that is
    /// [`Direction::Mixed`], the first one.
    #[must_use]
    pub fn stream_offset(&self, file_offset: u64) -> Option<u64> {
        let end = file_offset.checked_add(1)?;
        self.slice(0..self.stream_bytes(), file_offset..end).next().map(|part| part.stream_offset)
    }

    /// The parts of a stream range that lie in a range of the file, in stream order.
    #[must_use]
    pub fn slice(&self, stream: Range<u64>, file: Range<u64>) -> ViewSlice<'_> {
        ViewSlice::new(&self.program, self.intervals(stream, file))
    }

    /// How many bytes of a stream range lie in a range of the file. Costs no walk if the view is increasing.
    #[must_use]
    pub fn bytes_in(&self, stream: Range<u64>, file: Range<u64>) -> u64 {
        self.intervals(stream, file).map(|interval| interval.bytes()).sum()
    }

    /// The parts of a stream range that lie on one server, in stream order, each in one block.
    #[must_use]
    pub fn on_server(&self, layout: &Layout, server: ServerIndex, stream: Range<u64>) -> ServerSlice<'_> {
        let intervals = self.server_intervals(layout, server, stream);
        ServerSlice::new(&self.program, intervals, *layout, server)
    }

    /// The same parts; iterations of a loop are grouped, at the cost of one.
    #[must_use]
    pub fn rows_on_server(&self, layout: &Layout, server: ServerIndex, stream: Range<u64>) -> ServerRows<'_> {
        ServerRows::new(self.on_server(layout, server, stream))
    }

    /// How many bytes of a stream range lie on one server. Costs a step per block.
    #[must_use]
    pub fn bytes_on_server(&self, layout: &Layout, server: ServerIndex, stream: Range<u64>) -> u64 {
        self.server_intervals(layout, server, stream).map(|interval| interval.bytes()).sum()
    }

    /// Whether any byte of a stream range lies on one server.
    #[must_use]
    pub fn touches_server(&self, layout: &Layout, server: ServerIndex, stream: Range<u64>) -> bool {
        self.server_intervals(layout, server, stream).next().is_some()
    }

    fn intervals(&self, stream: Range<u64>, file: Range<u64>) -> InRange<'_> {
        let clamp = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        let file = clamp(file.start)..clamp(file.end);
        InRange::new(&self.program, self.displacement.cast_signed(), stream, file)
    }

    fn server_intervals(&self, layout: &Layout, server: ServerIndex, stream: Range<u64>) -> OnServer<'_> {
        let windows = StripeWindows::of(layout, server);
        OnServer::new(&self.program, self.displacement.cast_signed(), stream, windows)
    }
}

fn check_order(which: &'static str, datatype: &Datatype) -> Result<(), ViewError> {
    if datatype.true_lb() < 0 {
        return Err(ViewError::NegativeOffset { which, displacement: datatype.true_lb() });
    }
    if datatype.is_ascending() { Ok(()) } else { Err(ViewError::Decreasing { which }) }
}

fn check_overlap(which: &'static str, program: &ViewProgram) -> Result<(), ViewError> {
    let increasing = program.root_node().is_none_or(|root| root.increasing);
    if increasing { Ok(()) } else { Err(ViewError::Overlap { which }) }
}

/// The file type as often as it fits below 2^63.
fn repeated(displacement: u64, extent: i64, filetype: &ViewProgram) -> Result<ViewProgram, ViewError> {
    let Some((root, node)) = filetype.root.zip(filetype.root_node()) else { return Ok(filetype.clone()) };
    if extent <= 0 {
        return Err(ViewError::Extent { extent });
    }
    let end = root.at + node.hi;
    let start = i64::try_from(displacement).ok();
    let room = start.and_then(|start| start.checked_add(end)).map(|end| i64::MAX - end);
    let room = room.ok_or(ViewError::TooFar { displacement, end })?;
    let count = (room / extent).cast_unsigned().saturating_add(1);
    let count = count.min(i64::MAX.cast_unsigned() / node.size);
    let mut builder = Builder::from_program(filetype);
    let root = builder.repeat(count, extent, root)?;
    Ok(builder.finish(Some(root))?)
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.filetype.nodes.len();
        let depth = self.filetype.root_node().map_or(0, |root| root.depth);
        f.debug_struct("View")
            .field("displacement", &self.displacement)
            .field("etype_bytes", &self.etype_bytes)
            .field("filetype_bytes", &self.filetype_bytes())
            .field("filetype_extent", &self.extent)
            .field("nodes", &nodes)
            .field("depth", &depth)
            .field("list_entries", &self.filetype.items())
            .finish()
    }
}

/// Iterator over contiguous ranges of a file; see [`View::extents`].
#[derive(Clone, Debug)]
pub struct Extents<'p>(RunWalk<'p>);

impl Iterator for Extents<'_> {
    type Item = FileExtent;

    #[inline]
    fn next(&mut self) -> Option<FileExtent> {
        let run = self.0.next()?;
        Some(FileExtent { file_offset: run.at.cast_unsigned(), bytes: run.bytes })
    }
}

impl FusedIterator for Extents<'_> {}
