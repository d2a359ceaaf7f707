//! The sides of `pario bench sliding`: methods of reading and writing a window.

use std::str::FromStr;

use pario::Placement;
use serde::{Deserialize, Serialize};

use super::pattern::Whole;

/// A method of accessing the windows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum SlidingSide {
    /// Through the file cache, blocks at their last writer: the placement for this pattern.
    CacheLastWriter,
    /// Through the file cache, blocks at their homes.
    CacheHome,
    /// Through the file cache, blocks where they were first touched.
    CacheFirstTouch,
    /// A byte-range lock around every read and write.
    RangeLocks,
    /// Reads and writes without locks.
    Unlocked,
}

impl SlidingSide {
    pub(super) const ALL: [SlidingSide; 5] = [
        SlidingSide::CacheLastWriter,
        SlidingSide::CacheHome,
        SlidingSide::CacheFirstTouch,
        SlidingSide::RangeLocks,
        SlidingSide::Unlocked,
    ];

    /// Its name in tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            SlidingSide::CacheLastWriter => "cache",
            SlidingSide::CacheHome => "cache-home",
            SlidingSide::CacheFirstTouch => "cache-first-touch",
            SlidingSide::RangeLocks => "range-locks",
            SlidingSide::Unlocked => "unlocked",
        }
    }

    /// Its name within figures.
    pub(super) fn key(self) -> String {
        self.word().replace('-', "_")
    }

    /// Placement in the file cache, if it is used.
    pub(super) fn placement(self) -> Option<Placement> {
        match self {
            SlidingSide::CacheLastWriter => Some(Placement::LastWriter),
            SlidingSide::CacheHome => Some(Placement::Home),
            SlidingSide::CacheFirstTouch => Some(Placement::FirstTouch),
            SlidingSide::RangeLocks | SlidingSide::Unlocked => None,
        }
    }

    /// Whether it uses the file cache.
    pub(super) fn is_cached(self) -> bool {
        self.placement().is_some()
    }

    /// Atomicity that a reader may rely on.
    pub(super) fn whole(self) -> Whole {
        match self {
            SlidingSide::CacheHome
            | SlidingSide::CacheFirstTouch
            | SlidingSide::CacheLastWriter
            | SlidingSide::RangeLocks => Whole::Page,
            SlidingSide::Unlocked => Whole::Word,
        }
    }
}

impl FromStr for SlidingSide {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = SlidingSide::ALL.into_iter().find(|way| way.word() == text);
        named.ok_or_else(|| format!("there are {}", SlidingSide::ALL.map(SlidingSide::word).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_known_by_their_words() {
        for way in SlidingSide::ALL {
            assert_eq!(way.word().parse(), Ok(way));
        }
        assert!("locks".parse::<SlidingSide>().is_err_and(|said| said.contains("range-locks")));
    }
}
