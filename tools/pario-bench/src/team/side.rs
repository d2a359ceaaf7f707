//! The sides of `pario bench team`: how threads write one set of data.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum TeamSide {
    /// One thread writes the parts of all, from one buffer.
    Serial,
    /// Each thread writes its parts by `pwrite`, one plain file.
    OneFile,
    /// The same, one thread after the other in the order of their numbers.
    Ordered,
    /// A plain file for each thread.
    Separate,
    /// The same, then merged into one file.
    Merged,
    /// A team on a plain file.
    Plain,
    /// A team on a file of a partition.
    Partition,
    /// A team on a container.
    Log,
}

impl TeamSide {
    /// All sides, baselines first.
    pub(crate) const ALL: [TeamSide; 8] = [
        TeamSide::Serial,
        TeamSide::OneFile,
        TeamSide::Ordered,
        TeamSide::Separate,
        TeamSide::Merged,
        TeamSide::Plain,
        TeamSide::Partition,
        TeamSide::Log,
    ];

    /// Its name in tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            TeamSide::Serial => "serial",
            TeamSide::OneFile => "one-file",
            TeamSide::Ordered => "ordered",
            TeamSide::Separate => "separate",
            TeamSide::Merged => "separate-merged",
            TeamSide::Plain => "team-plain",
            TeamSide::Partition => "team-partition",
            TeamSide::Log => "team-log",
        }
    }

    /// Its name within figures.
    pub(crate) fn key(self) -> String {
        self.word().replace('-', "_")
    }

    /// Whether a team of Pario writes it.
    pub(crate) fn is_team(self) -> bool {
        matches!(self, TeamSide::Plain | TeamSide::Partition | TeamSide::Log)
    }

    /// Whether each thread has a file of its own.
    pub(crate) fn is_separate(self) -> bool {
        matches!(self, TeamSide::Separate | TeamSide::Merged)
    }
}

impl FromStr for TeamSide {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = TeamSide::ALL.into_iter().find(|side| side.word() == text);
        named.ok_or_else(|| format!("there are {}", TeamSide::ALL.map(TeamSide::word).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_known_by_their_words() {
        for side in TeamSide::ALL {
            assert_eq!(side.word().parse(), Ok(side));
        }
        assert!("alone".parse::<TeamSide>().unwrap_err().contains("team-plain, team-partition"));
    }
}
