//! The base algorithm of `mlf`: rounds, quanta, and the order in which they are looked at.
//!
//! Each file has a lane for reads and one for writes, in offset order. A virtual request comes with a quantum of zero and
//! gains its rate with every round; two that become one add their quanta. One round is one choice: everybody gains, then the
//! first virtual request whose quantum covers it is taken, by offset within a lane and first in, first out between lanes;
//! a lane that was served goes to the back. Rounds in which nobody is covered are not played, they are counted.
//!
//! Turns of lanes are not of one size: a file whose clients are in step uses all of a large quantum, another one's next
//! request is elsewhere. So what lanes were served is counted in leaps of [`LEAP_BYTES`], and a lane that is a leap ahead stands behind all
//! that are not.
//!
//! Nobody's quantum is ever touched by a round. What is kept is the round in which it will cover the request (`covered`), with the
//! least of each subtree in the index: "the first that is covered by now" is a descent.
//!
//! Between applications of different weight there is a level above: classes with tags that grow by bytes over weight (as in
//! `wfq`); the smallest tag with something covered goes first. While all weights are equal there is one class for all.
//!
//! What a file is served beyond what was chosen (see the parent module) counts as rounds for everybody else, so that a file with
//! a large quantum does not leave the others behind.
//!
//! Always: a virtual request that has waited for its due choice goes before all that are due later.

use std::collections::HashMap;

use crate::index::{Index, Least};
use crate::policy::{Virtual, VirtualId};
use crate::request::{ApplicationId, FileId, Kind};

/// How far a lane may be served ahead of others before it stands behind them. Less costs throughput: whoever is behind is there
/// because it needs more switches.
pub(super) const LEAP_BYTES: u64 = 512 << 20;
/// How far behind the others a lane may be taken to be.
const BEHIND_BYTES_MAX: u64 = 4 * LEAP_BYTES;

/// The application whose requests a lane holds, or `None` while weights are equal.
type Class = Option<ApplicationId>;

/// One queue: the reads or the writes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub(super) class: Class,
    pub(super) file: FileId,
    pub(super) kind: Kind,
}

/// What matters of a virtual request here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brief {
    pub(super) id: VirtualId,
    pub(super) file: FileId,
    pub(super) kind: Kind,
    pub(super) application: ApplicationId,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) bytes: u64,
}

impl From<&Virtual> for Brief {
    fn from(of: &Virtual) -> Self {
        let Virtual { id, file, kind, application, start, end, bytes, .. } = *of;
        Self { id, file, kind, application, start, end, bytes }
    }
}

/// What is known of a waiting virtual request.
#[derive(Debug, Clone, Copy)]
struct State {
    of: Brief,
    lane: u32,
    /// Quantum at round `since`, and what it gains with each later one.
    quantum: u64,
    since: u64,
    rate: u64,
    /// Round and choice before its oldest part's first.
    born: u64,
    born_choice: u64,
    /// The round in which the quantum covers it.
    covered: u64,
    /// The choice at which it goes first if it was not chosen before: its quantum covers it then, everybody who waits with it could
    /// have been served sixteen times, and weights had time to come to bear.
    due: u64,
}

impl State {
    fn quantum_at(&self, round: u64) -> u64 {
        self.quantum.saturating_add(self.rate.saturating_mul(round.saturating_sub(self.since)))
    }
}

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    waiting: Index<(u64, VirtualId), Least>,
    /// Its place among the lanes of its class, while something waits: leaps, then turn.
    rank: (u64, u64),
    /// What it was served, with what it was given to begin with.
    served: u64,
    least: Option<u64>,
}

#[derive(Debug, Default)]
struct Group {
    lanes: Index<((u64, u64), u32), Least>,
    tag: u128,
    /// As it stands in `top`.
    placed: Option<(u128, u64)>,
}

