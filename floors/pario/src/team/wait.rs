//! Waiting for other members: first on the processor, then asleep.
//!
//! Never: waits without a limit unnoticed: after 10 s a line names the missing thread. Always: a wait ends when the state changes, or the
//! caller's patience does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Nanos};
use pario_sys::MonotonicClock;
use pario_sys::processors::processors;

use super::core::{TeamCore, TeamState};
use super::counts::{add, print_line};
use super::crossed::{CHECK, WaitNote, WaitingMember};
use super::error::{TeamCode, TeamError, TeamResult};
use super::round::{Caller, Round};

/// Longest time on the processor: about what waking a sleeping thread costs.
const SPIN: Duration = Duration::from_micros(20);
/// After this time a line names the missing thread.
pub(super) const NOTICE: Duration = Duration::from_secs(10);

/// How long one call has waited.
#[derive(Debug)]
pub(super) struct Patience<'a> {
    began: Nanos,
    limit: Option<Duration>,
    noticed: bool,
    /// The member that waits, if it can be compared with those of other handles.
    waiter: Option<WaitingMember<'a>>,
}

impl<'a> Patience<'a> {
    pub(super) fn new(core: &TeamCore) -> Patience<'a> {
        Patience::with_limit(core.patience)
    }

    pub(super) fn with_limit(limit: Option<Duration>) -> Patience<'a> {
        Patience { began: MonotonicClock.now(), limit, noticed: false, waiter: None }
    }

    /// The patience of a member.
    pub(super) fn of(core: &'a Arc<TeamCore>, caller: &Caller) -> Patience<'a> {
        Patience { waiter: Some(WaitingMember { core, caller: *caller }), ..Patience::new(core) }
    }

    /// Time since the wait began.
    pub(super) fn waited(&self) -> Duration {
        MonotonicClock.now().since(self.began)
    }

    /// Time until the next notice or the end.
    pub(super) fn left(&self) -> Duration {
        let waited = MonotonicClock.now().since(self.began);
        let notice = if self.noticed { NOTICE } else { NOTICE.saturating_sub(waited) };
        let end = self.limit.map_or(NOTICE, |limit| limit.saturating_sub(waited));
        let check = if self.waiter.is_some() { CHECK } else { NOTICE };
        notice.min(end).min(check).max(Duration::from_millis(1))
    }

    /// Whether [`Patience::check`] prints or fails if a thread is missing.
    fn is_due(&self) -> bool {
        let waited = MonotonicClock.now().since(self.began);
        self.limit.is_some_and(|limit| limit <= waited) || NOTICE <= waited && !self.noticed
    }

    /// Prints the notice when it is due; an error when the patience is over. Without a missing thread there is neither: a call may take
    /// long.
    pub(super) fn check(&mut self, name: &str, missing: Option<String>) -> TeamResult<()> {
        let waited = MonotonicClock.now().since(self.began);
        let Some(missing) = missing else { return Ok(()) };
        if self.limit.is_some_and(|limit| limit <= waited) {
            let text = format!("{name}: {missing} after {} ms of waiting", waited.as_millis());
            return Err(TeamError::new(TeamCode::Lost, text));
        }
        if NOTICE <= waited && !self.noticed {
            self.noticed = true;
            print_line(&format!("pario: {name}: {missing} after {} s of waiting", waited.as_secs()));
        }
        Ok(())
    }
}

impl TeamCore {
    /// Waits until `ready`. When the patience is over, the first round up to number `last` that lacks a thread fails.
    pub(super) fn wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, TeamState>,
        patience: &mut Patience<'_>,
        ready: impl Fn(&TeamState) -> bool,
        last: u64,
    ) -> MutexGuard<'s, TeamState> {
        if ready(&state) {
            return state;
        }
        let began = MonotonicClock.now();
        let members = state.rounds.back().map_or(1, |round| round.membership.expected());
        if members <= processors() {
            let mut seen = self.news.load(Ordering::Acquire);
            drop(state);
            while MonotonicClock.now().since(began) < SPIN {
                (0..32).for_each(|_| std::hint::spin_loop());
                let now = self.news.load(Ordering::Acquire);
                if now != seen {
                    seen = now;
                    let state = self.lock();
                    if ready(&state) {
                        self.count_wait(began);
                        return state;
                    }
                }
            }
            state = self.lock();
        }
        let mut slept = 0;
        let mut note = WaitNote::default();
        while !ready(&state) {
            slept = 1;
            state.sleepers += 1;
            let waited = self.changed.wait_timeout(state, patience.left());
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.sleepers -= 1;
            if !ready(&state) {
                state = self.check_wait(state, patience, (&mut note, timeout.timed_out()), last);
            }
        }
        add(&self.counters.waits, slept);
        self.count_wait(began);
        state
    }

    /// Waits, asleep, for room for a round: the member is ahead of the others.
    pub(super) fn wait_for_room<'s>(
        self: &'s Arc<Self>,
        mut state: MutexGuard<'s, TeamState>,
        caller: &Caller,
        ready: impl Fn(&TeamState) -> bool,
    ) -> MutexGuard<'s, TeamState> {
        let (began, mut patience) = (MonotonicClock.now(), Patience::of(self, caller));
        let mut note = WaitNote::default();
        while !ready(&state) {
            state.room_sleepers += 1;
            let waited = self.room.wait_timeout(state, patience.left());
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.room_sleepers -= 1;
            if !ready(&state) {
                state = self.check_wait(state, &mut patience, (&mut note, timeout.timed_out()), u64::MAX);
            }
        }
        add(&self.counters.waits, 1);
        self.count_wait(began);
        state
    }

    /// Fails calls of threads that wait for each other on different handles, and the first round up to number `last` that lacks a thread
    /// once the patience is over.
    fn check_wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, TeamState>,
        patience: &mut Patience<'_>,
        (note, timed_out): (&mut WaitNote, bool),
        last: u64,
    ) -> MutexGuard<'s, TeamState> {
        let waiter = patience.waiter.zip(state.first_incomplete(last)).filter(|_| timed_out);
        let crossed = waiter.and_then(|(waiter, round)| note.check(&waiter, &state, round));
        if let Some(crossed) = crossed {
            drop(state);
            crossed.fail();
            return self.lock();
        }
        self.check_patience(&mut state, patience, last);
        state
    }

    /// Fails the first round up to number `last` that lacks a thread, once the patience is over.
    fn check_patience(&self, state: &mut TeamState, patience: &mut Patience<'_>, last: u64) {
        if !patience.is_due() {
            return;
        }
        let incomplete = state.first_incomplete(last);
        let missing = incomplete.and_then(Round::missing_text);
        let number = incomplete.map_or(0, |round| round.number);
        if let Err(error) = patience.check(&self.name, missing) {
            if let Some(round) = state.round(number) {
                round.is_abandoned = true;
            }
            self.fail(state, number, error);
            state.retire();
            self.tell(state);
        }
    }

    fn count_wait(&self, began: Nanos) {
        let nanos = MonotonicClock.now().since(began).as_nanos();
        add(&self.counters.wait_ns, u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}
