//! Target of a step's stream, by side: an open file, or memory.

use std::fs::File;
use std::ops::Range;

use pario::collective::PlainMode;
use pario::{CacheOptions, GroupFile, Hints, View};

use super::super::error::BenchError;
use super::plain::{self, MemoryImage, RateLimit, TwoPhaseFile};
use super::rank::{FILE, KernelRank};
use super::side::KernelSide;

/// Purpose of opening a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OpenPurpose {
    /// Write a fresh file.
    Write,
    /// Read it.
    Read,
}

/// A rank's bytes of the file in a step.
#[derive(Debug)]
pub(super) struct StepRange<'a> {
    pub(super) view: &'a View,
    pub(super) stream: Range<u64>,
    pub(super) step: u64,
    pub(super) span_bytes: u64,
    /// Index and number.
    pub(super) rank: (u64, u64),
}

impl StepRange<'_> {
    /// The contiguous part of the step's range that the rank moves where ranges are moved as a whole.
    fn whole_part(&self) -> Range<u64> {
        let start = self.step * self.span_bytes;
        plain::whole_part(start..start + self.span_bytes, self.rank.0, self.rank.1)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) enum StepTarget {
    /// A file of the partition, by collective calls of one step each.
    Collective(GroupFile),
    /// A file of the partition, by independent calls of this size.
    Independent(GroupFile, u64),
    /// A plain file, one call per extent.
    Extents(File, RateLimit),
    /// A plain file, whole ranges; the buffer is repeated.
    Whole(File, RateLimit, Vec<u8>),
    /// A plain file, by two-phase.
    TwoPhase(TwoPhaseFile),
    /// Memory.
    Image(MemoryImage),
}

impl StepTarget {
    /// Opens it on all ranks.
    pub(super) fn open(
        rank: &mut KernelRank,
        side: KernelSide,
        purpose: OpenPurpose,
    ) -> Result<StepTarget, BenchError> {
        match side {
            KernelSide::Memory => {
                let spec = &rank.params.spec;
                let fresh = || MemoryImage::new(rank.part_view.span_bytes, spec.steps());
                Ok(StepTarget::Image(rank.image.take().unwrap_or_else(fresh)))
            }
            KernelSide::Pwrite => Ok(StepTarget::Extents(open_plain(rank, purpose)?, rate_limit(rank))),
            KernelSide::Whole => {
                let file = open_plain(rank, purpose)?;
                Ok(StepTarget::Whole(file, rate_limit(rank), std::mem::take(&mut rank.whole)))
            }
            KernelSide::TwoPhasePlain => Ok(StepTarget::TwoPhase(open_shared(rank, purpose)?)),
            KernelSide::TwoPhase | KernelSide::ClientDirected | KernelSide::ServerDirected => {
                Ok(StepTarget::Collective(open_group(rank, side, purpose)?))
            }
            KernelSide::Atomic => {
                let file = open_group(rank, side, purpose)?;
                file.set_atomicity(true)?;
                Ok(StepTarget::Collective(file))
            }
            KernelSide::Cache => Ok(StepTarget::Collective(open_cached(rank, purpose)?)),
            KernelSide::Independent => {
                let call_bytes = rank.params.spec.call_bytes().unwrap_or(rank.part_view.part.step_bytes);
                Ok(StepTarget::Independent(open_group(rank, side, purpose)?, call_bytes))
            }
        }
    }

    /// Writes the stream of a step; returns how many calls that took.
    pub(super) fn write(&mut self, place: &StepRange<'_>, data: &[u8]) -> Result<u64, BenchError> {
        match self {
            StepTarget::Collective(file) => {
                file.write_at_all(place.stream.start / place.view.etype_bytes(), data)?;
                Ok(1)
            }
            StepTarget::Independent(file, call_bytes) => {
                let call_bytes = *call_bytes;
                let mut offset = place.stream.start;
                let calls = data.chunks(usize::try_from(call_bytes).unwrap_or(usize::MAX));
                let count = calls.len() as u64;
                for call in calls {
                    file.write_at(offset / place.view.etype_bytes(), call)?;
                    offset += call.len() as u64;
                }
                Ok(count)
            }
            StepTarget::Extents(file, pace) => {
                plain::write_extents(file, pace, (place.view, place.stream.clone()), data)
            }
            StepTarget::Whole(file, pace, buffer) => {
                plain::write_whole(file, pace, place.whole_part(), buffer)
            }
            StepTarget::TwoPhase(shared) => {
                let offset = place.stream.start / place.view.etype_bytes();
                shared.call(|file| file.write_at_all(offset, data)).map(|()| 1)
            }
            StepTarget::Image(image) => {
                let mut rest = data;
                for extent in place.view.extents(place.stream.clone()) {
                    let target = image.offset_of(place.step, extent);
                    let (run, behind) = rest.split_at(target.len());
                    target.copy_from_slice(run);
                    rest = behind;
                }
                Ok(1)
            }
        }
    }

