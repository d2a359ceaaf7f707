//! Shapes: what each process of a kernel has of the file and of its memory, as datatypes. Pure.
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

use pario::view::{Access, TypeError, ViewError};
use pario::{Datatype, Elements, View};
use serde::{Deserialize, Serialize};

pub(crate) use btio::{Btio, CELL_BYTES, Class};
pub(crate) use flash::Flash;
pub(crate) use irregular::{Irregular, Pattern};
pub(crate) use strided::Strided;
pub(crate) use subarray::Subarray;
pub(crate) use tile::Tile;

/// The shape of a kernel's data; plain data, so that every process makes the same of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spec {
    Btio(Btio),
    Tile(Tile),
    Flash(Flash),
    Strided(Strided),
    Subarray(Subarray),
    Irregular(Irregular),
}

/// What one rank has.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) displacement: i64,
    pub(crate) etype: Datatype,
    pub(crate) filetype: Datatype,
    /// Bytes of its stream in each step.
    pub(crate) step_bytes: u64,
    /// How they lie in its memory; contiguous if `None`.
    pub(crate) memory: Option<Memory>,
}

/// Memory of a rank that is not contiguous.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) elements: Elements,
    /// Of the whole buffer.
    pub(crate) bytes: usize,
    /// Step k starts at byte `(k % origins) * origin_step`.
    pub(crate) origin_step: usize,
    pub(crate) origins: usize,
}

impl Memory {
    /// Where the buffer of a step starts.
    pub(crate) fn origin(&self, step: u64) -> usize {
        usize::try_from(step).unwrap_or(0) % self.origins * self.origin_step
    }
}

impl Part {
    /// Its view, legal for writing.
    pub(crate) fn view(&self) -> Result<View, ShapeError> {
        Ok(View::new(self.displacement, &self.etype, &self.filetype, Access::Write)?)
    }

    /// Range of the stream in a step.
    pub(crate) fn stream(&self, step: u64) -> std::ops::Range<u64> {
        step * self.step_bytes..(step + 1) * self.step_bytes
    }
}

/// Why there is no such shape; one line.
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

impl Spec {
    /// Whether so many processes can share it, told in one line if not.
    pub(crate) fn check(&self, ranks: u64) -> Result<(), ShapeError> {
        if ranks == 0 || RANKS_MAX < ranks {
            return Err(ShapeError(format!("--procs {ranks}: must be from 1 to {RANKS_MAX}")));
        }
        match self {
            Spec::Btio(shape) => shape.check(ranks),
            Spec::Tile(shape) => shape.check(ranks),
            Spec::Flash(shape) => shape.check(),
            Spec::Strided(shape) => shape.check(ranks),
            Spec::Subarray(shape) => shape.check(ranks),
            Spec::Irregular(shape) => shape.check(),
        }?;
        if self.steps() == 0 {
            return Err(ShapeError("at least one step must be written".to_owned()));
        }
        match self.span_bytes(ranks).checked_mul(self.steps()) {
            Some(bytes) if bytes <= FILE_BYTES_MAX => Ok(()),
            _ => Err(ShapeError("this shape needs a file of more than 1TiB".to_owned())),
        }
    }

    /// What a rank has; `check` must have passed.
    pub(crate) fn part(&self, rank: u64, ranks: u64) -> Result<Part, ShapeError> {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        match self {
            Spec::Btio(shape) => shape.part(rank, ranks),
            Spec::Tile(shape) => shape.part(rank, ranks),
            Spec::Flash(shape) => shape.part(rank, ranks),
            Spec::Strided(shape) => shape.part(rank, ranks),
            Spec::Subarray(shape) => shape.part(rank, ranks),
            Spec::Irregular(shape) => shape.part(rank, ranks),
        }
    }

    /// Collective calls in each direction.
    pub(crate) fn steps(&self) -> u64 {
        match self {
            Spec::Btio(shape) => shape.dumps,
            Spec::Tile(shape) => shape.dumps,
            Spec::Flash(shape) => shape.steps(),
            Spec::Strided(shape) => shape.steps(),
            Spec::Subarray(shape) => shape.dumps,
            Spec::Irregular(shape) => shape.steps,
        }
    }

    /// Bytes of the file that a step spans.
    pub(crate) fn span_bytes(&self, ranks: u64) -> u64 {
        match self {
            Spec::Btio(shape) => shape.span_bytes(),
            Spec::Tile(shape) => shape.span_bytes(ranks),
            Spec::Flash(shape) => shape.span_bytes(ranks),
            Spec::Strided(shape) => shape.span_bytes(ranks),
            Spec::Subarray(shape) => shape.span_bytes(),
            Spec::Irregular(shape) => shape.span_bytes(ranks),
        }
    }

    /// Bytes of data that all ranks together write.
    pub(crate) fn data_bytes(&self, ranks: u64) -> u64 {
        if let Spec::Irregular(shape) = self {
            return shape.data_bytes(ranks);
        }
        self.span_bytes(ranks) * self.steps()
    }

    /// Whether the ranks' views leave no byte of a step out.
    #[cfg(test)]
    pub(crate) fn is_dense(&self) -> bool {
        !matches!(self, Spec::Irregular(Irregular { pattern: Pattern::Gaps { .. }, .. }))
    }

    /// Bytes that an independent call moves, where a step is not one call.
    pub(crate) fn call_bytes(&self) -> Option<u64> {
        match self {
            Spec::Strided(shape) => Some(shape.piece_bytes),
            Spec::Btio(_) | Spec::Tile(_) | Spec::Flash(_) | Spec::Subarray(_) | Spec::Irregular(_) => None,
        }
    }
}
