//! One rank of the demonstration, `pario demo-rank`, hidden from the help: writes and reads the field by both methods
//! alternately, and prints each step as one line of JSON for its parent process.
//!
//! Never: times the computation or the comparison of values. Always: every value read is compared; a file is empty before each pass.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args as ClapArgs;
use pario::group::{self, Group};
use pario::view::{ArrayOrder, SubarrayDimension, TypeError};
use pario::{Datatype, GroupFile, Hints, Partition};
use serde::{Deserialize, Serialize};

use super::field::{Field, FieldPart, VALUE_BYTES, value};
use super::{DemoSide, FIELD, PASSES, PATH};
use crate::clock::Stopwatch;
use crate::context::Context;
use crate::error::{CliError, CliResult};

/// Arguments of `pario demo-rank`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// The plain file
    plain: PathBuf,
    /// Leave the partition's file of the last pass
    #[arg(long)]
    keep: bool,
}

/// Half of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum DemoStep {
    /// Write a pencil.
    Write,
    /// Read a slab.
    Read,
}

/// Result of one step of a rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct StepReport {
    pub(super) pass: usize,
    pub(super) side: DemoSide,
    pub(super) step: DemoStep,
    /// Open to close.
    pub(super) seconds: f64,
    /// Inside the calls that move data.
    pub(super) calls_seconds: f64,
    /// Those calls.
    pub(super) calls: u64,
    /// Counters of the session during the step.
    pub(super) counts: pario::Counts,
}

/// Seconds and calls of a step.
struct StepTimes {
    seconds: f64,
    calls_seconds: f64,
    calls: u64,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let name = context.partition_name(None)?;
    let (group, partition) = (group::current()?, Partition::mount(&name)?);
    let rank = DemoRank::new(FIELD, group, partition, args.plain.clone());
    rank.passes(PASSES, args.keep, |report| {
        context.line(serde_json::to_string(&report).expect("a report is plain data"))?;
        context.flush()
    })
}

struct DemoRank {
    field: Field,
    group: Arc<dyn Group>,
    partition: Partition,
    plain: PathBuf,
    pencil: FieldPart,
    slab: FieldPart,
}

impl DemoRank {
    fn new(field: Field, group: Arc<dyn Group>, partition: Partition, plain: PathBuf) -> DemoRank {
        let (rank, ranks) = (group.rank() as u64, group.size() as u64);
        let (pencil, slab) = (field.pencil(rank, ranks), field.slab(rank, ranks));
        DemoRank { field, group, partition, plain, pencil, slab }
    }

    /// All passes; the two sides alternate in being first.
    fn passes(&self, passes: usize, keep: bool, mut tell: impl FnMut(StepReport) -> CliResult) -> CliResult {
        let written = computed(&self.field, &self.pencil);
        let mut read = vec![0; bytes_of(&self.slab)];
        for pass in 0..passes {
            let sides = if pass % 2 == 0 { DemoSide::BOTH } else { [DemoSide::Plain, DemoSide::Views] };
            for side in sides {
                let report = self.step(pass, side, DemoStep::Write, |rank| match side {
                    DemoSide::Views => rank.write_view(&written),
                    DemoSide::Plain => rank.write_pieces(&written),
                })?;
                tell(report)?;
                read.fill(0);
                let report = self.step(pass, side, DemoStep::Read, |rank| match side {
                    DemoSide::Views => rank.read_view(&mut read),
                    DemoSide::Plain => rank.read_plain(&mut read),
                })?;
                tell(report)?;
                verify(&self.field, &self.slab, &read)?;
                if side == DemoSide::Plain || pass + 1 < passes || !keep {
                    self.remove(side)?;
                }
            }
        }
        Ok(())
    }

    /// One step of all ranks: they start together, and all end before the next step.
    fn step(
        &self,
        pass: usize,
        side: DemoSide,
        step: DemoStep,
        work: impl FnOnce(&DemoRank) -> CliResult<StepTimes>,
    ) -> CliResult<StepReport> {
        self.group.barrier()?;
        let before = self.partition.counts();
        let StepTimes { seconds, calls_seconds, calls } = work(self)?;
        let counts = self.partition.counts().since(&before);
        self.group.barrier()?;
        Ok(StepReport { pass, side, step, seconds, calls_seconds, calls, counts })
    }

