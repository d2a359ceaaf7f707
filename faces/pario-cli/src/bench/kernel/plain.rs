//! The yardsticks without a partition: a plain file written by extents, as a whole, or by two-phase; and copying in memory.
//!
//! Always: a limit on stores holds for them too: each rank has an equal share of it, or, in two-phase, where few ranks write for
//! all, all ranks wait until what they moved together is paid for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pario::collective::{PlainFile, PlainMode};
use pario::group::Reduce;
use pario::{Group, Hints, View};
use std::ops::Range;

use super::super::error::BenchError;
use crate::clock::{Began, rest};

/// Bytes of one call where a range is written as a whole: a usual size of collective buffers.
pub(super) const WHOLE_CALL_BYTES: usize = 4 << 20;
/// Behind by less than this, nobody waits: a rest is never shorter.
const REST_MIN: Duration = Duration::from_millis(1);
/// Whoever comes back so soon after its rest was over goes on as if it had come in time: limited stores bear as much.
const LATE: Duration = Duration::from_millis(10);
/// Most bytes of the image that memory is copied into, unless one step is larger.
pub(super) const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// So many bytes a second, if there is a limit.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_s: Option<u64>,
    began: Began,
    /// When what was spent so far is paid for.
    due: Duration,
}

impl Pace {
    pub(super) fn new(bytes_per_s: Option<u64>) -> Pace {
        Pace { bytes_per_s, began: Began::now(), due: Duration::ZERO }
    }

    /// Waits for as long as so many bytes take after those before them.
    fn spend(&mut self, bytes: usize) {
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        let now = self.began.elapsed();
        self.due = self.due.max(now.saturating_sub(LATE)) + cost(bytes, bytes_per_s);
        let left = self.due.saturating_sub(now);
        if REST_MIN < left {
            rest(left);
        }
    }

    /// What is paid for from now on begins now; `None` without a limit.
    fn begin(&self) -> Option<Duration> {
        self.bytes_per_s.map(|_| self.began.elapsed())
    }

    /// Waits until so many bytes are paid for that were moved since [`Pace::begin`].
    fn spend_since(&mut self, begun: Duration, bytes: u64) {
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        self.due = self.due.max(begun.saturating_sub(LATE))
            + cost(usize::try_from(bytes).unwrap_or(usize::MAX), bytes_per_s);
        self.settle();
    }

    /// Waits until everything is paid for.
    pub(super) fn settle(&self) {
        rest(self.due.saturating_sub(self.began.elapsed()));
    }
}

fn cost(bytes: usize, bytes_per_s: u64) -> Duration {
    let nanos = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Writes a stream range of a view, one call per extent; returns the calls.
pub(super) fn write_extents(
    file: &File,
    pace: &mut Pace,
    (view, stream): (&View, Range<u64>),
    data: &[u8],
) -> Result<u64, BenchError> {
    let (mut done, mut calls) = (0, 0);
    for extent in view.extents(stream) {
        let bytes = usize::try_from(extent.bytes).unwrap_or(usize::MAX);
        file.write_all_at(&data[done..done + bytes], extent.file_offset)
            .map_err(BenchError::when("writing the plain file"))?;
        pace.spend(bytes);
        done += bytes;
        calls += 1;
    }
    Ok(calls)
}

/// Reads a stream range of a view, one call per extent; returns the calls.
pub(super) fn read_extents(
    file: &File,
    pace: &mut Pace,
    (view, stream): (&View, Range<u64>),
    target: &mut [u8],
) -> Result<u64, BenchError> {
    let (mut done, mut calls) = (0, 0);
    for extent in view.extents(stream) {
        let bytes = usize::try_from(extent.bytes).unwrap_or(usize::MAX);
        file.read_exact_at(&mut target[done..done + bytes], extent.file_offset)
            .map_err(BenchError::when("reading the plain file"))?;
        pace.spend(bytes);
        done += bytes;
        calls += 1;
    }
    Ok(calls)
}

/// The part of a step's range that a rank writes where ranges are written as a whole.
pub(super) fn whole_part(range: Range<u64>, rank: u64, ranks: u64) -> Range<u64> {
    let bytes = range.end - range.start;
    let at = |rank: u64| range.start + bytes / ranks * rank + (bytes % ranks).min(rank);
    at(rank)..at(rank + 1)
}

/// Writes a contiguous range in large calls; `data` is used over and over.
pub(super) fn write_whole(
    file: &File,
    pace: &mut Pace,
    range: Range<u64>,
    data: &[u8],
) -> Result<u64, BenchError> {
    let (mut at, mut calls) = (range.start, 0);
    while at < range.end {
        let bytes = data.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        file.write_all_at(&data[..bytes], at).map_err(BenchError::when("writing the plain file"))?;
        pace.spend(bytes);
        at += bytes as u64;
        calls += 1;
    }
    Ok(calls)
}

/// Reads a contiguous range in large calls.
pub(super) fn read_whole(
    file: &File,
    pace: &mut Pace,
    range: Range<u64>,
    target: &mut [u8],
) -> Result<u64, BenchError> {
    let (mut at, mut calls) = (range.start, 0);
    while at < range.end {
        let bytes = target.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        file.read_exact_at(&mut target[..bytes], at).map_err(BenchError::when("reading the plain file"))?;
        pace.spend(bytes);
        at += bytes as u64;
        calls += 1;
    }
    Ok(calls)
}

/// Opens the plain file; the first rank has created it if it is to be written.
pub(super) fn open(path: &Path, is_first: bool, write: bool) -> Result<File, BenchError> {
    let mut options = File::options();
    options.read(true).write(write).create_new(write && is_first);
    options.open(path).map_err(BenchError::at("opening", path))
}

/// A plain file that all ranks write by two-phase.
#[derive(Debug)]
pub(super) struct Shared {
    file: PlainFile,
    group: Arc<dyn Group>,
    /// Of all ranks together; each keeps the same account.
    pace: Pace,
    /// What this rank had moved to or from the file when it last said.
    moved_bytes: u64,
}

impl Shared {
    /// Opens it on all ranks.
    pub(super) fn open(
        group: &Arc<dyn Group>,
        path: &Path,
        mode: PlainMode,
        bytes_per_s: Option<u64>,
    ) -> Result<Shared, BenchError> {
        let file = PlainFile::open_all(group, path, mode, &Hints::default())?;
        Ok(Shared { file, group: Arc::clone(group), pace: Pace::new(bytes_per_s), moved_bytes: 0 })
    }

    /// The file.
    pub(super) fn file(&self) -> &PlainFile {
        &self.file
    }

    /// Makes a collective call, which takes as long as the limit wants.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&PlainFile) -> pario::Result<T>,
    ) -> Result<T, BenchError> {
        let begun = self.pace.begin();
        let result = call(&self.file)?;
        if let Some(begun) = begun {
            let moved_bytes = self.file.counts().access_bytes;
            let all_bytes = self.group.reduce(moved_bytes - self.moved_bytes, Reduce::Sum)?;
            self.moved_bytes = moved_bytes;
            self.pace.spend_since(begun, all_bytes);
        }
        Ok(result)
    }

    /// Closes it on all ranks.
    pub(super) fn close(self) -> Result<(), BenchError> {
        Ok(self.file.close()?)
    }
}

