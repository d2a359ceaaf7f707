//! Learned state of `mlf`: per file the use of its quantum and the think time of its streams, per store the cost of a switch.
//!
//! Always: a quantum is between its least and its most, and never zero.
//!
//! # When it waits for a stream's next request
//! Waiting can save at most one switch: leaving the file and returning. So a wait is never longer than a switch costs, and does not begin
//! if the stream is known to think longer. Each file has a balance, in microseconds: it begins with two switches, gains `switch - waited`
//! when the request arrives in time, loses the time waited in vain, and is kept below sixteen switches; no wait is longer than the
//! balance. Hence the time lost on a file is at most the time saved by its waits plus two switches. A file without balance earns it back,
//! up to the first two switches, a quarter at a time, when requests arrive that a wait would have met. Time counts as waited only while
//! another request could have been served.

use crate::options::{QuantumOptions, SwitchCost};
use crate::request::IoKind;

/// First balance of a file, in switches.
const BALANCE_FIRST: u64 = 2;
/// Largest balance of a file, in switches.
const BALANCE_MAX: u64 = 16;

/// Use of a file's quantum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuantumUse {
    /// Used up: there was more to serve than it allowed.
    Up,
    /// Bytes used of the bytes given.
    Partly { used: u64, given: u64 },
}

/// End of a file's last run of one kind, and its time.
#[derive(Debug, Clone, Copy)]
struct Tail {
    end: u64,
    done_us: u64,
}

/// Learned state of one file.
#[derive(Debug)]
pub(super) struct History {
    quantum: u64,
    think_us: Option<u64>,
    balance_us: u64,
    tails: [Option<Tail>; 2],
}

impl History {
    pub(super) fn new(options: &QuantumOptions, switch_us: u64) -> Self {
        let balance_us = switch_us.saturating_mul(BALANCE_FIRST);
        Self { quantum: options.base_bytes, think_us: None, balance_us, tails: [None; 2] }
    }

    /// Quantum that a virtual request of this file gains each round.
    pub(super) fn quantum(&self) -> u64 {
        self.quantum
    }

    /// Grows a quantum that was used up, shrinks one that was used little, resets one that was hardly used. `first` is the size of the
    /// choice alone: with a smaller quantum the file's next request would wait for several rounds, others would be chosen in each of
    /// them, and a file with unsynchronised clients would fall ever farther behind.
    pub(super) fn adapt(&mut self, used: QuantumUse, first: u64, options: &QuantumOptions) {
        self.quantum = match used {
            QuantumUse::Up => self.quantum.saturating_mul(2),
            QuantumUse::Partly { used, given } if given / 4 * 3 <= used => self.quantum.saturating_mul(2),
            QuantumUse::Partly { used, given } if given / 2 <= used => self.quantum,
            QuantumUse::Partly { used, given } if given / 8 <= used => self.quantum / 2,
            QuantumUse::Partly { .. } => options.base_bytes,
        }
        .max(first)
        .clamp(options.bytes_min, options.bytes_max);
    }

    /// The end of the file was reached.
    pub(super) fn reset(&mut self, options: &QuantumOptions) {
        self.quantum = options.base_bytes;
        self.think_us = None;
        self.tails = [None; 2];
    }

    pub(super) fn run_ended(&mut self, kind: IoKind, end: u64, now_us: u64) {
        self.tails[slot(kind)] = Some(Tail { end, done_us: now_us });
    }

    /// A request arrived; if it continues the last run, the stream's think time is known.
    pub(super) fn request_arrived(
        &mut self,
        kind: IoKind,
        start: u64,
        arrival_us: u64,
        options: &QuantumOptions,
    ) -> Option<u64> {
        let Tail { end, done_us } = self.tails[slot(kind)]?;
        if end.abs_diff(start) > options.window_bytes {
            return None;
        }
        self.tails[slot(kind)] = None;
        let thought = arrival_us.saturating_sub(done_us);
        self.think_us = Some(self.think_us.map_or(thought, |before| blend(before, thought)));
        Some(thought)
    }

