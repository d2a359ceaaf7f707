//! Runs of the model, several concurrently: each is a job for a thread, and the results are in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::judged::{Judged, Unscheduled};
use super::model::{App, ModelRun, Params, RunResult};
use crate::progress::BenchProgress;

/// Name for no scheduler.
pub(crate) const NONE: &str = "none";

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ModelJob {
    pub(crate) policy: String,
    pub(crate) apps: Vec<App>,
    pub(crate) seed: u64,
}

impl ModelJob {
    pub(crate) fn new(policy: &str, apps: Vec<App>, seed: u64) -> ModelJob {
        ModelJob { policy: policy.to_owned(), apps, seed }
    }

    /// Runs it; the policy exists.
    fn result(&self) -> RunResult {
        if self.policy == NONE {
            return ModelRun::run(&Params::PAPER, &self.apps, &mut Unscheduled::default(), self.seed);
        }
        let mut judged = Judged::new(&self.policy).expect("policies are checked before anything runs");
        ModelRun::run(&Params::PAPER, &self.apps, &mut judged, self.seed)
    }
}

/// Runs all on all processors.
pub(crate) fn all(what: &str, runs: &[ModelJob], progress: &BenchProgress) -> Vec<RunResult> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<RunResult>>> = Mutex::new(vec![None; runs.len()]);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(at) else { break };
            progress.step(what, at, runs.len());
            let result = run.result();
            done.lock().expect("no run panics while it holds the results")[at] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(runs.len());
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().expect("no run panics while it holds the results");
    done.into_iter().map(|result| result.expect("every run was carried out")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_runs_whatever_the_threads_do() {
        let app = |clients| vec![App::reader("a", 4 << 20, clients, 32 << 10)];
        let runs: Vec<ModelJob> = (1..5).map(|clients| ModelJob::new(NONE, app(clients), 1)).collect();
        let results = all("test", &runs, &BenchProgress::new());
        for (run, result) in runs.iter().zip(&results) {
            assert_eq!(result, &run.result());
        }
        assert_ne!(results[0], results[1]);
    }
}
