//! Datatypes and views: every MPI constructor, normalised into a compact loop nest that is walked, sliced, compared and shipped
//! without ever being expanded.
//!
//! Never: opens, sends, sleeps, spawns; trusts bytes it decodes. Always: cost follows the answer and the depth of the nest,
//! not the number of elements described.
//!
//! ```
//! use pario_view::{Datatype, FileExtent, View, ViewAccess};
//!
//! // Process 0 of 4 sees every fourth byte: bytes 0, 1, 2, 3 of its stream are bytes 0, 4, 8, 12 of the file.
//! let byte = Datatype::elementary(1)?;
//! let every_fourth = byte.resized(0, 4)?;
//! let view = View::new(0, &byte, &every_fourth, ViewAccess::Write)?;
//! let offsets: Vec<u64> = view.extents(0..4).map(|extent| extent.file_offset).collect();
//! assert_eq!(offsets, [0, 4, 8, 12]);
//! assert_eq!(view.stream_offset(8), Some(2));
//! # Ok::<(), pario_view::ViewError>(())
//! ```

mod bounds;
mod build;
mod codec;
mod compare;
mod datatype;
mod error;
mod find;
mod keyed;
mod lower;
mod memory;
mod ordered;
mod overlap;
mod program;
mod residue;
mod sequence;
mod slice;
mod span;
mod table;
mod trees;
mod varint;
mod view;
mod walk;
mod window;

pub use codec::{VIEW_BYTES_MAX, VIEW_NODES_MAX};
pub use compare::{COMPARE_STEPS, OverlapAnswer, ViewShare, disjoint, tiles};
pub use datatype::{
    ArrayOrder, DarrayDimension, Datatype, Distribution, NESTING_MAX, StructMember, SubarrayDimension,
};
pub use error::{ErrorClass, TypeError, ViewError};
pub use memory::{Elements, OutOfMemory};
pub use ordered::{InOrder, ORDERED_BYTES_MAX, ORDERED_PIECES_MAX, Ordered};
pub use slice::{ServerPart, ServerRow, ServerRows, ServerSlice, ViewPart, ViewSlice};
pub use table::{TableError, ViewId, ViewTable};
pub use view::{Direction, Extents, FileExtent, View, ViewAccess};
pub use walk::{ByteRun, RunWalk};

#[cfg(test)]
mod tests;
