//! One member's way through a collective call: it comes, lends its memory or has it copied, works or waits, and leaves with the result.
//!
//! Never: waits for more than its call needs; leaves while another thread uses its memory. Always: every member of a call gets the same
//! result, except that an error of a write from which a member has gone on is told by the next call, to all.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use pario_core::Clock;
use pario_sys::MonotonicClock;
use pario_sys::lent::{LentMemory, LentSlot};

use super::arrival::Seat;
use super::call::{TeamCall, TeamFunction, TeamPlace};
use super::core::{TeamCore, TeamState};
use super::counts::{add, report};
use super::error::{TeamCode, TeamError, TeamResult};
use super::round::{Caller, MemberMemory, PointerChange, RoundStage};
use super::wait::Patience;
use super::work::Work;

/// Larger parts of members that are not active wait until they are written.
const COPY_BYTES_MAX: u64 = 1 << 20;

thread_local! {
    /// Where this thread lends its memory: a thread is in one call at a time.
    static SLOT: Arc<LentSlot> = Arc::default();
}

impl TeamCore {
    /// Carries out one member's call; returns the bytes that it transferred.
    pub(super) fn call(self: &Arc<Self>, caller: &Caller, call: &TeamCall<'_>) -> TeamResult<u64> {
        self.check_process()?;
        if let Some(copy) = self.copy_ahead(caller, call) {
            let (state, seat) = self.arrive(caller, call, MemberMemory::Copied(copy))?;
            return self.attend(state, seat);
        }
        if self.is_own_part(call) {
            let (state, seat) = self.arrive(caller, call, MemberMemory::Own)?;
            return self.write_own(state, caller, call, seat);
        }
        if call.buffers() == 0 {
            let (state, seat) = self.arrive(caller, call, MemberMemory::Nothing)?;
            return self.attend(state, seat);
        }
        // Lent before the round knows of it: a member that comes last plans at once.
        SLOT.with(|slot| {
            slot.lend(&call.memory, || {
                let (state, seat) = self.arrive(caller, call, MemberMemory::Lent(Arc::clone(slot)))?;
                self.attend(state, seat)
            })
        })
    }

    /// Whether the member writes its part itself: small parts of a partition's file.
    fn is_own_part(&self, call: &TeamCall<'_>) -> bool {
        call.function.is_write()
            && !call.function.is_common()
            && self.write_behind
            && call.refusal.is_none()
            && call.bytes < self.target.own_bytes_max()
    }

    /// Copies the part of a member that is not active, so that it can go on.
    fn copy_ahead(&self, caller: &Caller, call: &TeamCall<'_>) -> Option<Arc<Vec<u8>>> {
        let suits = call.function.is_write()
            && !call.function.is_common()
            && self.write_behind
            && call.refusal.is_none()
            && self.target.own_bytes_max() <= call.bytes
            && (1..=COPY_BYTES_MAX).contains(&call.bytes);
        if !suits {
            return None;
        }
        let mut state = self.lock();
        let is_active = caller.position.in_front_min() < state.tuner.choice().active;
        if is_active || state.is_closed || self.buffer_bytes < state.buffered + call.bytes {
            return None;
        }
        state.buffered += call.bytes;
        let mut copy = state.kept_buffers.pop().unwrap_or_default();
        drop(state);
        if Arc::get_mut(&mut copy).is_none() {
            copy = Arc::default();
        }
        let bytes = Arc::get_mut(&mut copy)?;
        bytes.clear();
        if let LentMemory::Sources(sources) = &call.memory {
            sources.iter().for_each(|source| bytes.extend_from_slice(source));
        }
        add(&self.counters.copied_bytes, call.bytes);
        Some(copy)
    }

