//! The worker processes of one run of a kernel, and their results.
//!
//! Always: the processes end before the hub of their group; the others notice one that ends or gives up.

use std::collections::BTreeMap;

use pario::group::{Hub, NODE_VARIABLE};

use super::super::error::BenchError;
use super::super::job::{BenchJob, JobOutcome};
use super::super::testbed::Testbed;
use super::super::worker::{Worker, together};
use super::rank::{KernelJob, RankParams};
use super::shapes::ShapeSpec;
use super::side::KernelSide;

/// Specification of the workers.
#[derive(Clone, Debug)]
pub(crate) struct WorkerTask<'a> {
    pub(crate) spec: &'a ShapeSpec,
    pub(crate) ranks: u64,
    pub(crate) partition: &'a str,
    pub(crate) limit_bytes_s: Option<u64>,
    /// Node label of the processes, if different from the servers'.
    pub(crate) node: Option<&'a str>,
    /// Process that holds the namespaces of their host, if different.
    pub(crate) holder: Option<u32>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct KernelWorkers {
    workers: Vec<Worker>,
    _hub: Hub,
}

/// Sum over all ranks of one pass.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct KernelPass {
    /// Open to close, slowest rank.
    pub(crate) total_s: f64,
    /// Inside calls, slowest rank.
    pub(crate) calls_s: f64,
    /// Computing, slowest rank.
    pub(crate) compute_s: f64,
    /// Calls of all.
    pub(crate) calls: u64,
    /// Counts of all.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl KernelWorkers {
    /// Fresh processes, joined to their group.
    pub(crate) fn start(ground: &Testbed, task: &WorkerTask<'_>) -> Result<KernelWorkers, BenchError> {
        let ranks = usize::try_from(task.ranks).unwrap_or(usize::MAX);
        let hub = Hub::start(ranks)?;
        let node: Vec<(&str, &str)> = task.node.map(|node| (NODE_VARIABLE, node)).into_iter().collect();
        let start = |rank| Worker::inside(task.holder, &ground.registry_path(), &hub.invitation(rank), &node);
        let workers = (0..ranks).map(start).collect::<Result<Vec<_>, _>>()?;
        let seat = |rank: usize| RankParams {
            spec: task.spec.clone(),
            rank: rank as u64,
            ranks: task.ranks,
            partition: task.partition.to_owned(),
            plain: ground.plain_file(),
            limit_bytes_s: task.limit_bytes_s,
        };
        let seats: Vec<RankParams> = (0..ranks).map(seat).collect();
        let mut crew = KernelWorkers { workers, _hub: hub };
        together(&mut crew.workers, |rank| BenchJob::Kernel(KernelJob::Join(Box::new(seats[rank].clone()))))?;
        Ok(crew)
    }

    /// Writes a fresh file.
    pub(crate) fn write(&mut self, side: KernelSide, sweeps: u64) -> Result<KernelPass, BenchError> {
        self.all(&KernelJob::Write { side, sweeps })
    }

    /// Reads it.
    pub(crate) fn read(&mut self, side: KernelSide) -> Result<KernelPass, BenchError> {
        self.all(&KernelJob::Read { side })
    }

    /// Writes and checks every byte.
    pub(crate) fn verify(&mut self, side: KernelSide) -> Result<(), BenchError> {
        self.all(&KernelJob::Verify { side }).map(|_| ())
    }

    /// Computes without writing; returns the time.
    pub(crate) fn compute(&mut self, sweeps: u64) -> Result<f64, BenchError> {
        Ok(self.all(&KernelJob::Compute { sweeps })?.total_s)
    }

    /// Sweeps per second of the slowest rank while all sweep.
    pub(crate) fn sweeps_per_s(&mut self) -> Result<f64, BenchError> {
        let outcomes = together(&mut self.workers, |_| BenchJob::Kernel(KernelJob::Calibrate))?;
        Ok(outcomes.iter().map(|outcome| outcome.seconds).fold(f64::INFINITY, f64::min))
    }

    /// Removes the file of a side; memory is kept, so that it stays warm.
    pub(crate) fn remove(&mut self, side: KernelSide) -> Result<(), BenchError> {
        if !side.is_private() {
            self.workers[0].run_job(&BenchJob::Kernel(KernelJob::Remove { side }))?;
        }
        Ok(())
    }

    fn all(&mut self, job: &KernelJob) -> Result<KernelPass, BenchError> {
        Ok(KernelPass::of(&together(&mut self.workers, |_| BenchJob::Kernel(job.clone()))?))
    }
}

impl KernelPass {
    fn of(outcomes: &[JobOutcome]) -> KernelPass {
        let mut pass = KernelPass::default();
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

    /// A counter by name; 0 if absent.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_as_long_as_its_slowest_rank_and_counts_all() {
        let outcome = |seconds: f64, messages: u64| JobOutcome {
            seconds,
            calls_seconds: 3.0 - seconds,
            calls: 1,
            counts: [("messages".to_owned(), messages), ("compute_ns".to_owned(), 1_000_000)].into(),
        };
        let pass = KernelPass::of(&[outcome(1.0, 3), outcome(2.0, 4)]);
        assert_eq!((pass.total_s, pass.calls_s, pass.calls), (2.0, 2.0, 2));
        assert_eq!((pass.count("messages"), pass.count("copies")), (7, 0));
        assert_eq!(pass.compute_s, 0.001);
    }
}