    /// Removes the partition's file; truncates the plain one, which has no name.
    fn remove(&self, side: DemoSide) -> CliResult {
        self.group.barrier()?;
        if self.group.rank() != 0 {
            return Ok(());
        }
        match side {
            DemoSide::Views => Ok(self.partition.remove_file(PATH)?),
            DemoSide::Plain => {
                let file = OpenOptions::new().write(true).open(&self.plain);
                file.and_then(|file| file.set_len(0)).map_err(|error| CliError::local(&self.plain, &error))
            }
        }
    }

    /// The pencil in one collective call through a view.
    fn write_view(&self, memory: &[u8]) -> CliResult<StepTimes> {
        let options = self.partition.options().create_new(true).write(true);
        self.through_view(&options, &self.pencil, |file| file.write_at_all(0, memory))
    }

    /// The slab in one collective call through a view.
    fn read_view(&self, memory: &mut [u8]) -> CliResult<StepTimes> {
        let options = self.partition.options().read(true);
        self.through_view(&options, &self.slab, |file| file.read_at_all(0, memory).map(drop))
    }

    fn through_view(
        &self,
        options: &pario::OpenOptions,
        part: &FieldPart,
        call: impl FnOnce(&GroupFile) -> pario::Result<()>,
    ) -> CliResult<StepTimes> {
        let (double, filetype) = datatypes(&self.field, part).map_err(CliError::failed)?;
        let began = Stopwatch::now();
        let file = options.open_all(&self.group, PATH, &Hints::default())?;
        file.set_view(0, &double, &filetype)?;
        let inside = Stopwatch::now();
        call(&file)?;
        let calls_seconds = inside.elapsed().as_secs_f64();
        file.close()?;
        Ok(StepTimes { seconds: began.elapsed().as_secs_f64(), calls_seconds, calls: 1 })
    }

    /// The pencil into a plain file that all ranks share: one `pwrite` for each row.
    fn write_pieces(&self, memory: &[u8]) -> CliResult<StepTimes> {
        let failed = |error| CliError::local(&self.plain, &error);
        let row_bytes = in_memory((self.pencil.to[0] - self.pencil.from[0]) * VALUE_BYTES);
        let began = Stopwatch::now();
        let file = OpenOptions::new().write(true).open(&self.plain).map_err(failed)?;
        let inside = Stopwatch::now();
        let mut rows = memory.chunks_exact(row_bytes);
        let mut calls = 0;
        each_row(&self.pencil, |y, z| {
            let row = rows.next().expect("as many rows as were computed");
            calls += 1;
            file.write_all_at(row, self.field.offset([self.pencil.from[0], y, z])).map_err(failed)
        })?;
        let calls_seconds = inside.elapsed().as_secs_f64();
        drop(file);
        Ok(StepTimes { seconds: began.elapsed().as_secs_f64(), calls_seconds, calls })
    }

    /// The slab, which is one piece of the plain file.
    fn read_plain(&self, memory: &mut [u8]) -> CliResult<StepTimes> {
        let failed = |error| CliError::local(&self.plain, &error);
        let began = Stopwatch::now();
        let file = fs::File::open(&self.plain).map_err(failed)?;
        let inside = Stopwatch::now();
        file.read_exact_at(memory, self.field.offset(self.slab.from)).map_err(failed)?;
        let calls_seconds = inside.elapsed().as_secs_f64();
        drop(file);
        Ok(StepTimes { seconds: began.elapsed().as_secs_f64(), calls_seconds, calls: 1 })
    }
}

