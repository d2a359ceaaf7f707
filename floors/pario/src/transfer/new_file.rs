//! A file written by a transfer: under a temporary name until it is complete.
//!
//! Never: shows a partial file under its final name. Always: an unpublished file is removed; errors name the final path.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, Ordering};

use pario_core::AttrChange;
use pario_core::limits::NAME_BYTES_MAX;

use super::tree::{Durability, LinkPolicy, WriteFile};
use super::{TransferResult, TreePath};

/// A new file of any tree: created, written, finished, published.
#[derive(Debug)]
pub struct NewFile {
    file: Box<dyn WriteFile>,
    temporary: TreePath,
    path: TreePath,
    /// Published or removed.
    is_done: AtomicBool,
}

impl NewFile {
    /// Creates a file in the directory of its final `path`.
    pub fn create(path: &TreePath) -> TransferResult<NewFile> {
        let temporary = path.sibling(&temporary_name(path.name().unwrap_or_default().as_bytes()));
        let created = temporary.tree.create_new(&temporary.path);
        let file = created.map_err(|error| path.blame_parent(error.called(&temporary, path)))?;
        Ok(NewFile { file, temporary, path: path.clone(), is_done: AtomicBool::new(false) })
    }

    fn called<T>(&self, done: TransferResult<T>) -> TransferResult<T> {
        done.map_err(|error| error.called(&self.temporary, &self.path))
    }

    /// Writes all of `data` at `offset`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> TransferResult {
        self.called(self.file.write_at(offset, data))
    }

    /// Sets its length to `bytes`, with a hole at the end if needed, and closes it.
    pub fn finish(&self, bytes: u64, durability: Durability) -> TransferResult {
        self.called(self.file.finish(bytes, durability))
    }

    /// Changes attributes.
    pub fn set_attr(&self, change: AttrChange) -> TransferResult {
        self.called(self.temporary.set_attr(change, LinkPolicy::Follow))
    }

    /// Renames it to its final name, replacing an existing file.
    pub fn publish(&self) -> TransferResult {
        self.called(self.temporary.rename(&self.path))?;
        self.is_done.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes it, unless published; errors are logged.
    pub fn abandon(&self) {
        if self.is_done.swap(true, Ordering::AcqRel) {
            return;
        }
        self.file.abandon();
        if let Err(error) = self.temporary.remove_file() {
            tracing::info!("{error}: a temporary file of a copy is left under this name");
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// A hidden name in the same directory.
fn temporary_name(name: &[u8]) -> OsString {
    let random = std::hash::RandomState::new().build_hasher().finish();
    let suffix = format!(".pario-{random:016x}");
    let mut hidden = vec![b'.'];
    hidden.extend(name.iter().take(NAME_BYTES_MAX - 1 - suffix.len()));
    hidden.extend(suffix.bytes());
    OsString::from_vec(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_hidden_short_and_differ() {
        let name = temporary_name(b"results.bin");
        assert!(name.as_bytes().starts_with(b".results.bin.pario-"));
        assert_ne!(name, temporary_name(b"results.bin"));
        assert_eq!(temporary_name(&[b'x'; 255]).len(), 255);
    }

    #[test]
    fn a_file_that_is_not_published_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = NewFile::create(&TreePath::local(dir.path().join("x"))).unwrap();
        file.write_at(0, b"half").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
