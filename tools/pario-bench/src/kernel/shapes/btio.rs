//! The NAS BT benchmark's output: a cube of cells of five numbers, dealt to a square number of processes by diagonal
//! multi-partitioning. The cube is cut into q³ boxes, q² processes have q boxes each, one in every plane of every direction.

use pario::Datatype;
use pario::view::{ArrayOrder, StructMember, SubarrayDimension};
use serde::{Deserialize, Serialize};

use super::{RankPart, ShapeError};

/// Five double precision numbers.
pub(crate) const CELL_BYTES: u64 = 40;

/// Sizes of the problem, as the benchmark names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum BtioClass {
    S,
    W,
    A,
    B,
    C,
}

impl BtioClass {
    /// Cells along each edge of the cube.
    pub(crate) fn edge(self) -> u64 {
        match self {
            BtioClass::S => 12,
            BtioClass::W => 24,
            BtioClass::A => 64,
            BtioClass::B => 102,
            BtioClass::C => 162,
        }
    }
}

/// Parameters of the shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Btio {
    pub(crate) class: BtioClass,
    /// Solutions written: after every fifth of 200 steps 40, or 5 as in many measurements.
    pub(crate) dumps: u64,
    /// Cells along x are dealt to the boxes round-robin in runs of this length, instead of one piece each.
    pub(crate) run_cells: Option<u64>,
}

/// A box of cells: start and size along x, y, z.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Box3 {
    pub(super) at: [u64; 3],
    pub(super) start: [u64; 3],
    pub(super) size: [u64; 3],
}

impl Btio {
    pub(super) fn check(&self, ranks: u64) -> Result<(), ShapeError> {
        let edge = self.class.edge();
        let q = ranks.isqrt();
        if q * q != ranks {
            let (below, above) = (q * q, (q + 1) * (q + 1));
            return Err(ShapeError(format!(
                "--procs {ranks}: btio needs a square number of processes, such as {below} or {above}"
            )));
        }
        if edge < q {
            return Err(ShapeError(format!(
                "--procs {ranks}: class {:?} has only {edge} planes",
                self.class
            )));
        }
        match self.run_cells {
            Some(cells) if cells == 0 || edge.div_ceil(cells) < q => Err(ShapeError(format!(
                "--run-bytes {}: a row of {edge} cells of {CELL_BYTES} bytes must give each of {q} boxes a run",
                cells * CELL_BYTES
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn span_bytes(&self) -> u64 {
        self.class.edge().pow(3) * CELL_BYTES
    }

    pub(super) fn part(&self, rank: u64, ranks: u64) -> Result<RankPart, ShapeError> {
        let number = Datatype::elementary(8)?;
        let cell = Datatype::contiguous(5, &number)?;
        let mut members = Vec::new();
        for cells in self.boxes(rank, ranks) {
            members.push(StructMember {
                count: 1,
                displacement: 0,
                datatype: self.box_type(&cells, &cell, ranks)?,
            });
        }
        let filetype = Datatype::structure(&members)?;
        Ok(RankPart { displacement: 0, etype: number, step_bytes: filetype.size(), filetype, memory: None })
    }

    /// The boxes of a rank, one in each plane of z, as the benchmark deals them.
    pub(super) fn boxes(&self, rank: u64, ranks: u64) -> Vec<Box3> {
        let (edge, q) = (self.class.edge(), ranks.isqrt());
        let along = |at: u64| {
            let (each, more) = (edge / q, edge % q);
            (at * each + at.min(more), each + u64::from(at < more))
        };
        let make = |z: u64| {
            let at = [(rank % q + z) % q, (rank / q + q - z) % q, z];
            let [x, y, z] = at.map(along);
            Box3 { at, start: [x.0, y.0, z.0], size: [x.1, y.1, z.1] }
        };
        (0..q).map(make).collect()
    }

    fn box_type(&self, cells: &Box3, cell: &Datatype, ranks: u64) -> Result<Datatype, ShapeError> {
        let edge = self.class.edge().cast_signed();
        let dimension = |axis: usize| SubarrayDimension {
            size: edge,
            subsize: cells.size[axis].cast_signed(),
            start: cells.start[axis].cast_signed(),
        };
        let Some(run) = self.run_cells else {
            let dimensions = [dimension(0), dimension(1), dimension(2)];
            return Ok(Datatype::subarray(&dimensions, ArrayOrder::Fortran, cell)?);
        };
        let row = self.dealt_row(cells.at[0], run, cell, ranks)?;
        Ok(Datatype::subarray(&[dimension(1), dimension(2)], ArrayOrder::Fortran, &row)?)
    }

    /// The runs of one row for the boxes at x index `at`; the last run of a row may be shorter.
    fn dealt_row(&self, at: u64, run: u64, cell: &Datatype, ranks: u64) -> Result<Datatype, ShapeError> {
        let (edge, q) = (self.class.edge(), ranks.isqrt());
        let starts = (at * run..edge).step_by(usize::try_from(run * q).unwrap_or(usize::MAX));
        let (starts, lengths): (Vec<i64>, Vec<i64>) =
            starts.map(|start| (start.cast_signed(), run.min(edge - start).cast_signed())).unzip();
        let row = Datatype::indexed(&lengths, &starts, cell)?;
        Ok(row.resized(0, (edge * CELL_BYTES).cast_signed())?)
    }
}
