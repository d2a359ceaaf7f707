//! Accesses through non-monotonic views (the file type repeats at less than its own length): each becomes a few accesses through
//! increasing views, the only ones that servers accept.
//!
//! Never: sends a server a view that is not increasing. Always: a write that covers a byte of the file twice fails before its first byte
//! is written; up to [`pario_view::ORDERED_PIECES_MAX`] pieces and [`pario_view::ORDERED_BYTES_MAX`] bytes are one atomic access.

use std::ops::Range;

use pario_core::{Code, Fault};
use pario_view::{Direction, Ordered, View};

use crate::client::file::read::range::FileReader;
use crate::client::file::state::OpenFile;
use crate::client::file::write::memory::WriteSource;
use crate::client::file::write::range::FileWriter;
use crate::client::file::write::stream::StreamRange;

/// Fails if a range of a stream covers a byte of the file twice: MPI allows reading that, not writing.
pub(crate) fn check_shown_once(view: &View, stream: &Range<u64>) -> Result<(), Fault> {
    let Some(byte) = view.shown_twice(stream.clone()) else { return Ok(()) };
    let (filetype, extent) = (view.filetype_bytes(), view.filetype_extent());
    let text = format!(
        "a write through a view that shows byte {byte} of the file twice: repetitions of its file type, {filetype} bytes of data at an \
         extent of {extent}, overlap; give the file type a larger extent"
    );
    Err(Fault::new(Code::Datatype, text))
}

impl StreamRange {
    /// Whether its view is not monotonic.
    pub(in crate::client) fn is_non_monotonic(&self) -> bool {
        self.view.view().direction() == Direction::Mixed
    }
}

impl FileWriter<'_> {
    /// Writes all of `source` to a range of a non-monotonic view.
    pub(in crate::client) fn write_non_monotonic(
        &self,
        place: &StreamRange,
        source: &WriteSource<'_>,
    ) -> Result<(), Fault> {
        let view = place.view.view();
        check_shown_once(view, &place.stream).map_err(|fault| fault.at(self.file.context.describe()))?;
        let bytes = source.contiguous();
        for part in view.in_order(place.stream.clone()) {
            let (part, range) = ordered(self.file, place, part)?;
            let bytes = part.gather(&bytes[range]);
            let there = range_of(self.file, &part)?;
            self.write_stream(&there, &WriteSource::Bytes(&bytes))?;
        }
        Ok(())
    }
}

impl FileReader<'_> {
    /// Fills `target` from a range of a non-monotonic view, up to the first byte beyond the file's end.
    pub(in crate::client) fn read_non_monotonic(
        &self,
        place: &StreamRange,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        let mut done = 0;
        for part in place.view.view().in_order(place.stream.clone()) {
            let (part, range) = ordered(self.file, place, part)?;
            let (target, wanted) = (&mut target[range.clone()], range.len());
            let count = if part.is_unchanged() {
                self.read_stream(&range_of(self.file, &part)?, target)?
            } else {
                let there = range_of(self.file, &part)?;
                let bytes = usize::try_from(part.stream.end - part.stream.start).expect("at most its part");
                let mut ordered = vec![0; bytes];
                let count = self.read_stream(&there, &mut ordered)?;
                part.scatter(&ordered[..count], target)
            };
            done += count;
            if count < wanted {
                break;
            }
        }
        Ok(done)
    }
}

/// A part of an access, and the range of its bytes in the caller's memory.
fn ordered(
    file: &OpenFile,
    place: &StreamRange,
    part: Result<Ordered, pario_view::ViewError>,
) -> Result<(Ordered, Range<usize>), Fault> {
    let part =
        part.map_err(|error| Fault::new(Code::Datatype, error.to_string()).at(file.context.describe()))?;
    let memory =
        |offset: u64| usize::try_from(offset - place.stream.start).expect("inside the caller's memory");
    let range = memory(part.part.start)..memory(part.part.end);
    Ok((part, range))
}

fn range_of(file: &OpenFile, part: &Ordered) -> Result<StreamRange, Fault> {
    Ok(StreamRange::new(file.context.session.number_view(part.view.clone())?, part.stream.clone()))
}
