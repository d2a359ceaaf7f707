//! MPI-Tile-IO: a dense two-dimensional set of tiles of bytes, one per process. The AHPIOS paper's Table 3 keeps the total at 1 GiB
//! and the rows of a tile at 4 KiB for 4 to 64 processes.

use pario::Datatype;
use pario::view::{ArrayOrder, SubarrayDimension};
use serde::{Deserialize, Serialize};

use super::grid::balanced;
use super::{RankPart, ShapeError};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Tile {
    /// Bytes of one row of a tile.
    pub(crate) row_bytes: u64,
    /// Bytes of all tiles, less what does not fill a row of each.
    pub(crate) total_bytes: u64,
    /// Tiles along x and y; as equal as can be if `None`.
    pub(crate) grid: Option<[u64; 2]>,
    pub(crate) dumps: u64,
}

impl Tile {
    pub(super) fn check(&self, ranks: u64) -> Result<(), ShapeError> {
        if let Some([x, y]) = self.grid.filter(|[x, y]| x.checked_mul(*y) != Some(ranks)) {
            return Err(ShapeError(format!("--grid {x}x{y}: {ranks} processes need as many tiles")));
        }
        if self.row_bytes == 0 || self.rows(ranks) == 0 {
            return Err(ShapeError(format!(
                "--size {}: less than one row of {} bytes for each of {ranks} processes",
                self.total_bytes, self.row_bytes
            )));
        }
        Ok(())
    }

    /// Tiles along x and y.
    pub(super) fn grid(&self, ranks: u64) -> [u64; 2] {
        self.grid.unwrap_or_else(|| {
            let edges = balanced(ranks, 2);
            [edges[0], edges[1]]
        })
    }

    /// Rows of a tile.
    pub(super) fn rows(&self, ranks: u64) -> u64 {
        self.total_bytes / ranks / self.row_bytes
    }

    pub(super) fn span_bytes(&self, ranks: u64) -> u64 {
        self.row_bytes * self.rows(ranks) * ranks
    }

    pub(super) fn part(&self, rank: u64, ranks: u64) -> Result<RankPart, ShapeError> {
        let [across, down] = self.grid(ranks);
        let dimension = |count: u64, size: u64, at: u64| SubarrayDimension {
            size: (count * size).cast_signed(),
            subsize: size.cast_signed(),
            start: (at * size).cast_signed(),
        };
        let byte = Datatype::elementary(1)?;
        let rows = dimension(down, self.rows(ranks), rank / across);
        let columns = dimension(across, self.row_bytes, rank % across);
        let filetype = Datatype::subarray(&[rows, columns], ArrayOrder::C, &byte)?;
        Ok(RankPart { displacement: 0, etype: byte, step_bytes: filetype.size(), filetype, memory: None })
    }
}
