//! The base algorithm of `mlf`: rounds, quanta, and the order of choices.
//!
//! Each file has a queue for reads and one for writes, in offset order. A virtual request arrives with a quantum of zero and
//! gains its rate with every round; two that merge add their quanta. One round is one choice: every quantum grows, then the first virtual
//! request covered by its quantum is chosen, by offset within a queue and first in, first out between queues; a served queue moves to the
//! back. Rounds without a covered request are not simulated, only counted.
//!
//! Turns of queues differ in size: a file with synchronised clients uses all of a large quantum, another file's next request is
//! elsewhere. So the bytes served per queue are counted in leaps of [`LEAP_BYTES`], and a queue that is a leap further is behind all that
//! are not.
//!
//! A round updates no quantum. Each request stores the round in which its quantum will cover it (`covered`), and the index has the least
//! of each subtree: finding the first covered request is one descent.
//!
//! Applications of different weight have a level above: classes with tags that grow by bytes over weight (as in `wfq`); the smallest tag
//! with a covered request is first. While all weights are equal there is one class.
//!
//! Bytes that a file is served beyond its choice (see the parent module) count as rounds for all other requests, so that a file with a
//! large quantum does not starve the others.
//!
//! Always: a virtual request that has waited for its due choice is served before all that are due later.

use std::collections::HashMap;

use crate::index::{Index, Least};
use crate::policy::{Virtual, VirtualId};
use crate::request::{ApplicationId, FileId, IoKind};

/// Bytes by which a file queue may exceed others before it is deferred. A smaller value costs throughput: slower queues are those that
/// need more switches.
pub(super) const LEAP_BYTES: u64 = 512 << 20;
/// Largest recorded deficit of a file queue.
const BEHIND_BYTES_MAX: u64 = 4 * LEAP_BYTES;

/// The application of a file queue's requests, or `None` while weights are equal.
type WeightClass = Option<ApplicationId>;

/// Key of a file queue: the reads or the writes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileQueueKey {
    pub(super) class: WeightClass,
    pub(super) file: FileId,
    pub(super) kind: IoKind,
}

/// The fields of a virtual request used here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brief {
    pub(super) id: VirtualId,
    pub(super) file: FileId,
    pub(super) kind: IoKind,
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

/// State of a waiting virtual request.
#[derive(Debug, Clone, Copy)]
struct VirtualState {
    of: Brief,
    queue: u32,
    /// Quantum at round `since`, and its gain with each later round.
    quantum: u64,
    since: u64,
    rate: u64,
    /// Round and choice before the first of its oldest part.
    born: u64,
    born_choice: u64,
    /// The round in which the quantum covers it.
    covered: u64,
    /// The choice at which it is served first if it was not chosen before: its quantum covers it by then, every request that waits with
    /// it could have been served sixteen times, and weights had time to take effect.
    due: u64,
}

impl VirtualState {
    fn quantum_at(&self, round: u64) -> u64 {
        self.quantum.saturating_add(self.rate.saturating_mul(round.saturating_sub(self.since)))
    }
}

#[derive(Debug)]
struct FileQueue {
    key: FileQueueKey,
    waiting: Index<(u64, VirtualId), Least>,
    /// Its rank among the queues of its class, while requests wait: leaps, then turn.
    rank: (u64, u64),
    /// Bytes served, including its initial credit.
    served: u64,
    least: Option<u64>,
}

#[derive(Debug, Default)]
struct ClassQueues {
    queues: Index<((u64, u64), u32), Least>,
    tag: u128,
    /// Its entry in `top`.
    placed: Option<(u128, u64)>,
}

/// A virtual request that was chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenRequest {
    pub(super) of: Brief,
    pub(super) queue: FileQueueKey,
    /// Its quantum in this round.
    pub(super) quantum: u64,
}

