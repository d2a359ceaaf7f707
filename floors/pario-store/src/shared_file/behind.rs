//! When a dirty block has been left alone for long enough to be written down, so that closing finds little to do.
//!
//! ```text
//!  every PERIOD a mark is set; what was last written before the mark of `patience` periods ago is quiet
//!
//!  written again after it was put down: in vain ──► patience × 2          SETTLED periods without: ÷ 2
//! ```
//! Pure: time is counted in periods, and blocks by the stamps of their ledger. Never: lets patience fall below 1 or grow above
//! [`PATIENCE_MAX`].

use std::collections::VecDeque;
use std::time::Duration;

/// How often a mark is set while there is something dirty. Random tests are shorter than a period of real work.
pub(super) const PERIOD: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 50 });

/// Longest patience, in periods: 6.4 s.
const PATIENCE_MAX: usize = 128;

/// Periods without anything in vain after which patience is halved.
const SETTLED: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Behind {
    marks: VecDeque<u64>,
    patience: usize,
    settled: usize,
    in_vain: bool,
}

impl Default for Behind {
    fn default() -> Self {
        Behind { marks: VecDeque::new(), patience: 1, settled: 0, in_vain: false }
    }
}

impl Behind {
    /// A period is over, and `stamp` is the ledger's newest: what was written before the stamp that is returned is quiet.
    pub(super) fn tick(&mut self, stamp: u64) -> Option<u64> {
        self.adapt();
        while self.patience < self.marks.len() {
            self.marks.pop_front();
        }
        let quiet = (self.marks.len() == self.patience).then(|| self.marks.front().copied()).flatten();
        self.marks.push_back(stamp);
        quiet
    }

    /// A block was written again, or overwritten elsewhere, after it had been put down.
    pub(super) fn in_vain(&mut self) {
        self.in_vain = true;
    }

    fn adapt(&mut self) {
        if std::mem::take(&mut self.in_vain) {
            self.patience = (2 * self.patience).min(PATIENCE_MAX);
            self.settled = 0;
            return;
        }
        self.settled += 1;
        if SETTLED <= self.settled {
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
        let mut behind = Behind::default();
        assert_eq!(behind.tick(10), None);
        assert_eq!(behind.tick(20), Some(10));
        assert_eq!(behind.tick(20), Some(20));
        assert_eq!(behind.tick(35), Some(20));
    }

    #[test]
    fn who_is_put_down_in_vain_is_waited_for_longer() {
        let mut behind = Behind::default();
        behind.tick(1);
        behind.in_vain();
        behind.in_vain();
        assert_eq!(behind.tick(2), None, "two periods must be over now");
        assert_eq!(behind.tick(3), Some(1));
        assert_eq!(behind.tick(4), Some(2));
        for _ in 0..20 {
            behind.in_vain();
            behind.tick(5);
        }
        assert_eq!(behind.patience, PATIENCE_MAX);
        assert!(behind.marks.len() <= PATIENCE_MAX + 1);
    }

    #[test]
    fn patience_falls_when_nothing_is_in_vain() {
        let mut behind = Behind::default();
        for _ in 0..3 {
            behind.in_vain();
            behind.tick(1);
        }
        assert_eq!(behind.patience, 8);
        for _ in 0..3 * SETTLED {
            behind.tick(2);
        }
        assert_eq!(behind.patience, 1);
        assert_eq!(behind.tick(3), Some(2));
    }
}
