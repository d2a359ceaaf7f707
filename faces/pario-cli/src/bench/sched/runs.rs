//! Runs of the model, several at a time: each is a job for a thread, and the results come in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::judged::{Judged, Unscheduled};
use super::model::{App, Params, RunResult, World};
use crate::bench::progress::Progress;

/// The name under which no scheduler at all takes part.
pub(crate) const NONE: &str = "none";

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) policy: String,
    pub(crate) apps: Vec<App>,
    pub(crate) seed: u64,
}

impl Run {
    pub(crate) fn new(policy: &str, apps: Vec<App>, seed: u64) -> Run {
        Run { policy: policy.to_owned(), apps, seed }
    }

    /// Carries it out; the policy is known to exist.
    fn result(&self) -> RunResult {
        if self.policy == NONE {
            return World::run(&Params::PAPER, &self.apps, &mut Unscheduled::default(), self.seed);
        }
        let mut judged = Judged::new(&self.policy).expect("policies are checked before anything runs");
        World::run(&Params::PAPER, &self.apps, &mut judged, self.seed)
    }
}

/// Carries out runs on all processors.
pub(crate) fn all(what: &str, runs: &[Run], progress: &Progress) -> Vec<RunResult> {
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
        let runs: Vec<Run> = (1..5).map(|clients| Run::new(NONE, app(clients), 1)).collect();
        let results = all("test", &runs, &Progress::new());
        for (run, result) in runs.iter().zip(&results) {
            assert_eq!(result, &run.result());
        }
        assert_ne!(results[0], results[1]);
    }
}
