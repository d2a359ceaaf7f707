//! One comparison: its sides alternate, repetition by repetition, each in a process of its own.
//!
//! The processes live as long as the scenario. Every side is verified once, byte by byte, before the timed runs; the first repetition is
//! not counted. Removing files, and waiting for it, is not timed.

use std::collections::BTreeMap;

use super::job::{TeamJob, TeamWork};
use super::pattern::TeamPattern;
use super::side::TeamSide;
use super::{PARTITION, TeamBench};
use crate::backed;
use crate::error::BenchError;
use crate::figures::{Goal, Versus};
use crate::job::{BenchJob, JobOutcome};
use crate::worker::Worker;

/// Specification of a comparison.
#[derive(Clone, Debug)]
pub(super) struct TeamScenario {
    /// Prefix of the names of speeds.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) pattern: TeamPattern,
    pub(super) threads: u32,
    pub(super) files: u32,
    pub(super) sides: Vec<TeamSide>,
    /// Whether files are read as well.
    pub(super) is_read: bool,
    /// Computing of each thread before each call.
    pub(super) sweeps: u64,
}

impl TeamScenario {
    /// Parts of equal size, one file, written and read.
    pub(super) fn parts(name: &str, threads: u32, part_bytes: u64, bytes: u64) -> TeamScenario {
        let calls = (bytes / part_bytes / u64::from(threads)).max(1);
        let part = pario::core::Size(part_bytes);
        TeamScenario {
            name: name.to_owned(),
            title: format!("{threads} threads, parts of {part}, {calls} calls"),
            pattern: TeamPattern::Parts { part_bytes, calls },
            threads,
            files: 1,
            sides: TeamSide::ALL.to_vec(),
            is_read: true,
            sweeps: 0,
        }
    }

    /// Bytes of all files.
    pub(super) fn data_bytes(&self) -> u64 {
        self.pattern.data_bytes(self.threads) * u64::from(self.files)
    }
}

/// Times of one side in one repetition.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TeamSample {
    pub(super) write: JobOutcome,
    pub(super) read_s: Option<f64>,
    /// After its container was flattened.
    pub(super) flat_read_s: Option<f64>,
}

/// Kind of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TeamTime {
    Write,
    /// Writing without computing.
    WriteOnly,
    Read,
    /// Reading a flattened container.
    FlatRead,
}

impl TeamSample {
    fn time(&self, kind: TeamTime) -> Option<f64> {
        match kind {
            TeamTime::Write => Some(self.write.seconds),
            TeamTime::WriteOnly => Some(self.write.calls_seconds),
            TeamTime::Read => self.read_s,
            TeamTime::FlatRead => self.flat_read_s,
        }
    }
}

/// All repetitions of a scenario, by side.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TeamSamples(BTreeMap<TeamSide, Vec<TeamSample>>);

impl TeamSamples {
    /// Times of a side; empty if it was not measured.
    pub(super) fn times(&self, side: TeamSide, kind: TeamTime) -> Vec<f64> {
        self.0.get(&side).into_iter().flatten().filter_map(|sample| sample.time(kind)).collect()
    }

    /// The shorter time of two sides, repetition by repetition.
    pub(super) fn best_times(&self, sides: [TeamSide; 2], kind: TeamTime) -> Vec<f64> {
        let [one, two] = sides.map(|side| self.times(side, kind));
        if one.is_empty() || two.is_empty() {
            return if one.is_empty() { two } else { one };
        }
        one.into_iter().zip(two).map(|(one, two)| one.min(two)).collect()
    }
}

