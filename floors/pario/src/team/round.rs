//! One collective call of a team: the members that have come, their parts, the plan, and the result.
//!
//! A machine without threads: [`super::meeting`] drives it under the lock of the handle.
//!
//! Never: a result that differs between members; if a member has gone on already, an error is deferred to the next call. Always: a round is
//! finished once, after its last work item and its last own part.

use std::sync::Arc;

use pario_core::Nanos;
use pario_sys::lent::LentSlot;

use super::call::{Hint, TeamCall, TeamFunction, TeamPlace};
use super::error::{TeamCode, TeamError};
use super::membership::Membership;
use super::plan::{ItemPiece, PlanRules, PlannedPart, TeamPlan, WorkItem};
use super::position::Position;
use super::tune::TeamChoice;

/// Identity of the thread, or of the member value, that makes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Caller {
    /// Position below the place where the file was opened.
    pub(super) position: Position,
    pub(super) identity: u64,
    /// Set of members that were made together; 0: none.
    pub(super) set: u64,
}

/// Where the bytes of a member are.
#[derive(Clone, Debug)]
pub(super) enum MemberMemory {
    /// The member brings none.
    Nothing,
    /// The member writes its part itself.
    Own,
    /// In its own memory, while it waits.
    Lent(Arc<LentSlot>),
    /// In the team's buffer.
    Copied(Arc<Vec<u8>>),
}

/// A member that has come.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) caller: Caller,
    pub(super) bytes: u64,
    pub(super) memory: MemberMemory,
    /// Bytes read or written for it.
    pub(super) count: u64,
    pub(super) has_left: bool,
    pub(super) is_worker: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoundStage {
    /// Members are missing, or the offsets are not known yet.
    Gathering,
    /// Work items are carried out.
    Working,
    Finished,
}

/// How a round moves the pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PointerChange {
    Unknown,
    By(u64),
    To(u64),
}

#[derive(Debug)]
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) function: TeamFunction,
    pub(super) hint: Hint,
    pub(super) set: u64,
    pub(super) membership: Membership,
    pub(super) arrived: Vec<Arrived>,
    parts: Vec<PlannedPart>,
    pub(super) plan: TeamPlan,
    pub(super) stage: RoundStage,
    next_item: usize,
    items_left: usize,
    /// Members that came and write their parts themselves, until they have.
    pub(super) own_pending: usize,
    /// A member has gone on: later errors are deferred.
    pub(super) went_behind: bool,
    /// The first error.
    pub(super) error: Option<TeamError>,
    pub(super) pointer: PointerChange,
    /// Lengths and offsets of a common call.
    common: u64,
    seek_to: u64,
    pub(super) transferred: u64,
    is_short: bool,
    /// It failed before its work began.
    is_void: bool,
    /// The patience with members that have not come is over.
    pub(super) is_abandoned: bool,
    /// Its missing members wait on other handles, and will not come.
    pub(super) is_crossed: bool,
    pub(super) choice: TeamChoice,
    /// When its work began; `None`: it has no plan.
    pub(super) began: Option<Nanos>,
}

/// An item to be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenItem {
    pub(super) item: WorkItem,
}

impl Round {
    pub(super) fn new(number: u64, call: &TeamCall<'_>, caller: &Caller, choice: TeamChoice) -> Round {
        let mut round = Round {
            number,
            function: call.function,
            hint: call.hint,
            set: caller.set,
            membership: Membership::default(),
            arrived: Vec::new(),
            parts: Vec::new(),
            plan: TeamPlan::default(),
            stage: RoundStage::Gathering,
            next_item: 0,
            items_left: 0,
            own_pending: 0,
            went_behind: false,
            error: None,
            pointer: PointerChange::Unknown,
            common: 0,
            seek_to: 0,
            transferred: 0,
            is_short: false,
            is_void: false,
            is_abandoned: false,
            is_crossed: false,
            choice,
            began: None,
        };
        round.begin(number, call, caller, choice);
        round
    }

    /// Begins anew in the memory of a finished round.
    pub(super) fn begin(&mut self, number: u64, call: &TeamCall<'_>, caller: &Caller, choice: TeamChoice) {
        self.membership.clear();
        self.arrived.clear();
        self.parts.clear();
        self.plan.clear();
        (self.number, self.function, self.hint, self.set) = (number, call.function, call.hint, caller.set);
        (self.stage, self.next_item, self.items_left, self.own_pending) = (RoundStage::Gathering, 0, 0, 0);
        (self.went_behind, self.error, self.transferred) = (false, None, 0);
        (self.is_short, self.is_void) = (false, false);
        (self.is_abandoned, self.is_crossed) = (false, false);
        (self.common, self.seek_to, self.choice, self.began) =
            (fingerprint(call), call.seek_to, choice, None);
        let moves = call.function.is_at_pointer() || call.function == TeamFunction::Seek;
        self.pointer = if moves { PointerChange::Unknown } else { PointerChange::By(0) };
    }

