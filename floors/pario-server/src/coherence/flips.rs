//! Recent flips per file: recalls from readers for a writer or the reverse.
//!
//! Never: holds more than [`FLIP_FILES_MAX`] files or [`FLIPS_MAX`] + 1 times of one. Always: the times of a file ascend.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pario_core::{InodeId, Nanos};

/// More flips than this within [`FLIP_WINDOW`] put a file into the mixed phase.
pub const FLIPS_MAX: usize = 4;
/// Interval in which flips are counted.
pub const FLIP_WINDOW: Duration = Duration::from_secs(1);
/// Files with remembered flips; beyond it, the file with the oldest last flip is dropped.
pub const FLIP_FILES_MAX: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Flips {
    files: BTreeMap<InodeId, VecDeque<Nanos>>,
    by_last: BTreeSet<(Nanos, InodeId)>,
}

impl Flips {
    /// Notes a flip and returns the number of flips within [`FLIP_WINDOW`], this one included.
    pub(super) fn record(&mut self, inode: InodeId, now: Nanos) -> usize {
        self.drop_stale(now);
        let moments = self.files.entry(inode).or_default();
        if let Some(&last) = moments.back() {
            self.by_last.remove(&(last, inode));
        }
        moments.retain(|&moment| now.since(moment) < FLIP_WINDOW);
        if moments.len() > FLIPS_MAX {
            moments.pop_front();
        }
        moments.push_back(now);
        let count = moments.len();
        self.by_last.insert((now, inode));
        if self.files.len() > FLIP_FILES_MAX {
            self.drop_oldest();
        }
        count
    }

    /// Drops a file.
    pub(super) fn forget(&mut self, inode: InodeId) {
        if let Some(&last) = self.files.remove(&inode).as_ref().and_then(VecDeque::back) {
            self.by_last.remove(&(last, inode));
        }
    }

    fn drop_stale(&mut self, now: Nanos) {
        while self.by_last.first().is_some_and(|&(last, _)| now.since(last) >= FLIP_WINDOW) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, inode)) = self.by_last.pop_first() {
            self.files.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(at: u64) -> Nanos {
        Nanos(0).plus_ms(at)
    }

    #[test]
    fn counts_only_within_the_window() {
        let mut flips = Flips::default();
        let counts: Vec<usize> =
            [0, 100, 200, 900, 1050, 1250].iter().map(|&at| flips.record(InodeId(7), ms(at))).collect();
        assert_eq!(counts, [1, 2, 3, 4, 4, 3]);
    }

    #[test]
    fn keeps_one_moment_more_than_the_limit() {
        let mut flips = Flips::default();
        for at in 0..100 {
            flips.record(InodeId(7), ms(at));
        }
        assert_eq!(flips.files[&InodeId(7)].len(), FLIPS_MAX + 1);
    }

    #[test]
    fn forgets_the_stalest_file_first() {
        let mut flips = Flips::default();
        for inode in 0..=FLIP_FILES_MAX as u64 {
            flips.record(InodeId(inode), Nanos(inode));
        }
        assert_eq!(flips.files.len(), FLIP_FILES_MAX);
        assert!(!flips.files.contains_key(&InodeId(0)));
        flips.record(InodeId(1), ms(5000));
        assert_eq!((flips.files.len(), flips.by_last.len()), (1, 1));
        flips.forget(InodeId(1));
        assert_eq!((flips.files.len(), flips.by_last.len()), (0, 0));
    }
}
