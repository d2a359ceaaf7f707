//! The shared state of a handle: target, rounds, pointer, deferred error.
//!
//! Never: calls a target, or copies bytes of members, under its lock. Always: rounds end in the order in which they began.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::Clock;
use pario_sys::MonotonicClock;
use pario_sys::processors::processors;

use super::call::TeamCall;
use super::counts::TeamCounters;
use super::error::{TeamCode, TeamError, TeamResult};
use super::options::TeamOptions;
use super::parts::OrderedParts;
use super::position::Position;
use super::round::{Caller, MemberMemory, PointerChange, Round, RoundStage};
use super::settings::BUFFER_BYTES;
use super::target::{OpenedTarget, TeamTarget};
use super::tune::{MeasuredCall, TuneLimits, Tuner};

/// Calls that members may be ahead of the slowest one.
pub(super) const ROUNDS_MAX: usize = 8;
/// Buffers that are kept for the next calls.
const BUFFERS_KEPT_MAX: usize = 64;

/// What all clones of a handle share.
#[derive(Debug)]
pub(super) struct TeamCore {
    pub(super) target: Box<dyn TeamTarget>,
    pub(super) name: String,
    /// The thread below which the members are.
    pub(super) place: Position,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) write_behind: bool,
    pub(super) buffer_bytes: u64,
    pub(super) patience: Option<Duration>,
    pub(super) counters: TeamCounters,
    /// Grows with each change of the state: waiting members spin on it.
    pub(super) news: AtomicU64,
    state: Mutex<TeamState>,
    pub(super) changed: Condvar,
    fork_generation: u64,
}

/// What the lock of a handle protects.
#[derive(Debug)]
pub(super) struct TeamState {
    pub(super) rounds: VecDeque<Round>,
    /// Number of the next round.
    pub(super) next_round: u64,
    /// The pointer in front of the first round.
    pub(super) pointer: u64,
    /// An error of a call that members had left already.
    pub(super) deferred: Option<TeamError>,
    pub(super) is_closed: bool,
    /// Members that ended.
    pub(super) gone: Vec<GoneMember>,
    pub(super) sleepers: usize,
    pub(super) tuner: Tuner,
    /// Bytes in the team's buffer.
    pub(super) buffered: u64,
    pub(super) parts: OrderedParts,
    /// Threads of the handle's own.
    pub(super) helpers: u64,
    pub(super) kept_rounds: Vec<Round>,
    /// Members of the last complete call.
    pub(super) mates: Vec<Caller>,
    pub(super) kept_buffers: Vec<Arc<Vec<u8>>>,
}

/// A member that will not come any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GoneMember {
    pub(super) position: Position,
    pub(super) set: u64,
    pub(super) end: MemberEnd,
}

/// How a member ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberEnd {
    Left,
    Dropped,
    Panicked,
}

impl GoneMember {
    pub(super) fn error(&self, name: &str) -> TeamError {
        let how = match self.end {
            MemberEnd::Left => "has left the team",
            MemberEnd::Dropped => "was dropped",
            MemberEnd::Panicked => "panicked",
        };
        let text = format!("{name}: thread {} {how} before the call", self.position);
        TeamError::new(TeamCode::Lost, text)
    }
}

