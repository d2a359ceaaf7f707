//! What a member of a round may do next: questions to the state of a handle.
//!
//! Never: changes the state.

use super::core::TeamState;
use super::round::{Caller, MemberMemory, Round, RoundStage};

impl TeamState {
    pub(super) fn round_ref(&self, number: u64) -> Option<&Round> {
        let first = self.rounds.front()?.number;
        self.rounds.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    pub(super) fn stage_of(&self, number: u64) -> RoundStage {
        self.round_ref(number).map_or(RoundStage::Finished, |round| round.stage)
    }

    /// The first round up to number `last` that lacks a thread. One that failed counts: it holds its place for that thread.
    pub(super) fn first_incomplete(&self, last: u64) -> Option<&Round> {
        let mut open =
            self.rounds.iter().filter(|round| round.stage != RoundStage::Working && !round.is_abandoned);
        open.find(|round| round.number <= last && !round.is_complete())
    }

    /// Whether no earlier call can still write bytes of this one: later calls win. Calls at the pointer do not overlap.
    pub(super) fn is_next(&self, number: u64) -> bool {
        let at_pointer = |round: &Round| round.function.is_at_pointer();
        let is_disjoint = self.round_ref(number).is_some_and(at_pointer);
        let mut earlier = self.rounds.iter().take_while(|round| round.number < number);
        earlier.all(|round| round.stage == RoundStage::Finished || is_disjoint && at_pointer(round))
    }

    /// The offset of a part at the pointer, if the lengths in front are known.
    pub(super) fn own_offset(&self, number: u64, caller: &Caller) -> Option<u64> {
        let base = self.base_of(number)?;
        let round = self.round_ref(number)?;
        let is_known = round.membership.is_complete_before(&caller.position);
        is_known.then(|| base + round.bytes_before(&caller.position))
    }

    /// Whether a waiting member has a task, or the result.
    pub(super) fn needs(&self, number: u64, arrival: usize) -> bool {
        let Some(round) = self.round_ref(number) else { return true };
        match round.stage {
            RoundStage::Finished => true,
            RoundStage::Working => round.has_items() && round.arrived[arrival].is_worker,
            RoundStage::Gathering => self.can_plan(number),
        }
    }

    /// Whether all members of a round are there, and its first offset is known.
    pub(super) fn can_plan(&self, number: u64) -> bool {
        let Some(round) = self.round_ref(number) else { return false };
        let is_known = !round.function.is_at_pointer() || self.base_of(number).is_some();
        round.stage == RoundStage::Gathering && round.is_complete() && is_known
    }
}

impl Round {
    /// Whether a member with copied bytes needs not wait any longer: others do the work.
    pub(super) fn may_go_on(&self, arrival: usize) -> bool {
        let arrived = &self.arrived[arrival];
        matches!(arrived.memory, MemberMemory::Copied(_))
            && !arrived.is_worker
            && (self.stage == RoundStage::Working || !self.is_complete())
    }

    /// Whether another member is waiting in the round, and will plan it.
    pub(super) fn has_waiting(&self, arrival: usize) -> bool {
        let others = self.arrived.iter().enumerate().filter(|(at, _)| *at != arrival);
        others.into_iter().any(|(_, other)| !other.has_left && !matches!(other.memory, MemberMemory::Own))
    }

    /// Which thread is missing, for people.
    pub(super) fn missing_text(&self) -> Option<String> {
        let missing = self.membership.first_missing()?;
        let size = missing.levels().last().map_or(1, |level| level.size);
        Some(format!("{}: thread {missing} of {size} is missing", self.function.name()))
    }
}
