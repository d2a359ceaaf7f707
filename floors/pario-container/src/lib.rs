//! HDF5 trees: the objects of an HDF5 file as directories, files and text, without any HDF5.
//!
//! A tree is a directory. A group is a directory with a header and a link table; a dataset is a file of its elements with a
//! header beside it. Layout: docs/formats/hdf5-tree.md. The HDF5 connector and `pario h5` use this crate.
//!
//! Never: calls HDF5, converts element types. Always: every metadata call that returned survives `kill -9`; a damaged line is
//! an error that names file and line.

mod attributes;
mod bytes;
pub mod check;
mod copy;
mod create;
mod data;
mod error;
mod header;
mod heap;
mod journal;
mod line;
mod links;
mod locate;
mod log;
pub mod names;
mod node;
mod place;
mod relink;
mod sweep;
mod tree;
mod types;

pub use bytes::Hex;
pub use copy::{CopySource, ObjectCopyOptions};
pub use create::NewDataset;
pub use data::filters::{DEFLATE, FLETCHER32, Pipeline, SHUFFLE};
pub use data::{ChunkPlace, ExternalFilters};
pub use error::{Result, TreeError};
pub use header::{
    Attribute, DataLayout, DataSpace, Dataset, FilterSpec, Header, Kind, ObjectBody, TypeRecord,
};
pub use heap::BlobId;
pub use links::{LinkRow, LinkTarget, NewLink};
pub use locate::Found;
pub use names::LinkName;
pub use place::{
    DirectoryPlace, LimitedPlace, PartitionPlace, Place, PlaceEntry, PlaceFile, SCHEME, place_of,
};
pub use tree::{ROOT_ID, Tree, TreeAccess, is_tree};
pub use types::{ByteOrder, ElementType, Member, REFERENCE_TAG};