    /// How long to wait for the next request of this file; zero: not at all.
    pub(super) fn wait_limit_us(&self, switch_us: u64, options: &QuantumOptions) -> u64 {
        let think_us = self.think_us.unwrap_or(switch_us / 2);
        let wished = think_us.saturating_mul(2).saturating_add(switch_us / 8);
        let allowed = wished.min(switch_us).min(options.wait_us_max).min(self.balance_us);
        if allowed < think_us { 0 } else { allowed }
    }

    /// The awaited request arrived; returns the time saved.
    pub(super) fn hit(&mut self, waited_us: u64, switch_us: u64) -> u64 {
        let won = switch_us.saturating_sub(waited_us);
        self.balance_us = (self.balance_us.saturating_add(won)).min(switch_us.saturating_mul(BALANCE_MAX));
        won
    }

    /// The awaited request did not arrive.
    pub(super) fn missed(&mut self, waited_us: u64) {
        self.balance_us = self.balance_us.saturating_sub(waited_us);
    }

    /// A request arrived that a wait would have met.
    pub(super) fn would_have_hit(&mut self, thought_us: u64, switch_us: u64) {
        let first = switch_us.saturating_mul(BALANCE_FIRST);
        if thought_us < switch_us && self.balance_us < first {
            self.balance_us = (self.balance_us + (switch_us - thought_us) / 4).min(first);
        }
    }
}

fn slot(kind: IoKind) -> usize {
    match kind {
        IoKind::Read => 0,
        IoKind::Write => 1,
    }
}

/// Cost of a switch, learned from the service times of runs that follow the one before and of runs that do not.
#[derive(Debug)]
pub(super) struct SwitchMeter {
    switch_us: u64,
    /// Time per mebibyte of runs that follow; `None` before the first one.
    follow_us_per_mib: Option<u64>,
    learns: bool,
}

impl SwitchMeter {
    pub(super) fn new(cost: SwitchCost) -> Self {
        let (switch_us, learns) = match cost {
            SwitchCost::Fixed { us } => (us, false),
            SwitchCost::Measured { initial_us } => (initial_us, true),
        };
        Self { switch_us, follow_us_per_mib: None, learns }
    }

    pub(super) fn switch_us(&self) -> u64 {
        self.switch_us
    }

    pub(super) fn run_ended(&mut self, bytes: u64, service_us: u64, follows: bool) {
        if !self.learns || bytes == 0 {
            return;
        }
        if follows {
            let per_mib = service_us.saturating_mul(1 << 20) / bytes;
            self.follow_us_per_mib =
                Some(self.follow_us_per_mib.map_or(per_mib, |before| blend(before, per_mib)));
        } else if let Some(per_mib) = self.follow_us_per_mib {
            let moving_us = per_mib.saturating_mul(bytes) >> 20;
            self.switch_us = blend(self.switch_us, service_us.saturating_sub(moving_us));
        }
    }
}

