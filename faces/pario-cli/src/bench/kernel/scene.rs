//! One comparison: the sides of a kernel in turn, round by round, on one partition.
//!
//! Cold: the first pass of fresh processes. Warm: the last pass of the same ones. Every side is verified once, byte by byte, before
//! anything is timed; the first round is not counted. Before each pass, whatever its side, as much free memory is touched as it may use.

use std::collections::BTreeMap;

use super::super::backed;
use super::super::error::BenchError;
use super::super::ground::Ground;
use super::super::progress::Progress;
use super::crew::{Crew, Pass, Task};
use super::plain::IMAGE_BYTES_MAX;
use super::shapes::Spec;
use super::side::Side;

/// Computing is as long as staging when it is within this share of it.
const CLOSE_ENOUGH: f64 = 0.05;
/// Attempts to compute for as long as staging takes.
const TRIES_MAX: usize = 4;

/// What is compared, and how.
#[derive(Clone, Debug)]
pub(super) struct Scene<'a> {
    /// Said while it runs and above its table.
    pub(super) title: String,
    pub(super) spec: Spec,
    pub(super) ranks: u64,
    pub(super) partition: &'a str,
    pub(super) sides: Vec<Side>,
    pub(super) directions: Directions,
    /// Writing passes of the same processes; the first is cold, the last is warm.
    pub(super) passes: usize,
    /// Computing before each step.
    pub(super) compute_ms: Option<f64>,
    pub(super) limit_bytes_s: Option<u64>,
    /// The node that the processes play, if another than the servers'.
    pub(super) node: Option<&'a str>,
    /// Who holds the namespaces of their host, if it is another.
    pub(super) holder: Option<u32>,
    /// Of each process.
    pub(super) outbox_bytes: u64,
}

/// Which ways data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Directions {
    /// Write only.
    Write,
    /// Write, then read.
    Both,
}

/// Passes of one side in one round, cold and warm.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Take {
    pub(super) write: [Pass; 2],
    pub(super) read: [Pass; 2],
}

/// All rounds of a scene, by side.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Takes(BTreeMap<Side, Vec<Take>>);

impl Takes {
    /// The rounds of a side; none if it was not played.
    pub(super) fn of(&self, side: Side) -> &[Take] {
        self.0.get(&side).map_or(&[], Vec::as_slice)
    }

    /// Sides that were played.
    pub(super) fn sides(&self) -> impl Iterator<Item = Side> + '_ {
        self.0.keys().copied()
    }

    pub(super) fn push(&mut self, side: Side, take: Take) {
        self.0.entry(side).or_default().push(take);
    }
}

/// Where scenes are played.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) ground: Ground,
    pub(super) progress: Progress,
    /// Rounds that count.
    pub(super) rounds: usize,
    /// Whether free memory is touched before each pass.
    pub(super) backed: bool,
}

impl Scene<'_> {
    fn task(&self) -> Task<'_> {
        let Scene { spec, ranks, partition, limit_bytes_s, node, holder, .. } = self;
        Task { spec, ranks: *ranks, partition, limit_bytes_s: *limit_bytes_s, node: *node, holder: *holder }
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.spec.data_bytes(self.ranks)
    }

    /// What any side of it may use of fresh memory: the file with its holes, the data once more on its way, and what each process has.
    fn memory_bytes(&self) -> u64 {
        let file_bytes = self.spec.span_bytes(self.ranks).saturating_mul(self.spec.steps());
        let each = (self.outbox_bytes + IMAGE_BYTES_MAX).min(file_bytes.saturating_mul(2));
        file_bytes.saturating_add(self.data_bytes()).saturating_add(self.ranks * each)
    }
}

impl Stage {
    /// Plays a scene.
    pub(super) fn play(&self, scene: &Scene<'_>) -> Result<Takes, BenchError> {
        for side in &scene.sides {
            self.progress.say(&format!("{}: verifying {}", scene.title, side.word()));
            self.verify(scene, *side)?;
        }
        let sweeps = self.sweeps(scene, scene.compute_ms.unwrap_or(0.0) / 1e3)?;
        let mut takes = Takes::default();
        for round in 0..=self.rounds {
            self.progress.step(&scene.title, round.saturating_sub(1), self.rounds);
            // Each round starts with another side, so that none always follows the same one.
            for index in 0..scene.sides.len() {
                let side = scene.sides[(index + round) % scene.sides.len()];
                let take = self.take(scene, side, sweeps)?;
                if 0 < round {
                    takes.push(side, take);
                }
            }
        }
        Ok(takes)
    }

