//! The sides of a comparison: Pario's methods and their baselines.

use std::str::FromStr;

use pario::Method;
use serde::{Deserialize, Serialize};

/// A method of moving a kernel's data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum KernelSide {
    /// Copying the same extents in memory: the upper bound.
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
    /// The file cache on one plain file.
    Cache,
}

impl KernelSide {
    /// All sides, baselines first.
    const ALL: [KernelSide; 10] = [
        KernelSide::Memory,
        KernelSide::Pwrite,
        KernelSide::Whole,
        KernelSide::TwoPhasePlain,
        KernelSide::TwoPhase,
        KernelSide::ClientDirected,
        KernelSide::ServerDirected,
        KernelSide::Independent,
        KernelSide::Atomic,
        KernelSide::Cache,
    ];

    /// The sides of collective kernels.
    pub(super) fn collective() -> Vec<KernelSide> {
        let is_special = |side: &KernelSide| {
            matches!(side, KernelSide::Independent | KernelSide::Atomic | KernelSide::Cache)
        };
        KernelSide::ALL.into_iter().filter(|side| !is_special(side)).collect()
    }

    /// Its name in tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            KernelSide::Memory => "memory",
            KernelSide::Pwrite => "pwrite",
            KernelSide::Whole => "plain-whole",
            KernelSide::TwoPhasePlain => "two-phase",
            KernelSide::TwoPhase => "two-phase-objects",
            KernelSide::ClientDirected => "client-directed",
            KernelSide::ServerDirected => "server-directed",
            KernelSide::Independent => "independent",
            KernelSide::Atomic => "atomic",
            KernelSide::Cache => "cooperative-cache",
        }
    }

    /// Its name within figures.
    pub(super) fn key(self) -> String {
        self.word().replace('-', "_")
    }

    /// The method of a partition's file; `None` for other sides.
    pub(super) fn method(self) -> Option<Method> {
        match self {
            KernelSide::ServerDirected | KernelSide::Independent | KernelSide::Atomic => {
                Some(Method::ServerDirected)
            }
            KernelSide::ClientDirected => Some(Method::ClientDirected),
            KernelSide::TwoPhase => Some(Method::TwoPhase),
            KernelSide::Memory
            | KernelSide::Pwrite
            | KernelSide::Whole
            | KernelSide::TwoPhasePlain
            | KernelSide::Cache => None,
        }
    }

    /// Whether its data is invisible to other processes.
    pub(super) fn is_private(self) -> bool {
        self == KernelSide::Memory
    }

    /// Whether each rank writes the bytes of its view, so that every byte can be checked.
    pub(super) fn is_by_view(self) -> bool {
        self != KernelSide::Whole
    }
}

impl FromStr for KernelSide {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = KernelSide::ALL.into_iter().find(|side| side.word() == text);
        named.ok_or_else(|| format!("there are {}", KernelSide::ALL.map(KernelSide::word).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_known_by_their_words() {
        for side in KernelSide::ALL {
            assert_eq!(side.word().parse(), Ok(side));
        }
        assert!("three-phase".parse::<KernelSide>().unwrap_err().contains("two-phase, two-phase-objects"));
    }
}