/// A moving average that gives the newest value an eighth.
fn blend(before: u64, new: u64) -> u64 {
    let eighth = |value: u64| value / 8;
    if before < new { before + eighth(new - before).max(1) } else { before - eighth(before - new) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_quantum_is_never_zero_and_stays_between_its_limits(
            limits in (1..64_u64, 0..64_u64, 0..64_u64),
            steps in prop::collection::vec((0..100_u64, 1..100_u64, 0..300_u64, any::<bool>()), 0..100),
        ) {
            let (bytes_min, more, most) = limits;
            let base_bytes = bytes_min + more;
            let options = QuantumOptions { bytes_min, base_bytes, bytes_max: base_bytes + most, ..QuantumOptions::default() };
            let mut history = History::new(&options, 1000);
            for (used, given, first, up) in steps {
                let used = used.min(given);
                history.adapt(if up { QuantumUse::Up } else { QuantumUse::Partly { used, given } }, first, &options);
                prop_assert!(0 < history.quantum());
                prop_assert!(first.min(options.bytes_max) <= history.quantum());
                prop_assert!((options.bytes_min..=options.bytes_max).contains(&history.quantum()));
            }
        }

        #[test]
        fn what_is_lost_is_bounded_by_what_is_won(steps in prop::collection::vec((any::<bool>(), 0..5000_u64), 0..300)) {
            let (options, switch_us) = (QuantumOptions::default(), 2000);
            let mut history = History::new(&options, switch_us);
            let (mut won_us, mut lost_us) = (0, 0);
            for (comes, thought_us) in steps {
                let patience_us = history.wait_limit_us(switch_us, &options);
                prop_assert!(patience_us <= switch_us);
                if comes && thought_us <= patience_us {
                    won_us += history.hit(thought_us, switch_us);
                } else {
                    history.missed(patience_us);
                    lost_us += patience_us;
                }
                prop_assert!(lost_us <= won_us + BALANCE_FIRST * switch_us, "lost {lost_us}, won {won_us}");
            }
        }
    }

    #[test]
    fn grows_shrinks_and_resets() {
        let options = QuantumOptions::default();
        let mut history = History::new(&options, 1000);
        let base = options.base_bytes;
        let given = 1024;
        for (used, expected) in [
            (QuantumUse::Up, 2 * base),
            (QuantumUse::Partly { used: 800, given }, 4 * base),
            (QuantumUse::Partly { used: 600, given }, 4 * base),
            (QuantumUse::Partly { used: 300, given }, 2 * base),
            (QuantumUse::Partly { used: 200, given }, base),
            (QuantumUse::Partly { used: 200, given }, base / 2),
            (QuantumUse::Partly { used: 10, given }, base),
        ] {
            history.adapt(used, 1, &options);
            assert_eq!(history.quantum(), expected, "{used:?}");
        }
        history.adapt(QuantumUse::Partly { used: 10, given }, 3 * base, &options);
        assert_eq!(history.quantum(), 3 * base, "one choice needs as much");
        (0..99).for_each(|_| history.adapt(QuantumUse::Up, 1, &options));
        assert_eq!(history.quantum(), options.bytes_max);
        history.reset(&options);
        assert_eq!(history.quantum(), base);
    }

    #[test]
    fn a_slow_thinker_is_not_waited_for_and_earns_its_way_back() {
        let options = QuantumOptions::default();
        let switch_us = 2000;
        let mut history = History::new(&options, switch_us);
        assert!(0 < history.wait_limit_us(switch_us, &options), "a new file gets a wait");
        history.run_ended(IoKind::Read, 4096, 10);
        assert_eq!(history.request_arrived(IoKind::Read, 1 << 40, 20, &options), None, "elsewhere");
        assert_eq!(history.request_arrived(IoKind::Read, 4096, 9010, &options), Some(9000));
        assert_eq!(history.wait_limit_us(switch_us, &options), 0, "it thinks longer than a switch takes");
        history.run_ended(IoKind::Read, 8192, 9100);
        (0..99).for_each(|_| history.missed(switch_us));
        assert_eq!(history.request_arrived(IoKind::Read, 8192, 9110, &options), Some(10));
        history.think_us = Some(10);
        assert_eq!(history.wait_limit_us(switch_us, &options), 0, "its balance is used up");
        history.would_have_hit(10, switch_us);
        assert_eq!(history.wait_limit_us(switch_us, &options), 20 + switch_us / 8);
    }

    #[test]
    fn the_cost_of_a_switch_is_learned() {
        let mut meter = SwitchMeter::new(SwitchCost::Measured { initial_us: 2000 });
        meter.run_ended(1 << 20, 50_000, false);
        assert_eq!(meter.switch_us(), 2000, "nothing to compare with yet");
        for _ in 0..99 {
            meter.run_ended(1 << 20, 18_000, true);
            meter.run_ended(1 << 19, 9_000 + 8_000, false);
        }
        assert!((7_900..8_100).contains(&meter.switch_us()), "{}", meter.switch_us());
        (0..99).for_each(|_| meter.run_ended(1 << 19, 9_000, false));
        assert!(meter.switch_us() < 20, "{}", meter.switch_us());
        let mut known = SwitchMeter::new(SwitchCost::Fixed { us: 7 });
        (0..9).for_each(|_| known.run_ended(4096, 9_000, false));
        assert_eq!(known.switch_us(), 7);
    }
}
