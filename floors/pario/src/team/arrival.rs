//! A member comes to a call: it joins the round that it has not been in, or begins one.
//!
//! Never: joins a round of another team. Always: members that disagree make the round fail for all.

use std::sync::{Arc, MutexGuard};

use super::call::{TeamCall, TeamFunction};
use super::core::{ROUNDS_MAX, TeamCore, TeamState};
use super::counts::add;
use super::error::{TeamCode, TeamError, TeamResult};
use super::meeting::prefixed;
use super::membership::Mismatch;
use super::round::{Arrived, Caller, MemberMemory, Round};
use super::wait::Patience;

/// A member inside of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seat {
    pub(super) round: u64,
    pub(super) arrival: usize,
}

/// A member that comes.
#[derive(Clone, Copy)]
struct Newcomer<'a> {
    caller: &'a Caller,
    call: &'a TeamCall<'a>,
    memory: &'a MemberMemory,
}

impl TeamCore {
    /// Joins the round that this member has not been in.
    pub(super) fn arrive<'s>(
        self: &'s Arc<Self>,
        caller: &Caller,
        call: &TeamCall<'_>,
        memory: MemberMemory,
    ) -> TeamResult<(MutexGuard<'s, TeamState>, Seat)> {
        let mut state = self.lock();
        let joined = loop {
            if state.is_closed {
                break Err(self.closed());
            }
            match find_round(&state, caller) {
                Err(error) => break Err(error),
                Ok(Some(number)) => break Ok(number),
                Ok(None) if state.rounds.len() < ROUNDS_MAX => break self.begin(&mut state, caller, call),
                Ok(None) => {
                    let mut patience = Patience::of(self, caller);
                    // Another member may have used the room for a round that this one has to join.
                    let room = |state: &TeamState| {
                        state.rounds.len() < ROUNDS_MAX
                            || state.is_closed
                            || !matches!(find_round(state, caller), Ok(None))
                    };
                    state = self.wait(state, &mut patience, room, u64::MAX);
                }
            }
        };
        let joined = joined
            .and_then(|number| self.join(&mut state, number, &Newcomer { caller, call, memory: &memory }));
        match joined {
            Ok(seat) => Ok((state, seat)),
            Err(error) => {
                if let MemberMemory::Copied(copy) = memory {
                    state.buffered -= copy.len() as u64;
                }
                Err(prefixed(&self.name, error))
            }
        }
    }

    /// Begins a round; it fails at once if an earlier error is to be told, or a member has ended.
    fn begin(&self, state: &mut TeamState, caller: &Caller, call: &TeamCall<'_>) -> TeamResult<u64> {
        if call.function.is_at_pointer() || call.function == TeamFunction::Seek {
            state.parts.check_whole()?;
        }
        let number = state.begin_round(call, caller);
        add(&self.counters.calls, 1);
        let at_end = matches!(call.function, TeamFunction::Sync | TeamFunction::Close);
        if let Some(error) = state.deferred.take_if(|_| !at_end) {
            self.fail(state, number, error);
        } else if let Some(gone) =
            state.gone.iter().find(|gone| gone.set == caller.set && caller.set != 0).copied()
        {
            let error = gone.error(&self.name);
            self.fail(state, number, error);
        }
        Ok(number)
    }

    fn join(&self, state: &mut TeamState, number: u64, new: &Newcomer<'_>) -> TeamResult<Seat> {
        let Newcomer { caller, call, .. } = *new;
        let round = state.round(number).ok_or_else(|| self.closed())?;
        let arrival =
            round.membership.add(caller.position).map_err(|mismatch| two_teams(caller, mismatch))?;
        let same = round.check_same(call, caller);
        round.add_member(new);
        add(&self.counters.parts, call.buffers() as u64);
        let refused = call.refusal.as_ref().map(|error| {
            let text =
                format!("{}: {} of thread {}: {error}", self.name, call.function.name(), caller.position);
            TeamError::new(error.code(), text)
        });
        let refused = refused.or_else(|| self.check_access(call.function).err());
        if let Some(error) = same.err().map(|error| prefixed(&self.name, error)).or(refused) {
            self.fail(state, number, error);
        }
        // Members in front of others announce their lengths; the last one makes the round complete.
        self.tell(state);
        Ok(Seat { round: number, arrival })
    }

    fn check_access(&self, function: TeamFunction) -> TeamResult<()> {
        let refuse = |how: &str, code| {
            let text = format!("{}: {}: the file is open for {how} only", self.name, function.name());
            Err(TeamError::new(TeamCode::Other(code), text))
        };
        if function.is_write() && !self.write {
            return refuse("reading", pario_core::Code::NotWritable);
        }
        if function.is_read() && !self.read {
            return refuse("writing", pario_core::Code::NotReadable);
        }
        Ok(())
    }
}

impl Round {
    fn add_member(&mut self, new: &Newcomer<'_>) {
        let Newcomer { caller, call, memory } = *new;
        match memory {
            MemberMemory::Own => self.own_pending += 1,
            MemberMemory::Nothing | MemberMemory::Lent(_) | MemberMemory::Copied(_) => {
                if call.refusal.is_none() {
                    self.add_parts(call, self.arrived.len());
                }
            }
        }
        self.arrived.push(Arrived {
            caller: *caller,
            bytes: call.bytes,
            memory: memory.clone(),
            count: 0,
            has_left: false,
            is_worker: false,
        });
    }
}

/// The first round that a member has not been in; `None` if it must begin one.
fn find_round(state: &TeamState, caller: &Caller) -> TeamResult<Option<u64>> {
    for round in &state.rounds {
        let Some(at) = round.membership.index(&caller.position) else {
            // The missing members of a crossed round had its error on other handles. A round with members that
            // were given up is over for another team.
            let is_of_other_team = || round.membership.clone().add(caller.position).is_err();
            if round.is_crossed || round.is_abandoned && is_of_other_team() {
                continue;
            }
            return Ok(Some(round.number));
        };
        let other = &round.arrived[round.membership.members()[at].arrival];
        let is_open = !round.is_complete() && !round.is_abandoned;
        let is_other = other.caller.identity != caller.identity && is_open;
        if !other.has_left || is_other {
            return Err(two_teams(caller, Mismatch::Twice));
        }
    }
    Ok(None)
}

fn two_teams(caller: &Caller, mismatch: Mismatch) -> TeamError {
    let position = caller.position;
    let why = match mismatch {
        Mismatch::Twice => format!("thread {position} is in a call already"),
        Mismatch::Size { other } => format!("threads {other} and {position} are of teams of different sizes"),
        Mismatch::Nested { other } => {
            format!("one of the threads {other} and {position} has started the other")
        }
    };
    TeamError::new(TeamCode::TwoTeams, format!("two teams use one handle at once: {why}"))
}
