//! Crossed waits: threads of one team call on different handles and wait for each other.
//!
//! A member that has waited for [`CHECK`] notes its wait. If the members of a round and those that wait on other handles are a whole team,
//! no member can come any more: the calls of all of them fail, and name two threads.
//!
//! Positions alone do not tell a team from another one with equal numbers: a wait on another handle counts only if that thread was the member
//! at its position in an earlier call of one of the two handles.
//!
//! Never: fails a call while a member of the team runs. Always: a wait that is over is forgotten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::core::{TeamCore, TeamState};
use super::error::{TeamCode, TeamError};
use super::membership::Membership;
use super::position::Position;
use super::round::{Caller, Round};

/// A wait is noted, and compared with others, at this distance.
pub(super) const CHECK: Duration = Duration::from_millis(200);

/// A thread at a position, counted from outside of all teams.
#[derive(Clone, Copy, Debug)]
struct PlacedThread {
    position: Position,
    identity: u64,
}

impl PlacedThread {
    /// The same thread at the same numbers; sizes of teams may have changed.
    fn is_same(&self, other: &PlacedThread) -> bool {
        self.identity == other.identity && self.position.cmp(&other.position).is_eq()
    }
}

/// A member that waits for others.
struct NotedWait {
    thread: PlacedThread,
    core: Arc<TeamCore>,
    /// Function and file.
    what: String,
    /// Members of the last complete call on its handle.
    mates: Vec<PlacedThread>,
}

static WAITS: Mutex<Vec<NotedWait>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<NotedWait>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A member that may be compared with those that wait on other handles.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingMember<'a> {
    pub(super) core: &'a Arc<TeamCore>,
    pub(super) caller: Caller,
}

/// The note of one wait; forgotten when dropped.
#[derive(Debug, Default)]
pub(super) struct WaitNote {
    identity: Option<u64>,
}

impl Drop for WaitNote {
    fn drop(&mut self) {
        let Some(identity) = self.identity else { return };
        let mut waits = lock();
        let at = waits.iter().position(|wait| wait.thread.identity == identity);
        let forgotten = at.map(|at| waits.swap_remove(at));
        drop(waits);
        drop(forgotten);
    }
}

/// Calls that wait for each other: the handles, and the error of all.
pub(super) struct CrossedCalls {
    /// The handle, and the round on it, where this was found.
    found_on: Arc<TeamCore>,
    round: u64,
    cores: Vec<Arc<TeamCore>>,
    threads: Vec<PlacedThread>,
    error: TeamError,
}

impl WaitNote {
    /// Notes the wait of a member in the incomplete `round`, and finds out whether it is crossed with waits on other handles.
    pub(super) fn check(
        &mut self,
        waiter: &WaitingMember<'_>,
        state: &TeamState,
        round: &Round,
    ) -> Option<CrossedCalls> {
        let WaitingMember { core, caller } = waiter;
        let thread = core.placed(caller).filter(|_| caller.set == 0)?;
        let mates: Vec<PlacedThread> = state.mates.iter().filter_map(|mate| core.placed(mate)).collect();
        let what = format!("{} on {}", round.function.name(), core.name);
        let is_mate = |wait: &NotedWait| {
            mates.iter().any(|mate| mate.is_same(&wait.thread))
                || wait.mates.iter().any(|mate| mate.is_same(&thread))
        };
        let mut waits = lock();
        let others = waits.iter().filter(|wait| !Arc::ptr_eq(&wait.core, core) && is_mate(wait));
        let others: Vec<&NotedWait> = others.collect();
        let found = match others.first() {
            Some(other) if core.is_whole(&round.membership, &others) => {
                let text = format!(
                    "threads {} and {} do not agree: {what} and {}",
                    thread.position, other.thread.position, other.what
                );
                let mut cores: Vec<Arc<TeamCore>> =
                    others.iter().map(|wait| Arc::clone(&wait.core)).collect();
                cores.push(Arc::clone(core));
                // Locked in the order of their addresses.
                cores.sort_by_key(|core| Arc::as_ptr(core).addr());
                cores.dedup_by(|one, two| Arc::ptr_eq(one, two));
                let threads = others.iter().map(|wait| wait.thread).collect();
                let error = TeamError::new(TeamCode::NotSame, text);
                Some(CrossedCalls { found_on: Arc::clone(core), round: round.number, cores, threads, error })
            }
            Some(_) | None => None,
        };
        if self.identity.is_none() {
            self.identity = Some(caller.identity);
            waits.push(NotedWait { thread, core: Arc::clone(core), what, mates });
        }
        found
    }
}

impl CrossedCalls {
    /// Fails the calls on all handles at once, so that no member of one takes part in a call that is about to fail. Needs that the caller holds
    /// no lock of a handle.
    pub(super) fn fail(&self) {
        let mut states: Vec<MutexGuard<'_, TeamState>> = self.cores.iter().map(|core| core.lock()).collect();
        // Another member may have failed these calls meanwhile: then the round is over. Waits end under these locks: those that are noted now
        // stay.
        let first = |state: &TeamState| state.first_incomplete(u64::MAX).map(|round| round.number);
        let is_own = |core: &Arc<TeamCore>| Arc::ptr_eq(core, &self.found_on);
        let mut pairs = self.cores.iter().zip(&states);
        let is_current = pairs.any(|(core, state)| is_own(core) && first(state) == Some(self.round));
        let waits = lock();
        let still_waits = |thread: &PlacedThread| {
            waits.iter().any(|wait| wait.thread.is_same(thread) && !is_own(&wait.core))
        };
        if !is_current || !self.threads.iter().all(still_waits) {
            return;
        }
        drop(waits);
        for (core, state) in self.cores.iter().zip(&mut states) {
            core.fail_incomplete(state, &self.error);
        }
    }
}

impl TeamCore {
    /// This thread's place among all teams.
    fn placed(&self, caller: &Caller) -> Option<PlacedThread> {
        let levels = self.place.levels().iter().chain(caller.position.levels()).copied();
        Some(PlacedThread { position: Position::from_levels(levels)?, identity: caller.identity })
    }

    /// Whether the members of a round and those of `others` are a whole team.
    fn is_whole(&self, members: &Membership, others: &[&NotedWait]) -> bool {
        let mut all = members.clone();
        for wait in others {
            let Some(below) = wait.thread.position.below(&self.place) else { return false };
            if all.index(&below).is_none() && all.add(below).is_err() {
                return false;
            }
        }
        all.first_missing().is_none()
    }

    /// Fails all calls that lack members.
    fn fail_incomplete(&self, state: &mut TeamState, error: &TeamError) {
        while let Some(number) = state.first_incomplete(u64::MAX).map(|round| round.number) {
            if let Some(round) = state.round(number) {
                (round.is_abandoned, round.is_crossed) = (true, true);
            }
            self.fail(state, number, error.clone());
        }
        state.retire();
        self.tell(state);
    }
}