    /// Reads the stream of a step; returns how many calls that took.
    pub(super) fn read(&mut self, place: &StepRange<'_>, data: &mut [u8]) -> Result<u64, BenchError> {
        match self {
            StepTarget::Collective(file) => {
                let count = file.read_at_all(place.stream.start / place.view.etype_bytes(), data)?;
                complete(count, data.len(), place).map(|()| 1)
            }
            StepTarget::Independent(file, call_bytes) => {
                let call_bytes = *call_bytes;
                let mut offset = place.stream.start;
                let calls = data.chunks_mut(usize::try_from(call_bytes).unwrap_or(usize::MAX));
                let number = calls.len() as u64;
                for call in calls {
                    let count = file.read_at(offset / place.view.etype_bytes(), call)?;
                    complete(count, call.len(), place)?;
                    offset += call.len() as u64;
                }
                Ok(number)
            }
            StepTarget::Extents(file, pace) => {
                plain::read_extents(file, pace, (place.view, place.stream.clone()), data)
            }
            StepTarget::Whole(file, pace, buffer) => {
                plain::read_whole(file, pace, place.whole_part(), buffer)
            }
            StepTarget::TwoPhase(shared) => {
                let offset = place.stream.start / place.view.etype_bytes();
                let wanted = data.len();
                let count = shared.call(|file| file.read_at_all(offset, data))?;
                complete(count, wanted, place).map(|()| 1)
            }
            StepTarget::Image(image) => {
                let mut rest = data;
                for extent in place.view.extents(place.stream.clone()) {
                    let source = image.offset_of(place.step, extent);
                    let (run, behind) = rest.split_at_mut(source.len());
                    run.copy_from_slice(source);
                    rest = behind;
                }
                Ok(1)
            }
        }
    }

    /// The step with its bytes in the memory of `step` when all `steps` are written.
    pub(super) fn left_at(&self, step: u64, steps: u64) -> u64 {
        let kept = steps - self.first_kept(steps);
        step + (steps - 1 - step) / kept * kept
    }

    /// The first of `steps` steps that remains when all are written.
    pub(super) fn first_kept(&self, steps: u64) -> u64 {
        match self {
            StepTarget::Image(image) => steps.saturating_sub(image.steps_kept()),
            StepTarget::Collective(_)
            | StepTarget::Independent(..)
            | StepTarget::Extents(..)
            | StepTarget::Whole(..)
            | StepTarget::TwoPhase(_) => 0,
        }
    }

    /// Bytes of offset lists that this rank has sent since the view was set.
    pub(super) fn list_bytes(&self) -> u64 {
        match self {
            StepTarget::Collective(file) | StepTarget::Independent(file, _) => file.counts().list_bytes,
            StepTarget::TwoPhase(shared) => shared.file().counts().list_bytes,
            StepTarget::Extents(..) | StepTarget::Whole(..) | StepTarget::Image(_) => 0,
        }
    }

    /// Closes it on all ranks; the rank keeps its memory.
    pub(super) fn close(self, rank: &mut KernelRank) -> Result<(), BenchError> {
        match self {
            StepTarget::Collective(file) | StepTarget::Independent(file, _) => file.close()?,
            StepTarget::Extents(file, pace) => close_plain(rank, file, &pace)?,
            StepTarget::Whole(file, pace, buffer) => {
                rank.whole = buffer;
                close_plain(rank, file, &pace)?;
            }
            StepTarget::TwoPhase(shared) => shared.close()?,
            StepTarget::Image(image) => rank.image = Some(image),
        }
        Ok(())
    }
}

fn close_plain(rank: &KernelRank, file: File, pace: &RateLimit) -> Result<(), BenchError> {
    pace.wait_all();
    drop(file);
    rank.group.barrier()?;
    Ok(())
}

fn complete(count: usize, wanted: usize, place: &StepRange<'_>) -> Result<(), BenchError> {
    if count == wanted {
        return Ok(());
    }
    Err(BenchError::Wrong(format!("step {}: {count} of {wanted} bytes were there", place.step)))
}

fn rate_limit(rank: &KernelRank) -> RateLimit {
    RateLimit::new(rank.params.limit_bytes_s.map(|limit| limit / rank.params.ranks))
}

/// Opens the plain file, which the first rank creates.
fn open_plain(rank: &KernelRank, purpose: OpenPurpose) -> Result<File, BenchError> {
    let write = purpose == OpenPurpose::Write;
    let open = |is_first| plain::open(&rank.params.plain, is_first, write);
    if rank.params.rank == 0 {
        let file = open(true);
        rank.group.barrier()?;
        return file;
    }
    rank.group.barrier()?;
    open(false)
}

fn open_shared(rank: &KernelRank, purpose: OpenPurpose) -> Result<TwoPhaseFile, BenchError> {
    let mode = match purpose {
        OpenPurpose::Write => PlainMode::Create,
        OpenPurpose::Read => PlainMode::Read,
    };
    let shared = TwoPhaseFile::open(&rank.group, &rank.params.plain, mode, rank.params.limit_bytes_s)?;
    let part = &rank.part_view.part;
    shared.file().set_view(part.displacement, &part.etype, &part.filetype)?;
    Ok(shared)
}

/// The plain file, through the file cache of the ranks' node.
fn open_cached(rank: &KernelRank, purpose: OpenPurpose) -> Result<GroupFile, BenchError> {
    let write = purpose == OpenPurpose::Write;
    let options = CacheOptions { read: !write, write, create_new: write, ..CacheOptions::default() };
    let file = pario::open_cached(&rank.group, &rank.params.plain, &options)?;
    file.set_view(
        rank.part_view.part.displacement,
        &rank.part_view.part.etype,
        &rank.part_view.part.filetype,
    )?;
    Ok(file)
}

fn open_group(rank: &KernelRank, side: KernelSide, purpose: OpenPurpose) -> Result<GroupFile, BenchError> {
    let options = match purpose {
        OpenPurpose::Write => rank.partition.options().write(true).create_new(true),
        OpenPurpose::Read => rank.partition.options().read(true),
    };
    let hints = Hints { method: side.method(), ..Hints::default() };
    let file = options.open_all(&rank.group, FILE, &hints)?;
    file.set_view(
        rank.part_view.part.displacement,
        &rank.part_view.part.etype,
        &rank.part_view.part.filetype,
    )?;
    Ok(file)
}
