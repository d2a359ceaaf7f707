//! What one process of a kernel does: joins the others, then writes, reads, verifies or computes as it is told.
//!
//! Always: ranks start together; times run from open to close, with those inside calls and of computing apart; after an error this
//! process leaves the group, so that nobody waits for it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pario::core::{Code, Fault};
use pario::{Group, Partition, View};
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::{Outcome, State};
use super::data::{self, STAMP_BYTES};
use super::plain::{Image, WHOLE_CALL_BYTES};
use super::shapes::{Part, Spec};
use super::side::Side;
use super::stencil::Stencil;
use super::tally::Tally;
use super::target::{Place, Purpose, Target};
use crate::clock::Began;

/// How long sweeps are counted for.
const CALIBRATION: Duration = Duration::from_millis(200);

/// What a process of a kernel is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum KernelJob {
    /// Take a place in the group and make the buffers.
    Join(Box<Seat>),
    /// Count how many sweeps of the stencil there are in a second while all ranks sweep.
    Calibrate,
    /// Compute as between dumps, without any dump.
    Compute {
        /// Sweeps before each step.
        sweeps: u64,
    },
    /// Write a fresh file, open to close.
    Write {
        /// How.
        side: Side,
        /// Sweeps before each step.
        sweeps: u64,
    },
    /// Read it, open to close.
    Read {
        /// How.
        side: Side,
    },
    /// Write a fresh file of which every byte tells its offset, then read the next rank's part and check every byte.
    Verify {
        /// How.
        side: Side,
    },
    /// Remove the file; not part of any time, told to one rank.
    Remove {
        /// Which.
        side: Side,
    },
}

/// A rank's place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) spec: Spec,
    pub(crate) rank: u64,
    pub(crate) ranks: u64,
    pub(crate) partition: String,
    /// Of the yardsticks.
    pub(crate) plain: PathBuf,
    /// What all ranks together may move to or from a plain file in a second.
    pub(crate) limit_bytes_s: Option<u64>,
}

/// A part of the file, ready to be walked.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) part: Part,
    view: View,
    pub(super) span_bytes: u64,
}

/// What a rank keeps between jobs.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(super) seat: Seat,
    pub(super) sight: Sight,
    pub(super) group: Arc<dyn Group>,
    pub(super) partition: Partition,
    /// As the application has it: contiguous, or as `part.memory` says.
    memory: Vec<u8>,
    /// The stream of one step, where memory is not contiguous.
    packed: Vec<u8>,
    /// What the last run in memory left, so that it is warm.
    pub(super) image: Option<Image>,
    /// Written over and over where ranges are written as a whole.
    pub(super) whole: Vec<u8>,
    stencil: Stencil,
}

/// Does a job.
pub(crate) fn run(state: &mut State, job: &KernelJob) -> Result<Outcome, BenchError> {
    if let KernelJob::Join(seat) = job {
        // Before anything that can fail: from then on the others notice if this process gives up.
        let group = pario::group::from_env()?
            .ok_or_else(|| BenchError::Worker("a rank was not invited to a group".to_owned()))?;
        let partition = state.mount(&seat.partition)?;
        state.kernel = Some(Rank::new(seat, partition, group)?);
        return Ok(Outcome::default());
    }
    let mut rank = state.kernel.take().ok_or_else(|| BenchError::Worker("no seat was given".to_owned()))?;
    let outcome = rank.run(job)?;
    state.kernel = Some(rank);
    Ok(outcome)
}

impl Rank {
    fn new(seat: &Seat, partition: Partition, group: Arc<dyn Group>) -> Result<Rank, BenchError> {
        let sight = Sight::of(seat, seat.rank)?;
        let part = &sight.part;
        let step_bytes = usize::try_from(part.step_bytes).map_err(|_| too_large())?;
        let (memory_bytes, packed_bytes) = match &part.memory {
            Some(memory) => (memory.bytes, step_bytes),
            None => (step_bytes, 0),
        };
        // Touched before anything is timed, as a computation would have.
        let (memory, packed) = (vec![0xA5; memory_bytes], vec![0xA5; packed_bytes]);
        Ok(Rank {
            seat: seat.clone(),
            sight,
            group,
            partition,
            memory,
            packed,
            image: None,
            whole: Vec::new(),
            stencil: Stencil::new(),
        })
    }

