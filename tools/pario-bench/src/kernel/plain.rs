//! Baselines without a partition: a plain file written by extents, as a whole, or by two-phase; and copying in memory.
//!
//! Always: a store limit applies to them too: each rank has an equal share of it, or, in two-phase, where few ranks write for
//! all, all ranks wait until the bytes they moved together fit the limit.

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
use crate::clock::{BenchTimer, sleep};

/// Bytes per call where a range is written as a whole: a common collective buffer size.
pub(super) const WHOLE_CALL_BYTES: usize = 4 << 20;
/// Shorter delays are skipped: a sleep is never shorter.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// A rank at most this late after its sleep continues as if on time: limited stores allow the same.
const LATE_MAX: Duration = Duration::from_millis(10);
/// Upper bound of the memory image, unless one step is larger.
pub(super) const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// A limit in bytes per second, if any.
#[derive(Debug)]
pub(super) struct RateLimit {
    bytes_per_s: Option<u64>,
    began: BenchTimer,
    /// Time at which the bytes moved so far fit the limit.
    paid_until: Duration,
}

impl RateLimit {
    pub(super) fn new(bytes_per_s: Option<u64>) -> RateLimit {
        RateLimit { bytes_per_s, began: BenchTimer::now(), paid_until: Duration::ZERO }
    }

    /// Waits until `bytes` more fit the limit.
    fn spend(&mut self, bytes: usize) {
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        let now = self.began.elapsed();
        self.paid_until = self.paid_until.max(now.saturating_sub(LATE_MAX)) + cost(bytes, bytes_per_s);
        let left = self.paid_until.saturating_sub(now);
        if SLEEP_MIN < left {
            sleep(left);
        }
    }

    /// Start of a limited operation; `None` without a limit.
    fn begin(&self) -> Option<Duration> {
        self.bytes_per_s.map(|_| self.began.elapsed())
    }

    /// Waits until the bytes moved since [`RateLimit::begin`] fit the limit.
    fn spend_since(&mut self, begun: Duration, bytes: u64) {
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        self.paid_until = self.paid_until.max(begun.saturating_sub(LATE_MAX))
            + cost(usize::try_from(bytes).unwrap_or(usize::MAX), bytes_per_s);
        self.wait_all();
    }

    /// Waits until all moved bytes fit the limit.
    pub(super) fn wait_all(&self) {
        sleep(self.paid_until.saturating_sub(self.began.elapsed()));
    }
}

fn cost(bytes: usize, bytes_per_s: u64) -> Duration {
    let nanos = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Writes a stream range of a view, one call per extent; returns the calls.
pub(super) fn write_extents(
    file: &File,
    pace: &mut RateLimit,
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
    pace: &mut RateLimit,
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

/// A rank's part of a step's range where ranges are written as a whole.
pub(super) fn whole_part(range: Range<u64>, rank: u64, ranks: u64) -> Range<u64> {
    let bytes = range.end - range.start;
    let at = |rank: u64| range.start + bytes / ranks * rank + (bytes % ranks).min(rank);
    at(rank)..at(rank + 1)
}

/// Writes a contiguous range in large calls; `data` is repeated.
pub(super) fn write_whole(
    file: &File,
    pace: &mut RateLimit,
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
    pace: &mut RateLimit,
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

/// A plain file written by all ranks with two-phase.
#[derive(Debug)]
pub(super) struct TwoPhaseFile {
    file: PlainFile,
    group: Arc<dyn Group>,
    /// Of all ranks together; each rank computes the same.
    pace: RateLimit,
    /// Bytes moved by this rank at the last exchange.
    moved_bytes: u64,
}

impl TwoPhaseFile {
    /// Opens it on all ranks.
    pub(super) fn open(
        group: &Arc<dyn Group>,
        path: &Path,
        mode: PlainMode,
        bytes_per_s: Option<u64>,
    ) -> Result<TwoPhaseFile, BenchError> {
        let file = PlainFile::open_all(group, path, mode, &Hints::default())?;
        Ok(TwoPhaseFile { file, group: Arc::clone(group), pace: RateLimit::new(bytes_per_s), moved_bytes: 0 })
    }

    /// The file.
    pub(super) fn file(&self) -> &PlainFile {
        &self.file
    }

    /// Makes a collective call, delayed to the limit.
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

/// The file's image in one rank's memory.
#[derive(Debug)]
pub(super) struct MemoryImage {
    bytes: Vec<u8>,
    span_bytes: u64,
    steps: u64,
}

impl MemoryImage {
    /// For a file of `steps` steps; a large file reuses the memory of earlier steps.
    pub(super) fn new(span_bytes: u64, steps: u64) -> MemoryImage {
        let steps = (IMAGE_BYTES_MAX / span_bytes.max(1)).clamp(1, steps.max(1));
        let bytes = usize::try_from(span_bytes * steps).expect("an image fits into memory");
        MemoryImage { bytes: vec![0; bytes], span_bytes, steps }
    }

    /// Number of last steps that remain when all are written.
    pub(super) fn steps_kept(&self) -> u64 {
        self.steps
    }

    /// Offset of an extent of a step in the image.
    pub(super) fn offset_of(&mut self, step: u64, extent: pario::view::FileExtent) -> &mut [u8] {
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
        let mut pace = RateLimit::new(Some(1 << 30));
        for _ in 0..4 {
            pace.spend(1 << 20);
        }
        pace.wait_all();
        assert!(Duration::from_micros(3900) <= pace.began.elapsed());
        assert!(Duration::from_micros(3900) <= pace.paid_until);
    }

    #[test]
    fn two_phase_pays_for_what_all_ranks_moved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plain");
        std::thread::scope(|scope| {
            for group in pario::group::threads(3) {
                let path = &path;
                scope.spawn(move || {
                    let mut shared =
                        TwoPhaseFile::open(&group, path, PlainMode::Create, Some(1 << 30)).unwrap();
                    let offset = group.rank() as u64 * 1000;
                    for _ in 0..2 {
                        shared.call(|file| file.write_at_all(offset, &[7; 1000])).unwrap();
                    }
                    assert_eq!(group.reduce(shared.moved_bytes, Reduce::Sum).unwrap(), 6000);
                    assert!(2 * cost(3000, 1 << 30) <= shared.pace.paid_until);
                    shared.close().unwrap();
                });
            }
        });
        assert_eq!(std::fs::read(&path).unwrap(), [7; 3000]);
    }

    #[test]
    fn an_image_reuses_the_places_of_earlier_steps() {
        let mut image = MemoryImage::new(30 << 20, 5);
        assert_eq!(image.steps, 2);
        let extent = |step: u64| pario::view::FileExtent { file_offset: step * (30 << 20) + 7, bytes: 3 };
        image.offset_of(1, extent(1)).copy_from_slice(b"abc");
        assert_eq!(image.offset_of(3, extent(3)), b"abc");
        assert_eq!(image.offset_of(2, extent(2)), [0; 3]);
    }
}