    pub(super) fn is_complete(&self) -> bool {
        !self.arrived.is_empty() && self.membership.first_missing().is_none()
    }

    /// Whether the arguments of a member agree with those of the first one.
    pub(super) fn check_same(&self, call: &TeamCall<'_>, caller: &Caller) -> Result<(), TeamError> {
        let Some(first) = self.arrived.first() else { return Ok(()) };
        let (one, two) = (first.caller.position, caller.position);
        let differ = |what: String| {
            Err(TeamError::new(TeamCode::NotSame, format!("threads {one} and {two} do not agree: {what}")))
        };
        if self.function != call.function {
            return differ(format!("{} and {}", self.function.name(), call.function.name()));
        }
        if self.hint != call.hint {
            return differ(format!("hints {:?} and {:?} of {}", self.hint, call.hint, call.function.name()));
        }
        let has_common = call.function.is_common() || call.function == TeamFunction::Seek;
        // Refused arguments are an error of their own.
        if has_common && call.refusal.is_none() && self.common != fingerprint(call) {
            return differ(format!("lengths or offsets of {}", call.function.name()));
        }
        Ok(())
    }

    /// Adds the parts of a member; offsets of calls at the pointer are found by the plan.
    pub(super) fn add_parts(&mut self, call: &TeamCall<'_>, owner: usize) {
        let mut before = 0;
        for buffer in 0..call.buffers() {
            let offset = match call.place {
                TeamPlace::Pointer => before,
                TeamPlace::At(offset) => offset + before,
                TeamPlace::Each(offsets) => offsets[buffer],
            };
            let bytes = call.buffer_bytes(buffer);
            self.parts.push(PlannedPart { offset, bytes, owner, buffer, before });
            before += bytes;
        }
    }

    /// Bytes of members in front of `position`.
    pub(super) fn bytes_before(&self, position: &Position) -> u64 {
        let lower = self.membership.members().iter().take_while(|member| member.position < *position);
        lower.map(|member| self.arrived[member.arrival].bytes).sum()
    }

    /// Bytes by which a call at the pointer moves it.
    pub(super) fn total(&self) -> u64 {
        if self.function.is_common() {
            return self.arrived.first().map_or(0, |arrived| arrived.bytes);
        }
        self.arrived.iter().map(|arrived| arrived.bytes).sum()
    }

    /// Plans the parts of a complete round that begins at `base`, for its members and `helpers` more threads.
    pub(super) fn make_plan(&mut self, base: u64, cut: u64, helpers: u64) {
        self.keep_common_part();
        let mut parts = std::mem::take(&mut self.parts);
        if self.function.is_at_pointer() {
            self.place(&mut parts, base);
        }
        let rules = PlanRules {
            hint: self.hint,
            saturation: self.choice.saturation,
            active: self.choice.active.min(self.arrived.len() as u64 + helpers),
            cut,
        };
        self.plan.make(&mut parts, rules);
        self.parts = parts;
        (self.stage, self.next_item, self.items_left) = (RoundStage::Working, 0, self.plan.items.len());
    }

    /// Offsets of parts at the pointer: one member after the other.
    fn place(&self, parts: &mut Vec<PlannedPart>, base: u64) {
        let mut at = base;
        if self.function.is_common() {
            parts.iter_mut().for_each(|part| part.offset += base);
            return;
        }
        // Parts lie in the order of arrival; the order of the members is that of their positions.
        parts.sort_by_key(|part| (self.order_of(part.owner), part.buffer));
        let mut rest = parts.as_mut_slice();
        for member in self.membership.members() {
            let count =
                rest.partition_point(|part| self.order_of(part.owner) <= self.order_of(member.arrival));
            let (own, behind) = rest.split_at_mut(count);
            own.iter_mut().for_each(|part| part.offset += at);
            at += self.arrived[member.arrival].bytes;
            rest = behind;
        }
    }

    fn order_of(&self, arrival: usize) -> usize {
        let position = self.arrived[arrival].caller.position;
        self.membership.index(&position).unwrap_or(usize::MAX)
    }

    /// Of a common call one member's part counts: that of the first member that has memory.
    fn keep_common_part(&mut self) {
        if !self.function.is_common() {
            return;
        }
        let owners = self.membership.members().iter().map(|member| member.arrival);
        let has_parts = |owner: &usize| self.parts.iter().any(|part| part.owner == *owner);
        let first = owners.into_iter().find(has_parts);
        self.parts.retain(|part| Some(part.owner) == first);
    }

