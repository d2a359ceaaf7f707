//! Write-behind timing: how long a dirty block must stay unwritten before it is written back, so that close has little to do.
//!
//! ```text
//!  every PERIOD a mark is set; blocks last written before the mark of `patience` periods ago are quiet
//!
//!  written again after its write-back: wasted ──► patience × 2          SETTLED periods without: ÷ 2
//! ```
//! Pure: time is counted in periods, blocks by the sequence numbers of their ledger. Never: lets the wait fall below 1 period or exceed
//! [`WAIT_PERIODS_MAX`].

use std::collections::VecDeque;
use std::time::Duration;

/// Interval of the marks while blocks are dirty. Random tests are shorter than a period of real work.
pub(super) const PERIOD: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 50 });

/// Longest wait, in periods: 6.4 s.
const WAIT_PERIODS_MAX: usize = 128;

/// Periods without a wasted write-back after which the wait is halved.
const CALM_PERIODS: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct WriteBehind {
    marks: VecDeque<u64>,
    patience: usize,
    settled: usize,
    in_vain: bool,
}

impl Default for WriteBehind {
    fn default() -> Self {
        WriteBehind { marks: VecDeque::new(), patience: 1, settled: 0, in_vain: false }
    }
}

impl WriteBehind {
    /// A period ends, and `stamp` is the ledger's newest; blocks written before the returned stamp are quiet.
    pub(super) fn tick(&mut self, stamp: u64) -> Option<u64> {
        self.adapt();
        while self.patience < self.marks.len() {
            self.marks.pop_front();
        }
        let quiet = (self.marks.len() == self.patience).then(|| self.marks.front().copied()).flatten();
        self.marks.push_back(stamp);
        quiet
    }

    /// A block was written again, or overwritten at another server, after its write-back.
    pub(super) fn wasted(&mut self) {
        self.in_vain = true;
    }

    fn adapt(&mut self) {
        if std::mem::take(&mut self.in_vain) {
            self.patience = (2 * self.patience).min(WAIT_PERIODS_MAX);
            self.settled = 0;
            return;
        }
        self.settled += 1;
        if CALM_PERIODS <= self.settled {
            self.patience = (self.patience / 2).max(1);
            self.settled = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_a_whole_period_ago_is_quiet() {
        let mut behind = WriteBehind::default();
        assert_eq!(behind.tick(10), None);
        assert_eq!(behind.tick(20), Some(10));
        assert_eq!(behind.tick(20), Some(20));
        assert_eq!(behind.tick(35), Some(20));
    }

    #[test]
    fn who_is_put_down_in_vain_is_waited_for_longer() {
        let mut behind = WriteBehind::default();
        behind.tick(1);
        behind.wasted();
        behind.wasted();
        assert_eq!(behind.tick(2), None, "two periods must be over now");
        assert_eq!(behind.tick(3), Some(1));
        assert_eq!(behind.tick(4), Some(2));
        for _ in 0..20 {
            behind.wasted();
            behind.tick(5);
        }
        assert_eq!(behind.patience, WAIT_PERIODS_MAX);
        assert!(behind.marks.len() <= WAIT_PERIODS_MAX + 1);
    }

    #[test]
    fn patience_falls_when_nothing_is_in_vain() {
        let mut behind = WriteBehind::default();
        for _ in 0..3 {
            behind.wasted();
            behind.tick(1);
        }
        assert_eq!(behind.patience, 8);
        for _ in 0..3 * CALM_PERIODS {
            behind.tick(2);
        }
        assert_eq!(behind.patience, 1);
        assert_eq!(behind.tick(3), Some(2));
    }
}