/// The file as one rank would have it in memory.
#[derive(Debug)]
pub(super) struct Image {
    bytes: Vec<u8>,
    span_bytes: u64,
    steps: u64,
}

impl Image {
    /// For a file of so many steps; a large file reuses the places of earlier steps.
    pub(super) fn new(span_bytes: u64, steps: u64) -> Image {
        let steps = (IMAGE_BYTES_MAX / span_bytes.max(1)).clamp(1, steps.max(1));
        let bytes = usize::try_from(span_bytes * steps).expect("an image fits into memory");
        Image { bytes: vec![0; bytes], span_bytes, steps }
    }

    /// How many steps, the last ones, are still there when all are written.
    pub(super) fn steps_kept(&self) -> u64 {
        self.steps
    }

    /// Where an extent of a step lies.
    pub(super) fn place(&mut self, step: u64, extent: pario::view::Extent) -> &mut [u8] {
        let at = extent.file_offset - step * self.span_bytes + step % self.steps * self.span_bytes;
        let at = usize::try_from(at).expect("an image fits into memory");
        &mut self.bytes[at..at + usize::try_from(extent.bytes).unwrap_or(usize::MAX)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_parts_follow_each_other() {
        let parts: Vec<Range<u64>> = (0..3).map(|rank| whole_part(10..21, rank, 3)).collect();
        assert_eq!(parts, [10..14, 14..18, 18..21]);
    }

    #[test]
    fn bytes_cost_time_by_the_limit() {
        assert_eq!(cost(500_000_000, 500_000_000), Duration::from_secs(1));
        assert_eq!(cost(1280, 125_000_000), Duration::from_nanos(10_240));
        let mut pace = Pace::new(Some(1 << 30));
        for _ in 0..4 {
            pace.spend(1 << 20);
        }
        pace.settle();
        assert!(Duration::from_micros(3900) <= pace.began.elapsed());
        assert!(Duration::from_micros(3900) <= pace.due);
    }

    #[test]
    fn two_phase_pays_for_what_all_ranks_moved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plain");
        std::thread::scope(|scope| {
            for group in pario::group::threads(3) {
                let path = &path;
                scope.spawn(move || {
                    let mut shared = Shared::open(&group, path, PlainMode::Create, Some(1 << 30)).unwrap();
                    let offset = group.rank() as u64 * 1000;
                    for _ in 0..2 {
                        shared.call(|file| file.write_at_all(offset, &[7; 1000])).unwrap();
                    }
                    assert_eq!(group.reduce(shared.moved_bytes, Reduce::Sum).unwrap(), 6000);
                    assert!(2 * cost(3000, 1 << 30) <= shared.pace.due);
                    shared.close().unwrap();
                });
            }
        });
        assert_eq!(std::fs::read(&path).unwrap(), [7; 3000]);
    }

    #[test]
    fn an_image_reuses_the_places_of_earlier_steps() {
        let mut image = Image::new(30 << 20, 5);
        assert_eq!(image.steps, 2);
        let extent = |step: u64| pario::view::Extent { file_offset: step * (30 << 20) + 7, bytes: 3 };
        image.place(1, extent(1)).copy_from_slice(b"abc");
        assert_eq!(image.place(3, extent(3)), b"abc");
        assert_eq!(image.place(2, extent(2)), [0; 3]);
    }
}
