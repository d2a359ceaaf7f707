//! Threads of a handle's own, for a program that has one thread: they carry out work items of its calls.
//!
//! Never: bring parts; outlive the handle that started them. Always: started before the first call, ended by dropping.

use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;

use super::core::TeamCore;
use super::error::{TeamError, TeamResult};
use super::wait::NOTICE;
use super::work::Work;

/// Running helper threads.
#[derive(Debug)]
pub(super) struct HelperThreads {
    core: Arc<TeamCore>,
    stop: Arc<()>,
    threads: Vec<JoinHandle<()>>,
}

impl HelperThreads {
    pub(super) fn start(core: &Arc<TeamCore>, threads: u32) -> TeamResult<HelperThreads> {
        let mut helpers = HelperThreads { core: Arc::clone(core), stop: Arc::new(()), threads: Vec::new() };
        for number in 0..threads {
            let (core, running) = (Arc::clone(core), Arc::downgrade(&helpers.stop));
            let thread = std::thread::Builder::new()
                .name(format!("pario-team-{number}"))
                .spawn(move || run(&core, &running))
                .map_err(|error| TeamError::from_io(&error, "starting a thread of a team"))?;
            helpers.threads.push(thread);
            helpers.core.lock().helpers += 1;
        }
        Ok(helpers)
    }
}

impl Drop for HelperThreads {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.helpers -= self.threads.len() as u64;
        // Threads look at it under the lock.
        self.stop = Arc::new(());
        self.core.tell(&mut state);
        drop(state);
        for thread in self.threads.drain(..) {
            // A panic of a helper was reported as the error of its item.
            drop(thread.join());
        }
    }
}

fn run(core: &TeamCore, running: &Weak<()>) {
    let mut state = core.lock();
    while running.strong_count() != 0 {
        let work = state
            .rounds
            .iter_mut()
            .filter(|round| round.has_items() && !round.plan.is_small)
            .find_map(Work::take);
        if let Some(work) = work {
            drop(state);
            core.carry_out(work);
            state = core.lock();
            continue;
        }
        state.sleepers += 1;
        state = core.changed.wait_timeout(state, NOTICE).unwrap_or_else(PoisonError::into_inner).0;
        state.sleepers -= 1;
    }
}
