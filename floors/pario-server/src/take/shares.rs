//! Whose records are taken next where several applications have some: weighted virtual time.
//!
//! Each application has a clock that moves by the bytes that were taken of it, divided by its weight; the one that is behind goes
//! first. Applications whose records may touch the same bytes form a *circle*: they are served as one, with the sum of their weights, so that
//! the order of their commits can be kept.
//!
//! Never: looks at records, reads a clock of the machine. Always: an application that had nothing starts where the others are, and
//! so cannot save up; one of weight `w` among others of the sum `W` gets `w / W` of the bytes; every [`WAITED_EVERY`]th round can go
//! to a circle that somebody waits for and that was passed over for so long, whatever its weight.

use std::collections::HashMap;
use std::time::Duration;

use pario_core::Nanos;
use pario_sched::ApplicationId;

/// Bytes that one round takes where there is a choice; it grows and shrinks between these, so that a round takes [`ROUND_MIN`] to [`ROUND_MAX`].
const QUANTUM_MIN: u64 = 64 << 10;
const QUANTUM_MAX: u64 = 4 << 20;
const ROUND_MIN: Duration = Duration::from_millis(8);
const ROUND_MAX: Duration = Duration::from_millis(64);
/// Of so many rounds one goes to whom somebody waits for, even if its share is smaller: to the one that was passed over for longest. Where its
/// share is larger nothing changes, since it pays for that round too.
pub(super) const WAITED_EVERY: u32 = 10;
/// What a clock moves by for one byte at weight 1.
const TICKS: u128 = 1 << 20;

/// Applications that are served as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Circle {
    /// Each with its weight.
    pub(super) members: Vec<(ApplicationId, u32)>,
    /// Somebody waits for records of one of them.
    pub(super) waited: bool,
    /// When its oldest record was committed.
    pub(super) oldest: Nanos,
}

impl Circle {
    fn weight(&self) -> u128 {
        self.members.iter().map(|(_, weight)| u128::from(*weight)).sum::<u128>().max(1)
    }
}

/// What everybody has had so far, and how much is taken at once.
#[derive(Debug)]
pub(super) struct Shares {
    /// Where the one stood that was behind most when last looked at.
    now: u128,
    /// Of those that are ahead of that.
    clocks: HashMap<ApplicationId, u128>,
    quantum: u64,
    /// How many rounds went to others while somebody waited for an application.
    passed_over: HashMap<ApplicationId, u32>,
    /// Rounds since one went to somebody for that reason.
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
    /// The circles in the order in which they have a claim to the next round.
    pub(super) fn order(&mut self, circles: &[Circle]) -> Vec<usize> {
        let clock = |circle: &Circle| self.clock(circle);
        let mut order: Vec<(u128, Nanos, usize)> =
            circles.iter().enumerate().map(|(at, circle)| (clock(circle), circle.oldest, at)).collect();
        order.sort_unstable();
        if let Some((behind, _, _)) = order.first() {
            self.now = *behind;
        }
        let now = self.now;
        self.clocks.retain(|_, clock| now < *clock);
        let mut order: Vec<usize> = order.into_iter().map(|(_, _, at)| at).collect();
        if let Some(longest) = self.passed_over_for_longest(circles) {
            order.retain(|at| *at != longest);
            order.insert(0, longest);
            self.since_favour = 0;
        }
        order
    }

    /// Bytes were taken of these circles, in one round.
    pub(super) fn charge(&mut self, circles: &[Circle], bytes: &[u64]) {
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

    /// Whose turn it is although others have a better claim.
    fn passed_over_for_longest(&self, circles: &[Circle]) -> Option<usize> {
        let rounds = |circle: &Circle| {
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

    /// Bytes that a round takes, at about a quarter of what an outbox holds: what is left there keeps its application in the running.
    pub(super) fn quantum(&self, outbox_bytes: u64) -> u64 {
        self.quantum.min(outbox_bytes / 4).max(1)
    }

    /// A round that was cut to the quantum took so long.
    pub(super) fn took(&mut self, time: Duration) {
        self.quantum = match time {
            time if time < ROUND_MIN => (self.quantum * 2).min(QUANTUM_MAX),
            time if ROUND_MAX < time => (self.quantum / 2).max(QUANTUM_MIN),
            _ => self.quantum,
        };
    }

    /// Who came together is where the foremost was: nobody gains by joining others.
    fn clock(&self, circle: &Circle) -> u128 {
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
