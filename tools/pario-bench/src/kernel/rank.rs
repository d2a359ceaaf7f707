//! One process of a kernel: joins the group, then writes, reads, verifies or computes as ordered.
//!
//! Always: ranks start together; times run from open to close, with those inside calls and of computing separate; after an
//! error this process leaves the group, so that no rank waits for it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pario::core::{Code, Fault};
use pario::{Group, Partition, View};
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{JobOutcome, JobState};
use super::data::{self, STAMP_BYTES};
use super::plain::{MemoryImage, WHOLE_CALL_BYTES};
use super::shapes::{RankPart, ShapeSpec};
use super::side::KernelSide;
use super::stencil::Stencil;
use super::tally::RankTally;
use super::target::{OpenPurpose, StepRange, StepTarget};
use crate::clock::BenchTimer;

/// Duration of counting sweeps.
const CALIBRATION: Duration = Duration::from_millis(200);

/// A job of a kernel's process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum KernelJob {
    /// Join the group and allocate the buffers.
    Join(Box<RankParams>),
    /// Count the sweeps of the stencil per second while all ranks sweep.
    Calibrate,
    /// Compute as between dumps, without any dump.
    Compute {
        /// Sweeps before each step.
        sweeps: u64,
    },
    /// Write a fresh file, open to close.
    Write {
        /// The method.
        side: KernelSide,
        /// Sweeps before each step.
        sweeps: u64,
    },
    /// Read it, open to close.
    Read {
        /// The method.
        side: KernelSide,
    },
    /// Write a fresh file with every byte derived from its offset, then read the next rank's part and check every byte.
    Verify {
        /// The method.
        side: KernelSide,
    },
    /// Remove the file; not timed, sent to one rank.
    Remove {
        /// The method.
        side: KernelSide,
    },
}

/// Parameters of a rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RankParams {
    pub(crate) spec: ShapeSpec,
    pub(crate) rank: u64,
    pub(crate) ranks: u64,
    pub(crate) partition: String,
    /// File of the baselines.
    pub(crate) plain: PathBuf,
    /// Limit of all ranks together on a plain file, in bytes per second.
    pub(crate) limit_bytes_s: Option<u64>,
}

/// A part of the file with its view.
#[derive(Debug)]
pub(super) struct PartView {
    pub(super) part: RankPart,
    view: View,
    pub(super) span_bytes: u64,
}

/// State of a rank between jobs.
#[derive(Debug)]
pub(crate) struct KernelRank {
    pub(super) params: RankParams,
    pub(super) part_view: PartView,
    pub(super) group: Arc<dyn Group>,
    pub(super) partition: Partition,
    /// In the application's layout: contiguous, or as in `part.memory`.
    memory: Vec<u8>,
    /// The stream of one step, if memory is not contiguous.
    packed: Vec<u8>,
    /// Image of the last run in memory, kept warm.
    pub(super) image: Option<MemoryImage>,
    /// Repeatedly written where ranges are written as a whole.
    pub(super) whole: Vec<u8>,
    stencil: Stencil,
}

/// Runs a job.
pub(crate) fn run(state: &mut JobState, job: &KernelJob) -> Result<JobOutcome, BenchError> {
    if let KernelJob::Join(seat) = job {
        // Before anything that can fail: from now on the others notice if this process gives up.
        let group = pario::group::from_env()?
            .ok_or_else(|| BenchError::Worker("a rank was not invited to a group".to_owned()))?;
        let partition = state.mount(&seat.partition)?;
        state.kernel = Some(KernelRank::new(seat, partition, group)?);
        return Ok(JobOutcome::default());
    }
    let mut rank = state
        .kernel
        .take()
        .ok_or_else(|| BenchError::Worker("the rank has not joined its group".to_owned()))?;
    let outcome = rank.run(job)?;
    state.kernel = Some(rank);
    Ok(outcome)
}

impl KernelRank {
    fn new(seat: &RankParams, partition: Partition, group: Arc<dyn Group>) -> Result<KernelRank, BenchError> {
        let sight = PartView::of(seat, seat.rank)?;
        let part = &sight.part;
        let step_bytes = usize::try_from(part.step_bytes).map_err(|_| too_large())?;
        let (memory_bytes, packed_bytes) = match &part.memory {
            Some(memory) => (memory.bytes, step_bytes),
            None => (step_bytes, 0),
        };
        // Touched before anything is timed, as by a computation.
        let (memory, packed) = (vec![0xA5; memory_bytes], vec![0xA5; packed_bytes]);
        Ok(KernelRank {
            params: seat.clone(),
            part_view: sight,
            group,
            partition,
            memory,
            packed,
            image: None,
            whole: Vec::new(),
            stencil: Stencil::new(),
        })
    }

    fn run(&mut self, job: &KernelJob) -> Result<JobOutcome, BenchError> {
        match job {
            KernelJob::Join(_) => Err(BenchError::Worker("the rank has already joined its group".to_owned())),
            KernelJob::Calibrate => self.calibrate(),
            KernelJob::Compute { sweeps } => self.compute(*sweeps),
            KernelJob::Write { side, sweeps } => self.write(*side, *sweeps),
            KernelJob::Read { side } => self.read(*side),
            KernelJob::Verify { side } => self.verify(*side),
            KernelJob::Remove { side } => self.remove(*side),
        }
    }