    /// How much of the stencil takes so long while all ranks compute.
    pub(super) fn sweeps(&self, scene: &Scene<'_>, seconds: f64) -> Result<u64, BenchError> {
        if seconds <= 0.0 {
            return Ok(0);
        }
        let per_s = Crew::start(&self.ground, &scene.task())?.sweeps_per_s()?;
        Ok(scaled(1, per_s * seconds))
    }

    fn verify(&self, scene: &Scene<'_>, side: Side) -> Result<(), BenchError> {
        if !side.is_by_view() {
            return Ok(());
        }
        let mut crew = Crew::start(&self.ground, &scene.task())?;
        crew.verify(side)?;
        self.clear(scene, &mut crew, side)
    }

    fn take(&self, scene: &Scene<'_>, side: Side, sweeps: u64) -> Result<Take, BenchError> {
        let mut take = Take::default();
        let mut crew = Crew::start(&self.ground, &scene.task())?;
        take.write[0] = self.write(scene, &mut crew, side, sweeps)?;
        for _ in 1..scene.passes {
            self.clear(scene, &mut crew, side)?;
            take.write[1] = self.write(scene, &mut crew, side, sweeps)?;
        }
        if scene.directions == Directions::Both {
            // What is private is gone with its process.
            if !side.is_private() {
                drop(crew);
                crew = Crew::start(&self.ground, &scene.task())?;
            }
            self.back(scene);
            take.read = [crew.read(side)?, crew.read(side)?];
        }
        self.clear(scene, &mut crew, side)?;
        Ok(take)
    }

    /// A pass that counts.
    fn write(&self, scene: &Scene<'_>, crew: &mut Crew, side: Side, sweeps: u64) -> Result<Pass, BenchError> {
        self.back(scene);
        crew.write(side, sweeps)
    }

    /// Sees to it that the host has backed the memory of the next pass.
    fn back(&self, scene: &Scene<'_>) {
        if self.backed {
            backed::touch(scene.memory_bytes());
        }
    }

    /// Removes the file and waits until that costs nothing any more.
    fn clear(&self, scene: &Scene<'_>, crew: &mut Crew, side: Side) -> Result<(), BenchError> {
        crew.remove(side)?;
        if side.is_private() { Ok(()) } else { self.ground.settle(scene.partition) }
    }

    /// Times of writing alone, computing alone, before and after, and both, with computing as long as writing; round by round.
    pub(super) fn hide(&self, scene: &Scene<'_>, side: Side) -> Result<Vec<Hidden>, BenchError> {
        let mut crew = Crew::start(&self.ground, &scene.task())?;
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
            // A machine that became slower or faster meanwhile did so for both.
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

    /// Sweeps before each of so many steps that take `seconds` in all.
    fn sweeps_of(&self, crew: &mut Crew, seconds: f64, steps: u64) -> Result<u64, BenchError> {
        let per_s = crew.sweeps_per_s()?;
        #[expect(clippy::cast_precision_loss, reason = "a count of some thousands")]
        let seconds = seconds / steps as f64;
        Ok(scaled(1, per_s * seconds))
    }
}

/// Computes for about `seconds`, sweeping more or less until it does; the time that it took. How fast a core is changes from minute to minute.
fn compute_for(crew: &mut Crew, sweeps: &mut u64, seconds: f64) -> Result<f64, BenchError> {
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

/// One round of [`Stage::hide`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Hidden {
    pub(super) io_s: f64,
    pub(super) compute_s: f64,
    pub(super) both_s: f64,
    /// Computing, while writing was under way.
    pub(super) both_compute_s: f64,
}

impl Hidden {
    /// The share of writing that did not make the whole longer.
    pub(super) fn share(&self) -> f64 {
        1.0 - (self.both_s - self.compute_s) / self.io_s
    }

    /// How much longer computing took beside writing.
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