impl TeamCore {
    pub(super) fn new(
        opened: OpenedTarget,
        name: String,
        place: Position,
        options: &TeamOptions,
    ) -> TeamResult<TeamCore> {
        let OpenedTarget { target, settings } = opened;
        let pointer = if options.append { target.len()? } else { 0 };
        let limits = TuneLimits {
            saturation: settings.saturation.map(|size| size.0),
            active: settings.active.map(u64::from),
            processors: processors() as u64,
        };
        let patience = match options.patience {
            Some(patience) => Some(patience),
            None => super::settings::patience_of_environment()?,
        };
        Ok(TeamCore {
            target,
            name,
            place,
            read: options.read,
            write: options.write,
            write_behind: settings.write_behind.unwrap_or(true),
            buffer_bytes: settings.buffer.map_or(BUFFER_BYTES, |size| size.0),
            patience,
            counters: TeamCounters::default(),
            news: AtomicU64::new(0),
            state: Mutex::new(TeamState::new(pointer, Tuner::new(limits))),
            changed: Condvar::new(),
            fork_generation: pario_sys::fork_generation(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, TeamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state has changed: waiting members look again.
    pub(super) fn tell(&self, state: &TeamState) {
        self.news.fetch_add(1, Ordering::Release);
        if 0 < state.sleepers {
            self.changed.notify_all();
        }
    }

    /// A handle belongs to the process that opened it.
    pub(super) fn check_process(&self) -> TeamResult<()> {
        if self.fork_generation == pario_sys::fork_generation() {
            return Ok(());
        }
        let text = format!("{}: the handle belongs to the parent process; open the file again", self.name);
        Err(TeamError::new(TeamCode::Closed, text))
    }

    pub(super) fn closed(&self) -> TeamError {
        TeamError::new(TeamCode::Closed, format!("{}: the handle is closed", self.name))
    }

    /// Ends a round; its error is told now, or by the next call.
    pub(super) fn finish(&self, state: &mut TeamState, number: u64) {
        let Some(round) = state.round(number) else { return };
        let nanos = |began| u64::try_from(MonotonicClock.now().since(began).as_nanos()).unwrap_or(u64::MAX);
        let (choice, bytes) = (round.choice, round.transferred);
        let measured = round.began.map(|began| MeasuredCall { choice, bytes, nanos: nanos(began) });
        let deferred = round.finish(&self.name);
        let measured = measured.filter(|_| round.error.is_none() && deferred.is_none());
        if let Some(error) = deferred {
            state.deferred.get_or_insert(error);
        }
        if let Some(measured) = measured {
            state.tuner.measured(measured);
        }
        self.tell(state);
    }

    /// Fails a round that has not begun to work.
    pub(super) fn fail(&self, state: &mut TeamState, number: u64, error: TeamError) {
        let Some(round) = state.round(number) else { return };
        round.error.get_or_insert(error);
        if round.stage == RoundStage::Gathering {
            self.finish(state, number);
        }
    }
}

impl Drop for TeamCore {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &state.deferred {
            tracing::warn!(%error, "an error of a team's file that was dropped without close");
        }
    }
}

impl TeamState {
    fn new(pointer: u64, tuner: Tuner) -> TeamState {
        TeamState {
            rounds: VecDeque::new(),
            next_round: 0,
            pointer,
            deferred: None,
            is_closed: false,
            gone: Vec::new(),
            sleepers: 0,
            tuner,
            buffered: 0,
            parts: OrderedParts::default(),
            helpers: 0,
            kept_rounds: Vec::new(),
            mates: Vec::new(),
            kept_buffers: Vec::new(),
        }
    }

    pub(super) fn round(&mut self, number: u64) -> Option<&mut Round> {
        let first = self.rounds.front()?.number;
        self.rounds.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// The pointer in front of a round; `None` while an earlier round has not decided.
    pub(super) fn base_of(&self, number: u64) -> Option<u64> {
        let mut at = self.pointer;
        for round in self.rounds.iter().take_while(|round| round.number < number) {
            match round.pointer {
                PointerChange::Unknown => return None,
                PointerChange::By(bytes) => at += bytes,
                PointerChange::To(offset) => at = offset,
            }
        }
        Some(at)
    }

    /// Begins a round.
    pub(super) fn begin_round(&mut self, call: &TeamCall<'_>, caller: &Caller) -> u64 {
        let number = self.next_round;
        self.next_round += 1;
        let choice = self.tuner.choice();
        let round = match self.kept_rounds.pop() {
            Some(mut round) => {
                round.begin(number, call, caller, choice);
                round
            }
            None => Round::new(number, call, caller, choice),
        };
        self.rounds.push_back(round);
        number
    }

    /// Removes rounds from the front that no member needs any more.
    pub(super) fn retire(&mut self) {
        while let Some(round) = self.rounds.front() {
            let all_left = round.arrived.iter().all(|arrived| arrived.has_left);
            // A failed round stays until all members have its error: a late one would take the next round for its own. Members that the others
            // gave up may never come: their round must not hold up the next ones.
            let is_full = ROUNDS_MAX <= self.rounds.len();
            let is_given_up = round.is_abandoned && is_full || round.is_crossed;
            let is_over = round.is_complete() || is_given_up || !self.gone.is_empty();
            if round.stage != RoundStage::Finished || !all_left || !is_over {
                return;
            }
            let Some(round) = self.rounds.pop_front() else { return };
            match round.pointer {
                PointerChange::Unknown => {}
                PointerChange::By(bytes) => self.pointer += bytes,
                PointerChange::To(offset) => self.pointer = offset,
            }
            self.keep(round);
        }
    }

    fn keep(&mut self, mut round: Round) {
        if 1 < round.arrived.len() && round.is_complete() {
            self.mates.clear();
            self.mates.extend(round.arrived.iter().map(|arrived| arrived.caller));
        }
        for arrived in round.arrived.drain(..) {
            if let MemberMemory::Copied(buffer) = arrived.memory {
                self.buffered -= buffer.len() as u64;
                if self.kept_buffers.len() < BUFFERS_KEPT_MAX {
                    self.kept_buffers.push(buffer);
                }
            }
        }
        if self.kept_rounds.len() < ROUNDS_MAX {
            self.kept_rounds.push(round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::{Hint, TeamFile};

    #[test]
    fn a_handle_of_the_parent_process_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = TeamOptions::default().create(true).write(true);
        let mut file = TeamFile::open(dir.path().join("file"), &options).unwrap();
        // As `fork` does in the child.
        Arc::get_mut(&mut file.core).expect("one handle").fork_generation += 1;
        let collective = file.at(Position::ALONE).write_all(b"x", Hint::Unknown).unwrap_err();
        let errors = [collective, file.write_at(0, b"x").unwrap_err(), file.close().unwrap_err()];
        for error in errors {
            assert_eq!(error.code(), TeamCode::Closed);
            assert!(error.to_string().contains("belongs to the parent process"), "{error}");
        }
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"");
    }
}
