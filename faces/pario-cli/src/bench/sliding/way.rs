//! The sides of `pario bench sliding`: the ways in which a window is read and written.

use std::str::FromStr;

use pario::Placement;
use serde::{Deserialize, Serialize};

use super::pattern::Whole;

/// One way to go through the windows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Way {
    /// Through the cooperative cache, blocks at whoever overwrote them last: the placement that is meant for this pattern.
    CacheLastWriter,
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
    pub(super) const ALL: [Way; 5] =
        [Way::CacheLastWriter, Way::CacheHome, Way::CacheFirstTouch, Way::RangeLocks, Way::Unlocked];

    /// Its name in tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Way::CacheLastWriter => "cache",
            Way::CacheHome => "cache-home",
            Way::CacheFirstTouch => "cache-first-touch",
            Way::RangeLocks => "range-locks",
            Way::Unlocked => "unlocked",
        }
    }

    /// Its name within figures.
    pub(super) fn key(self) -> String {
        self.word().replace('-', "_")
    }

    /// Where the cooperative cache keeps blocks, if it is through that.
    pub(super) fn placement(self) -> Option<Placement> {
        match self {
            Way::CacheLastWriter => Some(Placement::LastWriter),
            Way::CacheHome => Some(Placement::Home),
            Way::CacheFirstTouch => Some(Placement::FirstTouch),
            Way::RangeLocks | Way::Unlocked => None,
        }
    }

    /// Whether it is through the cooperative cache.
    pub(super) fn is_cached(self) -> bool {
        self.placement().is_some()
    }

    /// What a reader may rely on.
    pub(super) fn whole(self) -> Whole {
        match self {
            Way::CacheHome | Way::CacheFirstTouch | Way::CacheLastWriter | Way::RangeLocks => Whole::Page,
            Way::Unlocked => Whole::Word,
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Way::ALL.into_iter().find(|way| way.word() == text);
        named.ok_or_else(|| format!("there are {}", Way::ALL.map(Way::word).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_known_by_their_words() {
        for way in Way::ALL {
            assert_eq!(way.word().parse(), Ok(way));
        }
        assert!("locks".parse::<Way>().is_err_and(|said| said.contains("range-locks")));
    }
}