/// A virtual request that has been taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) of: Brief,
    pub(super) lane: LaneKey,
    /// Its quantum in this round.
    pub(super) quantum: u64,
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Rounds {
    round: u64,
    choices: u64,
    rate_min: u64,
    patience: u64,
    by_due: Index<(u64, VirtualId), ()>,
    states: Vec<Option<State>>,
    waiting: usize,
    lanes: Vec<Lane>,
    lanes_free: Vec<u32>,
    lane_of: HashMap<LaneKey, u32>,
    rank_next: u64,
    /// The same of lanes that are empty.
    served: HashMap<(FileId, Kind), u64>,
    /// The most that a lane had been served when it was chosen.
    served_now: u64,
    groups: HashMap<Class, Group>,
    top: Index<(u128, Class), Least>,
    /// Tag of the class that was chosen last, when it was chosen.
    tag_now: u128,
    weights: HashMap<ApplicationId, u32>,
    weighted: bool,
    visited: u64,
}

impl Rounds {
    /// No rate is below `rate_min`; `patience` is the least number of choices before somebody is due.
    pub(super) fn new(rate_min: u64, patience: u64) -> Self {
        Self {
            round: 0,
            choices: 0,
            rate_min,
            patience,
            by_due: Index::default(),
            states: Vec::new(),
            waiting: 0,
            lanes: Vec::new(),
            lanes_free: Vec::new(),
            lane_of: HashMap::new(),
            rank_next: 0,
            served: HashMap::new(),
            served_now: 0,
            groups: HashMap::new(),
            top: Index::default(),
            tag_now: 0,
            weights: HashMap::new(),
            weighted: false,
            visited: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// A new virtual request: its quantum is zero. `rate` is for weight 1.
    pub(super) fn insert(&mut self, new: &Virtual, rate: u64) {
        let (since, born_choice, rate) = (self.round, self.choices, self.rate(new, rate));
        let (lane, quantum, born, covered, due) = (0, 0, since, 0, 0);
        self.place(State { of: new.into(), lane, quantum, since, rate, born, born_choice, covered, due });
    }

    /// It has other parts now; its quantum stays.
    pub(super) fn update(&mut self, changed: &Virtual, rate: u64) {
        self.change(changed, rate, |state| state);
    }

    /// It has taken in another one, which is gone: quanta add up.
    pub(super) fn merge(&mut self, into: &Virtual, gone: &Virtual, rate: u64) {
        let round = self.round;
        let Some(other) = self.lift(gone.id) else { return };
        self.settle(other.lane);
        self.change(into, rate, |mut state| {
            state.quantum = state.quantum.saturating_add(other.quantum_at(round));
            state.born = state.born.min(other.born);
            state.born_choice = state.born_choice.min(other.born_choice);
            state
        });
    }

    /// Takes one out, by name.
    pub(super) fn take(&mut self, id: VirtualId) -> Option<Taken> {
        let state = self.lift(id)?;
        self.settle(state.lane);
        let lane = self.lanes[state.lane as usize].key;
        Some(Taken { of: state.of, lane, quantum: state.quantum_at(self.round) })
    }

    /// Plays rounds until one is covered, and takes it.
    pub(super) fn choose(&mut self) -> Option<Taken> {
        let Least(least) = self.top.summary()?;
        self.choices += 1;
        self.round = least.max(self.round + 1);
        let id = self.first_due().or_else(|| self.first_covered())?;
        let lane = self.states[id.index()]?.lane;
        self.served_now = self.served_now.max(self.lanes[lane as usize].served);
        let taken = self.take(id)?;
        // Only choices go by tags; what a turn serves beyond is charged, but does not make it later for others.
        if let Some(group) = self.groups.get(&taken.lane.class) {
            self.tag_now = self.tag_now.max(group.tag);
        }
        self.charge(&taken);
        Some(taken)
    }

    /// So many rounds have passed with others being served.
    pub(super) fn pass(&mut self, rounds: u64) {
        self.round = self.round.saturating_add(rounds);
    }

    fn first_due(&self) -> Option<VirtualId> {
        self.by_due.first().filter(|(due, _)| *due <= self.choices).map(|(_, id)| id)
    }

    fn first_covered(&self) -> Option<VirtualId> {
        let covered = |by: Least| by.0 <= self.round;
        let (_, class) = self.top.first_where(covered)?;
        let (_, lane) = self.groups.get(&class)?.lanes.first_where(covered)?;
        self.lanes[lane as usize].waiting.first_where(covered).map(|(_, id)| id)
    }

    /// The first of a lane that begins at this offset or behind it.
    pub(super) fn first_from(&self, lane: LaneKey, offset: u64) -> Option<Brief> {
        let lane = *self.lane_of.get(&lane)?;
        let (_, id) = self.lanes[lane as usize].waiting.first_from(&(offset, VirtualId(0)))?;
        self.states[id.index()].map(|state| state.of)
    }

    /// What is served is charged to its lane, which goes to the back, and to its class.
    pub(super) fn charge(&mut self, taken: &Taken) {
        if let Some(lane) = self.lane_of.get(&taken.lane).copied() {
            self.lanes[lane as usize].served += taken.of.bytes;
            self.move_back(lane);
        } else {
            *self.served.entry((taken.lane.file, taken.lane.kind)).or_default() += taken.of.bytes;
        }
        let Some(application) = taken.lane.class else { return };
        let weight = self.weight(application);
        let Some(group) = self.groups.get_mut(&taken.lane.class) else { return };
        group.tag += (u128::from(taken.of.bytes.max(1)) << 20) / u128::from(weight);
        self.settle_class(taken.lane.class);
    }

    pub(super) fn weight(&self, application: ApplicationId) -> u32 {
        self.weights.get(&application).copied().unwrap_or(1)
    }

    /// Changes a weight; when that makes weights differ, or equal again, everything waiting is sorted anew.
    pub(super) fn set_weight(&mut self, application: ApplicationId, weight: u32) {
        if weight == 1 {
            self.weights.remove(&application);
        } else {
            self.weights.insert(application, weight);
        }
        let weighted = !self.weights.is_empty();
        if weighted != self.weighted {
            let ids = (0..self.states.len()).filter_map(|slot| self.states[slot].map(|state| state.of.id));
            let states: Vec<State> =
                ids.collect::<Vec<_>>().into_iter().filter_map(|id| self.lift(id)).collect();
            states.iter().for_each(|state| self.settle(state.lane));
            self.weighted = weighted;
            self.groups.clear();
            states.into_iter().for_each(|state| self.place(state));
        }
    }

    pub(super) fn forget_application(&mut self, application: ApplicationId) {
        self.set_weight(application, 1);
        self.groups.remove(&Some(application));
    }

    /// Nobody uses this file.
    pub(super) fn forget_file(&mut self, file: FileId) {
        self.served.remove(&(file, Kind::Read));
        self.served.remove(&(file, Kind::Write));
    }

    pub(super) fn take_visited(&mut self) -> u64 {
        self.top.take_visited() + self.by_due.take_visited() + std::mem::take(&mut self.visited)
    }

    /// Everything that waits, with its quantum in this round.
    #[cfg(test)]
    pub(super) fn quanta(&self) -> Vec<(Brief, u64)> {
        self.states.iter().flatten().map(|state| (state.of, state.quantum_at(self.round))).collect()
    }

    fn rate(&self, of: &Virtual, rate: u64) -> u64 {
        rate.saturating_mul(u64::from(self.weight(of.application))).max(self.rate_min)
    }

    fn change(&mut self, changed: &Virtual, rate: u64, more: impl FnOnce(State) -> State) {
        let Some(mut state) = self.lift(changed.id) else { return };
        self.settle(state.lane);
        (state.quantum, state.since) = (state.quantum_at(self.round), self.round);
        state.of = changed.into();
        state.rate = self.rate(changed, rate);
        self.place(more(state));
    }

    /// Puts a virtual request into its lane.
    fn place(&mut self, mut state: State) {
        let class = self.weighted.then_some(state.of.application);
        state.lane = self.lane(LaneKey { class, file: state.of.file, kind: state.of.kind });
        let missing = state.of.bytes.saturating_sub(state.quantum);
        // A virtual request that keeps growing is covered no later than its oldest part alone would cover the whole.
        let rounds = state.of.bytes.div_ceil(self.rate_min);
        state.covered = (state.since + missing.div_ceil(state.rate)).min(state.born + rounds);
        let patience = self.patience.saturating_add(16 * self.waiting as u64);
        state.due = state.born_choice.saturating_add(rounds).saturating_add(patience);
        self.by_due.insert((state.due, state.of.id), ());
        let slot = state.of.id.index();
        if self.states.len() <= slot {
            self.states.resize(slot + 1, None);
        }
        self.lanes[state.lane as usize].waiting.insert((state.of.start, state.of.id), Least(state.covered));
        self.states[slot] = Some(state);
        self.waiting += 1;
        self.settle(state.lane);
    }

    /// Takes a virtual request out of its lane, which must be settled afterwards.
    fn lift(&mut self, id: VirtualId) -> Option<State> {
        let state = self.states.get_mut(id.index())?.take()?;
        self.lanes[state.lane as usize].waiting.remove(&(state.of.start, id));
        self.by_due.remove(&(state.due, id));
        self.waiting -= 1;
        Some(state)
    }

    fn lane(&mut self, key: LaneKey) -> u32 {
        if let Some(lane) = self.lane_of.get(&key) {
            return *lane;
        }
        let slot = self.lanes_free.pop().unwrap_or_else(|| {
            self.lanes.push(Lane { key, waiting: Index::default(), rank: (0, 0), served: 0, least: None });
            u32::try_from(self.lanes.len() - 1).expect("the queue limit is below 2^32")
        });
        self.lanes[slot as usize].key = key;
        self.lane_of.insert(key, slot);
        slot
    }

    /// A lane that was empty has requests again. It may have been so for a moment, since its clients wait for their answers, so it
    /// keeps what it is behind, up to a limit.
    fn come(&mut self, lane: u32) {
        let key = self.lanes[lane as usize].key;
        let served = self.served.remove(&(key.file, key.kind)).unwrap_or(0);
        self.lanes[lane as usize].served = served.max(self.served_now.saturating_sub(BEHIND_BYTES_MAX));
        self.lanes[lane as usize].rank = self.back(lane);
    }

    /// The place behind all lanes that are as many leaps ahead.
    fn back(&mut self, lane: u32) -> (u64, u64) {
        let turn = self.rank_next;
        self.rank_next += 1;
        (self.lanes[lane as usize].served / LEAP_BYTES, turn)
    }

    fn move_back(&mut self, lane: u32) {
        let Lane { key, rank, least, .. } = self.lanes[lane as usize];
        let back = self.back(lane);
        let (Some(group), Some(least)) = (self.groups.get_mut(&key.class), least) else { return };
        group.lanes.remove(&(rank, lane));
        group.lanes.insert((back, lane), Least(least));
        self.lanes[lane as usize].rank = back;
    }

    /// Brings the levels above a lane up to date.
    fn settle(&mut self, slot: u32) {
        let lane = &mut self.lanes[slot as usize];
        self.visited += lane.waiting.take_visited();
        let (key, before, now) = (lane.key, lane.least, lane.waiting.summary());
        if before == now.map(|least| least.0) {
            return;
        }
        lane.least = now.map(|least| least.0);
        if before.is_none() {
            self.come(slot);
        }
        let lane = &self.lanes[slot as usize];
        let group = self.groups.entry(key.class).or_default();
        match (before, now) {
            (None, Some(least)) => group.lanes.insert((lane.rank, slot), least),
            (Some(_), Some(least)) => group.lanes.set(&(lane.rank, slot), least),
            (_, None) => {
                group.lanes.remove(&(lane.rank, slot));
                let served = self.served.entry((key.file, key.kind)).or_default();
                *served = lane.served.max(*served);
                self.lane_of.remove(&key);
                self.lanes_free.push(slot);
            }
        }
        self.settle_class(key.class);
    }

    fn settle_class(&mut self, class: Class) {
        let Some(group) = self.groups.get_mut(&class) else { return };
        self.visited += group.lanes.take_visited();
        let least = group.lanes.summary();
        if group.placed.is_none() && least.is_some() {
            group.tag = group.tag.max(self.tag_now);
        }
        let now = least.map(|least| (group.tag, least.0));
        if group.placed == now {
            return;
        }
        match (std::mem::replace(&mut group.placed, now), now) {
            (Some((before, _)), Some((tag, least))) if before == tag => {
                self.top.set(&(tag, class), Least(least))
            }
            (before, now) => {
                if let Some((tag, _)) = before {
                    self.top.remove(&(tag, class));
                }
                if let Some((tag, least)) = now {
                    self.top.insert((tag, class), Least(least));
                }
            }
        }
    }
}
