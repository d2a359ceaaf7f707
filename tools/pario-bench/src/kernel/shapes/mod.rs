//! Shapes: each process's part of the file and of its memory, as datatypes. Pure.
//!
//! ```text
//!  file:    | step 0            | step 1            | …       a step spans `span_bytes` of the file
//!  rank r:    its view shows `step_bytes` of each step, in order; one collective call moves one step
//! ```
//! Never: opens or measures anything. Always: the ranks' views of a step are disjoint and lie in its span; where `is_dense`, they tile it.

mod btio;
mod flash;
mod grid;
mod irregular;
mod strided;
mod subarray;
#[cfg(test)]
mod tests;
mod tile;

use pario::view::{TypeError, ViewAccess, ViewError};
use pario::{Datatype, Elements, View};
use serde::{Deserialize, Serialize};

pub(crate) use btio::{Btio, BtioClass, CELL_BYTES};
pub(crate) use flash::Flash;
pub(crate) use irregular::{GapPattern, Irregular};
pub(crate) use strided::Strided;
pub(crate) use subarray::Subarray;
pub(crate) use tile::Tile;

/// The shape of a kernel's data; plain data, equal on every process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShapeSpec {
    Btio(Btio),
    Tile(Tile),
    Flash(Flash),
    Strided(Strided),
    Subarray(Subarray),
    Irregular(Irregular),
}

/// One rank's part.
#[derive(Clone, Debug)]
pub(crate) struct RankPart {
    pub(crate) displacement: i64,
    pub(crate) etype: Datatype,
    pub(crate) filetype: Datatype,
    /// Bytes of its stream in each step.
    pub(crate) step_bytes: u64,
    /// Layout in memory; contiguous if `None`.
    pub(crate) memory: Option<MemoryLayout>,
}

/// Memory of a rank that is not contiguous.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLayout {
    pub(crate) elements: Elements,
    /// Size of the whole buffer.
    pub(crate) bytes: usize,
    /// Step k starts at byte `(k % origins) * origin_step`.
    pub(crate) origin_step: usize,
    pub(crate) origins: usize,
}

impl MemoryLayout {
    /// Start of the buffer of a step.
    pub(crate) fn origin(&self, step: u64) -> usize {
        usize::try_from(step).unwrap_or(0) % self.origins * self.origin_step
    }
}

impl RankPart {
    /// Its view, legal for writing.
    pub(crate) fn view(&self) -> Result<View, ShapeError> {
        Ok(View::new(self.displacement, &self.etype, &self.filetype, ViewAccess::Write)?)
    }

    /// Range of the stream in a step.
    pub(crate) fn stream(&self, step: u64) -> std::ops::Range<u64> {
        step * self.step_bytes..(step + 1) * self.step_bytes
    }
}

/// Why a shape is invalid; one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShapeError(pub(crate) String);

impl std::fmt::Display for ShapeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ShapeError {}

impl From<TypeError> for ShapeError {
    fn from(error: TypeError) -> Self {
        ShapeError(format!("no datatype describes this shape: {error}"))
    }
}

impl From<ViewError> for ShapeError {
    fn from(error: ViewError) -> Self {
        ShapeError(format!("no view shows this shape: {error}"))
    }
}

/// Largest file that a shape may describe: 1 TiB.
const FILE_BYTES_MAX: u64 = 1 << 40;
/// Most processes.
pub(crate) const RANKS_MAX: u64 = 1024;

impl ShapeSpec {
    /// Checks the shape for `ranks` processes; the error is one line.
    pub(crate) fn check(&self, ranks: u64) -> Result<(), ShapeError> {
        if ranks == 0 || RANKS_MAX < ranks {
            return Err(ShapeError(format!("--procs {ranks}: must be from 1 to {RANKS_MAX}")));
        }
        match self {
            ShapeSpec::Btio(shape) => shape.check(ranks),
            ShapeSpec::Tile(shape) => shape.check(ranks),
            ShapeSpec::Flash(shape) => shape.check(),
            ShapeSpec::Strided(shape) => shape.check(ranks),
            ShapeSpec::Subarray(shape) => shape.check(ranks),
            ShapeSpec::Irregular(shape) => shape.check(),
        }?;
        if self.steps() == 0 {
            return Err(ShapeError("at least one step must be written".to_owned()));
        }
        match self.span_bytes(ranks).checked_mul(self.steps()) {
            Some(bytes) if bytes <= FILE_BYTES_MAX => Ok(()),
            _ => Err(ShapeError("this shape needs a file of more than 1TiB".to_owned())),
        }
    }

    /// A rank's part; `check` must have passed.
    pub(crate) fn part(&self, rank: u64, ranks: u64) -> Result<RankPart, ShapeError> {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        match self {
            ShapeSpec::Btio(shape) => shape.part(rank, ranks),
            ShapeSpec::Tile(shape) => shape.part(rank, ranks),
            ShapeSpec::Flash(shape) => shape.part(rank, ranks),
            ShapeSpec::Strided(shape) => shape.part(rank, ranks),
            ShapeSpec::Subarray(shape) => shape.part(rank, ranks),
            ShapeSpec::Irregular(shape) => shape.part(rank, ranks),
        }
    }

    /// Collective calls in each direction.
    pub(crate) fn steps(&self) -> u64 {
        match self {
            ShapeSpec::Btio(shape) => shape.dumps,
            ShapeSpec::Tile(shape) => shape.dumps,
            ShapeSpec::Flash(shape) => shape.steps(),
            ShapeSpec::Strided(shape) => shape.steps(),
            ShapeSpec::Subarray(shape) => shape.dumps,
            ShapeSpec::Irregular(shape) => shape.steps,
        }
    }

    /// Bytes of the file that a step spans.
    pub(crate) fn span_bytes(&self, ranks: u64) -> u64 {
        match self {
            ShapeSpec::Btio(shape) => shape.span_bytes(),
            ShapeSpec::Tile(shape) => shape.span_bytes(ranks),
            ShapeSpec::Flash(shape) => shape.span_bytes(ranks),
            ShapeSpec::Strided(shape) => shape.span_bytes(ranks),
            ShapeSpec::Subarray(shape) => shape.span_bytes(),
            ShapeSpec::Irregular(shape) => shape.span_bytes(ranks),
        }
    }

    /// Bytes of data that all ranks together write.
    pub(crate) fn data_bytes(&self, ranks: u64) -> u64 {
        if let ShapeSpec::Irregular(shape) = self {
            return shape.data_bytes(ranks);
        }
        self.span_bytes(ranks) * self.steps()
    }

    /// Whether the ranks' views cover every byte of a step.
    #[cfg(test)]
    pub(crate) fn is_dense(&self) -> bool {
        !matches!(self, ShapeSpec::Irregular(Irregular { pattern: GapPattern::Gaps { .. }, .. }))
    }

    /// Bytes of an independent call, if a step is not one call.
    pub(crate) fn call_bytes(&self) -> Option<u64> {
        match self {
            ShapeSpec::Strided(shape) => Some(shape.piece_bytes),
            ShapeSpec::Btio(_)
            | ShapeSpec::Tile(_)
            | ShapeSpec::Flash(_)
            | ShapeSpec::Subarray(_)
            | ShapeSpec::Irregular(_) => None,
        }
    }
}