    /// Whether members have parts that the plan must place.
    pub(super) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Whether a common read has no memory to read into.
    pub(super) fn lacks_memory(&self) -> bool {
        self.function.is_common() && self.parts.is_empty() && 0 < self.total()
    }

    pub(super) fn has_items(&self) -> bool {
        self.stage == RoundStage::Working && self.next_item < self.plan.items.len()
    }

    /// The next item.
    pub(super) fn take_item(&mut self) -> Option<TakenItem> {
        let item = *self.plan.items.get(self.next_item)?;
        self.next_item += 1;
        Some(TakenItem { item })
    }

    /// An item has been read or written: `done` bytes from its start.
    pub(super) fn item_done(&mut self, taken: &TakenItem, done: Result<u64, TeamError>) {
        self.items_left -= 1;
        match done {
            Ok(bytes) => {
                self.is_short |= bytes < taken.item.bytes;
                self.transferred += bytes;
                let mut rest = bytes;
                for at in taken.item.first_piece..taken.item.first_piece + taken.item.pieces {
                    let ItemPiece { owner, bytes, .. } = self.plan.pieces[at];
                    let got = rest.min(bytes);
                    self.arrived[owner].count += got;
                    rest -= got;
                }
            }
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    /// Whether all of its work is done.
    pub(super) fn is_done(&self) -> bool {
        self.stage == RoundStage::Working && self.items_left == 0 && self.own_pending == 0
    }

    /// Ends the round. Returns the error that must be told by the next call, if members have gone on already.
    pub(super) fn finish(&mut self, name: &str) -> Option<TeamError> {
        self.is_void = self.stage == RoundStage::Gathering;
        self.stage = RoundStage::Finished;
        if self.function.is_read() && self.is_short && self.error.is_none() {
            let text = format!(
                "{name}: {}: the file ends inside of the call, after {} bytes",
                self.function.name(),
                self.transferred
            );
            self.error = Some(TeamError::new(TeamCode::EndOfFile, text));
        }
        let is_end = self.error.as_ref().is_some_and(|error| error.code() == TeamCode::EndOfFile);
        let deferred = if self.went_behind { self.error.take() } else { None };
        let failed = self.error.is_some() && !is_end;
        if self.pointer == PointerChange::Unknown {
            self.pointer = match self.function {
                _ if failed || !self.is_complete() => PointerChange::By(0),
                TeamFunction::Seek => PointerChange::To(self.seek_to),
                TeamFunction::Read { .. } => PointerChange::By(self.transferred),
                TeamFunction::Write { .. } | TeamFunction::Sync | TeamFunction::Close => {
                    PointerChange::By(self.total())
                }
            };
        }
        if self.function.is_common() {
            let count = self.transferred;
            self.arrived.iter_mut().for_each(|arrived| arrived.count = count);
        }
        deferred
    }

    /// The result of one member of a finished round.
    pub(super) fn result_of(&self, arrival: usize) -> Result<u64, TeamError> {
        let arrived = &self.arrived[arrival];
        if self.is_void && self.error.is_none() {
            return Ok(0);
        }
        let count = if self.function.is_write() && !self.function.is_common() {
            arrived.bytes
        } else {
            arrived.count
        };
        match &self.error {
            Some(error) if error.code() == TeamCode::EndOfFile => Err(error.clone().with_count(count)),
            Some(error) => Err(error.clone()),
            None => Ok(count),
        }
    }

    /// Chooses the members that work: the first active ones of those that wait for the result. Returns whether there is one.
    pub(super) fn choose_workers(&mut self) -> bool {
        let mut left = self.choice.active;
        for member in self.membership.members() {
            let arrived = &mut self.arrived[member.arrival];
            // A member that writes its own part goes on afterwards.
            let waits = !arrived.has_left && !matches!(arrived.memory, MemberMemory::Own);
            arrived.is_worker = 0 < left && waits;
            left -= u64::from(arrived.is_worker);
        }
        left < self.choice.active
    }
}

/// Lengths and offsets as one number, for comparison between the members of a common call.
fn fingerprint(call: &TeamCall<'_>) -> u64 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |value: u64| sum = (sum ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    add(call.bytes);
    add(call.seek_to);
    match call.place {
        TeamPlace::Pointer => add(1),
        TeamPlace::At(offset) => add(offset),
        TeamPlace::Each(offsets) => offsets.iter().for_each(|offset| add(*offset)),
    }
    sum
}
