//! One comparison: the sides of a kernel alternate, repetition by repetition, on one partition.
//!
//! Cold: the first pass of fresh processes. Warm: the last pass of the same ones. Every side is verified once, byte by byte,
//! before anything is timed; the first repetition is not counted. Before each pass of any side, as much free memory is touched
//! as it may use.

use std::collections::BTreeMap;

use super::super::backed;
use super::super::error::BenchError;
use super::super::progress::BenchProgress;
use super::super::testbed::Testbed;
use super::plain::IMAGE_BYTES_MAX;
use super::shapes::ShapeSpec;
use super::side::KernelSide;
use super::workers::{KernelPass, KernelWorkers, WorkerTask};

/// Tolerance of computing for as long as staging takes.
const CLOSE_ENOUGH: f64 = 0.05;
/// Attempts to compute for as long as staging takes.
const TRIES_MAX: usize = 4;

/// Specification of a comparison.
#[derive(Clone, Debug)]
pub(super) struct KernelScenario<'a> {
    /// Title of progress and table.
    pub(super) title: String,
    pub(super) spec: ShapeSpec,
    pub(super) ranks: u64,
    pub(super) partition: &'a str,
    pub(super) sides: Vec<KernelSide>,
    pub(super) directions: ScenarioDirections,
    /// Writing passes of the same processes; the first is cold, the last is warm.
    pub(super) passes: usize,
    /// Computing before each step.
    pub(super) compute_ms: Option<f64>,
    pub(super) limit_bytes_s: Option<u64>,
    /// Node label of the processes, if different from the servers'.
    pub(super) node: Option<&'a str>,
    /// Process that holds the namespaces of their host, if different.
    pub(super) holder: Option<u32>,
    /// Per process.
    pub(super) outbox_bytes: u64,
}

/// Directions of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScenarioDirections {
    /// Write only.
    Write,
    /// Write, then read.
    Both,
}

/// Passes of one side in one repetition, cold and warm.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct KernelSample {
    pub(super) write: [KernelPass; 2],
    pub(super) read: [KernelPass; 2],
}

/// All repetitions of a scenario, by side.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct KernelSamples(BTreeMap<KernelSide, Vec<KernelSample>>);

impl KernelSamples {
    /// The repetitions of a side; empty if it was not run.
    pub(super) fn of(&self, side: KernelSide) -> &[KernelSample] {
        self.0.get(&side).map_or(&[], Vec::as_slice)
    }

    /// The sides that were run.
    pub(super) fn sides(&self) -> impl Iterator<Item = KernelSide> + '_ {
        self.0.keys().copied()
    }

    pub(super) fn push(&mut self, side: KernelSide, take: KernelSample) {
        self.0.entry(side).or_default().push(take);
    }
}

/// Testbed of the scenarios.
#[derive(Debug)]
pub(super) struct KernelFixture {
    pub(super) testbed: Testbed,
    pub(super) progress: BenchProgress,
    /// Counted repetitions.
    pub(super) rounds: usize,
    /// Whether free memory is touched before each pass.
    pub(super) backed: bool,
}

impl KernelScenario<'_> {
    fn task(&self) -> WorkerTask<'_> {
        let KernelScenario { spec, ranks, partition, limit_bytes_s, node, holder, .. } = self;
        WorkerTask {
            spec,
            ranks: *ranks,
            partition,
            limit_bytes_s: *limit_bytes_s,
            node: *node,
            holder: *holder,
        }
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.spec.data_bytes(self.ranks)
    }

    /// Upper bound of fresh memory of any side: the file with its holes, the data once more in flight, and the memory of each process.
    fn memory_bytes(&self) -> u64 {
        let file_bytes = self.spec.span_bytes(self.ranks).saturating_mul(self.spec.steps());
        let each = (self.outbox_bytes + IMAGE_BYTES_MAX).min(file_bytes.saturating_mul(2));
        file_bytes.saturating_add(self.data_bytes()).saturating_add(self.ranks * each)
    }
}

impl KernelFixture {
    /// Runs a scenario.
    pub(super) fn run(&self, scene: &KernelScenario<'_>) -> Result<KernelSamples, BenchError> {
        for side in &scene.sides {
            self.progress.show(&format!("{}: verifying {}", scene.title, side.word()));
            self.verify(scene, *side)?;
        }
        let sweeps = self.sweeps(scene, scene.compute_ms.unwrap_or(0.0) / 1e3)?;
        let mut takes = KernelSamples::default();
        for round in 0..=self.rounds {
            self.progress.step(&scene.title, round.saturating_sub(1), self.rounds);
            // Each repetition starts with another side, so that none always follows the same one.
            for index in 0..scene.sides.len() {
                let side = scene.sides[(index + round) % scene.sides.len()];
                let take = self.sample(scene, side, sweeps)?;
                if 0 < round {
                    takes.push(side, take);
                }
            }
        }
        Ok(takes)
    }

    /// Number of stencil sweeps that take `seconds` while all ranks compute.
    pub(super) fn sweeps(&self, scene: &KernelScenario<'_>, seconds: f64) -> Result<u64, BenchError> {
        if seconds <= 0.0 {
            return Ok(0);
        }
        let per_s = KernelWorkers::start(&self.testbed, &scene.task())?.sweeps_per_s()?;
        Ok(scaled(1, per_s * seconds))
    }

    fn verify(&self, scene: &KernelScenario<'_>, side: KernelSide) -> Result<(), BenchError> {
        if !side.is_by_view() {
            return Ok(());
        }
        let mut crew = KernelWorkers::start(&self.testbed, &scene.task())?;
        crew.verify(side)?;
        self.clear(scene, &mut crew, side)
    }

