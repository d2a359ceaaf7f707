//! Tuning at run time: chooses saturation size and active members from the bytes and times of calls.
//!
//! A pure machine. A choice is used for some calls, then one neighbour of it: the other number of active members, or the other saturation
//! size. A neighbour that is clearly faster becomes the choice. Once no neighbour is faster, the choice is kept for a long time.
//!
//! Never: reads a clock; learns from calls so small that the choice does not matter. Always: a choice lies inside of its limits.

/// Smallest and largest saturation size.
pub(super) const SATURATION_MIN: u64 = 64 << 10;
pub(super) const SATURATION_MAX: u64 = 64 << 20;
/// The saturation size at the beginning.
const SATURATION_FIRST: u64 = 1 << 20;
/// Calls by which a choice is judged; the fastest counts, since others were disturbed.
const CALLS_PER_TRIAL: u32 = 5;
/// A neighbour must be faster by this factor, in percent.
const GAIN_PERCENT: u64 = 105;
/// Calls after which a settled choice is compared with its neighbours again.
const CALLS_SETTLED: u32 = 512;

/// A saturation size and a number of active members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TeamChoice {
    pub(super) saturation: u64,
    pub(super) active: u64,
}

/// What the tuner may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TuneLimits {
    /// Fixed by a setting.
    pub(super) saturation: Option<u64>,
    /// Fixed by a setting.
    pub(super) active: Option<u64>,
    /// Processors: the first choice, and twice as many is the largest.
    pub(super) processors: u64,
}

/// A call that was carried out under a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MeasuredCall {
    pub(super) choice: TeamChoice,
    pub(super) bytes: u64,
    pub(super) nanos: u64,
}

/// The state of tuning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tuner {
    limits: TuneLimits,
    /// The best choice so far, and its speed in bytes per millisecond.
    best: TeamChoice,
    best_speed: u64,
    /// The choice on trial.
    trial: TeamChoice,
    trial_speed: u64,
    calls: u32,
    /// The neighbour to be tried next; past the last one the choice is settled.
    next: usize,
}

/// Neighbours of a choice.
const NEIGHBOURS: usize = 4;

impl Tuner {
    pub(super) fn new(limits: TuneLimits) -> Tuner {
        let best = TeamChoice {
            saturation: limits.saturation.unwrap_or(SATURATION_FIRST).max(1),
            active: limits.active.unwrap_or(limits.processors).max(1),
        };
        Tuner { limits, best, best_speed: 0, trial: best, trial_speed: 0, calls: 0, next: 0 }
    }

    /// The choice for the next call.
    pub(super) fn choice(&self) -> TeamChoice {
        self.trial
    }

    /// Learns from a call.
    pub(super) fn measured(&mut self, call: MeasuredCall) {
        // Below the smallest size, or under an older choice, the call says nothing about this one.
        if call.bytes < 2 * SATURATION_MIN || call.choice != self.trial {
            return;
        }
        let speed = call.bytes.saturating_mul(1_000_000) / call.nanos.max(1);
        self.trial_speed = self.trial_speed.max(speed);
        self.calls += 1;
        let is_settled = self.next == NEIGHBOURS && self.trial == self.best;
        if self.calls < if is_settled { CALLS_SETTLED } else { CALLS_PER_TRIAL } {
            return;
        }
        self.judge(is_settled);
    }

    fn judge(&mut self, was_settled: bool) {
        if self.trial == self.best {
            self.best_speed = self.trial_speed;
            if was_settled {
                self.next = 0;
            }
        } else if self.best_speed * GAIN_PERCENT / 100 < self.trial_speed {
            (self.best, self.best_speed) = (self.trial, self.trial_speed);
            // The same direction first: `next` stays where it was.
            self.next -= 1;
        }
        self.begin_trial();
    }

    fn begin_trial(&mut self) {
        (self.calls, self.trial_speed) = (0, 0);
        while self.next < NEIGHBOURS {
            let neighbour = self.neighbour(self.next);
            self.next += 1;
            if let Some(neighbour) = neighbour {
                self.trial = neighbour;
                return;
            }
        }
        self.trial = self.best;
    }

    fn neighbour(&self, number: usize) -> Option<TeamChoice> {
        let TeamChoice { saturation, active } = self.best;
        let (may_size, may_active) = (self.limits.saturation.is_none(), self.limits.active.is_none());
        let active_max = self.limits.processors.saturating_mul(2);
        let choice = match number {
            0 => may_active.then_some(TeamChoice { active: active / 2, saturation }),
            1 => may_active.then_some(TeamChoice { active: active * 2, saturation }),
            2 => may_size.then_some(TeamChoice { active, saturation: saturation * 2 }),
            _ => may_size.then_some(TeamChoice { active, saturation: saturation / 2 }),
        };
        choice.filter(|choice| {
            let sizes = self.limits.saturation.is_some()
                || (SATURATION_MIN..=SATURATION_MAX).contains(&choice.saturation);
            let members = self.limits.active.is_some() || (1..=active_max).contains(&choice.active);
            sizes && members
        })
    }
}

#[cfg(test)]
#[path = "tune_tests.rs"]
mod tests;