/// All file queues.
#[derive(Debug)]
pub(super) struct MlfRounds {
    round: u64,
    choices: u64,
    rate_min: u64,
    patience: u64,
    by_due: Index<(u64, VirtualId), ()>,
    states: Vec<Option<VirtualState>>,
    waiting: usize,
    queues: Vec<FileQueue>,
    queues_free: Vec<u32>,
    queue_of: HashMap<FileQueueKey, u32>,
    rank_next: u64,
    /// Bytes served of empty queues.
    served: HashMap<(FileId, IoKind), u64>,
    /// The largest `served` of a queue when it was chosen.
    served_now: u64,
    groups: HashMap<WeightClass, ClassQueues>,
    top: Index<(u128, WeightClass), Least>,
    /// Tag of the last chosen class, at its choice.
    tag_now: u128,
    weights: HashMap<ApplicationId, u32>,
    weighted: bool,
    visited: u64,
}

impl MlfRounds {
    /// No rate is below `rate_min`; `patience` is the least number of choices before a request is due.
    pub(super) fn new(rate_min: u64, patience: u64) -> Self {
        Self {
            round: 0,
            choices: 0,
            rate_min,
            patience,
            by_due: Index::default(),
            states: Vec::new(),
            waiting: 0,
            queues: Vec::new(),
            queues_free: Vec::new(),
            queue_of: HashMap::new(),
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
        self.attach(VirtualState {
            of: new.into(),
            queue: lane,
            quantum,
            since,
            rate,
            born,
            born_choice,
            covered,
            due,
        });
    }

    /// Its parts changed; its quantum stays.
    pub(super) fn update(&mut self, changed: &Virtual, rate: u64) {
        self.change(changed, rate, |state| state);
    }

    /// It has absorbed another one: quanta add up.
    pub(super) fn merge(&mut self, into: &Virtual, gone: &Virtual, rate: u64) {
        let round = self.round;
        let Some(other) = self.detach(gone.id) else { return };
        self.update_levels(other.queue);
        self.change(into, rate, |mut state| {
            state.quantum = state.quantum.saturating_add(other.quantum_at(round));
            state.born = state.born.min(other.born);
            state.born_choice = state.born_choice.min(other.born_choice);
            state
        });
    }

    /// Removes a virtual request by id.
    pub(super) fn take(&mut self, id: VirtualId) -> Option<ChosenRequest> {
        let state = self.detach(id)?;
        self.update_levels(state.queue);
        let lane = self.queues[state.queue as usize].key;
        Some(ChosenRequest { of: state.of, queue: lane, quantum: state.quantum_at(self.round) })
    }

    /// Advances to the round in which a request is covered, and removes that request.
    pub(super) fn choose(&mut self) -> Option<ChosenRequest> {
        let Least(least) = self.top.summary()?;
        self.choices += 1;
        self.round = least.max(self.round + 1);
        let id = self.first_due().or_else(|| self.first_covered())?;
        let lane = self.states[id.index()]?.queue;
        self.served_now = self.served_now.max(self.queues[lane as usize].served);
        let taken = self.take(id)?;
        // Only choices advance the tag; bytes that a turn serves beyond its choice are charged, but delay no other class.
        if let Some(group) = self.groups.get(&taken.queue.class) {
            self.tag_now = self.tag_now.max(group.tag);
        }
        self.charge(&taken);
        Some(taken)
    }

    /// Advances by so many rounds while others are served.
    pub(super) fn pass(&mut self, rounds: u64) {
        self.round = self.round.saturating_add(rounds);
    }

    fn first_due(&self) -> Option<VirtualId> {
        self.by_due.first().filter(|(due, _)| *due <= self.choices).map(|(_, id)| id)
    }

    fn first_covered(&self) -> Option<VirtualId> {
        let covered = |by: Least| by.0 <= self.round;
        let (_, class) = self.top.first_where(covered)?;
        let (_, lane) = self.groups.get(&class)?.queues.first_where(covered)?;
        self.queues[lane as usize].waiting.first_where(covered).map(|(_, id)| id)
    }

    /// The first request of a file queue at or after this offset.
    pub(super) fn first_from(&self, lane: FileQueueKey, offset: u64) -> Option<Brief> {
        let lane = *self.queue_of.get(&lane)?;
        let (_, id) = self.queues[lane as usize].waiting.first_from(&(offset, VirtualId(0)))?;
        self.states[id.index()].map(|state| state.of)
    }

    /// Charges the bytes served to the file queue, which moves to the back, and to its class.
    pub(super) fn charge(&mut self, taken: &ChosenRequest) {
        if let Some(lane) = self.queue_of.get(&taken.queue).copied() {
            self.queues[lane as usize].served += taken.of.bytes;
            self.move_back(lane);
        } else {
            *self.served.entry((taken.queue.file, taken.queue.kind)).or_default() += taken.of.bytes;
        }
        let Some(application) = taken.queue.class else { return };
        let weight = self.weight(application);
        let Some(group) = self.groups.get_mut(&taken.queue.class) else { return };
        group.tag += (u128::from(taken.of.bytes.max(1)) << 20) / u128::from(weight);
        self.update_class(taken.queue.class);
    }

    pub(super) fn weight(&self, application: ApplicationId) -> u32 {
        self.weights.get(&application).copied().unwrap_or(1)
    }

    /// Changes a weight; when weights become different, or equal again, all waiting requests are sorted anew.
    pub(super) fn set_weight(&mut self, application: ApplicationId, weight: u32) {
        if weight == 1 {
            self.weights.remove(&application);
        } else {
            self.weights.insert(application, weight);
        }
        let weighted = !self.weights.is_empty();
        if weighted != self.weighted {
            let ids = (0..self.states.len()).filter_map(|slot| self.states[slot].map(|state| state.of.id));
            let states: Vec<VirtualState> =
                ids.collect::<Vec<_>>().into_iter().filter_map(|id| self.detach(id)).collect();
            states.iter().for_each(|state| self.update_levels(state.queue));
            self.weighted = weighted;
            self.groups.clear();
            states.into_iter().for_each(|state| self.attach(state));
        }
    }

    pub(super) fn forget_application(&mut self, application: ApplicationId) {
        self.set_weight(application, 1);
        self.groups.remove(&Some(application));
    }

    /// The file has no requests.
    pub(super) fn forget_file(&mut self, file: FileId) {
        self.served.remove(&(file, IoKind::Read));
        self.served.remove(&(file, IoKind::Write));
    }

    pub(super) fn take_visited(&mut self) -> u64 {
        self.top.take_visited() + self.by_due.take_visited() + std::mem::take(&mut self.visited)
    }

    /// All waiting requests, with their quanta in this round.
    #[cfg(test)]
    pub(super) fn quanta(&self) -> Vec<(Brief, u64)> {
        self.states.iter().flatten().map(|state| (state.of, state.quantum_at(self.round))).collect()
    }

    fn rate(&self, of: &Virtual, rate: u64) -> u64 {
        rate.saturating_mul(u64::from(self.weight(of.application))).max(self.rate_min)
    }

    fn change(&mut self, changed: &Virtual, rate: u64, more: impl FnOnce(VirtualState) -> VirtualState) {
        let Some(mut state) = self.detach(changed.id) else { return };
        self.update_levels(state.queue);
        (state.quantum, state.since) = (state.quantum_at(self.round), self.round);
        state.of = changed.into();
        state.rate = self.rate(changed, rate);
        self.attach(more(state));
    }

    /// Adds a virtual request to its file queue.
    fn attach(&mut self, mut state: VirtualState) {
        let class = self.weighted.then_some(state.of.application);
        state.queue = self.queue_slot(FileQueueKey { class, file: state.of.file, kind: state.of.kind });
        let missing = state.of.bytes.saturating_sub(state.quantum);
        // A growing virtual request is covered no later than its oldest part's quantum alone would cover the whole.
        let rounds = state.of.bytes.div_ceil(self.rate_min);
        state.covered = (state.since + missing.div_ceil(state.rate)).min(state.born + rounds);
        let patience = self.patience.saturating_add(16 * self.waiting as u64);
        state.due = state.born_choice.saturating_add(rounds).saturating_add(patience);
        self.by_due.insert((state.due, state.of.id), ());
        let slot = state.of.id.index();
        if self.states.len() <= slot {
            self.states.resize(slot + 1, None);
        }
        self.queues[state.queue as usize].waiting.insert((state.of.start, state.of.id), Least(state.covered));
        self.states[slot] = Some(state);
        self.waiting += 1;
        self.update_levels(state.queue);
    }

    /// Removes a virtual request from its file queue; [`Self::update_levels`] must follow.
    fn detach(&mut self, id: VirtualId) -> Option<VirtualState> {
        let state = self.states.get_mut(id.index())?.take()?;
        self.queues[state.queue as usize].waiting.remove(&(state.of.start, id));
        self.by_due.remove(&(state.due, id));
        self.waiting -= 1;
        Some(state)
    }

    fn queue_slot(&mut self, key: FileQueueKey) -> u32 {
        if let Some(lane) = self.queue_of.get(&key) {
            return *lane;
        }
        let slot = self.queues_free.pop().unwrap_or_else(|| {
            self.queues.push(FileQueue {
                key,
                waiting: Index::default(),
                rank: (0, 0),
                served: 0,
                least: None,
            });
            u32::try_from(self.queues.len() - 1).expect("the queue limit is below 2^32")
        });
        self.queues[slot as usize].key = key;
        self.queue_of.insert(key, slot);
        slot
    }

    /// An empty file queue has requests again. It may have been empty only because its clients wait for their answers, so it keeps its
    /// deficit, up to a limit.
    fn wake_queue(&mut self, lane: u32) {
        let key = self.queues[lane as usize].key;
        let served = self.served.remove(&(key.file, key.kind)).unwrap_or(0);
        self.queues[lane as usize].served = served.max(self.served_now.saturating_sub(BEHIND_BYTES_MAX));
        self.queues[lane as usize].rank = self.back(lane);
    }

    /// The rank behind all queues with as many leaps.
    fn back(&mut self, lane: u32) -> (u64, u64) {
        let turn = self.rank_next;
        self.rank_next += 1;
        (self.queues[lane as usize].served / LEAP_BYTES, turn)
    }

    fn move_back(&mut self, lane: u32) {
        let FileQueue { key, rank, least, .. } = self.queues[lane as usize];
        let back = self.back(lane);
        let (Some(group), Some(least)) = (self.groups.get_mut(&key.class), least) else { return };
        group.queues.remove(&(rank, lane));
        group.queues.insert((back, lane), Least(least));
        self.queues[lane as usize].rank = back;
    }

    /// Updates the levels above a file queue.
    fn update_levels(&mut self, slot: u32) {
        let lane = &mut self.queues[slot as usize];
        self.visited += lane.waiting.take_visited();
        let (key, before, now) = (lane.key, lane.least, lane.waiting.summary());
        if before == now.map(|least| least.0) {
            return;
        }
        lane.least = now.map(|least| least.0);
        if before.is_none() {
            self.wake_queue(slot);
        }
        let lane = &self.queues[slot as usize];
        let group = self.groups.entry(key.class).or_default();
        match (before, now) {
            (None, Some(least)) => group.queues.insert((lane.rank, slot), least),
            (Some(_), Some(least)) => group.queues.set(&(lane.rank, slot), least),
            (_, None) => {
                group.queues.remove(&(lane.rank, slot));
                let served = self.served.entry((key.file, key.kind)).or_default();
                *served = lane.served.max(*served);
                self.queue_of.remove(&key);
                self.queues_free.push(slot);
            }
        }
        self.update_class(key.class);
    }

    fn update_class(&mut self, class: WeightClass) {
        let Some(group) = self.groups.get_mut(&class) else { return };
        self.visited += group.queues.take_visited();
        let least = group.queues.summary();
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
