//! Pieces of equal size, dealt to the processes round-robin: interleaved if small, contiguous segments if large.

use pario::Datatype;
use serde::{Deserialize, Serialize};

use super::{RankPart, ShapeError};

/// Bytes of a process in a collective call, unless a piece is larger or there is less data.
const STEP_BYTES: u64 = 4 << 20;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Strided {
    pub(crate) piece_bytes: u64,
    /// Pieces of each process in a step.
    pub(crate) pieces: u64,
    pub(crate) steps: u64,
}

impl Strided {
    /// For about `total_bytes` in total on `ranks` processes.
    pub(crate) fn of(piece_bytes: u64, total_bytes: u64, ranks: u64) -> Strided {
        let share = total_bytes / ranks.max(1) / piece_bytes.max(1);
        let pieces = (STEP_BYTES / piece_bytes.max(1)).clamp(1, share.max(1));
        Strided { piece_bytes, pieces, steps: share / pieces }
    }

    pub(super) fn check(&self, ranks: u64) -> Result<(), ShapeError> {
        let Strided { piece_bytes, pieces, .. } = *self;
        if piece_bytes < 8 || pieces.checked_mul(piece_bytes).is_none_or(|bytes| 1 << 40 < bytes) {
            return Err(ShapeError(format!("--run-bytes {piece_bytes}: at least 8 bytes, at most 1TiB")));
        }
        if self.steps == 0 {
            return Err(ShapeError(format!(
                "--size: less than one piece of {piece_bytes} bytes for each of {ranks} processes"
            )));
        }
        Ok(())
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn span_bytes(&self, ranks: u64) -> u64 {
        self.piece_bytes * self.pieces * ranks
    }

    pub(super) fn part(&self, rank: u64, ranks: u64) -> Result<RankPart, ShapeError> {
        let byte = Datatype::elementary(1)?;
        let piece = Datatype::contiguous(self.piece_bytes.cast_signed(), &byte)?;
        Ok(RankPart {
            displacement: (self.piece_bytes * rank).cast_signed(),
            etype: byte,
            filetype: piece.resized(0, (self.piece_bytes * ranks).cast_signed())?,
            step_bytes: self.piece_bytes * self.pieces,
            memory: None,
        })
    }
}
