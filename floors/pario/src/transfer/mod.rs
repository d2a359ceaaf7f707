//! Verified copy between trees of files: directories of this machine and partitions, in parallel.
//!
//! ```text
//!  walk ─► jobs ─► workers: open ─► pieces, several at once ─► close ─► rename
//! ```
//! A directory goes into a partition, is read back and compared:
//! ```
//! use pario::transfer::{self, CopyPair, TreePath, Unobserved};
//!
//! # let input = std::env::temp_dir().join(format!("pario-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&input)?;
//! # std::fs::write(input.join("field"), "hello")?;
//! let partition = pario::Partition::in_process(2)?;
//! let pair = CopyPair { from: TreePath::local(&input), to: TreePath::in_partition(&partition, "/input") };
//! let copied = transfer::copy_verified(&pair, &Unobserved)?;
//! assert_eq!((copied.files, copied.bytes), (1, 5));
//! assert_eq!(partition.metadata("/input/field")?.size, 5);
//! # std::fs::remove_dir_all(&input)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Never: leaves a file that looks whole but is not: data goes under a temporary name, and the file is renamed last. Always:
//! holes stay holes; a failure of one file does not stop the others, unless a server is unreachable; an error names the path.

mod confined;
mod container;
mod copy;
mod error;
mod file;
mod holes;
mod local;
mod map;
mod new_file;
mod observer;
mod partition;
mod path;
mod plan;
mod source;
mod stage;
#[cfg(test)]
mod tests;
mod tree;
mod verify;
mod walk;
mod workers;

pub use confined::ConfinedTree;
pub use copy::{Copied, CopyOptions, CopyPair, CopyReport, PIECE_BYTES, Replace, copy, default_jobs};
pub use error::{TransferError, TransferResult};
pub use local::LocalTree;
pub use new_file::NewFile;
pub use observer::{Observer, Unobserved};
pub use path::TreePath;
pub use plan::pair;
pub use source::SourceFile;
pub use stage::{copy_verified, move_verified, stage_in, stage_out};
pub use tree::{
    Durability, FileStat, FileTree, LinkPolicy, ReadFile, TreeEntries, TreeEntry, TreeId, WriteFile,
};
pub use verify::{VerifyReport, verify};