/// A value, and a part of the field as ranks see it in the file.
fn datatypes(field: &Field, part: &FieldPart) -> Result<(Datatype, Datatype), TypeError> {
    let double = Datatype::elementary(VALUE_BYTES)?;
    let signed = |cells: u64| i64::try_from(cells).expect("cells are far fewer than 2^63");
    let dimension = |axis: usize, size: u64| SubarrayDimension {
        size: signed(size),
        subsize: signed(part.to[axis] - part.from[axis]),
        start: signed(part.from[axis]),
    };
    let dimensions = [dimension(2, field.z), dimension(1, field.y), dimension(0, field.x)];
    let filetype = Datatype::subarray(&dimensions, ArrayOrder::C, &double)?;
    Ok((double, filetype))
}

fn computed(field: &Field, part: &FieldPart) -> Vec<u8> {
    let mut memory = Vec::with_capacity(bytes_of(part));
    let filled = each_row(part, |y, z| {
        for x in part.from[0]..part.to[0] {
            memory.extend_from_slice(&value(field, [x, y, z]).to_le_bytes());
        }
        Ok(())
    });
    assert!(filled.is_ok(), "computing does not fail");
    memory
}

fn verify(field: &Field, part: &FieldPart, memory: &[u8]) -> CliResult {
    let mut values =
        memory.chunks_exact(8).map(|bytes| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes));
    each_row(part, |y, z| {
        for x in part.from[0]..part.to[0] {
            let (found, expected) = (values.next(), value(field, [x, y, z]));
            if found.map(f64::to_bits) != Some(expected.to_bits()) {
                let text = format!("cell ({x}, {y}, {z}) is {found:?} where {expected} was written");
                return Err(CliError::failed(text));
            }
        }
        Ok(())
    })
}

fn each_row(part: &FieldPart, mut row: impl FnMut(u64, u64) -> CliResult) -> CliResult {
    for z in part.from[2]..part.to[2] {
        for y in part.from[1]..part.to[1] {
            row(y, z)?;
        }
    }
    Ok(())
}

fn bytes_of(part: &FieldPart) -> usize {
    in_memory(part.cells() * VALUE_BYTES)
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a part fits into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Field = Field { x: 16, y: 8, z: 6 };

    fn ranks(partition: &Partition, plain: &std::path::Path) -> Vec<DemoRank> {
        let rank = |group| DemoRank::new(SMALL, group, partition.clone(), plain.to_owned());
        group::threads(4).into_iter().map(rank).collect()
    }

    #[test]
    fn both_sides_are_written_read_and_removed_in_turn() {
        let (partition, dir) = (Partition::in_process(2).unwrap(), tempfile::tempdir().unwrap());
        let plain = dir.path().join("plain");
        fs::write(&plain, "").unwrap();
        let run = |rank: DemoRank| {
            let mut told = Vec::new();
            rank.passes(2, false, |report| {
                told.push(report);
                Ok(())
            })
            .unwrap();
            told
        };
        let told: Vec<StepReport> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                ranks(&partition, &plain).into_iter().map(|rank| scope.spawn(|| run(rank))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let calls = |side, step| {
            let of = told.iter().filter(|report| (report.side, report.step) == (side, step));
            of.map(|report| report.calls).sum::<u64>()
        };
        assert_eq!(calls(DemoSide::Views, DemoStep::Write), 2 * 4);
        assert_eq!(calls(DemoSide::Plain, DemoStep::Write), 2 * 4 * 4 * 6);
        let order: Vec<DemoSide> = told[..8].iter().map(|report| report.side).collect();
        assert_eq!(order[..4], [DemoSide::Views, DemoSide::Views, DemoSide::Plain, DemoSide::Plain]);
        assert_eq!(order[4..], [DemoSide::Plain, DemoSide::Plain, DemoSide::Views, DemoSide::Views]);
        assert!(fs::read(&plain).unwrap().is_empty() && partition.metadata(PATH).is_err());
    }

    #[test]
    fn one_wrong_bit_is_found() {
        let part = SMALL.slab(1, 3);
        let mut memory = computed(&SMALL, &part);
        verify(&SMALL, &part, &memory).unwrap();
        memory[777] ^= 1;
        assert!(verify(&SMALL, &part, &memory).unwrap_err().to_string().contains("cell ("));
    }
}
