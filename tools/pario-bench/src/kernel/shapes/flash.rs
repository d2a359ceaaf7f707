//! The FLASH code's checkpoint: 24 variables on blocks of cells with guard cells around them. In memory a cell's variables are
//! adjacent and the guards are skipped; in the file each variable is contiguous, blocks of the processes in order. One call per
//! variable.

use pario::view::{ArrayOrder, SubarrayDimension};
use pario::{Datatype, Elements};
use serde::{Deserialize, Serialize};

use super::{MemoryLayout, RankPart, ShapeError};

/// Variables of a cell.
pub(crate) const VARIABLES: u64 = 24;
const NUMBER_BYTES: u64 = 8;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Flash {
    /// Cells along each edge of a block.
    pub(crate) edge: u64,
    /// Guard cells on each side.
    pub(crate) guards: u64,
    /// Blocks of each process.
    pub(crate) blocks: u64,
    /// Checkpoints written.
    pub(crate) checkpoints: u64,
}

impl Flash {
    pub(super) fn check(&self) -> Result<(), ShapeError> {
        let edge = self.edge;
        if ![8, 16].contains(&edge) {
            return Err(ShapeError(format!("--block {edge}: blocks are 8 or 16 cells wide")));
        }
        if self.blocks == 0 || 4096 < self.blocks || 16 < self.guards {
            return Err(ShapeError(format!(
                "--blocks {} --guards {}: 1 to 4096 blocks of a process, at most 16 guards",
                self.blocks, self.guards
            )));
        }
        Ok(())
    }

    pub(super) fn steps(&self) -> u64 {
        VARIABLES * self.checkpoints
    }

    fn block_bytes(&self) -> u64 {
        self.edge.pow(3) * NUMBER_BYTES
    }

    pub(super) fn span_bytes(&self, ranks: u64) -> u64 {
        self.block_bytes() * self.blocks * ranks
    }

    pub(super) fn part(&self, rank: u64, ranks: u64) -> Result<RankPart, ShapeError> {
        let number = Datatype::elementary(NUMBER_BYTES)?;
        let cells = self.edge.pow(3).cast_signed();
        let block = Datatype::contiguous(cells, &number)?;
        let filetype = block.resized(0, (self.block_bytes() * ranks).cast_signed())?;
        Ok(RankPart {
            displacement: (self.block_bytes() * rank).cast_signed(),
            etype: number.clone(),
            filetype,
            step_bytes: self.block_bytes() * self.blocks,
            memory: Some(self.memory(&number)?),
        })
    }

    fn memory(&self, number: &Datatype) -> Result<MemoryLayout, ShapeError> {
        let cell_bytes = VARIABLES * NUMBER_BYTES;
        let one_of_many = number.resized(0, cell_bytes.cast_signed())?;
        let guarded = SubarrayDimension {
            size: (self.edge + 2 * self.guards).cast_signed(),
            subsize: self.edge.cast_signed(),
            start: self.guards.cast_signed(),
        };
        let blocks = self.blocks.cast_signed();
        let all = SubarrayDimension { size: blocks, subsize: blocks, start: 0 };
        let variable = Datatype::subarray(&[all, guarded, guarded, guarded], ArrayOrder::C, &one_of_many)?;
        let bytes = self.blocks * (self.edge + 2 * self.guards).pow(3) * cell_bytes;
        Ok(MemoryLayout {
            elements: Elements::new(&variable, 1)?,
            bytes: usize::try_from(bytes).map_err(|_| ShapeError("blocks beyond memory".to_owned()))?,
            origin_step: usize::try_from(NUMBER_BYTES).unwrap_or(8),
            origins: usize::try_from(VARIABLES).unwrap_or(24),
        })
    }
}