    /// The member writes its part itself, as soon as its offset is known, and goes on.
    fn write_own<'s>(
        self: &'s Arc<Self>,
        state: MutexGuard<'s, TeamState>,
        caller: &Caller,
        call: &TeamCall<'_>,
        seat: Seat,
    ) -> TeamResult<u64> {
        let offset = |state: &TeamState| match call.place {
            _ if !state.is_next(seat.round) => None,
            TeamPlace::Pointer => state.own_offset(seat.round, caller),
            TeamPlace::At(offset) => Some(offset),
            TeamPlace::Each(_) => Some(0),
        };
        let is_over = |state: &TeamState| state.stage_of(seat.round) == RoundStage::Finished;
        let mut patience = Patience::of(self, caller);
        let ready = |state: &TeamState| is_over(state) || offset(state).is_some();
        let mut state = self.wait(state, &mut patience, ready, seat.round);
        let Some(start) = offset(&state).filter(|_| !is_over(&state)) else {
            return self.leave(state, seat);
        };
        if let Some(round) = state.round(seat.round) {
            round.went_behind = true;
        }
        drop(state);
        add(&self.counters.own_parts, 1);
        let written = self.write_call(call, start);
        let mut state = self.lock();
        if let Some(round) = state.round(seat.round) {
            round.own_pending -= 1;
            round.transferred += call.bytes;
            if let Err(error) = written {
                round.error.get_or_insert(prefixed(&self.name, error));
            }
        }
        self.settle(&mut state, seat.round);
        let attends = state.round_ref(seat.round).is_some_and(|round| {
            round.is_complete() && round.stage != RoundStage::Finished && !round.has_waiting(seat.arrival)
        });
        if attends { self.attend(state, seat) } else { self.leave(state, seat) }
    }

    /// Waits for the result, and works meanwhile if it is this member's task.
    fn attend<'s>(self: &'s Arc<Self>, mut state: MutexGuard<'s, TeamState>, seat: Seat) -> TeamResult<u64> {
        let caller = state.round_ref(seat.round).map(|round| round.arrived[seat.arrival].caller);
        let Some(caller) = caller else { return Err(self.closed()) };
        let mut patience = Patience::of(self, &caller);
        let mut spare = None;
        loop {
            self.settle(&mut state, seat.round);
            let can_plan = state.can_plan(seat.round);
            let Some(round) = state.round(seat.round) else { return Err(self.closed()) };
            if round.stage == RoundStage::Finished {
                return self.leave(state, seat);
            }
            if can_plan {
                state = self.plan(state, seat);
                continue;
            }
            if round.has_items() && round.arrived[seat.arrival].is_worker {
                let work = Work::take(round, spare.take());
                drop(state);
                spare = work.inspect(|work| self.carry_out(work));
                state = self.lock();
                continue;
            }
            if round.may_go_on(seat.arrival) {
                round.went_behind = true;
                return self.leave(state, seat);
            }
            let ready = |state: &TeamState| state.needs(seat.round, seat.arrival);
            state = self.wait(state, &mut patience, ready, seat.round);
        }
    }

    /// Plans a complete round, or carries out a call without parts.
    fn plan<'s>(&'s self, mut state: MutexGuard<'s, TeamState>, seat: Seat) -> MutexGuard<'s, TeamState> {
        let base = state.base_of(seat.round);
        let helpers = state.helpers;
        let Some(round) = state.round(seat.round) else { return state };
        let function = round.function;
        if !function.is_write() && !function.is_read() {
            round.stage = RoundStage::Working;
            round.own_pending += 1;
            drop(state);
            let result = self.act(function);
            let mut state = self.lock();
            let deferred =
                state.deferred.take_if(|_| matches!(function, TeamFunction::Sync | TeamFunction::Close));
            state.is_closed |= function == TeamFunction::Close;
            if let Some(round) = state.round(seat.round) {
                round.own_pending -= 1;
                round.error = round.error.take().or(deferred).or(result.err());
            }
            self.settle(&mut state, seat.round);
            return state;
        }
        if round.lacks_memory() {
            let text = format!("{}: {}: no thread has given memory", self.name, function.name());
            self.fail(&mut state, seat.round, TeamError::new(TeamCode::BadArgument, text));
            return state;
        }
        let base = if function.is_at_pointer() { base.unwrap_or(0) } else { 0 };
        round.began = Some(MonotonicClock.now());
        if 0 < helpers {
            round.choice.active = round.choice.active.max(helpers + 1);
        }
        round.make_plan(base, self.target.cut_bytes(), helpers);
        add(&self.counters.items, round.plan.items.len() as u64);
        add(&self.counters.joined, round.plan.joined);
        add(&self.counters.false_hints, u64::from(round.plan.is_hint_false));
        let is_small = round.plan.is_small || round.plan.items.len() == 1;
        // What one call does is done by the member that came last: it is awake.
        if is_small || !round.choose_workers() {
            round.arrived.iter_mut().for_each(|arrived| arrived.is_worker = false);
            round.arrived[seat.arrival].is_worker = true;
        }
        if 0 < helpers || !is_small {
            self.tell(&state);
        }
        state
    }

    /// A call that moves no bytes.
    fn act(&self, function: TeamFunction) -> TeamResult<()> {
        match function {
            TeamFunction::Sync => self.target.sync(),
            TeamFunction::Close => {
                let result = self.target.close();
                report(&self.name, &self.counts());
                result
            }
            TeamFunction::Seek | TeamFunction::Read { .. } | TeamFunction::Write { .. } => Ok(()),
        }
    }

    /// Carries out an item. One that panics counts as failed, so that no member waits for it.
    pub(super) fn carry_out(&self, work: &Work) {
        let mut end = ItemEnd { core: self, work, result: None };
        end.result = Some(work.run(self));
    }

    /// Finishes a round when its work is done.
    fn settle(&self, state: &mut TeamState, number: u64) {
        let base_known = state.base_of(number).is_some();
        let Some(round) = state.round(number) else { return };
        if round.stage == RoundStage::Gathering && round.function.is_write() && round.is_complete() {
            // The pointer after a write from which members have gone on is known.
            if round.went_behind && round.pointer == PointerChange::Unknown {
                round.pointer = PointerChange::By(round.total());
                self.news.fetch_add(1, Ordering::Release);
            }
            if !round.has_parts() && base_known {
                round.stage = RoundStage::Working;
            }
        }
        if state.round(number).is_some_and(|round| round.is_done()) {
            self.finish(state, number);
        }
    }

    /// Leaves a round with its result.
    fn leave(&self, mut state: MutexGuard<'_, TeamState>, seat: Seat) -> TeamResult<u64> {
        let Some(round) = state.round(seat.round) else { return Err(self.closed()) };
        round.arrived[seat.arrival].has_left = true;
        let result = if round.stage == RoundStage::Finished {
            round.result_of(seat.arrival)
        } else {
            Ok(round.arrived[seat.arrival].bytes)
        };
        let before = state.rounds.len();
        state.retire();
        if state.rounds.len() < before {
            self.tell(&state);
        }
        result
    }
}

/// Records the end of an item, also when it panicked.
struct ItemEnd<'a> {
    core: &'a TeamCore,
    work: &'a Work,
    result: Option<TeamResult<u64>>,
}

impl Drop for ItemEnd<'_> {
    fn drop(&mut self) {
        let item = self.work.taken.item;
        let lost = || {
            let text = format!("a thread panicked at bytes {}..{}", item.offset, item.offset + item.bytes);
            Err(TeamError::new(TeamCode::Lost, text))
        };
        let result = self.result.take().unwrap_or_else(lost);
        let mut state = self.core.lock();
        if let Some(round) = state.round(self.work.round) {
            round.item_done(&self.work.taken, result.map_err(|error| prefixed(&self.core.name, error)));
        }
        self.core.settle(&mut state, self.work.round);
    }
}

/// The error with the file's name, unless it has it already.
pub(super) fn prefixed(name: &str, error: TeamError) -> TeamError {
    let text = error.to_string();
    if text.contains(name) {
        return error;
    }
    let count = error.count();
    TeamError::new(error.code(), format!("{name}: {text}")).with_count(count)
}
