//! The sides of `pario bench sliding`: the ways in which a window is read and written.

use serde::{Deserialize, Serialize};

use super::pattern::Whole;

/// One way to go through the windows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum Way {
    /// Through the cooperative cache, blocks at their homes.
    CacheHome,
    /// Through the cooperative cache, blocks where they were first touched.
    CacheFirstTouch,
    /// A byte-range lock around every read and write.
    RangeLocks,
    /// Reads and writes as they are.
    Unlocked,
}

impl Way {
    pub(super) const ALL: [Way; 4] = [Way::CacheHome, Way::CacheFirstTouch, Way::RangeLocks, Way::Unlocked];

    /// Its name in tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Way::CacheHome => "cache",
            Way::CacheFirstTouch => "cache-first-touch",
            Way::RangeLocks => "range-locks",
            Way::Unlocked => "unlocked",
        }
    }

    /// Its name within figures.
    pub(super) fn key(self) -> String {
        self.word().replace('-', "_")
    }

    /// What a reader may rely on.
    pub(super) fn whole(self) -> Whole {
        match self {
            Way::CacheHome | Way::CacheFirstTouch | Way::RangeLocks => Whole::Page,
            Way::Unlocked => Whole::Word,
        }
    }
}