    fn calibrate(&mut self) -> Result<JobOutcome, BenchError> {
        self.group.barrier()?;
        Ok(JobOutcome { seconds: self.stencil.sweeps_per_s(CALIBRATION), ..JobOutcome::default() })
    }

    fn compute(&mut self, sweeps: u64) -> Result<JobOutcome, BenchError> {
        self.group.barrier()?;
        let began = BenchTimer::now();
        for _ in 0..self.params.spec.steps() {
            self.stencil.sweep(sweeps);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.group.barrier()?;
        Ok(JobOutcome { seconds, ..JobOutcome::default() })
    }

    fn write(&mut self, side: KernelSide, sweeps: u64) -> Result<JobOutcome, BenchError> {
        self.fill(0)?;
        self.prepare(side);
        self.group.barrier()?;
        let mut tally = RankTally::start(&self.partition, self.params.spec.steps());
        let mut target = StepTarget::open(self, side, OpenPurpose::Write)?;
        for step in 0..self.params.spec.steps() {
            let began = BenchTimer::now();
            self.stencil.sweep(sweeps);
            tally.compute += began.elapsed();
            self.stamp(step);
            let calls = RankTally::step(&self.partition);
            let data = pack(&self.part_view.part, &self.memory, &mut self.packed, step)?;
            tally.calls += target.write(&self.part_view.step_range(&self.params, step), data)?;
            tally.step_done(&calls, &self.partition);
        }
        tally.list_bytes = target.list_bytes();
        target.close(self)?;
        Ok(tally.end(&self.partition))
    }

    fn read(&mut self, side: KernelSide) -> Result<JobOutcome, BenchError> {
        let tail = self.tail();
        self.prepare(side);
        self.group.barrier()?;
        let mut tally = RankTally::start(&self.partition, self.params.spec.steps());
        let mut target = StepTarget::open(self, side, OpenPurpose::Read)?;
        for step in 0..self.params.spec.steps() {
            self.wipe(step);
            let calls = RankTally::step(&self.partition);
            tally.calls += self.read_step(&mut target, step)?;
            tally.step_done(&calls, &self.partition);
            if side.is_by_view() {
                let left = target.left_at(step, self.params.spec.steps());
                self.check_step(side, (step, left), &tail)?;
            }
        }
        tally.list_bytes = target.list_bytes();
        target.close(self)?;
        Ok(tally.end(&self.partition))
    }

    /// Allocates the buffer of a baseline, before anything is timed.
    fn prepare(&mut self, side: KernelSide) {
        if side == KernelSide::Whole && self.whole.is_empty() {
            let share = self.part_view.span_bytes.div_ceil(self.params.ranks).max(1);
            self.whole = vec![0xA5; WHOLE_CALL_BYTES.min(usize::try_from(share).unwrap_or(usize::MAX))];
        }
    }

    /// Reads a step into memory.
    fn read_step(&mut self, target: &mut StepTarget, step: u64) -> Result<u64, BenchError> {
        let place = self.part_view.step_range(&self.params, step);
        match &self.part_view.part.memory {
            None => target.read(&place, &mut self.memory),
            Some(memory) => {
                let calls = target.read(&place, &mut self.packed)?;
                memory
                    .elements
                    .unpack(&self.packed, 0, &mut self.memory, memory.origin(step))
                    .map_err(|error| BenchError::Worker(error.to_string()))?;
                Ok(calls)
            }
        }
    }

    fn verify(&mut self, side: KernelSide) -> Result<JobOutcome, BenchError> {
        self.group.barrier()?;
        let mut target = StepTarget::open(self, side, OpenPurpose::Write)?;
        for step in 0..self.params.spec.steps() {
            self.fill(step)?;
            let data = pack(&self.part_view.part, &self.memory, &mut self.packed, step)?;
            target.write(&self.part_view.step_range(&self.params, step), data)?;
        }
        target.close(self)?;
        let ahead = if side.is_private() { 0 } else { 1 };
        let other = PartView::of(&self.params, (self.params.rank + ahead) % self.params.ranks)?;
        let own = std::mem::replace(&mut self.part_view, other);
        let checked = self.check_all(side);
        self.part_view = own;
        // No rank leaves before all have checked, and all ranks get the first error.
        let told = checked
            .as_ref()
            .map(|_| ())
            .map_err(|error| pario::Error::from(Fault::new(Code::Corrupt, error.to_string())));
        self.group.agree(told)?;
        checked?;
        Ok(JobOutcome { calls: self.params.spec.steps(), ..JobOutcome::default() })
    }

    /// Reads every step of the current part and checks every byte.
    fn check_all(&mut self, side: KernelSide) -> Result<(), BenchError> {
        let mut target = StepTarget::open(self, side, OpenPurpose::Read)?;
        let mut data = vec![0; usize::try_from(self.part_view.part.step_bytes).map_err(|_| too_large())?];
        let mut found = None;
        let steps = self.params.spec.steps();
        for step in target.first_kept(steps)..steps {
            data.fill(0);
            target.read(&self.part_view.step_range(&self.params, step), &mut data)?;
            let wrong = data::first_wrong(&self.part_view.view, self.part_view.part.stream(step), &data);
            found = found.or(wrong.map(|offset| (step, offset)));
        }
        target.close(self)?;
        match found {
            None => Ok(()),
            Some((step, offset)) => Err(BenchError::Wrong(format!(
                "{}: byte {offset} of the file, in step {step}, is not what was written there",
                side.word()
            ))),
        }
    }

    fn remove(&mut self, side: KernelSide) -> Result<JobOutcome, BenchError> {
        match side.method() {
            Some(_) => self.partition.remove_file(FILE)?,
            None if side.is_private() => self.image = None,
            None => {
                let path = &self.params.plain;
                std::fs::remove_file(path).map_err(BenchError::at("removing", path))?;
            }
        }
        Ok(JobOutcome::default())
    }

    /// Fills memory with the data of a step.
    fn fill(&mut self, step: u64) -> Result<(), BenchError> {
        let stream = self.part_view.part.stream(step);
        let Some(memory) = &self.part_view.part.memory else {
            data::fill(&self.part_view.view, stream, &mut self.memory);
            return Ok(());
        };
        data::fill(&self.part_view.view, stream, &mut self.packed);
        // Timed runs write all variables, step 0 fills one: the bytes of the others do not matter.
        memory
            .elements
            .unpack(&self.packed, 0, &mut self.memory, memory.origin(step))
            .map_err(|error| BenchError::Worker(error.to_string()))?;
        Ok(())
    }

    /// Memory range of the first bytes of a step.
    fn head(&self, step: u64) -> Range<usize> {
        let (start, bytes) = match &self.part_view.part.memory {
            None => (0, self.memory.len()),
            Some(memory) => {
                let run = memory.elements.runs(0..STAMP_BYTES as u64).next();
                let run = run.expect("a step has data");
                let bytes = usize::try_from(run.bytes).unwrap_or(usize::MAX);
                (memory.origin(step) + usize::try_from(run.at).unwrap_or(0), bytes)
            }
        };
        start..start + bytes.min(STAMP_BYTES)
    }

    fn stamp(&mut self, step: u64) {
        let head = self.head(step);
        let bytes = head.len();
        self.memory[head].copy_from_slice(&step.to_le_bytes()[..bytes]);
    }

    /// Clears the bytes that the check after a read compares.
    fn wipe(&mut self, step: u64) {
        let head = self.head(step);
        self.memory[head].fill(0xEE);
        let tail = self.tail_range();
        self.memory[tail].fill(0xEE);
    }

    /// The last bytes of contiguous memory; empty if they overlap the step number or memory is not contiguous.
    fn tail_range(&self) -> Range<usize> {
        match &self.part_view.part.memory {
            None if 2 * STAMP_BYTES <= self.memory.len() => {
                self.memory.len() - STAMP_BYTES..self.memory.len()
            }
            _ => 0..0,
        }
    }

    /// The bytes that timed writes left there: those of step 0.
    fn tail(&self) -> Vec<u8> {
        let range = self.tail_range();
        let mut tail = vec![0; range.len()];
        data::fill(&self.part_view.view, range.start as u64..range.end as u64, &mut tail);
        tail
    }

    /// Whether step `step` read the data that step `left` wrote.
    fn check_step(&self, side: KernelSide, (step, left): (u64, u64), tail: &[u8]) -> Result<(), BenchError> {
        let head = &self.memory[self.head(step)];
        if *head == left.to_le_bytes()[..head.len()] && self.memory[self.tail_range()] == *tail {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("{}: step {step} read what was not written there", side.word())))
    }
}

