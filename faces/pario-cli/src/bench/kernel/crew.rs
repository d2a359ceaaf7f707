//! The processes of one run of a kernel, and what they measured.
//!
//! Always: the processes end before the hub of their group does; one that ends or gives up is noticed by the others.

use std::collections::BTreeMap;

use pario::group::{Hub, NODE_VARIABLE};

use super::super::error::BenchError;
use super::super::ground::Ground;
use super::super::job::{Job, Outcome};
use super::super::worker::{Worker, together};
use super::rank::{KernelJob, Seat};
use super::shapes::Spec;
use super::side::Side;

/// What a crew works on.
#[derive(Clone, Debug)]
pub(super) struct Task<'a> {
    pub(super) spec: &'a Spec,
    pub(super) ranks: u64,
    pub(super) partition: &'a str,
    pub(super) limit_bytes_s: Option<u64>,
    /// The node that the processes play, if another than the servers'.
    pub(super) node: Option<&'a str>,
    /// Who holds the namespaces of their host, if it is another.
    pub(super) holder: Option<u32>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Crew {
    workers: Vec<Worker>,
    _hub: Hub,
}

/// What all ranks together came to in one pass.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Pass {
    /// Open to close, of the slowest.
    pub(super) total_s: f64,
    /// Inside calls, of the slowest.
    pub(super) calls_s: f64,
    /// Computing, of the slowest.
    pub(super) compute_s: f64,
    /// Calls of all.
    pub(super) calls: u64,
    /// Counts of all.
    pub(super) counts: BTreeMap<String, u64>,
}

impl Crew {
    /// Fresh processes, in their seats.
    pub(super) fn start(ground: &Ground, task: &Task<'_>) -> Result<Crew, BenchError> {
        let ranks = usize::try_from(task.ranks).unwrap_or(usize::MAX);
        let hub = Hub::start(ranks)?;
        let node: Vec<(&str, &str)> = task.node.map(|node| (NODE_VARIABLE, node)).into_iter().collect();
        let start = |rank| Worker::inside(task.holder, &ground.registry_path(), &hub.invitation(rank), &node);
        let workers = (0..ranks).map(start).collect::<Result<Vec<_>, _>>()?;
        let seat = |rank: usize| Seat {
            spec: task.spec.clone(),
            rank: rank as u64,
            ranks: task.ranks,
            partition: task.partition.to_owned(),
            plain: ground.plain_file(),
            limit_bytes_s: task.limit_bytes_s,
        };
        let seats: Vec<Seat> = (0..ranks).map(seat).collect();
        let mut crew = Crew { workers, _hub: hub };
        together(&mut crew.workers, |rank| Job::Kernel(KernelJob::Join(Box::new(seats[rank].clone()))))?;
        Ok(crew)
    }

    /// Writes a fresh file.
    pub(super) fn write(&mut self, side: Side, sweeps: u64) -> Result<Pass, BenchError> {
        self.all(&KernelJob::Write { side, sweeps })
    }

    /// Reads it.
    pub(super) fn read(&mut self, side: Side) -> Result<Pass, BenchError> {
        self.all(&KernelJob::Read { side })
    }

    /// Writes and checks every byte.
    pub(super) fn verify(&mut self, side: Side) -> Result<(), BenchError> {
        self.all(&KernelJob::Verify { side }).map(|_| ())
    }

    /// Computes without writing; how long it took.
    pub(super) fn compute(&mut self, sweeps: u64) -> Result<f64, BenchError> {
        Ok(self.all(&KernelJob::Compute { sweeps })?.total_s)
    }

    /// Sweeps a second of the slowest rank while all sweep.
    pub(super) fn sweeps_per_s(&mut self) -> Result<f64, BenchError> {
        let outcomes = together(&mut self.workers, |_| Job::Kernel(KernelJob::Calibrate))?;
        Ok(outcomes.iter().map(|outcome| outcome.seconds).fold(f64::INFINITY, f64::min))
    }

    /// Removes what a side wrote; memory is kept, so that it stays warm.
    pub(super) fn remove(&mut self, side: Side) -> Result<(), BenchError> {
        if !side.is_private() {
            self.workers[0].ask(&Job::Kernel(KernelJob::Remove { side }))?;
        }
        Ok(())
    }

    fn all(&mut self, job: &KernelJob) -> Result<Pass, BenchError> {
        Ok(Pass::of(&together(&mut self.workers, |_| Job::Kernel(job.clone()))?))
    }
}

impl Pass {
    fn of(outcomes: &[Outcome]) -> Pass {
        let mut pass = Pass::default();
        for outcome in outcomes {
            pass.total_s = pass.total_s.max(outcome.seconds);
            pass.calls_s = pass.calls_s.max(outcome.calls_seconds);
            pass.calls += outcome.calls;
            let compute_ns = outcome.counts.get("compute_ns").copied().unwrap_or(0);
            pass.compute_s = pass.compute_s.max(std::time::Duration::from_nanos(compute_ns).as_secs_f64());
            for (name, count) in &outcome.counts {
                *pass.counts.entry(name.clone()).or_default() += count;
            }
        }
        pass
    }

    /// A count by name; 0 if nobody counted it.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_as_long_as_its_slowest_rank_and_counts_all() {
        let outcome = |seconds: f64, messages: u64| Outcome {
            seconds,
            calls_seconds: 3.0 - seconds,
            calls: 1,
            counts: [("messages".to_owned(), messages), ("compute_ns".to_owned(), 1_000_000)].into(),
        };
        let pass = Pass::of(&[outcome(1.0, 3), outcome(2.0, 4)]);
        assert_eq!((pass.total_s, pass.calls_s, pass.calls), (2.0, 2.0, 2));
        assert_eq!((pass.count("messages"), pass.count("copies")), (7, 0));
        assert_eq!(pass.compute_s, 0.001);
    }
}
