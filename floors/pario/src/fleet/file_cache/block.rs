//! Block size of the file cache: chosen when a file is opened, and equal on all members.
//!
//! Always: a power-of-two fraction or a multiple of the file system's preferred size; and a multiple of 4 KiB.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Smallest block; every block is a multiple.
pub(super) const UNIT: u64 = 4 << 10;
/// Block size without further information.
const DEFAULT: u64 = 256 << 10;
/// Largest block, unless a larger one is requested.
const LARGEST: u64 = 4 << 20;
/// Smallest block, unless a smaller one is requested.
const SMALLEST: u64 = 16 << 10;
/// Number of blocks that a pool should hold.
const BLOCKS_MIN: u64 = 16;
/// Limit of files with recorded access sizes.
const SEEN_MAX: usize = 64;

/// Input of the choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockFacts {
    /// Requested; already checked.
    pub(super) requested: Option<u64>,
    /// Preferred by the file system: its stripe, where it has one.
    pub(super) preferred: u64,
    /// Access size when the file was open before.
    pub(super) seen: Option<u64>,
    pub(super) cache_bytes: u64,
}

/// See the module head.
pub(super) fn choose(known: &BlockFacts) -> u64 {
    if let Some(bytes) = known.requested {
        return bytes;
    }
    let wanted = known.seen.map_or(DEFAULT, |bytes| bytes.clamp(SMALLEST, LARGEST).next_power_of_two());
    let most = (known.cache_bytes / BLOCKS_MIN).clamp(UNIT, LARGEST);
    let wanted = wanted.min(most);
    let base = if known.preferred.is_multiple_of(UNIT) { known.preferred.max(UNIT) } else { UNIT };
    if base <= wanted {
        return wanted / base * base;
    }
    let mut part = base;
    while wanted < part && (part / 2).is_multiple_of(UNIT) {
        part /= 2;
    }
    part
}

/// Access sizes per file, most recently closed last.
static SEEN: Mutex<VecDeque<(PathBuf, u64)>> = Mutex::new(VecDeque::new());

/// Average access size when the file was last open in this process.
pub(super) fn seen(path: &Path) -> Option<u64> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.iter().find(|(known, _)| known == path).map(|(_, bytes)| *bytes)
}

/// Records the average access size of a file that is being closed.
pub(super) fn remember(path: &Path, bytes: u64) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.retain(|(known, _)| known != path);
    seen.push_back((path.to_owned(), bytes));
    if SEEN_MAX < seen.len() {
        seen.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(requested: Option<u64>, preferred: u64, seen: Option<u64>, cache_bytes: u64, expected: u64) {
        assert_eq!(choose(&BlockFacts { requested, preferred, seen, cache_bytes }), expected);
    }

    #[test]
    fn blocks_follow_wishes_then_accesses_then_the_file_system() {
        let (kib, mib) = (1 << 10, 1 << 20);
        check(Some(12 * kib), 4 * kib, Some(mib), 64 * mib, 12 * kib);
        check(None, 4 * kib, None, 64 * mib, 256 * kib);
        check(None, 4 * mib, None, 64 * mib, 256 * kib);
        check(None, 96 * kib, None, 64 * mib, 192 * kib);
        check(None, 3 * mib, None, 64 * mib, 192 * kib);
        check(None, 512, None, 64 * mib, 256 * kib);
        check(None, 4 * kib, Some(1000), 64 * mib, 16 * kib);
        check(None, 4 * kib, Some(3 * mib), 64 * mib, 4 * mib);
        check(None, 4 * kib, Some(3 * mib), mib, 64 * kib);
        check(None, 4 * kib, None, 0, 4 * kib);
    }

    #[test]
    fn what_was_seen_is_remembered_for_some_files() {
        let name = |n: usize| PathBuf::from(format!("/seen/{n}"));
        for n in 0..SEEN_MAX + 5 {
            remember(&name(n), n as u64);
        }
        remember(&name(SEEN_MAX), 7);
        assert_eq!((seen(&name(0)), seen(&name(SEEN_MAX)), seen(&name(20))), (None, Some(7), Some(20)));
    }
}
