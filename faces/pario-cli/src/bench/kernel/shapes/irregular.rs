//! Very small pieces: four bytes each, at equal distances (`vector4`) or at random ones (`gaps`).
//!
//! Always: with gaps, the distance between a process's pieces is random from 4 to 64 bytes, drawn from the seed alone, and no piece touches
//! another's: in each round every process of a pack of at most eight has one slot, in an order drawn anew.

use pario::Datatype;
use serde::{Deserialize, Serialize};

use super::{Part, ShapeError};

const PIECE_BYTES: u64 = 4;
/// Smallest and largest distance between pieces of a process.
pub(crate) const GAP_BYTES: std::ops::RangeInclusive<u64> = 4..=64;
/// Processes that can take turns within the largest distance.
const PACK: u64 = 8;

/// Where the pieces are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// At equal distances.
    Vector4,
    /// At random distances.
    Gaps {
        /// What the distances are drawn from.
        seed: u64,
    },
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Irregular {
    pub(crate) pattern: Pattern,
    /// Pieces of each process in a step.
    pub(crate) extents: u64,
    pub(crate) steps: u64,
}

/// One piece of every process of a pack.
#[derive(Clone, Copy, Debug)]
struct Round {
    at: u64,
    /// Who has which slot.
    order: [u8; 8],
}

/// Numbers from a seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to less than `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
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
            Pattern::Vector4 => PIECE_BYTES * self.extents * ranks,
            Pattern::Gaps { seed } => {
                (0..ranks.div_ceil(PACK)).map(|number| self.pack(seed, number, ranks).1).sum()
            }
        }
    }

    pub(super) fn part(&self, rank: u64, ranks: u64) -> Result<Part, ShapeError> {
        let piece = Datatype::elementary(PIECE_BYTES)?;
        let (displacement, pieces) = match self.pattern {
            Pattern::Vector4 => {
                let stride = (PIECE_BYTES * ranks).cast_signed();
                let pieces = Datatype::hvector(self.extents.cast_signed(), 1, stride, &piece)?;
                (PIECE_BYTES * rank, pieces)
            }
            Pattern::Gaps { seed } => {
                let places = self.places(seed, rank, ranks);
                (0, Datatype::hindexed_block(1, &places, &piece)?)
            }
        };
        let filetype = pieces.resized(0, self.span_bytes(ranks).cast_signed())?;
        Ok(Part {
            displacement: displacement.cast_signed(),
            etype: piece,
            step_bytes: filetype.size(),
            filetype,
            memory: None,
        })
    }

    /// Where the pieces of a rank are in a step.
    pub(super) fn places(&self, seed: u64, rank: u64, ranks: u64) -> Vec<i64> {
        let base: u64 = (0..rank / PACK).map(|number| self.pack(seed, number, ranks).1).sum();
        let number = rank / PACK;
        let (rounds, _) = self.pack(seed, number, ranks);
        let place = |round: &Round| {
            let slot = round.order.iter().position(|member| u64::from(*member) == rank % PACK).unwrap_or(0);
            (base + round.at + PIECE_BYTES * slot as u64).cast_signed()
        };
        rounds.iter().map(place).collect()
    }

    /// The rounds of a pack, and the bytes that they take.
    fn pack(&self, seed: u64, number: u64, ranks: u64) -> (Vec<Round>, u64) {
        let members = PACK.min(ranks - number * PACK);
        let mut random = Random::new(seed.wrapping_add(number));
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
            rounds.push(Round { at, order: slots });
            at += PIECE_BYTES * members
                + GAP_BYTES.start()
                + random.below(spare_max(members) - GAP_BYTES.start() + 1);
        }
        (rounds, at)
    }
}

/// The most bytes between two rounds of a pack, so that nobody's distance is above the largest: from the first slot of a round to the
/// last of the next.
fn spare_max(pack: u64) -> u64 {
    GAP_BYTES.end() + PIECE_BYTES - PIECE_BYTES * pack - PIECE_BYTES * (pack - 1)
}