/// The kernel's file in the partition.
pub(super) const FILE: &str = "kernel";

impl PartView {
    fn of(seat: &RankParams, rank: u64) -> Result<PartView, BenchError> {
        let part = seat.spec.part(rank, seat.ranks).map_err(wrong_shape)?;
        let view = part.view().map_err(wrong_shape)?;
        Ok(PartView { part, view, span_bytes: seat.spec.span_bytes(seat.ranks) })
    }

    fn step_range(&self, seat: &RankParams, step: u64) -> StepRange<'_> {
        StepRange {
            view: &self.view,
            stream: self.part.stream(step),
            step,
            span_bytes: self.span_bytes,
            rank: (seat.rank, seat.ranks),
        }
    }
}

/// The stream of a step.
fn pack<'a>(
    part: &RankPart,
    memory: &'a [u8],
    packed: &'a mut [u8],
    step: u64,
) -> Result<&'a [u8], BenchError> {
    let Some(shape) = &part.memory else { return Ok(memory) };
    shape
        .elements
        .pack(memory, shape.origin(step), 0, packed)
        .map_err(|error| BenchError::Worker(error.to_string()))?;
    Ok(packed)
}

fn wrong_shape(error: super::shapes::ShapeError) -> BenchError {
    BenchError::Worker(error.0)
}

fn too_large() -> BenchError {
    BenchError::Worker("a step is larger than memory".to_owned())
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