    fn run(&mut self, job: &KernelJob) -> Result<Outcome, BenchError> {
        match job {
            KernelJob::Join(_) => Err(BenchError::Worker("a seat was given twice".to_owned())),
            KernelJob::Calibrate => self.calibrate(),
            KernelJob::Compute { sweeps } => self.compute(*sweeps),
            KernelJob::Write { side, sweeps } => self.write(*side, *sweeps),
            KernelJob::Read { side } => self.read(*side),
            KernelJob::Verify { side } => self.verify(*side),
            KernelJob::Remove { side } => self.remove(*side),
        }
    }

    fn calibrate(&mut self) -> Result<Outcome, BenchError> {
        self.group.barrier()?;
        Ok(Outcome { seconds: self.stencil.sweeps_per_s(CALIBRATION), ..Outcome::default() })
    }

    fn compute(&mut self, sweeps: u64) -> Result<Outcome, BenchError> {
        self.group.barrier()?;
        let began = Began::now();
        for _ in 0..self.seat.spec.steps() {
            self.stencil.sweep(sweeps);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.group.barrier()?;
        Ok(Outcome { seconds, ..Outcome::default() })
    }

    fn write(&mut self, side: Side, sweeps: u64) -> Result<Outcome, BenchError> {
        self.fill(0)?;
        self.prepare(side);
        self.group.barrier()?;
        let mut tally = Tally::start(&self.partition, self.seat.spec.steps());
        let mut target = Target::open(self, side, Purpose::Write)?;
        for step in 0..self.seat.spec.steps() {
            let began = Began::now();
            self.stencil.sweep(sweeps);
            tally.compute += began.elapsed();
            self.stamp(step);
            let calls = Tally::step(&self.partition);
            let data = pack(&self.sight.part, &self.memory, &mut self.packed, step)?;
            tally.calls += target.write(&self.sight.place(&self.seat, step), data)?;
            tally.step_done(&calls, &self.partition);
        }
        tally.list_bytes = target.list_bytes();
        target.close(self)?;
        Ok(tally.end(&self.partition))
    }

    fn read(&mut self, side: Side) -> Result<Outcome, BenchError> {
        let tail = self.tail();
        self.prepare(side);
        self.group.barrier()?;
        let mut tally = Tally::start(&self.partition, self.seat.spec.steps());
        let mut target = Target::open(self, side, Purpose::Read)?;
        for step in 0..self.seat.spec.steps() {
            self.wipe(step);
            let calls = Tally::step(&self.partition);
            tally.calls += self.read_step(&mut target, step)?;
            tally.step_done(&calls, &self.partition);
            if side.is_by_view() {
                let left = target.left_at(step, self.seat.spec.steps());
                self.check_step(side, (step, left), &tail)?;
            }
        }
        tally.list_bytes = target.list_bytes();
        target.close(self)?;
        Ok(tally.end(&self.partition))
    }

    /// Makes the buffer that a yardstick needs, before anything is timed.
    fn prepare(&mut self, side: Side) {
        if side == Side::Whole && self.whole.is_empty() {
            let share = self.sight.span_bytes.div_ceil(self.seat.ranks).max(1);
            self.whole = vec![0xA5; WHOLE_CALL_BYTES.min(usize::try_from(share).unwrap_or(usize::MAX))];
        }
    }

    /// Reads a step into memory.
    fn read_step(&mut self, target: &mut Target, step: u64) -> Result<u64, BenchError> {
        let place = self.sight.place(&self.seat, step);
        match &self.sight.part.memory {
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

    fn verify(&mut self, side: Side) -> Result<Outcome, BenchError> {
        self.group.barrier()?;
        let mut target = Target::open(self, side, Purpose::Write)?;
        for step in 0..self.seat.spec.steps() {
            self.fill(step)?;
            let data = pack(&self.sight.part, &self.memory, &mut self.packed, step)?;
            target.write(&self.sight.place(&self.seat, step), data)?;
        }
        target.close(self)?;
        let ahead = if side.is_private() { 0 } else { 1 };
        let other = Sight::of(&self.seat, (self.seat.rank + ahead) % self.seat.ranks)?;
        let own = std::mem::replace(&mut self.sight, other);
        let checked = self.check_all(side);
        self.sight = own;
        // Nobody leaves before all have looked, and all hear of what one found.
        let told = checked
            .as_ref()
            .map(|_| ())
            .map_err(|error| pario::Error::from(Fault::new(Code::Corrupt, error.to_string())));
        self.group.agree(told)?;
        checked?;
        Ok(Outcome { calls: self.seat.spec.steps(), ..Outcome::default() })
    }

    /// Reads every step of the part in force and checks every byte.
    fn check_all(&mut self, side: Side) -> Result<(), BenchError> {
        let mut target = Target::open(self, side, Purpose::Read)?;
        let mut data = vec![0; usize::try_from(self.sight.part.step_bytes).map_err(|_| too_large())?];
        let mut found = None;
        let steps = self.seat.spec.steps();
        for step in target.first_kept(steps)..steps {
            data.fill(0);
            target.read(&self.sight.place(&self.seat, step), &mut data)?;
            let wrong = data::first_wrong(&self.sight.view, self.sight.part.stream(step), &data);
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

    fn remove(&mut self, side: Side) -> Result<Outcome, BenchError> {
        match side.method() {
            Some(_) => self.partition.remove_file(FILE)?,
            None if side.is_private() => self.image = None,
            None => {
                let path = &self.seat.plain;
                std::fs::remove_file(path).map_err(BenchError::at("removing", path))?;
            }
        }
        Ok(Outcome::default())
    }

    /// Fills memory with what belongs to a step.
    fn fill(&mut self, step: u64) -> Result<(), BenchError> {
        let stream = self.sight.part.stream(step);
        let Some(memory) = &self.sight.part.memory else {
            data::fill(&self.sight.view, stream, &mut self.memory);
            return Ok(());
        };
        data::fill(&self.sight.view, stream, &mut self.packed);
        // Timed runs write all variables, of which step 0 fills one: the others' bytes are of no interest.
        memory
            .elements
            .unpack(&self.packed, 0, &mut self.memory, memory.origin(step))
            .map_err(|error| BenchError::Worker(error.to_string()))?;
        Ok(())
    }

    /// Where the first bytes of a step lie in memory.
    fn head(&self, step: u64) -> Range<usize> {
        let (start, bytes) = match &self.sight.part.memory {
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

    /// Takes away what the check after a read looks for.
    fn wipe(&mut self, step: u64) {
        let head = self.head(step);
        self.memory[head].fill(0xEE);
        let tail = self.tail_range();
        self.memory[tail].fill(0xEE);
    }

    /// The last bytes of contiguous memory; none where they are part of the stamp or memory is not contiguous.
    fn tail_range(&self) -> Range<usize> {
        match &self.sight.part.memory {
            None if 2 * STAMP_BYTES <= self.memory.len() => {
                self.memory.len() - STAMP_BYTES..self.memory.len()
            }
            _ => 0..0,
        }
    }

    /// What timed writes left there: the bytes of step 0.
    fn tail(&self) -> Vec<u8> {
        let range = self.tail_range();
        let mut tail = vec![0; range.len()];
        data::fill(&self.sight.view, range.start as u64..range.end as u64, &mut tail);
        tail
    }

    /// Whether step `step` read what step `left` wrote.
    fn check_step(&self, side: Side, (step, left): (u64, u64), tail: &[u8]) -> Result<(), BenchError> {
        let head = &self.memory[self.head(step)];
        if *head == left.to_le_bytes()[..head.len()] && self.memory[self.tail_range()] == *tail {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("{}: step {step} read what was not written there", side.word())))
    }
}

/// The kernel's file in the partition.
pub(super) const FILE: &str = "kernel";

impl Sight {
    fn of(seat: &Seat, rank: u64) -> Result<Sight, BenchError> {
        let part = seat.spec.part(rank, seat.ranks).map_err(wrong_shape)?;
        let view = part.view().map_err(wrong_shape)?;
        Ok(Sight { part, view, span_bytes: seat.spec.span_bytes(seat.ranks) })
    }

    fn place(&self, seat: &Seat, step: u64) -> Place<'_> {
        Place {
            view: &self.view,
            stream: self.part.stream(step),
            step,
            span_bytes: self.span_bytes,
            rank: (seat.rank, seat.ranks),
        }
    }
}

/// The stream of a step.
fn pack<'a>(part: &Part, memory: &'a [u8], packed: &'a mut [u8], step: u64) -> Result<&'a [u8], BenchError> {
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