impl TeamBench<'_> {
    /// Runs a scenario on the running partition, and keeps its speeds.
    pub(super) fn run_scenario(&mut self, scenario: &TeamScenario) -> Result<TeamSamples, BenchError> {
        let sides = self.wanted(&scenario.sides);
        let mut workers = BTreeMap::new();
        for side in &sides {
            self.progress.show(&format!("{}: verifying {}", scenario.title, side.word()));
            let mut worker = Worker::start(&self.testbed.registry_path(), &[])?;
            worker.run_job(&self.job(scenario, *side, TeamWork::Verify))?;
            worker.run_job(&self.job(scenario, *side, TeamWork::Remove))?;
            workers.insert(*side, worker);
        }
        let mut samples = TeamSamples::default();
        for round in 0..=self.plan.pairs {
            self.progress.step(&scenario.title, round.saturating_sub(1), self.plan.pairs);
            // Each repetition starts with another side, so that none always follows the same one.
            for index in 0..sides.len() {
                let side = sides[(index + round) % sides.len()];
                let Some(worker) = workers.get_mut(&side) else { continue };
                let sample = self.sample(scenario, side, worker)?;
                if 0 < round {
                    samples.0.entry(side).or_default().push(sample);
                }
            }
        }
        self.keep_speeds(scenario, &samples);
        Ok(samples)
    }

    fn sample(
        &self,
        scenario: &TeamScenario,
        side: TeamSide,
        worker: &mut Worker,
    ) -> Result<TeamSample, BenchError> {
        backed::touch(scenario.data_bytes().saturating_mul(2));
        let mut sample = TeamSample {
            write: worker.run_job(&self.job(scenario, side, TeamWork::Write))?,
            ..TeamSample::default()
        };
        if scenario.is_read {
            let read = self.job(scenario, side, TeamWork::Read);
            sample.read_s = Some(worker.run_job(&read)?.seconds);
            if side == TeamSide::Log {
                worker.run_job(&self.job(scenario, side, TeamWork::Flatten))?;
                sample.flat_read_s = Some(worker.run_job(&read)?.seconds);
            }
        }
        worker.run_job(&self.job(scenario, side, TeamWork::Remove))?;
        if side == TeamSide::Partition {
            self.testbed.wait_idle(PARTITION)?;
        }
        Ok(sample)
    }

    fn job(&self, scenario: &TeamScenario, side: TeamSide, work: TeamWork) -> BenchJob {
        BenchJob::Team(Box::new(TeamJob {
            work,
            side,
            pattern: scenario.pattern.clone(),
            threads: scenario.threads,
            files: scenario.files,
            path: self.testbed.plain_file(),
            partition: PARTITION.to_owned(),
            settings: String::new(),
            sync: self.plan.sync,
            sweeps: scenario.sweeps,
            steady: false,
        }))
    }

    /// Adds a ratio of speeds, unless a side was not measured; a goal of 0 is none.
    pub(super) fn add_ratio(&mut self, name: &str, versus: Option<Versus>, goal: f64, note: &str) {
        let Some(versus) = versus else { return };
        let goal = if 0.0 < goal { Goal::AtLeast(goal) } else { Goal::None };
        self.add(name, versus.ratio(), goal, note);
    }
}

/// Times of two sides, repetition by repetition; `None` if one was not measured.
pub(super) fn versus(yardstick_s: &[f64], own_s: &[f64]) -> Option<Versus> {
    let mut versus = Versus::default();
    let pairs = yardstick_s.iter().zip(own_s);
    pairs.for_each(|(yardstick, own)| versus.pair(*yardstick, *own));
    (!yardstick_s.is_empty() && !own_s.is_empty()).then_some(versus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_two_sides_is_that_of_each_repetition() {
        let sample = |seconds: f64| TeamSample {
            write: JobOutcome { seconds, ..JobOutcome::default() },
            ..TeamSample::default()
        };
        let mut samples = TeamSamples::default();
        samples.0.insert(TeamSide::Serial, vec![sample(1.0), sample(4.0)]);
        samples.0.insert(TeamSide::OneFile, vec![sample(2.0), sample(3.0)]);
        let best = |sides| samples.best_times(sides, TeamTime::Write);
        assert_eq!(best([TeamSide::Serial, TeamSide::OneFile]), [1.0, 3.0]);
        assert_eq!(best([TeamSide::Serial, TeamSide::Log]), [1.0, 4.0], "one was not measured");
        assert!(samples.times(TeamSide::Serial, TeamTime::Read).is_empty());
    }
}
