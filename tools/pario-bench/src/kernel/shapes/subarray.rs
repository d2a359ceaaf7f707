//! A cube of numbers in three or four dimensions, each process a box of it.

use pario::Datatype;
use pario::view::{ArrayOrder, DarrayDimension, Distribution};
use serde::{Deserialize, Serialize};

use super::grid::balanced;
use super::{RankPart, ShapeError};

const NUMBER_BYTES: u64 = 8;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Subarray {
    /// 3 or 4.
    pub(crate) dimensions: u32,
    /// Numbers along each edge.
    pub(crate) edge: u64,
    pub(crate) dumps: u64,
}

impl Subarray {
    pub(super) fn check(&self, ranks: u64) -> Result<(), ShapeError> {
        let Subarray { dimensions, edge, .. } = *self;
        if ![3, 4].contains(&dimensions) {
            return Err(ShapeError(format!("--dimensions {dimensions}: must be 3 or 4")));
        }
        let most = balanced(ranks, dimensions as usize)[0];
        if edge < most || 100_000 < edge {
            return Err(ShapeError(format!(
                "--edge {edge}: must be from {most}, the processes along one edge, to 100000"
            )));
        }
        // MPI's block distribution rounds blocks up: a small edge may leave no data for the last process.
        if edge.div_ceil(edge.div_ceil(most)) < most {
            return Err(ShapeError(format!(
                "--edge {edge}: leaves a process of {most} along it without data"
            )));
        }
        Ok(())
    }

    pub(super) fn span_bytes(&self) -> u64 {
        self.edge.saturating_pow(self.dimensions).saturating_mul(NUMBER_BYTES)
    }

    pub(super) fn part(&self, rank: u64, ranks: u64) -> Result<RankPart, ShapeError> {
        let number = Datatype::elementary(NUMBER_BYTES)?;
        let dimension = |processes: u64| DarrayDimension {
            size: self.edge.cast_signed(),
            distribution: Distribution::Block,
            processes: processes.cast_signed(),
        };
        let grid: Vec<DarrayDimension> =
            balanced(ranks, self.dimensions as usize).into_iter().map(dimension).collect();
        let filetype =
            Datatype::darray(ranks.cast_signed(), rank.cast_signed(), &grid, ArrayOrder::C, &number)?;
        Ok(RankPart { displacement: 0, etype: number, step_bytes: filetype.size(), filetype, memory: None })
    }
}
