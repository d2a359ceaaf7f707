//! Where a step's stream goes or comes from, by side: one open file, or memory.

use std::fs::File;
use std::ops::Range;

use pario::collective::PlainMode;
use pario::{GroupFile, Hints, SharedOptions, View};

use super::super::error::BenchError;
use super::plain::{self, Image, Pace, Shared};
use super::rank::{FILE, Rank};
use super::side::Side;

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A fresh file is written.
    Write,
    /// It is read.
    Read,
}

/// Which bytes of the file a step means to a rank.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) view: &'a View,
    pub(super) stream: Range<u64>,
    pub(super) step: u64,
    pub(super) span_bytes: u64,
    /// Which of how many.
    pub(super) rank: (u64, u64),
}

impl Place<'_> {
    /// The contiguous part of the step's range that the rank moves where ranges are moved as a whole.
    fn whole_part(&self) -> Range<u64> {
        let start = self.step * self.span_bytes;
        plain::whole_part(start..start + self.span_bytes, self.rank.0, self.rank.1)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) enum Target {
    /// A file of the partition, by collective calls of one step each.
    Collective(GroupFile),
    /// A file of the partition, by independent calls of so many bytes.
    Independent(GroupFile, u64),
    /// A plain file, one call per extent.
    Extents(File, Pace),
    /// A plain file, whole ranges; the buffer is used over and over.
    Whole(File, Pace, Vec<u8>),
    /// A plain file, by two-phase.
    TwoPhase(Shared),
    /// Memory.
    Image(Image),
}

impl Target {
    /// Opens it on all ranks.
    pub(super) fn open(rank: &mut Rank, side: Side, purpose: Purpose) -> Result<Target, BenchError> {
        match side {
            Side::Memory => {
                let spec = &rank.seat.spec;
                let fresh = || Image::new(rank.sight.span_bytes, spec.steps());
                Ok(Target::Image(rank.image.take().unwrap_or_else(fresh)))
            }
            Side::Pwrite => Ok(Target::Extents(open_plain(rank, purpose)?, pace(rank))),
            Side::Whole => {
                let file = open_plain(rank, purpose)?;
                Ok(Target::Whole(file, pace(rank), std::mem::take(&mut rank.whole)))
            }
            Side::TwoPhasePlain => Ok(Target::TwoPhase(open_shared(rank, purpose)?)),
            Side::TwoPhase | Side::ClientDirected | Side::ServerDirected => {
                Ok(Target::Collective(open_group(rank, side, purpose)?))
            }
            Side::Atomic => {
                let file = open_group(rank, side, purpose)?;
                file.set_atomicity(true)?;
                Ok(Target::Collective(file))
            }
            Side::Cache => Ok(Target::Collective(open_cached(rank, purpose)?)),
            Side::Independent => {
                let call_bytes = rank.seat.spec.call_bytes().unwrap_or(rank.sight.part.step_bytes);
                Ok(Target::Independent(open_group(rank, side, purpose)?, call_bytes))
            }
        }
    }