    fn sample(
        &self,
        scene: &KernelScenario<'_>,
        side: KernelSide,
        sweeps: u64,
    ) -> Result<KernelSample, BenchError> {
        let mut take = KernelSample::default();
        let mut crew = KernelWorkers::start(&self.testbed, &scene.task())?;
        take.write[0] = self.write(scene, &mut crew, side, sweeps)?;
        for _ in 1..scene.passes {
            self.clear(scene, &mut crew, side)?;
            take.write[1] = self.write(scene, &mut crew, side, sweeps)?;
        }
        if scene.directions == ScenarioDirections::Both {
            // A private image ends with its process.
            if !side.is_private() {
                drop(crew);
                crew = KernelWorkers::start(&self.testbed, &scene.task())?;
            }
            self.back(scene);
            take.read = [crew.read(side)?, crew.read(side)?];
        }
        self.clear(scene, &mut crew, side)?;
        Ok(take)
    }

    /// A counted pass.
    fn write(
        &self,
        scene: &KernelScenario<'_>,
        crew: &mut KernelWorkers,
        side: KernelSide,
        sweeps: u64,
    ) -> Result<KernelPass, BenchError> {
        self.back(scene);
        crew.write(side, sweeps)
    }

    /// Touches the memory of the next pass, so that the host has backed it.
    fn back(&self, scene: &KernelScenario<'_>) {
        if self.backed {
            backed::touch(scene.memory_bytes());
        }
    }

    /// Removes the file and waits until the servers are at rest.
    fn clear(
        &self,
        scene: &KernelScenario<'_>,
        crew: &mut KernelWorkers,
        side: KernelSide,
    ) -> Result<(), BenchError> {
        crew.remove(side)?;
        if side.is_private() { Ok(()) } else { self.testbed.wait_idle(scene.partition) }
    }

    /// Times of writing alone, computing alone (before and after), and both, with computing as long as writing; per repetition.
    pub(super) fn hide(
        &self,
        scene: &KernelScenario<'_>,
        side: KernelSide,
    ) -> Result<Vec<Hidden>, BenchError> {
        let mut crew = KernelWorkers::start(&self.testbed, &scene.task())?;
        self.write(scene, &mut crew, side, 0)?;
        self.clear(scene, &mut crew, side)?;
        let alone = self.write(scene, &mut crew, side, 0)?;
        self.clear(scene, &mut crew, side)?;
        let mut sweeps = self.sweeps_of(&mut crew, alone.total_s, scene.spec.steps())?;
        let mut rounds = Vec::new();
        for round in 0..self.rounds {
            self.progress.step(&format!("{}, hidden behind computing", scene.title), round, self.rounds);
            let io = self.write(scene, &mut crew, side, 0)?;
            self.clear(scene, &mut crew, side)?;
            let before_s = compute_for(&mut crew, &mut sweeps, io.total_s)?;
            let both = self.write(scene, &mut crew, side, sweeps)?;
            self.clear(scene, &mut crew, side)?;
            // A change of the machine's speed affects both.
            let compute_s = f64::midpoint(before_s, crew.compute(sweeps)?);
            rounds.push(Hidden {
                io_s: io.total_s,
                compute_s,
                both_s: both.total_s,
                both_compute_s: both.compute_s,
            });
        }
        Ok(rounds)
    }

    /// Sweeps before each of `steps` steps that take `seconds` in total.
    fn sweeps_of(&self, crew: &mut KernelWorkers, seconds: f64, steps: u64) -> Result<u64, BenchError> {
        let per_s = crew.sweeps_per_s()?;
        #[expect(clippy::cast_precision_loss, reason = "a count of some thousands")]
        let seconds = seconds / steps as f64;
        Ok(scaled(1, per_s * seconds))
    }
}

/// Computes for about `seconds`, adjusting the sweeps; returns the time. The speed of a core changes from minute to minute.
fn compute_for(crew: &mut KernelWorkers, sweeps: &mut u64, seconds: f64) -> Result<f64, BenchError> {
    let mut took = crew.compute(*sweeps)?;
    for _ in 0..TRIES_MAX {
        if (took / seconds - 1.0).abs() < CLOSE_ENOUGH {
            break;
        }
        *sweeps = scaled(*sweeps, seconds / took);
        took = crew.compute(*sweeps)?;
    }
    Ok(took)
}

fn scaled(sweeps: u64, by: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a count of some thousands"
    )]
    let scaled = (sweeps as f64 * by).ceil() as u64;
    scaled.max(1)
}

/// One repetition of [`KernelFixture::hide`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Hidden {
    pub(super) io_s: f64,
    pub(super) compute_s: f64,
    pub(super) both_s: f64,
    /// Computing time while writing in the background.
    pub(super) both_compute_s: f64,
}

impl Hidden {
    /// Share of the writing time that was hidden.
    pub(super) fn share(&self) -> f64 {
        1.0 - (self.both_s - self.compute_s) / self.io_s
    }

    /// Slowdown of computing beside writing.
    pub(super) fn slowdown(&self) -> f64 {
        self.both_compute_s / self.compute_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_what_the_whole_does_not_get_longer_by() {
        let hidden = Hidden { io_s: 1.0, compute_s: 1.0, both_s: 1.25, both_compute_s: 1.1 };
        assert_eq!((hidden.share(), hidden.slowdown()), (0.75, 1.1));
        let not_at_all = Hidden { both_s: 2.0, ..hidden };
        assert_eq!(not_at_all.share(), 0.0);
    }
}
