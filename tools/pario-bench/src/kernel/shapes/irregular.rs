//! Very small pieces: four bytes each, at equal distances (`vector4`) or at random ones (`gaps`).
//!
//! Always: with gaps, the distance between a process's pieces is random from 4 to 64 bytes, drawn from the seed alone, and
//! pieces of processes do not overlap: each iteration gives every process of a pack of at most eight one slot, in a random
//! order.

use pario::Datatype;
use pario::core::SeededRandom;
use serde::{Deserialize, Serialize};

use super::{RankPart, ShapeError};

const PIECE_BYTES: u64 = 4;
/// Smallest and largest distance between pieces of a process.
pub(crate) const GAP_BYTES: std::ops::RangeInclusive<u64> = 4..=64;
/// Processes that can alternate within the largest distance.
const PACK: u64 = 8;

/// Offsets of the pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GapPattern {
    /// At equal distances.
    Vector4,
    /// At random distances.
    Gaps {
        /// Seed of the distances.
        seed: u64,
    },
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Irregular {
    pub(crate) pattern: GapPattern,
    /// Pieces of each process in a step.
    pub(crate) extents: u64,
    pub(crate) steps: u64,
}

/// One piece of every process of a pack.
#[derive(Clone, Copy, Debug)]
struct PackRow {
    at: u64,
    /// Slot of each process.
    order: [u8; 8],
}

impl Irregular {
    pub(super) fn check(&self) -> Result<(), ShapeError> {
        match self.extents {
            2..=4_000_000 => Ok(()),
            extents => Err(ShapeError(format!("--extents {extents}: must be from 2 to 4000000"))),
        }
    }

    pub(super) fn data_bytes(&self, ranks: u64) -> u64 {
        PIECE_BYTES * self.extents * ranks * self.steps
    }

    pub(super) fn span_bytes(&self, ranks: u64) -> u64 {
        match self.pattern {
            GapPattern::Vector4 => PIECE_BYTES * self.extents * ranks,
            GapPattern::Gaps { seed } => {
                (0..ranks.div_ceil(PACK)).map(|number| self.pack(seed, number, ranks).1).sum()
            }
        }
    }

    pub(super) fn part(&self, rank: u64, ranks: u64) -> Result<RankPart, ShapeError> {
        let piece = Datatype::elementary(PIECE_BYTES)?;
        let (displacement, pieces) = match self.pattern {
            GapPattern::Vector4 => {
                let stride = (PIECE_BYTES * ranks).cast_signed();
                let pieces = Datatype::hvector(self.extents.cast_signed(), 1, stride, &piece)?;
                (PIECE_BYTES * rank, pieces)
            }
            GapPattern::Gaps { seed } => {
                let places = self.offsets(seed, rank, ranks);
                (0, Datatype::hindexed_block(1, &places, &piece)?)
            }
        };
        let filetype = pieces.resized(0, self.span_bytes(ranks).cast_signed())?;
        Ok(RankPart {
            displacement: displacement.cast_signed(),
            etype: piece,
            step_bytes: filetype.size(),
            filetype,
            memory: None,
        })
    }

    /// Offsets of a rank's pieces in a step.
    pub(super) fn offsets(&self, seed: u64, rank: u64, ranks: u64) -> Vec<i64> {
        let base: u64 = (0..rank / PACK).map(|number| self.pack(seed, number, ranks).1).sum();
        let number = rank / PACK;
        let (rounds, _) = self.pack(seed, number, ranks);
        let place = |round: &PackRow| {
            let slot = round.order.iter().position(|member| u64::from(*member) == rank % PACK).unwrap_or(0);
            (base + round.at + PIECE_BYTES * slot as u64).cast_signed()
        };
        rounds.iter().map(place).collect()
    }

    /// The iterations of a pack, and their bytes.
    fn pack(&self, seed: u64, number: u64, ranks: u64) -> (Vec<PackRow>, u64) {
        let members = PACK.min(ranks - number * PACK);
        let mut random = SeededRandom::new(seed.wrapping_add(number));
        let mut order: Vec<u8> = (0..8).take(usize::try_from(members).unwrap_or(1)).collect();
        let mut at = 0;
        let mut rounds = Vec::new();
        for _ in 0..self.extents {
            for index in (1..order.len()).rev() {
                let other = random.below(index as u64 + 1);
                order.swap(index, usize::try_from(other).unwrap_or(0));
            }
            let mut slots = [0; 8];
            slots[..order.len()].copy_from_slice(&order);
            rounds.push(PackRow { at, order: slots });
            at += PIECE_BYTES * members
                + GAP_BYTES.start()
                + random.below(spare_max(members) - GAP_BYTES.start() + 1);
        }
        (rounds, at)
    }
}

/// Upper bound of the bytes between two iterations of a pack, so that no distance exceeds the largest: from the first slot of
/// one to the last slot of the next.
fn spare_max(pack: u64) -> u64 {
    GAP_BYTES.end() + PIECE_BYTES - PIECE_BYTES * pack - PIECE_BYTES * (pack - 1)
}
