//! Which application is drained next where several have records: weighted virtual time.
//!
//! Each application has a clock that advances by the bytes drained from it, divided by its weight; the lowest clock goes first.
//! Applications with records that may overlap form a *conflict group*: they are served as one, with the sum of their weights, so that
//! commit order is kept.
//!
//! Never: reads records or the machine's clock. Always: an application that had no records starts at the clock of the others, and so
//! accumulates no credit; an application of weight `w` among others of the sum `W` gets `w / W` of the bytes; every [`WAITED_EVERY`]th
//! round can go to a conflict group with a waiting caller that was passed over for that long, regardless of its weight.

use std::collections::HashMap;
use std::time::Duration;

use pario_core::Nanos;
use pario_sched::ApplicationId;

/// Bytes that one round drains where there is a choice; adapted between these limits, so that a round takes [`ROUND_MIN`] to [`ROUND_MAX`].
const QUANTUM_MIN: u64 = 64 << 10;
const QUANTUM_MAX: u64 = 4 << 20;
const ROUND_MIN: Duration = Duration::from_millis(8);
const ROUND_MAX: Duration = Duration::from_millis(64);
/// One of this many rounds goes to a group with a waiting caller, even if its share is smaller: to the one passed over for longest. A
/// larger share does not change, since it is charged for that round too.
pub(super) const WAITED_EVERY: u32 = 10;
/// Clock advance for one byte at weight 1.
const TICKS: u128 = 1 << 20;

/// Applications that are served as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ConflictGroup {
    /// Applications and weights.
    pub(super) members: Vec<(ApplicationId, u32)>,
    /// A caller waits for records of a member.
    pub(super) waited: bool,
    /// Commit time of its oldest record.
    pub(super) oldest: Nanos,
}

impl ConflictGroup {
    fn weight(&self) -> u128 {
        self.members.iter().map(|(_, weight)| u128::from(*weight)).sum::<u128>().max(1)
    }
}

/// Virtual clocks of the applications, and the current quantum.
#[derive(Debug)]
pub(super) struct Shares {
    /// The lowest clock when last checked.
    now: u128,
    /// Clocks above that.
    clocks: HashMap<ApplicationId, u128>,
    quantum: u64,
    /// Rounds that went to others while a caller waited for the application.
    passed_over: HashMap<ApplicationId, u32>,
    /// Rounds since the last one that went to a passed-over group.
    since_favour: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Shares {
            now: 0,
            clocks: HashMap::new(),
            quantum: QUANTUM_MIN,
            passed_over: HashMap::new(),
            since_favour: 0,
        }
    }
}

impl Shares {
    /// The conflict groups in the order of their claim to the next round.
    pub(super) fn order(&mut self, circles: &[ConflictGroup]) -> Vec<usize> {
        let clock = |circle: &ConflictGroup| self.clock(circle);
        let mut order: Vec<(u128, Nanos, usize)> =
            circles.iter().enumerate().map(|(at, circle)| (clock(circle), circle.oldest, at)).collect();
        order.sort_unstable();
        if let Some((behind, _, _)) = order.first() {
            self.now = *behind;
        }
        let now = self.now;
        self.clocks.retain(|_, clock| now < *clock);
        let mut order: Vec<usize> = order.into_iter().map(|(_, _, at)| at).collect();
        if let Some(longest) = self.longest_passed_over(circles) {
            order.retain(|at| *at != longest);
            order.insert(0, longest);
            self.since_favour = 0;
        }
        order
    }

    /// Bytes were drained from these groups, in one round.
    pub(super) fn charge(&mut self, circles: &[ConflictGroup], bytes: &[u64]) {
        let before = std::mem::take(&mut self.passed_over);
        self.since_favour = self.since_favour.saturating_add(1);
        for (circle, bytes) in circles.iter().zip(bytes) {
            let clock = self.clock(circle) + u128::from(*bytes) * TICKS / circle.weight();
            for (application, _) in &circle.members {
                if 0 < *bytes {
                    self.clocks.insert(*application, clock);
                } else if circle.waited {
                    let rounds = before.get(application).copied().unwrap_or(0);
                    self.passed_over.insert(*application, rounds.saturating_add(1));
                }
            }
        }
    }

    /// The group that was passed over for longest.
    fn longest_passed_over(&self, circles: &[ConflictGroup]) -> Option<usize> {
        let rounds = |circle: &ConflictGroup| {
            circle
                .members
                .iter()
                .filter_map(|(application, _)| self.passed_over.get(application))
                .max()
                .copied()
        };
        let waited = circles.iter().enumerate().filter(|(_, circle)| circle.waited);
        let passed =
            waited.filter_map(|(at, circle)| Some((rounds(circle)?, std::cmp::Reverse(circle.oldest), at)));
        let (rounds, _, at) = passed.max()?;
        (WAITED_EVERY <= rounds + 1 && WAITED_EVERY <= self.since_favour).then_some(at)
    }

    /// Bytes that a round drains, about a quarter of an outbox: the records left keep its application competing.
    pub(super) fn quantum(&self, outbox_bytes: u64) -> u64 {
        self.quantum.min(outbox_bytes / 4).max(1)
    }

    /// A round that was cut to the quantum took this long.
    pub(super) fn adapt_quantum(&mut self, time: Duration) {
        self.quantum = match time {
            time if time < ROUND_MIN => (self.quantum * 2).min(QUANTUM_MAX),
            time if ROUND_MAX < time => (self.quantum / 2).max(QUANTUM_MIN),
            _ => self.quantum,
        };
    }

    /// A group has the highest clock of its members: joining others gains nothing.
    fn clock(&self, circle: &ConflictGroup) -> u128 {
        let clocks = circle.members.iter().filter_map(|(application, _)| self.clocks.get(application));
        clocks.copied().max().unwrap_or(0).max(self.now)
    }

    #[cfg(test)]
    pub(super) fn with_quantum(quantum: u64) -> Shares {
        Shares { quantum, ..Shares::default() }
    }

    #[cfg(test)]
    pub(super) fn set_quantum(&mut self, quantum: u64) {
        self.quantum = quantum;
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
