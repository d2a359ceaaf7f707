//! The sides of a comparison: Pario's methods and what they are measured against.

use std::str::FromStr;

use pario::Method;
use serde::{Deserialize, Serialize};

/// One way to move a kernel's data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Side {
    /// Copying the same extents in memory: the limit.
    Memory,
    /// One `pwrite` or `pread` per extent, one plain file.
    Pwrite,
    /// The whole range of each step in equal contiguous parts, one plain file.
    Whole,
    /// Two-phase into one plain shared file, as MPI libraries do.
    TwoPhasePlain,
    /// Two-phase onto the partition's objects.
    TwoPhase,
    /// Client-directed.
    ClientDirected,
    /// Server-directed.
    ServerDirected,
    /// Server-directed, by independent calls.
    Independent,
    /// Server-directed, in atomic mode.
    Atomic,
    /// The cooperative cache on one plain file.
    Cache,
}

impl Side {
    /// All there are, yardsticks first.
    const ALL: [Side; 10] = [
        Side::Memory,
        Side::Pwrite,
        Side::Whole,
        Side::TwoPhasePlain,
        Side::TwoPhase,
        Side::ClientDirected,
        Side::ServerDirected,
        Side::Independent,
        Side::Atomic,
        Side::Cache,
    ];

    /// Those that collective kernels compare.
    pub(super) fn collective() -> Vec<Side> {
        let is_special = |side: &Side| matches!(side, Side::Independent | Side::Atomic | Side::Cache);
        Side::ALL.into_iter().filter(|side| !is_special(side)).collect()
    }

    /// Its name in tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Side::Memory => "memory",
            Side::Pwrite => "pwrite",
            Side::Whole => "plain-whole",
            Side::TwoPhasePlain => "two-phase",
            Side::TwoPhase => "two-phase-objects",
            Side::ClientDirected => "client-directed",
            Side::ServerDirected => "server-directed",
            Side::Independent => "independent",
            Side::Atomic => "atomic",
            Side::Cache => "cooperative-cache",
        }
    }

    /// Its name within figures.
    pub(super) fn key(self) -> String {
        self.word().replace('-', "_")
    }

    /// The method of a file of the partition; `None` for what does not go through one.
    pub(super) fn method(self) -> Option<Method> {
        match self {
            Side::ServerDirected | Side::Independent | Side::Atomic => Some(Method::ServerDirected),
            Side::ClientDirected => Some(Method::ClientDirected),
            Side::TwoPhase => Some(Method::TwoPhase),
            Side::Memory | Side::Pwrite | Side::Whole | Side::TwoPhasePlain | Side::Cache => None,
        }
    }

    /// Whether what it writes is seen by nobody else.
    pub(super) fn is_private(self) -> bool {
        self == Side::Memory
    }

    /// Whether each rank writes what its view shows it, so that every byte can be checked.
    pub(super) fn is_by_view(self) -> bool {
        self != Side::Whole
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Side::ALL.into_iter().find(|side| side.word() == text);
        named.ok_or_else(|| format!("there are {}", Side::ALL.map(Side::word).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_known_by_their_words() {
        for side in Side::ALL {
            assert_eq!(side.word().parse(), Ok(side));
        }
        assert!("three-phase".parse::<Side>().unwrap_err().contains("two-phase, two-phase-objects"));
    }
}
