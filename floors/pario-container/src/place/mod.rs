//! A place holds the files of one tree. Paths are relative to the tree's directory, with `/` between names; the empty path is
//! the directory itself.
//!
//! Always: `write_new` and `rename` replace their target at once; a process that ends keeps what returned.

mod directory;
mod limited;
mod located;
mod partition;

use std::fmt::Debug;
use std::sync::Arc;

pub use self::directory::DirectoryPlace;
pub use self::limited::LimitedPlace;
pub use self::located::{SCHEME, place_of};
pub use self::partition::PartitionPlace;
use crate::error::Result;

/// The file that is locked; its text names the writer.
const LOCK: &str = ".@lock";
/// Suffix of a file that is being written.
const NEW: &str = "@new";

/// Text of the lock file while this process writes.
fn own_text() -> String {
    format!("process {} on {}\n", std::process::id(), pario::host_name())
}

/// The holder that the text of a lock file names; readers leave none.
fn holder_text(text: &[u8]) -> String {
    let holder = String::from_utf8_lossy(text).trim().to_owned();
    if holder.is_empty() { "readers".into() } else { holder }
}

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceEntry {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Other,
}

/// The storage of one tree.
pub trait Place: Debug + Send + Sync {
    /// The tree's directory, for messages.
    fn root(&self) -> String;
    /// A text that no other directory has, and the kind of what lies at the tree's path, links followed; `None` if nothing does.
    fn identity(&self) -> Result<Option<(String, PlaceEntry)>>;
    /// Contents of a file; `None` if it does not exist.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>>;
    /// Writes a file beside its final name and renames it over.
    fn write_new(&self, path: &str, bytes: &[u8]) -> Result<()>;
    /// Opens a file, for writing too if `write`; then it is created if missing.
    fn open(&self, path: &str, write: bool) -> Result<Arc<dyn PlaceFile>>;
    /// Creates a file, or empties one that exists, and opens it for reading and writing.
    fn create(&self, path: &str) -> Result<Arc<dyn PlaceFile>>;
    /// Creates a directory; one that exists is fine.
    fn create_dir(&self, path: &str) -> Result<()>;
    /// Renames a file or directory; a file that is open stays open. No target exists.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file or symbolic link; a missing one is fine.
    fn remove_file(&self, path: &str) -> Result<()>;
    /// Removes a directory and its contents; a missing one is fine.
    fn remove_tree(&self, path: &str) -> Result<()>;
    /// Makes a symbolic link; an existing one is replaced.
    fn symlink(&self, target: &str, path: &str) -> Result<()>;
    /// Kind of an entry, links not followed; `None` if it does not exist.
    fn kind(&self, path: &str) -> Result<Option<PlaceEntry>>;
    /// Names and kinds of a directory's entries, in the order of their names.
    fn list(&self, path: &str) -> Result<Vec<(String, PlaceEntry)>>;
    /// Locks the tree for one writer or for many readers until the place is dropped. The error names the holder.
    fn lock(&self, exclusive: bool) -> Result<()>;
}

/// An open file of a place.
pub trait PlaceFile: Debug + Send + Sync {
    /// Reads at `offset`; returns the bytes read, less than asked for only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Writes all bytes at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Size in bytes.
    fn size(&self) -> Result<u64>;
    /// Cuts or extends by a hole.
    fn set_size(&self, size: u64) -> Result<()>;
    /// Waits until the bytes are on stable storage.
    fn sync(&self) -> Result<()>;
}