    /// Writes the stream of a step; returns how many calls that took.
    pub(super) fn write(&mut self, place: &Place<'_>, data: &[u8]) -> Result<u64, BenchError> {
        match self {
            Target::Collective(file) => {
                file.write_at_all(place.stream.start / place.view.etype_bytes(), data)?;
                Ok(1)
            }
            Target::Independent(file, call_bytes) => {
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
            Target::Extents(file, pace) => {
                plain::write_extents(file, pace, (place.view, place.stream.clone()), data)
            }
            Target::Whole(file, pace, buffer) => plain::write_whole(file, pace, place.whole_part(), buffer),
            Target::TwoPhase(shared) => {
                let offset = place.stream.start / place.view.etype_bytes();
                shared.call(|file| file.write_at_all(offset, data)).map(|()| 1)
            }
            Target::Image(image) => {
                let mut rest = data;
                for extent in place.view.extents(place.stream.clone()) {
                    let target = image.place(place.step, extent);
                    let (run, behind) = rest.split_at(target.len());
                    target.copy_from_slice(run);
                    rest = behind;
                }
                Ok(1)
            }
        }
    }

    /// Reads the stream of a step; returns how many calls that took.
    pub(super) fn read(&mut self, place: &Place<'_>, data: &mut [u8]) -> Result<u64, BenchError> {
        match self {
            Target::Collective(file) => {
                let count = file.read_at_all(place.stream.start / place.view.etype_bytes(), data)?;
                complete(count, data.len(), place).map(|()| 1)
            }
            Target::Independent(file, call_bytes) => {
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
            Target::Extents(file, pace) => {
                plain::read_extents(file, pace, (place.view, place.stream.clone()), data)
            }
            Target::Whole(file, pace, buffer) => plain::read_whole(file, pace, place.whole_part(), buffer),
            Target::TwoPhase(shared) => {
                let offset = place.stream.start / place.view.etype_bytes();
                let wanted = data.len();
                let count = shared.call(|file| file.read_at_all(offset, data))?;
                complete(count, wanted, place).map(|()| 1)
            }
            Target::Image(image) => {
                let mut rest = data;
                for extent in place.view.extents(place.stream.clone()) {
                    let source = image.place(place.step, extent);
                    let (run, behind) = rest.split_at_mut(source.len());
                    run.copy_from_slice(source);
                    rest = behind;
                }
                Ok(1)
            }
        }
    }

    /// The step whose bytes are at the place of `step` when all `steps` are written.
    pub(super) fn left_at(&self, step: u64, steps: u64) -> u64 {
        let kept = steps - self.first_kept(steps);
        step + (steps - 1 - step) / kept * kept
    }

    /// The first of `steps` steps that is still there when all are written.
    pub(super) fn first_kept(&self, steps: u64) -> u64 {
        match self {
            Target::Image(image) => steps.saturating_sub(image.steps_kept()),
            Target::Collective(_)
            | Target::Independent(..)
            | Target::Extents(..)
            | Target::Whole(..)
            | Target::TwoPhase(_) => 0,
        }
    }

    /// Bytes of offset lists that this rank has sent since the view was set.
    pub(super) fn list_bytes(&self) -> u64 {
        match self {
            Target::Collective(file) | Target::Independent(file, _) => file.counts().list_bytes,
            Target::TwoPhase(shared) => shared.file().counts().list_bytes,
            Target::Extents(..) | Target::Whole(..) | Target::Image(_) => 0,
        }
    }

    /// Closes it on all ranks; the rank keeps its memory.
    pub(super) fn close(self, rank: &mut Rank) -> Result<(), BenchError> {
        match self {
            Target::Collective(file) | Target::Independent(file, _) => file.close()?,
            Target::Extents(file, pace) => close_plain(rank, file, &pace)?,
            Target::Whole(file, pace, buffer) => {
                rank.whole = buffer;
                close_plain(rank, file, &pace)?;
            }
            Target::TwoPhase(shared) => shared.close()?,
            Target::Image(image) => rank.image = Some(image),
        }
        Ok(())
    }
}

fn close_plain(rank: &Rank, file: File, pace: &Pace) -> Result<(), BenchError> {
    pace.settle();
    drop(file);
    rank.group.barrier()?;
    Ok(())
}

fn complete(count: usize, wanted: usize, place: &Place<'_>) -> Result<(), BenchError> {
    if count == wanted {
        return Ok(());
    }
    Err(BenchError::Wrong(format!("step {}: {count} of {wanted} bytes were there", place.step)))
}

fn pace(rank: &Rank) -> Pace {
    Pace::new(rank.seat.limit_bytes_s.map(|limit| limit / rank.seat.ranks))
}

/// Opens the plain file: the first rank makes it, the others find it made.
fn open_plain(rank: &Rank, purpose: Purpose) -> Result<File, BenchError> {
    let write = purpose == Purpose::Write;
    let open = |is_first| plain::open(&rank.seat.plain, is_first, write);
    if rank.seat.rank == 0 {
        let file = open(true);
        rank.group.barrier()?;
        return file;
    }
    rank.group.barrier()?;
    open(false)
}

fn open_shared(rank: &Rank, purpose: Purpose) -> Result<Shared, BenchError> {
    let mode = match purpose {
        Purpose::Write => PlainMode::Create,
        Purpose::Read => PlainMode::Read,
    };
    let shared = Shared::open(&rank.group, &rank.seat.plain, mode, rank.seat.limit_bytes_s)?;
    let part = &rank.sight.part;
    shared.file().set_view(part.displacement, &part.etype, &part.filetype)?;
    Ok(shared)
}

/// The plain file, through the cache of the ranks' own node.
fn open_cached(rank: &Rank, purpose: Purpose) -> Result<GroupFile, BenchError> {
    let write = purpose == Purpose::Write;
    let options = SharedOptions { read: !write, write, create_new: write, ..SharedOptions::default() };
    let file = pario::open_shared(&rank.group, &rank.seat.plain, &options)?;
    file.set_view(rank.sight.part.displacement, &rank.sight.part.etype, &rank.sight.part.filetype)?;
    Ok(file)
}

fn open_group(rank: &Rank, side: Side, purpose: Purpose) -> Result<GroupFile, BenchError> {
    let options = match purpose {
        Purpose::Write => rank.partition.options().write(true).create_new(true),
        Purpose::Read => rank.partition.options().read(true),
    };
    let hints = Hints { method: side.method(), ..Hints::default() };
    let file = options.open_all(&rank.group, FILE, &hints)?;
    file.set_view(rank.sight.part.displacement, &rank.sight.part.etype, &rank.sight.part.filetype)?;
    Ok(file)
}
